#!/bin/bash
# Exit codes, and the first cause in words.
. "$(dirname "$0")/launch_lib.sh"

launch --num_gpus 2 -- true
check "success is 0" code_is 0
check "success is silent" test ! -s "$tmp/err"
launch --num_gpus 3 -- sh -c '[ $RANK != 1 ] || exit 7; exec sleep 60'
check "the failing rank's own code" code_is 7
check "the cause names rank and code" err_has "rank 1 (pid "
check "and the code" err_has "exited with code 7"
check "and those that were stopped" err_has "2 other ranks were stopped"
gone "after a failure"
launch --num_gpus 2 -- sh -c '[ $RANK = 1 ] || exec sleep 60; echo first >&2; echo "the reason" >&2; kill -SEGV $$'
check "128 + signal" code_is 139
check "the signal in words" err_has "was killed by SIGSEGV (invalid memory access)"
check "the last lines" err_has "  | the reason"
launch --num_gpus 2 -- sh -c '[ $RANK = 1 ] || exec sleep 60; kill -KILL $$'
check "SIGKILL is 137" code_is 137
launch --num_gpus 2 -- sh -c 'trap "exit 9" TERM; if [ $RANK = 0 ]; then sleep 60 & wait; fi; exit 5'
check "a rank that ends badly when told to stop is no cause" code_is 5
launch -- sh -c 'exit 75'
check "75 passes through" code_is 75

launch --num_gpus 2 "$tmp/none.so"
check "missing plugin: 66" code_is 66
check "missing plugin: named" err_has "$tmp/none.so"
launch -- no-such-program-zt
check "missing program: 66" code_is 66
launch train.py --deepspeed ds.json
check "a Python script: how it is started" err_has "zlaunch -- python3 train.py"
launch --num_gpus 1 "$bin/models/gpt2.so" --prompt "$(printf 'caf\351')"
check "a text that is not UTF-8: 2" code_is 2
check "  is told by its option" err_has "--prompt: word 2 behind the target is not UTF-8: write it so (iconv -t UTF-8), or rename the file"
launch bigram.c
check "source of a plugin: how it is built" err_has "-o bigram.so bigram.c (docs"
[ ! -d "$bin/../include/zlaunch" ] || # a sanitised build has no headers beside it
    check "  with the headers beside the programs" err_has "-I $PWD/include -o bigram.so"
launch gpt2 --train_file x
check "a plugin without its .so" err_has "the plugin is gpt2.so"
launch "$bin/models/gpt2"
check "... by its path" err_has "there is no program '$bin/models/gpt2'; the plugin is $bin/models/gpt2.so"
mkdir "$tmp/folder"
launch "$tmp/folder"
check "a folder is no program" err_has "it is a folder; the target is a plugin"
echo '{}' >"$tmp/folder/config.json"
launch "$tmp/folder" --train_file x
check "... and that of a model goes to an option" err_has "zlaunch gpt2.so --model_name_or_path $tmp/folder"
PMI_SIZE=2 launch -- true
check "mpirun in front of zlaunch is a warning" err_has "warning: mpirun has started 2 of this zlaunch"
PALS_SIZE=2 launch -- true
check "  of any MPI" err_has "warning: mpirun has started 2 of this zlaunch"
SLURM_JOB_ID=1 SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=2 launch -- true
check "srun in front of zlaunch, too" err_has "warning: srun has started 2 of this zlaunch, and each starts a job of its own; for one job: srun -n 2 true"
TORCHELASTIC_RUN_ID=none WORLD_SIZE=2 launch gpt2.so
check "torchrun in front of zlaunch, too" err_has "warning: torchrun has started 2 of this zlaunch, and each starts a job of its own; for one job: torchrun --no-python --nproc_per_node 2 zworker gpt2.so"
RANK=1 WORLD_SIZE=2 launch gpt2.so
check "the rank of a pod, too" err_has "warning: RANK=1 and WORLD_SIZE=2 are those of one of several processes, and this zlaunch starts a job of its own; for one job, in its place: zworker gpt2.so"
launch --num_gpus 2 gpt2.so --learnin_rate 1 --max_steps x
check "all problems of ranks at once" test "$(grep -c 'zlaunch: error: --' "$tmp/err")" = 2
check "  and nothing else" test "$(wc -l <"$tmp/err")" = 2
printf '#!/no/such/interpreter\n' >"$tmp/script"
chmod +x "$tmp/script"
launch -- "$tmp/script"
check "a program that cannot start: 127" code_is 127
check "and why" err_has "cannot run $tmp/script"
launch --hostfile "$tmp/none" -- true
check "missing hostfile: 66" code_is 66
DS_ENV_FILE=$tmp/none launch -- true
check "missing DS_ENV_FILE: 66" code_is 66
check "  is named" err_has "DS_ENV_FILE=$tmp/none: there is no such file"
for option in hostfile summary "detach --log_file"; do
    # shellcheck disable=SC2086
    launch --$option "" -- true
    check "--$option without a name: 2" code_is 2
    check "  is told" err_has "--${option#* --}: it is empty, as a variable that is not set is"
done

launch --num_gpsu 2 x.so
check "unknown option: 2" code_is 2
check "unknown option: a suggestion" err_has "did you mean --num_gpus?"
for option in --quite --num_gpus; do
    launch $option gpt2.so --max_steps 3 --n_layer 1
    check "$option without a value leaves the plugin what it is: 2" code_is 2
    check "  and what stands behind the plugin is no problem" test "$(grep -c 'zlaunch: error:' "$tmp/err")" = 1
done
launch --num-gpus=2 --log-format=text -- true
check "'-' and '=' spellings work" code_is 0
launch --num_gpus 0 --log_format yaml --grace -1 -- true
check "all problems at once" test "$(grep -c 'zlaunch: error:' "$tmp/err")" = 3
check "bad values: 2" code_is 2
launch --enable_each_rank_log "" -- true
check "a folder of logs without a name: 2" code_is 2
launch --grace 86400 -- true
check "--grace may be a day" code_is 0
launch --grace 86401 -- true
check "  and no more: 2" code_is 2
launch
check "no target: 2" code_is 2
launch -- echo $'\xff'
check "a word that is not UTF-8: 2" code_is 2
long=$(head -c 100000 /dev/zero | tr '\0' x)
launch -- true "$long" "$long" "$long" "$long" "$long" "$long" "$long" "$long" "$long" "$long" "$long"
check "words that are too long together: 2" code_is 2
check "  are told as that" err_has "the words of the command are longer than 1 MiB"
launch --num_gpus
check "no value: 2" code_is 2
for refused in "--autotuning run" "--venv_script x" --module; do
    # shellcheck disable=SC2086
    launch $refused -- touch "$tmp/ran"
    check "$refused is refused: 2" code_is 2
    check "$refused is named" err_has "$refused: not in this version"
done
for wrong in "--no_ssh" "--no_ssh --node_rank 0" "--node_rank 0" "--min_elastic_nodes 1" \
    "--elastic_training --min_elastic_nodes 3 --max_elastic_nodes 2" "--push_dir x" \
    "--elastic_training --min_elastic_nodes 2" "--export ZT_NOT_SET_ANYWHERE"; do
    # shellcheck disable=SC2086
    launch $wrong -- touch "$tmp/ran"
    check "$wrong: 2" code_is 2
done
check "nothing ran" test ! -e "$tmp/ran"

# what belongs on the target's other side, and what torchrun and accelerate launch call it
says() { # says TEXT WORDS...: refused as bad usage, with TEXT, and with nothing else
    local text=$1
    shift
    launch "$@"
    [ "$code" -eq 2 ] && grep -qF -- "$text" "$tmp/err" && [ "$(grep -c error: "$tmp/err")" = 1 ]
}
check "an option of the target stands before it" says \
    "--deepspeed is an option of the target: write it behind the target, as in: zlaunch TARGET.so --deepspeed ds.json" --deepspeed ds.json train.so
check "--elastic_training with --no_ssh" says "--elastic_training does not go together with --no_ssh" \
    --no_ssh --node_rank 0 --master_addr h --elastic_training -- true
check "an option of a job beside --attach" says "--timeout has no effect with --attach, which starts no job: leave it out" --timeout 5 --attach last
check "... beside --ctl" says "--detach has no effect with --ctl" --detach --ctl last status
check "... beside --estimate" says "--dry_run has no effect with --estimate" --estimate 1B --num_gpus 8 --dry_run
for alone in --report "--estimate 1B"; do
    # shellcheck disable=SC2086
    check "$alone with a target" says "${alone% *} runs nothing: leave out 'train.so' and what is behind it" $alone train.so --max_steps 3
done
check "one dash before a long name" says "-bf16: one dash stands before single letters; did you mean --bf16?" "$bin/models/gpt2.so" -bf16
check "... with a value" says "did you mean --max_steps?" "$bin/models/gpt2.so" -max_steps 3
check "... behind =" says "did you mean --max_steps=3?" "$bin/models/gpt2.so" -max_steps=3
check "... before the target" says "did you mean --num_gpus?" -num_gpus 2 train.so
check "... on the wrong side of it" says "did you mean --bf16?" -bf16 train.so
check "a device for a program" says "--device cuda is for plugins: what true computes on is its own matter" --device cuda -- true
check "a flag of the target" says "--do_train is an option of the target" --do_train train.so
check "a foreign one" says "--zero_stage 3: it is about what the target does: write it behind the target" --zero_stage=3 train.so
check "torchrun's --nproc_per_node" says "--nproc_per_node 2: that is --num_gpus N" --nproc_per_node 2 train.so
check "torchrun's --rdzv-endpoint" says "that is --master_addr ADDR" --rdzv-endpoint=host:1 train.so
check "accelerate's --num_processes" says "that is --num_gpus N" --num_processes 2 train.so
check "a plugin that is started as a program" says "a plugin is no program: leave out --no_python" --no_python train.so
launch --standalone -- true
check "what is so anyway is accepted" code_is 0
launch --log_level passive -- true
check "Trainer's --log_level passive, which says nothing" code_is 0
check "... and detail" says "--log_level detail: that is --log_level debug, before the target" --log_level detail train.so
launch --timeout 0.3 -- sleep 60
check "--timeout: 124" code_is 124
gone "after a timeout"

ZLAUNCH_NUM_GPUS=3 launch -- sh -c 'echo $WORLD_SIZE'
check "options from the environment" out_has "[rank 2] 3"
ZLAUNCH_NUM_GPUS=3 launch --num_gpus 2 -- sh -c 'echo $WORLD_SIZE'
check "the command line beats the environment" test "$(sort "$tmp/out" | tail -n 1)" = "[rank 1] 2"
launch --summary "$tmp/summary" --num_gpus 2 -- sh -c 'exit 3'
check "--summary holds the end as JSON" grep -q '"exit_code":3' "$tmp/summary"
launch --summary "$tmp/summary" --num_gpus 2 -- "$tmp/no/program"
check "  of a job that does not begin, too" grep -q '"exit_code":66,"ranks":0,"cause":"' "$tmp/summary"
launch --nope --summary "$tmp/summary" -- true
check "  and of one whose options are wrong" grep -q '"exit_code":2,"ranks":0,"cause":"--nope' "$tmp/summary"
launch_bg --summary "$tmp/summary" -- sleep 60
has_no_end() { [ ! -s "$tmp/summary" ]; }
check "  and nothing of another one while a job runs" within 10 has_no_end
kill -TERM "$job"
wait "$job"

# A full device: what was printed is lost, and that is no success.
model=("$bin/models/gpt2.so" --n_layer 1 --n_head 2 --n_embd 16 --block_size 16 --train_file "$0" --do_train --max_steps 1)
# The same when it is closed.
for lost in --help "--dry_run -- true" "--log_format json -- true" "-- echo text" "--dry_run ${model[*]}" \
    "--check_config ${model[*]}" "--log_format json --check_config ${model[*]}"; do
    # shellcheck disable=SC2086
    "$zlaunch" --num_gpus 1 $lost >/dev/full 2>"$tmp/err"
    code=$?
    check "$lost to a full device: 73" code_is 73
    check "  and why" err_has "standard output: No space left on device; what was printed there is not complete"
    check "  once" test "$(grep -c 'what was printed there' "$tmp/err")" = 1
    # shellcheck disable=SC2086
    "$zlaunch" --num_gpus 1 $lost >&- 2>"$tmp/err"
    code=$?
    check "$lost to a closed standard output: 73" code_is 73
    check "  and why" err_has "standard output: it is closed; what was printed there is not complete"
done
"$zlaunch" --num_gpus 2 "${model[@]}" --do_eval >&- 2>"$tmp/err"
code=$?
check "an evaluation that nobody can see: 73" code_is 73
"$bin/zworker" "${model[@]}" --check_config >/dev/full 2>"$tmp/err"
code=$?
check "zworker --check_config to a full device: 73" code_is 73
check "  in one line" test "$(grep -cE 'error|written' "$tmp/err")" = 1
"$bin/zworker" --help >/dev/full 2>"$tmp/err"
code=$?
check "zworker --help to a full device: 73" code_is 73
launch --summary /dev/full -- true
check "--summary to a full device: 73" code_is 73
launch --log_format json --summary /dev/full -- true
check "  with the cause in the last event" grep -q '"event":"end","exit_code":73.*"cause":"summary file /dev/full: No space left' "$tmp/out"

# Descriptors 0 to 2 that are closed, one and all.
for closed in "<&-" ">&-" "2>&-" "<&- >&- 2>&-"; do
    eval "'$zlaunch' --num_gpus 2 ${model[*]} --output_dir $tmp/saved $closed" >>"$tmp/more" 2>&1
    code=$?
    check "$closed: 0" code_is 0
    check "  and it is saved" test -s "$tmp/saved/model.safetensors"
    rm -rf "$tmp/saved"
done

# Too few open files: a sentence, at once.
(ulimit -n 8 && exec "$zlaunch" --num_gpus 2 "${model[@]}" 2>"$tmp/err")
code=$?
check "ulimit -n 8: 71" code_is 71
check "  with what is needed" err_has "only 8 files may be open at once, and zlaunch needs 32"
(ulimit -n 60 && exec "$zlaunch" --num_gpus 20 -- true 2>"$tmp/err")
code=$?
check "ulimit -n 60 for 20 ranks: 71" code_is 71
check "  with what is needed" err_has "a daemon needs 172"

launch --version
check "--version is one line" grep -qxE 'zlaunch [0-9]+\.[0-9]+\.[0-9]+' "$tmp/out"
launch --help
check "--help goes to stdout" out_has "--num_gpus"
launch --help_all
check "--help_all names refused options" out_has "--autotuning"
mkdir "$tmp/path"
printf '#!/bin/sh\necho "JOB STATE"\necho "abcd running"\necho "bcde running"\n' >"$tmp/path/zlaunch"
chmod +x "$tmp/path/zlaunch"
launch --print_completion bash
check "bash completion parses" bash -n "$tmp/out"
# complete WORDS...: what the last of them can become
complete_words() {
    bash -c 'complete() { :; }; . "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _zlaunch; echo "${COMPREPLY[@]}"' \
        - "$tmp/out" "$@"
}
check "... knows zlaunch's options" test "$(complete_words zlaunch --max_re)" = "--max_restarts"
check "... behind a plugin those of the target" test "$(complete_words zlaunch a.so --max_tr)" = "--max_train_samples"
check "... their values" test "$(complete_words zlaunch a.so --eval_strategy s)" = steps
check "... and asks for the jobs there are" test "$(PATH=$tmp/path:$PATH complete_words zlaunch --ctl ab)" = abcd
launch --print_completion zsh
if command -v zsh >/dev/null; then
    mkdir "$tmp/zsh"
    cp "$tmp/out" "$tmp/zsh/_zlaunch"
    # The last word of WORDS, completed by a zsh of its own at a terminal.
    cat >"$tmp/complete.zsh" <<'ZSH'
zmodload zsh/zpty
zpty z zsh -f -i
zpty -w z "fpath=($1 \$fpath); autoload -Uz compinit; compinit -u -D; echo REA''DY"
zpty -r z seen '*READY*'
zpty -w -n z "$2"$'\t'
zpty -r -m z seen "*$3*" && echo completed
ZSH
    zsh_completes() { timeout 20 zsh -f "$tmp/complete.zsh" "$tmp/zsh" "$1" "$2" | grep -q completed; }
    check "zsh completion: options" zsh_completes "zlaunch --max_re" -max_restarts
    check "... values of the target's" zsh_completes "zlaunch a.so --eval_strategy s" "strategy steps"
    check "... jobs" env PATH="$tmp/path:$PATH" bash -c "$(declare -f zsh_completes)"'; tmp=$1; zsh_completes "zlaunch --ctl ab" "ctl abcd"' - "$tmp"
fi
launch --help
check "the help says that --hang_timeout is off" sh -c "tr -s ' \n' ' ' <'$tmp/out' | grep -q -- '--hang_timeout SECONDS when no rank makes progress .* 0, the default: never'"
launch --print_man
check "the man page says that ZLAUNCH_ZWORKER comes first" out_has "the zworker to run, in place of the one beside zlaunch or in PATH"
check "the man page has the codes of signals to zlaunch" out_has "129 SIGHUP, 141 nobody reads the output"
check "the man page names every option of --help" sh -c "'$zlaunch' --help | grep -oE -- '^ +(-., )?--[a-z_]+' | grep -oE -- '--[a-z_]+' | sort -u | sed 's/-/\\\\\\\\-/g; s/ \$//' | while read -r o; do grep -q -- \"\$o\" '$tmp/out' || exit 1; done"
finish
