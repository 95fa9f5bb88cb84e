#!/bin/bash
# --packing bfd: several samples share a row, and each has the loss that it has alone. The same bits whatever stage, and
# after a restart; the same curve on any number of ranks, and the one plan of all.
# shellcheck source=test/integration/tasks_lib.sh
. "$(dirname "$0")/tasks_lib.sh"
of_bert=$tok
tok=test/golden/tokenizer
case $bin in
bin) models=${ZT_TEST_MODELS:-build/release/test-models} ;;
*) models=${ZT_TEST_MODELS:-${bin%/bin}/test-models} ;;
esac
[ -f "$models/encdec.so" ] || { echo "$models/encdec.so is missing: make test builds it"; exit 1; }

awk -v rows="$tmp/rows.jsonl" -v one="$tmp/one" 'BEGIN {
    split("what is said here by one of the two who were sent to look for a place é", w, " ")
    for (i = 0; i < 60; i++) {
        text = ""
        for (k = 0; k < 1 + i * 7 % 17; k++) text = text w[1 + (i * 5 + k * 3) % 17] " "
        printf "{\"text\": \"%s\"}\n", text >rows
        if (i < 7) printf "{\"text\": \"%s\"}\n", text >(one i ".jsonl")
        if (i < 7) printf "{\"text\": \"%s\"}\n", text >(one "s.jsonl")
    }
}'

gpt2=("$bin/models/gpt2.so" --n_layer 2 --n_head 2 --n_embd 32)
llama=("$bin/models/llama.so" --num_hidden_layers 2 --hidden_size 32 --num_attention_heads 4 --num_key_value_heads 2
    --intermediate_size 48)
T=40
# run RANKS OUT MODEL... ARGS...: rows of up to T tokens
run() {
    local ranks=$1 out=$2
    shift 2
    "$bin/zlaunch" --num_gpus "$ranks" --log_format json "$@" --block_size "$T" --tokenizer_name "$tok" --seed 7 \
        >"$out" 2>"$out.err"
}
train() {
    local ranks=$1 out=$2
    shift 2
    run "$ranks" "$out" "${gpt2[@]}" --do_train --train_file "$tmp/rows.jsonl" --packing bfd --max_steps 6 \
        --logging_steps 1 --fingerprint_steps 1 --per_device_train_batch_size $((8 / ranks)) "$@"
}
refused() {
    local words=$1
    shift
    run 1 "$tmp/refused" "$@" --do_train --train_file "$tmp/${data:-rows.jsonl}" --max_steps 1
    [ $? -eq 2 ] && grep -qF -- "$words" "$tmp/refused" "$tmp/refused.err" && return
    cat "$tmp/refused" "$tmp/refused.err" | head -n 4 | cut -c1-300 | sed "s/^/# /"
    return 1
}
figure() { sed -n "s/.*\"event\":\"eval\".*\"$2\":\([0-9.]*\).*/\1/p" "$1" | head -n 1; }
near() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a > 0 && (a - b) ^ 2 <= (1e-6 * b) ^ 2) }' || { echo "# $1, $2"; return 1; }; }

# ---- each sample has the loss that it has alone
# alone NAME MODEL...: the mean over seven samples, each in a batch of its own; and their tokens
alone() {
    local i sum=0
    tokens=0
    for i in 0 1 2 3 4 5 6; do
        run 1 "$tmp/e$i" "$@" --do_eval --eval_file "$tmp/one$i.jsonl" --packing none --per_device_eval_batch_size 1
        sum=$(awk -v s="$sum" -v l="$(figure "$tmp/e$i" loss)" -v n="$(figure "$tmp/e$i" tokens)" 'BEGIN { printf "%.12g", s + l * n }')
        tokens=$((tokens + $(figure "$tmp/e$i" tokens)))
    done
    mean=$(awk -v s="$sum" -v n="$tokens" 'BEGIN { printf "%.12g", s / n }')
}
# together NAME MODEL...: seven samples share rows
together() {
    local name=$1 how
    shift
    alone "$@"
    for how in "" "--pad_to_multiple_of 16" "--pad_to_max_length"; do
        # shellcheck disable=SC2086 # words
        run 1 "$tmp/e" "$@" --do_eval --eval_file "$tmp/ones.jsonl" --packing bfd --per_device_eval_batch_size 4 $how
        check "$name: seven samples that share rows ${how:+($how) }have the loss that each has alone" near "$(figure "$tmp/e" loss)" "$mean"
        check "  over as many tokens" [ "$(figure "$tmp/e" tokens)" -eq "$tokens" ]
    done
    run 2 "$tmp/e" "$@" --do_eval --eval_file "$tmp/ones.jsonl" --packing bfd --per_device_eval_batch_size 1
    check "  on two ranks as well" near "$(figure "$tmp/e" loss)" "$mean"
}
together "learned positions" "${gpt2[@]}"
together "rotary positions" "${llama[@]}"
together "a window that ends within a sample" "${llama[@]}" --model qwen2-0.5b --sliding_window 5
together "a window longer than most samples" "${llama[@]}" --model qwen2-0.5b --sliding_window 20

# masks follow from a token's place in the data, so they are those of rows that hold one sample
tok=$of_bert
small=(--num_hidden_layers 2 --hidden_size 32 --num_attention_heads 2 --intermediate_size 48)
for family in bert deberta; do
    encoder=("$bin/models/$family.so" "${small[@]}")
    for how in none bfd; do
        run 1 "$tmp/b$how" "${encoder[@]}" --task masked_lm --do_eval --eval_file "$tmp/lines.txt" --packing $how --per_device_eval_batch_size 4
    done
    check "attention that sees both ways, of $family: samples that share rows have the loss that they have alone" \
        near "$(figure "$tmp/bbfd" loss)" "$(figure "$tmp/bnone" loss)"
    check "  over as many tokens" [ "$(figure "$tmp/bbfd" tokens)" -eq "$(figure "$tmp/bnone" tokens)" ]
done
data=classes.jsonl check "rows with one label each are not packed" refused "a row has one label" "${encoder[@]}" --task classify --packing bfd
data=lines.txt check "nor those that a convolution goes along" refused "this model has no field segment_begin" "${encoder[@]}" --task masked_lm --conv_kernel_size 3 --packing bfd
tok=test/golden/tokenizer

# ---- training
check "packed rows are trained on" train 1 "$tmp/1"
check "  which the first line says" grep -q '8 rows of up to 40 tokens, [0-9.]* epochs of 60 samples in [0-9]* rows' "$tmp/1" "$tmp/1.err"
for ranks in 2 4 8; do
    train "$ranks" "$tmp/$ranks"
    check "  on $ranks ranks with the same curve" same_curve "$tmp/1" "$tmp/$ranks" 1e-5
done
for stage in 1 2 3; do
    train 2 "$tmp/z$stage" --zero_stage "$stage"
    check "  at stage $stage with the same bits" same_bits "$tmp/2" "$tmp/z$stage"
done
train 2 "$tmp/g" --gradient_checkpointing
check "  and recomputed with the same bits" same_bits "$tmp/2" "$tmp/g"
train 1 "$tmp/max" --pad_to_max_length
check "  and padded to block_size with the same curve" same_curve "$tmp/1" "$tmp/max" 1e-5
train 1 "$tmp/bf16" --bf16
check "  and in bf16 with a near one" same_curve "$tmp/1" "$tmp/bf16" 2e-2
train 1 "$tmp/a" --gradient_accumulation_steps 4 --per_device_train_batch_size 2
check "  and accumulated with the same curve" same_curve "$tmp/1" "$tmp/a" 1e-5
train 2 "$tmp/whole" --max_steps 9 --output_dir "$tmp/out" --save_steps 4
train 2 "$tmp/rest" --max_steps 9 --output_dir "$tmp/on" --resume_from_checkpoint "$tmp/out/checkpoint-4"
check "9 steps are 4 and 5" cmp "$tmp/out/model.safetensors" "$tmp/on/model.safetensors"
run 1 "$tmp/gen" "$bin/models/gpt2.so" --model_name_or_path "$tmp/on" --prompt "what is" --generate_tokens 4
check "text is generated by what was trained so" grep -q '"event":"sample".*"text":"what is' "$tmp/gen"
T=41 train 2 "$tmp/other" --max_steps 9 --resume_from_checkpoint "$tmp/out/checkpoint-4"
check "rows of another length are other data" grep -q "with the same --packing, tokenizer, columns, --source_prefix and --assistant_only_loss, the same --block_size where rows are packed" "$tmp/other" "$tmp/other.err"

# ---- as much memory as was planned
as_planned() {
    local how=("${gpt2[@]}" --n_embd 128 --do_train --train_file "$tmp/rows.jsonl" --packing bfd --pad_to_max_length --max_steps 2
        --per_device_train_batch_size 8)
    local T=200 want got
    some_rates >"$tmp/rates.json"
    "$bin/zlaunch" --num_gpus 1 "${how[@]}" --block_size $T --tokenizer_name "$tok" --dry_run --rates "$tmp/rates.json" >"$tmp/plan" 2>&1
    want=$(awk '/^  (weights|gradients|optimizer state|activations) / { sum += $(NF - 1) } END { print sum }' "$tmp/plan")
    run 1 "$tmp/peak" "${how[@]}" --logging_steps 1
    got=$(field peak_device_bytes "$tmp/peak" | tail -n 1)
    awk -v w="$want" -v g="$got" 'BEGIN { r = g / 1048576 / w; print "# planned " w " MiB, taken " g / 1048576; exit !(r > 0.98 && r < 1.02) }'
}
check "the peak is the plan" as_planned

# ---- refused
check "a model that cannot keep samples apart" refused "this model has no field segment_begin" "$models/encdec.so" --packing bfd
check "grouping of full rows" refused "--group_by_length saves padding where each sample is a row of its own" "${gpt2[@]}" --packing bfd --group_by_length
finish
