#!/bin/bash
# Ranks are in a control group of their own where one may be made: it goes with the job, and
# what a killed daemon left in one ends when the next job starts on the machine.
# alone: any job that starts ends what a killed daemon left
. "$(dirname "$0")/launch_lib.sh"

# Memory that a group leaves, of either version: known before anything is allocated.
limit=$((256 << 20))
memory_group() {
    local of
    of=$(sed -n 's/^[0-9]*:memory://p' /proc/self/cgroup)
    group=$(awk '/ - cgroup .*[, ]memory/ { print $5; exit }' /proc/self/mountinfo)$of/zt-memory-$$ file=memory.limit_in_bytes
    [ -z "$of" ] || { mkdir -p "$group/in" 2>/dev/null && return; }
    of=$(sed -n 's/^0:://p' /proc/self/cgroup)
    group=$(awk '/ - cgroup2 / { print $5; exit }' /proc/self/mountinfo)$of/zt-memory-$$ file=memory.max
    mkdir -p "$group/in" 2>/dev/null
}
if memory_group && echo $limit 2>/dev/null >"$group/$file" && (echo 0 >"$group/in/cgroup.procs") 2>/dev/null; then
    (
        echo 0 >"$group/in/cgroup.procs"
        exec "$zlaunch" --num_gpus 1 "$bin/models/gpt2.so" --train_file "$0" --do_train >"$tmp/out" 2>"$tmp/err"
    )
    code=$?
    check "more than the control group's memory: 78" code_is 78
    check "  with its numbers" err_has "of its limit of 256 MiB"
    (
        echo 0 >"$group/in/cgroup.procs"
        exec "$zlaunch" -- sh -c 'exec tail /dev/zero' >"$tmp/out" 2>"$tmp/err"
    )
    code=$?
    check "a rank that needs more than its group has: 137" code_is 137
    check "  and memory is named" err_has "out-of-memory killer"
else
    echo "skip - no memory may be limited here"
fi
rmdir "$group/in" "$group" 2>/dev/null

mount=$(awk '/ - cgroup2 / { print $5; exit }' /proc/self/mountinfo)
own=$(sed -n 's/^0:://p' /proc/self/cgroup)
parent=$mount${own%/}
if [ -z "$mount" ] || ! mkdir "$parent/zt-try-$$" 2>/dev/null; then
    echo "skip - no control group may be made here"
    exit 77
fi
killable=0
[ ! -w "$parent/zt-try-$$/cgroup.kill" ] || killable=1
rmdir "$parent/zt-try-$$"
[ "$killable" = 1 ] || { echo "skip - this kernel has no cgroup.kill" && exit 77; }
ready() { within 10 lines_are "$tmp/out" "$1" || fail "the ranks did not start"; }
group_of() { sed -n 's/^0:://p' "/proc/$1/cgroup"; }

stray='setsid sleep 600 >/dev/null 2>&1 & echo stray $!; echo rank $$; wait'
launch_bg --num_gpus 2 -- sh -c "$stray"
ready 4
group=$(group_of "$(sed -n 's/^\[rank 1\] rank //p' "$tmp/out")")
check "a rank is in a group of the job" test "${group#"${own%/}"/zlaunch-}" = "$(daemon_pid)"
check "what it starts is there too" test "$(group_of "$(sed -n 's/^\[rank 0\] stray //p' "$tmp/out")")" = "$group"
check "the daemon is not" test "$(group_of "$(daemon_pid)")" != "$group"
kill -TERM "$job"
gone "SIGTERM"
wait "$job"
check "the group goes with the job" test ! -e "$mount$group"

# Nobody is left to clear up after zlaunch and daemon; a stray has no parent that would tell it.
launch_bg --num_gpus 2 -- sh -c "$stray"
ready 4
group=$(group_of "$(sed -n 's/^\[rank 0\] stray //p' "$tmp/out")")
daemon=$(daemon_pid)
kill -STOP "$daemon"
kill -9 "$job" "$daemon"
wait "$job" 2>/dev/null
ranks_gone() { [ "$(survivors | wc -l)" -le 2 ]; }
check "the ranks die with their daemon" within 2 ranks_gone
if nobody_left; then
    ok "and nothing else was left"
else
    old=$mark
    launch --num_gpus 1 -- true
    check "the next job is well" code_is 0
    mark=$old
    gone "strays of a daemon that was killed, once another job has started"
    check "nor is its group" test ! -e "$mount$group"
fi

# Jobs in groups beside each other, as systemd's scopes are.
for of in a b; do mkdir "$parent/zt-$of-$$"; done
in_group() { # GROUP ARGS...: zlaunch there
    local of=$1
    shift
    sh -c 'echo 0 >"$0/cgroup.procs" && exec "$@"' "$parent/zt-$of-$$" "$zlaunch" "$@"
}
removed_by() { # removed_by WHO ARGS...: an empty group beside, of a daemon that was killed
    mkdir "$parent/zt-a-$$/zlaunch-1"
    in_group b "${@:2}" >"$tmp/out" 2>"$tmp/err"
    check "an empty group beside is removed by $1" rmdir_was_not_needed
}
rmdir_was_not_needed() { ! rmdir "$parent/zt-a-$$/zlaunch-1" 2>/dev/null; }
removed_by "the next job" -- true
removed_by "a dry run" --dry_run -- true
removed_by "a report" --report
removed_by "an estimate" --estimate 1M
removed_by "who asks for jobs" --ctl list
rmdir "$parent/zt-a-$$" "$parent/zt-b-$$"

# A group whose daemon lives is not touched.
launch_bg --num_gpus 1 -- sh -c 'echo ready; sleep 600'
ready 1
first=$job old=$mark
launch --num_gpus 1 -- true
mark=$old
check "another job beside it is left alone" test "$(survivors | wc -l)" -ge 3
kill -TERM "$first"
wait "$first" 2>/dev/null
gone "the first of two jobs"
finish
