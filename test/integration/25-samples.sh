#!/bin/bash
# --packing none: each row of the data is a training row. Padding changes no loss; the same bits whatever stage, cache or
# file the tokens come from, and after a restart; the same curve on any number of ranks.
. "$(dirname "$0")/train_lib.sh"
g=$bin/models/gpt2.so
tok=test/golden/tokenizer

awk -v rows="$tmp/rows.jsonl" -v one="$tmp/one" 'BEGIN {
    split("what is said here by one of the two who were sent to look for a place é", w, " ")
    for (i = 0; i < 60; i++) {
        text = ""
        for (k = 0; k < 3 + i * 7 % 19; k++) text = text w[1 + (i * 5 + k * 3) % 17] " "
        printf "{\"text\": \"%s\"}\n", text >rows
        if (i < 6) printf "{\"text\": \"%s\"}\n", text >(one i ".jsonl")
        if (i < 6) printf "{\"text\": \"%s\"}\n", text >(one "s.jsonl")
    }
}'

# gpt2 RANKS OUT ARGS...: rows of up to 16 tokens
gpt2() {
    local ranks=$1 out=$2
    shift 2
    "$bin/zlaunch" --num_gpus "$ranks" --log_format json "$g" --n_layer 2 --n_head 2 --n_embd 32 --block_size 16 \
        --tokenizer_name "$tok" --packing none --seed 7 "$@" >"$out" 2>"$out.err"
}
train() {
    local ranks=$1 out=$2
    shift 2
    gpt2 "$ranks" "$out" --do_train --max_steps 6 --logging_steps 1 --fingerprint_steps 1 \
        --per_device_train_batch_size $((8 / ranks)) "$@"
}
refused() {
    local code=$1 words=$2
    shift 2
    "$bin/zlaunch" --num_gpus 1 "$g" --n_layer 1 --n_head 2 --n_embd 32 --block_size 16 --max_steps 1 "$@" >"$tmp/refused" 2>&1
    [ $? -eq "$code" ] && grep -qF -- "$words" "$tmp/refused" && return
    head -n 4 "$tmp/refused" | cut -c1-300 | sed "s/^/# /"
    return 1
}
figure() { sed -n "s/.*\"event\":\"eval\".*\"$2\":\([0-9.]*\).*/\1/p" "$1" | head -n 1; }
near() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a > 0 && (a - b) ^ 2 <= (1e-6 * b) ^ 2) }' || { echo "# $1, $2"; return 1; }; }

# ---- padding
sum=0 tokens=0
for i in 0 1 2 3 4 5; do
    gpt2 1 "$tmp/e$i" --do_eval --eval_file "$tmp/one$i.jsonl" --per_device_eval_batch_size 1
    sum=$(awk -v s="$sum" -v l="$(figure "$tmp/e$i" loss)" -v n="$(figure "$tmp/e$i" tokens)" 'BEGIN { printf "%.12g", s + l * n }')
    tokens=$((tokens + $(figure "$tmp/e$i" tokens)))
done
mean=$(awk -v s="$sum" -v n="$tokens" 'BEGIN { printf "%.12g", s / n }')
for how in "" "--pad_to_multiple_of 8" "--pad_to_max_length"; do
    # shellcheck disable=SC2086 # words
    gpt2 1 "$tmp/e" --do_eval --eval_file "$tmp/ones.jsonl" --per_device_eval_batch_size 6 $how
    check "six samples in one batch ${how:+($how) }have the loss that each has alone" near "$(figure "$tmp/e" loss)" "$mean"
    check "  over as many tokens" [ "$(figure "$tmp/e" tokens)" -eq "$tokens" ]
done
gpt2 2 "$tmp/e" --do_eval --eval_file "$tmp/ones.jsonl" --per_device_eval_batch_size 2
check "  on two ranks as well" near "$(figure "$tmp/e" loss)" "$mean"

# a sample that is longer: block_size tokens, and one behind them that is a target alone
of_bytes() { # TEXT: the loss of a row of it, a token a byte
    echo "{\"text\": \"$1\"}" >"$tmp/long.jsonl"
    gpt2 1 "$tmp/e" --tokenizer_name bytes --do_eval --eval_file "$tmp/long.jsonl" --per_device_eval_batch_size 1 && figure "$tmp/e" loss
}
long=$(of_bytes abcdefghijklmnopqrs)
check "a long sample has block_size targets" [ "$(figure "$tmp/e" tokens)" -eq 16 ]
check "  the last of which is the token behind them" [ "$long" != "$(of_bytes abcdefghijklmnopQrs)" ]
check "  and nothing else of what follows" [ "$long" = "$(of_bytes abcdefghijklmnopqZZZZZ)" ]

# ---- training
check "samples are trained on" train 1 "$tmp/1" --train_file "$tmp/rows.jsonl"
check "  which the first line says" grep -q '8 rows of up to 16 tokens, 0.8 epochs of 60 samples' "$tmp/1" "$tmp/1.err"
for ranks in 2 4; do
    train "$ranks" "$tmp/$ranks" --train_file "$tmp/rows.jsonl"
    check "  on $ranks ranks with the same curve" same_curve "$tmp/1" "$tmp/$ranks" 1e-5
done
train 2 "$tmp/z3" --train_file "$tmp/rows.jsonl" --deepspeed '{"zero_optimization": {"stage": 3}}'
check "  at stage 3 with the same bits" same_bits "$tmp/2" "$tmp/z3"
train 1 "$tmp/max" --train_file "$tmp/rows.jsonl" --pad_to_max_length
check "  and padded to block_size with the same curve" same_curve "$tmp/1" "$tmp/max" 1e-5
"$bin/ztok" "$tmp/rows.jsonl" --tokenizer "$tok" --out "$tmp/data" >/dev/null 2>&1
train 1 "$tmp/rows" --train_file "$tmp/rows.jsonl" --vocab_size 2000
train 1 "$tmp/idx" --train_file "$tmp/data.idx" --vocab_size 2000
check "the sequences of a Megatron dataset are samples, too" same_bits "$tmp/rows" "$tmp/idx"
for k in 1 2; do
    train 2 "$tmp/c$k" --train_file "$tmp/rows.jsonl" --data_cache_dir "$tmp/cache"
done
check "from a cache the same bits" same_bits "$tmp/2" "$tmp/c2"
train 1 "$tmp/w" --train_file "$tmp/rows.jsonl" --data_cache_dir "$tmp/cache" --packing wrapped
check "  which serves rows of all tokens as well" [ "$(find "$tmp/cache" -name 'tokens-*' | wc -l)" -eq 1 ]
for k in "" --group_by_length; do
    # shellcheck disable=SC2086 # a word or none
    train 2 "$tmp/whole" --train_file "$tmp/rows.jsonl" --max_steps 20 --output_dir "$tmp/out$k" --save_steps 9 $k
    # shellcheck disable=SC2086
    train 2 "$tmp/rest" --train_file "$tmp/rows.jsonl" --max_steps 20 --output_dir "$tmp/on$k" $k \
        --resume_from_checkpoint "$tmp/out$k/checkpoint-9"
    check "20 steps are 9 and 11 ${k:-in any order}" cmp "$tmp/out$k/model.safetensors" "$tmp/on$k/model.safetensors"
done
train 1 "$tmp/few" --train_file "$tmp/rows.jsonl" --max_train_samples 10
check "--max_train_samples counts samples" grep -q 'epochs of 10 samples' "$tmp/few" "$tmp/few.err"
train 1 "$tmp/held" --train_file "$tmp/rows.jsonl" --do_eval --eval_fraction 0.2
check "  and so does the share that is held out" grep -q 'epochs of 48 samples' "$tmp/held" "$tmp/held.err"
echo '{"text": "a"}' >>"$tmp/rows.jsonl"
train 1 "$tmp/short" --train_file "$tmp/rows.jsonl"
check "a sample of one token is told" grep -q '1 sample of fewer than two tokens passed over' "$tmp/short" "$tmp/short.err"

# ---- refused
printf 'plain text\n' >"$tmp/plain.txt"
check "a stream of bytes has no samples" refused 2 "is one stream of tokens and has no samples" --train_file "$tmp/plain.txt" --packing none
for option in --group_by_length --pad_to_max_length "--pad_to_multiple_of 8"; do
    # shellcheck disable=SC2086 # words
    check "${option% *} without samples" refused 2 "${option% *} is for rows of different lengths" --train_file "$tmp/plain.txt" $option
done
# rows of many widths, each with tables of rope of its own: what was planned for the widest is enough, in any order
awk 'BEGIN {
    for (i = 0; i < 200; i++) {
        s = ""
        for (k = 0; k < 5 + (i * 53 + i * i % 29) % 125; k++) s = s sprintf("%c", 97 + (i + k * k) % 26)
        printf "{\"text\": \"%s\"}\n", s
    }
}' >"$tmp/widths.jsonl"
fits() { # fits ARGS...
    "$bin/zlaunch" -q --num_gpus 1 "$bin/models/llama.so" --num_hidden_layers 2 --hidden_size 64 --num_attention_heads 4 --num_key_value_heads 2 \
        --intermediate_size 128 --vocab_size 500 --tokenizer_name bytes --packing none --block_size 128 "$@" >"$tmp/fits" 2>&1 ||
        { sed 's/^/# /' "$tmp/fits"; false; }
}
for n in 1 2; do
    check "rows of any width are evaluated in the memory of the widest, $n at once" fits --eval_file "$tmp/widths.jsonl" --per_device_eval_batch_size $n
done
check "... and trained" fits --train_file "$tmp/widths.jsonl" --max_steps 14 --per_device_train_batch_size 8 --seed 6
finish
