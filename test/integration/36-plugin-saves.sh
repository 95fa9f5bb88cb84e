#!/bin/bash
# A plugin saves checkpoints under its own tags, and has bytes of its own in every checkpoint:
# its weights depend on them, so that a resumed run has the bits of an unbroken one only when
# they came back.
. "$(dirname "$0")/train_lib.sh"
corpus >/dev/null
case $bin in
bin) models=${ZT_TEST_MODELS:-build/release/test-models} ;;
*) models=${ZT_TEST_MODELS:-${bin%/bin}/test-models} ;;
esac

# saving RANKS OUT ARGS...: 6 steps of 4 rows
saving() {
    local ranks=$1 out=$2
    shift 2
    "$bin/zlaunch" --num_gpus "$ranks" --log_format json "$models/saving.so" \
        --n_layer 1 --n_head 2 --n_embd 32 --block_size 32 --train_file "$tmp/corpus.txt" --do_train --logging_steps 1 \
        --learning_rate 1e-3 --seed 7 --max_steps 6 --dropout 0.1 --per_device_train_batch_size 2 --fingerprint_steps 1 \
        "$@" >"$out" 2>"$out.err"
}
numbers() {
    paste <(field step "$1") <(field loss "$1") <(field fingerprint "$1")
}
goes_on() { # goes_on WHOLE RESUMED: its last 3 steps are those of WHOLE
    [ "$(numbers "$2" | wc -l)" -eq 3 ] && [ "$(numbers "$1" | tail -n 3)" = "$(numbers "$2")" ] && return
    diff <(numbers "$1" | tail -n 3) <(numbers "$2") | sed 's/^/# /'
    tail -n 3 "$2.err" | sed 's/^/# /'
    return 1
}
says() { # says OUT TEXT
    grep -qF -- "$2" "$1" "$1.err" && return
    tail -n 5 "$1" "$1.err" | sed 's/^/# /'
    return 1
}
refuses() { # refuses OUT TEXT: the job has failed, and says so
    [ "$code" -ne 0 ] && says "$@"
}

near() { # near "STEP LOSS" "STEP LOSS"
    awk -v a="$1" -v b="$2" 'BEGIN { split(a, x); split(b, y); d = x[2] - y[2]; exit !(x[1] == y[1] && y[2] > 0 && d * d < 1e-8) }'
}

own=$tmp/own
export ZT_SAVE_AT=3 ZT_SAVE_DIR=$own ZT_SAVE_TAG=half-way
saving 2 "$tmp/whole" --save_steps 3 --output_dir "$tmp/dir"
check "a plugin saves under its own tag" [ "$(cat "$own/latest")" = half-way ]
check "  beside the checkpoints of the run" [ -d "$tmp/dir/checkpoint-3" ]
is_whole() { "$bin/zckpt" verify "$1" >"$tmp/verify" 2>&1; }
check "  whole" is_whole "$own"
check "  and no rank has left anything else" [ "$(ls -A "$own" | tr '\n' ' ')" = "half-way latest " ]
unset ZT_SAVE_AT
saving 2 "$tmp/resumed" --resume_from_checkpoint "$own/half-way"
check "a run goes on from it with the plugin's state" goes_on "$tmp/whole" "$tmp/resumed"
rm -r "$tmp/dir/checkpoint-6"
saving 2 "$tmp/auto" --resume_from_checkpoint auto --output_dir "$tmp/dir"
check "checkpoints of the run have it, too" goes_on "$tmp/whole" "$tmp/auto"
saving 1 "$tmp/fewer" --resume_from_checkpoint "$own" --per_device_train_batch_size 4 --max_steps 4
check "another number of ranks gets it" near "$(field step "$tmp/fewer") $(field loss "$tmp/fewer")" "4 $(field loss "$tmp/auto" | head -n 1)"
saving 1 "$tmp/weights" --model_name_or_path "$own" --max_steps 1
check "its weights open by the folder" [ -n "$(field loss "$tmp/weights")" ]

# into the folder that the run leaves its weights in
ZT_SAVE_AT=3 ZT_SAVE_DIR=$tmp/both saving 1 "$tmp/both.out" --output_dir "$tmp/both"
check "a run saves its weights beside a checkpoint of its plugin" [ -f "$tmp/both/model.safetensors" -a -f "$tmp/both/half-way/manifest.json" ]
"$bin/zckpt" convert "$tmp/both" "$tmp/both.copy" >"$tmp/both.said" 2>&1
check "  which are what the folder stands for" "$bin/zckpt" diff "$tmp/both.copy" "$tmp/both/model.safetensors" >"$tmp/both.said"
for from in both both/model.safetensors both/half-way; do
    saving 1 "$tmp/both.${from##*/}" --model_name_or_path "$tmp/$from" --max_steps 1
done
check "  for a run as well" [ "$(numbers "$tmp/both.both")" = "$(numbers "$tmp/both.model.safetensors")" ]
check "  and not the checkpoint, which its folder names" [ "$(numbers "$tmp/both.both")" != "$(numbers "$tmp/both.half-way")" -a -n "$(numbers "$tmp/both.half-way")" ]
saving 1 "$tmp/both.on" --resume_from_checkpoint "$tmp/both"
check "  from which training goes on" goes_on "$tmp/both.out" "$tmp/both.on"
saving 1 "$tmp/both.auto" --resume_from_checkpoint auto --output_dir "$tmp/both"
code=$?
check "  which auto, of checkpoint-N alone, tells" refuses "$tmp/both.auto" "there is no checkpoint-N; $tmp/both has one that its file \`latest\` names, as a plugin saves it: --resume_from_checkpoint $tmp/both goes on from that"

# checkpoint.writer
echo '{"train_batch_size": 4, "checkpoint": {"writer": {"type": "PYTHON", "show_statistics": true}}}' >"$tmp/writer.json"
saving 2 "$tmp/statistics" --deepspeed "$tmp/writer.json" --max_steps 1 --save_steps 1 --output_dir "$tmp/statistics.dir"
check "show_statistics says how fast a checkpoint was written" says "$tmp/statistics" " GB/s"
sed -i s/PYTHON/MOCK/ "$tmp/writer.json"
saving 2 "$tmp/mock" --deepspeed "$tmp/writer.json" --max_steps 1 --save_steps 1 --output_dir "$tmp/mock.dir"
code=$?
check "a writer that writes nothing is refused" refuses "$tmp/mock" "save_strategy no"

# the last byte of what the plugin has put
cp -r "$own" "$tmp/flipped"
truncate -s -1 "$tmp/flipped/half-way/client_state.safetensors" && printf X >>"$tmp/flipped/half-way/client_state.safetensors"
saving 2 "$tmp/damaged" --resume_from_checkpoint "$tmp/flipped"
code=$?
check "damaged state of a plugin is refused by name" refuses "$tmp/damaged" "client_state.safetensors: damaged"

# tags that depend on the rank: checkpoint.tag_validation
export ZT_SAVE_AT=1 ZT_SAVE_TAG=by-rank
for how in Warn fail Ignore; do
    echo "{\"train_batch_size\": 4, \"checkpoint\": {\"tag_validation\": \"$how\"}}" >"$tmp/$how.json"
    export ZT_SAVE_DIR=$tmp/$how
    saving 2 "$tmp/$how.log" --deepspeed "$tmp/$how.json" --max_steps 2
    code=$?
    case $how in
    Warn) check "Warn: a tag that depends on the rank is said" says "$tmp/$how.log" "rank 1 saves under another tag than rank 0" ;;
    fail) check "Fail: it ends the run" refuses "$tmp/$how.log" "rank 1 saves under another tag than rank 0" ;;
    Ignore) check "Ignore: it is not compared" [ "$(grep -c "another tag" "$tmp/$how.log" "$tmp/$how.log.err" | grep -c ':0')" -eq 2 ] ;;
    esac
    if [ $how = fail ]; then
        check "  and nothing is saved" [ ! -e "$tmp/$how" ]
    else
        check "  and all save under that of rank 0" [ "$(ls "$tmp/$how" | tr '\n' ' ')" = "latest of-rank-0 " ]
    fi
done

# what is no checkpoint stays
mkdir -p "$tmp/mine/data" && echo precious >"$tmp/mine/data/file"
ZT_SAVE_DIR=$tmp/mine ZT_SAVE_TAG=data saving 2 "$tmp/mine.log" --max_steps 2
code=$?
check "a folder that is no checkpoint is not replaced" [ "$(cat "$tmp/mine/data/file")" = precious ]
check "  that is said" says "$tmp/mine.log" "is there and is no checkpoint"
check "  and the run goes on" [ "$(field step "$tmp/mine.log" | tail -n 1)" = 2 ]
check "  and ends with 73" [ $code -eq 73 ]
check "  by the step that is not saved" says "$tmp/mine.log" "the last one that the plugin asked for, after step 1, is not saved"
ZT_SAVE_DIR=$tmp/mine ZT_SAVE_TAG=../out saving 2 "$tmp/up.log" --max_steps 2
code=$?
check "a tag is a name" refuses "$tmp/up.log" "is no tag of a checkpoint"
ZT_SAVE_DIR=$tmp/as-step ZT_SAVE_TAG=checkpoint-9 saving 2 "$tmp/as-step.log" --max_steps 2
code=$?
check "  and none that another step's checkpoint has" refuses "$tmp/as-step.log" "not checkpoint-N, as the run names its own"
ZT_SAVE_FAIL=1 ZT_SAVE_DIR=$tmp/failed ZT_SAVE_TAG=a saving 2 "$tmp/failed.log" --max_steps 2
check "a hook that fails is a warning with its name" says "$tmp/failed.log" "plugin saving: save_state failed"
check "  and no checkpoint" [ "$(ls -A "$tmp/failed" 2>/dev/null)" = "" ]

# what is frozen under adapters is in no file of theirs: a plugin that changes it is refused
saving 1 "$tmp/base.log" --output_dir "$tmp/base" --max_steps 1
saving 2 "$tmp/lora.log" --model_name_or_path "$tmp/base" --lora_r 2 --output_dir "$tmp/lora"
code=$?
check "weights under adapters are not changed by a plugin" refuses "$tmp/lora.log" "is of the model under adapters (--lora_r), which stays as it is"
check "  and no adapters are saved" [ ! -e "$tmp/lora/adapter_model.safetensors" ]

finish
