# encoder_lib.sh -- what the golden tests of encoders share: the golden batch and the golden curve of each task,
# and comparing with them. Source it in the place of train_lib.sh, with the name of the plugin, which is that of
# the folder in test/golden, in $family.
# shellcheck shell=bash
# shellcheck source=test/integration/train_lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/train_lib.sh"
peers=build/${ZT_VARIANT:-release}/peers golden=test/golden/$family
near() { # near OUT TASK PART TOLERANCE
    "$peers/compare" "$1" "$golden/$2/probe.safetensors" "$4" "$3" 2>&1 | sed 's/^/# /'
    return "${PIPESTATUS[0]}"
}
probe() { # probe OUT TASK ARGS...: the golden batch through our model
    local out=$1 task=$2
    shift 2
    "$peers/probe" "$bin/models/$family.so" "$golden/$task/batch.safetensors" "$out" --do_train --task "$task" \
        --train_file "$golden/$task/rows.jsonl" --block_size 23 --per_device_train_batch_size 5 \
        --model_name_or_path "$golden/$task/model" "$@" 2>"$out.err" || { sed 's/^/# /' "$out.err"; false; }
}
# curve RANKS TASK ARGS...: 20 steps, each of the four rows that the sampler takes
curve() {
    local ranks=$1 task=$2
    shift 2
    "$bin/zlaunch" --num_gpus "$ranks" --log_format json "$bin/models/$family.so" --task "$task" --do_train \
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
same_as_golden() { # same_as_golden TASK: a batch of it, and its gradients
    local text=
    [ "$1" != masked_lm ] || text="--data_format text"
    # shellcheck disable=SC2086 # words
    check "$1: a batch runs" probe "$tmp/$1" "$1" $text
    check "  loss within 1e-5" near "$tmp/$1" "$1" loss 1e-5
    check "  every gradient within 1e-4" near "$tmp/$1" "$1" grad. 1e-4
}
curves_as_golden() { # curves_as_golden TASK: 20 steps, on one rank and on two
    check "$1: 20 steps run" curve 1 "$1"
    check "  on the curve of PyTorch" follows "$1"
    check "  and on two ranks" curve 2 "$1"
    check "  on the same" follows "$1"
}
