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
    for again in "" again; do
        check "  with their tokens from a cache $again" predict 2 "$tmp/4" "$1" "$3" --data_cache_dir "$tmp/of_rows"
        check "  as well" cmp "$tmp/1/predictions.jsonl" "$tmp/4/predictions.jsonl"
    done
    check "  which was read" test "$(grep -c 'its tokens are made' "$tmp/said")" -eq 0
done

check "--do_predict beside a training file, as of Trainer's scripts, trains nothing" predict 1 "$tmp/alone" classify rows.jsonl --train_file "$tmp/classes.jsonl" --do_predict
check "  which is said" grep -q "nothing is trained (--do_train)" "$tmp/said"
predict 1 "$tmp/1" classify rows.jsonl
check "  the predictions are those of the weights" cmp "$tmp/1/predictions.jsonl" "$tmp/alone/predictions.jsonl"
printf 'text\nw1 K\344se\nw2\n' >"$tmp/latin.csv"
check "bytes that are no UTF-8 are told" predict 1 "$tmp/latin" classify latin.csv
check "  with their number" grep -q "holds 1 sequences of bytes that are no UTF-8" "$tmp/said"

# a file of empty texts alone is as one in which others stand beside them
printf '%s\n' '{"text": "w1 w4"}' '{"text": ""}' >"$tmp/some.jsonl"
tail -1 "$tmp/some.jsonl" >"$tmp/empty.jsonl"
check "an empty text among others is predicted" predict 1 "$tmp/some" classify some.jsonl
check "  so is one alone" predict 2 "$tmp/empty" classify empty.jsonl
tail -1 "$tmp/some/predictions.jsonl" >"$tmp/want"
check "  the same" cmp "$tmp/want" "$tmp/empty/predictions.jsonl"
echo '{"tokens": []}' >"$tmp/no-words.jsonl"
check "rows without words have no tags" predict 2 "$tmp/no-words" tag no-words.jsonl
check "  one line each" grep -qx '{"tags":\[\]}' "$tmp/no-words/predictions.jsonl"
printf '%s\n' '{"text": "", "label": "red"}' '{"text": "", "label": "blue"}' >"$tmp/classes-of-none.jsonl"
check "a training of empty texts" bert 2 "$tmp/log" classify classes-of-none.jsonl --max_steps 2 --do_eval --eval_file "$tmp/classes-of-none.jsonl"
for again in "" again; do
    check "  with ids from a cache $again" bert 2 "$tmp/cached" classify classes-of-none.jsonl --max_steps 2 --data_cache_dir "$tmp/ids"
    check "  the same" same_bits "$tmp/log" "$tmp/cached"
done
check "  which was read" test "$(cat "$tmp/cached" "$tmp/cached.err" | grep -c 'its tokens are made\|is damaged')" = 0
bert 1 "$tmp/log" classify classes-of-none.jsonl --max_steps 2 --tokenizer_name test/golden/tokenizer # puts nothing around a text
check "texts that become no token at all are refused" test $? -eq 65 -a -n "$(grep -h 'classes-of-none.jsonl: holds no tokens' "$tmp/log" "$tmp/log.err")"

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
adapters=$tmp/head
other_task() { # TASK FILE WAS ARGS...: adapters of WAS are refused
    "$bin/zlaunch" --num_gpus 1 "$bin/models/bert.so" --task "$1" --model_name_or_path "$tmp/body" --block_size 16 \
        --adapter_name_or_path "$adapters" "${@:4}" >"$tmp/said" 2>&1
    [ $? -eq 65 ] && grep -qF "$adapters was trained for --task $3, and has no head for --task $1" "$tmp/said"
}
other_tasks() { # adapters of classes in $tmp/head
    check "$1 are none of tags" other_task tag tags.jsonl classify --eval_file "$tmp/tags.jsonl"
    check "  in a training, too" other_task tag tags.jsonl classify --train_file "$tmp/tags.jsonl" --max_steps 1
    check "  nor of numbers" other_task regress numbers.tsv classify --eval_file "$tmp/numbers.tsv"
    check "  nor of masked tokens" other_task masked_lm lines.txt classify --eval_file "$tmp/lines.txt"
}
other_tasks "adapters of classes"
cp "$tmp/head/adapter_config.json" "$tmp/typed.json"
sed -i 's/"task_type": *"SEQ_CLS"/"task_type": null/' "$tmp/head/adapter_config.json"
other_tasks "by the class in their config.json alone they"
cp "$tmp/typed.json" "$tmp/head/adapter_config.json"
for kind in "masked_lm lines.txt" "regress numbers.tsv"; do
    # shellcheck disable=SC2086 # words
    set -- $kind
    adapters=$tmp/$1.adapters
    check "adapters of $1 are trained" "$bin/zlaunch" --num_gpus 1 "$bin/models/bert.so" --task "$1" --model_name_or_path "$tmp/body" \
        --block_size 16 --train_file "$tmp/$2" --max_steps 1 --lora_r 2 --output_dir "$adapters" 2>"$tmp/said"
    check "  and are none of classes" other_task classify classes.jsonl "$1" --eval_file "$tmp/classes.jsonl"
done
adapters=$tmp/head
rm "$tmp/head/config.json" # as peft has it
other_tasks "by their task_type alone they"
check "adapters without names predict, too" adapted --adapter_name_or_path "$tmp/head" --test_file "$tmp/rows.jsonl" \
    --output_dir "$tmp/unnamed"
check "  numbers" grep -qE '"label": ?"LABEL_[012]"' "$tmp/unnamed/predictions.jsonl"
check "  over a model of as many classes that have names" sh -c '"$1" --num_gpus 1 "$2" --task classify --model_name_or_path "$3/classify" \
    --block_size 16 --adapter_name_or_path "$3/head" --test_file "$3/rows.jsonl" --output_dir "$3/beneath" >"$3/said" 2>&1' - \
    "$bin/zlaunch" "$bin/models/bert.so" "$tmp"
check "  by those" grep -qE '"label": ?"(red|green|blue)"' "$tmp/beneath/predictions.jsonl"
adapted_refuses() {
    ! adapted --adapter_name_or_path "$tmp/head" --eval_file "$tmp/classes.jsonl" >/dev/null && grep -qF "$which" "$tmp/said"
}

# classes that a head numbers and does not name: which of them a name is, nothing says
unnamed() { # unnamed TASK: the trained head of the task, as transformers saves one without names
    cp -r "$tmp/$1" "$tmp/$1.unnamed"
    sed -i -E '/"(id2label|label2id)"/s/"(blue|B-X)"/"LABEL_0"/g; /"(id2label|label2id)"/s/"(green|O)"/"LABEL_1"/g
               /"(id2label|label2id)"/s/"red"/"LABEL_2"/g' "$tmp/$1.unnamed/config.json"
    grep -q LABEL_1 "$tmp/$1.unnamed/config.json"
}
as_data() { # as_data CODE WORDS TASK FILE ARGS...: no class is guessed
    local code=$1 words=$2 task=$3 file=$4
    shift 4
    "$bin/zlaunch" --num_gpus 1 "$bin/models/bert.so" --task "$task" --model_name_or_path "$tmp/$task.unnamed" --block_size 16 "$@" \
        --eval_file "$tmp/$file" >"$tmp/said" 2>&1
    [ $? -eq "$code" ] && tr -d '\\' <"$tmp/said" | grep -qE -- "$words" && return
    sed 's/^/# /' "$tmp/said"
    return 1
}
as_numbers() { sed -E 's/"(blue|B-X)"/0/g; s/"(green|O)"/1/g; s/"red"/2/g' "$tmp/$1" >"$tmp/numbered.$1"; }
accuracy() { sed -nE 's/.*"eval_accuracy": ?([0-9.]*).*/\1/p' "$1/eval_results.json"; }
which='classes of the model have numbers and no names'
sed 's/"text": "\([^"]*\)"/"sentence1": "\1", "sentence2": "w1"/' "$tmp/classes.jsonl" >"$tmp/two.jsonl"
for kind in "classify classes.jsonl" "tag tags.jsonl"; do
    # shellcheck disable=SC2086 # words
    set -- $kind
    unnamed "$1"
    as_numbers "$2"
    check "$1: names of data are no classes of a head that has none" as_data 65 "$2:1: .* $which" "$1" "$2"
    check "  nor in a training that goes on from it" as_data 65 "$2:1: .* $which" "$1" "$2" --do_train --train_file "$tmp/$2" --max_steps 1
    check "  numbers are" as_data 0 . "$1" "numbered.$2" --output_dir "$tmp/$1.numbered"
    "$bin/zlaunch" --num_gpus 1 "$bin/models/bert.so" --task "$1" --model_name_or_path "$tmp/$1" --block_size 16 \
        --eval_file "$tmp/$2" --output_dir "$tmp/$1.named" >"$tmp/said" 2>&1
    check "  with the accuracy of the names" test -n "$(accuracy "$tmp/$1.named")" -a "$(accuracy "$tmp/$1.named")" = "$(accuracy "$tmp/$1.numbered")"
    cp -r "$tmp/$1" "$tmp/$1.bare" # names that are not in the order of the alphabet, and no class of transformers
    sed -i -E '/"architectures"/d; s/"blue"/"zoo"/g; s/"B-X"/"Z-X"/g' "$tmp/$1.bare/config.json"
    sed -E 's/"blue"/"zoo"/g; s/"B-X"/"Z-X"/g' "$tmp/$2" >"$tmp/bare.$2"
    "$bin/zlaunch" --num_gpus 1 "$bin/models/bert.so" --task "$1" --model_name_or_path "$tmp/$1.bare" --block_size 16 \
        --eval_file "$tmp/bare.$2" --output_dir "$tmp/$1.barely" >"$tmp/said" 2>&1
    check "  and so have names of a head beside no \"architectures\"" test -n "$(accuracy "$tmp/$1.named")" -a "$(accuracy "$tmp/$1.named")" = "$(accuracy "$tmp/$1.barely")"
done
check "names of pairs are none, too" as_data 65 "two.jsonl:1: .* $which" classify two.jsonl
cp "$tmp/body/model.safetensors" "$tmp/classify.unnamed"
check "a head without weights is new and has the names of the data" as_data 0 . classify classes.jsonl --do_train \
    --train_file "$tmp/classes.jsonl" --max_steps 1 --output_dir "$tmp/new"
check "  in their order" grep -qF '"id2label": {"0": "blue", "1": "green", "2": "red"}' "$tmp/new/config.json"
numbers() {
    "$bin/zlaunch" --num_gpus 1 "$bin/models/bert.so" --task classify --model_name_or_path "$tmp/regress" --block_size 16 \
        --eval_file "$tmp/classes.jsonl" >"$tmp/said" 2>&1
    [ $? -eq 65 ] && grep -qF 'the weights have a head of one output' "$tmp/said"
}
check "a head that has learnt numbers is called one" numbers
cp -r "$tmp/regress" "$tmp/counted" && sed -i '/"label2id"/d; s/"id2label": {.*},*/"num_labels": 1,/' "$tmp/counted/config.json"
sed -i -z 's/,\n}/\n}/' "$tmp/counted/config.json"
"$bin/zlaunch" --num_gpus 1 "$bin/models/bert.so" --task regress --model_name_or_path "$tmp/counted" --block_size 16 \
    --test_file "$tmp/rows.tsv" --output_dir "$tmp/counted.out" >"$tmp/said" 2>&1
check "  by num_labels of older files, too" test $? -eq 0
check "adapters without names have no names of the data" adapted_refuses

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
check "weights that are no numbers predict nothing" fails "predictions: what the model makes of row 1 of $tmp/rows.jsonl is not finite" \
    "${lost[@]}" --test_file "$tmp/rows.jsonl" --output_dir "$tmp/none"
check "  and leave no file" test ! -e "$tmp/none/predictions.jsonl"
check "  nor is an evaluation of them a success" fails "the loss of the evaluation is" \
    "${lost[@]}" --eval_file "$tmp/classes.jsonl" --output_dir "$tmp/none"
check "  which is told once" test "$(grep -c 'loss of the evaluation is' "$tmp/said")" -eq 1
check "  and kept" grep -q '"eval_loss":null' "$tmp/none/eval_results.json"
nan_word() { # nan_word TASK NUMBER: the embedding of one word
    local file=$tmp/$1.nan/model.safetensors at
    cp -r "$tmp/$1" "$tmp/$1.nan"
    at=$(head -c 20000 "$file" | grep -ao 'embeddings\.word_embeddings\.weight":[^}]*"data_offsets": *\[[0-9]*' | grep -o '[0-9]*$')
    at=$((8 + $(od -An -tu8 -N8 "$file") + at + (5 + $2) * 32 * 4))
    head -c 128 /dev/zero | tr '\0' '\377' | dd of="$file" bs=1 seek=$at conv=notrunc status=none
}
for kind in "classify rows.jsonl text" "regress rows.tsv w" "tag words.jsonl tokens"; do
    # shellcheck disable=SC2086 # words
    set -- $kind
    nan_word "$1" 7
    row=$(grep "^.*$3" "$tmp/$2" | grep -nEm 1 '(^|[" ])w7([" \t]|ab)' | cut -d : -f 1)
    check "$1: nor does a word whose embedding is none" fails "predictions: what the model makes of row $row of $tmp/$2 is not finite" \
        "$bin/zlaunch" --num_gpus 2 "$bin/models/bert.so" --task "$1" --model_name_or_path "$tmp/$1.nan" --block_size 16 \
        --per_device_eval_batch_size 7 --test_file "$tmp/$2" --output_dir "$tmp/none"
    check "  no file of it" test ! -e "$tmp/none/predictions.jsonl"
    sed '/"*w7\("\|ab\| \|\t\|$\)/d' "$tmp/$2" >"$tmp/without-$2"
    check "  but the rows without it are predicted" predict 2 "$tmp/without" "$1" "without-$2" --model_name_or_path "$tmp/$1.nan"
done
sed '/\(^\|[" ]\)w7\([" ]\|ab\)/d' "$tmp/classes.jsonl" >"$tmp/without.jsonl"
check "a training that does not meet it ends with 1 where its evaluation does" fails "the loss of the evaluation after step 2 is nan" \
    "${lost[@]/"$tmp/lost"/"$tmp/classify.nan"}" --train_file "$tmp/without.jsonl" --eval_file "$tmp/classes.jsonl" --max_steps 2 --eval_steps 1 --output_dir "$tmp/unmet"
check "  behind its weights" test -e "$tmp/unmet/model.safetensors"

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
check "a task without predictions says so" refused 'is no model that writes: it requires the field lengths, which no prompt and no text of --test_file offers; --do_predict writes labels of rows with --task classify, regress and tag alone' "$bin/models/bert.so" \
    --task masked_lm --model_name_or_path "$tmp/classify" --test_file "$tmp/rows.jsonl" --output_dir "$tmp/none"
check "labels are no text to be written" refused '--max_new_tokens: with --task classify rows of --test_file get labels' "$bin/models/bert.so" \
    --task classify --model_name_or_path "$tmp/classify" --test_file "$tmp/rows.jsonl" --output_dir "$tmp/none" --max_new_tokens 5
finish
