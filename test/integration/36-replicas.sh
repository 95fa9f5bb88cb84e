#!/bin/bash
# --checkpoint_in_memory: ranks and whole nodes of a training are killed, and it goes on from copies in
# memory, without a disk, with the bits of a run that was left alone; at most K steps are done again.
. "$(dirname "$0")/launch_lib.sh"
. "$(dirname "$0")/turns_lib.sh"
export ASAN_OPTIONS=detect_leaks=0 # libraries that MPI loads leak
cat /usr/share/common-licenses/GPL-3 >"$tmp/corpus.txt"
printf 'n%d slots=1\n' 0 1 2 3 >"$tmp/four"
printf 'n%d slots=1\n' 0 1 2 >"$tmp/three"
printf 'n0 slots=2\nn1 slots=1\n' >"$tmp/uneven"
echo '{"bf16": {"enabled": true}, "train_batch_size": 8, "zero_optimization": {"stage": 3}}' >"$tmp/3.json"
echo '{"train_batch_size": 8, "zero_optimization": {"stage": 0}}' >"$tmp/0.json"
echo '{"train_batch_size": 6, "zero_optimization": {"stage": 2}}' >"$tmp/2.json"
echo '{"fp16": {"enabled": true}, "train_batch_size": 8, "zero_optimization": {"stage": 1}}' >"$tmp/1.json"
steps=${ZT_VARIANT:+150} # a sanitised build is slow enough to be caught on its way
steps=${steps:-300}
K=5 more=()
train() { # CONFIG ARGS...
    local config=$1
    shift
    set -- "$@" --log_format json "$bin/models/gpt2.so" --n_layer 2 --n_head 2 --n_embd 32 --block_size 32 \
        --per_device_train_batch_size 1 --train_file "$tmp/corpus.txt" --do_train --logging_steps 1 --learning_rate 1e-3 \
        --seed 7 --dropout 0.1 --max_steps $steps --fingerprint_steps 1 --deepspeed "$tmp/$config.json"
    if [ "${whole:-}" ]; then launch "$@"; else launch_bg "$@" --checkpoint_in_memory $K "${more[@]}"; fi
}
# numbers FILE: "step fingerprint" of each step event
numbers() { sed -n 's/.*"event":"step".*"step":\([0-9]*\).*"fingerprint":"\([0-9a-f]*\)".*/\1 \2/p' "$1"; }
# redone FILE: the most steps that a restart has repeated
redone() {
    sed -n 's/.*"event":"restart".*/restart/p; s/.*"event":"step".*"step":\([0-9]*\).*/\1/p' "$1" |
        awk '$1 == "restart" { again = 1; next } again { if (last - $1 + 1 > most) most = last - $1 + 1; again = 0 } { last = $1 } END { print most + 0 }'
}
same_bits() { # every step has the fingerprint that it has in the unbroken run
    [ "$(numbers "$tmp/out" | sort -un)" = "$(numbers "$tmp/whole.$1")" ] &&
        [ "$(numbers "$tmp/out" | sort -u | wc -l)" -eq $steps ]
}
has_step() { numbers "$tmp/out" | grep -q "^$1 "; }
went_on() { [ "$(grep -c '"event":"log".*which was copied in memory' "$tmp/out")" -ge "$1" ]; } # so often
ends_well() { wait "$job"; code=$?; code_is 0; }
parent() { sed -n 's/^PPid:\t//p' "/proc/$1/status"; }
daemon_of_rank() { rank_pid "$1" && pid=$(parent "$pid"); }

few=$steps
for c in 0 3 1; do
    steps=$((c ? few : 4 * few)) # on one node a step takes less than a millisecond
    case $c in 0) place=(--num_gpus 2) ;; *) place=(--hostfile "$tmp/four" --launcher local) ;; esac
    whole=1 train $c "${place[@]}"
    check "stage $c, left alone" code_is 0
    cp "$tmp/out" "$tmp/whole.$c"
done

steps=$((4 * few))
for _ in 1 2 3 4 5; do # until the rank is killed before its last step, on however busy a machine
    train 0 --num_gpus 2 --max_restarts 1
    within 60 has_step 23 || fail "no step came"
    rank_pid 1 && kill -9 "$pid"
    ends_well || break
    ! grep -q '"event":"restart"' "$tmp/out" || break
done
check "one node, a rank is killed: the job ends well" code_is 0
check "  it says from where it goes on" grep -q 'training goes on from step [0-9]*, which was copied in memory' "$tmp/out"
check "  with the bits of a run that was left alone" same_bits 0
check "  and repeats at most 5 steps, not $(redone "$tmp/out")" test "$(redone "$tmp/out")" -le 5
gone "  at the end"

steps=$few
train 3 --hostfile "$tmp/four" --launcher local --max_restarts 3
within 60 has_step 23 || fail "no step came"
daemon_of_rank 0
first=$pid
daemon_of_rank 1 && kill -9 "$pid"
within 60 went_on 1 || fail "it does not go on"
daemon_of_rank 0
check "four nodes, one is killed: the others' daemons stay" test "$pid" = "$first"
rank_pid 2 && kill -9 "$pid"
within 60 went_on 2 || fail "it does not go on"
daemon_of_rank 3 && kill -9 "$pid"
check "a node, a rank and another node are killed: the job ends well" ends_well
restarts=$(grep -c '"event":"restart"' "$tmp/out")
check "  it went on from memory each time" test "$(grep -c '"event":"log".*which was copied in memory' "$tmp/out")" = "$restarts"
check "  which was at least twice" test "$restarts" -ge 2
check "  with the bits of a run that was left alone" same_bits 3
check "  and repeats at most 5 steps, not $(redone "$tmp/out")" test "$(redone "$tmp/out")" -le 5
gone "  at the end"

if in_turn 0; then
    train 1 --hostfile "$tmp/four" --launcher local --max_restarts 2
    within 60 has_step 23 || fail "no step came"
    daemon_of_rank 2 && lost=$pid
    daemon_of_rank 3 && kill -9 "$pid" "$lost"
    check "two nodes that keep each other's copies are killed: the job ends well" ends_well
    check "  it says what is lost" grep -q 'too much of the copies in memory is lost (of step [0-9]* rank 2' "$tmp/out"
    check "  and does all of it again" same_bits 1
fi

# one set of copies, of step K, and newer checkpoints on the disk; then a pair of nodes is lost, too
if in_turn 1; then
    K=$((steps * 8 / 15)) disk=$((steps * 2 / 15))
    newer_on_disk() { sed -n 's/.*"event":"saved".*"step":\([0-9]*\).*/\1/p' "$tmp/out" | awk -v k=$K '$1 > k { f = 1 } END { exit !f }'; }
    goes_on() { sed '1,/"event":"restart"/d' "$tmp/out" | grep -q '"event":"step"'; }
    more=(--output_dir "$tmp/saved" --save_steps $disk)
    train 3 --hostfile "$tmp/four" --launcher local --max_restarts 2
    within 60 newer_on_disk || fail "no checkpoint came that is newer than step $K"
    rank_pid 1 && kill -9 "$pid"
    within 60 goes_on || fail "it does not go on"
    newer="from the checkpoint of step ($((5 * disk))|$((6 * disk))|$((7 * disk))), which is newer than the copies in memory, of step $K"
    check "a checkpoint on the disk is newer than the copies: it is read" grep -qE "$newer\"" "$tmp/out"
    daemon_of_rank 2 && lost=$pid
    daemon_of_rank 3 && kill -9 "$pid" "$lost"
    check "  two nodes that keep each other's copies are killed: the job ends well" ends_well
    check "  it goes on from the disk" grep -qE "too much of the copies in memory is lost \(of step $K rank 2's\): training goes on from the checkpoint of step [1-9]" "$tmp/out"
    check "  with the bits of a run that was left alone" same_bits 3
    gone "  at the end"
fi

# a node that is lost for good: one more than take part steps in
if in_turn 1; then
    K=5 more=()
    printf 'n%d slots=1\n' 0 1 2 3 4 >"$tmp/five"
    breakable_daemons
    break_daemons 5 # at the restart
    train 3 --hostfile "$tmp/five" --launcher local --elastic_training --min_elastic_nodes 4 --max_elastic_nodes 4
    within 60 has_step 23 || fail "no step came"
    daemon_of_rank 1 && kill -9 "$pid"
    check "a node of four is killed and cannot be started again, and there is a spare one: the job ends well" ends_well
    check "  one is left out" grep -q 'n1: .*going on without this node' "$tmp/out"
    check "  it goes on from memory" grep -q 'which was copied in memory' "$tmp/out"
    check "  with the bits of a run that was left alone" same_bits 3
    gone "  at the end"
    unset ZLAUNCH_ZWORKER
fi

# three nodes go round; a timeline shows what the step waits for
if in_turn 0; then
    steps=150 more=(--trace "$tmp/trace.json")
    whole=1 train 2 --hostfile "$tmp/three" --launcher local
    cp "$tmp/out" "$tmp/whole.2"
    train 2 --hostfile "$tmp/three" --launcher local --max_restarts 1
    within 60 has_step 23 || fail "no step came"
    daemon_of_rank 1 && kill -9 "$pid"
    check "three nodes, one is killed: the job ends well" ends_well
    check "  it goes on from memory" grep -q 'which was copied in memory' "$tmp/out"
    check "  with the bits of a run that was left alone" same_bits 2
    check "  and repeats at most 5 steps, not $(redone "$tmp/out")" test "$(redone "$tmp/out")" -le 5
    sed -n 's/.*"ph":"X","pid":\([0-9]*\),"tid":\([0-9]*\),"ts":\([0-9.]*\),"dur":\([0-9.]*\),"cat":"\([^"]*\)","name":"\([^"]*\)".*/\1.\2 \3 \4 \5 \6/p' \
        "$tmp/trace.json" >"$tmp/spans"
    check "  the copies are sent" test "$(grep -c ' comm broadcast$' "$tmp/spans")" -ge 12
    waits="$(awk '$5 == "copy" { end[$1] = $2 + $3; n++ } $4 == "comm" && $2 < end[$1] { m++ } END { printf "%d %d", (n > 0), m }' "$tmp/spans")"
    check "  while a step makes one it waits for no message, not '$waits'" test "$waits" = "1 0"
    beside=$(awk '{ split($1, id, "."); p = id[1] }
        NR == FNR { if ($5 == "copy") { n[p]++; from[p, n[p]] = $2; to[p, n[p]] = $2 + $3 } next }
        $5 == "broadcast" && n[p] && $2 > from[p, 1] {
            inside = 0
            for (k = 1; k <= n[p]; k++) inside = inside || ($2 >= from[p, k] && $2 + $3 <= to[p, k])
            beside += !inside
        }
        END { print beside + 0 }' "$tmp/spans" "$tmp/spans")
    check "  and they are sent while training goes on" test "$beside" -gt 0
    gone "  at the end"
fi

whole=1
launch --num_gpus 1 "$bin/models/gpt2.so" --n_layer 1 --n_head 1 --n_embd 16 --train_file "$tmp/corpus.txt" --do_train \
    --max_steps 2 --checkpoint_in_memory 1
check "without --max_restarts it is refused" test "$code" -ne 0
check "  and why" err_has "that takes zlaunch with --max_restarts"
launch --hostfile "$tmp/uneven" --launcher local --max_restarts 1 "$bin/models/gpt2.so" --n_layer 1 --n_head 1 \
    --n_embd 16 --train_file "$tmp/corpus.txt" --do_train --max_steps 2 --checkpoint_in_memory 1
check "nodes with unequal numbers of ranks are refused" test "$code" -ne 0
check "  and why" err_has "all nodes need as many"
check "  by all ranks alike" test "$(grep -c "all nodes need as many" "$tmp/err")" -eq 1
check "  once" err_lacks "restart 1 of 1"
case $bin in
bin) models=${ZT_TEST_MODELS:-build/release/test-models} ;;
*) models=${ZT_TEST_MODELS:-${bin%/bin}/test-models} ;;
esac
launch --num_gpus 1 --max_restarts 1 "$models/saving.so" --n_layer 1 --n_head 1 --n_embd 16 \
    --train_file "$tmp/corpus.txt" --do_train --max_steps 2 --checkpoint_in_memory 1
check "a plugin with a state of its own is refused" err_has "keeps bytes of its own in checkpoints"
launch --num_gpus 1 "$bin/models/gpt2.so" --n_layer 2 --n_head 2 --n_embd 32 --train_file "$tmp/corpus.txt" --do_train \
    --max_steps 2 --checkpoint_in_memory 1 --dry_run
check "the memory plan has a line of it" grep -q 'copies in memory' "$tmp/out"
finish
