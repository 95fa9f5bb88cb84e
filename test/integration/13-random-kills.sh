#!/bin/bash
# Kill a random part of the job at a random moment, again and again: nothing ever stays.
# alone: a job has 2 s to end, however little of the processor it gets
. "$(dirname "$0")/launch_lib.sh"

seed=${ZT_SEED:-$RANDOM}
RANDOM=$seed
echo "# ZT_SEED=$seed"
for round in $(seq "${ZT_ROUNDS:-20}"); do
    launch_bg --num_gpus $((1 + RANDOM % 3)) -- sh -c \
        'setsid sleep 600 & (while :; do echo line; done) & sleep 600'
    # every other round in the middle of things, the others while all is being started
    [ $((round % 2)) = 0 ] || within 10 test -s "$tmp/out" || fail "the ranks did not start"
    read -rt "0.00$((RANDOM % 10))" <> <(:)
    parts=("$job" $(survivors))
    victim=${parts[RANDOM % ${#parts[@]}]}
    what=$(tr '\0' ' ' 2>/dev/null <"/proc/$victim/cmdline" | cut -c 1-40)
    kill -9 "$victim" 2>/dev/null
    # the kill may have met a stray that matters to nobody: then the job is stopped
    [ "$victim" = "$job" ] || kill -TERM "$job" 2>/dev/null
    ends 2 nobody_left || fail "round $round: killed '$what', left: $(survivors | tr '\n' ' ')"
    survivors | xargs -r kill -9
    wait "$job" 2>/dev/null
    code=$?
    check "round $round: '$what' killed, exit code $code" test "$code" -ge 128
done
echo "# slowest end: $slowest ms"
finish
