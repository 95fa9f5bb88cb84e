#!/bin/bash
# Jobs over MPI that are stopped while they start: SIGTERM to zlaunch in the first moments, again and again.
# MPI and UCX have files of their own in /dev/shm by then; none stays. ZT_ROUNDS: how often (40).
. "$(dirname "$0")/../integration/launch_lib.sh"
if [ ! -f "$bin/backends/mpi.so" ]; then
    echo "skip - no MPI: apt install mpich libmpich-dev, then run make"
    exit 77
fi
seed=${ZT_SEED:-$RANDOM}
RANDOM=$seed
rounds=${ZT_ROUNDS:-40}
echo "# ZT_SEED=$seed"
cat /usr/share/common-licenses/GPL-3 >"$tmp/corpus.txt"
shared() { find /dev/shm -maxdepth 1 -user "$(id -un)" \( -name 'mpich_shar_tmp*' -o -name 'ucx_shm_posix_*' \) -printf '%f\n' | sort; }
before=$(shared)
exec {never}<> <(:)
for round in $(seq "$rounds"); do
    launch_bg --num_gpus 2 "$bin/models/gpt2.so" --n_layer 1 --n_head 1 --n_embd 16 --block_size 8 --comm mpi \
        --train_file "$tmp/corpus.txt" --do_train --max_steps 1000000 --per_device_train_batch_size 1
    read -rt "0.$((RANDOM % 4))$((RANDOM % 10))" -u "$never"
    kill -TERM "$job"
    ends 3 nobody_left || fail "round $round: left: $(survivors | tr '\n' ' ')"
    survivors | xargs -r kill -9
    wait "$job"
    code=$?
    check "round $round: stopped, exit code $code" test "$code" -eq 143
done
# other jobs of this user may have some: those go with their jobs
clean() { [ -z "$(comm -13 <(echo "$before") <(shared))" ]; }
check "nothing is new in /dev/shm" within 30 clean
echo "# slowest end: $slowest ms"
finish
