#!/bin/bash
# The whole product that 27-zero-identity.sh has a part of: 20 steps have the same losses, norms, skipped steps and final weights in
#   {stage 1, 2, 3} x optimizer's state {on the device, the host, 0.4 of it there, in files} x at stage 3 weights {device, host, files,
#   the first two of four blocks on the host and the others in files}
#   x activations {kept, recomputed, recomputed from the host}
# with 1, 2 and 4 ranks, in fp32, bf16, and fp16 whose first steps overflow, 1 micro-batch and 2, clipped and not: 2592 runs, each against
# stage 0 without any of it. Files go by io_uring and libaio in turns.
# ZT_LOG=FILE (build/identity.log): what passed, a line each; a run that is there already, of the same programs, is not run again, so the
# command goes on where it was stopped. ZT_DTYPES="split": bf16 with --split_master, 864 runs more. ZT_EVERY=N: of the product every N-th; ZT_SECONDS=N: as many as begin in that time.
# ZT_DEVICE=cuda: on devices of the host shim (test/shim), a log of its own.
. "$(dirname "$0")/../integration/train_lib.sh"
corpus >/dev/null
device=${ZT_DEVICE:-cpu} parts=("$bin/zlaunch" "$bin/zworker" "$bin/models/gpt2.so")
if [ "$device" = cuda ]; then
    case $bin in
    bin) shim=build/release/shim/backends ;;
    *) shim=${bin%/bin}/shim/backends ;;
    esac
    export ZLAUNCH_CUDNN_BACKEND=0 ZLAUNCH_CUDA_BACKEND=$PWD/$shim/cuda.so ZLAUNCH_NCCL_BACKEND=$PWD/$shim/nccl.so SHIM_DEVICES=4
    parts+=("$shim/cuda.so" "$shim/nccl.so")
    [ -f "$shim/cuda.so" ] && [ -f "$shim/nccl.so" ] || { echo "$shim: no cuda.so and nccl.so: make $shim/cuda.so $shim/nccl.so" && exit 1; }
    : "${ZT_LOG:=build/identity-cuda.log}"
fi
log=${ZT_LOG:-build/identity.log}
every=${ZT_EVERY:-1}
programs=$(cat "${parts[@]}" | sha256sum | cut -c 1-16)
mkdir -p "$(dirname "$log")"
touch "$log"

# config STAGE OPTIMIZER WEIGHTS ACTIVATIONS DTYPE CLIPPING WORLD: the file for --deepspeed
config() {
    local zero="\"stage\": $1, \"stage3_param_persistence_threshold\": 0, \"stage3_max_live_parameters\": 20000" top=
    case $2 in
    cpu) zero+=', "offload_optimizer": {"device": "cpu"}' ;;
    ratio) zero+=', "sub_group_size": 5000, "offload_optimizer": {"device": "cpu", "ratio": 0.4}' ;;
    nvme) zero+=", \"sub_group_size\": 9000, \"offload_optimizer\": {\"device\": \"nvme\", \"nvme_path\": \"$tmp\", \"pipeline_read\": true, \"pipeline_write\": true}" ;;
    esac
    case $3 in
    cpu) zero+=', "offload_param": {"device": "cpu"}' ;;
    nvme) zero+=", \"offload_param\": {\"device\": \"nvme\", \"nvme_path\": \"$tmp\", \"buffer_size\": 9000}" ;;
    both) zero+=", \"offload_param\": {\"device\": \"nvme\", \"nvme_path\": \"$tmp\", \"buffer_size\": 9000, \"buffer_count\": 1, \"max_in_cpu\": $((66000 / $7))}" ;;
    esac
    [ "$4" != host ] || top+=', "activation_checkpointing": {"cpu_checkpointing": true}'
    case $5 in
    bf16) top+=', "bf16": {"enabled": true}' ;;
    split) top+=', "bf16": {"enabled": true}, "zlaunch": {"split_master": true}' ;;
    fp16) top+=', "fp16": {"enabled": true, "initial_scale_power": 24, "hysteresis": 1}' ;;
    esac
    echo "{\"aio\": {\"block_size\": 8192, \"queue_depth\": 4}, \"gradient_clipping\": $6, \"zero_optimization\": {$zero}$top}"
}
# numbers FILE: what must not change, a step a line
numbers() {
    paste <(field loss "$1") <(field grad_norm "$1") <(field skipped "$1")
    field fingerprint "$1"
}
runs=0
# train_so WORLD STAGE OPTIMIZER WEIGHTS ACTIVATIONS DTYPE MICRO CLIPPING: its numbers in $tmp/got
train_so() {
    local more=()
    config "$2" "$3" "$4" "$5" "$6" "$8" "$1" >"$tmp/zero.json"
    [ "$5" != recompute ] || more+=(--gradient_checkpointing)
    [ "$7" -eq 1 ] || more+=(--gradient_accumulation_steps "$7" --reduce_every_micro_batch)
    runs=$((runs + 1))
    train "$1" "$tmp/out" --device "$device" --deepspeed "$tmp/zero.json" --max_steps 20 --per_device_train_batch_size 2 --fingerprint_steps 20 \
        --aio_engine "$([ $((runs % 2)) -eq 0 ] && echo libaio || echo io_uring)" "${more[@]}" || return 1
    numbers "$tmp/out" >"$tmp/got"
    [ "$(wc -l <"$tmp/got")" -eq 21 ]
}
# overflows FILE: some of its steps were skipped, and not all
overflows() { awk 'NF == 3 { skipped = $3 } END { exit !(skipped > 0 && skipped < 15) }' "$1"; }

# same WORLD DTYPE MICRO CLIPPING STAGE OPTIMIZER WEIGHTS ACTIVATIONS
same() {
    local want=$tmp/want.$1.$2.$3.$4
    if [ ! -f "$want" ]; then
        train_so "$1" 0 device device keep "$2" "$3" "$4" || { tail -n 3 "$tmp/out.err" && return 1; }
        cp "$tmp/got" "$want"
        [ "$2" != fp16 ] || overflows "$want" || { echo "# no step overflows, or all do" && return 1; }
    fi
    train_so "$1" "$5" "$6" "$7" "$8" "$2" "$3" "$4" && cmp -s "$tmp/got" "$want" && return
    echo "# step: loss, norm, skipped; wanted (<) and got (>):"
    diff "$want" "$tmp/got" | head -n 4 | sed 's/^/# /'
    tail -n 3 "$tmp/out.err" | sed 's/^/# /'
    echo "# zero.json: $(cat "$tmp/zero.json")"
    return 1
}

all=() done_before=0 number=0
for stage in 3 2 1; do
    for optimizer in nvme cpu ratio device; do
        for weights in device cpu nvme both; do
            [ $stage -eq 3 ] || [ $weights = device ] || continue
            for activations in keep host recompute; do
                all+=("$stage $optimizer $weights $activations")
            done
        done
    done
done
stop=$((SECONDS + ${ZT_SECONDS:-1000000}))
for world in 2 1 4; do
    for dtype in ${ZT_DTYPES:-bf16 fp16 fp32}; do
        for micro in 2 1; do
            for clipping in 0.5 0; do
                for way in "${all[@]}"; do
                    number=$((number + 1))
                    [ $((number % every)) -eq 0 ] && [ $SECONDS -lt $stop ] || continue
                    key="$programs ranks $world, $dtype, $micro micro-batches, clipping $clipping: stage optimizer weights activations: $way"
                    if grep -qxF "ok $key" "$log"; then
                        done_before=$((done_before + 1))
                        continue
                    fi
                    # shellcheck disable=SC2086 # four words
                    if same $world $dtype $micro $clipping $way; then
                        echo "ok - trial: ${key#* }"
                        echo "ok $key" >>"$log"
                    else
                        echo "not ok - trial: ${key#* }"
                        failures=$((failures + 1))
                    fi
                done
            done
        done
    done
done
echo "# $number in the product; $done_before were in $log, $(grep -c "^ok $programs " "$log") are"
finish
