#!/bin/bash
# BERT gives the numbers that transformers and PyTorch gave (test/golden/make_bert.py): of pairs with classes, of
# tagged words and of masked tokens, with padding; and 20 steps of AdamW on the rows of a file.
# shellcheck source=test/integration/train_lib.sh
. "$(dirname "$0")/train_lib.sh"
peers=build/${ZT_VARIANT:-release}/peers golden=test/golden/bert
near() { # near OUT TASK PART TOLERANCE
    "$peers/compare" "$1" "$golden/$2/probe.safetensors" "$4" "$3" 2>&1 | sed 's/^/# /'
    return "${PIPESTATUS[0]}"
}
probe() { # probe OUT TASK ARGS...: the golden batch through our model
    local out=$1 task=$2
    shift 2
    "$peers/probe" "$bin/models/bert.so" "$golden/$task/batch.safetensors" "$out" --do_train --task "$task" \
        --train_file "$golden/$task/rows.jsonl" --block_size 23 --per_device_train_batch_size 5 \
        --model_name_or_path "$golden/$task/model" "$@" 2>"$out.err" || { sed 's/^/# /' "$out.err"; false; }
}
# curve RANKS TASK ARGS...: 20 steps, each of the four rows that the sampler takes
curve() {
    local ranks=$1 task=$2
    shift 2
    "$bin/zlaunch" --num_gpus "$ranks" --log_format json "$bin/models/bert.so" --task "$task" --do_train \
        --train_file "$golden/$task/rows.jsonl" --model_name_or_path "$golden/$task/model" --block_size 16 \
        --per_device_train_batch_size $((4 / ranks)) --max_steps 20 --seed 11 --learning_rate 2e-3 --weight_decay 0.1 \
        --warmup_steps 5 --logging_steps 1 "$@" >"$tmp/log" 2>"$tmp/log.err" || { sed 's/^/# /' "$tmp/log.err"; false; }
}
follows() { # follows TASK: the losses and gradient norms of the golden curve
    paste -d ' ' "$golden/$1/curve.txt" <(field loss "$tmp/log") <(field grad_norm "$tmp/log") | awk '
        function far(a, b) { return a > b ? a - b : b - a }
        NF != 4 { print "# line " NR ": " $0; exit 1 }
        { l = far($3, $1); n = far($4, $2) / $2; if (l > ml) ml = l; if (n > mn) mn = n }
        END { printf "# loss within %.2g, gradient norm within %.2g\n", ml, mn; exit !(NR == 20 && ml <= 1e-3 && mn <= 1e-2) }'
}

for task in classify tag masked_lm; do
    text=
    [ $task != masked_lm ] || text="--data_format text"
    # shellcheck disable=SC2086 # words
    check "$task: a batch runs" probe "$tmp/$task" $task $text
    check "  loss within 1e-5" near "$tmp/$task" $task loss 1e-5
    check "  every gradient within 1e-4" near "$tmp/$task" $task grad. 1e-4
done
check "logits of classes within 1e-4" near "$tmp/classify" classify logits 1e-4
check "a batch runs with blocks recomputed" probe "$tmp/again" tag --gradient_checkpointing
check "  and has the same gradients" near "$tmp/again" tag grad. 1e-4
check "the comparison can fail" test "$("$peers/compare" "$tmp/classify" "$golden/tag/probe.safetensors" 1e-4 grad. >/dev/null 2>&1; echo $?)" -eq 1
for task in classify tag; do
    check "$task: 20 steps run" curve 1 $task
    check "  on the curve of PyTorch" follows $task
    check "  and on two ranks" curve 2 $task
    check "  on the same" follows $task
done
finish
