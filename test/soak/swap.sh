#!/bin/bash
# Runs whose state lives in files: killed while they swap, told that a request failed or ended early, and on a drive
# that fills up while they start. Each ends by itself with a sentence and its code, nothing of it stays, neither process nor file,
# and the next start has the bits of a run that nothing happened to. By both engines that have queues of the kernel, in turns, at
# stages 1 to 3 on two ranks, and at stage 3 on one, which works on weights in the buffers of their files ("3 alone").
# ZT_ROUNDS: of each kind (50); ZT_SEED: to repeat them.
. "$(dirname "$0")/../integration/launch_lib.sh"
seed=${ZT_SEED:-$RANDOM}
RANDOM=$seed
rounds=${ZT_ROUNDS:-50}
echo "# ZT_SEED=$seed"
cat /usr/share/common-licenses/GPL-3 >"$tmp/corpus.txt"
"${CC:-cc}" -std=gnu11 -D_GNU_SOURCE -O2 -Wall -Wextra -Werror -fPIC -shared -o "$tmp/swap_faults.so" test/faults/swap_faults.c || exit 2
drive=$tmp/drive
mkdir "$drive"

kinds=(1 2 3 "3 alone")
for s in 1 2 3; do
    params=
    [ $s -lt 3 ] || params=", \"offload_param\": {\"device\": \"nvme\", \"nvme_path\": \"$drive\"},
        \"stage3_param_persistence_threshold\": 0"
    echo "{\"bf16\": {\"enabled\": true}, \"aio\": {\"block_size\": 16384, \"queue_depth\": 4},
        \"zero_optimization\": {\"stage\": $s, \"sub_group_size\": 20000, \"offload_optimizer\": {\"device\": \"nvme\",
        \"nvme_path\": \"$drive\", \"pipeline_read\": true, \"pipeline_write\": true}$params}}" >"$tmp/stage$s.json"
done
engines=()
for engine in io_uring libaio; do
    if "$bin/zio" --engine $engine --size 1 --rounds 1 --block_size 1048576 --threads 1 "$drive" >"$tmp/zio" 2>&1; then
        engines+=("$engine")
    else
        echo "# without $engine: $(tail -n 1 "$tmp/zio")"
    fi
done
[ ${#engines[@]} -gt 0 ] || { echo "# no engine has queues here" && exit 77; }
ranks() { if [ "${1#* }" = alone ]; then echo 1; else echo 2; fi; }
words() { # words KIND: a run by $engine
    printf '%s\n' --num_gpus "$(ranks "$1")" --log_format json "$bin/models/gpt2.so" --deepspeed "$tmp/stage${1% *}.json" --aio_engine "$engine" --n_layer 2 --n_head 2 \
        --n_embd 64 --block_size 16 --tokenizer_name bytes --train_file "$tmp/corpus.txt" --do_train --max_steps 20 \
        --logging_steps 1 --fingerprint_steps 1 --per_device_train_batch_size 1
}
numbers() { grep '"event":"step"' "$tmp/out" | sed -n 's/.*"step":\([0-9]*\).*"loss":\([^,]*\).*"fingerprint":"\([^"]*\)".*/\1 \2 \3/p'; }
no_files() { [ -z "$(ls -A "$drive")" ]; }

# a run that nothing happens to, at each stage: its numbers, how long it takes, and its requests
declare -A takes requests
unharmed() {
    local argv begin
    mapfile -t argv < <(words "$1")
    begin=$(date +%s%N)
    launch "${argv[@]}"
    takes[$1]=$((($(date +%s%N) - begin) / 1000000))
    [ -s "$tmp/numbers.$1" ] || numbers >"$tmp/numbers.$1"
    check "stage $1, $engine: runs to its end" code_is 0
    same_numbers() { numbers | cmp -s - "$tmp/numbers.$1"; }
    check "stage $1, $engine: the numbers are the same" same_numbers "$1"
    check "stage $1: 20 steps have numbers" lines_are "$tmp/numbers.$1" 20
    LD_PRELOAD=$tmp/swap_faults.so SWAP_RANK=$(($(ranks "$1") - 1)) SWAP_COUNT=$tmp/count launch "${argv[@]}"
    requests[$1]=$(cat "$tmp/count" 2>/dev/null || echo 0)
    check "stage $1, $engine: requests are counted" test "${requests[$1]}" -gt 100
    echo "# stage $1, $engine: ${takes[$1]} ms, ${requests[$1]} requests of its last rank"
}
for engine in "${engines[@]}"; do
    for s in "${kinds[@]}"; do unharmed "$s"; done
done
[ "$failures" -eq 0 ] || finish

# after NAME STAGE: nothing stays, and the next start has the same numbers
after() {
    local argv
    ends 3 nobody_left || { fail "$1: left: $(survivors | tr '\n' ' ')" && survivors | xargs -r kill -9; }
    no_files || { fail "$1: files stay: $(ls -A "$drive")" && rm -rf "${drive:?}"/*; }
    [ $((RANDOM % 5)) -eq 0 ] || return 0
    mapfile -t argv < <(words "$2")
    launch "${argv[@]}"
    numbers | cmp -s - "$tmp/numbers.$2" || fail "$1: the next start has other numbers"
}

for round in $(seq "$rounds"); do
    s=${kinds[RANDOM % ${#kinds[@]}]} engine=${engines[round % ${#engines[@]}]}
    mapfile -t argv < <(words "$s")
    launch_bg "${argv[@]}"
    ms=$((RANDOM % ${takes[$s]}))
    read -rt "$(printf '%d.%03d' $((ms / 1000)) $((ms % 1000)))" <> <(:)
    mapfile -t alive < <(survivors)
    if [ ${#alive[@]} -eq 0 ]; then
        name="kill $round: stage $s, $engine: it had ended"
    else
        victim=${alive[RANDOM % ${#alive[@]}]}
        what=gone
        what_is "$victim"
        kill -9 "$victim" 2>/dev/null
        name="kill $round: stage $s, $engine, $what after $ms ms"
    fi
    ends 3 nobody_left
    wait "$job"
    code=$?
    check "trial: $name, exit code $code" test "$code" -eq 137 -o "$code" -eq 0
    after "$name" "$s"
done

faults=(eio eio short enospc)
for round in $(seq "$rounds"); do
    s=${kinds[RANDOM % ${#kinds[@]}]} engine=${engines[round % ${#engines[@]}]} kind=${faults[RANDOM % 4]}
    rank=$((RANDOM % $(ranks "$s")))
    n=$(((RANDOM * 32768 + RANDOM) % ${requests[$s]}))
    name="request $round: stage $s, $engine, rank $rank, $kind at $n"
    mapfile -t argv < <(words "$s")
    LD_PRELOAD=$tmp/swap_faults.so SWAP_RANK=$rank SWAP_FAULT=$kind:$n launch "${argv[@]}"
    case $kind in
    eio) sentence="offloaded state: Input/output error" ;;
    enospc) sentence="offloaded state: No space left on device" ;;
    short) sentence="of offloaded state ended early" ;;
    esac
    # the other rank may have a request fewer
    check "trial: $name, exit code $code" test "$code" -ge 65 -a "$code" -le 78 -o "$code" -eq 0 -a "$n" -gt $((${requests[$s]} * 9 / 10))
    [ "$code" -eq 0 ] || grep -hqF "nvme_path $drive: " "$tmp/out" "$tmp/err" || fail "$name: the folder is not named"
    [ "$code" -eq 0 ] || grep -hqF "$sentence" "$tmp/out" "$tmp/err" || fail "$name: no word of it"
    after "$name" "$s"
done

# a drive of its own that another program fills meanwhile
if mount -t tmpfs -o size=64M tmpfs "$drive" 2>/dev/null; then
    trap 'umount -l "$drive"; rm -rf "$tmp"' EXIT
    for round in $(seq $(((rounds + 1) / 2))); do
        s=${kinds[RANDOM % ${#kinds[@]}]} engine=${engines[round % ${#engines[@]}]}
        mapfile -t argv < <(words "$s")
        launch_bg "${argv[@]}"
        ms=$((RANDOM % 60))
        read -rt "$(printf '0.%03d' $ms)" <> <(:)
        head -c 70000000 /dev/zero >"$drive/other" 2>/dev/null
        wait "$job"
        code=$?
        rm -f "$drive/other"
        name="full drive $round: stage $s, $engine, after $ms ms"
        check "trial: $name, exit code $code" test "$code" -eq 0 -o "$code" -eq 73 -o "$code" -eq 78
        if [ "$code" -eq 0 ]; then
            numbers | cmp -s - "$tmp/numbers.$s" || fail "$name: other numbers"
        else
            grep -hqF "nvme_path" "$tmp/out" "$tmp/err" || fail "$name: the folder is not named"
        fi
        after "$name" "$s"
    done
else
    echo "# no drive of its own can be mounted here: that part is left out"
fi
echo "# slowest end: $slowest ms"
finish
