#!/bin/bash
# GPT-2 small learns the same on the device as elsewhere. The rows of the file are those of one
# step, so every step sees all of them, in whatever order. The rate is low: where two exact
# computations drift apart, as they do once so few rows are known by heart, nothing is compared.
#   fp32: the losses are those of the cpu backend and of PyTorch
#   bf16: they are not farther from PyTorch's in fp32 than twice PyTorch's own in bf16 (the
#         larger one of autocast and pure bf16; root mean square over the steps)
. "$(dirname "$0")/gpu_lib.sh"
steps=50 rows=2 T=64 vocab=50257 rate=2e-6
size=(--vocab_size $vocab)
peer=(--vocab $vocab)
if [ "$toy" = 1 ]; then
    steps=16 T=32 vocab=257 rate=3e-3
    size=(--n_layer 2 --n_head 2 --n_embd 32 --n_positions 64 --vocab_size $vocab)
    peer=(--layers 2 --heads 2 --width 32 --inner 128 --positions 64 --vocab $vocab)
fi
tokens $((rows * T + 1)) "$tmp/data.bin"
how=("${size[@]}" --train_file "$tmp/data.bin" --block_size $T --per_device_train_batch_size $rows
    --learning_rate $rate --lr_scheduler_type constant --max_grad_norm 1)

# learn OUT ARGS...: all steps of it
learn() {
    local out=$1
    shift
    run "$out" gpt2 "${how[@]}" --weight_decay 0.1 --max_steps $steps "$@" || { why "$out" && return 1; }
}

# apart A B: the largest relative distance of two columns of losses
apart() {
    paste "$1" "$2" | awk 'NF == 2 { d = $1 / $2 - 1; d = d < 0 ? -d : d; if (!(d <= most)) most = d; n++ }
        END { if (n) printf "%.3g", most; else printf "nan" }'
}
# rms A B: the root mean square of their differences
rms() { paste "$1" "$2" | awk '{ s += ($1 - $2) ^ 2; n++ } END { printf "%.3g", n ? sqrt(s / n) : "nan" }'; }
# below VALUE LIMIT; what is no number is not below
below() { awk -v v="$1" -v l="$2" 'BEGIN { exit !(v ~ /^[0-9]/ && v + 0 <= l + 0) }'; }

learn "$tmp/cpu" --device cpu & # the processor's share takes longest
learn "$tmp/fp32"
check "fp32 on the device: exit code 0" test $? -eq 0
learn "$tmp/bf16" --bf16
check "bf16 on the device: exit code 0" test $? -eq 0
wait $!
check "fp32 on the processor: exit code 0" test $? -eq 0
for f in cpu fp32 bf16; do
    field loss "$tmp/$f" >"$tmp/$f.loss"
    check "$f: $steps losses" test "$(wc -l <"$tmp/$f.loss")" -eq $steps
done
check "the loss falls by a tenth" awk 'NR == 1 { first = $1 } END { exit !(first && $1 < 0.9 * first) }' "$tmp/fp32.loss"
far=$(apart "$tmp/fp32.loss" "$tmp/cpu.loss")
check "fp32: every loss within 1e-4 of the cpu backend's: $far" below "$far" 1e-4
differs() { ! cmp -s "$tmp/fp32.loss" "$tmp/bf16.loss"; }
check "bf16 is not fp32" differs
record check train_fp32 steps $steps apart_cpu "$far"

if [ -z "${ZT_PYTHON:-}" ]; then
    echo "# without PyTorch: nothing to compare bf16 with"
    finish
fi
run "$tmp/init" gpt2 "${how[@]}" --max_steps 1 --learning_rate 0 --weight_decay 0 --output_dir "$tmp/weights"
# shellcheck disable=SC2086 # words: a program and its settings
$ZT_PYTHON bench/peer_torch_gpu.py curve --device "${ZT_PEER_DEVICE:-cuda}" --data "$tmp/data.bin" \
    --weights "$tmp/weights/model.safetensors" --rows $rows --block $T --steps $steps --learning_rate $rate \
    "${peer[@]}" >"$tmp/curve" 2>"$tmp/curve.err" || why "$tmp/curve"
for mode in fp32 autocast pure; do
    awk -v m=$mode '$1 == m { print $3 }' "$tmp/curve" >"$tmp/torch.$mode"
    check "PyTorch, $mode: $steps losses" test "$(wc -l <"$tmp/torch.$mode")" -eq $steps
done
far=$(apart "$tmp/fp32.loss" "$tmp/torch.fp32")
check "fp32: every loss within 1e-3 of PyTorch's: $far" below "$far" 1e-3
ours=$(rms "$tmp/bf16.loss" "$tmp/torch.fp32")
autocast=$(rms "$tmp/torch.autocast" "$tmp/torch.fp32")
pure=$(rms "$tmp/torch.pure" "$tmp/torch.fp32")
limit=$(awk -v a="$autocast" -v b="$pure" 'BEGIN { printf "%.3g", 2 * (a > b ? a : b) }')
check "bf16: rms from PyTorch's fp32 is $ours, at most twice its own ($autocast autocast, $pure pure)" \
    below "$ours" "$limit"
record check train_bf16 steps $steps fp32_apart_torch "$far" rms "$ours" torch_autocast "$autocast" torch_pure "$pure"
finish
