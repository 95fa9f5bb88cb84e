#!/bin/bash
# Ranks that talk by MPI: the same bits as by shared memory, whoever starts them; and a rank
# that dies takes the job with it at once.
. "$(dirname "$0")/launch_lib.sh"
if [ ! -f "$bin/backends/mpi.so" ] || ! command -v mpirun >/dev/null; then
    echo "no MPI: apt install mpich libmpich-dev, then run make"
    exit 77
fi
cat /usr/share/common-licenses/GPL-3 /usr/share/common-licenses/Apache-2.0 >"$tmp/corpus.txt"
model=("$bin/models/gpt2.so" --n_layer 2 --n_head 2 --n_embd 32 --block_size 32
    --train_file "$tmp/corpus.txt" --do_train --logging_steps 1 --learning_rate 1e-3 --seed 7
    --max_steps 6 --fingerprint_steps 2 --per_device_train_batch_size 2)

export ASAN_OPTIONS=detect_leaks=0 # libraries that MPI loads leak
[ "${ZT_VARIANT:-}" != tsan ] || export UCX_MEM_EVENTS=n # its hooks run in threads that TSan has left

# The losses and fingerprints of a run, one step a line.
bits() {
    grep '"event":"step"' "$1" |
        sed 's/.*"loss":\([^,]*\),.*/\1 &/; s/^\([^ ]*\) .*"fingerprint":"\([0-9a-f]*\)".*/\1 \2/; s/ {.*//'
}
same_bits() {
    [ "$(bits "$1" | wc -l)" -eq 6 ] && [ "$(bits "$1" | grep -c ' ')" -eq 3 ] &&
        [ "$(bits "$1")" = "$(bits "$2")" ]
}

# ---------------------------------------------------------------- the same numbers
for kind in "" --bf16; do
    for n in 2 4; do
        launch --num_gpus $n --log_format json "${model[@]}" $kind --comm shm
        check "$n ranks by shared memory${kind:+, $kind}" code_is 0
        cp "$tmp/out" "$tmp/shm"
        launch --num_gpus $n --log_format json "${model[@]}" $kind --comm mpi
        check "$n ranks by MPI under zlaunch${kind:+, $kind}" code_is 0
        cp "$tmp/out" "$tmp/mpi"
        check "  are the same bits" same_bits "$tmp/shm" "$tmp/mpi"
        ZLAUNCH_LOG_FORMAT=json mpirun -n $n "$bin/zworker" "${model[@]}" $kind \
            >"$tmp/out" 2>"$tmp/err"
        code=$?
        check "$n ranks under mpirun${kind:+, $kind}" code_is 0
        check "  are the same bits" same_bits "$tmp/shm" "$tmp/out"
    done
done
# ---------------------------------------------------------------- a small /dev/shm
small_shm() { # small_shm SIZE COMMAND...: with so much of it, and nothing else changed
    local size=$1
    shift
    unshare -m sh -c 'mount -t tmpfs -o size=$1 none /dev/shm && shift && exec "$@"' sh "$size" "$@" >"$tmp/out" 2>"$tmp/err"
    code=$?
}
if unshare -m mount -t tmpfs none /dev/shm 2>/dev/null; then
    small_shm 1m "$bin/zlaunch" --num_gpus 2 "${model[@]}" --comm mpi
    check "MPI that has no room in /dev/shm is refused" code_is 78
    check "  with what to do" err_has "docker run --shm-size=1g"
    small_shm 1m timeout 60 mpirun -n 2 "$bin/zworker" "${model[@]}"
    check "  also under mpirun" eval '[ "$code" -ne 0 ] && err_has "docker run --shm-size=1g"'
    small_shm 1m "$bin/zlaunch" --num_gpus 2 "${model[@]}" --comm shm
    check "shared memory without MPI needs none of it" code_is 0
    small_shm 9m "$bin/zlaunch" --num_gpus 2 "${model[@]}" --comm mpi
    check "what the plan asks for is enough" code_is 0
else
    echo "skip - a small /dev/shm: no file systems can be mounted here"
fi

for stage in 1 3; do
    echo "{\"zero_optimization\": {\"stage\": $stage}}" >"$tmp/zero.json"
    launch --num_gpus 2 --log_format json "${model[@]}" --deepspeed "$tmp/zero.json" --comm mpi
    check "ZeRO stage $stage by MPI" code_is 0
    cp "$tmp/out" "$tmp/mpi"
    launch --num_gpus 2 --log_format json "${model[@]}" --deepspeed "$tmp/zero.json" --comm shm
    check "  is the same bits as by shared memory" same_bits "$tmp/out" "$tmp/mpi"
done

# ---------------------------------------------------------------- under MPI, or not
launch --num_gpus 1 "${model[@]}" --comm mpi
check "one rank runs" code_is 0
ZLAUNCH_MPI_BACKEND=/nowhere.so launch --num_gpus 2 "${model[@]}" --comm mpi
check "without the object there is an error" [ "$code" -ne 0 ]
check "  that says what to do" err_has "apt install mpich"
UCX_TLS=no_such_thing launch --num_gpus 2 "${model[@]}" --comm mpi --output_dir "$tmp/no start"
if [ "$code" -ne 0 ]; then # MPICH over UCX
    check "MPI that does not start: 71" code_is 71
    check "  with its reasons" err_has "MPI_Init_thread"
    check "  and nothing of it stays in --output_dir" test ! -e "$tmp/no start"
fi
launch_bg --num_gpus 2 "${model[@]}" --comm mpi --max_steps 1000000 --logging_steps 1
within 20 lines_are "$tmp/err" 3 || fail "the ranks did not start"
rank_pid 1 && kill -HUP "$pid"
gone "SIGHUP of a rank over MPI"
wait "$job"
code=$?
check "  129" code_is 129
mpirun -n 2 "$bin/zworker" "${model[@]}" >"$tmp/out" 2>"$tmp/err"
check "a line of a rank under mpirun is as under zlaunch" grep -qE '^\[rank 0\] [0-9:]+ info  data: tokens are bytes' "$tmp/err"
half=$(($(nproc) > 1 ? $(nproc) / 2 : 1))
check "ranks that nobody has bound divide the processors" grep -q "info  cpu: $half thread" "$tmp/err"
RANK=0 WORLD_SIZE=1 mpirun -n 2 "$bin/zworker" "${model[@]}" >"$tmp/out" 2>"$tmp/err"
code=$?
check "RANK=0 WORLD_SIZE=1 of the shell under mpirun -n 2 is refused" [ "$code" -ne 0 ]
check "  with what both say, and the way out" err_has "RANK and WORLD_SIZE make this a job of one rank, and to an MPI launcher (PMI_SIZE) it is rank "
check "  nobody trains alone" sh -c "! grep -q 'fingerprint\|^step' '$tmp/out' '$tmp/err'"
RANK=0 WORLD_SIZE=1 mpirun -n 2 "$bin/zlaunch" --num_gpus 1 "${model[@]}" >"$tmp/out" 2>"$tmp/err"
code=$?
check "  two zlaunch with a rank each are what they say" code_is 0
mpirun -n 2 "$bin/zlaunch" --num_gpus 1 --dry_run "${model[@]}" >"$tmp/out" 2>"$tmp/err"
code=$?
check "  and so are their dry runs" code_is 0
"$bin/zlaunch" --num_gpus 1 -- mpirun -n 2 "$bin/zworker" "${model[@]}" >"$tmp/out" 2>"$tmp/err"
code=$?
check "mpirun -n 2 below a zlaunch of one rank is refused" [ "$code" -ne 0 ]
check "  by name, with what to type" grep -q "zlaunch has started a job of one rank, and to an MPI launcher in it (PMI_SIZE) this is rank [01] of 2: .*--num_gpus 2 TARGET.so or mpirun -n 2 zworker" "$tmp/err"
check "  and nobody trains alone" sh -c "! grep -q 'fingerprint\|^step' '$tmp/out' '$tmp/err'"
mpirun -n 2 "$bin/zworker" "${model[@]}" --no_such_option >"$tmp/out" 2>"$tmp/err"
code=$?
check "a wrong option ends a job of mpirun" [ "$code" -ne 0 ]
check "  and is named" err_has "no_such_option"

# ---------------------------------------------------------------- SIGUSR1 and SIGUSR2
# to the ranks themselves, as mpirun and batch systems pass them on
began() { grep -q '^step 2/' "$tmp/err"; }
# rank_under RANK: its pid, of a job that mpirun started
rank_under() {
    local p
    for p in $(survivors); do
        ! grep -qsz "^PMI_RANK=$1\$" "/proc/$p/environ" || [ "$(cat "/proc/$p/comm")" != zworker ] || { echo "$p" && return; }
    done
}
mpi_bg() { # mpi_bg ARGS...: two ranks under mpirun
    new_mark
    : >"$tmp/err" # what the job before has said is no sign of this one
    ZT_MARK=$mark setsid mpirun -n 2 "$bin/zworker" "${model[@]}" --max_steps 1000000 "$@" >"$tmp/out" 2>"$tmp/err" &
    job=$!
    within 30 began || fail "the ranks did not start"
}
mpi_bg
for sig in USR1 USR2; do kill -$sig "$(rank_under 0)"; done
check "SIGUSR2 under mpirun: rank 0 says that it means nothing" within 10 err_has "SIGUSR2 means nothing to a plugin: it goes on"
check "SIGUSR1 to a run that saves nothing: as under zlaunch" within 10 err_has "SIGUSR1 asks for a checkpoint, but this run saves none (--save_steps): it goes on"
check "  the run goes on" kill -0 "$job"
kill -TERM "$job"
wait "$job"
gone "SIGTERM of mpirun"
mpi_bg --output_dir "$tmp/usr1" --save_steps 1000000
kill -USR1 "$(rank_under 0)"
wait "$job"
code=$?
check "SIGUSR1 to one that saves: 75" code_is 75
check "  says what it asks for" err_has "SIGUSR1 asks for a checkpoint after the step at hand, and the end"
check "  and what was done" err_has "stopped by SIGUSR1 after step "
check "  a checkpoint" sh -c "ls -d '$tmp/usr1'/checkpoint-* >/dev/null"

# through zlaunch, which hands the job over to mpirun
printf 'localhost slots=2\n' >"$tmp/hosts"
handed_over() { launch_bg --hostfile "$tmp/hosts" --launcher mpich --grace 20 "${model[@]}" --max_steps 1000000 "$@"; within 30 began || fail "the ranks did not start"; }
if mpirun --version 2>/dev/null | grep -qi 'hydra'; then
    handed_over --output_dir "$tmp/over" --save_steps 1000000
    kill -USR2 "$job"
    check "zlaunch over mpirun: SIGUSR2 means nothing" within 10 err_has "zlaunch: SIGUSR2 means nothing to a plugin: it goes on"
    kill -USR1 "$job"
    check "  SIGUSR1 asks for a checkpoint" within 10 err_has "zlaunch: SIGUSR1 asks for a checkpoint after the step at hand, and the end"
    wait "$job"
    code=$?
    # Hydra 4.0, which passes the signal on, loses the codes of its ranks now and then: 0
    ended_by_mpirun() { [ "$code" = 75 ] || [ "$code" = 0 ]; }
    check "  which ends the run: 75" ended_by_mpirun
    check "  saved" err_has "checkpoint: stopped by SIGUSR1 after step "
    check "  and is there" sh -c "ls -d '$tmp/over'/checkpoint-* >/dev/null"
    gone "SIGUSR1 over mpirun"
    handed_over
    kill -INT "$job"
    check "  Ctrl-C says what it does" within 10 err_has "zlaunch: interrupted: stopping the ranks"
    gone_over() { ! kill -0 "$job" 2>/dev/null; }
    within 30 gone_over || fail "it did not end"
    wait "$job"
    code=$?
    check "  and ends with 130, whatever mpirun does" code_is 130
    check "  which its last line says" err_has "error: interrupted"
    gone "Ctrl-C over mpirun"
    for sig in INT TERM HUP; do
        launch_bg --hostfile "$tmp/hosts" --launcher mpich -- sh -c 'trap "exit 0" INT TERM HUP; echo ready; while :; do sleep 0.1; done'
        within 30 out_has ready || fail "the program did not start"
        kill -$sig "$job"
        wait "$job"
        code=$?
        check "SIG$sig over mpirun, of a program: 128 and its number" code_is $((128 + $(kill -l $sig)))
    done
fi

# ---------------------------------------------------------------- other programs, by PMI
cat >"$tmp/hello.c" <<'C'
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int main(int argc, char **argv)
{
    int rank, size, sum = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    printf("sum %d of %d\n", sum, size);
    if (argc > 1 && rank == 1 && !strcmp(argv[1], "abort"))
        MPI_Abort(MPI_COMM_WORLD, 5);
    if (argc > 1 && rank == 1 && !strcmp(argv[1], "leave"))
        _Exit(0);
    if (argc > 1)
        MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
C
if mpicc -o "$tmp/hello" "$tmp/hello.c" 2>"$tmp/err"; then
    launch --num_gpus 4 -- "$tmp/hello"
    check "an MPI program runs under zlaunch" code_is 0
    check "  as one world" [ "$(grep -c 'sum 6 of 4' "$tmp/out")" -eq 4 ]
    launch --num_gpus 3 -- "$tmp/hello" abort
    check "MPI_Abort ends the job with its code" code_is 5
    gone "after MPI_Abort"
    launch --num_gpus 3 -- "$tmp/hello" leave
    check "a rank that leaves without MPI_Finalize fails the job" [ "$code" -ne 0 ]
    check "  and is named" err_has "rank 1 ended with exit code 0 but without MPI_Finalize"
    gone "after that"
    code=$(mpirun -n 1 "$zlaunch" --num_gpus 2 -- "$tmp/hello" 2>&1 | grep -c 'sum 1 of 2')
    check "inside another MPI job ranks are a world of their own" [ "$code" -eq 2 ]
else
    fail "mpicc compiles a program"
fi

# ---------------------------------------------------------------- an end that does not come
if [ -z "${ZT_VARIANT:-}" ]; then
    cat >"$tmp/endless.c" <<'C'
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
/* Rank 0 stays in the calls that end MPI, or in the one that starts it. */
static int call(const char *name, int comm)
{
    const char *rank = getenv("RANK") ? getenv("RANK") : getenv("PMI_RANK");
    int (*f)(int) = (int (*)(int))dlsym(RTLD_DEFAULT, name);
    while (!rank || !strcmp(rank, "0"))
        pause();
    return f(comm);
}
int MPI_Barrier(int comm) { return call("PMPI_Barrier", comm); }
int MPI_Finalize(void) { return call("PMPI_Finalize", 0); }
int MPI_Init_thread(int *argc, char ***argv, int required, int *provided)
{
    int (*f)(int *, char ***, int, int *) = (int (*)(int *, char ***, int, int *))dlsym(RTLD_DEFAULT, "PMPI_Init_thread");
    while (getenv("ENDLESS_START") && !strcmp(getenv("RANK"), "0"))
        pause();
    return f(argc, argv, required, provided);
}
C
    cc -D_GNU_SOURCE -shared -fPIC -o "$tmp/endless.so" "$tmp/endless.c"
    endless() { env LD_PRELOAD="$tmp/endless.so" "$@" "${model[@]}" --comm mpi --ddp_timeout 5 --output_dir "$tmp/$out"; }
    says() { grep -q "warning: rank 0 has done its work, but mpi does not come to its end: it leaves without the others after 5 s" "$1"; }
    out=endless1
    endless timeout 60 mpirun -n 2 "$bin/zworker" >"$tmp/$out.out" 2>&1 &
    mpirun=$!
    out=endless2
    endless timeout 60 "$zlaunch" --num_gpus 2 --max_restarts 1 >"$tmp/$out.out" 2>&1
    code=$?
    check "MPI that does not end under zlaunch: 0, for the work is done" code_is 0
    check "  says so" says "$tmp/$out.out"
    check "  does not begin again" sh -c "! grep -q restart '$tmp/$out.out'"
    check "  the weights are there" test -s "$tmp/$out/model.safetensors"
    out=endless3
    ENDLESS_START=1 endless timeout 60 "$zlaunch" --num_gpus 2 >"$tmp/$out.out" 2>&1
    code=$?
    check "MPI that does not start is not waited for without end" code_is 69
    check "  says so" grep -q "error: rank [01]: mpi does not start: after 5 s (--ddp_timeout) ranks, or its launcher, have not answered" "$tmp/$out.out"
    wait $mpirun
    code=$?
    check "under mpirun" code_is 0
    check "  says so" says "$tmp/endless1.out"
    check "  the weights are there" test -s "$tmp/endless1/model.safetensors"
fi

# ---------------------------------------------------------------- a rank dies
rank_pid() {
    local p
    for p in $(survivors); do
        if grep -qz "^RANK=$1\$" "/proc/$p/environ" 2>/dev/null; then echo "$p"; fi
    done
}
training() { grep -q '"event":"step"' "$tmp/out"; }
for victim in 0 2; do
    launch_bg --num_gpus 3 --log_format json "${model[@]}" --max_steps 1000000 --comm mpi
    within 60 training || fail "no step came"
    kill -9 "$(rank_pid $victim)"
    gone "rank $victim is killed"
    wait "$job"
    code=$?
    check "  exit code 137" code_is 137
    check "  and it is named" grep -q "\"failed_rank\":$victim" "$tmp/out"
done
finish
