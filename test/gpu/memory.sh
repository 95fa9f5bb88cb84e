#!/bin/bash
# What a run takes of the device is what its plan said, within 2 per cent, in three shapes. Beside
# it, for information: what the whole device had in use, which counts CUDA's own and the context.
. "$(dirname "$0")/gpu_lib.sh"
tokens 20000 "$tmp/data.bin"

# watch FILE: the most MiB of the device that were in use, until killed
watch() {
    local now most=0
    while now=$(nvidia-smi -i "${CUDA_VISIBLE_DEVICES:-0}" --query-gpu=memory.used --format=csv,noheader,nounits); do
        [ "$now" -le $most ] || { most=$now && echo "$most" >"$1"; }
        sleep 0.1
    done 2>/dev/null
}

# shape NAME MODEL ARGS...
shape() {
    local name=$1 model=$2 plan peak seen="" watcher=""
    shift 2
    set -- "$model" --train_file "$tmp/data.bin" --max_steps 3 "$@"
    plan=$(planned "$tmp/plan" "$@")
    if command -v nvidia-smi >/dev/null; then
        watch "$tmp/seen" &
        watcher=$!
    fi
    run "$tmp/out" "$@" || why "$tmp/out"
    [ -z "$watcher" ] || { kill $watcher && wait $watcher 2>/dev/null; seen=$(cat "$tmp/seen"); }
    peak=$(field peak_device_bytes "$tmp/out" | tail -n 1)
    peak=$(awk -v b="${peak:-0}" 'BEGIN { printf "%.1f", b / 1048576 }')
    close() { awk -v a="$peak" -v b="${plan:-0}" 'BEGIN { exit !(a > 0 && b > 0 && a <= 1.02 * b && a >= 0.98 * b) }'; }
    check "$name: peak $peak MiB, plan ${plan:-none}${seen:+ (in use on the device: $seen)}" close
    record check memory shape "$name" plan_mib "${plan:-nan}" peak_mib "$peak" device_in_use_mib "${seen:-nan}"
}

if [ "$toy" = 1 ]; then
    small=(--n_layer 2 --n_head 2 --n_embd 32 --n_positions 64 --vocab_size 257 --block_size 32)
    shape "toy GPT-2, fp32" gpt2 "${small[@]}" --per_device_train_batch_size 4
    shape "toy GPT-2, bf16, recomputed" gpt2 "${small[@]}" --per_device_train_batch_size 8 --bf16 --gradient_checkpointing
    shape "toy Llama, bf16, accumulated" llama --hidden_size 32 --intermediate_size 96 --num_hidden_layers 2 \
        --num_attention_heads 4 --num_key_value_heads 2 --vocab_size 257 --block_size 32 --bf16 \
        --per_device_train_batch_size 2 --gradient_accumulation_steps 2
else
    shape "GPT-2 124M, fp32, 4 x 512" gpt2 --vocab_size 50257 --block_size 512 --per_device_train_batch_size 4
    shape "GPT-2 124M, bf16, recomputed, 16 x 1024" gpt2 --vocab_size 50257 --block_size 1024 \
        --per_device_train_batch_size 16 --bf16 --gradient_checkpointing
    shape "Qwen2.5-0.5B, bf16, 2 x 2 x 1024" llama --model qwen2.5-0.5b --vocab_size 151936 --block_size 1024 \
        --per_device_train_batch_size 2 --gradient_accumulation_steps 2 --bf16
fi
finish
