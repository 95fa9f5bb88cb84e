#!/bin/bash
# MPI ranks of several nodes find each other through zlaunch and give the bits that one node
# gives; and a rank that stands still is named with what it is doing.
. "$(dirname "$0")/launch_lib.sh"
if [ ! -f "$bin/backends/mpi.so" ] || ! command -v mpirun >/dev/null; then
    echo "no MPI: apt install mpich libmpich-dev, then run make"
    exit 77
fi
export ASAN_OPTIONS=detect_leaks=0 # libraries that MPI loads leak
export UCX_NET_DEVICES=lo # other interfaces may come and go
cat /usr/share/common-licenses/GPL-3 >"$tmp/corpus.txt"
model=("$bin/models/gpt2.so" --n_layer 2 --n_head 2 --n_embd 32 --block_size 32
    --train_file "$tmp/corpus.txt" --do_train --logging_steps 1 --learning_rate 1e-3 --seed 7
    --fingerprint_steps 2 --per_device_train_batch_size 2)
printf 'n0 slots=2\nn1 slots=2\n' >"$tmp/two"
printf 'n0 slots=1\nn1 slots=2\nn2 slots=1\n' >"$tmp/three"

bits() {
    grep '"event":"step"' "$1" |
        sed 's/.*"loss":\([^,]*\),.*/\1 &/; s/^\([^ ]*\) .*"fingerprint":"\([0-9a-f]*\)".*/\1 \2/; s/ {.*//'
}
same_bits() {
    [ "$(bits "$1" | wc -l)" -eq 6 ] && [ "$(bits "$1" | grep -c ' ')" -eq 3 ] &&
        [ "$(bits "$1")" = "$(bits "$2")" ]
}

launch --num_gpus 4 --log_format json "${model[@]}" --max_steps 6 --comm mpi
check "four ranks of one node" code_is 0
cp "$tmp/out" "$tmp/one"
launch --hostfile "$tmp/two" --launcher local --log_format json "${model[@]}" --max_steps 6 --comm mpi
check "four ranks of two nodes" code_is 0
check "  are the same bits" same_bits "$tmp/one" "$tmp/out"
launch --hostfile "$tmp/three" --launcher local --log_format json "${model[@]}" --max_steps 6
check "four ranks of three nodes, left to choose how they talk" code_is 0
check "  are the same bits" same_bits "$tmp/one" "$tmp/out"
echo '{"zero_optimization": {"stage": 3}}' >"$tmp/zero.json"
launch --hostfile "$tmp/two" --launcher local --log_format json "${model[@]}" --max_steps 6 --deepspeed "$tmp/zero.json"
check "ZeRO stage 3 over two nodes" code_is 0
check "  is the same bits" same_bits "$tmp/one" "$tmp/out"

trains() { grep -q '^step' "$tmp/err"; }
for node in 0 1; do
    launch_bg --hostfile "$tmp/two" --launcher local "${model[@]}" --max_steps 1000000
    within 60 trains || fail "no step came"
    rank_pid $((2 * node + 1)) && kill -9 "$pid"
    within 3 nobody_left || fail "a killed rank holds up the job"
    gone "a rank of node $node is killed"
    wait "$job"
    code=$?
    check "  exit code 137" code_is 137
    check "  and it is named with its host" err_has "rank $((2 * node + 1)) on n$node (pid $pid) was killed by SIGKILL"
done

launch_bg --hostfile "$tmp/two" --launcher local --hang_timeout 1 "${model[@]}" --max_steps 1000000
within 60 trains || fail "no step came"
rank_pid 2 && kill -STOP "$pid"
within 10 nobody_left || fail "a job that hangs is not ended"
gone "a stopped rank"
wait "$job"
code=$?
check "  exit code 124" code_is 124
check "  it is named with its phase" grep -qE "error: no progress for 1 s; rank 2 on n1 \(pid $pid\) is stopped by a signal, during: training step [0-9]+" "$tmp/err"
check "  the others print their stacks" grep -qxF "[rank 1] zt_engine_train" "$tmp/err"

models=${bin%/bin}/test-models
[ -d "$models" ] || models=build/release/test-models
for comm in mpi shm; do
    nodes=(--hostfile "$tmp/two" --launcher local)
    [ $comm = mpi ] || nodes=(--num_gpus 4)
    ZT_LOOP_RANK=1 launch_bg "${nodes[@]}" --hang_timeout 2 "$models/looping.so" "${model[@]:1}" --max_steps 100 --comm $comm
    within 30 nobody_left || fail "a rank that loops is not ended"
    gone "a rank that loops ($comm)"
    wait "$job"
    code=$?
    check "  exit code 124" code_is 124
    check "  it is named" grep -qE "error: no progress for 2 s; rank 1 (on n0 )?\(pid [0-9]+\) is running" "$tmp/err"
    check "  the loop is in its stack" grep -qE "^\[rank 1\] .*looping.so" "$tmp/err"
done

# Restart: the job starts over by itself after a rank was killed.
launch_bg --hostfile "$tmp/two" --launcher local --max_restarts 1 "${model[@]}" --max_steps 400
within 60 trains || fail "no step came"
rank_pid 0 && kill -9 "$pid"
wait "$job"
code=$?
check "a restarted training run ends well" code_is 0
check "  having begun twice" test "$(grep -c '^step 1/400 ' "$tmp/err")" = 2
finish
