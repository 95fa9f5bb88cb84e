#!/bin/bash
# Text that is generated token by token follows from the logits of passes over the whole
# context, whatever a plugin remembers by: attention, which has a cache, or anything else.
. "$(dirname "$0")/train_lib.sh"
case $bin in
bin) build=build/release ;;
*) build=${bin%/bin} ;;
esac
models=${ZT_TEST_MODELS:-$build/test-models}
for f in "$build/peers/stepwise" "$models"/{conv,encdec,shared}.so; do
    [ -f "$f" ] || { echo "$f is missing: make test builds it"; exit 1; }
done
corpus >/dev/null

# same PLUGIN OPTIONS...: the largest difference of a logit, over a context of $length tokens that fills up twice, or
# once where it is that of a text from a source
same() {
    "$build/peers/stepwise" "$@" --block_size "$length" --prompt "a prompt" --generate_tokens 30 >"$tmp/out" 2>"$tmp/err" || { cat "$tmp/err"; return 1; }
    awk '{ exit !(NF == 1 && $1 >= 0 && $1 < 1e-4) }' "$tmp/out" || { cat "$tmp/out"; return 1; }
}
gpt2=(--n_layer 2 --n_head 2 --n_embd 32 --vocab_size 257)
llama=(--num_hidden_layers 2 --hidden_size 32 --num_attention_heads 4 --num_key_value_heads 2
    --intermediate_size 48 --vocab_size 257)
for plugin in "$bin"/models/*.so "$models"/{conv,encdec,shared}.so; do
    name=$(basename "$plugin" .so) length=16
    case $name in
    gpt2) args=("${gpt2[@]}") ;;
    llama) args=("${llama[@]}") ;;
    bert | deberta) continue ;; # encoders write no text
    t5) args=(--d_model 32 --d_kv 8 --d_ff 48 --num_layers 2 --num_heads 3 --vocab_size 257) length=32 ;;
    bart) args=(--d_model 32 --encoder_layers 2 --decoder_layers 2 --encoder_attention_heads 4 --decoder_attention_heads 2
        --encoder_ffn_dim 48 --decoder_ffn_dim 40 --max_position_embeddings 40 --vocab_size 257) length=32 ;;
    *) args=() ;;
    esac
    check "$name: the logits of a step are those of a whole pass" same "$plugin" "${args[@]}"
done

# a line that a model of convolutions learns by heart, and goes on with
for _ in $(seq 60); do echo "the quick brown fox jumps over the lazy dog"; done >"$tmp/line.txt"
write() {
    "$bin/zlaunch" --num_gpus 2 --log_format json "$models/conv.so" --train_file "$tmp/line.txt" \
        --block_size 64 --do_train --max_steps 60 --learning_rate 1e-2 --logging_steps 60 \
        --prompt "the quick b" --generate_tokens 80 --temperature 0 "$@" >"$tmp/log" 2>"$tmp/log.err" &&
        grep -q '"text":"the quick brown fox jumps over the lazy dog\\nthe quick brown fox jumps over the lazy dog' "$tmp/log"
}
check "a model without attention writes what it has learnt" write
echo '{"zero_optimization": {"stage": 3}}' >"$tmp/stage3.json"
check "so it does when weights are sharded" write --deepspeed "$tmp/stage3.json"

# what forward hands back is looked at before it is read as logits
if command -v cc >/dev/null; then
    sed 's/out\[0\] = zt_lm_head(s, x, zt_weight(s, net->wte), in\[1\]);/out[0] = in[1] ? zt_lm_head(s, x, zt_weight(s, net->wte), in[1]) : x;/' \
        test/models/conv.c >"$tmp/odd.c"
    cc -shared -fPIC -D_GNU_SOURCE -Iinclude -o "$tmp/odd.so" "$tmp/odd.c"
    sed 's/zt_model_set_vocab(m, net->vocab);//' test/models/conv.c >"$tmp/any.c"
    cc -shared -fPIC -D_GNU_SOURCE -Iinclude -o "$tmp/any.so" "$tmp/any.c"
    refused() {
        "$bin/zworker" "$1" --block_size 16 --prompt a --generate_tokens 4 --num_train_epochs 1 \
            >"$tmp/log" 2>&1 && return 1
        grep -q "$2" "$tmp/log"
    }
    check "hidden states are not taken for logits" refused "$tmp/odd.so" \
        'forward must return the logits of all positions, (1, 4, 257), or of the last alone; it returned f32 (1, 4, 64)'
    check "nor is a vocabulary guessed" refused "$tmp/any.so" 'does not say how many token ids'
fi
# options of draws, where the likeliest is taken
unused() { # unused TEXT OPTIONS...: a warning about them, once
    "$bin/zlaunch" "$bin/models/gpt2.so" "${gpt2[@]}" --block_size 16 --prompt hi --generate_tokens 2 "${@:2}" 2>&1 | grep -c "warn.*$1"
}
check "an option of draws without draws is said" test "$(unused 'top_k.* has no effect: with --temperature 0' --temperature 0 --top_k 3)" = 1
check "... with beams, too" test "$(unused 'top_p.* has no effect: texts are drawn with --do_sample' --num_beams 2 --top_p 0.5)" = 1
check "... and so is --do_sample itself" test "$(unused 'do_sample has no effect: with --temperature 0' --temperature 0 --do_sample)" = 1
check "... and with draws there is nothing to say" test "$(unused 'has no effect' --temperature 0.5 --top_k 3 --top_p 0.5)" = 0
check "what is of rows does nothing to a prompt" test "$(unused 'source_prefix has no effect: no file of rows is read' --source_prefix x)" = 1
check "... nor what is of losses" test "$(unused 'label_smoothing has no effect: nothing is trained' --label_smoothing 0.1)" = 1
check "a folder in which nothing is saved is said" test "$(unused 'output_dir has no effect: texts go to standard output, and nothing is saved' --output_dir "$tmp/none")" = 1
check "... and is not made" test ! -e "$tmp/none"
check "... but not where an evaluation goes" test "$(unused 'output_dir has no effect' --output_dir "$tmp/some" --eval_file README.md --do_eval)" = 0
check "... which is there" test -s "$tmp/some/eval_results.json"
check "a prompt that is cut off is told, once" test "$(unused 'longest prompt has 20 tokens, of which the last 16 are read: that is --block_size' \
    --tokenizer_name bytes --prompt 12345678901234567890)" = 1
check "  and one that is not is not" test "$(unused 'are read' --tokenizer_name bytes --prompt 1234567890123456)" = 0
# one logit that is NaN: no text of what is left of the others
train 1 "$tmp/log" --max_steps 1 --block_size 16 --n_embd 32 --per_device_train_batch_size 1 --output_dir "$tmp/whole"
cp -r "$tmp/whole" "$tmp/lost"
at=$(head -c 20000 "$tmp/lost/model.safetensors" | grep -ao '"transformer\.wte\.weight":[^}]*"data_offsets": *\[[0-9]*' | grep -o '[0-9]*$')
at=$((8 + $(od -An -tu8 -N8 "$tmp/lost/model.safetensors") + at + (5 * 32 + 5) * 4))
printf '\377\377\377\377' | dd of="$tmp/lost/model.safetensors" bs=1 seek=$at conv=notrunc status=none
is_no_text() { # is_no_text OPTIONS...
    "$bin/zlaunch" -q --num_gpus 1 "$bin/models/gpt2.so" --model_name_or_path "$tmp/lost" --block_size 16 --max_new_tokens 3 "$@" >"$tmp/log" 2>&1
    [ $? -eq 1 ] && grep -q 'behind 2 tokens the model gives token 5 the logit nan: look at the weights (zckpt verify names' "$tmp/log" && return
    sed 's/^/# /' "$tmp/log"
    return 1
}
check "no text is made of logits of which one is NaN" is_no_text --prompt hi --temperature 0
check "  drawn" is_no_text --prompt hi
check "  of the likeliest" is_no_text --prompt hi --top_k 10
check "  by beams" is_no_text --prompt hi --num_beams 2
check "  in answer to what is typed" is_no_text --interactive < <(echo hi)
echo hi >"$tmp/hi.txt"
check "  of a file" is_no_text --test_file "$tmp/hi.txt" --output_dir "$tmp/texts"
check "  of which there is none" test ! -e "$tmp/texts/predictions.jsonl"
# rows are as long as --block_size; texts of a model that was learnt see what it takes
"$bin/zlaunch" --num_gpus 1 "$bin/models/gpt2.so" "${gpt2[@]}" --train_file "$tmp/line.txt" --tokenizer_name bytes --block_size 64 \
    --max_steps 100 --learning_rate 1e-2 --per_device_train_batch_size 4 --output_dir "$tmp/learnt" >"$tmp/log" 2>&1
echo "the qu" >"$tmp/begun.txt"
texts() { # texts NAME OPTIONS...
    "$bin/zlaunch" --num_gpus 1 "$bin/models/gpt2.so" --model_name_or_path "$tmp/learnt" --test_file "$tmp/begun.txt" --output_dir "$tmp/$1" \
        --max_new_tokens 40 --min_new_tokens 40 --temperature 0 "${@:2}" >"$tmp/log" 2>&1 || { sed 's/^/# /' "$tmp/log"; return 1; }
}
forgets() { grep -qE "$1 +data: texts may grow past the 16 tokens that they see at once \(--block_size\), and forget their beginning" "$tmp/log"; }
sees_all() { ! grep -q "see at once" "$tmp/log"; }
check "texts by a model" texts texts.all
check "  and the same beside an evaluation of short rows" texts texts.beside --block_size 16 --do_eval --eval_file "$tmp/corpus.txt" --eval_batches 1
check "    to the letter" cmp "$tmp/texts.all/predictions.jsonl" "$tmp/texts.beside/predictions.jsonl"
check "    of which nothing is said" sees_all
check "  or behind a training on them" texts texts.behind --block_size 16 --do_train --train_file "$tmp/corpus.txt" --max_steps 1 --learning_rate 0
check "    to the letter" cmp "$tmp/texts.all/predictions.jsonl" "$tmp/texts.behind/predictions.jsonl"
check "  where there are no rows it is of the texts" texts texts.short --block_size 16
check "    which is told" forgets warn
check "    and makes others" sh -c '! cmp -s "$1" "$2"' - "$tmp/texts.all/predictions.jsonl" "$tmp/texts.short/predictions.jsonl"
"$bin/zlaunch" --num_gpus 1 "$bin/models/gpt2.so" "${gpt2[@]}" --tokenizer_name bytes --block_size 16 --prompt hi --max_new_tokens 40 >"$tmp/log" 2>&1
check "  and of those of a new model, which has learnt no more" forgets info
# nothing is the end of the text before it, and no byte that anybody wrote
begins_with() { # begins_with PROMPT: the text as JSON
    "$bin/zlaunch" --num_gpus 1 --log_format json "$bin/models/gpt2.so" "${gpt2[@]}" --tokenizer_name bytes --block_size 16 --prompt "$1" \
        --generate_tokens 4 --temperature 0 --seed 4 2>/dev/null | sed -n 's/.*"event":"sample".*"text":"\(.*\)"}.*/:\1/p'
}
check "a text from an empty line begins with it" grep -q '^:\\n' <(begins_with $'\n')
check "  a text from nothing does not" sh -c '[ -n "$1" ] && case $1 in ":\\n"*|": "*) exit 1 ;; esac' - "$(begins_with "")"

finish
