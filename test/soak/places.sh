#!/bin/bash
# Checkpoints do not say where state was kept: saved with the state of optimizer and weights in any place at any stage
# (device, host, a part of it on the host, files), opened with them in any other, all pairs. As many ranks go on bit by
# bit as if never stopped; 1, 2 and 4 ranks in turns open one another's and save the same bits again. dtypes take turns, too.
# Arguments: the places that are saved in (all, as 3.cpu.nvme). ZT_PLACES: of the pairs every N-th (1). ZT_SECONDS: as many as begin in
# that time. ZT_LOG=FILE (build/places.log): what passed, a line each; of the same programs it is not run again, so the command goes on
# where it was stopped.
. "$(dirname "$0")/../integration/train_lib.sh"
corpus >/dev/null
rows=4 # for 1, 2 and 4 ranks
. test/integration/checkpoint_lib.sh
dtypes=(bf16 fp32 fp16) others=(1.2 2.1 2.4 4.2 1.4 4.1)
log=${ZT_LOG:-build/places.log}
programs=$(cat "$bin/zlaunch" "$bin/zworker" "$bin/models/gpt2.so" | sha256sum | cut -c 1-16)
mkdir -p "$(dirname "$log")"
touch "$log"
stop=$((SECONDS + ${ZT_SECONDS:-1000000})) done_before=0

# once NAME COMMAND...: check, unless it passed before
once() {
    local before=$failures
    [ $SECONDS -lt $stop ] || return 0
    if grep -qxF "ok $programs $1" "$log"; then
        done_before=$((done_before + 1))
        return
    fi
    check "trial: $1" "${@:2}"
    [ "$failures" -gt "$before" ] || echo "ok $programs $1" >>"$log"
}

for p in "${places[@]}"; do
    IFS=. read -r stage optimizer weights <<<"$p"
    for d in "${dtypes[@]}"; do
        config "$p.$d" "$stage" "$d" "$optimizer" "$weights"
    done
done
[ $# -gt 0 ] || set -- "${places[@]}"
pair=0
for from in "$@"; do
    i=0
    for to in "${places[@]}"; do
        pair=$((pair + 1)) i=$((i + 1))
        [ $((pair % ${ZT_PLACES:-1})) -eq 0 ] || continue
        d=${dtypes[i % 3]} ranks=${others[(pair + i) % 6]}
        # stages below 2 add up micro-batches before they sum over ranks, unless they are told otherwise
        once "2 ranks, $d, $from goes on as $to" goes_on 2 "$from.$d" "$to.$d" --reduce_every_micro_batch
        once "$d, $from of ${ranks%.*} is opened as $to of ${ranks#*.}" moves "${ranks%.*}" "$from.$d" "${ranks#*.}" "$to.$d"
    done
    rm -rf "$tmp"/whole.*
done
echo "# $((2 * pair / ${ZT_PLACES:-1})) in all; $done_before were in $log, $(grep -c "^ok $programs " "$log") are"
finish
