#!/bin/bash
# A rank of a training run is killed at a random moment, again and again, in each ZeRO stage:
# the job ends within 2 s, says which rank it was, and nothing of it stays.
# ZT_KILLS: how many times (40); ZT_SEED: to repeat a run; ZT_STAGES: "0 1 2 3".
# alone: nothing new may appear in /dev/shm
. "$(dirname "$0")/launch_lib.sh"

kills=${ZT_KILLS:-40}
seed=${ZT_SEED:-$RANDOM}
RANDOM=$seed
echo "# ZT_SEED=$seed"
cat /usr/share/common-licenses/GPL-3 >"$tmp/corpus.txt"
now_ms() { echo $(($(date +%s%N) / 1000000)); }

# words KIND WORLD STAGE: the run that is to be killed; it trains, evaluates and saves.
# "steps" is busy with steps and their collectives, "weights" with setting up and saving.
words() {
    local shape=(--n_embd 64 --max_steps 60)
    [ "$1" = steps ] || shape=(--n_embd 384 --max_steps 3)
    printf '%s\n' --num_gpus "$2" "$bin/models/gpt2.so" --deepspeed "$tmp/stage$3.json" \
        --n_layer 2 --n_head 2 "${shape[@]}" --block_size 16 --train_file "$tmp/corpus.txt" \
        --do_train --do_eval --eval_batches 2 --logging_steps 1 \
        --per_device_train_batch_size 1 --per_device_eval_batch_size 1 \
        --output_dir "$tmp/saved" --overwrite_output_dir
}

# Each setting twice, unharmed: how long they take at best, in ms.
declare -A takes
settings=()
unharmed() { # unharmed "KIND WORLD STAGE"
    local argv start ms
    # shellcheck disable=SC2086 # three words
    mapfile -t argv < <(words $1)
    for _ in 1 2; do
        start=$(now_ms)
        launch "${argv[@]}"
        ms=$(($(now_ms) - start))
        check "$1 (kind, ranks, stage) runs to its end" code_is 0
        [ "$ms" -ge "${takes["$1"]:-1000000}" ] || takes["$1"]=$ms
    done
    settings+=("$1")
    echo "# $1: ${takes["$1"]} ms"
}
for stage in ${ZT_STAGES:-0 1 2 3}; do
    echo "{\"zero_optimization\": {\"stage\": $stage}}" >"$tmp/stage$stage.json"
    for world in 2 4; do
        unharmed "steps $world $stage"
        unharmed "weights $world $stage"
    done
done
[ "$failures" -eq 0 ] || finish

# memfds PID: inodes of the memory files that the process holds
memfds() {
    find "/proc/$1/fd" -lname '/memfd:zlaunch*' -exec stat -Lc %i {} + 2>/dev/null | sort -u
}
# holders INODE...: processes that map or hold one of these memory files
holders() {
    local i
    for i in "$@"; do
        grep -lsE " $i +/memfd:" /proc/[0-9]*/maps
        find /proc/[0-9]*/fd -maxdepth 1 -lname '/memfd:zlaunch*' -exec stat -Lc '%i %n' {} + 2>/dev/null |
            sed -n "s/^$i //p"
    done
}
shm_names() { ls -A /dev/shm 2>/dev/null | sort; }
shm_before=$(shm_names)
shm_seen= # names that came while we ran; other programs may use the folder, too

# Wait for the moment, then for the rank, and kill it; 1: the job was over before.
exec {never}<> <(:)
strike() {
    local moment=$(($(now_ms) + $1)) rank=$2 d ms
    files=
    while [ -z "$files" ] && [ $((moment - $(now_ms))) -gt 50 ]; do
        for d in $(children "$job"); do
            files=$(memfds "$d")
        done
    done
    ms=$((moment - $(now_ms)))
    [ "$ms" -le 0 ] || read -rt "$((ms / 1000)).$(printf %03d $((ms % 1000)))" -u "$never"
    until rank_pid "$rank"; do
        nobody_left && return 1
    done
    kill -9 "$pid" 2>/dev/null
}

# The end of a job that was struck; 1: the rank had ended by itself before.
judge() {
    local claim=$1 rank=$2
    ends 2 nobody_left || fail "$claim: left after 2 s: $(survivors | tr '\n' ' ')"
    survivors | xargs -r kill -9
    wait "$job" 2>/dev/null
    code=$?
    [ -z "$files" ] || with_files=$((with_files + 1))
    # shellcheck disable=SC2086 # a list of numbers
    [ -z "$(holders $files)" ] || fail "$claim: its memory is held by $(holders $files)"
    shm_seen=$(comm -13 <(echo "$shm_before") <(echo "$shm_seen"$'\n'"$(shm_names)" | sort -u))
    [ "$code" -ne 0 ] || return 1
    if [ "$code" -eq 137 ] && err_has "rank $rank (pid $pid) was killed by SIGKILL"; then
        ok "$claim: gone in $waited ms"
    else
        fail "$claim: exit code $code, not 137 and a sentence about it"
    fi
    sed -n "/rank $rank (pid $pid) was killed/{s/.* during: //;t out;s/.*/before its first word/;:out;s/ [0-9]*\$//;p}" \
        "$tmp/err" | head -n 1 >>"$tmp/phases"
}

done_kills=0
late=0
with_files=0
: >"$tmp/phases"
while [ "$done_kills" -lt "$kills" ] && [ "$late" -le $((kills + 10)) ]; do
    setting=${settings[done_kills % ${#settings[@]}]}
    read -r kind world stage <<<"$setting"
    rank=$((RANDOM % world))
    wait_ms=$((RANDOM % takes["$setting"]))
    mapfile -t argv < <(words "$kind" "$world" "$stage")
    launch_bg "${argv[@]}"
    strike "$wait_ms" "$rank"
    if judge "kill $((done_kills + 1)): $kind, stage $stage, rank $rank of $world at $wait_ms ms" "$rank"; then
        done_kills=$((done_kills + 1))
    else
        late=$((late + 1))
        takes["$setting"]=$((wait_ms + 1)) # less than when something else kept the machine busy
    fi
    [ "$failures" -lt 5 ] || break
done
check "$kills ranks were killed in time ($late were over before)" test "$done_kills" -ge "$kills"
check "and $with_files of the jobs showed their memory files" test "$with_files" -gt $((kills / 3))

shm_is_clean() { [ -z "$(comm -12 <(echo "$shm_seen" | sed '/^$/d') <(shm_names))" ]; }
check "nothing is new in /dev/shm" within 30 shm_is_clean
echo "# slowest end: $slowest ms; where the ranks were:"
sort "$tmp/phases" | uniq -c | sort -rn | sed 's/^/# /'
finish
