#!/bin/bash
# Jobs inside a private Slurm of four nodes: a random process of ours is killed at a random moment, again and
# again. Nothing stays, and the first cause is told. ZT_ROUNDS: how often; ZT_SEED: to repeat a run.
. "$(dirname "$0")/../integration/launch_lib.sh"
# shellcheck source=test/integration/slurm_lib.sh
. "$(dirname "$0")/../integration/slurm_lib.sh"
why=$(slurm_why_not)
[ -z "$why" ] || { echo "skip - $why" && exit 77; }
trap 'slurm_down; rm -rf "$tmp"' EXIT
slurm_up || { echo "skip - the private Slurm did not start" && exit 77; }
seed=${ZT_SEED:-$RANDOM}
RANDOM=$seed
rounds=${ZT_ROUNDS:-10}
echo "# ZT_SEED=$seed"
cat /usr/share/common-licenses/GPL-3 >"$tmp/corpus.txt"
export OMP_NUM_THREADS=1 ZT_SRUN_MPI=none
ZLAUNCH=$(realpath "$zlaunch")
export ZLAUNCH
args=("$(realpath "$bin/models/gpt2.so")" --n_layer 2 --n_head 2 --n_embd 32 --block_size 32
    --train_file "$tmp/corpus.txt" --do_train --logging_steps 1 --max_steps 1000000 --per_device_train_batch_size 2)
exec {never}<> <(:)

# processes of the job that are ours: Slurm's carry the mark, too
ours() {
    local p
    for p in $(survivors); do
        case $(cat "/proc/$p/comm" 2>/dev/null) in zlaunch | zworker*) echo "$p" ;; esac
    done
}
none_of_ours() { [ -z "$(ours)" ]; }
some_are_ours() { [ -n "$(ours)" ]; }
trains() { grep -qs '^step' "$tmp/log"; }
for round in $(seq "$rounds"); do
    new_mark
    rm -f "$tmp/log"
    id=$(ZT_MARK=$mark sbatch --parsable -N $((1 + RANDOM % 4)) --ntasks-per-node=1 --no-requeue -o "$tmp/log" \
        scripts/zlaunch.sbatch "${args[@]}")
    [ $((round % 2)) = 0 ] && within 30 some_are_ours || within 60 trains || fail "round $round: it did not start"
    read -rt "0.$((RANDOM % 5))" -u "$never"
    mapfile -t parts < <(ours)
    victim=${parts[RANDOM % (${#parts[@]} ? ${#parts[@]} : 1)]:-}
    what=$(tr '\0' ' ' 2>/dev/null <"/proc/${victim:-0}/cmdline" | sed 's|[^ ]*/||g' | cut -c 1-20)
    [ -z "$victim" ] || kill -9 "$victim" 2>/dev/null
    ends 3 none_of_ours || fail "round $round: killed '$what', left: $(ours | tr '\n' ' ')"
    within 20 job_is_over "$id" || scancel "$id"
    told() { case $what in zlaunch*) true ;; *) grep -q 'killed by SIGKILL\|node daemon\|error:' "$tmp/log" ;; esac; }
    check "round $round: '$what' killed, and told" told
    ours | xargs -r kill -9
done
echo "# slowest end: $slowest ms"
finish
