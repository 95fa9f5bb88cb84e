#!/bin/bash
# Four hosts over ssh, and a random process of the job is killed at a random moment, again and
# again: zlaunch, a guard, a daemon, a rank or the sshd that serves the job. Nothing stays on any
# host, nothing hangs, and the first cause is told with its host. ZT_ROUNDS=100 for more.
# alone: it changes the networks of this machine
. "$(dirname "$0")/launch_lib.sh"
export ASAN_OPTIONS=detect_leaks=0 # libssh2 leaks when handshakes are cut off
. "$(dirname "$0")/hosts_lib.sh"
command=(--hostfile "$tmp/hosts" --export ZT_MARK "${access[@]}" -- sh -c
    'setsid sleep 600 & echo up; (while :; do echo line; sleep 0.01; done) & sleep 600; exit 0')

seed=${ZT_SEED:-$RANDOM}
RANDOM=$seed
rounds=${ZT_ROUNDS:-12}
echo "# ZT_SEED=$seed"
# the sshd processes of sessions, whatever user they run as
sessions() {
    local p
    for p in $(pgrep -f '^sshd(-session)?: .*@notty'); do [ -z "$(host_of "$p")" ] || echo "$p"; done
}

for round in $(seq "$rounds"); do
    launch_bg "${command[@]}"
    all_up() { [ "$(grep -c '] up$' "$tmp/out")" = 4 ]; }
    # every other round in the middle of things, the others while all is being started
    [ $((round % 2)) = 0 ] && read -rt 0.2 <> <(:) || within 10 all_up || fail "round $round: the ranks did not start"
    read -rt "0.$((RANDOM % 3))$((RANDOM % 10))" <> <(:)
    parts=("$job" $(survivors) $(sessions))
    for tries in $(seq 20); do # strays are many, and matter to nobody
        victim=${parts[RANDOM % ${#parts[@]}]}
        at=$(host_of "$victim")
        what_is "$victim" || what=nobody
        [ "$what" != stray ] || ! sessions | grep -qx "$victim" || what=session
        [ "$what" = stray ] || [ "$what" = nobody ] || break
    done
    [ "$tries" -lt 20 ] || victim=$job what=zlaunch
    kill -9 "$victim" 2>/dev/null
    if ! ends 3 nobody_left; then
        fail "round $round: killed $what, left: $(survivors | tr '\n' ' ')"
        survivors | xargs -r kill -9
    fi
    wait "$job" 2>/dev/null
    code=$?
    check "round $round: $what killed, exit code $code" test "$code" -gt 64
    case $what in
    zlaunch) ;; # nobody is left who could tell
    "rank "[0-9]) check "  and told" err_has "rank ${what#rank } on ${host[at]}" ;;
    *) check "  its host is told" err_has "${host[at]}" ;;
    esac
done
echo "# slowest end: $slowest ms"
finish
