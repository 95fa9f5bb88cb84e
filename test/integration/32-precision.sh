#!/bin/bash
# What the options of precision change in a run, and what they leave alone.
. "$(dirname "$0")/train_lib.sh"
corpus >/dev/null
last() { field loss "$1" | tail -1; }
# near A B SHARE: the last losses differ, by less than this share
near() {
    awk -v a="$(last "$1")" -v b="$(last "$2")" -v tol="$3" \
        'BEGIN { d = a - b; if (d < 0) d = -d; exit !(a > 0 && d > 0 && d < tol * a) }'
}
few=(--max_steps 12 --fingerprint_steps 6)

# TF32
train 1 "$tmp/fp32" "${few[@]}"
train 1 "$tmp/tf32" "${few[@]}" --tf32
check "--tf32 rounds: another loss, but hardly" near "$tmp/fp32" "$tmp/tf32" 2e-3
check "a cpu says that it gains nothing" grep -q -- '--tf32 on a cpu' "$tmp/tf32.err" "$tmp/tf32"
train 1 "$tmp/again" "${few[@]}" --tf32
check "twice the same bits" same_bits "$tmp/tf32" "$tmp/again"
train 1 "$tmp/bf16" "${few[@]}" --bf16
train 1 "$tmp/both" "${few[@]}" --bf16 --tf32
check "with --bf16 it changes nothing" same_bits "$tmp/bf16" "$tmp/both"

# stochastic rounding
train 1 "$tmp/chance" "${few[@]}" --bf16 --stochastic_rounding
check "--stochastic_rounding: another loss, but hardly" near "$tmp/bf16" "$tmp/chance" 1e-2
for stage in 0 1 2 3; do
    echo "{\"zero_optimization\": {\"stage\": $stage, \"sub_group_size\": 3001}}" >"$tmp/ds$stage.json"
    train 2 "$tmp/chance$stage" "${few[@]}" --bf16 --stochastic_rounding --deepspeed "$tmp/ds$stage.json"
    check "stage $stage has the bits of stage 0" same_bits "$tmp/chance0" "$tmp/chance$stage"
done
train 1 "$tmp/no" "${few[@]}" --stochastic_rounding
check "without --bf16 it is an error with the way out" grep -q 'give --bf16' "$tmp/no" "$tmp/no.err"

# a loss scale from which a few steps do not come down: nothing is learnt
echo '{"fp16": {"enabled": true, "loss_scale": 0, "initial_scale_power": 40}}' >"$tmp/ds.json"
train 1 "$tmp/skipped" --max_steps 3 --deepspeed "$tmp/ds.json" --output_dir "$tmp/nothing"
check "a run whose steps were all skipped: 1" test $? -eq 1
check "  says it" grep -q 'each of 3 steps was skipped, as its gradients overflowed in fp16: nothing was learnt' "$tmp/skipped" "$tmp/skipped.err"
# no scale brings back a loss that weights have lost
echo '{"fp16": {"enabled": true, "loss_scale": 1024}}' >"$tmp/ds16.json"
wild=(--learning_rate 1000000 --weight_decay 100 --max_grad_norm 0)
for type in "--bf16" "--fp16" "--deepspeed $tmp/ds16.json"; do
    for steps in 9 60; do
        [ "$type $steps" != "--fp16 60" ] || continue # ends at the smallest scale
        # shellcheck disable=SC2086
        train 2 "$tmp/lost" --max_steps $steps $type "${wild[@]}" --output_dir "$tmp/lost.dir"
        check "${type//$tmp\//}, $steps steps that lose the loss: 1" test $? -eq 1
        check "  says since when" grep -q 'the loss is not finite in any of the last [0-9]* steps, to step [0-9]*: each was skipped' "$tmp/lost" "$tmp/lost.err"
        check "  and saves no weights as trained" test ! -e "$tmp/lost.dir/model.safetensors"
    done
done
# a scale that comes down to where gradients fit takes more than 20 steps, whose losses are finite
echo '{"fp16": {"enabled": true, "initial_scale_power": 52}}' >"$tmp/ds.json"
train 1 "$tmp/down" --max_steps 60 --deepspeed "$tmp/ds.json"
check "fp16, many steps that overflow and lose no loss: 0" test $? -eq 0
check "  of which many were skipped" awk -v n="$(field skipped "$tmp/down" | tail -1)" 'BEGIN { exit !(n > 20 && n < 58) }'
# two such steps are too few to end with 1 by themselves; the evaluation after them is not
train 2 "$tmp/last" --max_steps 2 --fp16 "${wild[@]}" --lr_scheduler_type constant --do_eval --output_dir "$tmp/last.dir"
check "a last evaluation that loses the loss: 1" test $? -eq 1
check "  says after which step" grep -q 'the loss of the evaluation after step 2 is nan' "$tmp/last" "$tmp/last.err"
check "  and keeps the weights" test -e "$tmp/last.dir/model.safetensors"
check "  and leaves no weights as its result" test ! -e "$tmp/nothing/model.safetensors"
echo '{"fp16": {"enabled": true, "loss_scale": 1e30}}' >"$tmp/ds.json"
train 1 "$tmp/static" --max_steps 2 --deepspeed "$tmp/ds.json"
check "  of a scale that does not adapt it says another way out" grep -q 'a smaller fp16.loss_scale, or 0, with which it adapts' "$tmp/static" "$tmp/static.err"

# fp8
long=(--max_steps 60 --n_embd 64 --learning_rate 5e-3)
mean() { field loss "$1" | tail -20 | awk '{ s += $1 } END { print s / NR }'; }
train 2 "$tmp/long16" "${long[@]}" --bf16
train 2 "$tmp/long8" "${long[@]}" --bf16 --fp8 --prompt "The " --generate_tokens 5
check "--fp8 learns: the last 20 of 60 steps are within 2 % of bf16" \
    awk -v a="$(mean "$tmp/long16")" -v b="$(mean "$tmp/long8")" 'BEGIN { exit !(a != b && b < 1.02 * a) }'
check "which is far below where they began" awk -v l="$(mean "$tmp/long8")" 'BEGIN { exit !(l < 3.6) }'
check "text comes out" grep -q '"sample".*"The ' "$tmp/long8"
check "a cpu says that it gains nothing" grep -q -- '--fp8 on a cpu' "$tmp/long8.err" "$tmp/long8"
train 2 "$tmp/fp8" "${few[@]}" --bf16 --fp8
for more in "--deepspeed $tmp/ds3.json" "--gradient_checkpointing" "--deepspeed $tmp/ds1.json --gradient_checkpointing"; do
    # shellcheck disable=SC2086
    train 2 "$tmp/same" "${few[@]}" --bf16 --fp8 $more
    check "the same bits with ${more//$tmp\//}" same_bits "$tmp/fp8" "$tmp/same"
done
train 1 "$tmp/no" "${few[@]}" --fp8
check "without --bf16 it is an error with the way out" grep -q -- '--fp8 is about .*give --bf16' "$tmp/no" "$tmp/no.err"
[ "$failures" -eq 0 ] || cat "$tmp"/*.err
finish
