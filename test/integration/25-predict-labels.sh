#!/bin/bash
# --do_predict: a line for each row of --test_file, in its order, the same on any ranks and at every stage; without labels.
# shellcheck source=test/integration/tasks_lib.sh
. "$(dirname "$0")/tasks_lib.sh"
sed 's/, "label".*/}/' "$tmp/classes.jsonl" >"$tmp/rows.jsonl"
echo >>"$tmp/rows.jsonl" # a blank line is no row
cut -f 1,2 "$tmp/numbers.tsv" >"$tmp/rows.tsv"
sed 's/, "ner_tags".*/}/' "$tmp/tags.jsonl" >"$tmp/words.jsonl"

# predict RANKS OUT TASK FILE ARGS...: by the weights of the task
predict() {
    local ranks=$1 out=$2 task=$3 file=$4
    shift 4
    "$bin/zlaunch" --num_gpus "$ranks" "$bin/models/bert.so" --task "$task" --model_name_or_path "$tmp/$task" \
        --test_file "$tmp/$file" --output_dir "$out" --block_size 16 --per_device_eval_batch_size 7 "$@" >"$tmp/said" 2>&1 ||
        { sed 's/^/# /' "$tmp/said"; false; }
}
echo '{"zero_optimization": {"stage": 3}}' >"$tmp/zero3.json"
for kind in "classify classes.jsonl rows.jsonl" "regress numbers.tsv rows.tsv" "tag tags.jsonl words.jsonl"; do
    # shellcheck disable=SC2086 # words
    set -- $kind
    bert 1 "$tmp/log" "$1" "$2" --max_steps 80 --dropout 0 --output_dir "$tmp/$1"
    check "$1: rows without labels are predicted" predict 1 "$tmp/1" "$1" "$3"
    check "  one line each" test "$(wc -l <"$tmp/1/predictions.jsonl")" -eq 60
    check "  by three ranks" predict 3 "$tmp/3" "$1" "$3"
    check "  the same file" cmp "$tmp/1/predictions.jsonl" "$tmp/3/predictions.jsonl"
    check "  at stage 3" predict 2 "$tmp/2" "$1" "$3" --deepspeed "$tmp/zero3.json"
    check "  as well" cmp "$tmp/1/predictions.jsonl" "$tmp/2/predictions.jsonl"
done

# classes of a head that was trained with adapters: their folder names them, or their file has as many
bert 1 "$tmp/log" masked_lm lines.txt --output_dir "$tmp/body"
adapted() { # adapted ARGS...: a classifier over the body
    "$bin/zlaunch" --num_gpus 1 "$bin/models/bert.so" --task classify --model_name_or_path "$tmp/body" --block_size 16 "$@" \
        >"$tmp/said" 2>&1 || { sed 's/^/# /' "$tmp/said"; false; }
}
check "a head is trained with adapters" adapted --train_file "$tmp/classes.jsonl" --lora_r 2 --max_steps 3 --output_dir "$tmp/head"
check "  and predicts rows without labels" adapted --adapter_name_or_path "$tmp/head" --test_file "$tmp/rows.jsonl" \
    --output_dir "$tmp/predicted"
check "  by the names of its classes" grep -qE '"label": ?"(red|green|blue)"' "$tmp/predicted/predictions.jsonl"
check "  is merged without data" adapted --adapter_name_or_path "$tmp/head" --merge_adapters --output_dir "$tmp/merged"
check "  with the names" grep -q '"green"' "$tmp/merged/config.json"
check "  and predicts the same" sh -c '"$1" --num_gpus 1 "$2" --task classify --model_name_or_path "$3/merged" --block_size 16 \
    --test_file "$3/rows.jsonl" --output_dir "$3/again" >"$3/said" 2>&1' - "$bin/zlaunch" "$bin/models/bert.so" "$tmp"
label() { sed -E 's/.*"label": ?"([A-Za-z_0-9]*)".*/\1/' "$1"; }
label "$tmp/predicted/predictions.jsonl" >"$tmp/got"
label "$tmp/again/predictions.jsonl" >"$tmp/want"
check "  label by label" cmp "$tmp/got" "$tmp/want"
rm "$tmp/head/config.json" # as peft has it
check "adapters without names predict, too" adapted --adapter_name_or_path "$tmp/head" --test_file "$tmp/rows.jsonl" \
    --output_dir "$tmp/unnamed"
check "  numbers" grep -qE '"label": ?"LABEL_[012]"' "$tmp/unnamed/predictions.jsonl"

# the order is that of the rows: what was learnt is said of each
agree() { # agree A B LEAST: so many lines are the same
    test "$(paste -d ' ' "$1" "$2" | awk '$1 == $2' | wc -l)" -ge "$3"
}
predict 1 "$tmp/c" classify rows.jsonl
label "$tmp/c/predictions.jsonl" >"$tmp/got"
label "$tmp/classes.jsonl" >"$tmp/want"
check "classes are those of their rows" agree "$tmp/got" "$tmp/want" 50
predict 1 "$tmp/t" tag words.jsonl
sed 's/.*\[//; s/\].*//; s/ //g' "$tmp/t/predictions.jsonl" >"$tmp/got"
sed 's/.*"ner_tags": \[//; s/\].*//; s/ //g' "$tmp/tags.jsonl" >"$tmp/want"
check "tags are those of their words" agree "$tmp/got" "$tmp/want" 45
check "words that are cut off have none" predict 1 "$tmp/cut" tag words.jsonl --block_size 8
check "  and the others theirs" sh -c 'grep -q "\",null" "$1" && ! grep -q "null,\"" "$1"' - "$tmp/cut/predictions.jsonl"

check "a training predicts at its end" bert 2 "$tmp/log" classify classes.jsonl --test_file "$tmp/rows.jsonl" --output_dir "$tmp/both"
check "  with the weights that it saves" predict 1 "$tmp/c2" classify rows.jsonl --model_name_or_path "$tmp/both"
check "  the same" agree <(cut -c 1-24 "$tmp/both/predictions.jsonl") <(cut -c 1-24 "$tmp/c2/predictions.jsonl") 58

# weights that are no numbers: no class is the likeliest
nan() { # nan FOLDER BYTES: the last ones of its weights
    head -c "$2" /dev/zero | tr '\0' '\377' |
        dd of="$1/model.safetensors" bs=1 seek=$(($(stat -c %s "$1/model.safetensors") - $2)) conv=notrunc status=none
}
fails() { # fails WORDS COMMAND...
    local words=$1
    shift
    "$@" >"$tmp/said" 2>&1
    [ $? -eq 1 ] && grep -qF -- "$words" "$tmp/said" && return
    sed 's/^/# /' "$tmp/said"
    return 1
}
cp -r "$tmp/classify" "$tmp/lost" && nan "$tmp/lost" 1000
lost=("$bin/zlaunch" --num_gpus 2 "$bin/models/bert.so" --task classify --model_name_or_path "$tmp/lost" --block_size 16)
check "weights that are no numbers predict nothing" fails "predictions: all logits are NaN" \
    "${lost[@]}" --test_file "$tmp/rows.jsonl" --output_dir "$tmp/none"
check "  and leave no file" test ! -e "$tmp/none/predictions.jsonl"
check "  nor is an evaluation of them a success" fails "the loss of the evaluation is" \
    "${lost[@]}" --eval_file "$tmp/classes.jsonl" --output_dir "$tmp/none"
check "  which is told once" test "$(grep -c 'loss of the evaluation is' "$tmp/said")" -eq 1
check "  and kept" grep -q '"eval_loss":null' "$tmp/none/eval_results.json"

refused() { # refused WORDS COMMAND...
    local words=$1
    shift
    "$bin/zlaunch" --num_gpus 1 "$@" >"$tmp/said" 2>&1
    [ $? -eq 2 ] && grep -qF -- "$words" "$tmp/said" && return
    sed 's/^/# /' "$tmp/said"
    return 1
}
check "without a file there is nothing to predict" refused '--do_predict needs a --test_file' "$bin/models/bert.so" --do_predict
check "without a folder there is no place for it" refused 'needs an --output_dir' "$bin/models/bert.so" --task classify --test_file x.jsonl
for task in classify tag; do
    check "a model that was not trained to $task" refused 'the model names no classes' "$bin/models/bert.so" --task $task \
        --model_name_or_path test/golden/bert/masked_lm/model --test_file "test/golden/bert/$task/rows.jsonl" --output_dir "$tmp/none"
done
check "a task without predictions says so" refused 'is no model that writes: it requires the field lengths' "$bin/models/bert.so" \
    --task masked_lm --model_name_or_path "$tmp/classify" --test_file "$tmp/rows.jsonl" --output_dir "$tmp/none"
finish
