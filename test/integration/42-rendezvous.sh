#!/bin/bash
# Ranks without a launcher meet while strangers knock at the door of rank 0's store: garbage,
# half-open connections, many at once, a wrong secret. The job starts and trains as if alone.
. "$(dirname "$0")/train_lib.sh"
corpus >/dev/null
args=(--n_layer 1 --n_head 2 --n_embd 16 --block_size 16 --train_file "$tmp/corpus.txt"
    --do_train --logging_steps 1 --learning_rate 1e-3 --seed 7 --max_steps 3
    --fingerprint_steps 3 --per_device_train_batch_size 2)
export OMP_NUM_THREADS=1
while :; do
    port=$((20000 + RANDOM % 12000)) # below those that connections get
    grep -q ":$(printf %04X $port) " /proc/net/tcp /proc/net/tcp6 || break
done
prints() { grep -o 'fingerprint [0-9a-f]*' "$1"; }
hex() { head -c 32 /dev/urandom | od -An -vtx1 | tr -d ' \n'; }
(umask 077 && hex >"$tmp/secret" && hex >"$tmp/wrong")
rank() { # rank N SECRET OUT
    ZLAUNCH_SECRET_FILE=$2 ZLAUNCH_RENDEZVOUS_TIMEOUT=60 RANK=$1 WORLD_SIZE=3 \
        MASTER_ADDR=127.0.0.1 MASTER_PORT=$port \
        "$bin/zworker" "$bin/models/gpt2.so" "${args[@]}" >"$3" 2>&1
}
"$bin/zlaunch" --num_gpus 3 "$bin/models/gpt2.so" "${args[@]}" >"$tmp/zlaunch" 2>&1
check "3 ranks under zlaunch" test $? -eq 0

rank 0 "$tmp/secret" "$tmp/r0" &
r0=$!
listening() { grep -q ":$(printf %04X "$port") 00000000:0000 0A" /proc/net/tcp /proc/net/tcp6; }
until=$((SECONDS + 30))
until listening || [ $SECONDS -ge $until ]; do read -rt 0.02 <> <(:) || :; done
check "rank 0 serves a store" listening

# what a stranger is told: 36 bytes, four letters and a number, and then nothing at all
exec 5<>"/dev/tcp/127.0.0.1/$port"
head -c 4 <&5 >"$tmp/hello"
check "a stranger sees a challenge" grep -q ZTS1 "$tmp/hello"
printf 'ZTC1%072d' 0 >&5
check "a wrong proof gets no answer" test "$(timeout 10 cat <&5 | wc -c)" -eq 32
exec 5>&-

# many that say nothing, held open while the others come
(
    for ((i = 0; i < 400; i++)); do
        exec {fd}<>"/dev/tcp/127.0.0.1/$port" || break
    done 2>/dev/null
    : >"$tmp/held"
    until [ -e "$tmp/over" ]; do read -rt 0.05 <> <(:) || :; done
) &
holder=$!
# garbage, again and again
(
    until [ -e "$tmp/over" ]; do
        head -c 4000 /dev/urandom 2>/dev/null >"/dev/tcp/127.0.0.1/$port" || :
    done 2>/dev/null
) &
noise=$!
until=$((SECONDS + 30))
until [ -e "$tmp/held" ] || [ $SECONDS -ge $until ]; do read -rt 0.02 <> <(:) || :; done

rank 1 "$tmp/wrong" "$tmp/liar"
check "a rank with another secret is refused" grep -q "refused this process" "$tmp/liar"
rank 2 "$tmp/secret" "$tmp/r2" &
r2=$!
rank 1 "$tmp/secret" "$tmp/r1"
check "rank 1 trains" test $? -eq 0
wait $r0
check "rank 0 trains" test $? -eq 0
wait $r2
check "rank 2 trains" test $? -eq 0
: >"$tmp/over"
wait $holder $noise
check "the same weights as under zlaunch" eval \
    '[ -n "$(prints "$tmp/r0")" ] && [ "$(prints "$tmp/r0")" = "$(prints "$tmp/zlaunch")" ]'

# Under zlaunch the ranks of several nodes have a secret that no argument and no variable tells.
printf 'n0 slots=1\nn1 slots=1\n' >"$tmp/hosts"
while :; do
    port=$((20000 + RANDOM % 12000)) # below those that connections get
    listening || break
done
late="$tmp/late"
"$bin/zlaunch" --hostfile "$tmp/hosts" --launcher local --master_port $port -- sh -c '
    if [ "$RANK" = 1 ]; then
        tr "\0" "\n" </proc/self/environ >"$0.new" && mv "$0.new" "$0"
        until [ -e "$0.go" ]; do sleep 0.05; done
    fi
    exec "$@"' "$late" "$bin/zworker" "$bin/models/gpt2.so" "${args[@]}" --comm shm >"$tmp/nodes" 2>&1 &
job=$!
until=$((SECONDS + 30))
until { [ -e "$late" ] && listening; } || [ $SECONDS -ge $until ]; do read -rt 0.02 <> <(:) || :; done
check "the variables of a rank have a descriptor" grep -q '^ZLAUNCH_SECRET_FD=' "$late"
check "and no secret" eval '! grep -qE "[0-9a-f]{64}" "$late"'
mapfile -t known < <(grep -v -e _FD= "$late")
env -i "${known[@]}" "$bin/zworker" "$bin/models/gpt2.so" "${args[@]}" --comm shm >"$tmp/guest" 2>&1
check "who has just the variables is refused" grep -q "refused this process" "$tmp/guest"
: >"$late.go"
wait $job
check "two nodes meet, and train" test $? -eq 0

[ "$failures" -eq 0 ] || head -n 5 "$tmp/nodes" "$tmp/guest"
[ "$failures" -eq 0 ] || head -n 5 "$tmp"/r0 "$tmp"/r1 "$tmp"/r2 "$tmp"/liar
finish
