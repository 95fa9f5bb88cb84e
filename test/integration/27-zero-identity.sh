#!/bin/bash
# How a model is sharded, bucketed, overlapped, recomputed or carried between ranks changes
# no bit: 20 clipped steps have the same losses, norms and final weights in all of
#   {stage 0-3} x {overlap on, off} x {small, large buckets} x {recomputation} x {shm, mpi}
# at 2 and 4 ranks, in fp32, bf16 and fp16, with 1 micro-batch, and with 2 that are reduced
# one by one. A small bucket comes with a small max_live_parameters and reuse distance 0.
# Optimizer state in host memory or files, all or 0.4 of it, and at stage 3 weights there as well, or the first of
# them in host memory and the others in files, give the same bits at 1, 2 and 4 ranks; also where what waits for its
# update is gathered later than in the first step (late).
# The whole product of the latter, with activations, clipping and fp16 that overflows, once: scripts/soak identity.
# By default each stage has a quarter of its eight settings, all eight over the worlds and micro-batches of a type,
# and over MPI and in a sanitised build, where runs take longer, one in turn; ZT_MATRIX=full runs them all.
. "$(dirname "$0")/train_lib.sh"
corpus >/dev/null
[ "${ZT_VARIANT:-}" != tsan ] || export UCX_MEM_EVENTS=n # its hooks run in threads that TSan has left
# chosen COMM WORLD MICRO: of the eight settings of a stage the one that is at hand, $setting in turn $turn, is run.
# Over shared memory a setting and its opposite, others for each world and number of micro-batches, so that a type sees
# all eight at each stage, and others on the next day; else one of them. ZT_MATRIX=full: all.
day=${ZT_SEED:-$(date +%-j)}
chosen() {
    local i=$((setting - 1))
    [ "${ZT_MATRIX:-quick}" = full ] && return
    if [ "$1" = shm ] && [ -z "${ZT_VARIANT:-}" ]; then
        [ $((i < 4 ? i : 7 - i)) -eq $(((turn + $2 / 2 + 2 * $3 + 10#$day) % 4)) ]
    else
        [ $(((turn + $2 / 2 * 3 + $3) % 8)) -eq $i ]
    fi
}

# config STAGE OVERLAP BUCKET WORLD: the file for --deepspeed; BUCKET: small, large, or what is offloaded
config() {
    local live=1000000000 reuse=1000000000 offload= top=
    [ "$3" != small ] || live=20000 reuse=0
    case $3 in
    cpu) offload=', "offload_optimizer": {"device": "cpu"}' ;;
    part) offload=', "sub_group_size": 5000, "offload_optimizer": {"device": "cpu", "ratio": 0.4}' ;;
    nvme) offload=', "sub_group_size": 9000, "offload_optimizer": {"device": "nvme", "nvme_path": "'$tmp'",
            "pipeline_read": true, "pipeline_write": true}, "aio": {"block_size": 8192, "queue_depth": 4}' ;;
    inputs) offload=', "offload_optimizer": {"device": "cpu"}'
        top=', "activation_checkpointing": {"cpu_checkpointing": true}' ;;
    all) offload=', "offload_param": {"device": "cpu"}, "offload_optimizer": {"device": "cpu"}' ;;
    files) live=20000 offload=', "offload_param": {"device": "nvme", "nvme_path": "'$tmp'", "buffer_size": 9000},
            "offload_optimizer": {"device": "nvme", "nvme_path": "'$tmp'"}' ;;
    late) reuse=0 offload=', "offload_param": {"device": "nvme", "nvme_path": "'$tmp'", "buffer_size": 9000},
            "offload_optimizer": {"device": "nvme", "nvme_path": "'$tmp'", "pipeline_read": true}' ;;
    both) live=20000 offload=', "offload_param": {"device": "nvme", "nvme_path": "'$tmp'", "buffer_size": 9000, "buffer_count": 1,
            "max_in_cpu": '$((66000 / $4))'}, "offload_optimizer": {"device": "nvme", "nvme_path": "'$tmp'"}' ;;
    esac
    cat <<JSON
{"zero_optimization": {"stage": $1, "overlap_comm": $2,
 "reduce_bucket_size": $([ "$3" = small ] && echo 1000 || echo 500000000),
 "stage3_param_persistence_threshold": 0, "stage3_max_live_parameters": $live,
 "stage3_max_reuse_distance": $reuse$offload}$top}
JSON
}
for s in 0 1 2 3; do
    for o in true false; do
        for b in small large cpu part nvme inputs all files late; do
            config $s $o $b >"$tmp/$s.$o.$b.json"
        done
    done
done

# words WORLD STAGE OVERLAP BUCKET ARGS...: the run, one word a line
words() {
    local world=$1 file=$tmp/$2.$3.$4.json
    shift 4
    printf '%s\n' "$bin/zlaunch" --num_gpus "$world" --log_format json "$bin/models/gpt2.so" \
        --deepspeed "$file" --n_layer 2 --n_head 2 --n_embd 32 --block_size 32 \
        --train_file "$tmp/corpus.txt" --do_train --max_steps 20 --logging_steps 1 --seed 7 \
        --learning_rate 1e-3 --max_grad_norm 0.5 --per_device_train_batch_size 2 \
        --fingerprint_steps 20 "$@"
}
# numbers FILE: what must not change, a step a line
numbers() {
    paste <(field loss "$1") <(field grad_norm "$1") <(field skipped "$1")
    field fingerprint "$1"
}
# quoted WORD...: as a shell reads it
quoted() { printf '%q ' "$@"; }

# same WANT WORLD STAGE OVERLAP BUCKET ARGS...: a run gives the numbers of WANT, or makes them
runs=0
same() {
    local want=$1 file=$tmp/$3.$4.$5.json argv code
    shift
    mapfile -t argv < <(words "$@")
    "${argv[@]}" >"$tmp/out" 2>"$tmp/err"
    code=$?
    runs=$((runs + 1))
    numbers "$tmp/out" >"$tmp/got"
    [ -f "$want" ] || cp "$tmp/got" "$want"
    [ "$code" -eq 0 ] && [ "$(wc -l <"$tmp/got")" -eq 21 ] && cmp -s "$tmp/got" "$want" && return
    echo "# exit code $code; step: loss, norm, skipped; wanted (<) and got (>):"
    diff "$want" "$tmp/got" | head -n 4 | sed 's/^/# /'
    tail -n 3 "$tmp/err" | sed 's/^/# /'
    echo "# to repeat it:"
    echo "# cat /usr/share/common-licenses/{GPL-3,Apache-2.0} >corpus.txt"
    echo "# echo '$(tr -d '\n' <"$file")' >zero.json"
    printf '# %s\n' "$(quoted "${argv[@]}" | sed "s|$tmp/corpus.txt|corpus.txt|; s|$file|zero.json|")"
    return 1
}

# block COMM WORLD TYPE MICRO: every way to train this
block() {
    local comm=$1 world=$2 type=$3 micro=$4 want turn=0 wrong=0
    local args=(--comm "$comm")
    want=$tmp/want.$world$type.$micro
    [ "$type" = --fp32 ] || args+=("$type")
    [ "$micro" -eq 1 ] || args+=(--gradient_accumulation_steps "$micro" --reduce_every_micro_batch)
    for s in 0 1 2 3; do
        setting=0
        for o in true false; do
            for b in small large; do
                for r in "" --gradient_checkpointing; do
                    setting=$((setting + 1))
                    chosen "$comm" "$world" "$micro" || continue
                    # shellcheck disable=SC2086 # $r is an option or nothing
                    same "$want" "$world" $s $o $b "${args[@]}" $r || wrong=$((wrong + 1))
                done
            done
        done
        turn=$((turn + 3))
    done
    check "$comm, $world ranks, ${type#--}, $micro micro-batches: the same bits in every way" \
        test $wrong -eq 0
}

mpi_works() {
    local argv
    mapfile -t argv < <(words 2 0 true large --comm mpi --max_steps 1)
    "${argv[@]}" >"$tmp/probe" 2>&1
}
comms=(shm)
if [ ! -f "$bin/backends/mpi.so" ]; then
    echo "# without MPI: $bin/backends/mpi.so is not built"
elif check "a run over MPI" mpi_works; then
    comms+=(mpi)
fi
[ "$failures" -eq 0 ] || sed 's/^/# /' "$tmp/probe"

for world in 2 4; do
    for type in --fp32 --bf16 --fp16; do
        for micro in 1 2; do
            for comm in "${comms[@]}"; do
                block "$comm" $world "$type" $micro
            done
        done
    done
done
engines=(io_uring libaio psync)
# What is offloaded, against the same without, also where micro-batches are added up first.
offloaded() { # offloaded WORLD TYPE MICRO
    local want=$tmp/want.$1$2.$3.later wrong=0 args=(--gradient_accumulation_steps "$3")
    [ "$2" = --fp32 ] || args+=("$2")
    for s in 1 2 3; do
        rm -f "$want" # stage 1 adds up micro-batches before it sums over ranks
        # files by each engine in turn
        engine=(--aio_engine "${engines[($1 + s + $3) % 3]}")
        for b in large cpu part nvme $([ $((($1 + s) % 3)) -ne 0 ] || echo inputs) \
            $([ $s -lt 3 ] || echo all files late both); do
            [ $b != both ] || config 3 true both "$1" >"$tmp/3.true.both.json" # two of four blocks on the host
            same "$want" "$1" $s true $b "${args[@]}" "${engine[@]}" || wrong=$((wrong + 1))
        done
    done
    check "offload, $1 ranks, ${2#--}, $3 micro-batches: the same bits" test $wrong -eq 0
}
for world in 1 2 4; do
    offloaded $world --fp16 2
    [ -n "${ZT_VARIANT:-}" ] || { offloaded $world --fp32 1 && offloaded $world --bf16 2; }
done
learns() { awk 'NR == 1 { first = $1 } NR == 20 { exit !($1 < first - 0.3) }' "$1"; }
for world in 2 4; do
    check "$world ranks: the loss falls" learns "$tmp/want.$world--fp32.1"
    different() { ! cmp -s "$tmp/want.$world--fp32.1" "$tmp/want.$world--bf16.1"; }
    check "$world ranks: bf16 is not fp32" different
done
echo "# $runs runs"
finish
