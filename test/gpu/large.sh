#!/bin/bash
# A model whose state is larger than the device trains there, with that state in host memory: the
# plan says so beforehand, and two steps run within it.
. "$(dirname "$0")/gpu_lib.sh"
tokens 20000 "$tmp/data.bin"
if [ "$toy" = 1 ]; then
    name="toy Llama"
    size=(--hidden_size 32 --intermediate_size 96 --num_hidden_layers 2 --num_attention_heads 4
        --num_key_value_heads 2 --vocab_size 257 --block_size 32)
else
    name="Llama 7B"
    size=(--model llama-7b --vocab_size 32000 --block_size 1024)
fi
how=(llama "${size[@]}" --train_file "$tmp/data.bin" --max_steps 2 --bf16 --gradient_checkpointing
    --per_device_train_batch_size 4 --learning_rate 1e-5 --deepspeed ds_configs/zero2_offload.json)
plan=$(planned "$tmp/plan" "${how[@]}")
check "$name: there is a plan" test -n "$plan"
if ! run "$tmp/out" "${how[@]}"; then
    why "$tmp/out"
    # a host without so much memory says so before anything is taken
    if grep -qh 'MiB.* are free\|would need' "$tmp/out" "$tmp/out.err"; then
        echo "# skipped: this host has not the memory for it"
        finish
        exit
    fi
    check "$name: two steps" false
else
    check "$name: two steps" test "$(field loss "$tmp/out" | grep -c '^[0-9]')" -ge 2
    peak=$(field peak_device_bytes "$tmp/out" | tail -n 1 | awk '{ printf "%.1f", $1 / 1048576 }')
    check "$name: peak $peak MiB, plan $plan" awk -v a="$peak" -v b="$plan" 'BEGIN { exit !(a > 0 && a <= 1.02 * b) }'
    record check large shape "$name" plan_mib "${plan:-nan}" peak_mib "${peak:-nan}" \
        tokens_per_s "$(field tokens_per_s "$tmp/out" | tail -n 1)"
fi
finish
