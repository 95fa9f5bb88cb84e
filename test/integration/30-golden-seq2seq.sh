#!/bin/bash
# T5 and BART give the numbers that transformers and PyTorch gave (test/golden/make_seq2seq.py): logits and gradients
# of sources of several lengths, padded; 20 steps of AdamW on the pairs of a file; greedy text, and texts with their
# scores by beam search. And the stages of ZeRO give the same bits.
# shellcheck source=test/integration/train_lib.sh
. "$(dirname "$0")/train_lib.sh"
peers=build/${ZT_VARIANT:-release}/peers golden=test/golden/seq2seq
declare -A plugin=([t5]=t5 [t5_gated]=t5 [bart]=bart [blenderbot]=bart)
columns="--tokenizer_name bytes --source_column source --target_column target"
near() { # near OUT MODEL PART TOLERANCE
    "$peers/compare" "$1" "$golden/$2/probe.safetensors" "$4" "$3" 2>&1 | sed 's/^/# /'
    return "${PIPESTATUS[0]}"
}
probe() { # probe OUT MODEL ARGS...: the golden batch through our model
    local out=$1 model=$2
    shift 2
    # shellcheck disable=SC2086 # words
    "$peers/probe" "$bin/models/${plugin[$model]}.so" "$golden/$model/batch.safetensors" "$out" --do_train \
        --train_file "$golden/$model/pairs.jsonl" $columns --max_source_length 21 --per_device_train_batch_size 3 \
        --model_name_or_path "$golden/$model/model" "$@" 2>"$out.err" || { sed 's/^/# /' "$out.err"; false; }
}
# curve RANKS MODEL OUT ARGS...: 20 steps, each of the four pairs that the sampler takes
curve() {
    local ranks=$1 model=$2 out=$3
    shift 3
    # shellcheck disable=SC2086 # words
    "$bin/zlaunch" --num_gpus "$ranks" --log_format json "$bin/models/${plugin[$model]}.so" --do_train \
        --train_file "$golden/$model/pairs.jsonl" $columns --model_name_or_path "$golden/$model/model" \
        --per_device_train_batch_size $((4 / ranks)) --max_steps 20 --seed 11 --learning_rate 2e-3 --weight_decay 0.1 \
        --max_grad_norm 1 --lr_scheduler_type linear --logging_steps 1 --fingerprint_steps 1 "$@" >"$out" 2>"$out.err" ||
        { sed 's/^/# /' "$out.err"; false; }
}
follows() { # follows MODEL OUT: the losses, gradient norms and rates of the golden curve
    paste -d ' ' "$golden/$1/curve.txt" <(field loss "$2") <(field grad_norm "$2") <(field lr "$2") | awk '
        function far(a, b) { return a > b ? a - b : b - a }
        NF != 6 { print "# line " NR ": " $0; exit 1 }
        { l = far($4, $1); n = far($5, $2) / $2; r = far($6, $3); if (l > ml) ml = l; if (n > mn) mn = n; if (r > mr) mr = r }
        END { printf "# loss within %.2g, gradient norm within %.2g\n", ml, mn
              exit !(NR == 20 && ml <= 1e-3 && mn <= 1e-3 && mr <= 1e-9) }'
}
writes() { # writes MODEL OUT ARGS...: from the golden source, as many tokens as transformers wrote
    local model=$1 out=$2 source text
    shift 2
    { read -r source && read -r text; } <"$golden/$model/greedy.txt"
    "$bin/zlaunch" --num_gpus 1 --log_format json "$bin/models/${plugin[$model]}.so" \
        --model_name_or_path "$golden/$model/model" --prompt "$source" --temperature 0 \
        --generate_tokens "$(wc -w <<<"$text")" --min_new_tokens "$(wc -w <<<"$text")" "$@" >"$out" 2>"$out.err" ||
        { sed 's/^/# /' "$out.err"; false; }
}
searches() { # searches MODEL RANKS ARGS...: four beams from the golden sources, into $tmp/beams
    local model=$1 ranks=$2
    shift 2
    sed 's/, "generated".*/}/' "$golden/$model/beams.jsonl" >"$tmp/sources.jsonl"
    "$bin/zlaunch" --num_gpus "$ranks" "$bin/models/${plugin[$model]}.so" --model_name_or_path "$golden/$model/model" \
        --test_file "$tmp/sources.jsonl" --output_dir "$tmp/beams" --overwrite_output_dir --max_new_tokens 12 \
        --num_beams 4 --num_return_sequences 4 --length_penalty 0.5 --no_repeat_ngram_size 2 "$@" >"$tmp/beams.log" 2>&1 ||
        { sed 's/^/# /' "$tmp/beams.log"; false; }
}
found() { sed 's/.*"generated": *\(\[[^]]*\]\).*/\1/; s/", *"/", "/g' "$1"; } # found FILE: the texts of each line
scores() { sed 's/.*"score": *\[\([^]]*\)\].*/\1/; s/, */\n/g' "$1"; }         # scores FILE: one a line
scored_as() { # scored_as MODEL: within what fp32 leaves of sums of a dozen logarithms
    paste -d ' ' <(scores "$golden/$1/beams.jsonl") <(scores "$tmp/beams/predictions.jsonl") | awk '
        { d = $2 / $1 - 1; d = d < 0 ? -d : d; if (d > most) most = d }
        END { printf "# %d scores within %.2g of themselves\n", NR, most; exit !(NR == 24 && most <= 2e-6) }'
}
said() { sed -n 's/.*"event":"sample".*"text":"\([^"]*\)".*/\1/p' "$1"; }

echo '{"zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0}}' >"$tmp/stage3.json"
for model in t5 t5_gated bart blenderbot; do
    check "$model: a batch runs" probe "$tmp/$model" $model
    check "  loss within 1e-5" near "$tmp/$model" $model loss 1e-5
    check "  logits within 1e-4" near "$tmp/$model" $model logits 1e-4
    check "  every gradient within 1e-3" near "$tmp/$model" $model grad. 1e-3
    check "$model: 20 steps run on two ranks" curve 2 $model "$tmp/s0"
    check "  on the curve of PyTorch" follows $model "$tmp/s0"
    check "  at stage 3" curve 2 $model "$tmp/s3" --deepspeed "$tmp/stage3.json"
    check "  with the same bits" same_bits "$tmp/s0" "$tmp/s3"
    check "$model: text comes" writes $model "$tmp/text"
    check "  and is that of transformers" test "$(said "$tmp/text")" = "$(tail -n 1 "$golden/$model/greedy.txt")"
    check "$model: texts come by beam search" searches $model 2
    check "  and are those of transformers" test "$(found "$tmp/beams/predictions.jsonl")" = "$(found "$golden/$model/beams.jsonl")"
    check "  with its scores" scored_as $model
done
check "20 steps run on one rank" curve 1 bart "$tmp/one"
check "  on the same curve" follows bart "$tmp/one"
check "a batch runs with blocks recomputed" probe "$tmp/again" t5 --gradient_checkpointing
check "  and has the same gradients" near "$tmp/again" t5 grad. 1e-3
check "beams without a rule come" searches bart 1 --no_repeat_ngram_size 0
check "  and have other scores" test "$(scored_as bart >/dev/null; echo $?)" -eq 1
# contradicts EDIT TEXT: the config.json of t5, edited, is refused and says so
contradicts() {
    rm -rf "$tmp/edited" && cp -r "$golden/t5/model" "$tmp/edited" && sed -i "$1" "$tmp/edited/config.json" || return 1
    # shellcheck disable=SC2086 # words
    "$bin/zlaunch" --num_gpus 1 --dry_run "$bin/models/t5.so" --model_name_or_path "$tmp/edited" --do_train \
        --train_file "$golden/t5/pairs.jsonl" $columns >"$tmp/refused" 2>&1 && return 1
    grep -qF -- "$2" "$tmp/refused" || { sed 's/^/# /' "$tmp/refused"; false; }
}
check "an activation beside another feed_forward_proj is refused" contradicts \
    's/"dense_act_fn": "relu"/"dense_act_fn": "gelu_new"/' '"dense_act_fn" is "gelu_new", which is not built: only ["relu"]'
check "  so is a gate" contradicts 's/"is_gated_act": false/"is_gated_act": true/' '"is_gated_act" is true'
check "the comparison can fail" test "$("$peers/compare" "$tmp/t5" "$golden/t5_gated/probe.safetensors" 1e-3 logits >/dev/null 2>&1; echo $?)" -eq 1
finish
