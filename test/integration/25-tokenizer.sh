#!/bin/bash
# Text is tokenised by the tokenizer of a Hugging Face folder: the ids are those of the package
# `tokenizers` (test/golden/make_tokenizer.py), the same on every rank and by ztok beforehand; a
# prompt is text, and so is what follows it.
. "$(dirname "$0")/text_lib.sh"
text=$tok/text.txt

# ---- ztok
check "ztok writes tokens" "$bin/ztok" "$text" --tokenizer $tok --out "$tmp/data.bin" --threads 2
od -An -v -tu2 -w2 "$tmp/data.bin" | tr -d ' ' >"$tmp/got"
tr ' ' '\n' <$tok/ids.txt | grep . >"$tmp/want"
check "  those of the package tokenizers" cmp "$tmp/got" "$tmp/want"
check "  with nothing beside them" [ "$(cd "$tmp" && echo data.*)" = "data.bin data.idx" ]
"$bin/ztok" "$text" --tokenizer $tok --out "$tmp/data" >"$tmp/o" 2>&1
check "  and not over what is there" [ $? -eq 73 ]
for _ in $(seq 400); do cat "$text"; done >"$tmp/long.txt"
for _ in $(seq 20); do cat "$tmp/long.txt"; done >"$tmp/longer.txt"
none_is_there() { for f; do [ ! -e "$f" ] || return 1; done; }
# killed OUT FILE...: a ztok that is killed when it has noted where it is
killed() {
    local out=$1 pid
    shift
    "$bin/ztok" "$@" --tokenizer $tok --out "$out" --threads 1 >/dev/null 2>&1 &
    pid=$!
    for _ in $(seq 3000); do [ -s "$out.note" ] && break || sleep 0.01; done
    kill -9 $pid
    wait $pid 2>/dev/null
    [ -s "$out.note" ] || echo "# it was faster than the kill"
}
same_files() { cmp "$1.bin" "$2.bin" && cmp "$1.idx" "$2.idx"; }
"$bin/ztok" "$tmp/longer.txt" "$text" --tokenizer $tok --out "$tmp/whole" >"$tmp/o" 2>&1
killed "$tmp/killed" "$tmp/longer.txt" "$text"
check "a killed ztok leaves no file under the final name" none_is_there "$tmp/killed.bin" "$tmp/killed.idx"
check "  and the same command goes on" "$bin/ztok" "$tmp/longer.txt" "$text" --tokenizer $tok --out "$tmp/killed" 2>"$tmp/o2"
check "  from there" grep -q "going on behind line" "$tmp/o2"
check "  to the same files" same_files "$tmp/whole" "$tmp/killed"
check "  with nothing beside them" [ "$(cd "$tmp" && echo killed.*)" = "killed.bin killed.idx" ]
killed "$tmp/other" "$tmp/longer.txt" "$text"
{ printf x && tail -c +2 "$tmp/longer.txt"; } >"$tmp/changed.txt"
check "of text that has changed it begins anew" "$bin/ztok" "$tmp/changed.txt" "$text" --tokenizer $tok --out "$tmp/other" 2>"$tmp/o2"
check "  which it says" grep -q "is of other text; beginning anew" "$tmp/o2"
for _ in $(seq 160000); do echo '{"text": "a row of records, and one that is rather long"}'; done >"$tmp/rows.txt"
killed "$tmp/rows" "$tmp/rows.txt"
mv "$tmp/rows.txt" "$tmp/rows.jsonl"
"$bin/ztok" "$tmp/rows.jsonl" --tokenizer $tok --out "$tmp/rows" >"$tmp/o" 2>&1
"$bin/ztok" "$tmp/rows.jsonl" --tokenizer $tok --out "$tmp/whole.rows" >"$tmp/o2" 2>&1
check "of a text that is records by its new name it begins anew" same_files "$tmp/rows" "$tmp/whole.rows"
rm -f "$tmp"/other.* "$tmp"/killed.* "$tmp"/whole.* "$tmp"/rows.* "$tmp/changed.txt"
: >"$tmp/locked.bin.partial"
check "two at a time do not write one file" flock "$tmp/locked.bin.partial" sh -c \
    "! '$bin/ztok' '$text' --tokenizer $tok --out '$tmp/locked' >'$tmp/o' 2>&1 && grep -qF 'another process is writing it' '$tmp/o'"

"$bin/ztok" "$text" --tokenizer $tok >"$tmp/o" 2>&1
check "ztok names the option that is missing" grep -qF "ztok: --out is missing" "$tmp/o"
"$bin/ztok" "$text" --out "$tmp/x" >"$tmp/o" 2>&1
check "  and the other one" grep -qF "ztok: --tokenizer is missing" "$tmp/o"

"$bin/ztok" "$text" --tokenizer $tok --out "$tmp/" >"$tmp/o" 2>&1
check "a folder is no file to write" [ $? -eq 2 ]
check "  which is said" grep -qF "ztok: --out \"$tmp/\": name a file, as in --out $tmp/train.bin" "$tmp/o"
"$bin/ztok" "$text" --tokenizer $tok --out "$tmp/x" --text_column body >"$tmp/o" 2>&1
check "plain text has no columns" grep -qF "ztok: --text_column body: it is of records (.jsonl, .json, .csv, .tsv), and none of the files are such" "$tmp/o"
"$bin/ztok" "$text" --train 300 --out "$tmp/x" --text_column body >"$tmp/o" 2>&1
check "  nor for a new tokenizer" grep -qF "ztok: --text_column body: it is of records" "$tmp/o"
"$bin/ztok" "$text" --train 300 --out "$tmp/x" --threads 2 >"$tmp/o" 2>&1
check "  which is made by one thread" grep -qF "ztok: --threads: --train has one thread" "$tmp/o"
check "  of all of which nothing is left" none_is_there "$tmp"/x "$tmp"/x.*

printf 'a\0b' >"$tmp/binary"
"$bin/ztok" "$tmp/binary" --tokenizer $tok --out "$tmp/x" >"$tmp/o" 2>&1
check "ztok refuses what is no text: 65" [ $? -eq 65 ]
check "  as training does" grep -qF "binary: holds zero bytes, so it is no plain text" "$tmp/o"

cp "$text" "$tmp/text.bin"
"$bin/ztok" "$tmp/text.bin" --tokenizer $tok --out "$tmp/text" >"$tmp/o" 2>&1
check "ztok does not write a text that it reads: 2" [ $? -eq 2 ]
check "  nor says to remove it" grep -qF "text.bin would be written, and is one of the texts; give another" "$tmp/o"
printf 'PAR1 table' >"$tmp/table"
"$bin/ztok" "$tmp/table" --tokenizer $tok --out "$tmp/x" >"$tmp/o" 2>&1
check "  a table is one" grep -qF "table: looks like a Parquet table: write it as JSON lines" "$tmp/o"

# ---- ztok --train
"$bin/ztok" --train 300 "$tmp/binary" --out "$tmp/x" >"$tmp/o" 2>&1
check "ztok makes no tokenizer of what is no text: 65" [ $? -eq 65 ]
check "ztok makes a tokenizer" "$bin/ztok" --train 300 "$text" --out "$tmp/made"
check "  which it reads" "$bin/ztok" "$text" --tokenizer "$tmp/made" --out "$tmp/by_made"
"$bin/ztok" --train 0 "$text" --out "$tmp/none" >"$tmp/o" 2>&1
check "none of no tokens" grep -q -- "--train 0: 256 bytes and end-of-text are 257 tokens" "$tmp/o"
"$bin/ztok" --train 256 "$text" --out "$tmp/made" >"$tmp/o" 2>&1
check "  but none of fewer tokens than there are bytes" [ $? -eq 2 ]

cp "$tmp/made/tokenizer.json" "$tmp/made.json"
"$bin/ztok" --train 290 "$text" --out "$tmp/made" >"$tmp/o" 2>&1
check "  and none in the place of another: 73" [ $? -eq 73 ]
check "  which says what to do" grep -qE "made/tokenizer.*json: is there already; remove it, or give another --out" "$tmp/o"
check "  and stays" cmp "$tmp/made.json" "$tmp/made/tokenizer.json"
mkdir "$tmp/words" && echo '{}' >"$tmp/words/vocab.json" && echo '{}' >"$tmp/words/generation_config.json"
"$bin/ztok" --train 290 "$text" --out "$tmp/words" >"$tmp/o" 2>&1
check "  nor beside another form: 73" [ $? -eq 73 ]
check "  by its name" grep -qF "words/vocab.json: is there already" "$tmp/o"
check "  without a file of it" [ "$(ls "$tmp/words")" = "$(printf 'generation_config.json\nvocab.json')" ]
rm "$tmp/words/vocab.json"
check "  but beside a model without one" "$bin/ztok" --train 290 "$text" --out "$tmp/words"

# ---- the same lines as records
{ echo id,text && awk '{ gsub(/"/, "\"\""); printf "%d,\"%s\n\"\n\n", NR, $0 }' "$text"; } >"$tmp/rows.csv"
"$bin/ztok" "$tmp/rows.csv" --tokenizer $tok --out "$tmp/rows" --text_column text >"$tmp/o" 2>&1
check "ztok takes the text of a table" [ $? -eq 0 ]
check "  the same tokens" cmp "$tmp/rows.bin" "$tmp/data.bin"
check "  and counts what it passes over" grep -qF "; $(wc -l <"$text") empty lines passed over" "$tmp/o"
check "  and a tokenizer from it" "$bin/ztok" --train 300 "$tmp/rows.csv" --out "$tmp/made_of_rows"
check "  which is the one of the text" cmp "$tmp/made_of_rows/tokenizer.json" "$tmp/made/tokenizer.json"

# ---- training
check "training on text by a tokenizer" gpt2 1 "$tmp/1" --train_file "$text" --tokenizer_name $tok --output_dir "$tmp/model"
check "  on two ranks the same curve" gpt2 2 "$tmp/2" --train_file "$text" --tokenizer_name $tok
check "  " same_curve "$tmp/1" "$tmp/2" 1e-5
gpt2 1 "$tmp/3" --train_file "$tmp/data.idx"
check "  and by ztok's file the same bits" same_bits "$tmp/1" "$tmp/3"
gpt2 1 "$tmp/3" --train_file "$tmp/data"
check "  by the name of its two files as well" same_bits "$tmp/1" "$tmp/3"
gpt2 1 "$tmp/rows" --train_file "$tmp/rows.csv" --tokenizer_name $tok --data_cache_dir "$tmp/rows_cache"
check "  and from a table of the lines" same_bits "$tmp/1" "$tmp/rows"
check "  whose empty lines are counted" grep -qF "$(wc -l <"$text") empty lines of the records are passed over" "$tmp/rows" "$tmp/rows.err"
gpt2 2 "$tmp/rows2" --train_file "$tmp/rows.csv" --tokenizer_name $tok --data_cache_dir "$tmp/rows_cache"
check "  on two ranks from a cache the same curve" same_curve "$tmp/1" "$tmp/rows2" 1e-5
cp $tok/tokenizer*.json "$tmp/model"
gpt2 1 "$tmp/4" --train_file "$text" --model_name_or_path "$tmp/model"
check "the tokenizer beside the weights is taken" grep -qF "tokens are ids of the tokenizer of $tmp/model" "$tmp/4" "$tmp/4.err"
gpt2 1 "$tmp/4" --train_file "$text" --model_name_or_path "$tmp/model/model.safetensors"
check "  also of weights named by their file" grep -qF "tokens are ids of the tokenizer of $tmp/model" "$tmp/4" "$tmp/4.err"
gpt2 1 "$tmp/4" --train_file "$text" "$tmp/data.bin" --tokenizer_name $tok
check "ids of a file beside text are assumed to be its tokenizer's" grep -qF "(files of ids do not say whose: theirs are assumed to be)" "$tmp/4" "$tmp/4.err"
gpt2 1 "$tmp/4" --train_file "$text" --tokenizer_name $tok
check "  of text alone they are" eval '! grep -q "assumed" "$tmp/4" "$tmp/4.err"'
printf 'a\377b\n%s\n' "$(head -c 2000 "$text")" >"$tmp/broken.txt"
gpt2 1 "$tmp/5" --train_file "$tmp/broken.txt" --tokenizer_name $tok
check "bytes that are no UTF-8 are counted" grep -q "holds 1 sequences of bytes that are no UTF-8" "$tmp/5" "$tmp/5.err"
head -n 1 "$tmp/broken.txt" >"$tmp/first.txt"
gpt2 1 "$tmp/6" --train_file "$tmp/broken.txt" --eval_file "$tmp/broken.txt" --tokenizer_name $tok
check "  in each file" grep -q "holds 2 sequences of bytes that are no UTF-8" "$tmp/6" "$tmp/6.err"
"$bin/zlaunch" --num_gpus 1 "$g" --model_name_or_path "$tmp/model" --test_file "$tmp/first.txt" --output_dir "$tmp/broken" \
    --max_new_tokens 1 >"$tmp/6" 2>"$tmp/6.err"
check "  and of prompts" grep -q "holds 1 sequences of bytes that are no UTF-8" "$tmp/6.err"
check "  and no carriage returns" sh -c '! grep -q "carriage return" "$1/5" "$1/5.err"' - "$tmp"
cp -r "$tmp/model" "$tmp/gone"
"$bin/zlaunch" --num_gpus 1 "$g" --model_name_or_path "$tmp/gone" --train_file "$text" --block_size 32 --max_steps 1000000 --logging_steps 1 \
    --save_steps 1000000 --output_dir "$tmp/gone.out" >"$tmp/7" 2>"$tmp/7.err" &
job=$!
for _ in $(seq 3000); do grep -q 'step 2/' "$tmp/7.err" "$tmp/7" && break || sleep 0.01; done
rm -r "$tmp/gone"
kill -TERM $job
wait $job
check "a tokenizer that went away during the run is missed" grep -q "without the tokenizer, as $tmp/gone is there no more" "$tmp/7" "$tmp/7.err"
sed 's/$/\r/' "$text" >"$tmp/windows.txt"
ZLAUNCH_LOG_FORMAT=text "$bin/zlaunch" --num_gpus 1 "$g" --train_file "$tmp/windows.txt" --tokenizer_name $tok --n_layer 1 --n_head 2 --n_embd 32 \
    --block_size 8 --max_steps 1 >"$tmp/6" 2>"$tmp/6.err"
check "lines of Windows are named" grep -qF "windows.txt: lines end with a carriage return and a line feed, as on Windows" "$tmp/6" "$tmp/6.err"
tr '\n' '\r' <"$text" >"$tmp/returns.txt"
ZLAUNCH_LOG_FORMAT=text "$bin/zlaunch" --num_gpus 1 "$g" --train_file "$tmp/returns.txt" --tokenizer_name $tok --n_layer 1 --n_head 2 --n_embd 32 \
    --block_size 8 --max_steps 1 >"$tmp/6" 2>"$tmp/6.err"
check "lines that end with carriage returns alone are named" grep -qF "returns.txt: lines end with carriage returns alone" "$tmp/6" "$tmp/6.err"

# ---- --train_tokenizer
check "a tokenizer is made before training" gpt2 2 "$tmp/7" --train_file "$text" --train_tokenizer 300 --output_dir "$tmp/new"
check "  the same as ztok's" cmp "$tmp/new/tokenizer.json" "$tmp/made/tokenizer.json"
check "  and the model has its ids" grep -q '"vocab_size": *300' "$tmp/new/config.json"
check "  and ends texts with its end of text" test "$(grep -c '"[be]os_token_id": *0,*$' "$tmp/new/config.json")" = 2
gpt2 1 "$tmp/8" --train_file "$text" --tokenizer_name "$tmp/made"
check "  with the curve of a run that is given it" same_curve "$tmp/7" "$tmp/8" 1e-5
stat -c %y "$tmp/new/tokenizer.json" >"$tmp/made_at"
rm "$tmp/new/model.safetensors"
gpt2 1 "$tmp/7s" --train_file "$text" --train_tokenizer 300 --output_dir "$tmp/goes_on" --save_steps 2
check "a run that goes on without its tokenizer is told" refused 65 "the checkpoint's run has train_tokenizer 300, this one 0" \
    --train_file "$text" --output_dir "$tmp/goes_on" --resume_from_checkpoint auto --max_steps 100
check "  whatever else of the model differs" refused 65 "the checkpoint's run has train_tokenizer 300, this one 0" \
    --train_file "$text" --output_dir "$tmp/goes_on" --resume_from_checkpoint auto --max_steps 100 --dropout 0.1
check "another run takes it again" gpt2 1 "$tmp/9" --train_file "$text" --train_tokenizer 300 --output_dir "$tmp/new"
check "  as it is" [ "$(stat -c %y "$tmp/new/tokenizer.json")" = "$(cat "$tmp/made_at")" ]
rm "$tmp/new/model.safetensors"
check "  but not one of other settings" refused 73 "is there and was not made of these files with 301 tokens" \
    --train_file "$text" --train_tokenizer 301 --output_dir "$tmp/new"
check "  which goes where that is asked for" gpt2 1 "$tmp/10" --train_file "$text" --train_tokenizer 301 --output_dir "$tmp/new" \
    --overwrite_output_dir
check "a dry run leaves nothing" gpt2 1 "$tmp/11" --train_file "$text" --train_tokenizer 300 --output_dir "$tmp/dry" --dry_run
check "  " none_is_there "$tmp/dry"
check "without a folder it is refused" refused 2 "--train_tokenizer 300: it needs an --output_dir" --train_file "$text" --train_tokenizer 300
check "  and beside another tokenizer" refused 2 "--tokenizer_name is there, too" --train_file "$text" --train_tokenizer 300 \
    --tokenizer_name $tok --output_dir "$tmp/x"
check "  and of ids" refused 2 "holds token ids (megatron), not text" --train_file "$tmp/data.idx" --train_tokenizer 300 \
    --output_dir "$tmp/x"
check "  and of fewer tokens than there are bytes" refused 2 "256 bytes and end-of-text are 257 tokens" --train_file "$text" \
    --train_tokenizer 9 --output_dir "$tmp/x"

# ---- --data_cache_dir
check "two ranks with a cache" gpt2 2 "$tmp/12" --train_file "$text" --tokenizer_name $tok --data_cache_dir "$tmp/ids"
check "  which holds one file, and nothing else" [ "$(cd "$tmp/ids" && ls -A | sed 's/-.*//')" = tokens ]
stat -c %i "$tmp"/ids/tokens-* >"$tmp/inode"
gpt2 1 "$tmp/13" --train_file "$text" --tokenizer_name $tok --data_cache_dir "$tmp/ids"
check "  taken by the next run" same_bits "$tmp/1" "$tmp/13"
check "  as it is" [ "$(stat -c %i "$tmp"/ids/tokens-*)" = "$(cat "$tmp/inode")" ]
check "a dry run makes none" gpt2 1 "$tmp/14" --train_file "$text" --tokenizer_name $tok --data_cache_dir "$tmp/no_cache" --dry_run
check "  " none_is_there "$tmp/no_cache"
check "nor does a run of ids, which is refused" refused 2 "nothing here becomes tokens" --train_file "$tmp/data.idx" \
    --data_cache_dir "$tmp/ids"
"$bin/zworker" "$g" --n_layer 1 --n_head 2 --n_embd 32 --block_size 32 --do_train --max_steps 1 --train_file "$tmp/longer.txt" \
    --tokenizer_name $tok --data_cache_dir "$tmp/cut" >/dev/null 2>&1 &
pid=$!
for _ in $(seq 1000); do [ -s "$(echo "$tmp"/cut/.tokens-*.tmp)" ] && break || sleep 0.01; done
kill -9 $pid
wait $pid 2>/dev/null
none_is_there "$tmp"/cut/tokens-* || echo "# it was faster than the kill"
check "a killed run leaves nothing that the next one takes for tokens" gpt2 1 "$tmp/15" --train_file "$tmp/longer.txt" \
    --tokenizer_name $tok --data_cache_dir "$tmp/cut"
check "  and nothing in its way" [ "$(cd "$tmp/cut" && ls -A | sed 's/-.*//')" = tokens ]

# ---- what cannot be
check "a folder without a tokenizer is refused" refused 66 "has no tokenizer" --train_file "$text" --tokenizer_name "$tmp"
mkdir "$tmp/deberta" && : >"$tmp/deberta/spm.model"
check "  and DeBERTa's, with what to do" refused 65 "spm.model, as DeBERTa has it" --train_file "$text" --tokenizer_name "$tmp/deberta"
mkdir "$tmp/odd" && sed 's/"ByteLevel"/"Oddities"/' $tok/tokenizer.json >"$tmp/odd/tokenizer.json"
check "  and one that is not known, by its place" refused 65 "pre_tokenizer.type: Oddities is not known" --train_file "$text" \
    --tokenizer_name "$tmp/odd"
cp "$tmp/odd/tokenizer.json" "$tmp/model"
check "  beside the weights, where text needs it" refused 65 "the tokenizer beside the weights cannot be read" \
    --train_file "$text" --model_name_or_path "$tmp/model"
gpt2 1 "$tmp/6" --train_file "$tmp/data.idx" --model_name_or_path "$tmp/model"
check "  but not where ids are given" [ $? -eq 0 ]

# ---- a prompt
cp $tok/tokenizer.json "$tmp/model"
ZLAUNCH_LOG_FORMAT=json "$bin/zworker" "$g" --model_name_or_path "$tmp/model" --prompt "café don't" --generate_tokens 8 \
    >"$tmp/sample" 2>"$tmp/sample.err"
check "a prompt is text, and so is what follows" grep -q '"text":"café don.t' "$tmp/sample"
from() { # from TEXT FILE: what the model takes for likeliest behind it
    "$bin/zworker" "$g" --model_name_or_path "$tmp/model" --prompt "$1" --generate_tokens 8 --temperature 0 >"$2" 2>"$2.err"
}
echo '{"tokenizer_class": "GPT2TokenizerFast", "bos_token": "a"}' >"$tmp/model/tokenizer_config.json"
from a "$tmp/want"
check "one without a word is written from" from "" "$tmp/got"
check "  what stands before a text" cmp "$tmp/got" "$tmp/want"

# ---- an end that the tokenizer has and the model has not: texts that end with it are learnt, and end with it
mkdir "$tmp/ends"
cp $tok/tokenizer.json "$tmp/ends"
echo '{"tokenizer_class": "GPT2TokenizerFast", "eos_token": "!"}' >"$tmp/ends/tokenizer_config.json"
end=$(grep -o '"!": *[0-9]*' $tok/tokenizer.json | grep -o '[0-9]*$')
sed -E 's/"eos_token_id": *[0-9]+/"eos_token_id": 0/' "$tmp/model/config.json" >"$tmp/config" && mv "$tmp/config" "$tmp/model/config.json"
printf '{\n "eos_token_id": 0,\n "top_p": 0.8\n}\n' >"$tmp/model/generation_config.json"
for _ in $(seq 64); do echo '{"prompt": "how", "completion": " many"}'; done >"$tmp/many.jsonl"
head -1 "$tmp/many.jsonl" >"$tmp/one.jsonl"
tuned() { # tuned FOLDER ARGS...: what it writes behind the prompt
    "$bin/zlaunch" --num_gpus 1 "$g" --test_file "$tmp/one.jsonl" --output_dir "$1" --max_new_tokens 9 "${@:2}" >"$tmp/tuned" 2>"$tmp/tuned.err" &&
        grep -qF '"generated":" many"' "$1/predictions.jsonl" || { sed 's/^/# /' "$tmp/tuned.err" "$1/predictions.jsonl"; false; }
}
tune=(--model_name_or_path "$tmp/model" --tokenizer_name "$tmp/ends" --train_file "$tmp/many.jsonl" --packing none --block_size 16
    --per_device_train_batch_size 8 --max_steps 30 --save_steps 20 --learning_rate 1e-2 --dropout 0)
check "an end that is learnt ends texts" tuned "$tmp/tuned.1" "${tune[@]}"
check "  beside the model's own" grep -qE '"eos_token_id":\[ *'"$end, *0 *\\]" <(tr -d '\n ' <"$tmp/tuned.1/generation_config.json" | sed 's/,/, /g')
check "  and what else is said" grep -qE '"top_p": 0.8$' "$tmp/tuned.1/generation_config.json"
check "  in a checkpoint, too" cmp "$tmp/tuned.1/generation_config.json" "$tmp/tuned.1/checkpoint-20/generation_config.json"
check "  and in config.json" grep -qE "\"eos_token_id\": $end,?$" "$tmp/tuned.1/config.json"
check "  also of what was saved" tuned "$tmp/tuned.2" --model_name_or_path "$tmp/tuned.1"
# what else such a file says of texts is told, and what an option has said is not
said='{"repetition_penalty": 1.3, "top_k": 50, "temperature": 0.6, "num_beams": 1, "bad_words_ids": [[1]], "suppress_tokens": [], "min_length": 0}'
left_out() { # left_out FOLDER ARGS...: what is told of it
    "$bin/zlaunch" --num_gpus 1 "$g" --model_name_or_path "$1" --prompt how --max_new_tokens 2 "${@:2}" 2>&1 | sed -n 's/.* generate: .*config.json: //p' >"$tmp/told"
}
cp -r "$tmp/tuned.1" "$tmp/says" && echo "$said" >"$tmp/says/generation_config.json"
left_out "$tmp/says"
check "what is not taken is told: what options ask for" grep -qx 'how texts are written .* what it says is --temperature 0.6.* --top_k 50 --repetition_penalty 1.3.*' "$tmp/told"
check "  and what none does" grep -qx 'bad_words_ids: not built, texts are written without' "$tmp/told"
left_out "$tmp/says" --temperature 0 --repetition_penalty 1.1
check "  alone where options say the rest" test "$(cut -c 1-13 "$tmp/told")" = bad_words_ids
rm "$tmp/says/generation_config.json" && sed -i '1a"num_beams": 4,' "$tmp/says/config.json"
left_out "$tmp/says"
check "  of config.json, too, where there is no such file" grep -q -- '--num_beams 4$' "$tmp/told"
cp -r "$tmp/tuned.1" "$tmp/endless" && rm "$tmp/endless/generation_config.json"
echo '{"tokenizer_class": "PreTrainedTokenizerFast"}' >"$tmp/endless/tokenizer_config.json"
check "  also by config.json alone, where the tokenizer has none" tuned "$tmp/tuned.4" --model_name_or_path "$tmp/endless"
rm "$tmp/model/generation_config.json"
check "  and without a file of it" tuned "$tmp/tuned.3" "${tune[@]}"
# a new model of a vocabulary that is padded, or of any: of bytes and of GPT-2's ids it is known, and else nothing is said
new() { # new FOLDER PLUGIN ARGS...
    "$bin/zlaunch" --num_gpus 1 "$bin/models/$2.so" --block_size 8 --max_steps 1 --output_dir "$1" "${@:3}" >"$tmp/made.out" 2>"$tmp/made.err" ||
        { sed "s/^/# /" "$tmp/made.err" && false; }
}
ends_with() { grep -qE "\"eos_token_id\": $2,?$" "$1/config.json" || { grep token_id "$1/config.json" | sed 's/^/# /' && false; }; }
gpt2=(gpt2 --n_layer 1 --n_head 1 --n_embd 8)
# as nanoGPT writes them: GPT-2's end among others, and none
for _ in $(seq 40); do printf '\x01\x00\x02\x00\x50\xc4'; done >"$tmp/gpt2.bin"
for _ in $(seq 40); do printf '\x01\x00\x02\x00\x50\x00'; done >"$tmp/ids.bin"
check "a new GPT-2 of bytes" new "$tmp/bytes" "${gpt2[@]}" --train_file "$text" --tokenizer_name bytes --vocab_size 300
check "  ends texts with what ends them" ends_with "$tmp/bytes" 256
check "a new Llama of bytes" new "$tmp/llama" llama --hidden_size 8 --intermediate_size 8 --num_hidden_layers 1 --num_attention_heads 1 --train_file "$text"
check "  too" ends_with "$tmp/llama" 256
check "a new GPT-2 of GPT-2's tokens" new "$tmp/padded" "${gpt2[@]}" --train_file "$tmp/gpt2.bin" --data_format nanogpt --vocab_size 50304
check "  with 50256" ends_with "$tmp/padded" 50256
check "a new GPT-2 of others" new "$tmp/ids" "${gpt2[@]}" --train_file "$tmp/ids.bin" --data_format nanogpt --vocab_size 100
check "  says nothing" ends_with "$tmp/ids" null
[ "$failures" -eq 0 ] || cat "$tmp"/*.err
finish
