#!/bin/bash
# A node daemon on its own, spoken to in frames: it beats, gives its zlaunch up when that is
# silent, and refuses what does not belong on the channel.
. "$(dirname "$0")/launch_lib.sh"

# frame TYPE BODY: one frame on stdout.
frame() {
    local n=$((${#2} + 1))
    printf "\\x$(printf %02x $((n >> 24)))\\x$(printf %02x $((n >> 16 & 255)))\\x$(printf %02x $((n >> 8 & 255)))\\x$(printf %02x $((n & 255)))\\x$(printf %02x "$1")%s" "$2"
}
# job FIELDS...: a JOB frame with one rank that sleeps.
job_frame() {
    frame 1 '{"id":"j","argv":["sleep","600"],"env":{},"first_rank":0,"local_world":1,"world":1,"node_rank":0,"num_nodes":1,"master_addr":"h","master_port":1,"grace_ms":200,"bind":false'"$1"'}'
}
start() { # COMMAND...: feeds the daemon, then holds its stdin open until the end of the test
    rm -f "$tmp/in"
    mkfifo "$tmp/in"
    exec 7<>"$tmp/in"
    new_mark
    : >"$tmp/err"
    env -u ZT_TEST_MARK_NEXT ZT_MARK=$mark "$bin/zworker" --daemon <"$tmp/in" >"$tmp/frames" 2>"$tmp/err" 7>&- &
    job=$!
    "$@" >&7
}
# num TYPE: how many frames of this type have come.
num() {
    od -An -v -tu1 -w1 "$tmp/frames" | awk -v want="$1" '
        left > 0 { left--; next }
        k < 4 { n = n * 256 + $1; k++; next }
        { seen[$1]++; left = n - 1; n = k = 0 }
        END { print seen[want] + 0 }'
}
at_least() { [ "$(num "$1")" -ge "$2" ]; }

start job_frame ''
check "a daemon says HELLO" within 5 at_least 16 1
check "and that the rank runs" within 5 at_least 17 1
check "it beats" within 5 at_least 23 3
asleep() {
    local r
    r=$(children "$job")
    r=${r%% *}
    [ "$(cat "/proc/$r/comm")" = sleep ] && grep -q '^State:.S' "/proc/$r/status"
}
within 5 asleep || fail "the rank does not sleep"
frame 5 '' >&7
check "asked to INSPECT it tells of its rank" within 5 at_least 24 1
check "  what that does" grep -q '"state":"waiting"' "$tmp/frames"
frame 4 '' >&7
check "a PING does no harm" within 5 at_least 23 4
kill -0 "$job"
check "it does not give up a silent zlaunch on this host" test $? -eq 0
exec 7>&-
gone "a closed channel"
wait "$job"

start job_frame ',"silence_ms":1200'
within 5 at_least 17 1 || fail "no rank started"
for _ in 1 2 3 4; do
    within 1 false
    frame 4 '' >&7
done
check "it stays while zlaunch says something" at_least 23 7
check "  and lives" kill -0 "$job"
within 5 nobody_left
gone "a silent zlaunch"
check "it tells why" err_has "zlaunch has been silent for 1200 ms"
wait "$job"
check "and exits with 69" test $? -eq 69

# ---------------------------------------------------------------- one that stays
start job_frame ',"stay":true'
within 5 at_least 17 1 || fail "no rank started"
frame 2 '{"signal":15,"grace_ms":100}' >&7
check "one that is to stay says DONE" within 5 at_least 22 1
check "  and that it waits" grep -q '"waits":true' "$tmp/frames"
frame 5 '' >&7
job_frame ',"restart":1' >&7
check "the next JOB starts the rank again" within 5 at_least 17 2
frame 2 '{"signal":15,"grace_ms":100}' >&7
check "and where that is the last" within 5 at_least 22 2
gone "  it ends with it"
wait "$job"
for how in 'frame 7 "" >&7' 'exec 7>&-' 'kill "$job"'; do
    start job_frame ',"stay":true'
    within 5 at_least 17 1 || fail "no rank started"
    frame 2 '{"signal":9,"grace_ms":0}' >&7
    within 5 at_least 22 1 || fail "it says no DONE"
    check "  it waits" kill -0 "$job"
    eval "$how"
    gone "one that waits, after '$how'"
    wait "$job"
done
start job_frame ',"stay":true,"silence_ms":1200'
within 5 at_least 17 1 || fail "no rank started"
frame 2 '{"signal":9,"grace_ms":0}' >&7
within 5 nobody_left
gone "one that waits for a silent zlaunch"
wait "$job"

for bad in 'frame 99 ""' 'frame 12 no-pair' 'frame 13 ""' 'printf "\xff\xff\xff\xff1"' 'frame 2 "{}"'; do
    start job_frame ''
    within 5 at_least 17 1 || fail "no rank started"
    eval "$bad" >&7
    gone "after '$bad'"
    check "  it tells with a FAULT" at_least 21 1
    wait "$job"
    check "  and fails" test $? -ne 0
done
finish
