#!/bin/bash
# Ranks that others start: torchrun, two shells with RANK and WORLD_SIZE; the same bits as
# under zlaunch. torchrun is that of ZT_VENV or build/venv.
. "$(dirname "$0")/train_lib.sh"
corpus >/dev/null
venv=${ZT_VENV:-build/venv}
args=(--n_layer 2 --n_head 2 --n_embd 32 --block_size 32 --train_file "$tmp/corpus.txt"
    --do_train --logging_steps 1 --learning_rate 1e-3 --seed 7 --max_steps 6
    --fingerprint_steps 3 --per_device_train_batch_size 2)
export OMP_NUM_THREADS=1

# curve FILE: step, loss and fingerprint of what rank 0 printed
curve() { sed -n 's/.*step *\([0-9]*\)\/.*loss *\([0-9.]*\).*/\1 \2/p' "$1"; }
prints() { grep -o 'fingerprint [0-9a-f]*' "$1"; }
same_as_zlaunch() {
    [ -n "$(curve "$1")" ] && [ "$(curve "$1")" = "$(curve "$tmp/zlaunch")" ] &&
        [ "$(prints "$1")" = "$(prints "$tmp/zlaunch")" ]
}
free_port() {
    local p
    while :; do
        p=$((20000 + RANDOM % 12000)) # below those that connections get
        grep -q ":$(printf %04X $p) " /proc/net/tcp /proc/net/tcp6 || break
    done
    echo $p
}
# bare RANK WORLD PORT ARGS...: a rank with nothing but the usual four variables
bare() {
    local rank=$1 world=$2 port=$3
    shift 3
    env RANK="$rank" WORLD_SIZE="$world" MASTER_ADDR="${master:-127.0.0.1}" MASTER_PORT="$port" \
        "$bin/zworker" "$bin/models/gpt2.so" "$@"
}

"$bin/zlaunch" --num_gpus 2 "$bin/models/gpt2.so" "${args[@]}" >"$tmp/zlaunch" 2>&1
check "zlaunch runs 2 ranks" test $? -eq 0
check "it printed losses" test -n "$(curve "$tmp/zlaunch")"

port=$(free_port)
bare 1 2 "$port" "${args[@]}" >"$tmp/bare1" 2>&1 &
bare 0 2 "$port" "${args[@]}" >"$tmp/bare" 2>&1
check "two shells with RANK and WORLD_SIZE run" test $? -eq 0
wait $!
check "rank 1 ended well, too" test $? -eq 0
check "the same bits as under zlaunch" same_as_zlaunch "$tmp/bare"

port=$(free_port)
env RANK=1 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT="$port" \
    "$bin/zworker" "$bin/models/gpt2.so" "${args[@]}" --max_steps 1000000 >"$tmp/dead1" 2>&1 &
bare_pid=$!
bare 0 2 "$port" "${args[@]}" --max_steps 1000000 >"$tmp/dead0" 2>&1 &
job=$!
until=$((SECONDS + 60))
until [ -n "$(curve "$tmp/dead0")" ] || [ $SECONDS -ge $until ]; do read -rt 0.02 <> <(:) || :; done
kill -9 $bare_pid
wait $bare_pid 2>/dev/null
until=$((SECONDS + 10))
while kill -0 $job 2>/dev/null && [ $SECONDS -lt $until ]; do read -rt 0.02 <> <(:) || :; done
check "a rank that is killed is noticed by the other" eval '! kill -0 $job 2>/dev/null'
wait $job 2>/dev/null
check "and named" grep -q "rank 1" "$tmp/dead0"

port=$(free_port)
bare 1 2 "$port" "${args[@]}" >"$tmp/folder1" 2>&1 &
bare 0 2 "$port" "${args[@]}" --output_dir "$tmp/folder" >"$tmp/folder0" 2>&1
check "a folder that one rank alone was given is refused" test $? -ne 0
wait $!
check "  before the first step, by its name" grep -q '"--output_dir not given" where rank 0 has "--output_dir given"' "$tmp/folder0"
check "  on both ranks, without a step" eval '! grep -q "^step" "$tmp"/folder? && grep -q "output_dir not given" "$tmp/folder1"'

port=$(free_port)
bare 1 2 "$port" "${args[@]}" --comm tcp >"$tmp/comm1" 2>&1 &
bare 0 2 "$port" "${args[@]}" >"$tmp/comm0" 2>&1
check "another --comm of one rank is refused" test $? -eq 1
wait $!
check "  by its name, on both ranks" test "$(grep -l "it has --comm tcp where rank 0 has --comm auto" "$tmp"/comm? | wc -l)" -eq 2

port=$(free_port)
bare 1 3 "$port" "${args[@]}" >"$tmp/world1" 2>&1 &
ZLAUNCH_RENDEZVOUS_TIMEOUT=3 bare 0 2 "$port" "${args[@]}" >"$tmp/world0" 2>&1
check "another WORLD_SIZE of one rank is refused" test $? -eq 1
wait $!
check "  by its name" grep -q 'WORLD_SIZE (here 3) and ZLAUNCH_SECRET_FILE (here none) must be the same' "$tmp/world1"

(umask 077 && head -c 32 /dev/urandom | od -An -vtx1 | tr -d ' \n' >"$tmp/secret")
port=$(free_port)
ZLAUNCH_SECRET_FILE=$tmp/secret bare 1 2 "$port" "${args[@]}" >"$tmp/secret1" 2>&1 &
ZLAUNCH_SECRET_FILE=$tmp/secret bare 0 2 "$port" "${args[@]}" >"$tmp/secret0" 2>&1
check "with a secret file" test $? -eq 0
wait $!
check "the same bits with a secret" same_as_zlaunch "$tmp/secret0"

port=$(free_port)
ZLAUNCH_SECRET_FILE=$tmp/secret ZLAUNCH_RENDEZVOUS_TIMEOUT=3 \
    bare 0 2 "$port" "${args[@]}" >"$tmp/alone0" 2>&1 &
ZLAUNCH_RENDEZVOUS_TIMEOUT=3 bare 1 2 "$port" "${args[@]}" >"$tmp/alone1" 2>&1
check "a rank without the secret does not get in" test $? -ne 0
check "and is told why" grep -q "refused this process: its secret or its job id" "$tmp/alone1"
wait $!
check "rank 0 names the rank that did not come" grep -q "rank 1 (never connected)" "$tmp/alone0"
check "  in words of people" eval 'grep -qE "not there within [0-9.]+ s: rank 1" "$tmp/alone0" && ! grep -q "key " "$tmp/alone0"'

chmod 644 "$tmp/secret"
ZLAUNCH_SECRET_FILE=$tmp/secret bare 0 2 "$(free_port)" "${args[@]}" >"$tmp/mode" 2>&1
check "a secret that others can read is refused" grep -q "chmod 600" "$tmp/mode"

env RANK=1 WORLD_SIZE=2 "$bin/zworker" "$bin/models/gpt2.so" "${args[@]}" >"$tmp/lost" 2>&1
check "ranks without MASTER_ADDR are told what is missing" grep -q "MASTER_ADDR is not set" "$tmp/lost"
for rank in 0 1; do
    env RANK=$rank "$bin/zworker" "$bin/models/gpt2.so" "${args[@]}" >"$tmp/lost" 2>&1
    check "RANK=$rank without WORLD_SIZE is refused" test $? -eq 2
    check "  and named" grep -q "WORLD_SIZE is not set, but RANK is" "$tmp/lost"
done
env RANK=0 WORLD_SIZE=1 "$bin/zworker" "$bin/models/gpt2.so" "${args[@]}" >"$tmp/one" 2>&1
check "one rank of one needs nobody" test $? -eq 0

if ! "$venv/bin/python" -c 'import torch.distributed.run' 2>/dev/null; then
    echo "# skip - no torchrun in ZT_VENV or build/venv: the rest needs it"
    finish
fi
# a PyTorch program under zlaunch: rank 0's own store, and the one that zlaunch keeps
cat >"$tmp/gloo.py" <<'SCRIPT'
import os
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
t = torch.full((4,), float(dist.get_rank() + 1))
dist.all_reduce(t)
print("sum", t.tolist(), os.environ.get("TORCHELASTIC_USE_AGENT_STORE"), flush=True)
if os.environ.get("FAIL") and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    raise SystemExit(3)
dist.destroy_process_group()
SCRIPT
sums() { grep -c "sum \[3.0, 3.0, 3.0, 3.0\] $2" "$1"; }
"$bin/zlaunch" --num_gpus 2 -- "$venv/bin/python" "$tmp/gloo.py" >"$tmp/gloo" 2>&1
check "zlaunch runs a PyTorch program" test $? -eq 0
check "its 2 ranks meet" test "$(sums "$tmp/gloo" None)" -eq 2
FAIL=1 "$bin/zlaunch" --num_gpus 2 --serve_store --max_restarts 1 -- "$venv/bin/python" "$tmp/gloo.py" \
    >"$tmp/served" 2>&1
check "with --serve_store, and a restart" test $? -eq 0
check "they meet in zlaunch's store, both times" test "$(sums "$tmp/served" True)" -ge 3

torchrun() {
    "$venv/bin/python" -m torch.distributed.run --no-python --nproc_per_node 2 \
        --master_port "$(free_port)" "$@"
}
torchrun "$bin/zworker" "$bin/models/gpt2.so" "${args[@]}" >"$tmp/torchrun" 2>&1
check "torchrun starts zworker" test $? -eq 0
check "the same bits under torchrun" same_as_zlaunch "$tmp/torchrun"

torchrun "$bin/zworker" --local_rank=0 "$bin/models/gpt2.so" "${args[@]}" >"$tmp/torchrun" 2>&1
check "  and with the word that deepspeed's launcher puts first" same_as_zlaunch "$tmp/torchrun"

torchrun "$bin/zworker" "$bin/models/gpt2.so" "${args[@]}" --n_head 5 >"$tmp/wrong" 2>&1
check "torchrun shows a failed run" test $? -ne 0
check "torchrun names our error" grep -q "n_embd" "$tmp/wrong"

# a restart by torchrun finds the store of the first try: nothing of it may be read
cat >"$tmp/fail_first" <<SCRIPT
#!/bin/bash
# the first try ends after its rendezvous, in the middle of training
if [ "\$TORCHELASTIC_RESTART_COUNT" = 0 ] && [ "\$RANK" = 1 ]; then
    "\$@" & pid=\$!
    while kill -0 \$pid 2>/dev/null && ! grep -q step "$tmp/restarted"; do sleep 0.05; done
    kill -9 \$pid
    exit 1
fi
exec "\$@"
SCRIPT
chmod +x "$tmp/fail_first"
torchrun --max_restarts 1 "$tmp/fail_first" "$bin/zworker" "$bin/models/gpt2.so" "${args[@]}" \
    --max_steps 40 >"$tmp/restarted" 2>&1
check "a restart by torchrun meets again in the same store" test $? -eq 0

"$venv/bin/python" -m torch.distributed.run --no-python --nproc_per_node 2 --master_port "$(free_port)" \
    "$bin/zworker" "$bin/models/gpt2.so" "${args[@]}" --max_steps 100000 --logging_steps 100000 \
    >"$tmp/killed" 2>&1 &
agent=$!
workers() { cat "/proc/$agent/task/$agent/children" 2>/dev/null; }
until=$((SECONDS + 60))
while [ "$(workers | wc -w)" -lt 2 ] && [ $SECONDS -lt $until ]; do read -rt 0.05 <> <(:) || :; done
pids=$(workers)
read -rt 1 <> <(:) || :
kill -9 $agent
wait $agent 2>/dev/null
alive() {
    local p
    for p in $pids; do
        grep -q '^State:[[:space:]]*[^ZX]' "/proc/$p/status" 2>/dev/null && return 0
    done
    false
}
until=$((SECONDS + 10))
while alive && [ $SECONDS -lt $until ]; do read -rt 0.05 <> <(:) || :; done
check "workers of a killed torchrun end" eval '[ "$(echo $pids | wc -w)" -eq 2 ] && ! alive'
finish
