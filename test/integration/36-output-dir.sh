#!/bin/bash
# A folder is one run's, whoever comes second and however the first ended; and what SIGUSR1 does to a run.
. "$(dirname "$0")/launch_lib.sh"
export XDG_RUNTIME_DIR=$tmp
mkdir "$tmp/zlaunch" && chmod 700 "$tmp" "$tmp/zlaunch"
cp README.md "$tmp/text.txt"
plugin=$bin/models/gpt2.so
tiny=(--n_layer 1 --n_head 1 --n_embd 16 --block_size 16 --train_file "$tmp/text.txt" --do_train --logging_steps 1)
out=$tmp/runs/out
held() { [ -s "$out/.zlaunch.lock" ]; }
stepping() { grep -q '^step ' "$tmp/err"; }

# ---------------------------------------------------------------- two runs, one folder
first=$tmp/runs/one/checkpoint-1
launch --num_gpus 1 "$plugin" "${tiny[@]}" --max_steps 1 --save_steps 1 --output_dir "$tmp/runs/one"
launch_bg --num_gpus 2 "$plugin" "${tiny[@]}" --max_steps 1000000 --output_dir "$out"
within 30 stepping || fail "the first run did not begin"
check "the folder says whose it is" held
id=$(sed -n 's/^[0-9]* [^ ]* //p' "$out/.zlaunch.lock")
"$zlaunch" --num_gpus 2 "$plugin" "${tiny[@]}" --max_steps 2 --output_dir "$out" >"$tmp/o" 2>&1
check "a second run is refused: 73" test $? -eq 73
check "  by the name of the first" grep -qE "output_dir $out: job $id \(pid [0-9]+ on [^ ]+\) is running with this folder: give another one, or end that one \(zlaunch --ctl $id stop\)" "$tmp/o"
check "  in one sentence" test "$(grep -c 'running with this folder' "$tmp/o") $(grep -c 'from rank\|rank 1' "$tmp/o")" = "1 0"
"$bin/zworker" "$plugin" "${tiny[@]}" --max_steps 2 --output_dir "$out" --overwrite_output_dir >"$tmp/o" 2>&1
check "so is one without zlaunch, and one that may overwrite" test $? -eq 73
check "what they found is untouched" held
cp -r "$first" "$out/checkpoint-2"
cp -r "$first" "$out/checkpoint-3"
"$bin/zckpt" prune "$out" --keep 1 >"$tmp/o" 2>&1
check "nor does zckpt prune remove anything there: 73" test $? -eq 73
check "  by the name of the run" grep -q "job $id (pid .* is running with this folder" "$tmp/o"
check "  both are there" test -d "$out/checkpoint-2" -a -d "$out/checkpoint-3"
"$bin/zckpt" prune "$out" --keep 1 --dry_run >"$tmp/o" 2>&1
check "  but says what it would" grep -q "1 of 2 checkpoints would be removed" "$tmp/o"
rm -r "$out"/checkpoint-*
kill -0 "$job"
check "and the first goes on" test $? -eq 0
rank_pid 0 && kill -9 "$pid" # first: told to stop it would take the lock away
survivors | xargs -r kill -9 2>/dev/null
gone "kill -9 of the first"
wait "$job" 2>/dev/null
check "which leaves its name" held
launch --num_gpus 2 "$plugin" "${tiny[@]}" --max_steps 2 --output_dir "$out"
check "but a dead owner stops nobody" code_is 0
check "a run that ended has left no lock" test -f "$out/model.safetensors" -a ! -e "$out/.zlaunch.lock"

# ---------------------------------------------------------------- --dry_run refuses what the run would
refused() { # refused CODE ARGS...: both end with it, for the same reason, and make nothing
    local want=$1 codes=""
    shift
    ls -R "$tmp/runs" >"$tmp/before"
    for dry in "" --dry_run; do
        "$bin/zworker" "$plugin" "${tiny[@]}" --max_steps 2 "$@" $dry >"$tmp/o" 2>"$tmp/e$dry"
        codes+="$? "
        grep 'error: ' "$tmp/e$dry" >"$tmp/why$dry"
    done
    ls -R "$tmp/runs" >"$tmp/after"
    [ "$codes" = "$want $want " ] && [ -s "$tmp/why" ] && cmp "$tmp/why" "$tmp/why--dry_run" && cmp "$tmp/before" "$tmp/after"
}
saved=$tmp/runs/dry
launch --num_gpus 1 "$plugin" "${tiny[@]}" --max_steps 1 --save_steps 1 --output_dir "$saved"
ln -s "$tmp/nowhere" "$tmp/runs/link"
check "--dry_run refuses a file in the place of --output_dir" refused 73 --output_dir "$tmp/text.txt"
check "  and above it" refused 73 --output_dir "$tmp/text.txt/below"
check "  and a link to nowhere" refused 73 --output_dir "$tmp/runs/link/below"
check "  and a model that would be replaced" refused 73 --output_dir "$saved"
check "  and a checkpoint that is not there" refused 66 --resume_from_checkpoint "$tmp/nowhere"
check "  and a file in the place of one" refused 66 --resume_from_checkpoint "$tmp/text.txt"
check "  and one of another model" refused 65 --resume_from_checkpoint "$saved/checkpoint-1" --n_embd 32
check "  beyond the sizes of its parameters" refused 65 --resume_from_checkpoint "$saved/checkpoint-1" --n_head 2
cp -r "$saved/checkpoint-1" "$tmp/runs/cut"
truncate -s -1 "$tmp/runs/cut"/global_step1/zero_rank_00000.safetensors
check "  and one that was cut short" refused 65 --resume_from_checkpoint "$tmp/runs/cut"
if [ "$(id -u)" != 0 ]; then
    mkdir -m 500 "$tmp/runs/locked"
    check "  and a folder that is closed" refused 73 --output_dir "$tmp/runs/locked/below"
fi
launch --num_gpus 1 --dry_run "$plugin" "${tiny[@]}" --max_steps 2 --output_dir "$saved" --resume_from_checkpoint auto
check "but not what goes on" code_is 0
launch --num_gpus 1 --dry_run "$plugin" "${tiny[@]}" --max_steps 2 --output_dir "$tmp/runs/new/one" --resume_from_checkpoint auto
check "  or begins" code_is 0
check "  of which it makes nothing" test ! -e "$tmp/runs/new"
launch --num_gpus 1 --dry_run "$plugin" "${tiny[@]}" --max_steps 2 --output_dir "$saved"
check "the plan is told before" out_has "memory of one rank"

# ---------------------------------------------------------------- a model that comes from elsewhere meanwhile
theirs=$tmp/runs/theirs
launch --num_gpus 1 "$plugin" "${tiny[@]}" --n_embd 32 --max_steps 1 --save_strategy no --output_dir "$theirs"
launch --num_gpus 1 "$plugin" "${tiny[@]}" --max_steps 1 --save_steps 1 --output_dir "$tmp/runs/saved"
"$bin/zckpt" convert "$tmp/runs/saved/checkpoint-1" "$tmp/runs/universal" --to universal >"$tmp/o" 2>&1
check "a universal checkpoint is made" test -s "$tmp/runs/universal/latest_universal"
meanwhile() { # meanwhile ARGS...: in $code what the run ends with
    rm -rf "$out"
    launch_bg --num_gpus 2 "$plugin" "${tiny[@]}" --logging_steps 10 --max_steps 3000 --save_strategy no --output_dir "$out" "$@"
    within 30 stepping || fail "the run did not begin"
    "$bin/zckpt" convert "$theirs" "$out" >"$tmp/o" 2>&1
    convert_code=$?
    "$bin/zckpt" convert "$tmp/runs/saved/checkpoint-1" "$out" --to universal >"$tmp/o.universal" 2>&1
    convert_code+=" $?"
    "$bin/zckpt" convert "$tmp/runs/universal" "$out" --to zlaunch >"$tmp/o.zlaunch" 2>&1
    convert_code+=" $?"
    cp "$theirs/model.safetensors" "$theirs/config.json" "$out/"
    kill -0 "$job" || fail "the run was over before the model came"
    wait "$job"
    code=$?
}
meanwhile
check "zckpt convert into the folder of a run is refused: 73" test "$convert_code" = "73 73 73"
for made in o o.universal o.zlaunch; do
    check "  by its name" grep -qE "$out: job [^ ]+ \(pid [0-9]+ on [^ ]+\) is running with this folder" "$tmp/$made"
done
check "  and nothing is made there" sh -c "! ls '$out' | grep -qE 'checkpoint-|universal'"
check "a model that came during the run: 73" code_is 73
check "  where the weights are instead" err_has "a model came to $out during the run from elsewhere, and is not replaced: the weights of this run are in $out/weights-3000"
check "  it is untouched" cmp -s "$theirs/model.safetensors" "$out/model.safetensors"
check "  and those of the run are whole" "$bin/zckpt" verify "$out/weights-3000"
meanwhile --overwrite_output_dir
check "with --overwrite_output_dir it is replaced" code_is 0
check "  whatever it was" sh -c "! cmp -s '$theirs/model.safetensors' '$out/model.safetensors'"

# ---------------------------------------------------------------- one folder where each node is to have one
printf 'a slots=1\nb slots=1\n' >"$tmp/nodes"
launch -H "$tmp/nodes" --launcher local "$plugin" "${tiny[@]}" --max_steps 4 --save_steps 2 --save_on_each_node --output_dir "$tmp/runs/each"
check "a folder that nodes share is refused where each is to have its own: 73" code_is 73
check "  by what it is" err_has "another node of this job has this one: leave --save_on_each_node out where nodes share a file system"
check "  before the first step" err_lacks "^step "

# links that somebody planted
mkdir -p "$tmp/runs/shared"
echo mine >"$tmp/victim"
ln -s "$tmp/victim" "$tmp/runs/shared/.zlaunch.lock"
launch --num_gpus 1 "$plugin" "${tiny[@]}" --max_steps 2 --output_dir "$tmp/runs/shared"
check "a link in place of the lock is refused: 73" code_is 73
check "  by its name" err_has ".zlaunch.lock: Too many levels of symbolic links"
check "  and what it names is not written" test "$(cat "$tmp/victim")" = mine
rm "$tmp/runs/shared/.zlaunch.lock"
ln -s "$tmp/victim" "$tmp/runs/shared/.model.safetensors.tmp"
launch --num_gpus 1 "$plugin" "${tiny[@]}" --max_steps 2 --output_dir "$tmp/runs/shared" --save_grace 5
check "a link in place of what weights are written to goes" test "$code $(cat "$tmp/victim")" = "0 mine" -a -f "$tmp/runs/shared/model.safetensors"
check "  and is none of the results" test ! -L "$tmp/runs/shared/model.safetensors" -a ! -L "$tmp/runs/shared/.model.safetensors.tmp"
ln -sf "$tmp/victim" "$tmp/runs/trace.json"
launch --num_gpus 1 "$plugin" "${tiny[@]}" --max_steps 2 --trace "$tmp/runs/trace.json"
check "a link in place of a trace is replaced" test "$code $(cat "$tmp/victim")" = "0 mine" -a ! -L "$tmp/runs/trace.json"

ln -s "$tmp/scratch/of mine" "$tmp/runs/nowhere"
launch --num_gpus 1 "$plugin" "${tiny[@]}" --max_steps 2 --output_dir "$tmp/runs/nowhere"
check "a link to what is not there is no folder to be made: 73" code_is 73
check "  by its name" err_has "--output_dir $tmp/runs/nowhere: $tmp/runs/nowhere is a link to $tmp/scratch/of mine, which is not there"

launch_bg "$plugin" "${tiny[@]}" --max_steps 1000000 --save_strategy no --output_dir "$tmp/runs/none/of it"
out="$tmp/runs/none/of it"
within 30 stepping || fail "the run did not begin"
check "a run that saves nothing holds its folder too" held
kill -INT "$job"
gone "Ctrl-C"
wait "$job"
check "  and leaves none" test ! -e "$tmp/runs/none"

out=$tmp/runs/again
launch_bg --num_gpus 2 --max_restarts 1 "$plugin" "${tiny[@]}" --max_steps 400 --save_steps 100 --output_dir "$out"
within 30 stepping || fail "the run did not begin"
within 10 rank_pid 0 && kill -9 "$pid"
wait "$job"
code=$?
check "a restart has the folder of its job" code_is 0
check "  and was one" err_has "restart 1 of 1"
out=$tmp/runs/many
mkdir "$out"
for step in $(seq 1001 1017); do cp -r "$first" "$out/checkpoint-$step"; done
launch_bg --num_gpus 2 --max_restarts 1 "$plugin" "${tiny[@]}" --max_steps 4000 --save_steps 500 --output_dir "$out" --overwrite_output_dir
within 30 test -d "$out/checkpoint-500" || fail "nothing is saved"
within 10 rank_pid 0 && kill -9 "$pid"
wait "$job"
check "a restart finds its own checkpoint behind many of others" grep -q "^resumed: $out/checkpoint-[1-9][0-9]*00$" "$tmp/err"
out=$tmp/runs/again
launch --num_gpus 2 "$plugin" "${tiny[@]}" --max_steps 400 --save_steps 100 --output_dir "$out"
check "who comes back is told how to go on: 73" code_is 73
check "  before how to replace it" err_has "--resume_from_checkpoint auto goes on from the checkpoints beside it, --overwrite_output_dir replaces it"
launch --num_gpus 2 "$plugin" "${tiny[@]}" --max_steps 400 --save_steps 100 --output_dir "$out" --resume_from_checkpoint "$out/checkpoint-5"
check "a checkpoint that is none: 66" code_is 66
check "  and which there is" err_has "there is no checkpoint of that name; the newest in $out is checkpoint-400"
launch --num_gpus 2 "$plugin" "${tiny[@]}" --max_steps 400 --save_steps 100 --output_dir "$out" --resume_from_checkpoint run400
check "so is another name that ends in a step: 66" code_is 66
launch --num_gpus 2 "$plugin" "${tiny[@]}" --max_steps 400 --save_steps 100 --output_dir "$out" --resume_from_checkpoint auto
check "a run that is complete" code_is 0
check "  says so" err_has "all 400 steps are made already: a larger --max_steps goes on"
check "  and nothing of an earlier run" err_lacks "of an earlier run"
launch --num_gpus 2 "$plugin" "${tiny[@]}" --max_steps 300 --output_dir "$out" --resume_from_checkpoint auto
check "a run that is past its end" err_has "step 400 is past the 300 steps that were asked for: nothing is trained"
check "  counts the steps that its epochs are of" err_has "; 400 steps of "
launch --num_gpus 2 "$plugin" "${tiny[@]}" --max_steps 202 --output_dir "$out" --resume_from_checkpoint checkpoint-200
check "a run that goes on from an older checkpoint" code_is 0
check "  warns of the newer ones" err_has "$out has checkpoint-400 of an earlier run, and this one goes on from step 200"
launch --num_gpus 2 "$plugin" "${tiny[@]}" --max_steps 2 --output_dir "$out" --overwrite_output_dir
check "a run that begins anew beside checkpoints" code_is 0
check "  warns of them" err_has "$out has checkpoint-400 of an earlier run, and this one begins anew"
mkdir "$tmp/runs/beside"
cp -r "$out/checkpoint-400" "$tmp/runs/beside/checkpoint-100000000"
launch_bg --num_gpus 2 "$plugin" "${tiny[@]}" --max_steps 1000000 --save_steps 1000000 --output_dir "$tmp/runs/beside" --overwrite_output_dir
within 30 stepping || fail "the run did not begin"
kill -TERM "$job"
wait "$job"
code=$?
name=$(cd "$tmp/runs/beside" && ls -d checkpoint-? checkpoint-?? checkpoint-??? checkpoint-???? checkpoint-????? checkpoint-?????? 2>/dev/null)
check "one that is stopped there: 75" code_is 75
check "  is told the name of its own" err_has "; the training is saved: --resume_from_checkpoint $name goes on"
check "  by its rank as well" err_has "which is saved: --resume_from_checkpoint $name goes on"
for _ in $(seq 40); do cat /usr/share/common-licenses/GPL-3; done >"$tmp/long.txt"
launch_bg --num_gpus 2 "$plugin" "${tiny[@]}" --max_steps 1000000 --save_steps 1000000 --logging_steps 1 --do_train --do_eval --eval_file "$tmp/long.txt" \
    --eval_steps 2 --output_dir "$tmp/runs/evaluating"
within 30 err_has "step 2/1000000" || fail "the run did not begin"
sleep 0.2
kill -TERM "$job"
wait "$job"
code=$?
check "one that is stopped in an evaluation: 75" code_is 75
check "  evaluates" out_has "eval at step 2"
check "  and makes no step more" test "$(ls "$tmp/runs/evaluating" | grep checkpoint)" = checkpoint-2

# ---------------------------------------------------------------- what is not this training's stays
out=$tmp/runs/rotated
names() { (cd "$out" && echo checkpoint-*); }
rotated() { # rotated STEPS EVERY ARGS...
    launch --num_gpus 2 "$plugin" "${tiny[@]}" --max_steps "$1" --save_steps "$2" --save_total_limit 1 --output_dir "$out" "${@:3}"
}
mkdir -p "$out/checkpoint-1"
echo mine >"$out/checkpoint-1/notes.txt"
rotated 6 6 --overwrite_output_dir
check "a folder that is no checkpoint is not removed as an old one" test "$code $(names)" = "0 checkpoint-1 checkpoint-6"
check "  nor called one" err_lacks "of an earlier run"
rm "$out/model.safetensors"
rotated 4 2
check "checkpoints that are there: 73" code_is 73
check "  and what --overwrite_output_dir does with them" err_has "--resume_from_checkpoint auto goes on from them, --overwrite_output_dir begins anew beside them"
rotated 4 2 --overwrite_output_dir
check "one that begins anew removes its own checkpoints alone" test "$code $(names)" = "0 checkpoint-1 checkpoint-4 checkpoint-6"
check "  and says that others stay" err_has "$out has checkpoint-6 of an earlier run, and this one begins anew beside it: "
rotated 5 1 --resume_from_checkpoint checkpoint-4
check "one that goes on removes those of the run before it" test "$code $(names)" = "0 checkpoint-1 checkpoint-5 checkpoint-6"
check "  and what somebody keeps there is untouched" test "$(cat "$out/checkpoint-1/notes.txt")" = mine

# ---------------------------------------------------------------- checkpoints of another program, or of another user
out=$tmp/runs/trainer
for step in 3 6; do
    mkdir -p "$out/checkpoint-$step"
    (cd "$out/checkpoint-$step" && echo '{}' | tee config.json trainer_state.json >optimizer.pt && : >model.safetensors)
done
for how in auto true; do
    launch --num_gpus 2 "$plugin" "${tiny[@]}" --max_steps 2 --output_dir "$out" --resume_from_checkpoint $how
    check "--resume_from_checkpoint $how where another program saved: 66" code_is 66
    check "  by what it saved" err_has "--resume_from_checkpoint $how: $out/checkpoint-6 is none of zlaunch; it is one of transformers' Trainer, of which the weights alone are read: --model_name_or_path begins a new training from them"
    check "  and nothing is called damaged" err_lacks "whole"
done
for how in "$out/checkpoint-3" checkpoint-3 3; do
    launch --num_gpus 1 "$plugin" "${tiny[@]}" --max_steps 2 --output_dir "$out" --resume_from_checkpoint "$how"
    check "one of them by its name, ${how#"$out/"}: 66" code_is 66
    check "  likewise" err_has "--resume_from_checkpoint $how: that is none of zlaunch; it is one of transformers' Trainer"
done
launch --num_gpus 1 "$plugin" "${tiny[@]}" --max_steps 2 --output_dir "$out" --resume_from_checkpoint checkpoint-9
check "of a name that there is not none of them is offered" err_has "--resume_from_checkpoint checkpoint-9: there is no checkpoint of that name, nor one in that folder"
launch --num_gpus 1 "$plugin" "${tiny[@]}" --max_steps 2 --output_dir "$tmp/runs/other" --resume_from_checkpoint "$out"
check "their folder beside another --output_dir: 66" code_is 66
check "  likewise" err_has "$out/checkpoint-6 is none of zlaunch; it is one of transformers' Trainer"
check "  and nothing is called damaged" err_lacks "whole"
: >"$out/model.safetensors"
launch --num_gpus 2 "$plugin" "${tiny[@]}" --max_steps 2 --output_dir "$out"
check "another program's model: 73" code_is 73
check "  and its checkpoints are none to go on from" err_has "$out/model.safetensors is there already; --overwrite_output_dir replaces it"
out=$tmp/runs/copied # without the folder of its state
launch --num_gpus 2 "$plugin" "${tiny[@]}" --max_steps 2 --save_steps 2 --output_dir "$out"
mv "$out/checkpoint-2/latest" "$tmp/latest"
for how in "$out/checkpoint-2" checkpoint-2 true; do
    launch --num_gpus 2 "$plugin" "${tiny[@]}" --max_steps 3 --output_dir "$out" --resume_from_checkpoint "$how"
    check "one without its file latest, ${how#"$out/"}: 66" code_is 66
    check "  is told by what name it can be read" err_has "its file \`latest\` is missing, or names what is not there; global_step2 is: name the folder $out/checkpoint-2/global_step2"
done
mv "$tmp/latest" "$out/checkpoint-2/latest"
rm -r "$out/checkpoint-2/global_step2"
for how in "$out/checkpoint-2" checkpoint-2 auto; do
    launch --num_gpus 2 "$plugin" "${tiny[@]}" --max_steps 3 --output_dir "$out" --resume_from_checkpoint "$how"
    check "one that was not copied whole, ${how#"$out/"}: 66" code_is 66
    check "  is none of another program" err_has "there is no checkpoint global_step2"
done
rm -r "$out/checkpoint-2"
launch --num_gpus 2 "$plugin" "${tiny[@]}" --max_steps 1 --save_steps 1 --output_dir "$out" --overwrite_output_dir
for part in latest global_step2/manifest.json; do
    launch --num_gpus 2 "$plugin" "${tiny[@]}" --max_steps 2 --save_steps 1 --output_dir "$out" --resume_from_checkpoint checkpoint-1
    rm "$out/checkpoint-2/$part"
    launch --num_gpus 2 "$plugin" "${tiny[@]}" --max_steps 2 --save_steps 1 --output_dir "$out" --resume_from_checkpoint auto
    check "one without $part is passed over" code_is 0
    check "  and saved anew" test -f "$out/checkpoint-2/$part"
done
rm -r "$out/checkpoint-2"
mkdir "$out/checkpoint-2"
echo mine >"$out/checkpoint-2/notes.txt"
for how in checkpoint-1/ auto; do
    launch --num_gpus 2 "$plugin" "${tiny[@]}" --max_steps 2 --save_steps 1 --output_dir "$out" --resume_from_checkpoint "$how"
    check "a folder of a name to come, from $how: 73" code_is 73
    check "  is named" err_has "$out/checkpoint-2 is none of zlaunch, and a checkpoint of step 2 would replace it"
    check "  and left as it is" grep -q mine "$out/checkpoint-2/notes.txt"
done
for step in $(seq 101 117); do mkdir "$out/checkpoint-$step" && echo mine >"$out/checkpoint-$step/notes.txt"; done
launch --num_gpus 2 "$plugin" "${tiny[@]}" --max_steps 2 --save_steps 1 --output_dir "$out" --resume_from_checkpoint checkpoint-1
check "so is one behind many of later steps: 73" code_is 73
check "  and left as it is" grep -q mine "$out/checkpoint-2/notes.txt"
out=$tmp/runs/named
mkdir -p "$out" && : >"$out/checkpoint-4"
launch --num_gpus 2 "$plugin" "${tiny[@]}" --max_steps 2 --output_dir "$out" --resume_from_checkpoint auto
check "a file of a checkpoint's name is none" code_is 0
check "  training begins" err_has "there is no checkpoint in $out: training begins with step 1"
# a file, or a link, of the name of one to come
out=$tmp/runs/taken
mkdir -p "$out" && ln -s nowhere "$out/checkpoint-1" && : >"$out/checkpoint-2"
for step in 1 2; do
    launch --num_gpus 2 "$plugin" "${tiny[@]}" --max_steps 2 --save_steps 1 --output_dir "$out"
    check "what is no folder and has the name of a checkpoint to come: 73" code_is 73
    check "  is named" err_has "$out/checkpoint-$((3 - step)) is none of zlaunch, and a checkpoint of step $((3 - step)) would replace it"
    rm "$out/checkpoint-$((3 - step))"
done
cp -r "$tmp/runs/rotated/checkpoint-5" "$tmp/linked" && ln -s "$tmp/linked" "$out/checkpoint-1" && : >"$out/checkpoint-2"
launch --num_gpus 2 "$plugin" "${tiny[@]}" --max_steps 2 --save_steps 1 --output_dir "$out" --overwrite_output_dir
check "  is replaced where that is asked for" code_is 0
check "    by checkpoints" test -f "$out/checkpoint-1/latest" -a -f "$out/checkpoint-2/latest" -a ! -L "$out/checkpoint-1"
check "    and what a link leads to stays" test -f "$tmp/linked/latest"
out=$tmp/runs/closed
mkdir -p "$out" && cp -r "$tmp/runs/rotated/checkpoint-5" "$out" && chmod 777 "$out"
chmod 711 "$tmp" "$tmp/runs" && chmod 644 "$tmp/text.txt"
if [ "$(id -u)" -eq 0 ] && setpriv --reuid 65534 --regid 65534 --clear-groups "$bin/zckpt" verify "$out/checkpoint-5" >/dev/null 2>&1; then
    chmod 700 "$out/checkpoint-5"
    setpriv --reuid 65534 --regid 65534 --clear-groups "$bin/zworker" "$plugin" "${tiny[@]}" --max_steps 6 --output_dir "$out" \
        --resume_from_checkpoint checkpoint-5 >"$tmp/o" 2>&1
    check "a checkpoint by name that may not be read: 66" test $? -eq 66
    check "  by the reason" grep -q -- "--resume_from_checkpoint checkpoint-5: Permission denied" "$tmp/o"
else
    echo "skip - no other user can read what is tested here"
fi
chmod 700 "$tmp"

# ---------------------------------------------------------------- another's model
out=$tmp/runs/other
mkdir -p "$tmp/words"
seq 1 4000 >"$tmp/words/text.txt"
launch --num_gpus 1 "$plugin" --n_layer 1 --n_head 1 --n_embd 16 --block_size 16 --train_file "$tmp/words/text.txt" --train_tokenizer 300 \
    --max_steps 1 --output_dir "$out"
check "a model with a tokenizer" test "$code" -eq 0 -a -s "$out/tokenizer.json"
before=$(sha256sum <"$out/model.safetensors")
cp "$out"/tokenizer* "$tmp/words"
launch --num_gpus 2 "$plugin" "${tiny[@]}" --max_steps 2 --output_dir "$out" --resume_from_checkpoint auto
check "to go on from a checkpoint replaces no model that stands without one: 73" code_is 73
check "  and says what would" err_has "--resume_from_checkpoint auto: there is no checkpoint, and $out has weights alone: a training from them begins by --model_name_or_path $out, with another --output_dir"
for what in true checkpoint-2 "$tmp/runs/nowhere"; do
    launch --num_gpus 2 "$plugin" "${tiny[@]}" --max_steps 2 --output_dir "$out" --resume_from_checkpoint "$what"
    check "  nor from ${what##*/}, where there is none: 66" code_is 66
    check "  likewise" err_has "--resume_from_checkpoint $what: there is no checkpoint, and $out has weights alone"
done
launch --num_gpus 2 "$plugin" "${tiny[@]}" --max_steps 2 --output_dir "$out" --resume_from_checkpoint "$tmp/runs/again/checkpoint-200"
check "  nor from one of another folder: 73" code_is 73
check "  it is whole" test "$before" = "$(sha256sum <"$out/model.safetensors")"
mkdir "$out/checkpoint-best" "$out/checkpoint-4"
: >"$out/checkpoint-7"
for from in auto "$tmp/runs/again/checkpoint-200"; do
    launch --num_gpus 2 "$plugin" "${tiny[@]}" --max_steps 2 --output_dir "$out" --resume_from_checkpoint "$from"
    check "  nor beside names that are no checkpoints: 73" code_is 73
    check "  it is not replaced" test "$before" = "$(sha256sum <"$out/model.safetensors")"
done
cp -r "$tmp/runs/rotated/checkpoint-5" "$out"
launch --num_gpus 2 "$plugin" "${tiny[@]}" --max_steps 202 --output_dir "$out" --resume_from_checkpoint "$tmp/runs/again/checkpoint-200"
check "  nor beside checkpoints of another training: 73" code_is 73
check "  which are named" err_has "--resume_from_checkpoint auto goes on from the checkpoints beside it, --overwrite_output_dir replaces it"
check "  it is not replaced" test "$before" = "$(sha256sum <"$out/model.safetensors")"
rm -r "$out"/checkpoint-*
echo '{}' | tee "$out/predictions.jsonl" "$out/predict_results.json" >"$out/eval_results.json"
launch --num_gpus 2 "$plugin" "${tiny[@]}" --max_steps 2 --output_dir "$out" --overwrite_output_dir
check "what replaces it" code_is 0
check "  takes its results away" test ! -e "$out/eval_results.json" -a ! -e "$out/predictions.jsonl" -a ! -e "$out/predict_results.json"
check "  and says so" err_has "$out/eval_results.json is removed: it was of the weights that are replaced"
check "  takes its tokenizer away" test ! -e "$out/tokenizer.json" -a ! -e "$out/tokenizer_config.json"
cp "$tmp/text.txt" "$out/predictions.jsonl"
launch --num_gpus 1 "$plugin" "${tiny[@]}" --train_file "$out/predictions.jsonl" --data_format text --max_steps 2 --output_dir "$out" --overwrite_output_dir
check "  but no file that is learnt from" test "$code" -eq 0 -a -e "$out/predictions.jsonl"
launch --num_gpus 1 "$plugin" --model_name_or_path "$out" --tokenizer_name "$tmp/words" --eval_file "$tmp/words/text.txt"
check "a tokenizer that is not the model's: 65" code_is 65
check "  is called that" err_has "the tokenizer is not the one of the model"
launch --num_gpus 1 "$plugin" --model_name_or_path "$out" --tokenizer_name "$tmp/words" --prompt "1000 2000 3000" --max_new_tokens 2
check "  and for a prompt" err_has "so the tokenizer is not the one of the model"

# ---------------------------------------------------------------- a folder that goes away under a run
out=$tmp/runs/moved
long=("$plugin" "${tiny[@]}" --max_steps 1000000 --save_steps 50 --save_total_limit 2 --output_dir "$out")
saved() { compgen -G "$out/checkpoint-*" >/dev/null; }
launch_bg --num_gpus 1 "${long[@]}"
within 30 saved || fail "nothing was saved"
mv "$out" "$tmp/runs/away"
within 30 saved || fail "nothing was saved after the folder went"
check "a folder that is moved away is made again, which is said" err_has "$out was moved away or removed: what is saved from here on is in a new folder of that name"
check "  with its lock" test -e "$out/.zlaunch.lock"
"$bin/zlaunch" --num_gpus 1 "${long[@]}" --overwrite_output_dir >/dev/null 2>"$tmp/second"
check "  so that another run is refused: 73" test $? -eq 73
check "  by name" grep -q "is running with this folder: give another one" "$tmp/second"
rm "$out/.zlaunch.lock"
locked() { [ -e "$out/.zlaunch.lock" ]; }
within 30 locked || fail "the lock was not made again"
check "a lock that is removed is made again, which is said" within 10 err_has "$out: its .zlaunch.lock was removed, and is made again"
mkdir "$tmp/runs/foreign" && cp -r "$tmp/runs/rotated/checkpoint-5" "$tmp/runs/foreign"
within 10 rank_pid 0 && kill -STOP "$pid" # else it may make the folder again between the two
mv "$out" "$tmp/runs/away2" && mv "$tmp/runs/foreign" "$out"
kill -CONT "$pid"
refused_there() { err_has "another with checkpoints or a model is in its place: nothing is saved over these"; }
within 30 refused_there || fail "another folder was not noticed"
kill -TERM "$job"
wait "$job"
check "another run's folder in its place is left alone" test "$(ls -A "$out")" = checkpoint-5

# ---------------------------------------------------------------- files may not be longer than so many KiB
(ulimit -f 200 && "$bin/zworker" "$plugin" "${tiny[@]}" --n_embd 128 --max_steps 2 --save_strategy no --output_dir "$tmp/runs/short" >"$tmp/o" 2>&1)
check "weights longer than a file may be: 73" test $? -eq 73
check "  by the reason" grep -q "runs/short/model.safetensors: cannot write: File too large" "$tmp/o"
check "  and nothing is left" test ! -e "$tmp/runs/short"

# ---------------------------------------------------------------- ended at any moment of its start
empty=0
for ms in $(seq 5 3 62); do
    "$bin/zworker" "$plugin" "${tiny[@]}" --max_steps 1000000 --save_steps 1000000 --output_dir "$tmp/runs/soon" >"$tmp/o" 2>&1 &
    sleep "$(printf '0.%03d' "$ms")"
    kill -TERM $!
    wait $!
    [ -n "$(find "$tmp/runs/soon" -name '*.safetensors' 2>/dev/null)" ] || [ ! -e "$tmp/runs/soon" ] || empty=$((empty + 1))
    rm -rf "$tmp/runs/soon"
done
check "a rank that ends while it starts leaves no folder" test "$empty" -eq 0

# ---------------------------------------------------------------- a folder comes to the name of a step to be saved
out=$tmp/runs/names
launch_bg --num_gpus 2 "$plugin" "${tiny[@]}" --max_steps 3000 --save_steps 3000 --output_dir "$out"
within 30 stepping || fail "the run did not begin"
mkdir "$out/checkpoint-3000" && echo mine >"$out/checkpoint-3000/notes.txt"
wait "$job"
code=$?
check "a folder that came to the name of a step: 73" code_is 73
check "  is named" err_has "$out/checkpoint-3000 is none of zlaunch, and is not replaced: move it away"
check "  and left as it is" grep -q mine "$out/checkpoint-3000/notes.txt"

# ---------------------------------------------------------------- stopped by another zlaunch
out=$tmp/runs/told
launch_bg --num_gpus 2 "$plugin" "${tiny[@]}" --max_steps 1000000 --save_steps 1000000 --output_dir "$out"
within 30 stepping || fail "the run did not begin"
id=$(sed -n 's/^[0-9]* [^ ]* //p' "$out/.zlaunch.lock")
"$zlaunch" --ctl "$id" stop >/dev/null 2>&1
wait "$job"
code=$?
check "--ctl stop of a run that saves: 75" code_is 75
check "  and a checkpoint" sh -c "ls -d '$out'/checkpoint-* >/dev/null"
check "  by no signal that nobody sent" err_lacks SIGTERM

# ---------------------------------------------------------------- SIGTERM in the pause before a restart
stop_in_pause() { # stop_in_pause ARGS...: killed until the pause is long, then told to stop
    rm -rf "$out"
    launch_bg --num_gpus 1 --max_restarts 9 "$plugin" "${tiny[@]}" --logging_steps 1000 --max_steps 1000000 "$@"
    within 30 stepping || fail "the run did not begin"
    [ "${1:-}" != --save_steps ] || within 30 err_has "saved: $out/checkpoint-$2" || fail "nothing was saved"
    for again in 1 2 3 4 5 6; do
        within 30 rank_pid 0 && kill -9 "$pid"
        within 30 err_has "restart $again of 9" || fail "no restart came"
    done
    kill -TERM "$job"
    wait "$job"
    code=$?
    check "  which ends it: no rank is started again" test "$(grep -c 'restart 6 of 9 in 3.2 s' "$tmp/err") $(grep -c 'restart 7' "$tmp/err")" = "1 0"
}
out=$tmp/runs/pause
stop_in_pause --save_steps 50 --save_total_limit 100000 --output_dir "$out"
check "SIGTERM in the pause before a restart, with a checkpoint: 75" code_is 75
check "  and the way on" err_has "stopped by SIGTERM (terminated); the training is saved: --resume_from_checkpoint auto goes on"
stop_in_pause
check "  without one: 143" code_is 143
check "  by its name" err_has "error: stopped by SIGTERM (terminated)"

# ---------------------------------------------------------------- SIGUSR1
out=$tmp/runs/usr1
launch_bg --num_gpus 2 "$plugin" "${tiny[@]}" --max_steps 1000000 --save_steps 1000000 --output_dir "$out"
within 30 stepping || fail "the run did not begin"
kill -USR1 "$job"
gone_in_order() { ! kill -0 "$job" 2>/dev/null; }
within 30 gone_in_order || fail "it did not end"
wait "$job"
code=$?
check "SIGUSR1 to a run that saves: 75" code_is 75
check "  says what it asks for" err_has "SIGUSR1 asks for a checkpoint after the step at hand, and the end"
check "  and what was done" err_has "; the training is saved: --resume_from_checkpoint auto goes on"
check "  without a word of failure" sh -c "! grep -qi 'error\|failed\|exited with' '$tmp/err'"
check "  and saves" sh -c "ls -d '$out'/checkpoint-* >/dev/null"

# from the first moment on, to zlaunch and to each rank that there is
early() { # early ARGS...: signals while it starts
    local until
    launch_bg --num_gpus 2 --max_restarts 3 "$plugin" "${tiny[@]}" "$@"
    until=$((SECONDS + 30))
    while ! stepping && kill -0 "$job" 2>/dev/null && [ $SECONDS -lt $until ]; do
        for rank in 0 1; do rank_pid $rank && grep -qsz '^RANK=' "/proc/$pid/environ" && kill -USR1 "$pid" 2>/dev/null; done
        # before main() nothing keeps it from zlaunch: once it has a child
        [ "${1:-}" != --output_dir ] || [ -z "$(children "$job")" ] || kill -USR1 "$job" 2>/dev/null
    done
    [ "${1:-}" != --output_dir ] || kill -USR1 "$job" # it may have been too fast for the others
    wait "$job"
    code=$?
}
early --output_dir "$tmp/runs/early" --max_steps 1000000 --save_steps 1000000
check "SIGUSR1 before training waits for it: 75" code_is 75
check "  kills nobody, and starts nobody again" err_lacks restart
check "  and is answered by a checkpoint" sh -c "ls -d '$tmp/runs/early'/checkpoint-* >/dev/null"
early --max_steps 3
check "SIGUSR1 to a run that saves nothing changes nothing" code_is 0
check "  and it goes to its end" err_has "step 3/3"
launch_bg --num_gpus 2 "$plugin" "${tiny[@]}" --max_steps 1000000
within 30 stepping || fail "the run did not begin"
kill -USR1 "$job"
check "  which is said" within 10 err_has "SIGUSR1 asks for a checkpoint, but this run saves none (--save_steps): it goes on"
kill -USR2 "$job"
check "SIGUSR2 means nothing, and that is said" within 10 err_has "SIGUSR2 means nothing to a plugin: it goes on"
check "  the run goes on" kill -0 "$job"
kill -TERM "$job"
wait "$job"
code=$?
check "  until it is told to stop" code_is 143
launch_bg "$plugin" --n_layer 1 --n_head 1 --n_embd 16 --block_size 16 --tokenizer_name bytes --prompt a --generate_tokens 1000000
check "a run that only writes begins" within 30 err_has "sample:"
kill -USR1 "$job"
check "  and SIGUSR1 to it waits for nothing" within 10 err_has "SIGUSR1 asks for a checkpoint, but this run trains nothing: it goes on"
kill -TERM "$job"
wait "$job"
code=$?
check "  it goes on until it is told to stop" code_is 143
finish
