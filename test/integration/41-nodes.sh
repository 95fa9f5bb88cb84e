#!/bin/bash
# Several nodes: the first failure anywhere ends all of them at once and is named with its
# host; a job can be started again as a whole, with the nodes that are left.
. "$(dirname "$0")/launch_lib.sh"
export ASAN_OPTIONS=detect_leaks=0 # libraries that MPI loads leak
printf 'n0 slots=2\nn1 slots=1\nn2 slots=2\n' >"$tmp/hosts"
nodes=(--hostfile "$tmp/hosts" --launcher local)
tree='setsid sh -c "trap \"\" TERM; echo ready; sleep 600 & wait" & echo ready; wait'
ready() { within 10 lines_are "$tmp/out" "$1" || fail "the ranks did not start"; }
end() {
    wait "$job"
    code=$?
}
# daemon_of NODE: the daemon whose ranks have this GROUP_RANK, in $pid
daemon_of() {
    local d r environ
    for d in $(children "$job"); do
        for r in $(children "$d"); do
            mapfile -d '' environ 2>/dev/null <"/proc/$r/environ" || continue
            case " ${environ[*]} " in *" GROUP_RANK=$1 "*) pid=$d && return 0 ;; esac
        done
    done
    false
}

# ranks that share cores: those that take part, and advice that can be followed
cores=$(nproc)
for i in $(seq $((cores + 1))); do echo "m$i slots=1"; done >"$tmp/many"
tiny=("$bin/models/gpt2.so" --n_layer 1 --n_head 1 --n_embd 16 --block_size 16 --train_file README.md --do_train --max_steps 1)
launch --hostfile "$tmp/many" --launcher local "${tiny[@]}"
check "more ranks than cores over several nodes: fewer nodes are advised" err_has "slow each other down; --num_nodes $cores would have a core for each"
launch --hostfile "$tmp/many" --launcher local --num_nodes "$cores" "${tiny[@]}"
check "  which works, and is silent" sh -c "[ $code = 0 ] && ! grep -q 'slow each other' '$tmp/err'"
launch --hostfile "$tmp/many" --launcher local --elastic_training --max_elastic_nodes 1 "${tiny[@]}"
check "  nodes that take no part are not counted" sh -c "[ $code = 0 ] && ! grep -q 'slow each other' '$tmp/err'"
launch --num_gpus $((cores + 1)) "${tiny[@]}"
check "  on one node fewer ranks are advised" err_has "slow each other down; --num_gpus $cores would have a core for each"

launch "${nodes[@]}" -- true
check "all well: 0" code_is 0
check "and silent" test ! -s "$tmp/err"
launch "${nodes[@]}" -- sh -c 'for i in 1 2 3; do echo $i; done'
check "output of all nodes, tagged by rank" test "$(sort -u "$tmp/out" | wc -l)" = 15
launch "${nodes[@]}" -- sh -c '[ $RANK = 3 ] || exec sleep 600; echo why >&2; exit 7'
check "a failing rank's code" code_is 7
check "its host is named" err_has "rank 3 on n2 (pid "
check "its last lines are told" err_has "  | why"
check "all others were stopped" err_has "4 other ranks were stopped"
gone "after a failure on one node"
launch "${nodes[@]}" --enable_each_rank_log "$tmp/logs" -- sh -c 'echo out $RANK'
check "a log for each rank of each node" test "$(cat "$tmp"/logs/*_rank*.log | sort | tr '\n' ' ')" = "out 0 out 1 out 2 out 3 out 4 "
launch "${nodes[@]}" --log_format json -- sh -c '[ $RANK = 3 ] && exit 7; exec sleep 600'
check "json names the host" sh -c "tail -n 1 '$tmp/out' | grep -q '\"failed_rank\":3,\"host\":\"n2\"'"

launch_bg "${nodes[@]}" -- sh -c "$tree"
ready 10
kill -INT "$job"
gone "Ctrl-C on several nodes"
end
check "Ctrl-C: 130" code_is 130
launch_bg "${nodes[@]}" -- sh -c 'trap "echo got usr1" USR1; echo ready; sleep 600 & wait; sleep 600 & wait'
ready 5
kill -USR1 "$job"
all_got() { [ "$(grep -c 'got usr1' "$tmp/out")" = 5 ]; }
check "a signal reaches the ranks of all nodes" within 10 all_got
kill -TERM "$job"
gone "SIGTERM on several nodes"
end
check "SIGTERM: 143" code_is 143

launch_bg "${nodes[@]}" -- sh -c "$tree"
ready 10
daemon_of 1 && kill -9 "$pid"
gone "kill -9 of one daemon"
end
check "a killed daemon: 137" code_is 137
check "it is named with its host" err_has "n1: the node daemon (pid $pid) was killed by SIGKILL"
launch_bg "${nodes[@]}" -- sh -c "$tree"
ready 10
daemon_of 2 && kill -STOP "$pid"
within 6 nobody_left || fail "a silent node holds up the job"
gone "a silent node"
end
check "a silent node: 69" code_is 69
check "it is named" err_has "n2: the node has been silent for 2.5 s"
launch_bg "${nodes[@]}" -- sh -c "$tree"
ready 10
kill -9 "$job"
gone "kill -9 of zlaunch"
wait "$job" 2>/dev/null

# ---------------------------------------------------------------- starting again
launch "${nodes[@]}" --max_restarts 3 -- sh -c \
    '[ $RANK = 4 ] && [ $ZLAUNCH_RESTART_COUNT -lt 2 ] && exit 7; sleep 0.2; echo "$ZLAUNCH_RESTART_COUNT $TORCHELASTIC_RESTART_COUNT $TORCHELASTIC_MAX_RESTARTS"'
check "a job that works the third time: 0" code_is 0
check "every rank is started again" test "$(grep -c '] 2 2 3$' "$tmp/out")" = 5
check "every restart is told" test "$(grep -c 'restart [12] of 3 in' "$tmp/err")" = 2
check "with its cause" test "$(grep -c 'rank 4 on n2 (pid .*exited with code 7' "$tmp/err")" = 2
launch "${nodes[@]}" --max_restarts 1 --summary "$tmp/summary" -- sh -c 'exit 6'
check "when the restarts are used up: the code" code_is 6
check "  and that they are" err_has "  restart 1 of 1 was the last one that --max_restarts allows"
check "the summary counts them" grep -q '"restarts":1' "$tmp/summary"
launch_bg "${nodes[@]}" --max_restarts 50 -- sh -c 'exit 6'
waits() { grep -q 'restart [3-9] of 50' "$tmp/err"; }
within 10 waits || fail "no restart came"
kill -INT "$job"
gone "Ctrl-C between two starts"
end
check "Ctrl-C between two starts: 130" code_is 130
launch_bg "${nodes[@]}" --max_restarts 50 -- sh -c 'exit 6'
within 10 waits || fail "no restart came"
kill -9 "$job"
gone "kill -9 of zlaunch between two starts"
wait "$job" 2>/dev/null
launch_bg "${nodes[@]}" --max_restarts 1 -- sh -c "$tree"
ready 10
daemon_of 0 && kept=$pid
daemon_of 2 && kill -9 "$pid"
ready_again() { grep -q 'restart 1 of 1' "$tmp/err" && [ "$(grep -c '] ready$' "$tmp/out")" -ge 20 ]; }
check "a killed daemon: the job starts again" within 10 ready_again
daemon_of 0
check "  by the daemons that were left" test "$pid" = "$kept"
kill -9 "$job"
gone "kill -9 of zlaunch after a restart"
wait "$job" 2>/dev/null
launch "${nodes[@]}" --max_restarts 3 -- no-such-program-zt
check "what never can work is not tried again" err_lacks restart

launch "${nodes[@]}" --max_restarts 1 --hang_timeout 0.5 -- sh -c \
    '[ $RANK$ZLAUNCH_RESTART_COUNT = 20 ] || exit 0; exec sleep 600'
check "a job that hangs is started again: 0" code_is 0
check "  and what hung is told" grep -qE 'rank 2 on n1 \(pid [0-9]+\) is waiting' "$tmp/err"
for logs in "" "--enable_each_rank_log $tmp/hang-logs"; do
    # shellcheck disable=SC2086
    launch --hang_timeout 1.5 $logs -- sh -c 'for i in 1 2 3 4 5 6 7 8; do echo $i; sleep 0.4; done'
    check "a program that prints does not hang${logs:+, to a file too}" code_is 0
done
{ "$zlaunch" --hang_timeout 1 -- sh -c 'yes | head -c 20000000'; echo $? >"$tmp/code"; } 2>"$tmp/err" | (sleep 3; wc -c) >"$tmp/out"
check "nor does one whose output nobody reads" test "$(cat "$tmp/code" "$tmp/out" | tr '\n' ' ')" = "0 20000000 "
launch "${nodes[@]}" --hang_timeout 0.5 -- sh -c '[ $RANK = 2 ] || exit 0; exec sleep 600'
check "a job that hangs and may not start again: 124" code_is 124
check "  says so" err_has "error: no progress for 0.5 s"
launch_bg "${nodes[@]}" -- sh -c 'echo ready; exec sleep 600'
ready 5
# a shell that has said "ready" may still be on its way to becoming a `sleep`
all_asleep() {
    local r
    for r in 0 1 2 3 4; do
        rank_pid $r && [ "$(cat "/proc/$pid/comm")" = sleep ] && grep -q '^State:.S' "/proc/$pid/status" || return 1
    done
}
within 10 all_asleep || fail "the ranks do not sleep"
kill -QUIT "$job"
all_inspected() { [ "$(grep -cE 'rank [0-4] on n[0-2] \(pid [0-9]+\) is waiting' "$tmp/err")" = 5 ]; }
check "SIGQUIT shows what every rank is doing" within 5 all_inspected
kill -INT "$job"
end
check "  and the job goes on until it is stopped" code_is 130
launch_bg "${nodes[@]}" -- sh -c 'echo ready; exec sleep 600'
ready 5
daemon_of 1 && kill -STOP "$pid"
kill -QUIT "$job"
end
check "  and names the ranks whose daemon does not answer" err_has "no answer in 1 s about rank 2 on n1: the node daemon is stopped, or slow"
check "  once for each" test "$(grep -cE 'rank [0134] on n[02] \(pid [0-9]+\) is ' "$tmp/err")" = 4

# A node whose daemon cannot be started is left out, and comes back when it can.
breakable_daemons
elastic() { # BROKEN ARGS...: the starts of daemons (from 0) that fail
    break_daemons "$1"
    shift
    launch --hostfile "$tmp/equal" --launcher local "$@"
}
printf 'n0 slots=1\nn1 slots=1\nn2 slots=1\n' >"$tmp/equal"
elastic "1" -- true
check "a node that cannot be started ends a job that is not elastic" test "$code" -ne 0
check "  and is named" grep -qE 'n[012]: the node daemon \(pid [0-9]+\) ended early with exit code 5' "$tmp/err"
elastic "1" --elastic_training -- sh -c 'echo $RANK/$WORLD_SIZE'
check "elastic: it goes on with the nodes that are left" code_is 0
check "  with as many ranks" test "$(sed 's/.*\] //' "$tmp/out" | sort | tr '\n' ' ')" = "0/2 1/2 "
check "  and says so" err_has "going on without this node"
elastic "0 1" --elastic_training --min_elastic_nodes 2 -- true
check "too few nodes end it" test "$code" -ne 0
check "  with the numbers" err_has "only 1 node could be started, at least 2 are wanted"
elastic "0 1 2" --elastic_training -- true
check "none is no job that went well" code_is 5
check "  and is said" err_has "error: no node could be started"
elastic "3 4 5 6 7 8" --elastic_training --max_restarts 2 -- sh -c 'kill -9 $PPID; sleep 600'
check "  nor is it after a restart" code_is 5
check "  and the last restart is tried" err_has "restart 2 of 2 was the last one that --max_restarts allows"
elastic "4" --elastic_training -- sh -c 'sleep 0.2; [ $RANK$ZLAUNCH_RESTART_COUNT = 00 ] && exit 1; [ $RANK$ZLAUNCH_RESTART_COUNT = 01 ] && exit 1; echo $WORLD_SIZE $ZLAUNCH_RESTART_COUNT'
check "a node may leave and come back at restarts" code_is 0
check "  the last start had all" test "$(grep -c '] 3 2$' "$tmp/out")" = 3
elastic "" --elastic_training --max_elastic_nodes 2 -- sh -c 'echo $WORLD_SIZE'
check "--max_elastic_nodes leaves spare nodes out" test "$(grep -c '] 2$' "$tmp/out")" = 2
gone "after elastic jobs"

# ---------------------------------------------------------------- odd daemons
# frame TYPE BODY: one frame on stdout, in printf's escapes.
frame() {
    local n=$((${#2} + 1))
    printf '\\x%02x\\x%02x\\x%02x\\x%02x\\x%02x%s' $((n >> 24)) $((n >> 16 & 255)) $((n >> 8 & 255)) $((n & 255)) "$1" "$2"
}
odd() { # WORDS: what the daemon of the second node does
    printf '#!/bin/bash\ncase $ZT_NODE in 1) %s ;; esac\nexec "%s" "$@"\n' "$1" "$(readlink -f "$bin")/zworker" >"$tmp/zworker"
    printf '#!/bin/bash\nexec 8>"%s"; flock 8\nn=$(cat "%s" 2>/dev/null || echo 0); echo $((n + 1)) >"%s"\nexec 8>&-\nZT_NODE=$n exec "%s" "$@"\n' \
        "$tmp/lock" "$tmp/starts" "$tmp/starts" "$tmp/zworker" >"$tmp/numbered"
    chmod +x "$tmp/numbered"
    rm -f "$tmp/starts"
    ZLAUNCH_ZWORKER=$tmp/numbered launch --hostfile "$tmp/equal" --launcher local --connect_timeout 3 -- sleep 600
}
odd "printf '$(frame 16 '{"protocol":1,"version":"0.0.9"}')'; read -r x"
check "a daemon of another protocol: 78" code_is 78
check "  is named with both" err_has "zworker 0.0.9 speaks protocol 1, this zlaunch"
odd "printf '$(frame 16 '{"protocol":3,"version":"0.0.9"}')'; exit 3"
check "another version with the same protocol is remarked" err_has "zworker there is version 0.0.9"
odd "echo Welcome to this host; read -r x"
check "a daemon that prints: not 0" test "$code" -ne 0
check "  says what that means" grep -qE "n[012]: control channel: a frame of [0-9]+ bytes .*something else writes to this channel" "$tmp/err"
odd "read -r x"
check "a daemon that says nothing: 69" code_is 69
check "  is not waited for longer than --connect_timeout" grep -qE "n[012]: the node daemon was started and has said nothing for 3 s" "$tmp/err"
odd "kill -STOP \$\$"
check "a daemon that is stopped while it starts: 69" code_is 69
gone "after odd daemons"

# ---------------------------------------------------------------- a zlaunch of its own on each node
seq 1 2000 >"$tmp/text"
printf '127.0.0.1 slots=1\nlocalhost slots=1\n' >"$tmp/hosts"
port=$((20000 + RANDOM % 9000))
restarts=
# shellcheck disable=SC2086 # none, or an option
by_hand() { # by_hand NODE OPTION...: without a secret that both have
    exec "$zlaunch" --no_ssh --node_rank "$1" --hostfile "$tmp/hosts" --master_addr 127.0.0.1 --master_port $port $restarts "$bin/models/gpt2.so" \
        --n_layer 1 --n_head 1 --n_embd 16 --block_size 16 --train_file "$tmp/text" "${@:2}"
}
by_hand 1 --max_steps 3 >"$tmp/node1" 2>&1 &
job=$!
(by_hand 0 --max_steps 3) >"$tmp/out" 2>"$tmp/err"
code=$?
check "--no_ssh on two nodes trains: 0" code_is 0
check "  one job of both" grep -q "2 ranks on cpu" "$tmp/err"
end
check "  and ends on the other: 0" code_is 0
: >"$tmp/err" # or the steps of the job before are taken for those of this one
by_hand 1 --max_steps 1000000 >"$tmp/node1" 2>&1 &
job=$!
by_hand 0 --max_steps 1000000 >"$tmp/out" 2>"$tmp/err" &
other=$!
stepping() { grep -q "^step" "$tmp/err"; }
within 60 stepping || fail "two nodes did not begin"
kill -TERM "$other"
wait "$other"
end
check "a node that is stopped ends the other one: 69" code_is 69
check "  and is named" grep -q "rank 0 on .* is gone" "$tmp/node1"
# one that saves, by its own zlaunch or the other's
for asked in 0 1; do
    for node in 0 1; do
        : >"$tmp/node$node"
        by_hand $node --max_steps 1000000 --save_steps 1000000 --output_dir "$tmp/saved.$asked" >"$tmp/node$node" 2>&1 &
        [ $node = $asked ] && other=$! || job=$!
    done
    stepping() { grep -q "^step" "$tmp/node0"; }
    within 60 stepping || fail "two nodes did not begin"
    if [ $asked = 0 ]; then
        timeout 3 "$zlaunch" --ctl last save >"$tmp/asked" 2>&1
        check "a save that one node asks for says that others are to be asked, too" grep -q "other nodes have a zlaunch of their own (--no_ssh)" "$tmp/asked"
    fi
    kill -TERM "$other"
    wait "$other"
    check "a run that saves, stopped by node $asked: 75" test $? -eq 75
    check "  says so" grep -q "stopped by SIGTERM (terminated); the training is saved: --resume_from_checkpoint auto goes on" "$tmp/node$asked"
    end
    check "  on the other node, too: 75" code_is 75
    check "  says so" grep -q "stopped by a signal to the ranks; the training is saved: --resume_from_checkpoint auto goes on" "$tmp/node$((1 - asked))"
done
restarts="--max_restarts 1"
# with restarts each waits for the other, on whichever node it ended
for gone in 0 1; do
    stays=$((1 - gone))
    for node in 0 1; do
        by_hand $node --max_steps 1000000 --ddp_timeout 8 >"$tmp/node$node" 2>&1 &
        [ $node = $gone ] && other=$! || job=$!
    done
    stepping() { grep -q "^step" "$tmp/node0"; }
    within 60 stepping || fail "two nodes did not begin"
    kill -TERM "$other"
    wait "$other"
    waits() { grep -q "start: meeting the other ranks, for at most 8 s (--ddp_timeout), at 127.0.0.1:$port" "$tmp/node$stays"; }
    check "a restart without node $gone says what it waits for, and until when" within 20 waits
    end
    check "  and ends then" test "$code" -ne 0
    check "  with who is missing" grep -q "rank $gone" "$tmp/node$stays"
done
finish
