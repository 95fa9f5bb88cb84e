#!/bin/bash
# ZeRO on GPUs, end to end, on the shim: ranks with a device each, NCCL between them (test/shim
# has both), streams in awkward orders. How a model is sharded, overlapped or recomputed changes
# no bit; a wait that is left out does; who dies or shares a GPU is named.
. "$(dirname "$0")/train_lib.sh"
. test/integration/turns_lib.sh
corpus >/dev/null
case $bin in
bin) shim=build/release/shim/backends models=${ZT_TEST_MODELS:-build/release/test-models} ;;
*) shim=${bin%/bin}/shim/backends models=${ZT_TEST_MODELS:-${bin%/bin}/test-models} ;;
esac
for f in cuda nccl; do
    [ -f "$shim/$f.so" ] || { echo "$shim/$f.so is missing: make test builds it"; exit 1; }
done
export ZLAUNCH_CUDNN_BACKEND=0 # that is for real devices
export ZLAUNCH_CUDA_BACKEND=$PWD/$shim/cuda.so ZLAUNCH_NCCL_BACKEND=$PWD/$shim/nccl.so SHIM_DEVICES=4
# all settings with ZT_MATRIX=full; else some of each stage, in a sanitised build fewer
plain() { [ -z "${ZT_VARIANT:-}" ]; }
# some ARGS...: all of them; in a sanitised build one, another one each day
some() {
    plain && echo "$@" && return
    shift $((10#${ZT_SEED:-1} % $#))
    echo "$1"
}
chosen() { # another day, others
    [ "${ZT_MATRIX:-}" = full ] || [ $((($1 + 10#${ZT_SEED:-0}) % $(plain && echo $((5 * ${ZT_SAMPLE:-1})) || echo 9))) -eq 0 ]
}

# config STAGE OVERLAP BUCKET KEYS: a file for --deepspeed
config() {
    local live=1000000000 reuse=1000000000 file=$tmp/$1.$2.$3.json
    [ "$3" != small ] || live=20000 reuse=0
    cat >"$file" <<JSON
{"zero_optimization": {"stage": $1, "overlap_comm": $2,
 "reduce_bucket_size": $([ "$3" = small ] && echo 1000 || echo 500000000),
 "stage3_param_persistence_threshold": 0, "stage3_max_live_parameters": $live,
 "stage3_max_reuse_distance": $reuse${4:+, $4}}}
JSON
    echo "$file"
}
# on DEVICE RANKS OUT CONFIG ARGS...: 4 clipped steps
on() {
    local device=$1 ranks=$2 out=$3 config=$4
    shift 4
    train "$ranks" "$out" --device "$device" --deepspeed "$config" --max_steps 4 --fingerprint_steps 4 \
        --max_grad_norm 0.5 --per_device_train_batch_size 2 --threads 1 "$@"
}

# ---- the matrix ----
matrix() { # matrix RANKS ARGS...: every way to train this, against stage 0
    local ranks=$1 runs=0 wrong=0 turn=0 s o b r
    shift
    on cuda "$ranks" "$tmp/want" "$(config 0 true large)" "$@"
    for s in 0 1 2 3; do
        for o in true false; do
            for b in small large; do
                for r in "" --gradient_checkpointing; do
                    turn=$((turn + 1))
                    chosen $turn || continue
                    # shellcheck disable=SC2086 # $r is an option or nothing
                    SHIM_SEED=$((turn % 4)) on cuda "$ranks" "$tmp/got" "$(config $s $o $b)" "$@" $r
                    same_bits "$tmp/want" "$tmp/got" && { runs=$((runs + 1)); continue; }
                    wrong=$((wrong + 1))
                    echo "# stage $s overlap $o buckets $b $r: $(field loss "$tmp/got" | tr '\n' ' ')$(head -c 300 "$tmp/got.err")"
                done
            done
        done
    done
    check "$ranks ranks $*: the same bits in $runs ways" test $wrong -eq 0
}
matrix 2
matrix 2 --bf16 --gradient_accumulation_steps 2 --reduce_every_micro_batch
plain && matrix 4 --fp16
for s in $(some 1 3); do
    for part in 1 0.4; do
        on cuda 2 "$tmp/device" "$(config $s true large)" --fp16 --gradient_accumulation_steps 2
        on cuda 2 "$tmp/host" "$(config $s true large '"sub_group_size": 5000,
            "offload_optimizer": {"device": "cpu", "ratio": '$part'}')" --fp16 --gradient_accumulation_steps 2
        check "stage $s: optimizer state in host memory, ratio $part, gives the same bits" \
            same_bits "$tmp/device" "$tmp/host"
    done
done
for s in $(some 1 3); do
    on cuda 2 "$tmp/device" "$(config 0 true large)" --bf16 --split_master
    on cuda 2 "$tmp/host" "$(config $s true large '"sub_group_size": 5000, "offload_optimizer": {"device": "cpu", "ratio": 0.4}')" --bf16 --split_master
    check "stage $s: split masters, some of them in host memory, give the bits of stage 0" same_bits "$tmp/device" "$tmp/host"
done
both='"offload_param": {"device": "nvme", "nvme_path": "'$tmp'", "buffer_count": 1, "buffer_size": 9000, "max_in_cpu": 33000}'
for type in $(some --fp16 --bf16); do # of four blocks two are in host memory, the others in files
    on cuda 2 "$tmp/device" "$(config 3 true large)" $type
    SHIM_SEED=2 on cuda 2 "$tmp/host" "$(config 3 true small "$both, \"offload_optimizer\": {\"device\": \"nvme\", \"nvme_path\": \"$tmp\"}")" $type
    check "$type: weights in host memory and in files give the same bits" same_bits "$tmp/device" "$tmp/host"
done
echo '{"zero_optimization": {"stage": 3}, "activation_checkpointing": {"cpu_checkpointing": true}}' >"$tmp/inputs.json"
for type in $(some --fp16 --bf16); do
    on cuda 2 "$tmp/device" "$(config 3 true large)" $type --gradient_checkpointing
    SHIM_SEED=3 on cuda 2 "$tmp/host" "$tmp/inputs.json" $type
    check "$type: inputs of blocks that wait in host memory give the same bits" same_bits "$tmp/device" "$tmp/host"
done
on cpu 2 "$tmp/cpu" "$(config 3 true large)"
on cuda 2 "$tmp/cuda" "$(config 3 true large)"
check "the losses are those of the cpu" same_curve "$tmp/cpu" "$tmp/cuda" 1e-4
on cuda 2 "$tmp/any" "$(config 2 true large)" --reduction_order any
check "sums in any order are near" same_curve "$tmp/cuda" "$tmp/any" 1e-4

# ---- ranks whose clocks differ compute products alike: rank 0 chooses ----
SHIM_TIMES=1 on cuda 2 "$tmp/clock1" "$(config 0 true large)" --bf16 --product_tuning "$tmp/clock1.choices"
SHIM_TIMES=2 on cuda 2 "$tmp/clock2" "$(config 0 true large)" --bf16 --product_tuning "$tmp/clock2.choices"
SHIM_TIMES=1 SHIM_TIMES_RANKS=1 on cuda 2 "$tmp/clocks" "$(config 0 true large)" --bf16 --product_tuning "$tmp/clocks.choices"
check "the clock decides about the bits" test "$(same_bits "$tmp/clock1" "$tmp/clock2" >/dev/null; echo $?)" -ne 0
check "ranks with two clocks have the bits of rank 0's" same_bits "$tmp/clock1" "$tmp/clocks"
check "and its choices" cmp -s "$tmp/clock1.choices" "$tmp/clocks.choices"
for s in $(some 1 2 3); do
    SHIM_TIMES=3 SHIM_TIMES_RANKS=1 SHIM_SEED=$s on cuda 2 "$tmp/clocks$s" "$(config "$s" true small)" --bf16 --product_tuning "$tmp/clocks.choices"
    check "stage $s with the same choices: the same bits" same_bits "$tmp/clock1" "$tmp/clocks$s"
done
mkdir "$tmp/folder"
on cuda 2 "$tmp/untuned" "$(config 0 true large)" --bf16 --product_tuning "$tmp/folder/none/choices"
check "a file that cannot be written ends the run, and says so" \
    test "$?-$(cat "$tmp/untuned" "$tmp/untuned.err" | grep -c "$tmp/folder/none")" != 0-0

# ---- groups, 16-bit messages, awkward models ----
on cuda 4 "$tmp/flat" "$(config 3 true large)"
on cuda 4 "$tmp/hpz" "$(config 3 true small '"zero_hpz_partition_size": 2')"
check "a second partition changes no bit" same_bits "$tmp/flat" "$tmp/hpz"
for s in 0 2 3; do
    sed 's/^{/{"communication_data_type": "bf16", "data_types": {"grad_accum_dtype": "bf16"}, /' \
        "$(config $s true large)" >"$tmp/narrow$s.json"
    on cuda 2 "$tmp/narrow$s" "$tmp/narrow$s.json" --gradient_accumulation_steps 2 --reduce_every_micro_batch
done
check "bf16 messages and accumulators: stage 2 has the bits of stage 0" same_bits "$tmp/narrow0" "$tmp/narrow2"
check "and so has stage 3" same_bits "$tmp/narrow0" "$tmp/narrow3"
odd() { # odd MODEL DEVICE STAGE OUT
    "$bin/zlaunch" --num_gpus 2 --log_format json "$models/$1.so" --block_size 32 --train_file "$tmp/corpus.txt" \
        --do_train --max_steps 4 --logging_steps 1 --seed 7 --learning_rate 3e-3 --per_device_train_batch_size 2 \
        --fingerprint_steps 4 --threads 1 --device "$2" --deepspeed "$(config "$3" true small)" >"$4" 2>&1
}
for m in $(some encdec shared); do
    odd $m cuda 0 "$tmp/odd0"
    odd $m cuda 3 "$tmp/odd3"
    odd $m cpu 3 "$tmp/odd.cpu"
    check "$m: stage 3 has the bits of stage 0" same_bits "$tmp/odd0" "$tmp/odd3"
    check "$m: and the losses of the cpu" same_curve "$tmp/odd.cpu" "$tmp/odd3" 1e-4
done

# ---- memory ----
some_rates >"$tmp/rates.json"
as_planned() { # as_planned STAGE KEYS ARGS...: the peak of a rank is the plan within 2 %
    local want got config dims=(--n_layer 3 --n_head 4 --n_embd 128 --block_size 64 --per_device_train_batch_size 2)
    config=$(config "$1" true small "$2")
    shift 2
    want=$("$bin/zlaunch" --num_gpus 2 "$bin/models/gpt2.so" --dry_run --rates "$tmp/rates.json" --device cuda --train_file "$tmp/corpus.txt" \
        --do_train --deepspeed "$config" "${dims[@]}" "$@" | awk '$1 == "total" { print $2 }')
    train 2 "$tmp/peak" --device cuda --deepspeed "$config" "${dims[@]}" --max_steps 2 "$@" || return 1
    got=$(field peak_device_bytes "$tmp/peak" | tail -n 1)
    awk -v w="$want" -v g="$got" 'BEGIN { r = g / 1048576 / w; print "# planned " w " MiB, taken " g / 1048576; exit !(r > 0.98 && r < 1.02) }'
}
check "stage 1: the peak is the plan" as_planned 1 "" --bf16
check "stage 3: the peak is the plan" as_planned 3 "" --bf16
check "stage 3 with weights in host memory and in files: the peak is the plan" as_planned 3 "${both/33000/250000}" --bf16
for s in 0 3; do
    on cuda 2 "$tmp/save$s" "$(config $s true large)" --output_dir "$tmp/out$s"
done
check "weights saved at stage 3 are those of stage 0" cmp -s "$tmp/out0/model.safetensors" "$tmp/out3/model.safetensors"

# ---- a planted fault: the n-th wait between streams is left out ----
caught=0 tried=0
for n in 1 2 3 4 5 6 7 8 9 10; do
    in_turn $n || continue
    tried=$((tried + 1))
    for seed in 0 1 2; do
        SHIM_DROP_WAIT=$n SHIM_SEED=$seed on cuda 2 "$tmp/fault" "$(config 3 true small)"
        if [ $? -ne 0 ] || ! same_bits "$tmp/cuda" "$tmp/fault" >/dev/null; then
            caught=$((caught + 1))
            break
        fi
    done
    plain || break
done
echo "# of $tried waits between streams $caught show when they are left out"
plain && check "waits that are left out show" test $caught -ge $((tried * 2 / 5))

# ---- what goes wrong ----
ends() { # ends CODE TEXT LOG: the run ended like this
    [ "$code" -eq "$1" ] && cat "$3" "$3.err" | grep -q -- "$2" && return
    echo "# exit code $code"
    cat "$3" "$3.err" | tail -n 4 | sed 's/^/# /'
    return 1
}
SHIM_DEVICES=1 CUDA_VISIBLE_DEVICES=0 on cuda 2 "$tmp/shared" "$(config 3 true large)"
code=$?
check "two ranks on one GPU are named" ends 78 "are both on GPU 0000:01:00.0" "$tmp/shared"
SHIM_DEVICES=1 CUDA_VISIBLE_DEVICES=0 on cuda 2 "$tmp/shared" "$(config 3 true large)" --share_gpu
check "unless they may" same_bits "$tmp/cuda" "$tmp/shared"
on cuda 2 "$tmp/apart" "$(config 1 true large)" --share_node_weights
code=$?
check "weights that GPUs cannot share are named" ends 78 "--share_node_weights is for ranks of a cpu" "$tmp/apart"
ZLAUNCH_NCCL_BACKEND='' on cuda 2 "$tmp/none" "$(config 0 true large)"
code=$?
check "no NCCL is named" ends 78 "NCCL" "$tmp/none"
on cuda 2 "$tmp/killed" "$(config 3 true large)" --max_steps 100000 &
job=$!
for _ in $(seq 100); do
    grep -q '"event":"step"' "$tmp/killed" 2>/dev/null && break
    sleep 0.1
done
pkill -9 -f -n "zworker.*$tmp/corpus.txt.*--max_steps 100000"
start=$(date +%s%N)
wait $job
code=$?
took=$((($(date +%s%N) - start) / 1000000))
check "a killed rank is told, and all is over in $took ms" ends 137 "killed by signal 9\|SIGKILL" "$tmp/killed"
check "within three seconds" test $took -lt 3000
finish
