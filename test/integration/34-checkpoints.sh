#!/bin/bash
# A resumed run is the unbroken one, bit by bit: 10 steps = 4, a checkpoint, 6 more, with
# dropout, in the middle of an epoch, in each stage and dtype; and what is saved at some
# world size and stage opens at any other with the same bits. By default a sample of the
# combinations that ZT_SEED chooses; test/soak/resumes.sh runs them all.
. "$(dirname "$0")/train_lib.sh"
corpus >/dev/null
seed=${ZT_SEED:-1}
echo "# ZT_SEED=$seed"
RANDOM=$seed

# Every other seed keeps the optimizer's state of stages 2 and 3 on the host and in files.
. test/integration/checkpoint_lib.sh
tier=(none none none none) optimizers=(adam adamw)
[ $((seed % 2)) -eq 0 ] || tier=(none none cpu nvme)
for s in 0 1 2 3; do
    for d in fp32 bf16 fp16; do
        config $s.$d $s $d "${tier[s]}"
    done
done

dtypes=(fp32 bf16 fp16)
for s in 0 1 2 3; do
    d=${dtypes[(s + seed) % 3]} o=${optimizers[(s + seed) % 2]}
    config one.$s $s $d "${tier[s]}" none $o
    check "2 ranks at stage $s in $d with $o go on as if never stopped" resumes 2 one.$s
done
for to in 1 2 4; do
    s=$(((seed + to) % 4))
    check "4 ranks at stage 3 open with $to at stage $s, and these with 4" moves 4 3.bf16 "$to" $s.bf16
    check "... and the reverse" moves "$to" $s.bf16 4 3.bf16
done
check "1 rank goes on with the losses of 4" continues 4 3.fp32 1 $((seed % 4)).fp32

# saved with state in one place, opened with it in another; test/soak/places.sh takes all pairs
for p in "${places[@]}"; do
    IFS=. read -r s optimizer weights <<<"$p"
    config "$p" "$s" bf16 "$optimizer" "$weights"
done
kept=("${places[RANDOM % 9]}" "${places[9 + RANDOM % 16]}" "${places[RANDOM % 25]}")
kept+=(3.nvme.both) # weights on the host and in files at once
for i in 0 1 2 3; do
    from=${kept[i]} to=${kept[(i + 1) % 4]}
    check "2 ranks with state as $from go on with $to as if never stopped" goes_on 2 "$from" "$to" --reduce_every_micro_batch
    check "  and $((2 - i % 2)) open it as $to" moves 4 "$from" $((2 - i % 2)) "$to"
done

# killed: a rank of a job with restarts, the whole of one without, one that is told to stop
long() { # long OUT DIR ARGS...: 60 steps
    local out=$1 dir=$2
    shift 2
    train 2 "$out" --max_steps 60 --save_steps 5 --save_total_limit 2 --fingerprint_steps 1 \
        --output_dir "$dir" "$@"
}
last_bits() { numbers "$1" | tail -n 1; }
is_saved() { grep -q '"event":"saved".*"step":5[,}]' "$1"; }
wait_until() { for _ in $(seq 6000); do "$@" 2>/dev/null && return; sleep 0.01; done; return 1; }
pid_of() { sed -n 's/.*"event":"started".*"rank":'"$2"',.*"pid":\([0-9]*\).*/\1/p; s/.*"event":"started".*"pid":\([0-9]*\).*"rank":'"$2"'[,}].*/\1/p' "$1" | tail -n 1; }
# stopped OUT DIR SIGNAL: begin it, and send the signal to rank 1 or to zlaunch after step 5
long "$tmp/long" "$tmp/long.dir"
check "60 steps, without a stop" [ "$(numbers "$tmp/long" | wc -l)" -eq 60 ]
check "only the 2 newest are kept" [ "$(ls -d "$tmp"/long.dir/checkpoint-*)" = "$tmp/long.dir/checkpoint-55
$tmp/long.dir/checkpoint-60" ]

# all steps are made: what is there is not written again, elsewhere it is
inode() { stat -c %i "$1"/global_step*/manifest.json; }
before=$(inode "$tmp/long.dir/checkpoint-60")
long "$tmp/again" "$tmp/long.dir" --resume_from_checkpoint auto --eval_file "$tmp/corpus.txt" --do_eval --max_eval_samples 8
check "a run with no step left ends well" [ $? -eq 0 ]
check "  evaluates" [ "$(grep -c '"event":"eval"' "$tmp/again")" -eq 1 ]
check "  and does not save its checkpoint again" [ "$(inode "$tmp/long.dir/checkpoint-60")" = "$before" ]
long "$tmp/again" "$tmp/elsewhere.dir" --resume_from_checkpoint "$tmp/long.dir/checkpoint-60"
check "  but has one in another folder" test -e "$tmp/elsewhere.dir/checkpoint-60"

# what differs is said: values that nobody has written as what they are, and another model by its options
train 2 "$tmp/values" --max_steps 60 --weight_decay 0.5 --output_dir "$tmp/elsewhere.dir" --resume_from_checkpoint "$tmp/long.dir/checkpoint-60"
check "another value is said" grep -q 'with another value: optimizer.params.weight_decay: 0.5, was 0"' "$tmp/values"
train 2 "$tmp/values" --max_steps 60 --deepspeed '{"zero_optimization": {"stage": 3}}' --output_dir "$tmp/elsewhere.dir" --resume_from_checkpoint "$tmp/long.dir/checkpoint-60"
check "  and what is none of the user's" grep -q 'with another value: zero_optimization.overlap_comm: true (default), was false"' "$tmp/values"
train 2 "$tmp/values" --max_steps 60 --n_layer 1 --output_dir "$tmp/elsewhere.dir" --resume_from_checkpoint "$tmp/long.dir/checkpoint-60"
check "another model is refused by what differs" \
    grep -q "\"text\":\"$tmp/long.dir/checkpoint-60: the checkpoint's model has n_layer 2, this one 1\"" "$tmp/values"
"$bin/zlaunch" --num_gpus 1 "$bin/models/llama.so" --hidden_size 16 --num_hidden_layers 1 --num_attention_heads 2 --num_key_value_heads 2 \
    --intermediate_size 32 --block_size 16 --train_file "$tmp/corpus.txt" --max_steps 60 --output_dir "$tmp/elsewhere.dir" \
    --resume_from_checkpoint "$tmp/long.dir/checkpoint-60" >"$tmp/values" 2>&1
check "  and another plugin by its name" grep -q "checkpoint-60: the checkpoint is of the plugin gpt2, not of llama" "$tmp/values"

# passes over the data end where they end, whatever rows are cut, and rows have the order that is said
epoch() { # epoch OUT DIR ARGS...
    local out=$1 dir=$2
    shift 2
    train 2 "$out" --num_train_epochs 1 --save_strategy no --output_dir "$dir" --fingerprint_steps 1 "$@"
}
steps_of() { sed -n 's/.*"event":"step",.*"step":\([0-9]*\),.*/\1/p' "$1" | tail -n 1; }
max_steps_of() { sed -n 's/.*"max_steps": *\([0-9]*\).*/\1/p' "$1"/trainer_state.json; }
epoch "$tmp/whole" "$tmp/whole.dir"
all=$(steps_of "$tmp/whole")
epoch "$tmp/part" "$tmp/part.dir" --save_strategy steps --save_steps $((all / 2))
mkdir "$tmp/middle.dir" && mv "$tmp/part.dir/checkpoint-$((all / 2))" "$tmp/middle.dir"
for how in "16 2" "8 4"; do
    cp -r "$tmp/middle.dir" "$tmp/cut.dir"
    epoch "$tmp/cut" "$tmp/cut.dir" --block_size "${how% *}" --resume_from_checkpoint auto --save_strategy epoch
    want=$(awk -v all="$all" -v by="${how#* }" 'BEGIN { h = int(all / 2); print h + (all - h) * by }')
    got=$(steps_of "$tmp/cut")
    check "rows of ${how% *} end the epoch that rows of 32 began: step $got of about $want" \
        awk -v a="$got" -v b="$want" 'BEGIN { exit !(a - b < 5 && b - a < 5) }'
    check "  and it is said" grep -q "an epoch has [0-9]* rows now, and had [0-9]*: it goes on behind the same share" "$tmp/cut"
    check "  max_steps is that number" [ "$(max_steps_of "$tmp/cut.dir/checkpoint-$got")" = "$got" ]
    check "  and an epoch is one" awk -F '[:,]' '/"epoch"/ { e = $2 } END { exit !(e >= 1 && e < 1.1) }' "$tmp/cut.dir/checkpoint-$got/trainer_state.json"
    rm -rf "$tmp/cut.dir"
done
epoch "$tmp/dropped" "$tmp/dropped.dir" --save_strategy epoch --dataloader_drop_last --gradient_accumulation_steps 3
got=$(steps_of "$tmp/dropped")
check "with rows left out an epoch is one as well" grep -q '"epoch": 1.0,' "$tmp/dropped.dir/checkpoint-$got/trainer_state.json"
check "  also where the run begins" grep -q "; $got steps of .* tokens, 1 epochs of" "$tmp/dropped" "$tmp/dropped.err"
for how in "--seed 1" "--data_seed 1"; do
    cp -r "$tmp/middle.dir" "$tmp/cut.dir"
    # shellcheck disable=SC2086
    epoch "$tmp/order" "$tmp/cut.dir" $how --resume_from_checkpoint auto
    if [ "$how" = "--seed 1" ]; then
        check "$how leaves the order of rows" [ "$(last_bits "$tmp/order")" = "$(last_bits "$tmp/whole")" ]
        check "  and it is said" grep -q "in the order of the checkpoint's seed 7; --data_seed gives them another" "$tmp/order"
    else
        check "$how gives rows another order" [ "$(last_bits "$tmp/order")" != "$(last_bits "$tmp/whole")" ]
        check "  and it is said" grep -q "in the order of --data_seed 1 from here, before in that of 7: of this epoch" "$tmp/order"
    fi
    rm -rf "$tmp/cut.dir"
done

head -c 20000 "$tmp/corpus.txt" >"$tmp/other.txt"
train 2 "$tmp/values" --max_steps 60 --train_file "$tmp/other.txt" --output_dir "$tmp/long.dir" --resume_from_checkpoint auto
check "other data are refused as that, not as checkpoints that are damaged" \
    grep -q '"text":"[^"]*checkpoint-60: the position belongs to other training data .*--model_name_or_path' "$tmp/values"
check "  at the first" sh -c "! grep -q 'passed over' '$tmp/values'"
check "  and not as rows of another length" sh -c "! grep -q 'an epoch has' '$tmp/values'"

# the best: the last evaluation comes before the last save
best() { # best OUT ARGS...: 8 steps, evaluated after 3, 6 and 8
    local out=$1
    shift
    train 2 "$out" --max_steps 8 --do_eval --eval_steps 3 --max_eval_samples 8 --save_strategy best --save_total_limit 1 \
        --output_dir "$out.dir" "$@"
}
kept() { (cd "$1.dir" && echo checkpoint-*); }
best "$tmp/falling"
check "the best is the last: it alone is kept" [ "$(kept "$tmp/falling")" = checkpoint-8 ]
check "  and each step is evaluated once" [ "$(grep -c '"event":"eval"' "$tmp/falling")" -eq 3 ]
best "$tmp/rising" --learning_rate 3 --lr_scheduler_type constant
check "the last is not the best: it is not saved" [ "$(kept "$tmp/rising")" = checkpoint-3 ]

: >"$tmp/restart"
zlaunch_restarts() {
    "$bin/zlaunch" --num_gpus 2 --max_restarts 1 --log_format json "$bin/models/gpt2.so" \
        --n_layer 2 --n_head 2 --n_embd 32 --block_size 32 --train_file "$tmp/corpus.txt" \
        --do_train --logging_steps 1 --learning_rate 1e-3 --seed 7 --max_steps 60 --save_steps 5 \
        --fingerprint_steps 1 --output_dir "$tmp/restart.dir" >"$tmp/restart" 2>"$tmp/restart.err"
}
zlaunch_restarts &
job=$!
check "a rank is killed after a checkpoint" wait_until is_saved "$tmp/restart"
kill -9 "$(pid_of "$tmp/restart" 1)"
wait "$job"
check "--max_restarts goes on from the newest" [ $? -eq 0 ]
check "  says so" grep -q '"event":"resumed"\|"step":60,' "$tmp/restart"
check "  and ends with the bits of an unbroken run" \
    [ "$(last_bits "$tmp/restart")" = "$(last_bits "$tmp/long")" ]

long "$tmp/told" "$tmp/told.dir" &
job=$!
wait_until is_saved "$tmp/told"
pkill -TERM -P "$job" zlaunch || kill -TERM "$(pgrep -P "$job")"
wait "$job"
code=$?
if [ "$(numbers "$tmp/told" | wc -l)" -lt 60 ]; then
    check "SIGTERM: the step at hand is saved, exit code 75" [ $code -eq 75 ]
    long "$tmp/told" "$tmp/told.dir" --resume_from_checkpoint true
    check "  and a run that goes on ends with the same bits" \
        [ "$(last_bits "$tmp/told")" = "$(last_bits "$tmp/long")" ]
fi

# srun ends the other ranks when the first has gone: what has saved says so all the same
hunted() {
    local pid
    "$bin/zworker" "$bin/models/gpt2.so" --n_layer 2 --n_head 2 --n_embd 32 --block_size 32 --train_file "$tmp/corpus.txt" \
        --do_train --max_steps 100000 --logging_steps 1 --save_steps 100000 --output_dir "$tmp/hunted.dir" >"$tmp/hunted" 2>&1 &
    pid=$!
    wait_until grep -q '^step 2/' "$tmp/hunted"
    kill -TERM $pid
    wait_until grep -q 'stopped by SIGTERM after step' "$tmp/hunted"
    while kill -TERM $pid 2>/dev/null; do :; done
    wait $pid
    [ $? -eq 75 ]
}
check "SIGTERM to a rank that has saved and is about to end changes nothing" hunted

# a step takes longer than --grace, which is for programs that save nothing
times_out() { # times_out SECONDS ARGS...
    local seconds=$1
    shift
    rm -rf "$tmp/timeout.dir"
    "$bin/zlaunch" --timeout "$seconds" --grace 0.01 --num_gpus 1 --log_format json "$bin/models/gpt2.so" --n_layer 2 --n_head 2 --n_embd 64 \
        --block_size 64 --train_file "$tmp/corpus.txt" --max_steps 1000000 --per_device_train_batch_size 4 --gradient_accumulation_steps 100 \
        --save_steps 1000000 --output_dir "$tmp/timeout.dir" "$@" >"$tmp/timeout" 2>"$tmp/timeout.err"
}
times_out 4
check "--timeout: 124, after the step at hand" [ $? -eq 124 ]
check "  which is saved" grep -q "\"event\":\"saved\"" "$tmp/timeout"
times_out 2 --save_grace 7200
check "  in whatever time --save_grace gives" grep -q "\"event\":\"saved\"" "$tmp/timeout"
SLURM_JOB_END_TIME=$(($(date +%s) + 40000)) times_out 2
check "  or Slurm leaves" grep -q "\"event\":\"saved\"" "$tmp/timeout"

# its weights alone: a step with the rate 0 changes nothing
train 1 "$tmp/weights" --model_name_or_path "$tmp/long.dir/checkpoint-55" --max_steps 1 \
    --learning_rate 0 --fingerprint_steps 1
check "--model_name_or_path takes the weights of a checkpoint" \
    [ "$(field fingerprint "$tmp/weights")" = "$(field fingerprint "$tmp/long" | sed -n 55p)" ]

# gathered: another program finds a model there, the same as at the end of the run
mkdir "$tmp/hf" && cp "$tmp/long.dir"/{config.json,model.safetensors} "$tmp/hf" && "$bin/ztok" --train 257 "$tmp/corpus.txt" --out "$tmp/hf" >"$tmp/ztok" 2>&1
echo a >"$tmp/hf/spm.model" # as DeBERTa's have beside tokenizer.json
echo '{"train_batch_size": 2, "bf16": {"enabled": true}, "zero_optimization":
    {"stage": 3, "stage3_gather_16bit_weights_on_model_save": true}}' >"$tmp/gather.json"
train 2 "$tmp/gather" --deepspeed "$tmp/gather.json" --model_name_or_path "$tmp/hf" --max_steps 1 --save_steps 1 \
    --per_device_train_batch_size 1 --output_dir "$tmp/gather.dir"
there=$tmp/gather.dir/checkpoint-1
is_intact() { "$bin/zckpt" verify "$1" >"$tmp/verify" 2>&1; }
check "model.safetensors is in a checkpoint where weights are gathered" \
    cmp "$there/model.safetensors" "$tmp/gather.dir/model.safetensors"
check "  and the tokenizer of the model folder" cmp "$there/tokenizer.json" "$tmp/hf/tokenizer.json"
check "  and so does the folder of the weights" cmp "$tmp/gather.dir/tokenizer.json" "$tmp/hf/tokenizer.json"
check "  all of it" cmp "$tmp/gather.dir/spm.model" "$tmp/hf/spm.model"
train 1 "$tmp/bytes" --model_name_or_path "$tmp/hf" --tokenizer_name bytes --max_steps 1 --save_steps 1 --per_device_train_batch_size 1 --output_dir "$tmp/bytes.dir"
check "  which weights that were trained on bytes have not" test -s "$tmp/bytes.dir/model.safetensors" -a ! -e "$tmp/bytes.dir/tokenizer.json" -a ! -e "$tmp/bytes.dir/tokenizer_config.json"
check "  nor their checkpoint" test -d "$tmp/bytes.dir/checkpoint-1/global_step1" -a ! -e "$tmp/bytes.dir/checkpoint-1/tokenizer.json"
cp -r "$tmp/hf" "$tmp/leaves"
"$bin/zlaunch" --num_gpus 1 "$bin/models/gpt2.so" --model_name_or_path "$tmp/leaves" --block_size 32 --train_file "$tmp/corpus.txt" --do_train \
    --max_steps 2000 --per_device_train_batch_size 1 --output_dir "$tmp/left.dir" >"$tmp/left" 2>&1 &
job=$!
wait_until grep -q '^step 1/' "$tmp/left"
rm "$tmp/leaves/model.safetensors"
wait $job
check "  of a model that leaves during the run as well" test $? -eq 0
check "  to its end" cmp "$tmp/left.dir/tokenizer.json" "$tmp/hf/tokenizer.json"
cp -r "$tmp/hf" "$tmp/sizes" && rm "$tmp/sizes/config.json"
for from in "$tmp/sizes" "$tmp/sizes/model.safetensors"; do
    train 1 "$tmp/sizes.log" --model_name_or_path "$from" --vocab_size 257 --max_steps 1 --per_device_train_batch_size 1 --output_dir "$tmp/sizes.dir" --overwrite_output_dir
    check "  and those of a model whose sizes are options have: ${from##*/}" cmp "$tmp/sizes.dir/tokenizer.json" "$tmp/hf/tokenizer.json"
done
check "  all of it whole" is_intact "$there"
printf X | dd of="$there/model.safetensors" bs=1 seek=20000 conv=notrunc 2>/dev/null
is_intact "$there"
check "  zckpt verify names it when it is damaged" grep -q "model.safetensors: damaged" "$tmp/verify"

# damaged ones are named and passed over
newest=$tmp/long.dir/checkpoint-60/global_step60/zero_rank_00001.safetensors
printf X | dd of="$newest" bs=1 seek=20000 conv=notrunc 2>/dev/null
long "$tmp/damaged" "$tmp/long.dir" --resume_from_checkpoint "$tmp/long.dir/checkpoint-60"
check "a damaged checkpoint is refused" [ $? -ne 0 ]
check "  by the name of its tensor" grep -q "damaged: .* of transformer" "$tmp/damaged" "$tmp/damaged.err"
long "$tmp/damaged" "$tmp/long.dir" --resume_from_checkpoint auto
check "auto takes the one before it" [ $? -eq 0 ]
check "  says so, with its name once" grep -q "checkpoint-60 is passed over: global_step60\|checkpoint-60 is passed over: [^/]" "$tmp/damaged" "$tmp/damaged.err"
check "  and redoes its steps" [ "$(last_bits "$tmp/damaged")" = "$(last_bits "$tmp/long")" ]

# the model is the same, beyond its shapes
train 1 "$tmp/heads" --max_steps 2 --save_steps 2 --output_dir "$tmp/heads.dir"
mkdir "$tmp/above" && cp -r "$tmp/heads.dir/checkpoint-2" "$tmp/above"
train 1 "$tmp/beside" --max_steps 2 --model_name_or_path "$tmp/above"
check "a folder of checkpoints is no model, and which is there is told" \
    grep -q "above: has no model.safetensors.*; there is a checkpoint, which can be named: .*above/checkpoint-2" "$tmp/beside"
train 1 "$tmp/heads" --max_steps 4 --output_dir "$tmp/heads.dir" --resume_from_checkpoint auto --n_head 4
check "other heads are another model" grep -q "checkpoint-2: the model that was trained has n_head 2, this one 4: give its options as they were" "$tmp/heads"
# as beside one that zckpt has converted: the model's own, of transformers
sed 's/"n_inner": *[0-9]*/"n_inner": null/' "$tmp/above/checkpoint-2/config.json" >"$tmp/above/checkpoint-2/global_step2/config.json"
train 1 "$tmp/inner" --max_steps 4 --output_dir "$tmp/above.dir" --resume_from_checkpoint "$tmp/above/checkpoint-2"
check "  and a number that follows from others is none" test $? -eq 0 -a -n "$(grep '"n_inner": null' "$tmp/above/checkpoint-2/global_step2/config.json")"
train 1 "$tmp/heads" --max_steps 4 --output_dir "$tmp/heads.dir" --resume_from_checkpoint auto --dropout 0.5
check "  another dropout is not" [ $? -eq 0 ]
check "  and told" grep -q "with another value: config.json's resid_pdrop: 0.5, was 0" "$tmp/heads"
train 1 "$tmp/heads" --max_steps 4 --output_dir "$tmp/heads.dir" --resume_from_checkpoint "$tmp/heads.dir/config.json"
check "a file is no checkpoint" grep -q "config.json: that is a file; a checkpoint is a folder" "$tmp/heads"
mkdir -p "$tmp/empty.dir/checkpoint-5"
mkdir -p "$tmp/deepspeed/global_step3"
: >"$tmp/deepspeed/global_step3/mp_rank_00_model_states.pt"
train 1 "$tmp/empty" --max_steps 2 --output_dir "$tmp/empty.dir" --resume_from_checkpoint "$tmp/deepspeed"
check "one of DeepSpeed without ZeRO is not read" grep -q "that is none of zlaunch; it is one of DeepSpeed's without ZeRO, which is not read: zckpt verify" "$tmp/empty"
echo global_step3 >"$tmp/deepspeed/latest"
check "  and its weights are of use" sh -c '! "$1/zckpt" verify "$2" 2>"$2.err" && grep -q "a checkpoint without ZeRO, which is not read; its weights become .*torch.save(torch.load" "$2.err"' - "$bin" "$tmp/deepspeed"
: >"$tmp/deepspeed/global_step3/zero_pp_rank_0_mp_rank_00_optim_states.pt"
train 1 "$tmp/empty" --max_steps 2 --output_dir "$tmp/empty.dir" --resume_from_checkpoint "$tmp/deepspeed"
check "a checkpoint of DeepSpeed is called one" grep -q "that is none of zlaunch; it is one of DeepSpeed's, of which zckpt convert" "$tmp/empty"
for folder in deepspeed deepspeed/global_step3; do
    train 1 "$tmp/empty" --max_steps 1 --model_name_or_path "$tmp/$folder"
    check "  and where weights are wanted, $folder" grep -q "either; it is one of DeepSpeed's, of whose weights zero_to_fp32 makes a folder" "$tmp/empty"
done
universal="$tmp/univers[a]l/global_step3_universal"
mkdir -p "$universal/zero/weight" && : >"$universal/zero/weight/fp32.pt" && : >"$universal/mp_rank_00_model_states.pt"
for folder in "$universal" "${universal%/*}"; do
    train 1 "$tmp/empty" --max_steps 2 --output_dir "$tmp/empty.dir" --resume_from_checkpoint "$folder"
    check "  a universal one as well: ${folder##*/}" grep -q "that is none of zlaunch; it is one of DeepSpeed's, of which zckpt convert" "$tmp/empty"
done
train 1 "$tmp/empty" --max_steps 2 --output_dir "$tmp/empty.dir" --resume_from_checkpoint auto
check "an empty folder is no checkpoint: auto begins" [ $? -eq 0 ]

# numbers run away just after a step that is saved: the weights are beyond fp16
train 2 "$tmp/away" --max_steps 4 --save_steps 1 --learning_rate 1e6 --output_dir "$tmp/away.dir" \
    --deepspeed '{"fp16": {"enabled": true, "initial_scale_power": 0, "hysteresis": 1}}'
check "gradients that are no numbers end a run" [ $? -eq 1 ]
check "  at step 2" grep -q '"text":"step 2: fp16: gradients overflow' "$tmp/away"
is_intact "$tmp/away.dir/checkpoint-1"
check "  and step 1, which was being saved, is there, undamaged, with what is infinite in it" grep -q 'element [0-9]* of its weights is -*inf$' "$tmp/verify"

# a disk that is busy until a file is there: rank 1 waits in fsync, or is told of an error, once
if command -v cc >/dev/null && [ -z "${ZT_VARIANT:-}" ]; then
    cat >"$tmp/busy.c" <<'C'
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
static int is_there(const char *what)
{
    char path[512];
    snprintf(path, sizeof(path), "%s/%s", getenv("BUSY"), what);
    return access(path, F_OK) == 0;
}
int fsync(int fd)
{
    char link[64], path[512] = "", mark[512];
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    if (readlink(link, path, sizeof(path) - 1) > 0 && strstr(path, "zero_rank_00001.safetensors")) {
        snprintf(mark, sizeof(mark), "%s/waits", getenv("BUSY"));
        close(open(mark, O_CREAT | O_WRONLY, 0666));
        snprintf(mark, sizeof(mark), "%s/fails", getenv("BUSY"));
        if (unlink(mark) == 0)
            return errno = EIO, -1;
        while (!is_there("free"))
            usleep(1000);
    }
    return (int)syscall(SYS_fsync, fd);
}
C
    cc -shared -fPIC -o "$tmp/busy.so" "$tmp/busy.c"
    busy() { # busy NAME ARGS...: in the background; its events are in $tmp/NAME
        local name=$1
        shift
        rm -rf "$tmp/$name.busy" "$tmp/$name.dir" && mkdir "$tmp/$name.busy"
        BUSY=$tmp/$name.busy LD_PRELOAD=$tmp/busy.so train 2 "$tmp/$name" --fingerprint_steps 1 --output_dir "$tmp/$name.dir" "$@" &
        job=$!
    }
    ended() { # ended CODE: the job in the background
        wait "$job"
        [ $? -eq "$1" ]
    }
    steps_of() { field step "$1" | tail -n 1; }
    reached() { [ "$(steps_of "$tmp/$1")" -ge "$2" ]; }
    is_whole() { for d; do "$bin/zckpt" verify "$d" >/dev/null || return; done; }
    saved() { (cd "$1" && echo checkpoint-*); }

    busy async --max_steps 8 --save_steps 5
    check "training goes on while a disk is busy" wait_until reached async 7
    check "  and the checkpoint is not there yet" [ ! -e "$tmp/async.dir/checkpoint-5" ]
    touch "$tmp/async.busy/free"
    check "  and then it is" ended 0
    check "  with what the step had left" [ "$(saved "$tmp/async.dir")" = "checkpoint-5 checkpoint-8" ]
    busy waits --max_steps 8 --save_steps 5 --save_memory 0
    touch "$tmp/waits.busy/free"
    check "--save_memory 0 waits for the disk" ended 0
    check "  with the same bits" [ "$(stored "$tmp/waits.dir/checkpoint-5")" = "$(stored "$tmp/async.dir/checkpoint-5")" ]

    busy slow --max_steps 100000 --save_steps 2
    check "a disk that is slower than the interval is said" wait_until grep -q "training waits for the disk" "$tmp/slow" "$tmp/slow.err"
    check "  and waited for" [ "$(steps_of "$tmp/slow")" -le 4 ]
    pkill -TERM -P "$job" zlaunch || kill -TERM "$(pgrep -P "$job")"
    touch "$tmp/slow.busy/free"
    check "SIGTERM while one is written: both are there, exit code 75" ended 75
    check "  whole" is_whole "$tmp/slow.dir"/checkpoint-*

    busy before --max_steps 6 --save_steps 5 --do_eval --eval_file "$tmp/other.txt"
    check "an evaluation is due while a checkpoint is written" wait_until reached before 6
    sleep 0.3
    check "  and waits for it" [ "$(grep -c '"event":"eval"' "$tmp/before")" = 0 ]
    touch "$tmp/before.busy/free"
    check "  comes then" ended 0
    check "  behind it" [ "$(grep -oE '"event":"(eval|saved)"' "$tmp/before" | head -n 2 | tr '\n' ' ')" = '"event":"saved" "event":"eval" ' ]
    check "  once each" [ "$(grep -cE '"event":"saved".*checkpoint-' "$tmp/before") $(saved "$tmp/before.dir")" = "2 checkpoint-5 checkpoint-6" ]

    busy never --max_steps 100000 --save_steps 2 --save_grace 1
    check "a disk that never ends" wait_until test -e "$tmp/never.busy/waits"
    pkill -TERM -P "$job" zlaunch || kill -TERM "$(pgrep -P "$job")"
    check "  ends with --save_grace, exit code 143" ended 143
    check "  and no checkpoint" [ "$(saved "$tmp/never.dir")" = "checkpoint-*" ]

    busy fails --max_steps 8 --save_steps 4
    touch "$tmp/fails.busy/fails" "$tmp/fails.busy/free"
    check "a writer that fails does not end the run" ended 0
    check "  which says whose it was" grep -q "that of step 4 is not saved: rank 1: .*Input/output error" "$tmp/fails" "$tmp/fails.err"
    check "  and saves the next" [ "$(ls -A "$tmp/fails.dir" | grep checkpoint)" = checkpoint-8 ]

    busy last --max_steps 4 --save_steps 4
    touch "$tmp/last.busy/fails"
    check "the last checkpoint is not saved: the run ends with 73" ended 73
    # rank 1 need not name itself, and may be the one that ends first
    check "  says why" grep -q "training has ended, but the last checkpoint, of step 4, is not saved (\(rank 1: \)\?/[^ ]*/zero_rank_00001.safetensors: cannot write: Input/output error); there is no other" "$tmp/last" "$tmp/last.err"
    check "  and its weights are there" test -s "$tmp/last.dir/model.safetensors"

    # nodes with a disk each, where both ranks are killed in the middle of a save
    zworker=$(realpath "$bin/zworker") gpt2=$(realpath "$bin/models/gpt2.so")
    mkdir "$tmp/node0" "$tmp/node1" "$tmp/nodes.busy"
    node() { # node RANK ARGS...: the rank of a node, as a script starts it; in the background
        local rank=$1
        shift
        cd "$tmp/node$rank" || exit
        exec env RANK="$rank" WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 MASTER_ADDR=127.0.0.1 MASTER_PORT="$port" \
            "$zworker" "$gpt2" --n_layer 1 --n_head 2 --n_embd 32 --block_size 32 --train_file "$tmp/corpus.txt" --do_train \
            --comm tcp --save_on_each_node --output_dir out "$@" >"$tmp/node$rank.out" 2>&1
    }
    free_port() {
        while :; do
            port=$((20000 + RANDOM % 10000))
            grep -q ":$(printf %04X $port) " /proc/net/tcp /proc/net/tcp6 || return
        done
    }
    half_saved() { (cd "$tmp" && echo node[01]/out/.checkpoint-*.tmp); }
    export BUSY=$tmp/nodes.busy
    free_port
    LD_PRELOAD=$tmp/busy.so node 0 --max_steps 8 --save_steps 4 &
    pids=($!)
    LD_PRELOAD=$tmp/busy.so node 1 --max_steps 8 --save_steps 4 &
    pids+=($!)
    check "two nodes with a folder each save" wait_until test -e "$BUSY/waits"
    kill -9 "${pids[@]}"
    wait "${pids[@]}" 2>/dev/null
    check "  and what is killed leaves half a checkpoint on each" \
        [ "$(half_saved)" = "node0/out/.checkpoint-4.tmp node1/out/.checkpoint-4.tmp" ]
    free_port
    node 0 --max_steps 2 --save_steps 2 --resume_from_checkpoint auto &
    job=$!
    node 1 --max_steps 2 --save_steps 2 --resume_from_checkpoint auto &
    wait "$job"
    check "  the next start is well" [ $? -eq 0 ]
    wait
    check "  and removes them from every node" [ "$(half_saved)" = "node[01]/out/.checkpoint-*.tmp" ]
    check "  each has its own of a checkpoint" [ "$(cd "$tmp" && echo node[01]/out/checkpoint-2/*/zero_rank_*.safetensors)" = \
        "node0/out/checkpoint-2/global_step2/zero_rank_00000.safetensors node1/out/checkpoint-2/global_step2/zero_rank_00001.safetensors" ]
fi

finish
