#!/bin/bash
# Pairs of texts: the target alone is learnt, wherever the columns are; the tokens are those of the joined text.
. "$(dirname "$0")/text_lib.sh"

# the same 40 pairs in four forms; joined: what they become; targets: what is learnt of them
awk -v dir="$tmp" 'BEGIN {
    print "asked,answered" >(dir "/pairs.csv")
    for (i = 0; i < 40; i++) {
        s = "how much is " i " and " i * 7 % 13 "?"
        t = " it is " i + i * 7 % 13 ", é"
        printf "{\"prompt\": \"%s\", \"completion\": \"%s\"}\n", s, t >(dir "/prompts.jsonl")
        printf "{\"q\": \"%s\", \"a\": \"%s\", \"id\": \"%d\"}\n", s, t, i >(dir "/named.jsonl")
        printf "{\"translation\": {\"en\": \"%s\", \"ro\": \"%s\"}}\n", s, t >(dir "/langs.jsonl")
        printf "%s,\"%s\"\n", s, t >(dir "/pairs.csv")
        printf "{\"text\": \"%s%s<|endoftext|>\"}\n", s, t >(dir "/joined.jsonl")
        printf "{\"text\": \"%s<|endoftext|>\"}\n", t >(dir "/targets.jsonl")
    }
}'

num_tokens() { "$bin/ztok" "$1" --tokenizer "$tok" --out "$tmp/counted" 2>&1 | sed -n 's/.*: \([0-9]*\) tokens.*/\1/p'; }

check "prompts and completions are pairs by themselves" gpt2 1 "$tmp/1" --train_file "$tmp/prompts.jsonl" --tokenizer_name "$tok"
gpt2 1 "$tmp/2" --train_file "$tmp/named.jsonl" --tokenizer_name "$tok" --source_column q --target_column a
check "  named columns give the same bits" same_bits "$tmp/1" "$tmp/2"
gpt2 1 "$tmp/2s" --train_file "$tmp/named.jsonl" --tokenizer_name "$tok" --text_column q --summary_column a
check "  and so they do by the names of run_summarization" same_bits "$tmp/1" "$tmp/2s"
gpt2 1 "$tmp/3" --train_file "$tmp/langs.jsonl" --tokenizer_name "$tok" --source_lang en --target_lang ro
check "  and so do translations" same_bits "$tmp/1" "$tmp/3"
gpt2 1 "$tmp/4" --train_file "$tmp/pairs.csv" --tokenizer_name "$tok" --source_column asked --target_column answered
check "  and a table" same_bits "$tmp/1" "$tmp/4"
gpt2 2 "$tmp/5" --train_file "$tmp/prompts.jsonl" --tokenizer_name "$tok" --data_cache_dir "$tmp/cache"
check "  on two ranks the same curve" same_curve "$tmp/1" "$tmp/5" 1e-5
gpt2 1 "$tmp/6" --train_file "$tmp/prompts.jsonl" --tokenizer_name "$tok" --packing none --do_eval --eval_file "$tmp/prompts.jsonl"
check "  and each is a row where that is asked for" grep -q 'epochs of 40 samples' "$tmp/6" "$tmp/6.err"
check "  of which the tokens of the targets count" grep -qF "\"tokens\":$(num_tokens "$tmp/targets.jsonl")," "$tmp/6"

gpt2 1 "$tmp/7" --train_file "$tmp/prompts.jsonl" --tokenizer_name "$tok" --assistant_only_loss false
gpt2 1 "$tmp/8" --train_file "$tmp/joined.jsonl" --tokenizer_name "$tok"
check "all of it learnt, they are their joined text" same_bits "$tmp/7" "$tmp/8"
gpt2 1 "$tmp/9" --train_file "$tmp/prompts.jsonl" --tokenizer_name "$tok" --source_prefix "Answer: " --assistant_only_loss false
sed 's/"text": "/&Answer: /' "$tmp/joined.jsonl" >"$tmp/prefixed.jsonl"
gpt2 1 "$tmp/10" --train_file "$tmp/prefixed.jsonl" --tokenizer_name "$tok"
check "  also behind a prefix" same_bits "$tmp/9" "$tmp/10"
gpt2 1 "$tmp/11" --train_file "$tmp/prompts.jsonl" --tokenizer_name "$tok" --source_prefix "Answer: " --data_cache_dir "$tmp/cache"
check "  whose tokens are others in the cache" [ "$(find "$tmp/cache" -name 'tokens-*' | wc -l)" -eq 2 ]
check "bytes without a tokenizer" gpt2 1 "$tmp/12" --train_file "$tmp/prompts.jsonl" --packing none --block_size 64 \
    --do_eval --eval_file "$tmp/prompts.jsonl"
check "  of which those of the targets count" grep -qF "\"tokens\":$(($(sed 's/.*"completion": "//; s/"}//' "$tmp/prompts.jsonl" | wc -c))),"  "$tmp/12"

sed 's/"}$/<|endoftext|>"}/' "$tmp/prompts.jsonl" >"$tmp/ended.jsonl"
gpt2 1 "$tmp/13" --train_file "$tmp/ended.jsonl" --tokenizer_name "$tok"
check "a target that ends with the end of text has no second one" same_bits "$tmp/1" "$tmp/13"
sed 's/"completion": ".*/"completion": ""}/' "$tmp/prompts.jsonl" >"$tmp/silent.jsonl"
gpt2 1 "$tmp/13s" --train_file "$tmp/silent.jsonl" --tokenizer_name "$tok" --packing none --do_eval --eval_file "$tmp/silent.jsonl"
check "  and of one that is empty the end is learnt" grep -qF '"tokens":40,' "$tmp/13s"
mkdir "$tmp/hub" "$tmp/endless"
cp "$tok/tokenizer.json" "$tmp/hub"
echo '{"model_max_length": 1024}' | tee "$tmp/hub/tokenizer_config.json" >"$tmp/endless/tokenizer_config.json"
cp "$tok/tokenizer.json" "$tmp/endless"
echo '{"model_type": "gpt2"}' >"$tmp/hub/config.json"
gpt2 1 "$tmp/14" --train_file "$tmp/prompts.jsonl" --tokenizer_name "$tmp/hub"
check "a class has an end of text that no file says" same_bits "$tmp/1" "$tmp/14"
check "a tokenizer without one" refused 65 "ends with the eos_token of the tokenizer, and it has none" --train_file "$tmp/prompts.jsonl" \
    --tokenizer_name "$tmp/endless"
gpt2 1 "$tmp/15" --train_file "$tmp/prompts.jsonl" --tokenizer_name "$tok" --data_cache_dir "$tmp/ends"
echo '{"tokenizer_class": "GPT2Tokenizer", "eos_token": "!"}' >"$tmp/hub/tokenizer_config.json"
gpt2 1 "$tmp/16" --train_file "$tmp/prompts.jsonl" --tokenizer_name "$tmp/hub" --data_cache_dir "$tmp/ends"
check "  another one is not that of the cache" [ "$(find "$tmp/ends" -name 'tokens-*' | wc -l)" -eq 2 ]

"$bin/ztok" "$tmp/prompts.jsonl" --tokenizer "$tok" --out "$tmp/ids" >/dev/null
once() {
    gpt2 1 "$tmp/17" --train_file "$tmp/ids.bin" --do_eval && gpt2 1 "$tmp/18" --train_file "$tmp/ids.bin" "$tmp/../${tmp##*/}/ids.idx" --do_eval &&
        same_bits "$tmp/17" "$tmp/18"
}
check "tokens of a file count once, whatever its paths" once
{ echo '{"prompt": "why", "completion": null}' && cat "$tmp/prompts.jsonl"; } >"$tmp/hollow.jsonl"
check "a first row without its completion does not make texts of the prompts" refused 65 'hollow.jsonl:1: \"completion\" is no text' \
    --train_file "$tmp/hollow.jsonl" --tokenizer_name "$tok"
{ echo '{"prompt": "why"}' && cat "$tmp/prompts.jsonl"; } >"$tmp/first.jsonl"
check "  nor one that has no such column" refused 65 'first.jsonl:2: the row has \"prompt\" and \"completion\", and the first row only the text of \"prompt\"' \
    --train_file "$tmp/first.jsonl" --tokenizer_name "$tok"
check "  but for who asks for these texts" gpt2 1 "$tmp/19" --train_file "$tmp/first.jsonl" --text_column prompt --tokenizer_name "$tok"
{ echo '{"note": "why"}' && printf '{"note": "w", "messages": [{"role": "user", "content": "w"}]}\n%.0s' 1 2 3; } >"$tmp/notes.jsonl"
check "  nor of conversations" refused 65 'notes.jsonl:2: the row has \"messages\", and the first row only the text of \"note\"' \
    --train_file "$tmp/notes.jsonl" --tokenizer_name "$tok"
{ echo '{"note": "why"}' && printf '{"note": "w", "text": "w"}\n%.0s' 1 2 3; } >"$tmp/notes.jsonl"
check "  nor of texts" refused 65 'notes.jsonl:2: the row has \"text\", and the first row only the text of \"note\"' \
    --train_file "$tmp/notes.jsonl" --tokenizer_name "$tok"
check "one side alone" refused 2 "--source_column: a pair has two sides; give --target_column, too" --train_file "$tmp/named.jsonl" --source_column q
check "  as it was typed" refused 2 "--summary_column: a pair has two sides; give --source_column, too" --train_file "$tmp/named.jsonl" --summary_column a
check "one language alone" refused 2 "--target_lang: a pair has two sides; give --source_lang, too" --train_file "$tmp/langs.jsonl" --target_lang ro
check "a text and a pair" refused 2 "a row is a text or a pair; leave one out" --train_file "$tmp/named.jsonl" \
    --source_column q --target_column a --text_column q
check "  two languages, by the names that were typed" refused 2 "--text_column_name q and --source_lang en: a row is a text or a pair" \
    --train_file "$tmp/langs.jsonl" --source_lang en --target_lang ro --text_column_name q
check "a prefix without pairs" refused 2 "--source_prefix is for pairs, and these are texts" --train_file "$tmp/joined.jsonl" --source_prefix x
check "files without columns" refused 2 "has no columns: --source_column" --train_file /usr/share/common-licenses/GPL-3 --source_column q --target_column a
echo '{"q": "why?"}' >>"$tmp/named.jsonl"
check "a row without its target, by its line" refused 65 'named.jsonl:41: the row has no \"a\", it has q' --train_file "$tmp/named.jsonl" \
    --source_column q --target_column a
echo '{"translation": {"en": "yes"}}' >>"$tmp/langs.jsonl"
check "a language that is not there" refused 65 'langs.jsonl:41: \"translation\" has no language \"ro\"' --train_file "$tmp/langs.jsonl" \
    --source_lang en --target_lang ro

# training and evaluation on rows of two kinds
sed 's/, "completion".*/}/' "$tmp/prompts.jsonl" >"$tmp/asked.jsonl"
for k in "" "--assistant_only_loss false" "--data_cache_dir $tmp/kinds" "--data_cache_dir $tmp/kinds" "--tokenizer_name bytes --dry_run"; do
    # shellcheck disable=SC2086 # words
    check "prompts alone are no evaluation of pairs $k" refused 2 \
        'asked.jsonl: its rows are texts of \"prompt\", and those of the training data ('"$tmp"'/prompts.jsonl) are pairs of \"prompt\" and \"completion\": give both the same columns' \
        --train_file "$tmp/prompts.jsonl" --do_eval --eval_file "$tmp/asked.jsonl" --tokenizer_name "$tok" $k
done
check "  nor are pairs one of prompts" refused 2 'prompts.jsonl: its rows are pairs of \"prompt\" and \"completion\", and those of the training data' \
    --train_file "$tmp/asked.jsonl" --do_eval --eval_file "$tmp/prompts.jsonl" --tokenizer_name "$tok"
for k in "$tmp/prompts.jsonl $tmp/asked.jsonl" "$tmp/asked.jsonl $tmp/prompts.jsonl"; do
    # shellcheck disable=SC2086 # words
    check "  nor prompts alone learnt beside pairs" refused 2 \
        'asked.jsonl: its rows are texts of \"prompt\", and those of '"$tmp"'/prompts.jsonl are pairs of \"prompt\" and \"completion\": give both the same columns' \
        --tokenizer_name "$tok" --train_file $k
done
kinds() { # kinds ARGS...: how often a warning tells of them
    gpt2 2 "$tmp/19" --tokenizer_name "$tok" --do_eval "$@" && grep '"event":"log"' "$tmp/19" | grep -c 'so the two losses do not compare'
}
check "texts are, which is told" test "$(kinds --train_file "$tmp/prompts.jsonl" --eval_file "$tmp/joined.jsonl")" = 1
check "  and pairs of texts" test "$(kinds --train_file "$tmp/joined.jsonl" --eval_file "$tmp/prompts.jsonl")" = 1
check "  but not where all of a pair is learnt" test "$(kinds --train_file "$tmp/prompts.jsonl" --eval_file "$tmp/joined.jsonl" --assistant_only_loss false)" = 0
check "  nor where a column is named" test "$(kinds --train_file "$tmp/prompts.jsonl" --eval_file "$tmp/asked.jsonl" --text_column prompt)" = 0
check "  nor where some files of the training are such" test "$(kinds --train_file "$tmp/prompts.jsonl" "$tmp/joined.jsonl" --eval_file "$tmp/joined.jsonl")" = 0
check "  lines of text are told as well" test "$(kinds --train_file "$tmp/prompts.jsonl" --eval_file README.md)" = 1
check "  but not where the training has some" test "$(kinds --train_file "$tmp/prompts.jsonl" README.md --eval_file README.md)" = 0
check "  nor with the end of the training rows" test "$(kinds --train_file "$tmp/prompts.jsonl" --packing none)" = 0
finish
