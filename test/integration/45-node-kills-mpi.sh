#!/bin/bash
# A training run over several nodes, of which a random rank or daemon is killed at a random
# moment: the first cause is told, whatever the other ranks then say. ZT_ROUNDS=100 for more.
# alone: a job has 2 s to end, however little of the processor it gets
. "$(dirname "$0")/launch_lib.sh"
if [ ! -f "$bin/backends/mpi.so" ] || ! command -v mpirun >/dev/null; then
    echo "no MPI: apt install mpich libmpich-dev, then run make"
    exit 77
fi
export ASAN_OPTIONS=detect_leaks=0 # libraries that MPI loads leak
export UCX_NET_DEVICES=lo # other interfaces may come and go
seed=${ZT_SEED:-$RANDOM}
RANDOM=$seed
rounds=${ZT_ROUNDS:-8}
echo "# ZT_SEED=$seed"
cat /usr/share/common-licenses/GPL-3 >"$tmp/corpus.txt"
printf 'n0 slots=1\nn1 slots=2\nn2 slots=1\n' >"$tmp/hosts"
trains() { grep -q '^step' "$tmp/err"; }

for round in $(seq "$rounds"); do
    launch_bg --hostfile "$tmp/hosts" --launcher local "$bin/models/gpt2.so" --n_layer 2 --n_head 2 \
        --n_embd 32 --block_size 32 --train_file "$tmp/corpus.txt" --do_train --logging_steps 1 \
        --max_steps 1000000 --per_device_train_batch_size 2 --comm mpi
    victim=$((RANDOM % 4))
    up() { rank_pid "$victim"; }
    # every other round while the ranks are looking for each other
    if [ $((round % 2)) = 0 ]; then within 20 trains; else within 10 up; fi || fail "round $round: no start"
    read -rt "0.$((RANDOM % 30 + 10))" <> <(:)
    up || fail "round $round: rank $victim is not there"
    node=$(((victim + 1) / 2))
    told="rank $victim on n$node (pid $pid) was killed by SIGKILL"
    if [ $((RANDOM % 3)) = 0 ]; then # its daemon instead
        pid=$(awk '{ print $4 }' "/proc/$pid/stat")
        told="n$node: the node daemon (pid $pid) was killed by SIGKILL"
    fi
    kill -9 "$pid"
    if ! ends 3 nobody_left; then
        fail "round $round: left: $(survivors | tr '\n' ' ')"
        survivors | xargs -r kill -9
    fi
    wait "$job"
    code=$?
    check "round $round: ${told%% was *}: exit code 137" code_is 137
    check "  and it is the cause" grep -qF "error: $told" "$tmp/err"
done
echo "# slowest end: $slowest ms"
finish
