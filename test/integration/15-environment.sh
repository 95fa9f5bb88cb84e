#!/bin/bash
# What a rank finds: its place, its cores, its descriptors; and what --dry_run says of it.
. "$(dirname "$0")/launch_lib.sh"
mine=$(awk '/^Cpus_allowed_list/ { print $2 }' /proc/self/status)
cores=$(nproc)

launch --num_gpus 2 --master_port 1234 --master_addr 10.0.0.1 -- sh -c 'echo "$RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $GROUP_RANK $NODE_RANK $MASTER_ADDR $MASTER_PORT $CROSS_RANK $CROSS_SIZE $LOCAL_SIZE $TORCHELASTIC_RESTART_COUNT $TORCHELASTIC_MAX_RESTARTS"'
check "the place of rank 1" out_has "[rank 1] 1 1 2 2 0 0 10.0.0.1 1234 0 1 2 0 0"
launch -- sh -c 'echo $MASTER_ADDR; [ $MASTER_PORT -gt 1023 ] && echo port'
check "by default a free port of this host" test "$(tr '\n' ' ' <"$tmp/out")" = "127.0.0.1 port "

# shellcheck disable=SC2016
show='awk "/^Cpus_allowed_list/ { print \$2 }" /proc/self/status'
unset OMP_NUM_THREADS
launch -- sh -c "echo \$OMP_NUM_THREADS; $show"
check "one rank alone has every core" test "$(tail -n 1 "$tmp/out")" = "$mine"
if [ "$cores" -ge 2 ]; then
    launch --num_gpus 2 -- sh -c "$show"
    check "two ranks have different cores" test "$(sed 's/.*\] //' "$tmp/out" | sort -u | wc -l)" = 2
    launch --num_gpus 2 --bind_cores_to_rank=false -- sh -c "$show"
    check "--bind_cores_to_rank=false leaves the mask alone" test "$(sed 's/.*\] //' "$tmp/out" | sort -u)" = "$mine"
    launch --num_gpus 2 --no_bind -- sh -c "$show"
    check "--no_bind leaves the mask alone" test "$(sed 's/.*\] //' "$tmp/out" | sort -u)" = "$mine"
fi
first=${mine%%[,-]*}
launch --bind_core_list "$first" -- sh -c "echo \$OMP_NUM_THREADS; $show"
check "--bind_core_list is obeyed" test "$(tr '\n' ' ' <"$tmp/out")" = "1 $first "
launch --num_gpus 2 --bind_core_list "$first" -- sh -c "$show"
check "  by more ranks than it has cores, too" test "$(sed 's/.*\] //' "$tmp/out" | sort -u)" = "$first"
launch --num_gpus 2 --bind_core_list "$first" --dry_run -- true
check "  which --dry_run says" sh -c "[ \$(grep -c ', 1 thread, cores $first\$' '$tmp/out') = 2 ]"
launch --bind_core_list 99999999 -- true
check "a core that is not there: 2" code_is 2
KMP_AFFINITY=none launch --bind_cores_to_rank -- true
check "binding does not go together with KMP_AFFINITY: 2" code_is 2
if [ "$cores" -ge 2 ]; then
    KMP_AFFINITY=none launch --num_gpus 2 -- sh -c "$show"
    check "KMP_AFFINITY binds by itself: the mask is left alone" test "$(sed 's/.*\] //' "$tmp/out" | sort -u)" = "$mine"
fi
# a machine that is not this one: only its names of NUMA nodes can be seen
export HWLOC_SYNTHETIC="numa:2 core:$cores pu:1"
if [ "$mine" = "0-$((cores - 1))" ] && [ "$cores" -ge 2 ]; then
    launch --dry_run --num_gpus 1 -- true
    check "--dry_run shows the NUMA node" out_has "cores $mine, NUMA node 0"
    HWLOC_SYNTHETIC="numa:$cores core:1 pu:1" launch --dry_run --num_gpus "$cores" -- true
    check "  of each rank" out_has "rank $((cores - 1)): slot $((cores - 1)), 1 thread, cores $((cores - 1)), NUMA node $((cores - 1))"
    HWLOC_SYNTHETIC="numa:$cores core:1 pu:1" launch --num_gpus "$cores" -- sh -c 'head -n 1 /proc/self/numa_maps'
    if grep -q default "$tmp/out"; then # the nodes but the first do not exist: asking for them changes nothing
        check "memory is preferred from the rank's node" sh -c "grep '^\[rank 0\]' '$tmp/out' | grep -q ' prefer.*:0 '"
    else
        echo "skip - memory policies: this kernel does not show them"
    fi
    HWLOC_SYNTHETIC="numa:1 core:1 pu:1" launch --num_gpus 2 -- sh -c "$show"
    check "a topology that lacks some of the cores is not used" test "$(sed 's/.*\] //' "$tmp/out" | sort -u | wc -l)" = 2
fi
unset HWLOC_SYNTHETIC
# what torchrun tells of its own ranks is none of those that a zlaunch in the place of one starts
TORCHELASTIC_USE_AGENT_STORE=True ROLE_WORLD_SIZE=1 launch -- sh -c 'echo "<$TORCHELASTIC_USE_AGENT_STORE$ROLE_WORLD_SIZE>"'
check "ranks do not look for the store of an outer torchrun" out_has "<>"
TORCHELASTIC_USE_AGENT_STORE=False launch --serve_store -- sh -c 'echo "<$TORCHELASTIC_USE_AGENT_STORE>"'
check "  but for that of --serve_store" out_has "<True>"
# variables that nothing reads
ZLAUNCH_LOG_FORMT=json ZLAUNCH_MAX_STEPS=7 launch -- sh -c 'env | grep -c ^ZLAUNCH_'
check "a misspelt ZLAUNCH_ variable is a warning" err_has "ZLAUNCH_LOG_FORMT is set in the environment and nothing reads it; did you mean ZLAUNCH_LOG_FORMAT?"
check "  and the only one" test "$(grep -c 'nothing reads it' "$tmp/err")" = 1
plugin=$bin/models/gpt2.so
ZLAUNCH_N_LAYR=2 ZLAUNCH_N_HEAD=2 ZLAUNCH_MAX_STEPS=1 ZLAUNCH_QQQQQQQQ=1 launch --num_gpus 2 --dry_run "$plugin" --block_size 8 --vocab_size 64
check "rank 0 knows the options of the plugin, too" err_has "ZLAUNCH_N_LAYR is set in the environment and nothing reads it; did you mean ZLAUNCH_N_LAYER?"
check "  one like no other has no suggestion" err_has "ZLAUNCH_QQQQQQQQ is set in the environment and nothing reads it: no option has that name"
check "  each is said once" test "$(grep -c 'nothing reads it' "$tmp/err")" = 2
ZLAUNCH_NUM_ACCELERATORS=2 launch -- sh -c 'echo r$RANK of $WORLD_SIZE'
check "a second name of an option is read from the environment" grep -q 'r1 of 2' "$tmp/out"
check "  without a warning" err_lacks "nothing reads it"
ZLAUNCH_NUM_ACCELERATORS=2 ZLAUNCH_NUM_GPUS=1 launch -- true
check "two names at odds are refused" err_has "ZLAUNCH_NUM_GPUS and ZLAUNCH_NUM_ACCELERATORS are set to different values and are one option: unset one"
ZLAUNCH_ZERO_STAGE=2 ZLAUNCH_LOGGING_STEPS=5 launch --dry_run "$plugin" --block_size 8 --vocab_size 64
check "a name that is mapped on a command line alone says so" err_has "ZLAUNCH_ZERO_STAGE is set in the environment and nothing reads it: --zero_stage is for command lines alone"
check "  an option with a row for values that it does not take is read" err_lacks ZLAUNCH_LOGGING_STEPS
ZLAUNCH_HELP=1 launch -- true
check "so does --help" err_has "ZLAUNCH_HELP is set in the environment and nothing reads it: --help is for command lines alone"
OMP_NUM_THREADS=5 launch -- sh -c 'echo $OMP_NUM_THREADS'
check "OMP_NUM_THREADS of the user stays" test "$(cat "$tmp/out")" = 5
launch -- sh -c 'echo $GOMP_SPINCOUNT $OMP_WAIT_POLICY'
check "threads that wait spin for microseconds" test "$(cat "$tmp/out")" = 10000
OMP_WAIT_POLICY=active launch -- sh -c 'echo $GOMP_SPINCOUNT $OMP_WAIT_POLICY'
check "  unless the user said how they wait" test "$(cat "$tmp/out")" = active
launch --num_gpus $((cores + 1)) -- sh -c "echo \$OMP_NUM_THREADS \$OMP_WAIT_POLICY; $show"
check "more ranks than cores: one thread each, not bound" test "$(sed 's/.*\] //' "$tmp/out" | sort -u | tr '\n' ' ')" = "$(printf '%s\n' "1 PASSIVE" "$mine" | sort -u | tr '\n' ' ')"

launch --num_gpus 2 -- sh -c 'ls -l /proc/self/fd | grep -c "socket\|memfd"; readlink /proc/self/fd/$ZLAUNCH_SHM_FD'
check "a rank holds its control and PMI sockets and three memory files" test "$(grep -c '\] 5$' "$tmp/out")" = 2
check "the shared memory has no name in /dev/shm" out_has "memfd:zlaunch-comm"
launch --num_gpus 2 -- sh -c 'cut -d" " -f5 /proc/$$/stat | grep -qx $$ && echo leader'
check "each rank leads its own process group" test "$(grep -c leader "$tmp/out")" = 2

launch --dry_run --num_gpus 2 -- echo 'a b' "it's"
check "--dry_run shows the command as a shell would need it" out_has "command: $(type -P echo) 'a b' 'it'\\''s'"
check "--dry_run shows the ranks" out_has "rank 1: "
check "--dry_run runs nothing" test "$(grep -cx "a b it's" "$tmp/out")" = 0

printf '# mine\nlocalhost slots=4\n' >"$tmp/hosts"
launch --hostfile "$tmp/hosts" -- sh -c 'echo $WORLD_SIZE'
check "slots of the hostfile" out_has "[rank 3] 4"
launch --hostfile "$tmp/hosts" --include localhost:1,3 -- sh -c 'echo $WORLD_SIZE'
check "--include chooses slots" test "$(sort "$tmp/out" | tail -n 1)" = "[rank 1] 2"
launch --hostfile "$tmp/hosts" --num_gpus 5 -- true
check "more ranks than slots: 2" code_is 2
launch --include localhost:0 --exclude localhost:1 -- true
check "--include with --exclude: 2" code_is 2

# a zworker that zlaunch has not started reads what it says by itself as zlaunch does
check "ZLAUNCH_LOG_LEVEL of a zworker: one that there is none of: 2" test "$(ZLAUNCH_LOG_LEVEL=debugg "$bin/zworker" x.so >"$tmp/said" 2>&1; echo $?)" = 2
check "  is named, with all that there are" grep -qF 'ZLAUNCH_LOG_LEVEL: "debugg" is none of debug|info|warning|error|critical' "$tmp/said"
check "ZLAUNCH_LOG_FORMAT likewise" test "$(ZLAUNCH_LOG_FORMAT=yaml "$bin/zworker" x.so >"$tmp/said" 2>&1; echo $?)" = 2
check "  but in capitals it is the same" grep -qF '"event":"fail"' <(ZLAUNCH_LOG_FORMAT=JSON "$bin/zworker" "$tmp/x.so" 2>&1)
ZLAUNCH_LOG_LEVEL=debugg launch --log_level info -- true
check "an option of zlaunch overrules what is wrong there" code_is 0
finish
