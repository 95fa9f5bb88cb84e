#!/bin/bash
# A model folder that is not quite the model that a plugin builds: refused by name, never trained as another.
. "$(dirname "$0")/launch_lib.sh"
small=(--block_size 16 --do_train --max_steps 2 --per_device_train_batch_size 2 --seed 3 --logging_steps 1)
gpt2=("$bin/models/gpt2.so" --train_file "$0" "${small[@]}")
llama=("$bin/models/llama.so" --train_file "$0" "${small[@]}")

launch --num_gpus 1 "${gpt2[@]}" --n_layer 2 --n_head 2 --n_embd 16 --vocab_size 257 --max_steps 1 --output_dir "$tmp/gpt2"
check "a GPT-2 is made" code_is 0
launch --num_gpus 1 "${llama[@]}" --num_hidden_layers 1 --hidden_size 16 --intermediate_size 16 --num_attention_heads 2 --num_key_value_heads 2 \
    --head_dim 8 --vocab_size 257 --tie_word_embeddings --max_steps 1 --output_dir "$tmp/llama"
check "a Llama is made" code_is 0

# config KIND KEY VALUE...: the model with members of its config.json changed or added, as $tmp/m
config() {
    local of=$1 word=()
    shift
    rm -rf "$tmp/m"
    cp -r "$tmp/$of" "$tmp/m"
    while [ $# -gt 0 ]; do
        word+=(-e "/\"$1\":/d" -e "1a\\  \"$1\": $2,")
        shift 2
    done
    [ ${#word[@]} -eq 0 ] || sed "${word[@]}" "$tmp/$of/config.json" | sed -z 's/,\n}/\n}/' >"$tmp/m/config.json"
}
import() { # KIND OPTION...
    local -n words=$1
    shift
    launch --num_gpus 1 "${words[@]}" --model_name_or_path "$tmp/m" "$@"
}

config gpt2 torch_dtype '"float32"' task_specific_params '{"a": 1}' n_ctx 1024 use_cache true scale_attn_weights true foo null
import gpt2 --output_dir "$tmp/again"
check "what means nothing is taken" code_is 0
while read -r code_wanted key value said; do
    config gpt2 "$key" "$value"
    import gpt2
    check "gpt2 $key $value: $code_wanted" code_is "$code_wanted"
    check "  and named" err_has "${said//\~/ }"
done <<'EOF'
65 scale_attn_weights false "scale_attn_weights"
65 scale_attn_by_inverse_layer_idx true scale
65 tie_word_embeddings false built
65 add_cross_attention true built
65 model_type "gpt_neo" another~plugin~may~be~for~it
65 architectures ["GPT2DoubleHeadsModel"] architectures.0
65 attn_pdrop "abc" a~number~is~wanted
65 n_layer "two" an~integer~is~wanted
65 n_layer 20000000 between~1~and~1000
65 n_layer 1000000000 between~1~and~1000
65 n_embd -16 between~1~and
65 is_encoder_decoder true built
65 quantization_config {"bits":4} does~not~know
65 rotary_dim 8 "rotary
EOF
config gpt2 layer_norm_epsilon -1
import gpt2
check "a norm with a negative epsilon is refused" err_has "layer_norm_epsilon -1"
config gpt2 embd_pdrop 0.5
import gpt2 --output_dir "$tmp/drop"
check "each dropout is its own" sh -c "grep -q '\"embd_pdrop\": 0.5' $tmp/drop/config.json && grep -q '\"attn_pdrop\": 0.0,' $tmp/drop/config.json"
for kind in gpt2 t5 bart; do
    from=test/golden/seq2seq/$kind/model data=(--train_file "test/golden/seq2seq/$kind/pairs.jsonl" --source_column source --target_column target)
    [ "$kind" != gpt2 ] || from=$tmp/gpt2 data=(--train_file "$0" --block_size 16)
    rm -rf "$tmp/m" && cp -r "$from" "$tmp/m"
    sed -i '/_pdrop"\|dropout_rate"\|"dropout"/d' "$tmp/m/config.json"
    launch --num_gpus 1 "$bin/models/$kind.so" "${data[@]}" --tokenizer_name bytes --do_train --max_steps 1 --per_device_train_batch_size 1 \
        --model_name_or_path "$tmp/m" --output_dir "$tmp/left_out.$kind"
    check "$kind: a dropout that is left out is what transformers takes" grep -qE '"(resid_pdrop|dropout_rate|dropout)": 0.1' "$tmp/left_out.$kind/config.json"
    [ "$kind" != gpt2 ] || continue
    sed -i 's/"\(pad\|bos\|eos\)_token_id": *[0-9]*/"\1_token_id": null/' "$tmp/m/config.json"
    launch --num_gpus 1 "$bin/models/$kind.so" "${data[@]}" --tokenizer_name bytes --do_train --max_steps 1 --per_device_train_batch_size 1 \
        --model_name_or_path "$tmp/m" --output_dir "$tmp/none.$kind"
    check "$kind: no token of the tokens that are null" test "$(grep -cE '"(pad|bos|eos)_token_id": null' "$tmp/none.$kind/config.json")" = \
        "$(grep -cE '"(pad|bos|eos)_token_id": null' "$tmp/m/config.json")"
    sed -i 's/"decoder_start_token_id": *[0-9]*/"decoder_start_token_id": 4294967296/' "$tmp/m/config.json"
    launch --num_gpus 1 "$bin/models/$kind.so" "${data[@]}" --tokenizer_name bytes --do_eval --eval_file "${data[1]}" --model_name_or_path "$tmp/m"
    check "$kind: what begins a text is a token" code_is 65
    check "  or is named" err_has "decoder_start_token_id 4294967296 is no token of the vocabulary"
done
rm -rf "$tmp/m" && cp -r test/golden/seq2seq/bart/model "$tmp/m" && sed -i '/"encoder_attention_heads"/d' "$tmp/m/config.json"
launch --num_gpus 1 "$bin/models/bart.so" "${data[@]}" --tokenizer_name bytes --do_eval --eval_file "${data[1]}" --model_name_or_path "$tmp/m"
check "heads that a BART leaves out are 16" err_has "d_model 12 is not a multiple of encoder_attention_heads 16"
config gpt2 pad_token_id 3 max_length 20 use_cache false summary_type '"cls_index"' initializer_range 0.03 task_specific_params '{"a": {"do_sample": true}}' dtype '"float16"' sep_token_id null
import gpt2 --output_dir "$tmp/carried"
for said in '"use_cache": false' '"summary_type": "cls_index"' '"initializer_range": 0.03' '"pad_token_id": 3' '"max_length": 20' '"task_specific_params": {"a": {"do_sample": true}}'; do
    check "what is of tokens, texts and other uses stays with the weights: $said" grep -qF "$said" "$tmp/carried/config.json"
done
check "  and what is of files does not" sh -c "! grep -q 'float16\|sep_token' $tmp/carried/config.json"
config gpt2 layer_norm_epsilon 1e-05 attn_pdrop 0.1
import gpt2 --output_dir "$tmp/digits"
check "numbers keep the digits that they had" sh -c "grep -q '\"layer_norm_epsilon\": 1e-05' $tmp/digits/config.json && grep -q '\"attn_pdrop\": 0.1,' $tmp/digits/config.json"
config gpt2 attn_pdrop 0.5
import gpt2 --output_dir "$tmp/drop2"
check "  and trains otherwise" sh -c "! cmp -s $tmp/drop/model.safetensors $tmp/drop2/model.safetensors"
config gpt2 n_layer 1
import gpt2
check "tensors that nobody takes: 65" code_is 65
check "  named" err_has "12 tensors are not parameters of this model: transformer.h.1.attn.c_attn.bias"
import gpt2 --allow_partial_import
check "  unless asked" code_is 0
config gpt2 rotary_dim 8
import gpt2 --allow_partial_import
check "members of config.json as well" code_is 0
check "  with a warning" err_has '"rotary_dim": ignored'

# add_tensor NAME FROM [FILL]: a copy of the tensor FROM, its bytes replaced by the character FILL if that is given
add_tensor() {
    local file=$tmp/m/model.safetensors n head lo hi bytes i
    n=$(od -An -t u8 -N 8 "$file" | tr -d ' ')
    head=$(head -c $((8 + n)) "$file" | tail -c "$n")
    tail -c +$((9 + n)) "$file" >"$tmp/data"
    entry=$(grep -o "\"$2\":{[^}]*}" <<<"$head")
    lo=$(sed 's/.*_offsets":\[\([0-9]*\),.*/\1/' <<<"$entry")
    hi=$(sed 's/.*_offsets":\[[0-9]*,\([0-9]*\).*/\1/' <<<"$entry")
    bytes=$(stat -c %s "$tmp/data")
    tail -c +$((lo + 1)) "$tmp/data" | head -c $((hi - lo)) >"$tmp/copy"
    [ -z "${3:-}" ] || tr '\000-\377' "$3" <"$tmp/copy" >"$tmp/filled"
    [ -z "${3:-}" ] || mv "$tmp/filled" "$tmp/copy"
    entry=$(sed "s|\"$2\"|\"$1\"|; s|_offsets\":\[[0-9,]*\]|_offsets\":[$bytes,$((bytes + hi - lo))]|" <<<"$entry")
    head=$(sed 's/ *$//; s/}$//' <<<"$head"),$entry}
    while [ $((${#head} % 8)) -ne 0 ]; do head="$head "; done
    {
        for i in 0 1 2 3 4 5 6 7; do printf '%b' "\\0$(printf %o $(((${#head} >> 8 * i) & 255)))"; done
        printf %s "$head"
        cat "$tmp/data" "$tmp/copy"
    } >"$tmp/new"
    mv "$tmp/new" "$file"
}
for of in "gpt2 transformer.wte.weight a file with one of them alone is taken for both" \
    "llama model.embed_tokens.weight if they are two, config.json must say \"tie_word_embeddings\": false"; do
    read -r kind tied advice <<<"$of"
    config "$kind"
    LC_ALL=C sed -i "s/\"$tied\":/$(printf '%-*s' $((${#tied} + 2)) '"lm_head.weight"'):/" "$tmp/m/model.safetensors"
    import "$kind" --learning_rate 0 --output_dir "$tmp/head.$kind"
    check "$kind: a tied head that is there alone is both" "$bin/zckpt" diff "$tmp/$kind" "$tmp/head.$kind"
    config "$kind"
    add_tensor lm_head.weight "$tied"
    import "$kind"
    check "$kind: a tied head that is there as well is taken" code_is 0
    config "$kind"
    add_tensor lm_head.weight "$tied" 1
    import "$kind"
    check "  one that is another is refused: 65" code_is 65
    check "  and named" err_has "lm_head.weight is not the same as $tied"
    check "  with what can be done" err_has "$advice"
done
config gpt2
add_tensor transformer.h.0.attn.bias transformer.wpe.weight
import gpt2
check "causal masks of older files are nothing" code_is 0
# Weights beyond fp16: no scale makes a number of that loss.
config gpt2
bytes=$(od -An -t u8 -N 8 "$tmp/gpt2/model.safetensors" | tr -d ' ')
{ head -c $((8 + bytes)) "$tmp/gpt2/model.safetensors"; tail -c +$((9 + bytes)) "$tmp/gpt2/model.safetensors" | tr '\000-\377' '\177'; } \
    >"$tmp/m/model.safetensors"
import gpt2 --fp16 --output_dir "$tmp/none"
check "a loss that is never finite: 1" code_is 1
check "  and said" err_has "the loss was not finite at any of 2 steps, and no scale of it changes that; look at the weights and the data, or train with --bf16"
check "  and nothing is saved" test ! -e "$tmp/none/model.safetensors"
import gpt2 --bf16 --output_dir "$tmp/none"
check "  in bf16, where nothing is scaled, as well: 1" code_is 1
check "  and who has to be looked at" err_has "the loss was not finite at any of 2 steps, each was skipped, and the weights have not changed; look at the weights and the data"
import gpt2 --output_dir "$tmp/none"
check "weights that are beyond all sums, in fp32: 1" code_is 1
check "  and who has to be looked at: they, for no step has changed them" err_has "no step has changed the weights yet: zckpt verify"

# llm.c's files, by their first word; and GGUF
for file in "\xc6\xd7\x34\x01 weights of llm.c, which are not read: its dev/eval/export_hf.py" \
    "\x88\xd8\x34\x01 a token file of llm.c, no weights" "GGUF a GGUF file"; do
    printf '%b' "${file%% *}\x03\0\0\0\0\x04\0\0" >"$tmp/gpt2_124M.bin"
    launch --num_gpus 1 "$bin/models/gpt2.so" --model_name_or_path "$tmp/gpt2_124M.bin" --prompt 1
    check "${file#* }, as a model: refused by that" err_has "gpt2_124M.bin: ${file#* }"
done
mkdir "$tmp/lfs" && printf 'version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n' >"$tmp/lfs/model.safetensors"
launch --num_gpus 1 "$bin/models/gpt2.so" --model_name_or_path "$tmp/lfs" --prompt 1
check "what git leaves in place of a large file is called that" err_has "lfs/model.safetensors: is a pointer of Git LFS in place of the file: git lfs pull"
launch --num_gpus 1 "$bin/models/gpt2.so" --model_name_or_path "$tmp" --prompt 1
check "a folder with such a file: it is named" err_has "gpt2_124M.bin is there: if that is meant, name the file itself"

# What a killed save left is gone with the next start, but not what is being written.
mkdir -p "$tmp/left/.checkpoint-7.tmp/global_step7" "$tmp/left/.checkpoint-8.tmp.old" "$tmp/left/.checkpoint-x.tmp"
touch "$tmp/left/.checkpoint-7.tmp/global_step7/zero_rank_00000.safetensors"
touch "$tmp/left/.model.safetensors.tmp" "$tmp/left/.other.safetensors.tmp"
config gpt2
exec 8<>"$tmp/left/.other.safetensors.tmp"
flock 8
import gpt2 --output_dir "$tmp/left" --overwrite_output_dir --max_steps 1
check "a folder with leftovers is written" code_is 0
check "  without leaving them" test ! -e "$tmp/left/.model.safetensors.tmp"
check "  nor parts of checkpoints" test "$(ls -d "$tmp"/left/.checkpoint*)" = "$tmp/left/.checkpoint-x.tmp"
check "  but for one that is locked" test -e "$tmp/left/.other.safetensors.tmp"
exec 8>&-

config llama attention_multiplier 0.5
import llama
check "llama: a member that is not known is refused" err_has '"attention_multiplier"'
config llama rope_scaling '{"rope_type": "linear", "factor": 2.0, "short_factor": 1}'
import llama
check "llama: one inside another as well" err_has '"rope_scaling.short_factor"'
config llama original_max_position_embeddings 1 rope_scaling '{"rope_type": "llama3", "factor": 2.0, "original_max_position_embeddings": 1e300}'
import llama
check "llama: numbers beyond all integers are refused" test "$code" -ne 0
config llama num_hidden_layers 1000000000
import llama
check "llama: the bounds of options hold for config.json" code_is 65
finish
