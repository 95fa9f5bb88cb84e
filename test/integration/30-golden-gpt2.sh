#!/bin/bash
# GPT-2 gives the numbers that transformers and PyTorch gave (test/golden/make_gpt2.py): logits,
# gradients, fifty steps of AdamW, evaluation and greedy text.
# shellcheck source=test/integration/train_lib.sh
. "$(dirname "$0")/train_lib.sh"
plugin=gpt2 golden=test/golden/gpt2
# shellcheck source=test/integration/golden_lib.sh
. test/integration/golden_lib.sh
golden_batch
golden_curve
golden_text

# The context of 40 fills up when token 41 is there: its last 20 are then read again.
check "greedy text goes on past the context" generate "$tmp/long" 57 "$prompt"
check "with the same beginning" test "$(said "$tmp/long" | cut -d ' ' -f 1-34)" = "$text"
check "half a context starts afresh" generate "$tmp/half" 20 "$(said "$tmp/long" | cut -d ' ' -f 22-41)"
check "and gives what the long text goes on with" test "$(said "$tmp/half")" = \
    "$(said "$tmp/long" | cut -d ' ' -f 22-61)"
check "a prompt longer than the context counts by its end" generate "$tmp/end" 2 "$(seq -s ' ' 1 45)"
check "as its end alone does" generate "$tmp/alone" 2 "$(seq -s ' ' 6 45)"
check "with the same text" test "$(said "$tmp/end" | cut -d ' ' -f 46-)" = \
    "$(said "$tmp/alone" | cut -d ' ' -f 41-)"
finish
