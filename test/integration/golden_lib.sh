# A model against the files of its golden folder (test/golden/golden.py); sourced after setting
# plugin=NAME of the .so, golden=FOLDER. Gives: golden_batch, golden_curve, golden_text, what they
# are made of, and golden_causal_lm, which is all of them.
# shellcheck shell=bash disable=SC2154
peers=build/${ZT_VARIANT:-release}/peers
seed=11 rows=4 block=23 # as the generator has them

probe() { # probe OUT ARGS...: the golden batch through our model
    local out=$1
    shift
    "$peers/probe" "$bin/models/$plugin.so" "$golden/batch.safetensors" "$out" --do_train \
        --train_file "$golden/data.bin" --data_format nanogpt --block_size 29 \
        --per_device_train_batch_size 3 --model_name_or_path "$golden/model" "$@" 2>"$out.err" ||
        { sed 's/^/# /' "$out.err"; false; }
}

near() { # near OUT PART TOLERANCE
    "$peers/compare" "$tmp/$1" "$golden/probe.safetensors" "$3" "$2" 2>&1 | sed 's/^/# /'
    return "${PIPESTATUS[0]}"
}

# curve RANKS MICRO ACCUMULATE ARGS...: fifty steps on the global batch of the generator
curve() {
    local ranks=$1 micro=$2 accumulate=$3
    shift 3
    "$bin/zlaunch" --num_gpus "$ranks" --log_format json "$bin/models/$plugin.so" --do_train \
        --train_file "$golden/data.bin" --data_format nanogpt --model_name_or_path "$golden/model" \
        --block_size $block --per_device_train_batch_size "$micro" \
        --gradient_accumulation_steps "$accumulate" --max_steps 50 --seed $seed \
        --learning_rate 3e-3 --weight_decay 0.1 --warmup_steps 5 --lr_scheduler_type linear \
        --max_grad_norm 1 --logging_steps 1 "$@" >"$tmp/log" 2>"$tmp/log.err" ||
        { sed 's/^/# /' "$tmp/log.err"; false; }
}

# follows LOSS NORM: the run stays this close (absolutely, relatively) to the golden curve
follows() {
    paste -d ' ' "$golden/curve.txt" <(field step "$tmp/log") <(field loss "$tmp/log") \
        <(field grad_norm "$tmp/log") <(field lr "$tmp/log") | awk -v loss="$1" -v norm="$2" '
        function far(a, b) { return a > b ? a - b : b - a }
        NF != 8 || $5 != $1 { print "# line " NR ": " $0; exit 1 }
        { l = far($6, $2); n = far($7, $3) / $3; r = far($8, $4) }
        l > ml { ml = l } n > mn { mn = n } r > 1e-9 { print "# step " $1 ": rate " $8 ", not " $4; bad = 1 }
        END { printf "# loss within %.2g, gradient norm within %.2g\n", ml, mn
              exit bad || NR != 50 || !(ml <= loss) || !(mn <= norm) }'
}

# quietly OUT COMMAND...: its standard output in a file
quietly() {
    local out=$1
    shift
    "$@" >"$out" 2>"$out.err" || { sed 's/^/# /' "$out.err"; false; }
}

# generate OUT COUNT PROMPT: what greedy text continues the prompt
generate() {
    quietly "$1" "$bin/zlaunch" --num_gpus 1 --log_format json "$bin/models/$plugin.so" \
        --model_name_or_path "$golden/model" --prompt "$3" --temperature 0 --generate_tokens "$2"
}
said() { sed -n 's/.*"event":"sample".*"text":"\([^"]*\)".*/\1/p' "$1"; }

# one batch: loss, logits, gradients
golden_batch() {
    check "a batch runs in fp32" probe "$tmp/fp32"
    check "loss within 1e-5" near fp32 loss 1e-5
    check "logits within 1e-4" near fp32 logits 1e-4
    check "every gradient within 1e-4" near fp32 grad. 1e-4
    check "a batch runs with blocks recomputed" probe "$tmp/again" --gradient_checkpointing
    check "and has the same gradients" near again grad. 1e-4
    local logits grads
    read -r logits grads < <(awk '{ print 1.5 * $1, 1.5 * $2 }' "$golden/bf16.txt")
    check "a batch runs in bf16" probe "$tmp/bf16" --bf16
    check "loss within 5e-3" near bf16 loss 5e-3
    check "logits about as near as PyTorch's in bf16" near bf16 logits "$logits"
    check "and so are gradients" near bf16 grad. "$grads"
    check "the comparison can fail" test "$("$peers/compare" "$tmp/bf16" "$golden/probe.safetensors" \
        1e-6 logits >/dev/null 2>&1; echo $?)" -eq 1
}

# fifty steps, cut in several ways, on the curve of PyTorch
golden_curve() {
    check "50 steps run" curve 1 $rows 1
    check "loss within 1e-3 at every step" follows 1e-3 1e-2
    check "50 steps run in two halves of a batch" curve 1 $((rows / 2)) 2
    check "with the same curve" follows 1e-3 1e-2
    check "50 steps run on two ranks" curve 2 1 2
    check "with the same curve" follows 1e-3 1e-2
    check "50 steps run in bf16" curve 1 $rows 1 --bf16
    check "loss within 5e-2 at every step" follows 5e-2 1e-1
}

# evaluation, and greedy text; leaves $prompt, $text and $new, the number of new tokens
golden_text() {
    check "the weights evaluate" quietly "$tmp/eval" "$bin/zlaunch" --num_gpus 2 --log_format json \
        "$bin/models/$plugin.so" --do_eval --eval_file "$golden/data.bin" --data_format nanogpt \
        --block_size $block --per_device_eval_batch_size 3 --model_name_or_path "$golden/model"
    check "to the same mean loss" awk -v want="$(cat "$golden/eval.txt")" \
        -v got="$(sed -n 's/.*"event":"eval".*"loss":\([^,}]*\).*/\1/p' "$tmp/eval")" \
        'BEGIN { d = got - want; exit !(got != "" && d < 1e-4 && d > -1e-4) }'
    { read -r prompt && read -r text; } <"$golden/greedy.txt"
    new=$(($(wc -w <<<"$text") - $(wc -w <<<"$prompt")))
    check "greedy text comes" generate "$tmp/text" $new "$prompt"
    check "and is that of transformers" test "$(said "$tmp/text")" = "$text"
}

# step by step: every token from a pass over all of the text before it
without_cache() {
    local i so_far=$1
    for ((i = 0; i < $2; i++)); do
        generate "$tmp/one" 1 "$so_far" || return 1
        so_far=$(said "$tmp/one")
    done
    echo "$so_far"
}

# some RANKS OUT ARGS...: six steps with fingerprints
some() {
    local ranks=$1 out=$2
    shift 2
    quietly "$out" "$bin/zlaunch" --num_gpus "$ranks" --log_format json "$bin/models/$plugin.so" \
        --do_train --train_file "$golden/data.bin" --data_format nanogpt --block_size $block \
        --per_device_train_batch_size 2 --max_steps 6 --seed $seed --learning_rate 3e-3 \
        --logging_steps 1 --fingerprint_steps 1 --model_name_or_path "$golden/model" "$@"
}

# golden_causal_lm NAME: all of it for a model whose text can be continued from a cache: the golden
# numbers, generation token by token, the stages of ZeRO, weights that went out and came in again
golden_causal_lm() {
    local model=$1 count how
    echo '{"zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0}}' >"$tmp/stage3.json"
    golden=test/golden/$model
    echo "# $model"
    golden_batch
    golden_curve
    golden_text
    count=$((new < 14 ? new : 14))
    check "token by token without a cache it is the same" test "$(without_cache "$prompt" $count)" = \
        "$(cut -d ' ' -f 1-$(($(wc -w <<<"$prompt") + count)) <<<"$text")"

    for how in "" --bf16; do
        check "stage 0 runs ${how}" some 2 "$tmp/s0" $how
        check "stage 3 runs ${how}" some 2 "$tmp/s3" $how --deepspeed "$tmp/stage3.json"
        check "and has the same bits" same_bits "$tmp/s0" "$tmp/s3"
    done

    check "no step leaves the weights" some 1 "$tmp/log" --learning_rate 0 --output_dir "$tmp/$model"
    check "and what is written is what was read" "$peers/compare" "$tmp/$model/model.safetensors" \
        "$golden/model/model.safetensors" 0
}
