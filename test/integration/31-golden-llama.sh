#!/bin/bash
# Llama, Mistral, Qwen2, Qwen3 and Gemma give the numbers that transformers and PyTorch gave (test/golden/make_llama.py):
# logits, gradients, fifty steps of AdamW, evaluation and greedy text. And among themselves:
# generation token by token, the stages of ZeRO, weights that went out and came in again.
# shellcheck source=test/integration/train_lib.sh
. "$(dirname "$0")/train_lib.sh"
plugin=llama
# shellcheck source=test/integration/golden_lib.sh
. test/integration/golden_lib.sh

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
    quietly "$out" "$bin/zlaunch" --num_gpus "$ranks" --log_format json "$bin/models/llama.so" \
        --do_train --train_file "$golden/data.bin" --data_format nanogpt --block_size $block \
        --per_device_train_batch_size 2 --max_steps 6 --seed $seed --learning_rate 3e-3 \
        --logging_steps 1 --fingerprint_steps 1 --model_name_or_path "$golden/model" "$@"
}

echo '{"zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0}}' >"$tmp/stage3.json"
for model in llama3 qwen2 mistral qwen3 gemma; do
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
done

# options that contradict the weights, and shapes that cannot be
says() { # says TEXT ARGS...: the run is refused, and says so
    local text=$1
    shift
    if "$bin/zworker" "$bin/models/llama.so" --do_train --train_file "$golden/data.bin" \
        --data_format nanogpt --block_size 8 --max_steps 1 "$@" >"$tmp/refused" 2>&1; then
        return 1
    fi
    grep -qF -- "$text" "$tmp/refused" || { sed 's/^/# /' "$tmp/refused"; false; }
}
tiny="--hidden_size 32 --intermediate_size 64 --num_hidden_layers 1"
check "an option against config.json is refused" says \
    "--num_hidden_layers 9, but the config.json of the weights says 3" \
    --model_name_or_path "$golden/model" --num_hidden_layers 9
check "heads that do not divide are refused" says \
    "num_attention_heads 6 is not a multiple of num_key_value_heads 4" $tiny --hidden_size 48 \
    --num_attention_heads 6 --num_key_value_heads 4
check "a window for llama is refused" says "sliding_window: the llama kind has none" $tiny \
    --num_attention_heads 4 --num_key_value_heads 4 --sliding_window 8
finish
