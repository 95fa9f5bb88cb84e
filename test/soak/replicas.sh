#!/bin/bash
# Training on four hosts (network namespaces, over ssh) with --checkpoint_in_memory: at random moments a rank or all
# processes of a host are killed, a host is stopped, or its network is cut. Each run ends with the bits of an unbroken
# one and repeats at most K steps; how long it takes from then to the next step is measured.
# ZT_ROUNDS (100), ZT_SEED, ZT_STEPS (300); ZT_KINDS: of which (rank node stopped cut); ZT_COMM: how ranks talk (tcp
# or mpi). Needs root.
. "$(dirname "$0")/../integration/launch_lib.sh"
cd "$(dirname "$0")/../.." || exit 1
. test/integration/hosts_lib.sh
K=5 steps=${ZT_STEPS:-300} comm=${ZT_COMM:-tcp}
read -ra kinds <<<"${ZT_KINDS:-rank rank node node stopped cut}"
cat /usr/share/common-licenses/GPL-3 >"$tmp/corpus.txt"
echo '{"train_batch_size": 4, "zero_optimization": {"stage": 2}}' >"$tmp/ds.json"
# these hosts share the cores of one machine
# shellcheck disable=SC2054
over=(--hostfile "$tmp/hosts" --export ZT_MARK,OMP_NUM_THREADS=1 "${access[@]}" --log_format json)
model=("$PWD/$bin/models/gpt2.so" --n_layer 2 --n_head 2 --n_embd 32 --block_size 32 --dropout 0.1
    --per_device_train_batch_size 1 --train_file "$tmp/corpus.txt" --do_train --logging_steps 1 --seed 7
    --max_steps "$steps" --fingerprint_steps 1 --deepspeed "$tmp/ds.json" --comm "$comm")
numbers() { sed -n 's/.*"event":"step".*"step":\([0-9]*\).*"fingerprint":"\([0-9a-f]*\)".*/\1 \2/p' "$1"; }
step_of() { sed -n 's/.*"event":"step".*"step":\([0-9]*\).*/\1/p'; }
before() { sed '/"event":"restart"/,$d' "$tmp/out"; } # what the first start has printed
after() { sed -n '/"event":"restart"/,$p' "$tmp/out"; }
reached() { [ "$(before | step_of | tail -n 1)0" -ge "${1}0" ]; }
restarts() { grep -q '"event":"restart"' "$tmp/out"; }
goes_on() { after | grep -q '"event":"step"'; }
goes_on_or_ends() { goes_on || is_over; }
is_over() { ! readlink -q "/proc/$job/exe" >/dev/null; }
ms_of() { date -d "$1" +%s%3N; } # of a time stamp
# stamp EVENT: the time of the first such line
stamp() { grep -m 1 "\"event\":\"$1\"" | sed 's/.*"ts":"\([^"]*\)".*/\1/'; }
is_rank() { grep -qsz "^RANK=" "/proc/$1/environ" && [ "$(cat "/proc/$1/comm" 2>/dev/null)" = zworker ]; }
same_bits() {
    [ "$(numbers "$tmp/out" | sort -un)" = "$(cat "$tmp/whole")" ] && [ "$(numbers "$tmp/out" | sort -u | wc -l)" -eq "$steps" ]
}
right() { code_is 0 && [ "$redone" -le $K ] && same_bits && grep -q 'which was copied in memory' "$tmp/out"; }

# aim KIND I: what host I is to lose, in victims; strike: it loses it; $from: when, in ms
aim() {
    local p
    victims=()
    for p in $(of_host "$2"); do [ "$1" != rank ] || is_rank "$p" || continue; victims+=("$p"); done
}
strike() {
    from=$(date +%s%3N)
    case $1 in
    rank | node) kill -9 "${victims[@]}" ;;
    stopped) kill -STOP "${victims[@]}" && within 20 restarts; kill -CONT "${victims[@]}" ;;
    cut) link_of "$2" down && within 20 restarts; link_of "$2" up ;;
    esac 2>/dev/null
    mended=$(date +%s%3N)
}
# What was to last until the restart lasted much longer, and used up all of them: the machine had no time for this script.
too_late() { restarts && [ $((mended - $(ms_of "$(stamp restart <"$tmp/out")"))) -gt 5000 ]; }
# median and slowest of the lines of a file
times() { sort -n "$1" | awk '{ ms[NR] = $1 } END { printf "%d %d ms of %d", ms[int((NR + 1) / 2)], ms[NR], NR }'; }

seed=${ZT_SEED:-$RANDOM}
RANDOM=$seed
echo "# ZT_SEED=$seed"
launch "${over[@]}" "${model[@]}"
check "left alone" code_is 0
numbers "$tmp/out" >"$tmp/whole"
most=0
round=1
while [ $round -le "${ZT_ROUNDS:-100}" ]; do
    launch_bg "${over[@]}" --max_restarts 3 "${model[@]}" --checkpoint_in_memory $K
    at=$((K + 5 + RANDOM % (steps / 2))) kind=${kinds[RANDOM % ${#kinds[@]}]} i=$((RANDOM % 4))
    within 60 reached 1 && aim "$kind" $i
    within 60 reached $at || fail "round $round: no step $at came"
    strike "$kind" $i
    within 60 goes_on_or_ends || fail "round $round: it does not go on after the loss: $kind of host $i"
    within 120 is_over || { fail "round $round: it does not end" && kill -9 "$job"; }
    wait "$job"
    code=$?
    if ! restarts && same_bits; then # this script had to wait for a processor: no trial
        echo "# the run was over before the $kind of host $i at step $at"
        continue
    fi
    if too_late; then
        echo "# the $kind of host $i at step $at lasted $((mended - from)) ms"
        survivors | xargs -r kill -9
        continue
    fi
    redone=$(($(before | step_of | tail -n 1) - $(after | step_of | head -n 1) + 1))
    [ $redone -le $most ] || most=$redone
    ms=$(($(ms_of "$(after | stamp step)") - from))
    echo $ms >>"$tmp/ms.$kind"
    check "trial $round: $kind of host $i at step $at: $redone steps again, the next one after $ms ms; given up after $(($(ms_of "$(stamp restart <"$tmp/out")") - from)) ms" right
    within 5 nobody_left || fail "round $round: left: $(survivors | tr '\n' ' ')"
    survivors | xargs -r kill -9
    round=$((round + 1))
done
summary="at most $most steps again"
for f in "$tmp"/ms.*; do summary+="; ${f##*.} $(times "$f")"; done
echo "# to the next step, median and slowest: $summary"
finish
