#!/bin/bash
# --task: BERT learns classes, numbers, tags and masked tokens; the same bits under every ZeRO stage; what
# does not fit together is refused.
# shellcheck source=test/integration/tasks_lib.sh
. "$(dirname "$0")/tasks_lib.sh"

for kind in "classify classes.jsonl" "regress numbers.tsv" "tag tags.jsonl" "masked_lm lines.txt"; do
    # shellcheck disable=SC2086 # words
    set -- $kind
    pad=--pad_to_max_length # dropout follows the width of rows
    [ "$1" != masked_lm ] || pad=
    check "$1: two ranks" bert 2 "$tmp/$1" "$1" "$2" $pad
    for stage in 1 2 3; do
        echo "{\"zero_optimization\": {\"stage\": $stage}}" >"$tmp/zero.json"
        bert 2 "$tmp/$1-$stage" "$1" "$2" $pad --deepspeed "$tmp/zero.json"
        check "  ZeRO $stage has the same bits" same_bits "$tmp/$1" "$tmp/$1-$stage"
    done
    bert 1 "$tmp/$1-1rank" "$1" "$2" $pad --gradient_accumulation_steps 2 --per_device_train_batch_size 4 --gradient_checkpointing
    check "  one rank, accumulated and recomputed, the same curve" same_curve "$tmp/$1" "$tmp/$1-1rank" 1e-5
done

lacks() { ! grep -q "$@"; }
check "rows of any width train" bert 2 "$tmp/wide" classify classes.jsonl --dropout 0 --max_steps 120
check "  and are learnt" awk -v first="$(field loss "$tmp/wide" | head -n 1)" -v last="$(field loss "$tmp/wide" | tail -n 1)" \
    'BEGIN { exit !(last < 0.5 * first) }'

out=$tmp/out
check "weights are saved" bert 1 "$tmp/1" classify classes.jsonl --output_dir "$out"
check "  with the names of the classes" grep -qF '"id2label": {"0": "blue", "1": "green", "2": "red"}' "$out/config.json"
head -n 30 "$tmp/classes.jsonl" | grep -v red >"$tmp/some.jsonl"
sizes=(--hidden_size 32 --num_hidden_layers 2)
"$bin/zlaunch" --num_gpus 1 --log_format json "$bin/models/bert.so" --task classify --model_name_or_path "$out" \
    --eval_file "$tmp/some.jsonl" "${sizes[@]}" >"$tmp/2" 2>"$tmp/2.err"
check "  which say what labels of other data mean" grep -q '"event":"eval"' "$tmp/2"
check "  over rows, which is what the loss is a mean of" grep -q "\"samples\":$(wc -l <"$tmp/some.jsonl")," "$tmp/2"
check "  and not over tokens with padding" lacks '"event":"eval".*"tokens":' "$tmp/2"
"$bin/zlaunch" --num_gpus 1 "$bin/models/bert.so" --model_name_or_path "$out" --eval_file "$tmp/some.jsonl" --tokenizer_name "$tok" \
    "${sizes[@]}" >"$tmp/2" 2>"$tmp/2.err"
check "  and without --task it is refused, for their head is for that task" test $? -eq 65
check "  which is said" grep -q 'nothing trains them here; the head that the folder has is for --task classify' "$tmp/2.err"

# refused CODE WORDS TASK FILE ARGS...
refused() {
    local code=$1 words=$2
    shift 2
    bert 1 "$tmp/refused" "$@"
    [ $? -eq "$code" ] && tr -d '\\' <"$tmp/refused" | grep -qF -- "$words" && return
    head -n 4 "$tmp/refused" "$tmp/refused.err" | cut -c1-300 | sed "s/^/# /"
    return 1
}
echo '{"data": [{"text": "w1", "label": "red"}]}' >"$tmp/nested.json"
check "rows that are inside of something are told" refused 65 'rows that are inside of "data" are to be the file' classify nested.json
echo '{"sentence": "w1"}' >"$tmp/unlabelled.jsonl"
check "rows of which no column can hold labels, too" refused 65 'no column holds the labels; the row has sentence' classify unlabelled.jsonl
echo '{"sentence": "w1", "mood": "red"}' >"$tmp/unlabelled.jsonl"
check "  and where one can the option is said that names it" refused 2 'the row has sentence, mood: --label_column says which' classify unlabelled.jsonl
check "labels need records" refused 2 "labels are in records" classify lines.txt
check "a column that is not there is named" refused 2 'there is no column "klass"; the row has text, label' classify classes.jsonl --label_column klass
sed '7s/"label": "[a-z]*"/"label": 1.5/' "$tmp/classes.jsonl" >"$tmp/broken.jsonl"
check "a malformed label is named by its line" refused 65 'broken.jsonl:7: "label" holds a label that is neither' classify broken.jsonl
sed '5s/"O"/"O", "O"/' "$tmp/tags.jsonl" >"$tmp/uneven.jsonl"
check "tags that are not as many as words, too" refused 65 'uneven.jsonl:5: there are ' tag uneven.jsonl
printf '%s\n' '{"sentence": "w1", "label": "a"}' '{"question": "w2", "sentence": "w3", "label": "b"}' >"$tmp/half.jsonl"
check "a first row of one text does not make one of two" refused 65 'half.jsonl:2: the row has "question" and "sentence", and the first row' classify half.jsonl
check "  but where it is asked for" bert 1 "$tmp/half" classify half.jsonl --text_column sentence --max_steps 1
printf '%s\n' '{"sentence": "w1", "label": "a"}' '{"text": "w2", "sentence": "w3", "label": "b"}' >"$tmp/half.jsonl"
check "  nor its text that of rows with another before it" refused 65 'half.jsonl:2: the row has "text", and the first row has not' classify half.jsonl
printf '%s\n' '{"question": "w1", "sentence": "w2", "label": "a"}' \
    '{"text1": "w1", "text2": "w2", "question1": "w1", "question2": "w2", "question": "w3", "sentence": "w4", "label": "b"}' >"$tmp/half.jsonl"
check "  nor its pair" refused 65 'half.jsonl:2: the row has "question1" and "question2", and the first row has not' classify half.jsonl
printf '%s\n' '{"words": ["w1"], "tags": ["N"]}' '{"tokens": ["w2"], "words": ["w3"], "tags": ["V"]}' >"$tmp/half.jsonl"
check "  nor its words" refused 65 'half.jsonl:2: the row has "tokens", and the first row has not' tag half.jsonl
printf '%s\n' '{"tokens": ["w1"], "pos_tags": ["N"]}' '{"tokens": ["w2"], "pos_tags": ["V"], "ner_tags": ["O"]}' >"$tmp/half.jsonl"
check "  nor its labels those of others" refused 65 'half.jsonl:2: the row has labels in "ner_tags", and the first row' tag half.jsonl
printf '{"tokens":["w1","w2"],"tags":[0,1]}\n{"tokens":["w1","w2"],"tags":[-100,1]}\n' >"$tmp/ignored.jsonl"
check "-100 is no class" refused 65 'ignored.jsonl:2: "tags" holds -100, by which PyTorch means' tag ignored.jsonl
printf 'text,label\nw1,0\nw2,1\nw3,-100\n' >"$tmp/ignored.csv"
check "  nor in a table" refused 65 'ignored.csv:4: "label" holds -100, by which PyTorch means' classify ignored.csv
printf 'text,label\nw1,yes\nw2,no\nw3,\n' >"$tmp/hollow.csv"
printf '{"text":"w1","label":"a\\u0000x"}\n{"text":"w2","label":"a\\u0000y"}\n' >"$tmp/zero.jsonl"
check "a zero byte ends no label" refused 65 'zero.jsonl:1: "label" holds a label with a zero byte' classify zero.jsonl
check "an empty label is named by its line" refused 65 'hollow.csv:4: "label" holds an empty label' classify hollow.csv
printf 'text,label\nw1,K\344se\nw2,no\n' >"$tmp/latin.csv"
check "  and one that is no UTF-8" refused 65 'latin.csv:2: "label" holds a label that is no UTF-8' classify latin.csv
printf '{"sentence1": "w1", "sentence2": "w2", "label": "red"}\n' >"$tmp/two.jsonl"
check "rows of one text and of two are not one kind" refused 2 'rows of two texts and others of one' classify classes.jsonl \
    --do_eval --eval_file "$tmp/two.jsonl"
printf 'text;label\nw1;yes\nw2;no\n' >"$tmp/semicolons.csv"
check "columns between semicolons are told so" refused 65 'columns are separated by commas in a .csv' classify semicolons.csv
printf 'text,label\nw1,1\nw2,0\nw1,1.0\n' >"$tmp/numbers.csv"
bert 1 "$tmp/numbers" classify numbers.csv
printf '{"text":"w1","label":12345678901234567890123}\n' >"$tmp/digits.jsonl"
check "a number of many digits is no class" refused 65 'digits.jsonl:1: "label" holds a label that is a number of more than 64 bits; write it as text' classify digits.jsonl
printf '{"text":"w1","label":0}\n{"text":"w2","label":true}\n{"text":"w1","label":1}\n' >"$tmp/truth.jsonl"
check "truth is no class beside numbers" refused 65 'truth.jsonl:2: "label" holds true, and rows before it numbers' classify truth.jsonl
sed 's/[01]}$/false}/' "$tmp/truth.jsonl" >"$tmp/truths.jsonl"
check "  but beside falsehood" bert 1 "$tmp/truths" classify truths.jsonl --max_steps 1 --output_dir "$tmp/truths.out"
check "  by those names" grep -q '"0": "false",' "$tmp/truths.out/config.json"
check "one number written in two ways is told to be two classes" grep -qF 'labels \"1\" and \"1.0\" are one number and two classes' "$tmp/numbers"
printf 'text,label\nw1,1\nw2,0\nw1,0.5\n' >"$tmp/measured.csv"
bert 1 "$tmp/numbers" classify measured.csv
check "numbers with fractions as well" grep -qF 'all labels are numbers, as 0.5, and 3 classes here: numbers are predicted by --task regress' "$tmp/numbers"
printf 'text,label\nw1,1\nw2,0\nw1,v0.5\n' >"$tmp/mixed.csv"
bert 1 "$tmp/numbers" classify mixed.csv
check "  but names that have some are not" sh -c '! grep -q "all labels are numbers" "$1"' - "$tmp/numbers"
{ printf 'text,label\n' && printf 'w%s,0\n' 1 2 3 4 5 6 7 && printf 'w8,3\n'; } >"$tmp/far.csv"
bert 1 "$tmp/far" regress far.csv --max_steps 8 --per_device_train_batch_size 1 --learning_rate 1e-5
check "one row that is far off is no loss that runs away" sh -c '! grep -q "runs away" "$1" && [ "$(grep -c "\"event\":\"step\"" "$1")" = 8 ]' - "$tmp/far"
printf 'text,label\nw1, 16 \nw2,-2.5e-1\n' >"$tmp/blanks.csv"
check "numbers of a table may have blanks around them" bert 1 "$tmp/blanks" regress blanks.csv --max_steps 1
printf 'text,label\nw1,1.5\nw2,0x10\n' >"$tmp/hex.csv"
check "  and are decimal" refused 65 'hex.csv:3: "label" is no number that can be learnt' regress hex.csv
printf 'text,label\nw1,1.5\nw2,1e20\n' >"$tmp/huge.csv"
check "  and of a size whose square a loss can be" refused 65 'huge.csv:3: "label" is 1e+20, and the square of a number above 1e+18' regress huge.csv
grep red "$tmp/classes.jsonl" >"$tmp/one.jsonl"
check "one class alone is nothing to learn" refused 65 'all rows have the label "red"' classify one.jsonl
cp -r "$out" "$tmp/several"
sed 's/"problem_type": *"[a-z_]*"/"problem_type": "multi_label_classification"/' "$out/config.json" >"$tmp/several/config.json"
check "several labels of a row are not built, by any task" refused 65 'several labels of a row are not built' classify classes.jsonl \
    --model_name_or_path "$tmp/several"
mkdir "$tmp/typed"
cat >"$tmp/typed/tokenizer.json" <<'EOF'
{"model": {"type": "WordLevel", "unk_token": "u", "vocab": {"u": 0, "[C]": 1}}, "pre_tokenizer": {"type": "Whitespace"}, "post_processor":
 {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "[C]", "type_id": 1}}, {"Sequence": {"id": "A", "type_id": 0}}],
  "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
  "special_tokens": {"[C]": {"id": "[C]", "ids": [1], "tokens": ["[C]"]}}}}
EOF
check "types of a single text are not built" refused 65 'gives tokens of a single text a type_id other than 0' classify classes.jsonl --tokenizer_name "$tmp/typed"
echo '{"model_input_names": ["input_ids"]}' >"$tmp/typed/tokenizer_config.json"
check "  but where they are left out" bert 1 "$tmp/typed.out" classify classes.jsonl --tokenizer_name "$tmp/typed" --max_steps 1
check "masks need a token" refused 2 'bytes have no token that masks others' masked_lm lines.txt --tokenizer_name bytes
check "a model that is not there is named before what its tokenizer would do" refused 66 "bert-base: no such model folder" masked_lm lines.txt --model_name_or_path bert-base
check "options of other tasks are refused" refused 2 '--label_column: rows with labels are for' masked_lm lines.txt --label_column label
check "  and so is this" refused 2 '--mlm_probability is of --task masked_lm' classify classes.jsonl --mlm_probability 0.2
# steps without a target: nothing is masked, or a row has no word
awk 'BEGIN { for (i = 0; i < 40; i++) print "w" i }' >"$tmp/short.txt"
bert 2 "$tmp/few" masked_lm short.txt --line_by_line --per_device_train_batch_size 1 --max_steps 30
check "steps in which nothing is masked learn nothing, and the run goes on" test $? -eq 0 -a "$(grep -c '"event":"step"' "$tmp/few")" -eq 30
check "  which is said once" test "$(grep -c '"event":"log".*no token of its rows is masked, so there is nothing to learn' "$tmp/few")" -eq 1
{ echo '{"tokens": [], "ner_tags": []}' && cat "$tmp/tags.jsonl"; } >"$tmp/wordless.jsonl"
bert 1 "$tmp/few" tag wordless.jsonl --per_device_train_batch_size 1 --num_train_epochs 1 --max_steps -1
check "  and of tags, where a row has no word" test $? -eq 0 -a "$(grep -c '"event":"log".*its rows hold no word' "$tmp/few")" -eq 1
for i in 1 2; do echo '{"tokens": [], "ner_tags": []}'; done >"$tmp/wordless.jsonl"
check "  but rows without words alone are refused" refused 65 'hold nothing to learn from: no word is among them' tag wordless.jsonl
check "  and of numbers there is no share to smooth" refused 2 '--label_smoothing is of losses over classes or tokens' regress numbers.tsv --label_smoothing 0.2
check "--help of a plugin lists those that it has" grep -qF 'It can be trained for (--task): masked_lm, classify, regress, tag.' \
    <("$bin/zlaunch" "$bin/models/bert.so" --help)
check "a task that the plugin does not have is" refused 2 'it can be trained for masked_lm, classify, regress, tag' seq2seq lines.txt
cp -r "$out" "$tmp/listed" && sed -i '/label2id/d; s/"id2label": {.*},/"id2label": ["blue", "green", "red"]/' "$tmp/listed/config.json"
check "names of classes in a list are none" refused 65 'id2label is no object of numbers and names' classify classes.jsonl --model_name_or_path "$tmp/listed"
cp -r "$out" "$tmp/counted" && sed -i '/label2id/d; s/"id2label": {.*},/"num_labels": 3/' "$tmp/counted/config.json"
sed 's/"red"/2/; s/"green"/1/; s/"blue"/0/' "$tmp/classes.jsonl" >"$tmp/counted.jsonl"
check "num_labels of older files counts classes without names" bert 1 "$tmp/2" classify counted.jsonl --model_name_or_path "$tmp/counted" --max_steps 1
check "the classes of weights are kept" refused 65 'has the label "w' classify classes.jsonl --model_name_or_path "$out" --label_column text
sed G "$tmp/lines.txt" >"$tmp/gaps.txt"
bert 1 "$tmp/gaps" masked_lm gaps.txt --packing none
check "lines without text are no samples of masked tokens" grep -q 'epochs of 60 samples' "$tmp/gaps" "$tmp/gaps.err"
"$bin/ztok" --train 270 "$tmp/lines.txt" --out "$tmp/bytes" >/dev/null
sed -i 's/{/{"mask_token": "<|endoftext|>", /' "$tmp/bytes/tokenizer_config.json"
for i in lines gaps; do bert 1 "$tmp/$i.bytes" masked_lm $i.txt --packing none --tokenizer_name "$tmp/bytes" --fingerprint_steps 6; done
check "  nor with a tokenizer that has blanks" grep -q 'epochs of 60 samples' "$tmp/gaps.bytes" "$tmp/gaps.bytes.err"
check "  and line feeds are none of their tokens" same_bits "$tmp/lines.bytes" "$tmp/gaps.bytes"
"$bin/ztok" "$tmp/lines.txt" --tokenizer "$tok" --out "$tmp/ids" >/dev/null
unframed=$(od -An -v -tu2 -w2 -N64 "$tmp/ids.bin" | grep -cvE '^ *[23]$')
bert 1 "$tmp/rows" masked_lm lines.txt --do_eval --eval_file "$tmp/lines.txt" --max_eval_samples 2 --mlm_probability 0.999999
check "--max_eval_samples rows of them are that many" grep -qF "\"tokens\":$unframed," "$tmp/rows"

# ---- a head for another task, or for other classes
from=$tmp/mlm
bert 1 "$tmp/mlm.out" masked_lm lines.txt --save_steps 6 --output_dir "$from"
onto() { # onto FOLDER FILE ARGS...: a classifier of 6 steps over its weights, in $tmp/head
    local folder=$1 file=$2
    shift 2
    "$bin/zlaunch" --num_gpus 2 --log_format json "$bin/models/bert.so" --task classify --train_file "$tmp/$file" --model_name_or_path \
        "$folder" --block_size 16 --do_train --max_steps 6 --fingerprint_steps 1 --logging_steps 1 --output_dir "$tmp/head" \
        --overwrite_output_dir "$@" >"$tmp/o" 2>&1
}
check "a head begins as new over the weights of another task" onto "$from" classes.jsonl
field fingerprint "$tmp/o" >"$tmp/of-folder"
"$bin/zlaunch" --num_gpus 1 "$bin/models/bert.so" --model_name_or_path "$tmp/head" --train_file "$tmp/classes.jsonl" --max_steps 1 >"$tmp/o" 2>&1
check "  and masks over that of classes, which is told" grep -q 'warn  weights: .* begin as new .*; the head that the folder has is for --task classify, and' "$tmp/o"
check "  also over a checkpoint" onto "$from/checkpoint-6" classes.jsonl
check "  with the same bits" test -s "$tmp/of-folder" -a "$(field fingerprint "$tmp/o")" = "$(cat "$tmp/of-folder")"
cp -r "$tmp/head" "$tmp/three"
no_head() { # a run that trains nothing, for TASK
    ! "$bin/zworker" "$bin/models/bert.so" --task "$1" --model_name_or_path "$tmp/head" --test_file "$tmp/classes.jsonl" \
        --output_dir "$tmp/no-head" >"$tmp/o" 2>&1 &&
        grep -q "was trained for --task classify, and has no head for --task $1" "$tmp/o"
}
check "predictions need a head of their task: tags" no_head tag
check "  and numbers" no_head regress
for i in 1 2 3 4 5 6 7 8; do echo "{\"text\": \"w$i w3\", \"label\": \"c$((i % 4))\"}"; done >"$tmp/four.jsonl"
refuses_head() { ! onto "$tmp/three" four.jsonl && grep -q 'none of the 3' "$tmp/o"; }
check "data of other classes are refused" refuses_head
check "  but with --ignore_mismatched_sizes" onto "$tmp/three" four.jsonl --ignore_mismatched_sizes
check "  have a head of theirs" grep -q '"3": *"c3"' "$tmp/head/config.json"
check "  which alone begins as new" grep -q '2 parameters are not in .* or of another size there' "$tmp/o"
other_kind() { # TASK FILE FOLDER ARGS...: one step over weights whose head is of another kind
    bert 1 "$tmp/o" "$1" "$2" --model_name_or_path "$3" --max_steps 1 --output_dir "$tmp/kind-$1" --overwrite_output_dir "${@:4}"
}
says() { tr -d '\\' <"$tmp/o" | grep -qF -- "$1"; }
refuses_kind() { ! other_kind "$1" "$2" "$3" && says "$4"; }
for i in 1 2 3; do echo "{\"tokens\": [\"w$i\", \"w3\"], \"ner_tags\": [\"A\", \"$([ $i = 1 ] && echo B || echo C)\"]}"; done >"$tmp/three-tags.jsonl"
check "so are tags over a head of as many classes, with the way out" refuses_kind tag three-tags.jsonl "$tmp/three" \
    'was trained for --task classify, and has no head for --task tag; with --ignore_mismatched_sizes one begins as new'
bert 1 "$tmp/o" classify classes.jsonl --model_name_or_path "$tmp/three" --max_steps 1 --learning_rate 0 --save_steps 1 --output_dir "$tmp/kept"
for folder in "$tmp/three" "$tmp/kept/checkpoint-1"; do
    check "  which is one" other_kind tag three-tags.jsonl "$folder" --ignore_mismatched_sizes --learning_rate 0
    "$bin/zckpt" diff "$tmp/three" "$tmp/kind-tag" >"$tmp/o"
    check "  by which the head is new, and the rest is as it was" sh -c 'grep -q "classifier.weight.*differ" "$1" && ! grep -q "encoder.*differ" "$1"' - "$tmp/o"
done
check "numbers over a head of classes are refused, with the way out" refuses_kind regress numbers.tsv "$tmp/three" \
    'was trained for --task classify, and has no head for --task regress; with --ignore_mismatched_sizes one begins as new'
check "  which is one" other_kind regress numbers.tsv "$tmp/three" --ignore_mismatched_sizes
check "  by which the head begins as new" says '2 parameters are not in '
check "  and is of numbers then" grep -q '"problem_type": *"regression"' "$tmp/kind-regress/config.json"
# weights from a folder beside a head that is new, adapters or not: first values do not come back over them
for kind in "" "--lora_r 4"; do
    # shellcheck disable=SC2086 # words
    beside_new() { bert 4 "$tmp/onto-$1" regress numbers.tsv --model_name_or_path "$tmp/three" --ignore_mismatched_sizes --max_steps 2 --save_steps 1 \
        --pad_to_max_length --output_dir "$tmp/onto-$1.dir" --overwrite_output_dir $kind "${@:2}"; }
    check "a new head${kind:+, with adapters}, on four ranks" beside_new whole
    for again in 1 2 3; do
        beside_new sharded --deepspeed "$tmp/zero.json"
        check "  ZeRO 3 has the same bits, start $again" same_bits "$tmp/onto-whole" "$tmp/onto-sharded"
    done
done
bert 1 "$tmp/o" regress numbers.tsv --model_name_or_path "$tmp/three" --ignore_mismatched_sizes --max_steps 4 --save_steps 1 --do_eval \
    --eval_steps 1 --learning_rate 3e-2 --load_best_model_at_end --output_dir "$tmp/best-kind"
best=$(sed -n 's/^{"step": *\([0-9]*\).*/\1/p' "$tmp/best-kind/eval_results.json")
check "  the weights of the best step are so with their head" "$bin/zckpt" diff "$tmp/best-kind" "$tmp/best-kind/checkpoint-$best"
check "  and a run goes on with the head that it has learnt" bert 1 "$tmp/o" regress numbers.tsv --model_name_or_path "$tmp/three" \
    --ignore_mismatched_sizes --max_steps 4 --save_steps 4 --do_eval --eval_steps 1 --learning_rate 3e-2 \
    --resume_from_checkpoint "$tmp/best-kind/checkpoint-1" --output_dir "$tmp/again-kind"
check "  to the same weights" "$bin/zckpt" diff "$tmp/best-kind/checkpoint-4" "$tmp/again-kind/checkpoint-4"
check "classes over a head of numbers as well" refuses_kind classify classes.jsonl "$tmp/kind-regress" \
    'is for --task regress; with --ignore_mismatched_sizes a head for the classes of the data begins as new'
check "  begin with one of theirs" other_kind classify classes.jsonl "$tmp/kind-regress" --ignore_mismatched_sizes
check "  that has them" grep -qF '"id2label": {"0": "blue", "1": "green", "2": "red"}' "$tmp/kind-classify/config.json"
check "but several labels of a row stay what is not built" refused 65 'several labels of a row are not built' classify classes.jsonl \
    --model_name_or_path "$tmp/several" --ignore_mismatched_sizes
rm "$tmp/three/config.json"
onto "$tmp/three" classes.jsonl --per_device_train_batch_size 100000
check "sizes that are not those of the weights are told before any plan" sh -c 'grep -q "no config.json beside" "$1" && ! grep -q "this run needs" "$1"' - "$tmp/o"

# ---- --train_tokenizer
# made TASK FILE: a tokenizer of the texts of rows with labels, whose columns are found as for training
made() {
    "$bin/zworker" "$bin/models/bert.so" --task "$1" --train_file "$tmp/$2" --train_tokenizer 300 --output_dir "$tmp/made-$1" "${sizes[@]}" \
        --num_attention_heads 2 --intermediate_size 64 --max_position_embeddings 32 --block_size 16 --do_train --max_steps 1 >"$tmp/o" 2>&1
}
knows() { grep -qF "\"$2\"" "$tmp/made-$1/tokenizer.json"; }
awk 'BEGIN { print "sentence1\tsentence2\tscore"; for (i = 0; i < 9; i++) print "one side\tanother\t" i }' >"$tmp/sides.tsv"
for i in 1 2 3 4 5 6; do echo '{"tokens": ["EU", "rejects"], "ner_tags": ["B", "O"]}'; done >"$tmp/words.jsonl"
check "a tokenizer is made of both texts of a pair" made regress sides.tsv
check "  " knows regress side
check "  " knows regress another
check "  and of words, each by itself" made tag words.jsonl
check "  " knows tag rejects
# a plugin that keeps its logits to itself: metrics come from them
mute() { # mute TASK FILE: an evaluation is refused before the first step
    cp models/*.h models/bert.c "$tmp" && sed -i 's/zt_step_result(s, ZT_LOGITS, x);//' "$tmp/encoder.h" &&
        cc -shared -fPIC -O1 -D_GNU_SOURCE -Iinclude -o "$tmp/mute.so" "$tmp/bert.c" -lm || return 1
    "$bin/zworker" "$tmp/mute.so" --task "$1" --train_file "$tmp/$2" --eval_file "$tmp/$2" --tokenizer_name "$tok" "${sizes[@]}" \
        --num_attention_heads 2 --block_size 16 --do_train --do_eval --max_steps 1 >"$tmp/o" 2>&1
    [ $? -eq 70 ] && grep -qF 'and the result logits of its forward has 0 numbers' "$tmp/o" && ! grep -q 'step 1' "$tmp/o"
}
if command -v cc >/dev/null; then
    check "a plugin without the logits of classes is told so" mute classify classes.jsonl
    check "  of tags as well" mute tag tags.jsonl
fi
finish
