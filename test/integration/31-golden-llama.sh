#!/bin/bash
# Llama and Qwen2 give the numbers that transformers and PyTorch gave (test/golden/make_llama.py):
# logits, gradients, fifty steps of AdamW, evaluation and greedy text. And among themselves:
# generation token by token, the stages of ZeRO, weights that went out and came in again.
# shellcheck source=test/integration/train_lib.sh
. "$(dirname "$0")/train_lib.sh"
plugin=llama
# shellcheck source=test/integration/golden_lib.sh
. test/integration/golden_lib.sh

golden_causal_lm llama3
golden_causal_lm qwen2

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
