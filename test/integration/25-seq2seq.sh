#!/bin/bash
# Models that read one text and write another: the same bits whatever the ZeRO stage, ranks that agree, a plan that
# holds, resumption and smoothed targets.
. "$(dirname "$0")/train_lib.sh"

# 90 pairs: letters, and the same backwards
awk 'BEGIN {
    for (i = 0; i < 90; i++) {
        s = t = ""
        for (k = 0; k < 3 + i * 7 % 11; k++) { c = sprintf("%c", 97 + (i + k * k) % 20); s = s c; t = c t }
        printf "{\"q\": \"%s\", \"a\": \"%s\"}\n", s, t
    }
}' >"$tmp/pairs.jsonl"
t5="--d_model 32 --d_kv 8 --d_ff 48 --num_layers 2 --num_heads 3"
bart="--d_model 32 --encoder_layers 2 --decoder_layers 2 --encoder_attention_heads 4 --decoder_attention_heads 2
      --encoder_ffn_dim 48 --decoder_ffn_dim 40 --max_position_embeddings 40"
for s in 0 1 2 3; do
    printf '{"zero_optimization": {"stage": %d, "stage3_param_persistence_threshold": 0}}\n' $s >"$tmp/$s.json"
done

# write MODEL RANKS OUT ARGS...: JSON events of a run to OUT
write() {
    local model=$1 ranks=$2 out=$3
    shift 3
    # shellcheck disable=SC2086
    "$bin/zlaunch" --num_gpus "$ranks" --log_format json "$bin/models/$model.so" ${!model} \
        --tokenizer_name bytes "$@" >"$out" 2>"$out.err" || { sed 's/^/# /' "$out.err"; false; }
}
usual=(--source_column q --target_column a)
columns=("${usual[@]}")
# learn MODEL RANKS OUT ARGS...: a training on the pairs
halves=1
dropout=0.1 # its numbers depend on how wide rows are padded, so on the rows of a micro-batch
learn() {
    local model=$1 ranks=$2 out=$3
    shift 3
    write "$model" "$ranks" "$out" --do_train --train_file "$tmp/pairs.jsonl" "${columns[@]}" \
        --per_device_train_batch_size $((4 / ranks / halves)) --gradient_accumulation_steps $halves --max_steps 6 --logging_steps 1 --learning_rate 2e-3 --seed 3 \
        --dropout "$dropout" --max_grad_norm 0.5 --fingerprint_steps 6 "$@"
}
numbers() { paste <(field loss "$1") <(field grad_norm "$1") && field fingerprint "$1"; }
same_bits() { [ -s "$1" ] && [ -s "$2" ] && [ "$(numbers "$1")" = "$(numbers "$2")" ] && numbers "$1" | grep -q .; }
said() { sed -n 's/.*"event":"sample".*"text":"\(.*\)"}/\1/p' "$1"; }
refused() { # refused CODE TEXT COMMAND...
    local code=$1 text=$2
    shift 2
    "$@" >"$tmp/refused" 2>&1
    [ $? -eq "$code" ] && grep -qF -- "$text" "$tmp/refused" || { sed 's/^/# /' "$tmp/refused"; false; }
}
as_is() { "$bin/zlaunch" --num_gpus 1 "$bin/models/$1.so" --tokenizer_name bytes "${@:2}"; }

for m in t5 bart; do
    check "$m learns pairs" learn $m 2 "$tmp/$m" --label_smoothing_factor 0.1
    for s in 1 2 3; do
        learn $m 2 "$tmp/$m.$s" --label_smoothing_factor 0.1 --deepspeed "$tmp/$s.json"
        check "  with the same bits at stage $s" same_bits "$tmp/$m" "$tmp/$m.$s"
    done
    learn $m 2 "$tmp/$m.r" --label_smoothing_factor 0.1 --deepspeed "$tmp/3.json" --gradient_checkpointing
    check "  and with its blocks recomputed" same_bits "$tmp/$m" "$tmp/$m.r"
    columns=(--text_column q --summary_column a)
    learn $m 2 "$tmp/$m.s" --label_smoothing_factor 0.1
    columns=("${usual[@]}")
    check "  and of columns by the names of run_summarization" same_bits "$tmp/$m" "$tmp/$m.s"
    learn $m 1 "$tmp/$m.one" --label_smoothing_factor 0.1
    dropout=0
    learn $m 2 "$tmp/$m.two"
    halves=2 learn $m 1 "$tmp/$m.same"
    check "  on one rank, half by half, the same curve" same_curve "$tmp/$m.two" "$tmp/$m.same" 1e-4
    dropout=0.1
    learn $m 1 "$tmp/$m.plain"
    check "  another one without smoothing" test "$(field loss "$tmp/$m.one" | head -1)" != "$(field loss "$tmp/$m.plain" | head -1)"
    learn $m 1 "$tmp/$m.saved" --label_smoothing_factor 0.1 --output_dir "$tmp/$m.out" --save_steps 3
    check "  a run that goes on from a checkpoint has the same bits" sh -c '[ "$1" = "$2" ] && [ -n "$1" ]' - \
        "$(learn $m 1 "$tmp/$m.more" --label_smoothing_factor 0.1 --output_dir "$tmp/$m.out" --overwrite_output_dir \
            --resume_from_checkpoint "$tmp/$m.out/checkpoint-3" && field loss "$tmp/$m.more")" \
        "$(field loss "$tmp/$m.one" | tail -3)"
    check "  its weights evaluate each pair once" write $m 2 "$tmp/$m.eval" --model_name_or_path "$tmp/$m.out" --do_eval \
        --eval_file "$tmp/pairs.jsonl" --source_column q --target_column a --per_device_eval_batch_size 7
    check "  every token of the targets, and their ends" grep -qF "\"tokens\":$(sed 's/.*"a": "//; s/"}//' "$tmp/pairs.jsonl" | wc -c)," \
        "$tmp/$m.eval"
    for how in "" "--num_beams 3"; do
        # shellcheck disable=SC2086
        write $m 1 "$tmp/$m.text" --model_name_or_path "$tmp/$m.out" --prompt abcd hgf --generate_tokens 12 --temperature 0 $how
        # shellcheck disable=SC2086
        write $m 2 "$tmp/$m.text3" --model_name_or_path "$tmp/$m.out" --prompt abcd hgf --generate_tokens 12 --temperature 0 $how \
            --deepspeed "$tmp/3.json"
        check "  and write the same texts from sharded weights ($how)" test "$(grep -c '"event":"sample"' "$tmp/$m.text")" -eq 2 -a \
            "$(said "$tmp/$m.text")" = "$(said "$tmp/$m.text3")"
    done
    # more texts than rows, of several lengths, so that one rank reads a source while another writes, or has ended
    some="abcd hgf a bcdefghij cab --generate_tokens 12 --temperature 0 --per_device_eval_batch_size 2 --num_beams 3"
    # shellcheck disable=SC2086
    write $m 1 "$tmp/$m.some" --model_name_or_path "$tmp/$m.out" --prompt $some
    for s in 0 3; do
        # shellcheck disable=SC2086
        write $m 2 "$tmp/$m.some$s" --model_name_or_path "$tmp/$m.out" --prompt $some --deepspeed "$tmp/$s.json"
        check "  those of many sources, too, at stage $s" test "$(grep -c '"event":"sample"' "$tmp/$m.some")" -eq 5 -a \
            "$(said "$tmp/$m.some")" = "$(said "$tmp/$m.some$s")"
    done
done

check "a new model of bytes says that 256 ends its texts" sh -c 'grep -q "\"eos_token_id\": 256" "$1" && grep -q "\"eos_token_id\": 256" "$2"' - \
    "$tmp/t5.out/config.json" "$tmp/bart.out/config.json"
# bytes, and the same tokens by their numbers: one end behind a source, as in training
learn t5 1 "$tmp/wide" --vocab_size 258 --output_dir "$tmp/wide.out"
echo abcd >"$tmp/bytes.txt" && echo 97 98 99 100 256 >"$tmp/numbers.txt"
for how in bytes numbers; do
    tokenizer=()
    [ $how = numbers ] || tokenizer=(--tokenizer_name bytes)
    "$bin/zlaunch" --num_gpus 1 "$bin/models/t5.so" --model_name_or_path "$tmp/wide.out" "${tokenizer[@]}" --test_file "$tmp/$how.txt" \
        --num_beams 2 --max_new_tokens 6 --output_dir "$tmp/of.$how" >"$tmp/out" 2>&1
    grep -o '"score":[^}]*' "$tmp/of.$how/predictions.jsonl" >"$tmp/score.$how"
done
check "a source of bytes has one end" sh -c '[ -s "$1" ] && cmp "$1" "$2"' - "$tmp/score.bytes" "$tmp/score.numbers"

# sources of several lengths, and beams of as many tokens for each: what a pass leaves fits the next one
for m in t5 bart; do
    check "$m writes within its plan, whatever the lengths of sources" write $m 1 "$tmp/$m.fits" --prompt abcd hgf \
        --num_beams 4 --max_new_tokens 30
    check "  two texts" test "$(grep -c '"event":"sample"' "$tmp/$m.fits")" -eq 2
    check "  also where a shorter source lies higher in the pool than the longest" write $m 1 "$tmp/$m.fits" \
        --vocab_size 400 --prompt hello wor l 'd!' abcdef --max_new_tokens 40 --temperature 0
done

# texts beside those that were meant: half of them are what the model writes, 23 rows on ranks with unlike shares
rated() { # rated RANKS FILE OUT: predicted, and compared
    write t5 "$1" "$tmp/rated" --do_predict --test_file "$2" --source_column q --target_column a --max_new_tokens 6 --vocab_size 384 \
        --predict_with_generate --output_dir "$3"
}
score() { sed -n "s/.*\"predict_$1\":\([0-9.]*\).*/\1/p" "$2/predict_results.json"; }
head -n 23 "$tmp/pairs.jsonl" >"$tmp/some.jsonl"
check "t5 writes beside what is meant" rated 1 "$tmp/some.jsonl" "$tmp/rated.any"
sed 's/"prompt":/"q":/; s/"generated":/"a":/' "$tmp/rated.any/predictions.jsonl" >"$tmp/own.jsonl"
awk 'NR == FNR { row[FNR] = $0; next } { print FNR % 2 ? $0 : row[FNR] }' "$tmp/some.jsonl" "$tmp/own.jsonl" >"$tmp/half.jsonl"
rated 2 "$tmp/own.jsonl" "$tmp/rated.own"
check "  chrF of its own texts is 100" test "$(score chrf "$tmp/rated.own")" = 100.0
for ranks in 1 2 3; do rated $ranks "$tmp/half.jsonl" "$tmp/rated.$ranks"; done
check "  chrF of half of them is less" awk -v f="$(score chrf "$tmp/rated.1")" 'BEGIN { exit !(f > 20 && f < 80) }'
check "  every row counts once on 1, 2 and 3 ranks" sh -c 'grep -q "samples\":23," "$1" && cmp "$1" "$2" && cmp "$1" "$3"' - \
    "$tmp"/rated.{1,2,3}/predict_results.json
# what is trained with a prefix, or as a pair of languages, is predicted so
said() { sed 's/.*"generated"://' "$1/predictions.jsonl"; }
sed 's/"q": *"/&say: /' "$tmp/some.jsonl" >"$tmp/prefixed.jsonl"
sed -E 's/"q": */"translation": {"en": /; s/"a": */"de": /; s/}$/}}/' "$tmp/some.jsonl" >"$tmp/languages.jsonl"
rated 1 "$tmp/prefixed.jsonl" "$tmp/rated.prefixed"
write t5 1 "$tmp/rated" --do_predict --test_file "$tmp/languages.jsonl" --source_lang en --target_lang de --source_prefix 'say: ' \
    --max_new_tokens 6 --vocab_size 384 --predict_with_generate --output_dir "$tmp/rated.languages"
check "  rows in two languages, behind a prefix, are the same" cmp <(said "$tmp/rated.prefixed") <(said "$tmp/rated.languages")
compared() { sed 's/"copied_[a-z]*":[-0-9.e+]*,//g' "$1/predict_results.json"; } # but for the prefix, which one has in its sources
check "  and are compared with the same" cmp <(compared "$tmp/rated.prefixed") <(compared "$tmp/rated.languages")
# texts are as long as is asked, whatever the length of the targets that are learnt from
wrote() { grep -qF "\"msg\":\"$1 tokens in" "$tmp/rated"; }
long() { # long OUT ARGS...: no end of a text is written
    write t5 1 "$tmp/rated" --do_predict --test_file "$tmp/some.jsonl" --source_column q --target_column a --vocab_size 384 \
        --min_new_tokens 19 --output_dir "$@"
}
check "a text may be longer than a target" long "$tmp/long" --max_target_length 12 --val_max_target_length 20
check "  and is, with its first token counted" wrote $((23 * 19))
check "  on its own words, too" long "$tmp/long.own" --max_target_length 12 --max_new_tokens 19
check "  the same texts" cmp "$tmp/long/predictions.jsonl" "$tmp/long.own/predictions.jsonl"
check "  and is as long as targets by itself" long "$tmp/long.usual" --max_target_length 12 --min_new_tokens 11
check "  with the first token counted" wrote $((23 * 11))
sed -E 's/, *"a": *"[^"]*"//' "$tmp/some.jsonl" >"$tmp/sources.jsonl"
write t5 1 "$tmp/rated" --do_predict --test_file "$tmp/sources.jsonl" --source_column q --max_new_tokens 6 --vocab_size 384 \
    --output_dir "$tmp/rated.sources"
check "  sources alone need no column of targets" cmp <(said "$tmp/rated.any") <(said "$tmp/rated.sources")
check "  the prefix matters" sh -c '! cmp -s "$1" "$2"' - <(said "$tmp/rated.any") <(said "$tmp/rated.languages")
check "  lines have nothing to compare with" refused 2 'takes records, with a column "completion"' \
    as_is t5 --do_predict --test_file /usr/share/common-licenses/BSD --predict_with_generate --max_new_tokens 4 --output_dir "$tmp/rated.no"
check "  nor does a text that is held out" refused 2 "--predict_with_generate needs rows with texts to compare with" \
    as_is t5 --do_eval --train_file "$tmp/pairs.jsonl" --source_column q --target_column a --predict_with_generate

# the same texts in an evaluation: scores OUT gives its metrics, in their order
texts=(--eval_file "$tmp/half.jsonl" --predict_with_generate --per_device_eval_batch_size 4)
scores() { grep '"event":"eval"' "$1" | grep -o '"\(bleu\|chrf\|rouge[12L]\)":[-0-9.e+]*' | sed 's/.*://'; }
evaluated() { # evaluated RANKS OUT ARGS...
    write t5 "$1" "$2" --do_eval --source_column q --target_column a --vocab_size 384 "${texts[@]}" "${@:3}"
}
evaluated 1 "$tmp/eval.1" --max_new_tokens 6
evaluated 2 "$tmp/eval.2" --val_max_target_length 7
evaluated 3 "$tmp/eval.3" --max_new_tokens 6 --deepspeed "$tmp/3.json"
check "an evaluation has the scores that a prediction has" test "$(scores "$tmp/eval.1")" = \
    "$(for s in bleu chrf rouge1 rouge2 rougeL; do score $s "$tmp/rated.1"; done)"
check "  on 2 ranks, and on 3 with sharded weights" test "$(scores "$tmp/eval.1" | wc -l)" -eq 5 -a "$(scores "$tmp/eval.1")" = \
    "$(scores "$tmp/eval.2")" -a "$(scores "$tmp/eval.1")" = "$(scores "$tmp/eval.3")"
evaluated 2 "$tmp/eval.beams" --max_new_tokens 6 --num_beams 3
check "  others with beams" test "$(scores "$tmp/eval.beams" | wc -l)" -eq 5 -a "$(scores "$tmp/eval.beams")" != "$(scores "$tmp/eval.1")"
evaluated 2 "$tmp/eval.few" --max_new_tokens 6 --max_eval_samples 5
check "  and of no more rows than it takes" test -n "$(scores "$tmp/eval.few")" -a "$(scores "$tmp/eval.few")" != "$(scores "$tmp/eval.1")"
check "a training that evaluates so" learn t5 2 "$tmp/t5.rates" --label_smoothing_factor 0.1 --deepspeed "$tmp/3.json" --do_eval --eval_steps 2 \
    "${texts[@]}" --max_new_tokens 6 --metric_for_best_model eval_chrf --early_stopping_patience 1 --early_stopping_threshold 100 \
    --load_best_model_at_end --output_dir "$tmp/t5.best"
check "  learns the same" test "$(field loss "$tmp/t5" | head -4)" = "$(field loss "$tmp/t5.rates")"
check "  ends where no text is better by as much" grep -q "step 4 is the last" "$tmp/t5.rates.err" "$tmp/t5.rates"
best=$(grep '"event":"eval"' "$tmp/t5.rates" | sed 's/.*"chrf":\([-0-9.e+]*\).*/\1/' | sort -g | tail -1)
write t5 1 "$tmp/t5.best.eval" --do_eval --source_column q --target_column a "${texts[@]}" --max_new_tokens 6 --model_name_or_path "$tmp/t5.best"
check "  and with the weights of its best texts" test -n "$best" -a "$(scores "$tmp/t5.best.eval" | sed -n 2p)" = "$best"
check "a length of texts is said once" refused 2 "--generation_max_length is 9, with the token that a text begins with" \
    as_is t5 --do_eval --source_column q --target_column a "${texts[@]}" --generation_max_length 9 --max_new_tokens 9
check "and is not for a model that goes on with its prompt" refused 2 "--generation_max_length is for models that read one text" \
    as_is gpt2 --do_eval --source_column q --target_column a "${texts[@]}" --generation_max_length 9

# a tokenizer that ends texts by its frame, and one that leaves that to its eos_token: sources end once either way, learnt or read
"$bin/ztok" --train 300 /usr/share/common-licenses/GPL-3 --out "$tmp/plain" >"$tmp/log" 2>&1
cp -r "$tmp/plain" "$tmp/framed"
frame='[{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "<|endoftext|>", "type_id": 0}}]'
special='{"<|endoftext|>": {"id": "<|endoftext|>", "ids": [0], "tokens": ["<|endoftext|>"]}}'
sed 's/"post_processor": *null/"post_processor": {"type": "TemplateProcessing", "single": '"$frame"', "pair": '"$frame"', "special_tokens": '"$special"'}/' \
    "$tmp/plain/tokenizer.json" >"$tmp/framed/tokenizer.json"
# shellcheck disable=SC2086
ends() {
    "$bin/zworker" "$bin/models/t5.so" $t5 --vocab_size 300 --tokenizer_name "$tmp/$1" "${usual[@]}" --train_file "$tmp/pairs.jsonl" --max_steps 20 \
        --learning_rate 1e-2 --dropout 0 --output_dir "$tmp/ends.$1" --overwrite_output_dir --test_file "$tmp/pairs.jsonl" \
        --max_new_tokens 6 >"$tmp/log" 2>&1 || { sed 's/^/# /' "$tmp/log"; false; }
}
both_end() { ends plain && ends framed && cmp "$tmp/ends.plain/model.safetensors" "$tmp/ends.framed/model.safetensors"; }
check "sources that are learnt end once, by a frame or without" both_end
check "  and so do those that are read" cmp "$tmp/ends.plain/predictions.jsonl" "$tmp/ends.framed/predictions.jsonl"
check "  as the frame is one" sh -c '! cmp -s "$1/plain/tokenizer.json" "$1/framed/tokenizer.json"' - "$tmp"

check "a text is no pair" refused 2 "has no pairs of a text to read and one to write" \
    as_is t5 --do_train --train_file /usr/share/common-licenses/GPL-3 --max_steps 1
check "rows without names are none" refused 2 "its rows are no pairs" as_is t5 --do_train --train_file "$tmp/pairs.jsonl" --max_steps 1
for side in completion prompt; do
    { echo "{\"$side\": \"yes\"}" && sed 's/"q"/"prompt"/; s/"a"/"completion"/' "$tmp/pairs.jsonl"; } >"$tmp/half.jsonl"
    other=$([ $side = prompt ] && echo completion || echo prompt)
    check "a first row that has the $side alone is told" refused 65 "half.jsonl:1: the row has no \"$other\", it has $side: " \
        as_is t5 --do_train --train_file "$tmp/half.jsonl" --max_steps 1
done
cut_off() { as_is t5 --model t5-small --num_layers 1 --d_model 16 --num_heads 2 --d_kv 8 --d_ff 32 --prompt 0123456789 --max_new_tokens 2 "$@" 2>&1 | grep -F 'are read: '; }
check "a source that is cut off is told" grep -qF 'the longest source has 11 tokens, of which the first 5 and the last are read: that is --max_source_length' \
    <(cut_off --max_source_length 6)
check "  and one that is not is not" test -z "$(cut_off --max_source_length 11)"
check "lengths of pairs are not for other models" refused 2 "--max_source_length is for models that read one text" \
    as_is gpt2 --do_train --train_file "$tmp/pairs.jsonl" --source_column q --target_column a --max_source_length 9 --max_steps 1
check "a target has one length" refused 2 "--max_target_length 8 and --block_size 9" \
    as_is t5 --do_train --train_file "$tmp/pairs.jsonl" --source_column q --target_column a --max_target_length 8 --block_size 9 --max_steps 1
check "a pair is a row by itself" refused 2 "--packing: a row has one source for one target" \
    as_is t5 --do_train --train_file "$tmp/pairs.jsonl" --source_column q --target_column a --packing wrapped --max_steps 1
check "  whose target alone is learnt" refused 2 "--assistant_only_loss: with --task seq2seq the target alone is written" \
    as_is t5 --do_train --train_file "$tmp/pairs.jsonl" --source_column q --target_column a --assistant_only_loss false --max_steps 1
check "a source longer than the positions" refused 2 "--max_source_length 2000 is longer than the 1024 tokens that bart takes" \
    as_is bart --do_train --train_file "$tmp/pairs.jsonl" --source_column q --target_column a --max_source_length 2000 --max_steps 1
check "  and a target that is" refused 2 "--max_length 2000 is longer than the 1024 tokens that bart takes" \
    as_is bart --do_train --train_file "$tmp/pairs.jsonl" --source_column q --target_column a --max_length 2000 --max_steps 1
check "a text has at most as many tokens as there are positions" refused 2 \
    "--generate_tokens 2000 is longer than the 1024 tokens that bart writes" as_is bart --prompt abc --generate_tokens 2000

# ---- tokens of a new model are those of its tokenizer
# made MODEL OUT ARGS...: a training from scratch into a folder
made() {
    # shellcheck disable=SC2086
    "$bin/zlaunch" --num_gpus 1 "$bin/models/$1.so" ${!1} --do_train --train_file "$tmp/pairs.jsonl" "${usual[@]}" --max_steps 1 \
        --output_dir "$2" "${@:3}" >"$tmp/out" 2>"$tmp/err" || { sed 's/^/# /' "$tmp/err"; false; }
}
has_ids() { # has_ids FOLDER KEY=ID...
    for pair in "${@:2}"; do
        grep -q "\"${pair%=*}_token_id\": *${pair#*=},*\$" "$1/config.json" || { grep token_id "$1/config.json" | sed 's/^/# /'; return 1; }
    done
}
for m in t5 bart; do
    check "$m with a tokenizer made for it" made $m "$tmp/new-$m" --train_tokenizer 300
    check "  ends as its texts do" has_ids "$tmp/new-$m" pad=0 eos=0 decoder_start=0
    check "  which its tokenizer puts behind a source" grep -q '"single": \[{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "<|endoftext|>"' \
        "$tmp/new-$m/tokenizer.json"
    mkdir "$tmp/given-$m" && cp "$tmp/new-$m/tokenizer.json" "$tmp/given-$m/"
    printf '{"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|endoftext|>", "bos_token": "+", "pad_token": "*"}\n' \
        >"$tmp/given-$m/tokenizer_config.json"
    check "  and with one that is given" made $m "$tmp/like-$m" --tokenizer_name "$tmp/given-$m"
done
check "T5 begins with what pads" has_ids "$tmp/like-t5" pad=10 eos=0 decoder_start=10
check "BART with what ends" has_ids "$tmp/like-bart" pad=10 bos=11 eos=0 decoder_start=0

finish
