#!/bin/bash
# Memory of a rank falls with the stages as docs/ZERO.md says: what the run counts is within 3 % of
# the formula, and what /proc counts is what --dry_run said. ZT_BIG=1 takes GPT-2 of 354M parameters.
# alone: pages that ranks of other jobs share would not be counted
. "$(dirname "$0")/train_lib.sh"
corpus >/dev/null

if [ -n "${ZT_VARIANT:-}" ]; then
    echo "skip - a sanitiser's own memory would be counted"
    exit 0
fi
layers=8 width=512 vocab=16000 # 33.6M
[ -z "${ZT_BIG:-}" ] || { layers=24 width=1024 vocab=50257; }
heads=$((width / 64)) positions=64

# parameters, as the model has them: tied head, 12 w^2 + 13 w a layer
embed=$((width * (vocab + positions)))
layer=$((12 * width * width + 13 * width))
P=$((embed + layers * layer + 2 * width))

half=bf16
config() { # config STAGE FILE
    echo "{\"$half\": {\"enabled\": true}, \"zero_optimization\": {\"stage\": $1,
      \"stage3_max_live_parameters\": $((embed + 2 * width)), \"stage3_max_reuse_distance\": 0,
      \"stage3_param_persistence_threshold\": 0, \"overlap_comm\": false,
      \"reduce_bucket_size\": 1000}}" >"$2"
}

# formula STAGE RANKS: bytes of the model state of a rank; activations come on top
formula() {
    awk -v s="$1" -v N="$2" -v P="$P" -v E="$embed" -v L="$layer" 'BEGIN {
        w = s == 3 ? 2 * P / N : 2 * P          # weights in bf16
        g = s >= 2 ? 4 * P / N : 4 * P          # fp32 accumulators
        o = s >= 1 ? 12 * P / N : 12 * P        # fp32 master and two moments
        live = s == 3 ? 2 * (E > L ? E : L) : 0 # one gathered block at a time
        t = s >= 2 ? 4 * (E + L) : 0            # gradients in backward: tied embedding, a layer
        printf "%.0f\n", w + g + o + live + t }'
}

# watch LOG RANKS: the largest Pss of a rank, in KiB, over 12 samples after the log's third step.
# Only samples taken while all ranks live count: once one has ended, the pages that it shared
# are wholly its neighbours'.
watch() {
    local peak=0 most p n samples=0 ranks=() pss began=$SECONDS
    while [ "$samples" -lt 12 ] && [ $((SECONDS - began)) -lt 120 ]; do
        [ ${#ranks[@]} -eq "$2" ] || {
            mapfile -t ranks < <(pgrep -f "zworker $bin/models/gpt2.so --n_layer $layers")
            [ ${#ranks[@]} -eq "$2" ] || continue
        }
        most=0 n=0
        for p in "${ranks[@]}"; do
            sample "$p" && [ "$pss" -gt "$most" ] && most=$pss
        done
        for p in "${ranks[@]}"; do
            sample "$p" && n=$((n + 1))
        done
        [ "$n" -eq "$2" ] || { # one of them was of the run before
            ranks=()
            continue
        }
        [ "$most" -le "$peak" ] || peak=$most
        [ "$samples" -gt 0 ] || grep -q '"step":3,' "$1" || continue
        samples=$((samples + 1))
    done
    echo "$peak"
}

# sample PID: pss is what /proc counts for a process that lives, in KiB
sample() {
    local key
    pss=0
    while read -r key pss _; do
        [ "$key" != Pss: ] || break
    done 2>/dev/null <"/proc/$1/smaps_rollup"
    [ "${pss:-0}" -gt 0 ]
}

within() { # within A B PERCENT SLACK: |A - B| <= B * PERCENT / 100 + SLACK
    awk -v a="$1" -v b="$2" -v p="$3" -v s="$4" 'BEGIN {
        d = a - b; if (d < 0) d = -d; exit !(d <= b * p / 100 + s) }'
}

measure() { # measure STAGE RANKS
    local out=$tmp/m$1x$2 want got act plan pss job run
    config "$1" "$out.json"
    run=("$bin/models/gpt2.so" --n_layer $layers --n_head $heads --n_embd $width
        --tokenizer_name bytes --vocab_size $vocab --block_size $positions --n_positions $positions
        --per_device_train_batch_size 1 --train_file "$tmp/corpus.txt" --do_train
        --max_steps 100000 --logging_steps 1 --deepspeed "$out.json")
    "$bin/zlaunch" --num_gpus "$2" --log_format json "${run[@]}" >"$out" 2>"$out.err" &
    job=$!
    pss=$(($(watch "$out" "$2") * 1024))
    kill -INT $job
    wait $job
    check "stage $1 at $2 ranks trains until it is told to stop" test $? -eq 130
    "$bin/zlaunch" --num_gpus "$2" --dry_run "${run[@]}" >"$out.plan"
    act=$(awk '/^  activations/ { printf "%.0f", $2 * 1048576 }' "$out.plan")
    plan=$(awk '/^  total/ { printf "%.0f", $2 * 1048576 }' "$out.plan")
    want=$(($(formula "$1" "$2") + act))
    got=$(field peak_device_bytes "$out" | tail -1)
    echo "# stage $1, $2 ranks: formula $((want >> 20)) MiB, counted $((got >> 20)), planned $((plan >> 20)), /proc $((pss >> 20))"
    check "stage $1 at $2 ranks: counted bytes are within 3 % of the formula" within "$got" "$want" 3 0
    # with the process itself: code, threads, oneDNN's kernels and scratch
    check "stage $1 at $2 ranks: /proc is within 2 % and 5 MiB of the plan" within "$pss" "$plan" 2 $((5 << 20))
}

memory=$(($(awk '/^MemTotal:/ { print $2 }' /proc/meminfo) << 10))
for ranks in 2 4; do
    for stage in 0 1 2 3; do
        if [ $((ranks * $(formula "$stage" "$ranks"))) -gt "$memory" ]; then
            echo "# stage $stage, $ranks ranks: more than the $((memory >> 20)) MiB of this machine"
            continue
        fi
        measure "$stage" "$ranks"
    done
done
# operands are made fp32 for products
half=fp16
measure 3 2
half=bf16

# What does not fit one rank's limit: refused at stage 0 with what would fit, and fits there.
limit=700000 # KiB of addresses for each rank
small=(--n_layer 6 --n_head 8 --n_embd 512 --tokenizer_name bytes --vocab_size 24000 --n_positions 64 --block_size 64
    --per_device_train_batch_size 1 --train_file "$tmp/corpus.txt" --do_train --max_steps 2)
config 0 "$tmp/l0.json"
config 3 "$tmp/l3.json"
(
    ulimit -v $limit
    "$bin/zlaunch" --num_gpus 4 "$bin/models/gpt2.so" "${small[@]}" --deepspeed "$tmp/l0.json"
) >"$tmp/l0" 2>&1
check "stage 0 does not fit: exit code 78" test $? -eq 78
cat "$tmp/l0"
check "it says how much was asked for" grep -qE 'needs [0-9]+ MiB for each of 4 local ranks at ZeRO stage 0' "$tmp/l0"
check "it says what would fit" grep -qE '"zero_optimization": \{"stage": [123]\} would fit' "$tmp/l0"
(
    ulimit -v $limit
    "$bin/zlaunch" --num_gpus 4 "$bin/models/gpt2.so" "${small[@]}" --deepspeed "$tmp/l3.json"
) >"$tmp/l3" 2>&1
check "under the same limit stage 3 trains" test $? -eq 0

# Where nothing fits but blocks that are gathered for one call alone, that is the advice, and it trains.
tight=(--n_layer 4 --n_head 4 --n_embd 256 --train_file "$tmp/corpus.txt" --do_train --max_steps 2 --tokenizer_name bytes --block_size 64
    --per_device_train_batch_size 4 --device_memory 20MiB)
"$bin/zlaunch" --num_gpus 2 "$bin/models/gpt2.so" "${tight[@]}" >"$tmp/tight" 2>&1
check "a small device is refused: 78" test $? -eq 78
advice=$(sed -n 's/^zlaunch: error: .* MiB; \(.*\) would fit, with .*/\1/p' "$tmp/tight")
check "  and told to hold no block for longer than a call" grep -qF '"stage3_max_live_parameters": 0' <<<"$advice"
eval "set -- $advice"
"$bin/zlaunch" --num_gpus 2 "$bin/models/gpt2.so" "${tight[@]}" "$@" >"$tmp/tight" 2>&1
check "  which trains" test $? -eq 0
head -n 3 "$tmp/tight"

# Advice is followed to the letter: words as they are typed, JSON as keys of the config.
little=(--n_layer 4 --n_head 4 --n_embd 128 --train_file "$tmp/corpus.txt" --max_steps 1 --tokenizer_name bytes --block_size 64)
refused() { # RANKS MIB OPTION...: the advice
    "$bin/zlaunch" --num_gpus "$1" "$bin/models/gpt2.so" "${little[@]}" --device_memory "$2MiB" "${@:3}" 2>&1 |
        sed -n 's/^zlaunch: error: .* MiB; \(.*\) would fit, with .*/\1/p'
}
fits() { "$bin/zlaunch" --num_gpus "$1" "$bin/models/gpt2.so" "${little[@]}" --device_memory "$2MiB" "${@:3}" >"$tmp/fits" 2>&1; }
advised() { # WHAT WORDS RANKS MIB OPTION...
    local advice
    advice=$(refused "${@:3}")
    check "$1: $advice" grep -qF -- "$2" <<<"$advice"
    [[ $advice != \"* ]] || return 0 # the caller has the JSON
    eval "fits $(printf '%q ' "${@:3}") $advice"
    check "  which trains" test $? -eq 0
}
one=(--per_device_train_batch_size 1) eight=(--per_device_train_batch_size 8)
advised "shared weights are not at stage 3" "--share_node_weights false --zero_stage 3 " 2 6 "${one[@]}" --zero_stage 1 --share_node_weights
advised "--activations has another word" "--activations recompute" 1 28 "${eight[@]}" --activations keep
advised "weights of an evaluation go to the host" "--zero_stage 3 --offload_param_device cpu" 1 4 --do_eval \
    --eval_file "$tmp/corpus.txt" --max_eval_samples 1 --per_device_eval_batch_size 1
advised "inputs of blocks go to the host" "--activations host" 1 13 "${one[@]}" --n_layer 32 --n_embd 64 --n_positions 1024 --block_size 1024 \
    --zero_stage 3 --offload_optimizer_device cpu --offload_param_device cpu
host='"offload_optimizer": {"device": "cpu"' weights='"offload_param": {"device": "cpu"}'
advised "the whole of it goes to the host" "$host, \"ratio\": 1}}" 1 10 "${one[@]}" \
    --deepspeed "{\"zero_optimization\": {\"stage\": 1, $host, \"ratio\": 0.3}}}"
check "  which trains" fits 1 10 "${one[@]}" --deepspeed "{\"zero_optimization\": {\"stage\": 1, $host, \"ratio\": 1}}}"
advised "a second partition is not beside weights on the host" "$host}, $weights, \"zero_hpz_partition_size\": 1}" 2 12 "${one[@]}" \
    --deepspeed '{"zero_optimization": {"stage": 3, "zero_hpz_partition_size": 2}}'
check "  which trains" fits 2 12 "${one[@]}" --deepspeed "{\"zero_optimization\": {\"stage\": 3, $host}, $weights, \"zero_hpz_partition_size\": 1}}"
advised "a batch that the JSON has is said as JSON" '}} "train_micro_batch_size_per_gpu": 2 --gradient_accumulation_steps 4' 1 9 \
    --deepspeed '{"train_micro_batch_size_per_gpu": 8, "zero_optimization": {"stage": 1}}'
check "  which trains" fits 1 9 --deepspeed "{\"train_micro_batch_size_per_gpu\": 2, \"zero_optimization\": {\"stage\": 1, $host}}}" \
    --gradient_accumulation_steps 4

# Where there is too little memory for any other way, state in files is one.
files='{"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "nvme", "nvme_path": "'$tmp'"},
    "offload_param": {"device": "nvme", "nvme_path": "'$tmp'"}}}'
narrow() { (ulimit -v 380000 && exec "$bin/zlaunch" --num_gpus 1 "$bin/models/gpt2.so" "${little[@]}" "${one[@]}" --n_layer 8 --n_embd 512 \
    --gradient_checkpointing "$@") >"$tmp/narrow" 2>&1; }
if [ -z "${ZT_VARIANT:-}" ]; then # a sanitizer's shadow takes more addresses
    narrow
    check "little memory: state in files is advised" grep -q "or more memory, or ZeRO stage 3 with state in files" "$tmp/narrow"
    check "  which trains" narrow --deepspeed "$files"
fi

# The device is as large as each way to keep activations needs: --activations auto takes that way, with the
# same numbers and as much memory as was planned.
deep=(--n_layer 12 --n_embd 64 --block_size 128 --per_device_train_batch_size 4 --max_steps 2 --fingerprint_steps 1)
bytes=()
for way in keep recompute host; do
    train 1 "$tmp/plan" "${deep[@]}" --activations $way --device_memory 1GiB --dry_run
    bytes[${#bytes[@]}]=$(sed -n 's/^[^[]*"event":"memory_plan"[^[]*"device_bytes":\([0-9]*\).*/\1/p' "$tmp/plan")
done
check "each way needs less: ${bytes[*]}" test "${bytes[0]}" -gt "${bytes[1]}" -a "${bytes[1]}" -gt "${bytes[2]}"
words=("they are kept" "they are recomputed" "they are recomputed from host memory")
for i in 0 1 2; do
    train 1 "$tmp/auto.$i" "${deep[@]}" --activations auto --device_memory "${bytes[$i]}"
    check "a device of ${bytes[$i]} bytes: ${words[$i]}" grep -q -- "--activations auto: ${words[$i]}\"" "$tmp/auto.$i" "$tmp/auto.$i.err"
    check "  the same bits" same_bits "$tmp/auto.0" "$tmp/auto.$i"
done
train 1 "$tmp/none" "${deep[@]}" --activations auto --device_memory $((bytes[2] - 65536))
check "a smaller one is refused" test $? -eq 78
[ "$failures" -eq 0 ] || cat "$tmp"/*.err "$tmp/l3"

# While weights are read a rank holds its shard of them and no more than the largest block beside it: what passes need, here 250 MiB
# of logits, and buffers of files come later.
case $bin in
bin) models=${ZT_TEST_MODELS:-build/release/test-models} ;;
*) models=${ZT_TEST_MODELS:-${bin%/bin}/test-models} ;;
esac
wide=(--tokenizer_name bytes --block_size 64)
"$bin/zlaunch" --num_gpus 1 "$bin/models/gpt2.so" --n_layer 2 --n_head 8 --n_embd 512 --vocab_size 16000 --n_positions 64 \
    "${wide[@]}" --train_file "$tmp/corpus.txt" --do_train --max_steps 1 --output_dir "$tmp/wide" >"$tmp/wide.log" 2>&1
check "a model is made to be loaded" test $? -eq 0
wide_embed=$((512 * (16000 + 64))) wide_layer=$((12 * 512 * 512 + 13 * 512))
shard=$((4 * (wide_embed + 2 * wide_layer + 2 * 512) / 2))
loads() { # loads NAME CONFIG ARGS...
    local most
    echo "$2" >"$tmp/$1.json"
    "$bin/zlaunch" --num_gpus 2 "$models/held.so" --model_name_or_path "$tmp/wide" --deepspeed "$tmp/$1.json" "${wide[@]}" "${@:3}" \
        >"$tmp/$1.held" 2>&1
    check "$1: the model is loaded and used" test $? -eq 0
    most=$(sed -n 's/.*held \([0-9]*\)$/\1/p' "$tmp/$1.held" | sort -n | tail -1)
    echo "# $1: $((${most:-0} >> 10)) MiB were held, a shard has $((shard >> 20)) and the largest block $((4 * wide_embed >> 20))"
    check "$1: what a rank held is less than a shard and the largest block" test "${most:-999999999}" -lt $(((shard + 4 * wide_embed) >> 10))
}
loads evaluation '{"zero_optimization": {"stage": 3}}' --do_eval --eval_file "$tmp/corpus.txt" --eval_batches 1 --per_device_eval_batch_size 64
loads training '{"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "nvme", "nvme_path": "'"$tmp"'"}}}' \
    --do_train --train_file "$tmp/corpus.txt" --max_steps 1 --per_device_train_batch_size 64
finish
