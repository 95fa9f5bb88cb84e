#!/bin/bash
# A real Slurm with four nodes on this machine: zlaunch inside sbatch, ranks started by srun
# alone, scancel, a time that is nearly over. Nothing may stay behind.
. "$(dirname "$0")/train_lib.sh"
corpus >/dev/null
# shellcheck source=test/integration/slurm_lib.sh
. "$(dirname "$0")/slurm_lib.sh"
export ASAN_OPTIONS=detect_leaks=0 # libraries that MPI loads leak

within() { # within SECONDS COMMAND...: true as soon as the command is
    local until=$(($(date +%s%N) + $1 * 1000000000))
    shift
    while ! "$@"; do
        [ "$(date +%s%N)" -lt "$until" ] || return 1
        read -rt 0.05 <> <(:) || :
    done
}

why=$(slurm_why_not)
if [ -n "$why" ]; then
    echo "skip - $why"
    exit 77
fi
trap 'slurm_down; rm -rf "$tmp"' EXIT
if ! slurm_up; then
    tail -n 3 "$rig"/log/* | sed 's/^/# /'
    echo "skip - the private Slurm did not start"
    exit 77
fi

zlaunch=$(realpath "$bin/zlaunch") zworker=$(realpath "$bin/zworker")
model=$(realpath "$bin/models/gpt2.so")
args=("$model" --n_layer 2 --n_head 2 --n_embd 32 --block_size 32 --train_file "$tmp/corpus.txt"
    --do_train --logging_steps 1 --learning_rate 1e-3 --seed 7 --max_steps 5
    --fingerprint_steps 5 --per_device_train_batch_size 2)
export OMP_NUM_THREADS=1 ZT_MARK="zt-slurm-$$"
curve() { sed -n 's/.*step *\([0-9]*\)\/.*loss *\([0-9.]*\).*/\1 \2/p' "$1" 2>/dev/null; }
prints() { grep -o 'fingerprint [0-9a-f]*' "$1" 2>/dev/null; }
same_bits_as() { [ -n "$(curve "$1")" ] && [ "$(curve "$1")" = "$(curve "$2")" ] && [ "$(prints "$1")" = "$(prints "$2")" ]; }
# processes of ours, by the mark in their environment; Slurm's own daemons are no part of a job
left() {
    local f p
    for f in $(grep -lsz "^ZT_MARK=$ZT_MARK\$" /proc/[0-9]*/environ 2>/dev/null); do
        p=${f#/proc/} p=${p%/environ}
        case $(tr '\0' ' ' 2>/dev/null <"/proc/$p/cmdline") in
        *zworker* | *zlaunch*) case $(cat "/proc/$p/comm" 2>/dev/null) in
            zworker | zlaunch) echo "$p" ;; esac ;;
        esac
    done
}
nothing_left() { [ -z "$(left)" ]; }
# expect NAME LOG COMMAND...: a check that shows the log when it fails
expect() {
    local name=$1 log=$2 before=$failures
    shift 2
    check "$name" "$@"
    [ "$failures" -eq "$before" ] || sed 's/^/#   /' "$log" 2>&1 | head -n 15
}

"$zlaunch" --num_gpus 4 "${args[@]}" >"$tmp/local4" 2>&1
check "4 local ranks" test $? -eq 0

# ---- ranks that srun starts: one machine, so they share memory
MASTER_ADDR=127.0.0.1 srun --mpi=none -N 1 -n 4 "$zworker" "${args[@]}" >"$tmp/srun" 2>&1
check "srun zworker: 4 ranks on a node meet by themselves" test $? -eq 0
expect "with the bits of 4 local ranks" "$tmp/srun" same_bits_as "$tmp/srun" "$tmp/local4"
MASTER_ADDR=127.0.0.1 srun --mpi=none -N 4 -n 4 -m cyclic "$zworker" "${args[@]}" >"$tmp/srun4" 2>&1
expect "srun over 4 nodes of one machine" "$tmp/srun4" same_bits_as "$tmp/srun4" "$tmp/local4"
if [ -e "$bin/backends/mpi.so" ] && srun --mpi=list 2>&1 | grep -q pmi2; then
    srun --mpi=pmi2 -N 4 -n 4 "$zworker" "${args[@]}" >"$tmp/pmi2" 2>&1
    expect "srun --mpi=pmi2: MPI carries the data, the same bits" "$tmp/pmi2" same_bits_as "$tmp/pmi2" "$tmp/local4"
else
    echo "# no MPI backend or no PMI-2: not tried over MPI"
fi
check "nothing is left after srun" within 5 nothing_left

# ---- zlaunch inside a batch script
ZLAUNCH=$zlaunch sbatch -W -N 4 --ntasks-per-node=1 -o "$tmp/batch" scripts/zlaunch.sbatch "${args[@]}" >"$tmp/sbatch" 2>&1
expect "scripts/zlaunch.sbatch runs over 4 nodes" "$tmp/batch" test $? -eq 0
expect "with the bits of 4 local ranks" "$tmp/batch" same_bits_as "$tmp/batch" "$tmp/local4"
check "nothing is left after the batch job" within 5 nothing_left

# ---- a job that is cancelled, and one whose time is nearly over
long=("${args[@]}" --max_steps 1000000 --logging_steps 1)
steps_of() { [ -n "$(curve "$1")" ]; }
for script in zlaunch zworker; do
    export ZT_SRUN_MPI=none MASTER_ADDR=127.0.0.1
    id=$(ZLAUNCH=$zlaunch ZWORKER=$zworker sbatch --parsable -N 2 --ntasks-per-node=1 \
        -o "$tmp/$script.log" scripts/$script.sbatch "${long[@]}")
    expect "$script.sbatch trains" "$tmp/$script.log" within 60 steps_of "$tmp/$script.log"
    scancel "$id"
    check "scancel ends it" within 20 job_is_over "$id"
    check "and leaves nothing" within 10 nothing_left
    id=$(ZLAUNCH=$zlaunch ZWORKER=$zworker sbatch --parsable -N 2 --ntasks-per-node=1 --no-requeue \
        -o "$tmp/$script.usr1" scripts/$script.sbatch "${long[@]}")
    expect "$script.sbatch trains again" "$tmp/$script.usr1" within 60 steps_of "$tmp/$script.usr1"
    scancel --batch --signal=USR1 "$id" # what --signal=B:USR1@120 sends
    check "USR1 to the script stops the ranks in order" within 20 job_is_over "$id"
    check "the script said why" grep -q "the time is nearly over: stopping the ranks" "$tmp/$script.usr1"
    check "nothing is left" within 10 nothing_left
done

# ---- one that saves: it comes back when its time was over, not when somebody cancelled it
is_pending() { job_is "$1" PENDING; }
# Slurm refuses to launch a job, and fails it, in the second in which a node ended it
has_ended() { ! pgrep -f "^slurmstepd: \\[$1\\." >/dev/null && sleep 2; }
goes_on() { # LOG JOB: Slurm waits two minutes unless told, which counts only where the job before it has ended for good
    grep -q "^resumed: " "$1" && return
    scontrol update JobId="$2" StartTime=now >/dev/null 2>&1
    sleep 0.5
    return 1
}
for script in zlaunch zworker; do
    export ZT_SRUN_MPI=none MASTER_ADDR=127.0.0.1
    save=(--output_dir "$tmp/out-$script" --save_steps 1000000 --resume_from_checkpoint auto)
    id=$(ZLAUNCH=$zlaunch ZWORKER=$zworker sbatch --parsable -N 2 --ntasks-per-node=1 \
        -o "$tmp/$script.saves" scripts/$script.sbatch "${long[@]}" "${save[@]}")
    expect "$script.sbatch trains and will save" "$tmp/$script.saves" within 60 steps_of "$tmp/$script.saves"
    scancel --batch --signal=USR1 "$id"
    expect "saved when its time was over, it is in the queue again" "$tmp/$script.saves" within 20 is_pending "$id"
    check "with a checkpoint" compgen -G "$tmp/out-$script/checkpoint-*" >/dev/null
    within 20 has_ended "$id"
    expect "and goes on there" "$tmp/$script.saves" within 120 goes_on "$tmp/$script.saves" "$id"
    scancel "$id"
    check "cancelled it is over, with nothing in the queue" within 20 job_is_over "$id"
    check "nothing is left" within 10 nothing_left
done

# ---- a node that is not there any more
export MASTER_ADDR=
sbatch -W -N 2 --ntasks-per-node=1 -o "$tmp/three" --wrap "$zlaunch --num_nodes 3 --dry_run ${args[*]}" >/dev/null 2>&1
expect "more nodes than the job has: Slurm is to be asked" "$tmp/three" \
    grep -q -e "--num_nodes 3: the Slurm job has 2 nodes; ask Slurm for more, as by sbatch -N 3" "$tmp/three"
ZLAUNCH=$zlaunch sbatch -W -N 2 --ntasks-per-node=1 -o "$tmp/nobin" --wrap "$zlaunch /nowhere/train.so --do_train" >/dev/null 2>&1
check "a plugin that is not there: the job fails" test $? -ne 0
check "nothing is left at the end" within 10 nothing_left
finish
