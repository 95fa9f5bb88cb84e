#!/bin/bash
# DeBERTa gives the numbers that transformers and PyTorch gave (test/golden/make_deberta.py): of classes of pairs by a
# model like v3, of tags by one with projections of their own for relative positions, of masked tokens by one with the
# convolution of the large v2; and 20 steps of AdamW on the rows of a file. Stages of ZeRO and recomputation change no
# bit, dropout included; the memory plan is exact; what is not built is refused by its name.
family=deberta
# shellcheck source=test/integration/encoder_lib.sh
. "$(dirname "$0")/encoder_lib.sh"

for task in classify tag masked_lm; do
    same_as_golden $task
done
check "logits of classes within 1e-4" near "$tmp/classify" classify logits 1e-4
check "a batch runs with blocks recomputed" probe "$tmp/again" masked_lm --gradient_checkpointing --data_format text
check "  and has the same gradients" near "$tmp/again" masked_lm grad. 1e-4
for task in classify tag; do
    curves_as_golden $task
done

# steps RANKS OUT TASK ARGS...: 4 steps of the golden model with dropout
steps() {
    local ranks=$1 out=$2 task=$3 text=
    shift 3
    [ "$task" != masked_lm ] || text="--data_format text"
    # shellcheck disable=SC2086 # words
    "$bin/zlaunch" --num_gpus "$ranks" --log_format json "$bin/models/deberta.so" --task "$task" --do_train \
        --train_file "$golden/$task/rows.jsonl" $text --model_name_or_path "$golden/$task/model" --block_size 16 \
        --per_device_train_batch_size $((4 / ranks)) --max_steps 4 --seed 11 --learning_rate 2e-3 --logging_steps 1 \
        --fingerprint_steps 1 --dropout 0.1 "$@" >"$out" 2>"$out.err" || { sed 's/^/# /' "$out.err"; false; }
}
for task in tag masked_lm; do
    check "$task: two ranks" steps 2 "$tmp/s0" $task
    for stage in 1 2 3; do
        echo "{\"zero_optimization\": {\"stage\": $stage, \"stage3_param_persistence_threshold\": 0}}" >"$tmp/zero.json"
        steps 2 "$tmp/s$stage" $task --deepspeed "$tmp/zero.json" --gradient_checkpointing
        check "  ZeRO $stage, recomputed, has the same bits" same_bits "$tmp/s0" "$tmp/s$stage"
    done
done
steps 1 "$tmp/one" tag --pad_to_max_length --gradient_accumulation_steps 2 --per_device_train_batch_size 2
steps 2 "$tmp/two" tag --pad_to_max_length
check "what ranks drop does not depend on how many there are" same_curve "$tmp/two" "$tmp/one" 1e-5

# the device is as large as the plan says, and not a page larger
for task in tag masked_lm; do
    pad=--pad_to_max_length
    [ $task != masked_lm ] || pad=
    # shellcheck disable=SC2086 # an option or nothing
    steps 1 "$tmp/plan" $task $pad --dry_run --device_memory 1GiB
    bytes=$(sed -n 's/^[^[]*"event":"memory_plan"[^[]*"device_bytes":\([0-9]*\).*/\1/p' "$tmp/plan")
    # shellcheck disable=SC2086 # an option or nothing
    check "$task: a device of $bytes bytes is enough" steps 1 "$tmp/exact" $task $pad --device_memory "$bytes"
    peak=$(sed -n 's/.*"peak_device_bytes":\([0-9]*\).*/\1/p' "$tmp/exact" | sort -n | tail -n 1)
    check "  and all of it is used: $peak" test "$peak" -eq "$bytes"
done

# what was trained, resumed and read again
stopped() { steps 1 "$tmp/$1" masked_lm --output_dir "$tmp/out" --save_steps 2 --overwrite_output_dir "${@:2}"; }
check "a run is saved" stopped whole
check "  and resumed from its middle" stopped again --resume_from_checkpoint "$tmp/out/checkpoint-2"
check "  to the same weights" test "$(field fingerprint "$tmp/whole" | tail -n 2)" = "$(field fingerprint "$tmp/again" | tail -n 2)"

# refused NAME OLD NEW WORDS: config.json with another value
refused() {
    rm -rf "$tmp/model"
    cp -r "$golden/classify/model" "$tmp/model"
    sed -i "s/$2/$3/" "$tmp/model/config.json"
    "$bin/zlaunch" --num_gpus 1 "$bin/models/deberta.so" --task classify --do_eval --eval_file "$golden/classify/rows.jsonl" \
        --block_size 16 --model_name_or_path "$tmp/model" >"$tmp/refused" 2>&1
    [ $? -ne 0 ] && grep -qF -- "$4" "$tmp/refused" && return
    head -n 4 "$tmp/refused" | cut -c1-300 | sed "s/^/# /"
    return 1
}
check "a term of attention that is not built is named" refused terms '"p2c"' '"p2p"' 'pos_att_type p2p'
none='relative_attention of config.json without c2p and p2c in pos_att_type'
check "  attention by distance without a term, as an empty list" refused none '"p2c",' '/;s/"c2p"/' "$none"
check "  or as the list that an empty string becomes" refused none '"p2c",' '/;s/"c2p"/""' "$none"
check "  which other attention does not ask for" refused none '"p2c",' '/;s/"c2p"//;s/"relative_attention": true/"relative_attention": false' \
    'rel_embeddings.weight; is its config.json of another model'
check "  one that is misspelt" refused terms '"share_att_key"' '"share_at_key"' 'share_at_key'
check "  an activation" refused act '"pooler_hidden_act": "gelu"' '"pooler_hidden_act": "mish"' 'pooler_hidden_act'
check "  a head of another width" refused width '"pooler_hidden_size": 24' '"pooler_hidden_size": 32' 'pooler_hidden_size 32'
check "  buckets that distances do not reach" refused buckets '"position_buckets": 8' '"position_buckets": 200' 'position_buckets 200'
finish
