#!/bin/bash
# BERT gives the numbers that transformers and PyTorch gave (test/golden/make_bert.py): of pairs with classes, of
# tagged words and of masked tokens, with padding; and 20 steps of AdamW on the rows of a file.
family=bert
# shellcheck source=test/integration/encoder_lib.sh
. "$(dirname "$0")/encoder_lib.sh"

for task in classify tag masked_lm; do
    same_as_golden $task
done
check "logits of classes within 1e-4" near "$tmp/classify" classify logits 1e-4
check "a batch runs with blocks recomputed" probe "$tmp/again" tag --gradient_checkpointing
check "  and has the same gradients" near "$tmp/again" tag grad. 1e-4
check "the comparison can fail" test "$("$peers/compare" "$tmp/classify" "$golden/tag/probe.safetensors" 1e-4 grad. >/dev/null 2>&1; echo $?)" -eq 1
for task in classify tag; do
    curves_as_golden $task
done
finish
