#!/bin/bash
# Under stage 3 a rank that generates holds its shard of the weights and one block, whatever the model
# is: what /proc counts is below that, and within what --dry_run said. ZT_BIG=1 takes a model of 4 GiB,
# of which no rank may hold 2.5.
# alone: pages that ranks of other jobs share would not be counted
. "$(dirname "$0")/train_lib.sh"

if [ -n "${ZT_VARIANT:-}" ]; then
    echo "skip - a sanitiser's own memory would be counted"
    exit 0
fi
layers=16 width=512 vocab=8000 tokens=60 # 55M
[ -z "${ZT_BIG:-}" ] || { layers=34 width=1600 vocab=32000 tokens=5; }
embed=$((width * (vocab + 64)))
P=$((embed + layers * (12 * width * width + 13 * width) + 2 * width))
echo "{\"zero_optimization\": {\"stage\": 3, \"stage3_max_live_parameters\": $((embed + 2 * width)),
  \"stage3_max_reuse_distance\": 0, \"stage3_prefetch_bucket_size\": 0,
  \"stage3_param_persistence_threshold\": 0}}" >"$tmp/ds.json"
model=(--n_layer "$layers" --n_head $((width / 64)) --n_embd "$width" --n_positions 64 --vocab_size "$vocab")
run=("$bin/zlaunch" --num_gpus 2 --log_format json "$bin/models/gpt2.so" "${model[@]}" --deepspeed "$tmp/ds.json"
    --block_size 64 --prompt "1 2 3" --max_new_tokens "$tokens" --min_new_tokens "$tokens" --temperature 0)

# pss PID: what /proc counts for it, in KiB; nothing when it has ended
pss() { awk '$1 == "Pss:" { print $2; exit }' "/proc/$1/smaps_rollup" 2>/dev/null; }

# most LOG: the largest Pss of a rank while both write, in KiB
most() {
    local job peak=0 ranks p n
    "${run[@]}" >"$1" 2>&1 &
    job=$!
    while kill -0 "$job" 2>/dev/null; do
        mapfile -t ranks < <(pgrep -f "zworker $bin/models/gpt2.so --n_layer $layers")
        for p in "${ranks[@]}"; do
            n=$(pss "$p")
            # pages that both share are one's alone before the other has come, and after it is gone
            [ "$(pgrep -cf "zworker $bin/models/gpt2.so --n_layer $layers")" -eq 2 ] || continue
            [ "${n:-0}" -le "$peak" ] || peak=$n
        done
    done
    wait "$job" || return 1
    echo "$peak"
}

peak=$(most "$tmp/log") || { cat "$tmp/log"; echo "not ok - it writes"; exit 1; }
check "it writes" grep -q '"event":"sample"' "$tmp/log"
# a shard, the largest block gathered, and what a process takes
limit=$((4 * P / 2 + 4 * embed + (160 << 20)))
echo "# $P parameters of 4 bytes, a rank $((peak >> 10)) MiB, at most $((limit >> 20))"
check "a rank holds a shard and a block" test $((peak << 10)) -gt $((2 * P)) -a $((peak << 10)) -lt "$limit"
[ -z "${ZT_BIG:-}" ] || check "which is less than 2.5 GiB" test "$peak" -lt $((2560 << 10))
plan=$("${run[@]}" --dry_run 2>/dev/null | sed -n 's/.*"event":"memory_plan".*"total_bytes":\([0-9]*\).*/\1/p')
echo "# planned $((plan >> 20)) MiB"
check "and what was planned" test $((peak << 10)) -lt $((plan + plan / 20 + (16 << 20)))
finish
