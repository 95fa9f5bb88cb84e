#!/bin/bash
# The cuda backend, end to end, on the shim (test/shim): zworker loads it, trains with it, and
# gets what the cpu backend gets. No GPU is needed; the shim runs streams in awkward orders.
. "$(dirname "$0")/train_lib.sh"
. test/integration/turns_lib.sh
corpus >/dev/null
case $bin in
bin) shim=build/release/shim/backends ;;
*) shim=${bin%/bin}/shim/backends ;;
esac
[ -f "$shim/cuda.so" ] || { echo "$shim/cuda.so is missing: make test builds it"; exit 1; }
export ZLAUNCH_CUDNN_BACKEND=0 # that is for real devices
export ZLAUNCH_CUDA_BACKEND=$PWD/$shim/cuda.so

# on DEVICE OUT ARGS...: 4 steps of one rank
on() {
    local device=$1 out=$2
    shift 2
    train 1 "$out" --device "$device" --max_steps 4 --fingerprint_steps 4 \
        --per_device_train_batch_size 2 --threads 1 "$@"
}

# ---- the numbers of the cpu backend ----
for kind in "" --bf16 --fp16; do
    # shellcheck disable=SC2086 # $kind is an option or nothing
    on cpu "$tmp/cpu$kind" $kind --do_eval --eval_batches 2
    # shellcheck disable=SC2086
    on cuda "$tmp/cuda$kind" $kind --do_eval --eval_batches 2
    check "cuda${kind:- --fp32}: runs" test $? -eq 0
    tolerance=1e-4
    [ -z "$kind" ] || tolerance=2e-3
    check "cuda${kind:- --fp32}: losses are those of the cpu" same_curve "$tmp/cpu$kind" "$tmp/cuda$kind" $tolerance
    evals() { grep '"event":"eval"' "$1" | sed 's/.*"loss":\([^,]*\).*/\1/'; }
    near() { paste <(evals "$1") <(evals "$2") | awk -v t="$3" '{ d = $1 / $2 - 1; n++; if (d * d > t * t) exit 1 } END { exit n != 1 }'; }
    check "cuda${kind:- --fp32}: so is the evaluation" near "$tmp/cpu$kind" "$tmp/cuda$kind" $tolerance
done

# ---- epilogues that cuBLASLt does not take are done apart ----
# bias; gelu; its operand; its slope; sums for biases; all; all, when they are used
i=0
for refused in "4 0" "32 0" "128 0" "64 0" "768 0" "0xffff 0" "0xffff 1"; do
    in_turn $((i++)) || continue
    SHIM_REFUSE_EPILOGUES=$((${refused% *})) SHIM_REFUSE_LATE=${refused#* } on cuda "$tmp/refused" --bf16 --do_eval --eval_batches 2
    check "epilogues refused ($refused): it runs" test $? -eq 0
    check "epilogues refused ($refused): losses are those of the cpu" same_curve "$tmp/cpu--bf16" "$tmp/refused" 2e-3
done

# ---- what must change no bit ----
on cuda "$tmp/bits" --bf16
for seed in 1 2 3; do
    in_turn $seed || continue
    SHIM_SEED=$seed on cuda "$tmp/seed$seed" --bf16
    check "streams in order $seed: the same bits" same_bits "$tmp/bits" "$tmp/seed$seed"
done
on cuda "$tmp/again" --bf16 --gradient_checkpointing --cpu_isa avx2
check "recomputation: the same bits" same_bits "$tmp/bits" "$tmp/again"
on cuda "$tmp/halves" --bf16 --split_master
on cpu "$tmp/halves.cpu" --bf16 --split_master
check "split masters: losses are those of the cpu" same_curve "$tmp/halves.cpu" "$tmp/halves" 2e-3
on cuda "$tmp/halves.again" --bf16 --split_master --gradient_checkpointing
check "split masters: recomputation gives the same bits" same_bits "$tmp/halves" "$tmp/halves.again"
check "an option for processors says that it does nothing here" grep -q -- '--cpu_isa is for runs on a cpu' "$tmp/again"

# ---- products that are tuned ----
# $tmp/tuned: what rank 0 finds by the clock of SHIM_TIMES
SHIM_TIMES=1 on cuda "$tmp/tune1" --bf16 --product_tuning "$tmp/tuned"
check "products are tuned: it runs" test $? -eq 0
on cpu "$tmp/tune.cpu" --bf16
check "losses are those of the cpu" same_curve "$tmp/tune.cpu" "$tmp/tune1" 2e-3
check "the file names the device, and several algorithms were chosen" \
    awk 'NR == 1 && !/^products 1 on .*cuBLASLt/ { exit 1 } NR > 1 { n[$30]++ } END { for (a in n) k++; exit NR < 10 || k < 2 }' "$tmp/tuned"
cp "$tmp/tuned" "$tmp/tuned.before"
SHIM_TIMES=2 on cuda "$tmp/tune2" --bf16 --product_tuning "$tmp/tuned"
check "the same file gives the same bits, whatever the clock says now" same_bits "$tmp/tune1" "$tmp/tune2"
check "and stays as it is" cmp -s "$tmp/tuned.before" "$tmp/tuned"
SHIM_TIMES=2 on cuda "$tmp/tune3" --bf16 --product_tuning "$tmp/tuned.other"
check "tuned anew, other algorithms are chosen" test "$(cmp -s "$tmp/tuned" "$tmp/tuned.other"; echo $?)" -eq 1
check "with other bits" test "$(same_bits "$tmp/tune1" "$tmp/tune3" >/dev/null; echo $?)" -ne 0
sed '1s/on /on another /' "$tmp/tuned" >"$tmp/tuned.wrong"
on cuda "$tmp/tune4" --bf16 --product_tuning "$tmp/tuned.wrong"
check "choices of another device are refused" test $? -ne 0
check "and why" grep -q 'the tuning of products is of .*another.*but this is' "$tmp/tune4" "$tmp/tune4.err"
sed '3s/=/-/' "$tmp/tuned" >"$tmp/tuned.wrong"
on cuda "$tmp/tune5" --bf16 --product_tuning "$tmp/tuned.wrong"
check "a damaged file is refused by line" test "$(cat "$tmp/tune5" "$tmp/tune5.err" | grep -c 'the tuning of products: line 3 is none of its lines')" -ge 1
on cpu "$tmp/tune6" --bf16 --product_tuning "$tmp/none"
check "on a cpu it has no effect, and says so" grep -q -- '--product_tuning is for GPUs' "$tmp/tune6" "$tmp/tune6.err"
check "nor a file" test ! -e "$tmp/none"

# ---- a product and the SwiGLU behind it in one kernel of a library ----
gated() { # gated DEVICE OUT ARGS...: 3 steps of a Llama
    local device=$1 out=$2
    shift 2
    "$bin/zlaunch" --num_gpus 1 --log_format json "$bin/models/llama.so" --hidden_size 32 --num_hidden_layers 2 \
        --num_attention_heads 4 --num_key_value_heads 2 --intermediate_size 64 --block_size 32 --do_train --logging_steps 1 \
        --train_file "$tmp/corpus.txt" --max_steps 3 --per_device_train_batch_size 2 --device "$device" --bf16 "$@" >"$out" 2>&1
}
gated cpu "$tmp/gated.cpu"
gated cuda "$tmp/gated.apart"
SHIM_TIMES=1 ZLAUNCH_CUDNN_BACKEND=$PWD/$shim/cudnn.so gated cuda "$tmp/gated.one" --product_tuning "$tmp/gated.tuned"
check "a Llama is trained with it" test $? -eq 0
check "the engine that is right and fast was chosen" grep -q ' -1 0 0 0 0 0 0 = 2 0 ' "$tmp/gated.tuned"
check "the one that is faster and wrong is named" grep -q 'engine 2 of the shim.s gives other numbers' "$tmp/gated.one"
check "losses are those of the cpu" same_curve "$tmp/gated.cpu" "$tmp/gated.one" 2e-3
unmeasured() { # unmeasured ENGINE: that the library names without a measurement
    SHIM_GATED_ENGINE=$1 ZLAUNCH_CUDNN_BACKEND=$PWD/$shim/cudnn.so gated cuda "$tmp/gated.engine$1"
}
unmeasured 1
check "without tuning the engine that the library names is used" test "$(same_curve "$tmp/gated.apart" "$tmp/gated.engine1" 0 >/dev/null; echo $?)" -ne 0
check "losses are those of the cpu" same_curve "$tmp/gated.cpu" "$tmp/gated.engine1" 2e-3
unmeasured 2
check "one that is wrong is named" grep -q 'engine 2 of the shim.s gives other numbers' "$tmp/gated.engine2"
check "and not used" same_curve "$tmp/gated.apart" "$tmp/gated.engine2" 0
for engine in 0 -1; do
    in_turn $((engine + 1)) || continue
    unmeasured $engine
    check "without one that works the two are apart" same_curve "$tmp/gated.apart" "$tmp/gated.engine$engine" 0
done

# ---- an odd vocabulary: 261 words, multiplied as 320 where that is better for the device ----
# odd DEVICE OUT ARGS...: wte has 261 rows, and wpe lies behind it
odd() {
    local device=$1 out=$2
    shift 2
    on "$device" "$out" --vocab_size 261 --tokenizer_name bytes "$@"
}
columns() { awk -v n="$1" '$1 == n { k++ } END { print k + 0 }' "$2"; }
i=0
for kind in "" --bf16 --fp16; do
    in_turn $((i++)) || continue
    tolerance=1e-4
    [ -z "$kind" ] || tolerance=2e-3
    # shellcheck disable=SC2086 # $kind is an option or nothing
    odd cpu "$tmp/odd.cpu$kind" $kind --gradient_accumulation_steps 2 --do_eval --eval_batches 2
    # shellcheck disable=SC2086
    odd cuda "$tmp/odd$kind" $kind --gradient_accumulation_steps 2 --do_eval --eval_batches 2
    check "261 words${kind:- --fp32}: losses are those of the cpu" same_curve "$tmp/odd.cpu$kind" "$tmp/odd$kind" $tolerance
    check "261 words${kind:- --fp32}: so is the evaluation" near "$tmp/odd.cpu$kind" "$tmp/odd$kind" $tolerance
done
SHIM_TIMES=1 odd cuda "$tmp/odd.tuned" --bf16 --product_tuning "$tmp/odd.products"
check "261 words: they are multiplied as 320" test "$(columns 320 "$tmp/odd.products")" -ge 1
odd cuda "$tmp/odd.bits" --bf16 --gradient_accumulation_steps 2
odd cuda "$tmp/odd.again" --bf16 --gradient_accumulation_steps 2 --gradient_checkpointing
check "261 words: recomputation gives the same bits" same_bits "$tmp/odd.bits" "$tmp/odd.again"
for device in cpu cuda; do # a step of length 0 leaves the weights as they were drawn
    odd $device "$tmp/odd.still.$device" --bf16 --learning_rate 0 --output_dir "$tmp/odd.out.$device"
done
weights() { field fingerprint "$tmp/odd.still.$1" | grep .; }
check "261 words: the fingerprint knows no padding" test "$(weights cpu || echo none)" = "$(weights cuda)"
check "261 words: nor do the files" cmp "$tmp/odd.out.cpu/model.safetensors" "$tmp/odd.out.cuda/model.safetensors"
check "261 words: nor the config" grep -q '"vocab_size": 261' "$tmp/odd.out.cuda/config.json"
check "261 words: nor shapes" grep -aq '"transformer.wte.weight":{"dtype":"[A-Z0-9]*","shape":\[261,32\]' "$tmp/odd.out.cuda/model.safetensors"
odd cuda "$tmp/odd.saved" --bf16 --output_dir "$tmp/odd.trained"
odd cuda "$tmp/odd.next" --bf16 --model_name_or_path "$tmp/odd.trained" --max_steps 1
odd cpu "$tmp/odd.next.cpu" --bf16 --model_name_or_path "$tmp/odd.trained" --max_steps 1
check "261 words: what was saved after training is read by the cpu" same_curve "$tmp/odd.next.cpu" "$tmp/odd.next" 2e-3

# ---- memory: as planned ----
some_rates >"$tmp/rates.json"
planned() { # planned ARGS...: MiB of the plan
    "$bin/zworker" "$bin/models/gpt2.so" --train_file "$tmp/corpus.txt" --do_train --device cuda --dry_run --rates "$tmp/rates.json" "$@" |
        awk '$1 == "total" { print $2 }'
}
as_planned() { # as_planned ARGS...: the peak of a step is the plan within 2 %
    local want got
    want=$(planned "$@") || return 1
    train 1 "$tmp/peak" --device cuda --max_steps 2 "$@" || return 1
    got=$(field peak_device_bytes "$tmp/peak" | tail -n 1)
    awk -v w="$want" -v g="$got" 'BEGIN { r = g / 1048576 / w; print "# planned " w " MiB, taken " g / 1048576; exit !(r > 0.98 && r < 1.02) }'
}
check "the peak is the plan" as_planned --n_layer 2 --n_head 2 --n_embd 32 --block_size 32 --per_device_train_batch_size 2
check "the peak is the plan, in bf16 and larger" as_planned --n_layer 3 --n_head 4 --n_embd 128 --block_size 64 \
    --per_device_train_batch_size 4 --bf16 --max_steps 1
check "the peak is the plan, with split masters" as_planned --n_layer 3 --n_head 4 --n_embd 128 --block_size 64 \
    --per_device_train_batch_size 4 --bf16 --max_steps 1 --split_master
check "the peak is the plan, of tuned products too" as_planned --n_layer 3 --n_head 4 --n_embd 128 --block_size 64 \
    --per_device_train_batch_size 4 --bf16 --max_steps 1 --product_tuning "$tmp/tuned.peak"
check "the peak is the plan, with an odd vocabulary" as_planned --n_layer 2 --n_head 2 --n_embd 32 --block_size 32 \
    --per_device_train_batch_size 2 --bf16 --vocab_size 261 --tokenizer_name bytes
check "the peak is the plan, with recomputation" as_planned --n_layer 3 --n_head 4 --n_embd 128 --block_size 64 \
    --per_device_train_batch_size 4 --gradient_checkpointing --max_steps 1

# ---- weights out and in, text ----
on cuda "$tmp/saved" --output_dir "$tmp/out" --prompt abc --generate_tokens 6
check "weights are saved and text is made" grep -q '"event":"sample"' "$tmp/saved"
on cuda "$tmp/loaded" --model_name_or_path "$tmp/out" --max_steps 1
on cpu "$tmp/loaded.cpu" --model_name_or_path "$tmp/out" --max_steps 1
check "what cuda saved the cpu reads" same_curve "$tmp/loaded.cpu" "$tmp/loaded" 1e-4
"$bin/zlaunch" --num_gpus 1 --log_format json "$bin/models/llama.so" --hidden_size 32 --num_hidden_layers 2 \
    --num_attention_heads 4 --num_key_value_heads 2 --intermediate_size 64 --block_size 32 --do_train --logging_steps 1 \
    --train_file "$tmp/corpus.txt" --max_steps 3 --per_device_train_batch_size 2 --device cuda >"$tmp/llama" 2>&1
"$bin/zlaunch" --num_gpus 1 --log_format json "$bin/models/llama.so" --hidden_size 32 --num_hidden_layers 2 \
    --num_attention_heads 4 --num_key_value_heads 2 --intermediate_size 64 --block_size 32 --do_train --logging_steps 1 \
    --train_file "$tmp/corpus.txt" --max_steps 3 --per_device_train_batch_size 2 --device cpu >"$tmp/llama.cpu" 2>&1
check "a Llama with grouped queries learns as on the cpu" same_curve "$tmp/llama.cpu" "$tmp/llama" 1e-4

# ---- where there is no managed memory ----
for t in loss reduce embedding; do
    for how in ZT_TEST_COPIES SHIM_NO_MANAGED; do
        env $how=1 "${shim%/shim/backends}/unit/kernels-on-cuda/test_$t" >"$tmp/log" 2>&1
        check "test_$t with explicit copies ($how)" test $? -eq 0
    done
done

# ---- what goes wrong ----
refuses() { # refuses CODE TEXT ENV... : a run ends like this
    local code=$1 text=$2
    shift 2
    env "$@" "$bin/zworker" "$bin/models/gpt2.so" --n_layer 1 --n_embd 32 --n_head 2 --block_size 32 --do_train \
        --max_steps 1 --train_file "$tmp/corpus.txt" --device cuda >"$tmp/log" 2>&1
    [ $? -eq "$code" ] && grep -q -- "$text" "$tmp/log" || { sed 's/^/# /' "$tmp/log"; return 1; }
}
check "no device" refuses 78 "the driver sees no GPU" SHIM_DEVICES=0
check "no object" refuses 78 "no such file\|cannot open shared object" ZLAUNCH_CUDA_BACKEND="$tmp/none.so"
check "nothing to load" refuses 78 "this build has no CUDA" ZLAUNCH_CUDA_BACKEND=
check "too little memory is known before" refuses 78 "MiB are free on the GPU" SHIM_MEMORY_MB=68
# the plan of that run, and what libraries take in the first step: 200 MiB, of which 150 would be there
least=$(planned --n_layer 1 --n_embd 32 --n_head 2 --block_size 32)
check "so is too little for what libraries load later" refuses 78 "MiB are free on the GPU" \
    SHIM_LIBRARY_MB=200 SHIM_MEMORY_MB=$((${least%.*} + 150))
check "with that it trains" refuses 0 "" SHIM_LIBRARY_MB=200 SHIM_MEMORY_MB=$((${least%.*} + 260))
auto() { # auto ENV...: the losses of --device auto
    env "$@" "$bin/zlaunch" --num_gpus 1 --log_format json "$bin/models/gpt2.so" --n_layer 2 --n_head 2 --n_embd 32 \
        --block_size 32 --train_file "$tmp/corpus.txt" --do_train --logging_steps 1 --learning_rate 1e-3 --seed 7 \
        --max_steps 4 --fingerprint_steps 4 --per_device_train_batch_size 2 --threads 1
}
auto SHIM_DEVICES=1 >"$tmp/auto1" 2>&1
auto SHIM_DEVICES=0 >"$tmp/auto0" 2>&1
on cuda "$tmp/plain"
on cpu "$tmp/plain.cpu"
check "auto takes a GPU where there is one" same_bits "$tmp/plain" "$tmp/auto1"
check "and the processor where there is none" same_bits "$tmp/plain.cpu" "$tmp/auto0"
finish
