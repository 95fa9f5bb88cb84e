#!/bin/bash
# The mathematics does not depend on the plumbing: ranks, splits, recomputation, repetition.
. "$(dirname "$0")/train_lib.sh"
. "$(dirname "$0")/levels_lib.sh"
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

# levels of instructions: the level decides about bits, the number of threads does not
few=(--max_steps 3 --fingerprint_steps 1 --per_device_train_batch_size 4 --bf16)
unset ZLAUNCH_CPU_ISA
there=()
for level in avx2 avx512 avx512_bf16 amx; do
    train 1 "$tmp/$level" "${few[@]}" --cpu_isa "$level" --threads 1
    if has_level "$level"; then
        there+=("$level")
        check "$level: in use, and said so" grep -q "instructions up to $level[ \"]" "$tmp/$level"
        ZLAUNCH_CPU_ISA=$level train 1 "$tmp/threads" "${few[@]}" --threads 3
        check "$level: the same bits with 1 and 3 threads" same_bits "$tmp/$level" "$tmp/threads"
    else
        check "$level, which is not there, is refused by name" \
            grep -q -- "--cpu_isa $level: this processor " "$tmp/$level" "$tmp/$level.err"
    fi
done
if [ ${#there[@]} -gt 1 ]; then
    low=${there[0]} high=${there[-1]}
    # shellcheck disable=SC2016 # for the inner shell
    # ranks LEVEL LEVEL OUT: what train does with 2 ranks, each at a level of its own
    ranks() {
        "$bin/zlaunch" --num_gpus 2 --log_format json -- sh -c '
            ZLAUNCH_CPU_ISA=$1; [ "$RANK" = 0 ] || ZLAUNCH_CPU_ISA=$2; export ZLAUNCH_CPU_ISA
            shift 2; exec "$@"' - "$1" "$2" "$bin/zworker" "$bin/models/gpt2.so" \
            --n_layer 2 --n_head 2 --n_embd 32 --block_size 32 --train_file "$tmp/corpus.txt" \
            --do_train --logging_steps 1 --learning_rate 1e-3 --seed 7 "${few[@]}" >"$3" 2>"$3.err"
    }
    ranks "$low" "$low" "$tmp/low"
    ranks "$low" "$high" "$tmp/mixed"
    check "ranks of two levels say which rank is the reason" \
        grep -q "all use $low, the highest level of rank 0 (host .*rank 1 (host .*) has $high" "$tmp/mixed"
    check "and compute as two of the lower" same_bits "$tmp/low" "$tmp/mixed"
    ranks "$high" "$low" "$tmp/mixed"
    check "whichever rank that is" same_bits "$tmp/low" "$tmp/mixed"
fi
[ "$failures" -eq 0 ] || cat "$tmp"/*.err
finish
