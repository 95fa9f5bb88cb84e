#!/bin/bash
# Every way to go on from a checkpoint: bit by bit as if never stopped (stages, dtypes, optimizers,
# tiers of state, accumulation, with dropout, mid-epoch), and with another number of ranks, stage or
# device (the same bits of weights and moments, the losses of the others).
. "$(dirname "$0")/../integration/train_lib.sh"
corpus >/dev/null
rows=24 # for 1, 2, 3, 4 and 8 ranks
. test/integration/checkpoint_lib.sh
case $bin in
bin) shim=build/release/shim/backends ;;
*) shim=${bin%/bin}/shim/backends ;;
esac

# 1. as if never stopped
for s in 0 1 2 3; do
    tiers=(none) params=(none)
    [ $s -eq 0 ] || tiers=(none cpu nvme)
    [ $s -lt 3 ] || params=(none cpu nvme)
    for d in fp32 bf16 fp16; do
        for t in "${tiers[@]}"; do
            for p in "${params[@]}"; do
                for o in adamw adam; do
                    config one $s $d $t $p $o
                    check "trial: stage $s, $d, $o, optimizer in $t, weights in $p" resumes 2 one
                    rm -rf "$tmp"/whole.*
                done
            done
        done
    done
done

# 2. elsewhere, and back
for s in 0 1 2 3; do
    for d in fp32 bf16 fp16; do
        config $s.$d $s $d
    done
done
for to in 1 2 3 8; do
    for s in 0 1 2 3; do
        for d in fp32 bf16; do
            check "trial: $d, 4 ranks at stage 3 to $to at stage $s" moves 4 3.$d $to $s.$d
            check "trial: $d, $to ranks at stage $s to 4 at stage 3" moves $to $s.$d 4 3.$d
        done
        check "trial: losses of 4 ranks at stage 3 go on with $to at stage $s" continues 4 3.fp32 $to $s.fp32
        check "trial: losses of $to ranks at stage $s go on with 4 at stage 3" continues $to $s.fp32 4 3.fp32
    done
done

# 3. a device, and back
if [ -f "$shim/cuda.so" ]; then
    export ZLAUNCH_CUDNN_BACKEND=0 ZLAUNCH_CUDA_BACKEND=$PWD/$shim/cuda.so ZLAUNCH_NCCL_BACKEND=$PWD/$shim/nccl.so SHIM_DEVICES=4
    for s in 0 1 2 3; do
        for d in fp32 bf16; do
            check "trial: $d, from the processor to devices at stage $s" moves 2 $s.$d 2 $s.$d --device cuda
            rm -rf "$tmp"/whole.*
            whole 2 $s.$d --device cuda && mv "$whole.dir" "$tmp/whole.2.$s.$d..dir" && mv "$whole" "$tmp/whole.2.$s.$d."
            check "trial: $d, from devices to the processor at stage $s" moves 2 $s.$d 2 $s.$d
            rm -rf "$tmp"/whole.*
        done
    done
fi
finish
