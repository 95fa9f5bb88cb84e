#!/bin/bash
# --split_master: of fp32 masters the 16 bits that bf16 weights lack. The numbers of training are those of whole masters,
# but where a master lies half-way between two weights; stages, ranks, offload and resumes change no bit; checkpoints hold
# the masters themselves.
. "$(dirname "$0")/train_lib.sh"
corpus >/dev/null
# run RANKS OUT ARGS...: 6 clipped steps
run() {
    local ranks=$1 out=$2
    shift 2
    train "$ranks" "$out" --bf16 --max_steps 6 --fingerprint_steps 1 --max_grad_norm 0.5 --per_device_train_batch_size 2 "$@"
}
# zero STAGE KEYS: a file for --deepspeed
zero() {
    local file=$tmp/ds.$RANDOM.json
    echo "{\"zero_optimization\": {\"stage\": $1, \"reduce_bucket_size\": 1000, \"stage3_param_persistence_threshold\": 0${2:+, $2}}}" >"$file"
    echo "$file"
}
first() { field fingerprint "$1" | head -n "$2" | grep .; }

run 1 "$tmp/whole"
run 1 "$tmp/split" --split_master
# a tie among the weights that the first step leaves, of some 1 in 131072, changes those of the second
check "masters of the first step are those that are kept whole" test "$(first "$tmp/whole" 1)" = "$(first "$tmp/split" 1 || echo none)"
check "losses are near" same_curve "$tmp/whole" "$tmp/split" 2e-3
run 1 "$tmp/keys" --deepspeed '{"bf16": {"enabled": true}, "zlaunch": {"split_master": true}}'
check "as a key of the config it is the same" same_bits "$tmp/split" "$tmp/keys"

# ---- bits ----
run 2 "$tmp/want" --split_master --gradient_accumulation_steps 2 --reduce_every_micro_batch
cpu='"offload_optimizer": {"device": "cpu"}'
part='"sub_group_size": 5000, "offload_optimizer": {"device": "cpu", "ratio": 0.4}'
files='"sub_group_size": 9000, "offload_optimizer": {"device": "nvme", "nvme_path": "'$tmp'", "pipeline_read": true, "pipeline_write": true}'
all='"offload_param": {"device": "nvme", "nvme_path": "'$tmp'", "buffer_size": 9000}, "offload_optimizer": {"device": "nvme", "nvme_path": "'$tmp'"}'
for s in 1 2 3; do
    for offload in "" "$cpu" "$part" "$files" "$all"; do
        [ "$s" = 3 ] || [ "$offload" != "$all" ] || continue
        run 2 "$tmp/got" --split_master --gradient_accumulation_steps 2 --reduce_every_micro_batch --deepspeed "$(zero $s "$offload")"
        check "stage $s ${offload//$tmp/.}: the same bits" same_bits "$tmp/want" "$tmp/got"
    done
done
run 4 "$tmp/four" --split_master --per_device_train_batch_size 1
run 4 "$tmp/got" --split_master --per_device_train_batch_size 1 --deepspeed "$(zero 3 '"zero_hpz_partition_size": 2')"
check "4 ranks at stage 3 in groups: the same bits" same_bits "$tmp/four" "$tmp/got"

# ---- checkpoints ----
halves() { # halves DIR ARGS...: 3 steps, then 3 more by 2 ranks at stage 3
    local dir=$1
    shift
    run 2 "$tmp/half" --output_dir "$dir" --save_steps 3 "$@" --max_steps 3 --lr_scheduler_type constant
    run 2 "$tmp/rest" --output_dir "$dir" --resume_from_checkpoint auto --deepspeed "$(zero 3 "$cpu")" "$@" --lr_scheduler_type constant
}
run 2 "$tmp/unbroken" --split_master --lr_scheduler_type constant
halves "$tmp/out" --split_master
check "resumed at another stage: the steps of the unbroken run" \
    test "$(field fingerprint "$tmp/unbroken" | tail -n 3 | grep .)" = "$(field fingerprint "$tmp/rest" | grep . || echo none)"
# a step of length 0 leaves masters as they are: what is read is what was saved
still() { # still FROM STEP ARGS...: one more, saved
    local from=$1 step=$2
    shift 2
    run 2 "$tmp/still" --resume_from_checkpoint "$from" --output_dir "$tmp/still.$step" --save_steps "$step" --max_steps "$step" \
        --learning_rate 0 --lr_scheduler_type constant "$@"
    field fingerprint "$tmp/still" | tail -n 1 | grep .
}
saved=$(field fingerprint "$tmp/unbroken" | sed -n 3p | grep . || echo none)
check "masters saved split are read whole" test "$(still "$tmp/out/checkpoint-3" 4)" = "$saved"
check "and saved whole are read split" test "$(still "$tmp/still.4/checkpoint-4" 5 --split_master --deepspeed "$(zero 2)")" = "$saved"
check "and saved again they are whole" test "$(still "$tmp/still.5/checkpoint-5" 6)" = "$saved"
"$bin/zckpt" verify "$tmp/still.5/checkpoint-5" >"$tmp/verified" 2>&1
check "such a checkpoint is verified" test $? -eq 0

# ---- memory: 2 bytes a parameter less ----
some_rates >"$tmp/rates.json"
masters() { # in tenths of a MiB
    "$bin/zworker" "$bin/models/gpt2.so" --train_file "$tmp/corpus.txt" --do_train --dry_run --rates "$tmp/rates.json" --bf16 \
        --n_layer 2 --n_head 2 --n_embd 512 --block_size 32 "$@" | awk '$1 == "master" { print $3 * 10 }'
}
whole=$(masters) split=$(masters --split_master)
check "the plan has half of the masters" test "$whole" -gt 100 -a $((whole - 2 * split)) -ge -10 -a $((whole - 2 * split)) -le 10

# ---- what it is not for ----
for kind in --fp16 --fp32; do
    train 1 "$tmp/no" --max_steps 1 --split_master ${kind#--fp32}
    check "without --bf16 (${kind#--}) it is an error with the way out" grep -q -- '--split_master is about .*give --bf16' "$tmp/no" "$tmp/no.err"
done
run 1 "$tmp/no" --split_master --stochastic_rounding
check "nor can weights be rounded stochastically" grep -q -- '--split_master finds masters again .* leave it out, or --stochastic_rounding' "$tmp/no" "$tmp/no.err"
[ "$failures" -eq 0 ] || cat "$tmp"/*.err
finish
