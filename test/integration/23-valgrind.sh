#!/bin/bash
# No leak and no invalid access in a 3-step run with evaluation, saving and generation.
. "$(dirname "$0")/train_lib.sh"
case ${ZT_VARIANT:-release} in release) ;; *) echo "only the plain build runs under valgrind"; exit 77 ;; esac
command -v valgrind >/dev/null || { echo "valgrind is not installed"; exit 77; }
corpus >/dev/null
head -c 6000 "$tmp/corpus.txt" >"$tmp/short.txt"
# oneDNN and the loader keep what they cached for the life of the process: reachable, not lost
ONEDNN_MAX_CPU_ISA=AVX2 OMP_NUM_THREADS=1 RANK=0 WORLD_SIZE=1 valgrind --quiet --leak-check=full \
    --show-leak-kinds=definite,indirect --errors-for-leak-kinds=definite,indirect \
    --error-exitcode=99 --suppressions=test/valgrind.supp \
    "$bin/zworker" "$bin/models/gpt2.so" --n_layer 1 --n_head 2 --n_embd 16 --block_size 16 \
    --train_file "$tmp/short.txt" --do_train --do_eval --max_steps 3 --per_device_train_batch_size 2 \
    --per_device_eval_batch_size 8 --output_dir "$tmp/out" --prompt a --generate_tokens 4 >"$tmp/log" 2>&1
check "valgrind is silent" test $? -eq 0
[ "$failures" -eq 0 ] || tail -60 "$tmp/log"
finish
