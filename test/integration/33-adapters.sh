#!/bin/bash
# Low-rank adapters (--lora_r): the stages of ZeRO, offload and recomputation give the same bits, a
# resumed run is the unbroken one, the frozen model takes no memory for gradients and moments and is
# in no checkpoint, files go out and come in, and what cannot be is refused. test/peers/check_lora.py
# compares with the Python package peft.
# shellcheck source=test/integration/train_lib.sh
. "$(dirname "$0")/train_lib.sh"
peers=build/${ZT_VARIANT:-release}/peers

# lora MODEL RANKS OUT ARGS...: six steps over the folder of golden numbers, with fingerprints
lora() {
    local golden=test/golden/$1 plugin=llama ranks=$2 out=$3
    [ "$1" = gpt2 ] && plugin=gpt2
    shift 3
    "$bin/zlaunch" --num_gpus "$ranks" --log_format json "$bin/models/$plugin.so" --do_train \
        --train_file "$golden/data.bin" --data_format nanogpt --block_size 23 --max_steps 6 --seed 3 \
        --per_device_train_batch_size $((4 / ranks)) --learning_rate 1e-2 --logging_steps 1 \
        --fingerprint_steps 1 --model_name_or_path "$golden/model" --lora_r 4 --lora_alpha 16 \
        --lora_dropout 0.1 "$@" >"$out" 2>"$out.err" || { sed 's/^/# /' "$out.err"; false; }
}
zero() { # zero STAGE [SECTIONS]: a config of that stage
    echo "{\"zero_optimization\": {\"stage\": $1, \"stage3_param_persistence_threshold\": 0${2:+, $2}}}"
}

for model in llama3 gpt2; do
    check "$model: two ranks at stage 0" lora $model 2 "$tmp/s0"
    for stage in 1 2 3; do
        check "stage $stage" lora $model 2 "$tmp/s$stage" --deepspeed "$(zero $stage)"
        check "  has the same bits" same_bits "$tmp/s0" "$tmp/s$stage"
    done
    cp "$tmp/s0" "$tmp/s0.$model"
done
check "adapters that count 0 times" lora llama3 2 "$tmp/none" --lora_alpha 0
check "  learn nothing, which is said" grep -q 'the gradient was 0 at each of 6 steps: nothing was learnt' "$tmp/none"
cpu='"offload_optimizer": {"device": "cpu"}, "offload_param": {"device": "cpu"}'
check "bf16 at stage 0" lora qwen3 2 "$tmp/b0" --bf16
check "bf16 at stage 3, offloaded and recomputed" lora qwen3 2 "$tmp/b3" --bf16 --gradient_checkpointing \
    --deepspeed "$(zero 3 "$cpu")"
check "  has the same bits" same_bits "$tmp/b0" "$tmp/b3"
check "fp16 at stage 0" lora gemma 2 "$tmp/h0" --fp16
check "fp16 at stage 2" lora gemma 2 "$tmp/h2" --fp16 --deepspeed "$(zero 2)"
check "  has the same bits" same_bits "$tmp/h0" "$tmp/h2"

# on from a checkpoint, which has the adapters alone
check "a run saves checkpoints" lora llama3 2 "$tmp/whole" --save_steps 3 --output_dir "$tmp/run"
bytes() { stat -c %s "$tmp/run/checkpoint-3"/*/*.safetensors | awk '{ n += $1 } END { print n }'; }
check "a checkpoint is smaller than the model" test "$(bytes)" -lt \
    "$(stat -c %s test/golden/llama3/model/model.safetensors)"
for file in adapter_config.json adapter_model.safetensors; do
    check "$file is in it and in the folder" test -s "$tmp/run/checkpoint-3/$file" -a -s "$tmp/run/$file"
done
check "and no other weights" test ! -e "$tmp/run/model.safetensors"
check "it is resumed at another stage" lora llama3 2 "$tmp/rest" --deepspeed "$(zero 3)" \
    --resume_from_checkpoint "$tmp/run/checkpoint-3" --output_dir "$tmp/rest.dir"
check "  with the bits of the unbroken run" test "$(field fingerprint "$tmp/whole" | tail -n 3)" = \
    "$(field fingerprint "$tmp/rest")"
check "  of which none is said to be new" sh -c "! grep -q 'begin as new' '$tmp/rest' '$tmp/rest.err'"
check "  as they were at the start" grep -q 'they begin as new' "$tmp/whole" "$tmp/whole.err"
check "  and the same file at the end" cmp "$tmp/run/adapter_model.safetensors" \
    "$tmp/rest.dir/adapter_model.safetensors"

# what they are beside is the same
cp -r test/golden/llama3/model "$tmp/elsewhere"
beside() { lora llama3 "$1" "$tmp/beside" --resume_from_checkpoint "$tmp/run/checkpoint-3" --model_name_or_path "$tmp/elsewhere" "${@:2}"; }
check "it goes on beside a copy of the model" beside 1 --deepspeed "$(zero 2)"
size=$(stat -c %s "$tmp/elsewhere/model.safetensors")
printf '\200' | dd of="$tmp/elsewhere/model.safetensors" bs=1 seek=$((size - 2)) conv=notrunc 2>/dev/null
check "  not beside another" eval '! beside 2 >/dev/null && grep -q "\"exit_code\":65" "$tmp/beside"'
check "  and it is said" grep -q "checkpoint-3: its adapters were trained beside other weights than those of $tmp/elsewhere" "$tmp/beside" "$tmp/beside.err"

check "not without adapters" sh -c '! "$@"' - "$bin/zlaunch" --num_gpus 1 "$bin/models/llama.so" --max_steps 6 --block_size 23 \
    --train_file test/golden/llama3/data.bin --data_format nanogpt --model_name_or_path test/golden/llama3/model \
    --resume_from_checkpoint "$tmp/run/checkpoint-3" 2>"$tmp/log"
check "  which the message asks for" grep -q 'has adapters and not the model that they are for: a run goes on with the --lora_r' "$tmp/log"

# back to the best, which is the highest loss here: the first
for config in "$(zero 0)" "$(zero 3 "$cpu")"; do
    check "a run ends with its best adapters" lora llama3 2 "$tmp/best" --do_eval --eval_file test/golden/llama3/data.bin --save_steps 2 \
        --eval_steps 2 --load_best_model_at_end --metric_for_best_model loss --greater_is_better --deepspeed "$config" \
        --output_dir "$tmp/best.dir" --overwrite_output_dir
    check "  which are not its last" grep -q 'the weights are those of step 2' "$tmp/best" "$tmp/best.err"
    check "  and are what it saves" cmp "$tmp/best.dir/adapter_model.safetensors" \
        "$tmp/best.dir/checkpoint-2/adapter_model.safetensors"
done

# a folder holds adapters or a model, of which transformers would make one
check "adapters are saved" lora llama3 1 "$tmp/log" --output_dir "$tmp/one"
check "a model with them merged replaces them" lora llama3 1 "$tmp/log" --merge_adapters --output_dir "$tmp/one" --overwrite_output_dir
check "  and they are gone" sh -c 'test -s "$1/model.safetensors" && ! ls "$1"/adapter_*' - "$tmp/one"
check "adapters replace the model" lora llama3 1 "$tmp/log" --output_dir "$tmp/one" --overwrite_output_dir
check "  which is gone" sh -c 'test -s "$1/adapter_model.safetensors" && ! test -e "$1/model.safetensors"' - "$tmp/one"
cp -r test/golden/llama3/model "$tmp/base"
mkdir "$tmp/links" && ln -s "$tmp/base/model.safetensors" "$tmp/base/config.json" "$tmp/links"
for model in "$tmp/base" "$tmp/base/model.safetensors" "$tmp/links/model.safetensors"; do
    check "not the one that they are for, as ${model#"$tmp/"}" sh -c '! "$@"' - "$bin/zlaunch" --num_gpus 1 "$bin/models/llama.so" --lora_r 4 \
        --max_steps 1 --train_file test/golden/llama3/data.bin --data_format nanogpt --block_size 23 --model_name_or_path "$model" \
        --output_dir "$tmp/base" --overwrite_output_dir 2>"$tmp/log"
    check "  and why" grep -q 'is the folder of --model_name_or_path, whose model adapters do not replace' "$tmp/log"
    check "  it is as it was" diff -r test/golden/llama3/model "$tmp/base"
done

# a model that reads a source
printf '{"prompt": "a %s", "completion": "b %s"}\n' 1 2 3 4 5 6 7 8 >"$tmp/pairs.jsonl"
source=(--train_file "$tmp/pairs.jsonl" --tokenizer_name bytes --block_size 16 --max_source_length 24 --packing none
    --max_steps 1 --per_device_train_batch_size 2 --num_layers 1 --d_model 16 --d_kv 8 --num_heads 2 --d_ff 16)
check "a T5 is made" "$bin/zlaunch" --num_gpus 1 "$bin/models/t5.so" "${source[@]}" --output_dir "$tmp/t5" 2>"$tmp/log"
check "and has adapters" "$bin/zlaunch" --num_gpus 2 "$bin/models/t5.so" "${source[@]}" --model_name_or_path "$tmp/t5" \
    --lora_r 2 --output_dir "$tmp/t5.adapters" 2>"$tmp/log"
check "  of encoder and decoder" grep -q 'decoder.block.0.layer.1.EncDecAttention.q.lora_A.weight' \
    "$tmp/t5.adapters/adapter_model.safetensors"

# their files in again: no step changes nothing
again() { # ARGS...
    "$bin/zlaunch" --num_gpus 2 "$bin/models/llama.so" --model_name_or_path test/golden/llama3/model \
        --adapter_name_or_path "$tmp/run" "$@" >"$tmp/log" 2>&1 || { sed 's/^/# /' "$tmp/log"; false; }
}
still=(--do_train --train_file test/golden/llama3/data.bin --data_format nanogpt --block_size 23 --max_steps 1
    --learning_rate 0 --per_device_train_batch_size 1)
check "adapters are read" again "${still[@]}" --output_dir "$tmp/same"
check "  and written as they were" cmp "$tmp/run/adapter_model.safetensors" "$tmp/same/adapter_model.safetensors"
check "  with their config" diff "$tmp/run/adapter_config.json" "$tmp/same/adapter_config.json"
check "  whose numbers have no more digits than they need" grep -q '"lora_dropout": 0.1,$' "$tmp/run/adapter_config.json"
loss() { sed -n 's/.*"event":"eval".*"loss":\([^,}]*\).*/\1/p' "$1"; }
evaluate() { # OUT ARGS...
    local out=$1
    shift
    "$bin/zlaunch" --num_gpus 2 --log_format json "$bin/models/llama.so" --do_eval --block_size 23 --eval_file \
        test/golden/llama3/data.bin --data_format nanogpt "$@" >"$out" 2>"$out.err" || { sed 's/^/# /' "$out.err"; false; }
}
check "the merged model is written without training" again --merge_adapters --output_dir "$tmp/merged"
check "adapters evaluate" evaluate "$tmp/e1" --model_name_or_path test/golden/llama3/model --adapter_name_or_path "$tmp/run"
check "  which are not said to be new" sh -c "! grep -q 'begin as new' '$tmp/e1'"
check "so does the merged model" evaluate "$tmp/e2" --model_name_or_path "$tmp/merged"
check "  to the same loss" awk -v a="$(loss "$tmp/e1")" -v b="$(loss "$tmp/e2")" \
    'BEGIN { d = a - b; exit !(a != "" && d < 1e-5 && d > -1e-5) }'
# peft saves a copy of the weight of a head beside the adapter of it
check "a head has an adapter" lora llama3 1 "$tmp/head.log" --lora_target_modules q_proj,lm_head --output_dir "$tmp/head"
check "  which evaluates" evaluate "$tmp/e4" --model_name_or_path test/golden/llama3/model --adapter_name_or_path "$tmp/head"
with_copy() { # with_copy FILE FLIP: adapters with the weight that FILE has of the head; FLIP 1: but for a bit
    rm -rf "$tmp/copy" && cp -r "$tmp/head" "$tmp/copy" && python3 - "$1" "$tmp/copy/adapter_model.safetensors" "$2" <<'EOF'
import json, struct, sys

def read(path):
    raw = open(path, "rb").read()
    n, = struct.unpack("<Q", raw[:8])
    return json.loads(raw[8:8 + n]), raw[8 + n:]

base, weights = read(sys.argv[1])
head, data = read(sys.argv[2])
entry = base["lm_head.weight"]
first, last = entry["data_offsets"]
copy = bytearray(weights[first:last])
copy[-2] ^= int(sys.argv[3])
entry["data_offsets"] = [len(data), len(data) + len(copy)]
head["base_model.model.lm_head.base_layer.weight"] = entry
text = json.dumps(head).encode()
text += b" " * (-len(text) % 8)
open(sys.argv[2], "wb").write(struct.pack("<Q", len(text)) + text + data + copy)
EOF
}
if command -v python3 >/dev/null; then
    with_copy test/golden/llama3/model/model.safetensors 0
    check "  beside a copy of the head too" evaluate "$tmp/e5" --model_name_or_path test/golden/llama3/model --adapter_name_or_path "$tmp/copy"
    check "  to the same loss" test "$(loss "$tmp/e4")" -a "$(loss "$tmp/e4")" = "$(loss "$tmp/e5")"
    with_copy test/golden/llama3/model/model.safetensors 1
    evaluate "$tmp/e6" --model_name_or_path test/golden/llama3/model --adapter_name_or_path "$tmp/copy" >"$tmp/said"
    cat "$tmp/e6" "$tmp/e6.err" >>"$tmp/said"
    check "  but not of another one" grep -q "lm_head.base_layer.weight is a copy of a weight of the model .* save_embedding_layers=False" "$tmp/said"
fi
check "the model itself has another" test "$(evaluate "$tmp/e3" --model_name_or_path test/golden/llama3/model &&
    loss "$tmp/e3")" != "$(loss "$tmp/e1")"
check "and is not what was merged" test "$("$peers/compare" "$tmp/merged/model.safetensors" \
    test/golden/llama3/model/model.safetensors 0 >/dev/null 2>&1; echo $?)" -eq 1

# encoders and encoder-decoders, by the targets that are the default. DeBERTa has a table of relative positions that all
# rows share: in the model of classes it goes through the projections of queries and keys, in that of tags through its own
default_targets() { # FAMILY NAME RANKS OUT ARGS...: four steps of a golden model with its task
    local plugin=$1 golden=test/golden/$1/$2 ranks=$3 out=$4
    local how=(--task "$2" --train_file "$golden/rows.jsonl" --block_size 16)
    [ "$1" != seq2seq ] || { plugin=$2 && how=(--train_file "$golden/pairs.jsonl" --source_column source --target_column target
        --tokenizer_name bytes --max_source_length 21); }
    shift 4
    "$bin/zlaunch" --num_gpus "$ranks" --log_format json "$bin/models/$plugin.so" --do_train --model_name_or_path "$golden/model" \
        "${how[@]}" --per_device_train_batch_size 2 --max_steps 4 --seed 11 --learning_rate 1e-2 --logging_steps 1 \
        --fingerprint_steps 1 --lora_r 4 "$@" >"$out" 2>"$out.err" || { sed 's/^/# /' "$out.err"; false; }
}
saved_evaluates() { # TASK RANKS OUT
    local golden=test/golden/deberta/$1
    "$bin/zlaunch" --num_gpus "$2" --log_format json "$bin/models/deberta.so" --task "$1" --model_name_or_path "$golden/model" \
        --adapter_name_or_path "$tmp/deberta" --do_eval --eval_file "$golden/rows.jsonl" --block_size 16 --pad_to_max_length \
        >"$3" 2>"$3.err" || { sed 's/^/# /' "$3.err"; false; }
}
for model in "bert classify" "bert tag" "seq2seq bart" "seq2seq t5" "deberta classify" "deberta tag"; do
    # shellcheck disable=SC2086 # words
    check "$model: adapters of the default targets" default_targets $model 1 "$tmp/plain"
    # shellcheck disable=SC2086 # words
    check "  with dropout" default_targets $model 1 "$tmp/dropped" --lora_dropout 0.3
    check "  which drops something" test "$(field loss "$tmp/plain")" != "$(field loss "$tmp/dropped")"
done
for task in classify tag; do
    rows=(--pad_to_max_length --lora_dropout 0.1)
    check "deberta $task: two ranks" default_targets deberta $task 2 "$tmp/two" "${rows[@]}" --do_eval \
        --eval_file test/golden/deberta/$task/rows.jsonl --output_dir "$tmp/deberta"
    check "  ZeRO 3, recomputed" default_targets deberta $task 2 "$tmp/three" "${rows[@]}" --gradient_checkpointing \
        --deepspeed "$(zero 3)"
    check "  has the same bits" same_bits "$tmp/two" "$tmp/three"
    check "  one rank" default_targets deberta $task 1 "$tmp/single" "${rows[@]}" --gradient_accumulation_steps 2
    check "  drops what two drop" same_curve "$tmp/two" "$tmp/single" 1e-5
    # where each weight works once in a pass, the sum of two gradients is the same bits in any order
    [ $task != tag ] || check "  to the bit" test "$(field fingerprint "$tmp/two")" = "$(field fingerprint "$tmp/single")"
    for ranks in 1 2; do
        check "  what was saved evaluates on $ranks" saved_evaluates $task $ranks "$tmp/e$ranks"
        check "  to the loss of the trained" awk -v a="$(loss "$tmp/two" | tail -n 1)" -v b="$(loss "$tmp/e$ranks")" \
            'BEGIN { d = a - b; exit !(a != "" && b != "" && d < 1e-6 && d > -1e-6) }'
    done
    default_targets deberta $task 2 "$tmp/plan" "${rows[@]}" --dry_run --device_memory 1GiB
    bytes=$(sed -n 's/^[^[]*"event":"memory_plan"[^[]*"device_bytes":\([0-9]*\).*/\1/p' "$tmp/plan")
    check "  a device of $bytes bytes is enough" default_targets deberta $task 2 "$tmp/exact" "${rows[@]}" --device_memory "$bytes"
    peak=$(sed -n 's/.*"peak_device_bytes":\([0-9]*\).*/\1/p' "$tmp/exact" | sort -n | tail -n 1)
    check "  and all of it is used: $peak" test "$peak" -eq "$bytes"
    rm -rf "$tmp/deberta"
done

# other adapters than those of the checkpoint
lora llama3 2 "$tmp/eight" --output_dir "$tmp/eight.dir" --resume_from_checkpoint "$tmp/run/checkpoint-3" --lora_r 8 >/dev/null
check "adapters of another rank do not go on" grep -q 'is (4, .*the model wants (8, .*it began with' "$tmp/eight" "$tmp/eight.err"
scaled() { # WORDS ARGS...: adapters of the checkpoint that would count otherwise do not go on
    ! lora llama3 2 "$tmp/scaled" --output_dir "$tmp/scaled.dir" --resume_from_checkpoint "$tmp/run/checkpoint-3" "${@:2}" >/dev/null &&
        grep -qF -- "checkpoint-3: its adapters were trained $1: a run goes on with the --lora_alpha and --use_rslora it began with" \
            "$tmp/scaled" "$tmp/scaled.err"
}
check "  nor do those of another scale" scaled "with --lora_alpha 16, and this run has 8" --lora_alpha 8
check "  or another rule of it" scaled "without --use_rslora, and this run has them with it" --use_rslora

# a checkpoint of a whole model is one to begin with; one of adapters is not
check "a whole model is trained and saved" "$bin/zlaunch" --num_gpus 2 "$bin/models/llama.so" "${still[@]}" \
    --model_name_or_path test/golden/llama3/model --output_dir "$tmp/full" --save_steps 1 2>"$tmp/log"
check "adapters beside its checkpoint" lora llama3 2 "$tmp/over" --model_name_or_path "$tmp/full/checkpoint-1"
check "  as beside its folder" same_bits "$tmp/s0.llama3" "$tmp/over"
lora llama3 1 "$tmp/none" --model_name_or_path "$tmp/run/checkpoint-3" >/dev/null
"$bin/zero_to_fp32" "$tmp/run/checkpoint-3" "$tmp/fp32.safetensors" >"$tmp/fp32.said" 2>&1
check "its file of fp32 lacks what is frozen, which is said once" test "$(grep -c 'frozen tensors are left out' "$tmp/fp32.said")" = 1 -a "$(grep -c 'left out' "$tmp/fp32.said")" = 1
tensors=$("$bin/zckpt" ls "$tmp/run" | tail -n 1)
check "  and is counted as it is" grep -qx "${tensors/tensors/parameters}" "$tmp/fp32.said"
no_model() { # FROM COMMAND...: refused with where the adapters are, and nothing is made
    local from=$1
    shift
    "$@" >"$tmp/said" 2>&1
    test $? = 2 -a ! -e "$tmp/fp32" && grep -q "adapters alone.* $from/adapter_model.safetensors is for other programs" "$tmp/said"
}
cp "$tmp/same/adapter_model.safetensors" "$tmp/renamed.safetensors"
for from in "$tmp/run/checkpoint-3" "$tmp/same" "$tmp/same/adapter_model.safetensors"; do
    real=$(realpath "$from") && real=${real%/adapter_model.safetensors}
    check "a folder of them would be no model" no_model "$real" "$bin/zero_to_fp32" "$from" "$tmp/fp32"
    check "  nor by zckpt" no_model "$real" "$bin/zckpt" convert "$from" "$tmp/fp32"
    check "  nor a GGUF" no_model "$real" "$bin/zckpt" convert "$from" "$tmp/fp32" --to gguf
done
check "  nor of a file with another name" sh -c "! '$bin/zckpt' convert '$tmp/renamed.safetensors' '$tmp/fp32' >'$tmp/said' 2>&1 && test ! -e '$tmp/fp32'"
check "  which says why" grep -q "has adapters alone" "$tmp/said"
check "  nor a checkpoint of their folder" no_model "$real" "$bin/zckpt" convert "$tmp/same" "$tmp/fp32" --to zlaunch
check "adapters are verified" test "$("$bin/zckpt" verify "$tmp/same")" = "$tmp/same: adapters: whole, ${tensors%%,*}"
check "  and compared" "$bin/zckpt" diff "$tmp/run" "$tmp/same"
check "  with those of a checkpoint, which have names of their own" "$bin/zckpt" diff "$tmp/run/checkpoint-6" "$tmp/run"
check "  from either side" "$bin/zckpt" diff "$tmp/run" "$tmp/run/checkpoint-6"
mkdir "$tmp/empty" && cp "$tmp/run/adapter_config.json" "$tmp/empty"
check "  and missed" sh -c "'$bin/zckpt' ls '$tmp/empty' 2>&1 | grep -q 'and no adapter_model.safetensors with the adapters\$'"
cp -r test/golden/llama3/model "$tmp/both" && cp "$tmp/run"/adapter_* "$tmp/both"
both() { lora llama3 1 "$tmp/o" --model_name_or_path "$tmp/both" --max_steps 1 "$@"; }
told() { grep -q "$tmp/both has adapters beside its model, .*: --adapter_name_or_path $tmp/both adds them" "$tmp/o" "$tmp/o.err"; }
check "adapters that lie beside a model, and others are asked for" both
check "  are told of" told
check "  but where they are what is asked for" both --adapter_name_or_path "$tmp/both"
check "  are not" sh -c '! "$@"' - grep -q "beside its model" "$tmp/o" "$tmp/o.err"
check "a checkpoint of adapters is no model" grep -q "holds adapters and no model: --adapter_name_or_path $tmp/run/checkpoint-3, beside" "$tmp/none" "$tmp/none.err"

# the plan of a large model: the body has weights, and nothing else
plan() { # FIELD ARGS...: bytes
    local name=$1
    shift
    some_rates >"$tmp/rates.json"
    "$bin/zlaunch" --num_gpus 1 --log_format json "$bin/models/llama.so" --dry_run --rates "$tmp/rates.json" --model \
        qwen2.5-0.5b --bf16 --do_train --train_file test/golden/llama3/data.bin --data_format nanogpt --vocab_size 151936 \
        --block_size 64 "$@" 2>"$tmp/plan.err" | sed -n "s/.*\"$name\":\([0-9]*\).*/\1/p"
}
check "gradients of rank 8 are less than 40 MB" test "$(plan gradients_bytes --lora_r 8)" -lt 40000000
check "without adapters they are more than 1.9 GB" test "$(plan gradients_bytes)" -gt 1900000000

# refused
refuses() { # CODE TEXT ARGS...
    local code=$1 text=$2
    shift 2
    "$bin/zworker" "$bin/models/llama.so" "${still[@]}" "$@" >"$tmp/refused" 2>&1
    [ $? -eq "$code" ] && grep -qF -- "$text" "$tmp/refused" || { sed 's/^/# /' "$tmp/refused"; false; }
}
base=(--model_name_or_path test/golden/llama3/model)
check "adapters without weights" refuses 2 "--lora_r needs --model_name_or_path" --lora_r 4
check "words about adapters without any" refuses 2 "--lora_alpha: there are no adapters" "${base[@]}" --lora_alpha 4
check "a module that there is not" refuses 65 'the target "q_prj" is no module of this model' "${base[@]}" --lora_r 4 \
    --lora_target_modules q_prj v_proj
check "  also between commas" refuses 65 'the target "q_prj" is no module of this model' "${base[@]}" --lora_r 4 \
    --lora_target_modules q_prj,v_proj
check "  and those that there are" grep -qF "q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj, lm_head" "$tmp/refused"
check "an embedding" refuses 65 "embed_tokens is meant by the target modules, and cannot have one" "${base[@]}" \
    --lora_r 4 --lora_target_modules embed_tokens
check "a file of adapters" refuses 66 "adapter_model.safetensors is a file; name the folder that it is in" "${base[@]}" \
    --adapter_name_or_path "$tmp/run/adapter_model.safetensors"
check "a broken expression" refuses 65 "is no regular expression that can be used" "${base[@]}" --lora_r 4 \
    --lora_target_modules '.*(q_proj'
# a plugin whose only weight is the head: that of docs/PLUGINS.md
awk '/^```c$/ { on = 1; next } /^```/ { if (on) exit } on' docs/PLUGINS.md >"$tmp/bigram.c"
only_a_head() {
    cc -O2 -shared -fPIC -Iinclude -o "$tmp/bigram.so" "$tmp/bigram.c" &&
        "$bin/zworker" "$tmp/bigram.so" --train_file README.md --block_size 16 --max_steps 1 --output_dir "$tmp/bigram" >"$tmp/log" 2>&1 &&
        ! "$bin/zworker" "$tmp/bigram.so" --train_file README.md --block_size 16 --max_steps 1 --model_name_or_path "$tmp/bigram" \
            --lora_r 4 >"$tmp/refused" 2>&1 && grep -qF "leaves out heads" "$tmp/refused"
}
check "a model that is a head alone" only_a_head
check "  names it" "$bin/zworker" "$tmp/bigram.so" --train_file README.md --block_size 16 --max_steps 1 --model_name_or_path "$tmp/bigram" \
    --lora_r 4 $(grep -o -- '--lora_target_modules [a-z]*' "$tmp/refused")
config() { sed "s/$1/$2/" "$tmp/run/adapter_config.json" >"$tmp/same/adapter_config.json"; }
while read -r was now text; do
    config "$was" "$now"
    check "adapter_config.json with $now" refuses 65 "${text//\~/ }" "${base[@]}" --adapter_name_or_path "$tmp/same"
done <<'END'
"use_dora".*false "use_dora":true "use_dora"~is~true,~which~is~not~built
"bias".*"none" "bias":"all" "bias"~is~"all",~which~is~not~built
"LORA" "IA3" "peft_type"~is~"IA3"
"r".*4 "r":0 "r"~is~0
"r".*4 "r":5 another~shape~or~type
"modules_to_save".*null "modules_to_save":["lm_head"] modules_to_save~has~the~module~of~lm_head
"bias": "rank_pattern":{"q_proj":8},"bias": "rank_pattern"~is
"init_lora_weights".*true "init_lora_weights":"pissa" which~is~not~built
END
cp "$tmp/run/adapter_config.json" "$tmp/same/"
cp "$tmp/same/adapter_model.safetensors" "$tmp/kept"
sed 's/q_proj.lora_A.weight"/q_proj.full_A.weight"/' "$tmp/kept" >"$tmp/same/adapter_model.safetensors"
check "a whole module of theirs is called that" refuses 65 "was trained whole (modules_to_save), and is no head of this model" \
    "${base[@]}" --adapter_name_or_path "$tmp/same"
cp "$tmp/kept" "$tmp/same/adapter_model.safetensors"
# those of a model of another type
other() { # TEXT FOLDER FAMILY/MODEL PLUGIN [ARGS...]
    local data=("${still[@]}")
    [ $# -le 4 ] || data=("${@:5}")
    "$bin/zworker" "$bin/models/$4.so" "${data[@]}" --model_name_or_path "test/golden/$3/model" --adapter_name_or_path "$2" \
        >"$tmp/refused" 2>&1
    [ $? -eq 65 ] && grep -qF -- "$1" "$tmp/refused" || { sed 's/^/# /' "$tmp/refused"; false; }
}
check "adapters of a llama are not a gpt2's" other "$tmp/run: these adapters were trained on a model of type llama, and that of \
--model_name_or_path test/golden/gpt2/model is of type gpt2" "$tmp/run" gpt2 gpt2
check "  nor a qwen3's" other "were trained on a model of type llama, and" "$tmp/run" qwen3 llama
mkdir "$tmp/peft" && cp "$tmp/run"/adapter_* "$tmp/peft"
check "  also where the config.json is that of the model they name" other "type llama, and" "$tmp/peft" gpt2 gpt2
sed -i 's|"base_model_name_or_path": .*|"base_model_name_or_path": "some/model",|' "$tmp/peft/adapter_config.json"
check "  and where none is here" other 'these adapters are of another model, some/model: their target ' "$tmp/peft" gpt2 gpt2
check "  and fit a llama still" again --adapter_name_or_path "$tmp/peft" "${still[@]}" --output_dir "$tmp/fits"
"$bin/zlaunch" --num_gpus 1 "$bin/models/bert.so" --do_train --task classify --train_file test/golden/bert/classify/rows.jsonl --block_size 16 \
    --max_steps 1 --lora_r 2 --model_name_or_path test/golden/bert/classify/model --output_dir "$tmp/bert" >"$tmp/log" 2>&1
check "adapters of a bert are not a deberta's" other "were trained on a model of type bert, and that of --model_name_or_path \
test/golden/deberta/classify/model is of type deberta-v2" "$tmp/bert" deberta/classify deberta --do_train --task classify \
    --train_file test/golden/deberta/classify/rows.jsonl --block_size 16
check "an option against it" refuses 65 "--lora_alpha: the adapter_config.json of" "${base[@]}" \
    --adapter_name_or_path "$tmp/same" --lora_alpha 3
finish
