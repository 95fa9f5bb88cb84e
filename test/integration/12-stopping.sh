#!/bin/bash
# However a job is stopped, all of it is gone within 2 s and the exit code says why.
# alone: any job that starts removes what killed ones left
. "$(dirname "$0")/launch_lib.sh"

# Two ranks, each with a child in its own session that ignores SIGTERM; they say when ready.
tree='trap "" HUP; setsid sh -c "trap \"\" TERM; echo ready; sleep 600 & wait" & echo ready; wait'
deaf='trap "" TERM INT; echo ready; while :; do sleep 600; done'
ready() { within 10 lines_are "$tmp/out" "$1" || fail "the ranks did not start"; }
end() { # wait for zlaunch; its code in $code
    wait "$job"
    code=$?
}

launch_bg --num_gpus 2 -- sh -c "$tree"
ready 4
kill -INT "$job"
gone "Ctrl-C"
end
check "Ctrl-C: 130" code_is 130
check "Ctrl-C: says so" err_has "interrupted"

launch_bg --num_gpus 2 --grace 60 -- sh -c "$deaf"
ready 2
kill -INT "$job"
within 5 err_has "once more to kill" || fail "the first Ctrl-C is not answered"
kill -INT "$job"
gone "the second Ctrl-C"
end
check "second Ctrl-C: 130" code_is 130

launch_bg --num_gpus 2 -- sh -c "$deaf"
ready 2
kill -TERM "$job"
gone "SIGTERM with deaf ranks"
end
check "SIGTERM: 143" code_is 143

launch_bg --num_gpus 2 -- sh -c 'trap "echo saved; exit 75" TERM; echo ready; sleep 600 & wait'
ready 2
kill -TERM "$job"
gone "SIGTERM with saving ranks"
end
check "saved and to be started again: 75" code_is 75

# as timeout does: to the process, and once more to its group
launch_bg --num_gpus 2 -- sh -c 'trap "sleep 0.5; echo saved; exit 75" TERM; echo ready; sleep 600 & wait'
ready 2
kill -TERM "$job"
sleep 0.1
kill -TERM "$job"
gone "SIGTERM twice with saving ranks"
end
check "a second SIGTERM asks for the same: 75" code_is 75
check "  and both have saved" test "$(grep -c saved "$tmp/out")" = 2

launch_bg --num_gpus 2 -- sh -c 'trap "echo got usr1" USR1; echo ready; sleep 600 & wait; sleep 600 & wait'
ready 2
kill -USR1 "$job"
both_got() { [ "$(grep -c 'got usr1' "$tmp/out")" = 2 ]; }
check "SIGUSR1 reaches every rank" within 10 both_got
kill -HUP "$job"
gone "SIGHUP"
end
check "SIGHUP: 129" code_is 129

trap '' HUP # as nohup leaves it
launch_bg --num_gpus 2 -- sh -c 'echo ready; sleep 600'
trap - HUP
ready 2
kill -HUP "$job"
sleep 0.3
check "SIGHUP under nohup: the job goes on" kill -0 "$job"
kill -INT "$job"
gone "Ctrl-C under nohup"
end
check "  until it is stopped in another way" code_is 130

launch_bg --num_gpus 2 -- sh -c "echo pid \$\$; $tree"
ready 6
kill -9 "$(sed -n 's/^\[rank 1\] pid //p' "$tmp/out")"
gone "kill -9 of a rank"
end
check "kill -9 of a rank: 137" code_is 137
check "kill -9 of a rank: named" err_has "was killed by SIGKILL"
check "kill -9 of a rank: which" err_has "rank 1 (pid"

launch_bg --num_gpus 2 -- sh -c "$tree"
ready 4
kill -9 "$(daemon_pid)"
gone "kill -9 of the daemon"
end
check "kill -9 of the daemon: 137" code_is 137
check "kill -9 of the daemon: named" err_has "the node daemon (pid "

launch_bg --num_gpus 2 -- sh -c "$tree"
ready 4
kill -TERM "$(daemon_pid)"
gone "SIGTERM of the daemon"
end
check "SIGTERM of the daemon: 143" code_is 143
check "SIGTERM of the daemon: named" err_has "the node daemon was asked to stop by SIGTERM"

launch_bg --num_gpus 2 -- sh -c "$tree"
ready 4
kill -HUP "$(daemon_pid)"
gone "SIGHUP of the daemon"
end
check "SIGHUP of the daemon: 129" code_is 129
launch_bg --num_gpus 2 -- sh -c 'trap "exit 75" TERM; echo ready; sleep 600 & wait'
ready 2
kill -TERM "$(daemon_pid)"
gone "SIGTERM of the daemon with saving ranks"
end
check "SIGTERM of the daemon, and saved: 75" code_is 75
launch -- sh -c 'kill -XFSZ $$'
check "SIGXFSZ: 153" code_is 153
check "  in words" err_has "SIGXFSZ (file size limit"

export XDG_RUNTIME_DIR=$tmp
launch_bg --num_gpus 2 --save_pid -- sh -c "$tree"
ready 4
check "--save_pid: the file holds the pid" test "$(cat "$tmp/zlaunch/$job.pid")" = "$job"
kill -9 "$job"
gone "kill -9 of zlaunch"
wait "$job" 2>/dev/null
check "--save_pid: removed even then" within 2 test ! -e "$tmp/zlaunch/$job.pid"
check "  in a folder that is the user's alone" test "$(stat -c %a "$tmp/zlaunch")" = 700
echo mine >"$tmp/victim" # a name that is taken already, by a link to what is somebody else's
sh -c 'ln -s "$0/victim" "$0/zlaunch/$$.pid" && exec "$@"' "$tmp" "$zlaunch" --save_pid -- cat "$tmp/victim" >"$tmp/out" 2>"$tmp/err"
code=$?
check "--save_pid: a planted link is replaced" code_is 0
check "  not followed" test "$(cat "$tmp/out" "$tmp/victim")" = $'mine\nmine'
unset XDG_RUNTIME_DIR

launch_bg --num_gpus 2 -- sh -c 'echo pid $$; sleep 600'
ready 2
kill -STOP "$(sed -n 's/^\[rank 1\] pid //p' "$tmp/out")"
kill -TERM "$job"
gone "SIGTERM with a stopped rank"
end
check "a stopped rank does not hold it up: 143" code_is 143

# what a library does whose peer is gone
launch_bg --num_gpus 2 -- sh -c 'echo pid $$; sleep 600'
ready 2
kill -STOP "$(daemon_pid)" # so that it sees both ends at once
kill -ABRT "$(sed -n 's/^\[rank 0\] pid //p' "$tmp/out")"
kill -HUP "$(sed -n 's/^\[rank 1\] pid //p' "$tmp/out")"
kill -CONT "$(daemon_pid)"
gone "a rank that aborts because the other is gone"
end
check "not the rank that aborts is the cause: 129" code_is 129
check "  but the one that was killed" grep -q "rank 1 (pid [0-9]*) was killed by SIGHUP" "$tmp/err"

launch_bg --num_gpus 2 -- sh -c 'echo ready; sleep 600'
ready 2
kill -STOP "$(daemon_pid)"
kill -INT "$job"
gone "Ctrl-C with a stopped daemon"
end
check "a stopped daemon does not hold it up: 130" code_is 130

# What MPI and NCCL would leave in /dev/shm goes with the rank that made it.
launch_bg --num_gpus 2 -- sh -c 'exec 5>"/dev/shm/mpich_shar_tmp$0$RANK"; echo text >&5; echo ready; sleep 600 & wait' "$$"
ready 2
check "a file in /dev/shm is there while its rank is" test -e "/dev/shm/mpich_shar_tmp${$}1"
kill -9 "$job"
gone "kill -9 of zlaunch with files in /dev/shm"
wait "$job" 2>/dev/null
if [ "$(readlink /proc/self/ns/ipc)" = 'ipc:[4026531839]' ] && [ "$(readlink /proc/self/ns/pid)" != 'pid:[4026531836]' ]; then
    echo "skip - other containers may use this /dev/shm"
    rm "/dev/shm/mpich_shar_tmp$$"[01]
else
    files_gone() { ! ls "/dev/shm/mpich_shar_tmp$$"? >"$tmp/out" 2>&1; }
    check "  they go with it" within 2 files_gone
    : >"/dev/shm/ucx_shm_posix_$$"
    launch -- true
    check "and those of an earlier crash with the next job" test ! -e "/dev/shm/ucx_shm_posix_$$"
    : >"/dev/shm/ucx_shm_posix_$$"
    launch --dry_run -- true
    check "  or dry run" test ! -e "/dev/shm/ucx_shm_posix_$$"
fi

# A screen that takes nothing: zlaunch waits with it, and is stopped all the same.
mkfifo "$tmp/fifo"
exec 9<>"$tmp/fifo"
new_mark
ZT_MARK=$mark "$zlaunch" --num_gpus 2 -- sh -c 'touch "$0.$RANK"; yes' "$tmp/up" >"$tmp/fifo" 2>"$tmp/err" &
job=$!
both_up() { [ -e "$tmp/up.0" ] && [ -e "$tmp/up.1" ]; }
within 10 both_up || fail "the writers did not start"
kill -TERM "$job"
gone "SIGTERM with a blocked screen"
end
check "a blocked screen does not hold it up: 143" code_is 143
check "and the cause is told on the other descriptor" err_has "stopped by SIGTERM"
exec 9>&-

# Strays of ranks that ended well are ended too.
launch_bg --num_gpus 2 -- sh -c 'setsid sleep 600 >/dev/null 2>&1 & echo ready'
end
check "ranks that leave strays succeed" code_is 0
gone "strays of a good end"
finish
