#!/bin/bash
# Mistral, Qwen3 and Gemma give the numbers that transformers and PyTorch gave (test/golden/make_llama.py):
# logits, gradients, fifty steps of AdamW, evaluation and greedy text. And among themselves:
# generation token by token, the stages of ZeRO, weights that went out and came in again.
# shellcheck source=test/integration/train_lib.sh
. "$(dirname "$0")/train_lib.sh"
plugin=llama
# shellcheck source=test/integration/golden_lib.sh
. test/integration/golden_lib.sh

for model in mistral qwen3 gemma; do
    golden_causal_lm $model
done
finish
