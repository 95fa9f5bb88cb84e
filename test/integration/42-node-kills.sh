#!/bin/bash
# Several nodes, and a random process of the job is killed at a random moment, again and
# again: nothing stays, nothing hangs, and the first cause is told. ZT_ROUNDS=100 for more.
# alone: a job has 2 s to end, however little of the processor it gets
. "$(dirname "$0")/launch_lib.sh"

seed=${ZT_SEED:-$RANDOM}
RANDOM=$seed
rounds=${ZT_ROUNDS:-20}
echo "# ZT_SEED=$seed"
printf 'n0 slots=2\nn1 slots=1\nn2 slots=1\n' >"$tmp/hosts"

for round in $(seq "$rounds"); do
    launch_bg --hostfile "$tmp/hosts" --launcher local -- sh -c \
        'setsid sleep 600 & echo up; (while :; do echo line; sleep 0.01; done) & sleep 600; exit 0'
    all_up() { [ "$(grep -c '] up$' "$tmp/out")" = 4 ]; }
    # every other round in the middle of things, the others while all is being started
    [ $((round % 2)) = 0 ] || within 10 all_up || fail "round $round: the ranks did not start"
    read -rt "0.0$((RANDOM % 10))" <> <(:)
    parts=("$job" $(survivors))
    victim=${parts[RANDOM % ${#parts[@]}]}
    what_is "$victim" || what=nobody
    kill -9 "$victim" 2>/dev/null
    case $what in
    zlaunch | daemon* | rank*) ;;
    *) kill -TERM "$job" 2>/dev/null ;; # a stray matters to nobody: then the job is stopped
    esac
    if ! ends 3 nobody_left; then
        fail "round $round: killed $what, left: $(survivors | tr '\n' ' ')"
        survivors | xargs -r kill -9
    fi
    wait "$job" 2>/dev/null
    code=$?
    case $what in
    "rank "[0-9]) told="rank ${what#rank } on n" ;;
    "daemon "[0-9]) told="n${what#daemon }: the node daemon (pid $victim) was killed by SIGKILL" ;;
    "daemon ?") told="(pid $victim) was killed by SIGKILL" ;; # or a rank that is not executed yet
    *) told= ;;
    esac
    check "round $round: $what killed, exit code $code" test "$code" -ge 128
    [ -z "$told" ] || check "  and told" err_has "$told"
done
echo "# slowest end: $slowest ms"
finish
