#!/bin/bash
# A model with fields of its own, a mask, a constant and another divisor trains to the same
# numbers however it is spread; what the data or the weights lack is refused by name;
# parameters can be extra, and frozen one by one.
. "$(dirname "$0")/train_lib.sh"
corpus >/dev/null
case $bin in
bin) models=${ZT_TEST_MODELS:-build/release/test-models} ;;
*) models=${ZT_TEST_MODELS:-${bin%/bin}/test-models} ;;
esac
[ -f "$models/fields.so" ] || { echo "$models/fields.so is missing: make test builds it"; exit 1; }

# fields RANKS OUT ARGS...: 4 steps of 8 rows, JSON events to OUT
fields() {
    local ranks=$1 out=$2
    shift 2
    "$bin/zlaunch" --num_gpus "$ranks" --log_format json "$models/fields.so" --block_size 24 \
        --train_file "$tmp/corpus.txt" --do_train --max_steps 4 --logging_steps 1 --seed 7 \
        --learning_rate 3e-3 --per_device_train_batch_size $((8 / ranks)) \
        --fingerprint_steps 1 --max_grad_norm 0 "$@" >"$out" 2>"$out.err"
}
# refused TEXT ARGS...: the run ends with an error that says TEXT
refused() {
    local text=$1
    shift
    fields 1 "$tmp/refused" "$@" && return 1
    grep -q "$text" "$tmp/refused" "$tmp/refused.err"
}

check "one rank" fields 1 "$tmp/1"
check "two ranks" fields 2 "$tmp/2"
check "same curve on two ranks" same_curve "$tmp/1" "$tmp/2" 1e-5
fields 2 "$tmp/accum" --per_device_train_batch_size 2 --gradient_accumulation_steps 2
check "same curve in micro-batches" same_curve "$tmp/1" "$tmp/accum" 1e-5
fields 2 "$tmp/re" --gradient_checkpointing
check "recomputation is the same bits" same_bits "$tmp/2" "$tmp/re"
fields 2 "$tmp/bf16" --bf16
check "bf16 is near" same_curve "$tmp/1" "$tmp/bf16" 1e-2
for stage in 1 2 3; do
    echo "{\"zero_optimization\": {\"stage\": $stage}}" >"$tmp/stage$stage.json"
    fields 2 "$tmp/s$stage" --deepspeed "$tmp/stage$stage.json"
    check "stage $stage is the same bits" same_bits "$tmp/2" "$tmp/s$stage"
done

# ---- divisors
fields 2 "$tmp/lengths" --divisor lengths
check "the sum of lengths divides as targets do" same_bits "$tmp/2" "$tmp/lengths"
fields 2 "$tmp/rows" --divisor rows
# ratio: the first loss is that of targets times the tokens of a row
ratio() {
    paste <(field loss "$tmp/2" | head -1) <(field loss "$tmp/rows" | head -1) |
        awk '{ d = $2 / $1 - 24; exit !(d < 1e-4 && d > -1e-4) }'
}
check "the loss of a row is that of its tokens" ratio
fields 1 "$tmp/rows.1" --divisor rows
check "rows are counted over all ranks" same_curve "$tmp/rows" "$tmp/rows.1" 1e-5

# ---- evaluation: the last row is padded, and some ranks have rows of padding alone
head -c 1000 "$tmp/corpus.txt" >"$tmp/eval.txt"
# evaluation RANKS OUT ARGS...
evaluation() {
    fields "$@" --do_eval --eval_file "$tmp/eval.txt"
}
eval_loss() { grep '"event":"eval"' "$1" | sed 's/.*"loss":\([0-9.e+-]*\).*/\1/' | tail -1; }
near() {
    [ -n "$(eval_loss "$1")" ] || return 1
    paste <(eval_loss "$1") <(eval_loss "$2") |
        awk '{ d = $1 / $2 - 1; exit !(NF == 2 && d < 1e-5 && d > -1e-5) }'
}
evaluation 1 "$tmp/e1" --per_device_eval_batch_size 5
evaluation 2 "$tmp/e2" --per_device_eval_batch_size 32
check "evaluation does not depend on padding" near "$tmp/e1" "$tmp/e2"
evaluation 2 "$tmp/e3" --per_device_eval_batch_size 4 --divisor lengths
check "nor on which divisor counts the same" near "$tmp/e1" "$tmp/e3"
check "a loss per token has a perplexity" grep -q '"perplexity"' "$tmp/e1"
evaluation 2 "$tmp/e4" --per_device_eval_batch_size 4 --divisor rows
check "another has none" sh -c "grep -q '\"event\":\"eval\"' '$tmp/e4' && ! grep -q '\"perplexity\"' '$tmp/e4'"

# ---- what is missing
check "a field that the data lack is named" refused 'requires the field labels, which the training data do not offer; they offer tokens, targets, lengths' --need labels
check "so is one that a prompt lacks" refused 'is no model that writes: it requires the field lengths' --generate_tokens 4

# ---- extra parameters
fields 2 "$tmp/base" --output_dir "$tmp/weights"
check "a parameter that weights lack is named" refused 'there is no tensor adapter (32, 32)' \
    --model_name_or_path "$tmp/weights" --adapter required
fields 2 "$tmp/extra" --model_name_or_path "$tmp/weights" --adapter extra --output_dir "$tmp/adapted"
check "an extra one begins as new" grep -q '1 parameters are not in .*: they begin as new (adapter)' "$tmp/extra" "$tmp/extra.err"
for stage in 1 3; do
    fields 2 "$tmp/extra.$stage" --model_name_or_path "$tmp/weights" --adapter extra \
        --deepspeed "$tmp/stage$stage.json"
    check "stage $stage: with the same bits" same_bits "$tmp/extra" "$tmp/extra.$stage"
done
check "and is found again" fields 2 "$tmp/again" --model_name_or_path "$tmp/adapted" --adapter required

# ---- frozen alone: as if its steps were taken back
for name in wte ln qkv; do
    fields 1 "$tmp/hold" --hold $name
    fields 1 "$tmp/freeze" --freeze $name
    check "$name: frozen is as held, one rank" same_bits "$tmp/hold" "$tmp/freeze"
    fields 2 "$tmp/hold" --hold $name --weight_decay 0.1
    fields 2 "$tmp/freeze" --freeze $name --weight_decay 0.1
    check "$name: two ranks, with decay" same_bits "$tmp/hold" "$tmp/freeze"
    for stage in 1 2 3; do
        fields 2 "$tmp/freeze.$stage" --freeze $name --weight_decay 0.1 --deepspeed "$tmp/stage$stage.json"
        check "$name: stage $stage is the same bits" same_bits "$tmp/freeze" "$tmp/freeze.$stage"
    done
done
[ "$failures" -eq 0 ] || cat "$tmp"/*.err
finish
