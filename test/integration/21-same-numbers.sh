#!/bin/bash
# The mathematics does not depend on the plumbing: ranks, splits, recomputation, repetition.
. "$(dirname "$0")/train_lib.sh"
corpus >/dev/null
common=(--max_steps 12 --fingerprint_steps 4 --max_grad_norm 1.0)

train 1 "$tmp/1x8" "${common[@]}" --per_device_train_batch_size 8
check "1 rank, 8 rows" test $? -eq 0
train 1 "$tmp/1x2x4" "${common[@]}" --per_device_train_batch_size 2 --gradient_accumulation_steps 4
check "1 rank, 4 micro-batches of 2: same curve" same_curve "$tmp/1x8" "$tmp/1x2x4" 1e-5
train 2 "$tmp/2x4" "${common[@]}" --per_device_train_batch_size 4
check "2 ranks of 4: same curve" same_curve "$tmp/1x8" "$tmp/2x4" 1e-5
train 4 "$tmp/4x1x2" "${common[@]}" --per_device_train_batch_size 1 --gradient_accumulation_steps 2
check "4 ranks, 2 micro-batches of 1: same curve" same_curve "$tmp/1x8" "$tmp/4x1x2" 1e-5
train 3 "$tmp/3" "${common[@]}" --per_device_train_batch_size 2
check "3 ranks run" test $? -eq 0

for kind in "" --bf16 --fp16; do
    train 2 "$tmp/a" "${common[@]}" --per_device_train_batch_size 4 $kind --dropout 0.1
    train 2 "$tmp/b" "${common[@]}" --per_device_train_batch_size 4 $kind --dropout 0.1
    check "two identical runs are the same bits (${kind:-fp32})" same_bits "$tmp/a" "$tmp/b"
    train 2 "$tmp/c" "${common[@]}" --per_device_train_batch_size 4 $kind --dropout 0.1 \
        --gradient_checkpointing
    check "recomputation is the same bits (${kind:-fp32})" same_bits "$tmp/a" "$tmp/c"
done
train 1 "$tmp/d1" "${common[@]}" --per_device_train_batch_size 8 --dropout 0.1
train 2 "$tmp/d2" "${common[@]}" --per_device_train_batch_size 2 --dropout 0.1 \
    --gradient_accumulation_steps 2
check "dropout masks follow the global row, not the rank" same_curve "$tmp/d1" "$tmp/d2" 1e-5
train 2 "$tmp/e" "${common[@]}" --per_device_train_batch_size 2 --gradient_accumulation_steps 2 \
    --reduce_every_micro_batch
check "reducing every micro-batch: same curve" same_curve "$tmp/1x8" "$tmp/e" 1e-5
[ "$failures" -eq 0 ] || cat "$tmp"/*.err
finish
