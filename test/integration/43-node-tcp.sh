#!/bin/bash
# Ranks of several nodes without MPI: they meet through zlaunch's variables and secret, talk by
# TCP, and give the bits that one node gives; a rank that is killed ends the job by its name.
. "$(dirname "$0")/launch_lib.sh"
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
zero() { echo "{\"zero_optimization\": {\"stage\": $1}}" >"$tmp/zero.json"; }

for stage in 0 3; do
    zero $stage
    run=(--log_format json "${model[@]}" --max_steps 6 --deepspeed "$tmp/zero.json")
    launch --num_gpus 4 "${run[@]}" --comm shm
    check "ZeRO stage $stage: four ranks of one node" code_is 0
    cp "$tmp/out" "$tmp/one"
    launch --hostfile "$tmp/two" --launcher local "${run[@]}" --comm tcp
    check "  four ranks of two nodes, by TCP" code_is 0
    check "  are the same bits" same_bits "$tmp/one" "$tmp/out"
    ZLAUNCH_MPI_BACKEND='' launch --hostfile "$tmp/three" --launcher local "${run[@]}"
    check "  four ranks of three nodes, left to choose, where no MPI is" code_is 0
    check "  are the same bits" same_bits "$tmp/one" "$tmp/out"
done
# MPI on one of two hosts: all take what all have
cat >"$tmp/zworker" <<EOF
#!/bin/sh
mkdir "$tmp/first" 2>/dev/null || export ZLAUNCH_MPI_BACKEND=
exec "$(realpath "$bin/zworker")" "\$@"
EOF
chmod +x "$tmp/zworker"
ZLAUNCH_RENDEZVOUS_TIMEOUT=20 ZLAUNCH_ZWORKER=$tmp/zworker launch --hostfile "$tmp/two" --launcher local "${run[@]}"
check "two nodes, one of them without MPI" code_is 0
check "  are the same bits" same_bits "$tmp/one" "$tmp/out"
[ ! -f "$bin/backends/mpi.so" ] || check "  and it is named" out_has "has no backends/mpi.so"

launch --num_gpus 4 "${run[@]}" --comm tcp
check "four ranks of one node, by TCP" code_is 0
check "  are the same bits" same_bits "$tmp/one" "$tmp/out"

zero 1
launch --hostfile "$tmp/two" --launcher local "${run[@]}" --comm tcp --share_node_weights
check "what needs shared memory is refused" out_has "(--comm shm); these talk by tcp"

trains() { grep -q '^step' "$tmp/err"; }
for node in 0 1; do
    launch_bg --hostfile "$tmp/two" --launcher local "${model[@]}" --max_steps 1000000 --comm tcp
    within 60 trains || fail "no step came"
    rank_pid $((2 * node + 1)) && kill -9 "$pid"
    within 3 nobody_left || fail "a killed rank holds up the job"
    gone "a rank of node $node is killed"
    wait "$job"
    code=$?
    check "  exit code 137" code_is 137
    check "  and it is named with its host" err_has "rank $((2 * node + 1)) on n$node (pid $pid) was killed by SIGKILL"
done

launch_bg --hostfile "$tmp/two" --launcher local --max_restarts 1 "${model[@]}" --max_steps 400 --comm tcp
within 60 trains || fail "no step came"
rank_pid 0 && kill -9 "$pid"
wait "$job"
code=$?
check "a restarted training run ends well" code_is 0
check "  having begun twice" test "$(grep -c '^step 1/400 ' "$tmp/err")" = 2

# No launcher at all: nobody but the other ranks can tell that one is gone.
while :; do
    port=$((20000 + RANDOM % 10000))
    grep -q ":$(printf %04X $port) " /proc/net/tcp /proc/net/tcp6 || break
done
new_mark
export WORLD_SIZE=3 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port LOCAL_WORLD_SIZE=1 LOCAL_RANK=0
pids=()
for r in 0 1 2; do
    ZT_MARK=$mark RANK=$r "$bin/zworker" "${model[@]}" --max_steps 1000000 --comm tcp >"$tmp/r$r" 2>&1 &
    pids+=($!)
done
trains() { grep -q '^step' "$tmp/r0"; }
within 60 trains || fail "no step came"
kill -9 "${pids[1]}"
wait "${pids[1]}" 2>/dev/null
wait "${pids[0]}"
check "ranks of a script: rank 0 fails with one that was killed" test $? -ne 0
wait "${pids[2]}"
check "  and rank 2" test $? -ne 0
for r in 0 2; do
    check "  rank $r says which" grep -qE "rank 1 on $(hostname) is gone: its connection|because a connection to rank 1 was lost" "$tmp/r$r"
done
gone "ranks of a script"
finish
