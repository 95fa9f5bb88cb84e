#!/bin/bash
# Training on four hosts (network namespaces, over ssh) with --checkpoint_in_memory: a rank, all processes of a host,
# or a host that falls silent, at random moments. Each run ends with the bits of an unbroken one and repeats at most K
# steps; how long it takes from the kill to the next step is measured. ZT_ROUNDS (100), ZT_SEED; needs root.
. "$(dirname "$0")/../integration/launch_lib.sh"
cd "$(dirname "$0")/../.." || exit 1
rigs=test/rigs rig=$tmp/rig K=5 steps=${ZT_STEPS:-400}
trap '"$rigs/sshd" stop "$rig" >/dev/null 2>&1; rm -rf "$tmp"' EXIT
if ! "$rigs/sshd" start 4 "$rig" 2>"$tmp/why" || [ "$(cat "$rig/mode")" != netns ]; then
    echo "skip - hosts of their own need root and network namespaces $(tail -n 1 "$tmp/why")"
    exit 77
fi
unset SSH_AUTH_SOCK ZLAUNCH_ZWORKER
mkdir -p "$tmp/home"
export HOME=$tmp/home
mapfile -t host < <(cut -d' ' -f1 "$rig/hosts")
printf '%s slots=1\n' "${host[@]}" >"$tmp/hosts"
cat /usr/share/common-licenses/GPL-3 >"$tmp/corpus.txt"
echo '{"train_batch_size": 4, "zero_optimization": {"stage": 2}}' >"$tmp/ds.json"
model=(--log_format json "$PWD/$bin/models/gpt2.so" --n_layer 2 --n_head 2 --n_embd 32 --block_size 32 --dropout 0.1
    --per_device_train_batch_size 1 --train_file "$tmp/corpus.txt" --do_train --logging_steps 1 --seed 7
    --max_steps "$steps" --fingerprint_steps 1 --deepspeed "$tmp/ds.json")
ssh=(--hostfile "$tmp/hosts" --export ZT_MARK --ssh_identity "$rig/user_ed25519" --ssh_known_hosts "$rig/known_hosts")
numbers() { sed -n 's/.*"event":"step".*"step":\([0-9]*\).*"fingerprint":"\([0-9a-f]*\)".*/\1 \2/p' "$1"; }
last_step() { numbers "$tmp/out" | tail -n 1 | cut -d' ' -f1; }
starts() { grep -c '"event":"restart"' "$tmp/out"; }
now_ms() { echo $((${EPOCHREALTIME/[.,]/} / 1000)); }
seed=${ZT_SEED:-$RANDOM}
RANDOM=$seed
echo "# ZT_SEED=$seed"
net_of() { readlink "/proc/$1/ns/net" 2>/dev/null; }
networks=()
for i in 1 2 3 4; do networks+=("$(net_of "$(cat "$rig/sshd$i.pid")")"); done
# of the job, in host I: pids
on_host() {
    local p
    for p in $(survivors); do [ "$(net_of "$p")" != "${networks[$1]}" ] || echo "$p"; done
}
launch "${ssh[@]}" "${model[@]}"
check "left alone" code_is 0
numbers "$tmp/out" >"$tmp/whole"
longest_rank=0 longest_node=0 longest_silent=0
for round in $(seq "${ZT_ROUNDS:-100}"); do
    launch_bg "${ssh[@]}" --max_restarts 3 "${model[@]}" --checkpoint_in_memory $K
    at=$((K + 5 + RANDOM % (steps / 2)))
    reached() { [ "$(last_step)" ] && [ "$(last_step)" -ge $at ]; }
    within 120 reached || fail "round $round: no step $at came"
    case $((RANDOM % 5)) in 0 | 1) what=rank ;; 2 | 3) what=node ;; *) what=silent ;; esac
    i=$((RANDOM % 4)) victims=
    for p in $(on_host $i); do
        case $what in
        rank) [ "$(cat "/proc/$p/comm" 2>/dev/null)" = zworker ] && grep -qsz "^RANK=" "/proc/$p/environ" && victims+=" $p" ;;
        *) victims+=" $p" ;;
        esac
    done
    from=$(now_ms)
    # shellcheck disable=SC2086
    if [ $what = silent ]; then # until it is given up; then it is as good as new
        kill -STOP $victims
        restarts() { [ "$(starts)" -ge 1 ]; }
        within 60 restarts
    fi
    # shellcheck disable=SC2086
    kill -9 $victims 2>/dev/null
    again() { [ "$(starts)" -ge 1 ] && sed -n '/"event":"restart"/,$p' "$tmp/out" | grep -q '"event":"step"'; }
    within 60 again || fail "round $round: it does not go on after the loss of a $what"
    ms=$(($(now_ms) - from))
    eval "[ $ms -le \$longest_$what ] || longest_$what=$ms"
    wait "$job"
    code=$?
    first=$(sed -n '/"event":"restart"/,$p' "$tmp/out" | sed -n 's/.*"event":"step".*"step":\([0-9]*\).*/\1/p' | head -n 1)
    last=$(sed '/"event":"restart"/,$d' "$tmp/out" | sed -n 's/.*"event":"step".*"step":\([0-9]*\).*/\1/p' | tail -n 1)
    redone=$((last - first + 1))
    right() {
        code_is 0 && [ $redone -le $K ] && grep -q 'which was copied in memory' "$tmp/out" &&
            [ "$(numbers "$tmp/out" | sort -un)" = "$(cat "$tmp/whole")" ] &&
            [ "$(numbers "$tmp/out" | sort -u | wc -l)" -eq "$steps" ]
    }
    check "trial: $what of host $i after step $last: $redone steps again, $ms ms to the next one" right
    within 5 nobody_left || fail "round $round: left: $(survivors | tr '\n' ' ')"
    survivors | xargs -r kill -9
done
echo "# longest to the next step: a rank $longest_rank ms, a node $longest_node ms, a silent node $longest_silent ms"
finish
