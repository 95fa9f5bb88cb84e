#!/bin/bash
# Many texts at once: each is what it is by itself, whatever is written beside it and wherever; files
# in, predictions out; what is asked in vain is refused.
. "$(dirname "$0")/train_lib.sh"
corpus >/dev/null

model=(--n_layer 2 --n_head 2 --n_embd 32 --block_size 48 --vocab_size 257)
"$bin/zworker" "$bin/models/gpt2.so" "${model[@]}" --n_positions 48 --train_file "$tmp/corpus.txt" --max_steps 3 \
    --learning_rate 1e-2 --output_dir "$tmp/model" >"$tmp/log" 2>&1 || { cat "$tmp/log"; exit 1; }
cat >"$tmp/in.jsonl" <<'END'
{"id": 1, "prompt": "The licence"}
{"id": 2, "prompt": "a"}

{"id": 3, "prompt": "Each contributor grants you a worldwide licence, and more than the context takes of it, too"}
{"id": 4, "prompt": "né"}
{"id": 5, "prompt": ""}
END
for stage in 0 3; do echo "{\"zero_optimization\": {\"stage\": $stage}}" >"$tmp/stage$stage.json"; done
for most in 0 18000; do # of the four blocks' elements on a rank, as many as may be in host memory: none, or the first two
    echo "{\"zero_optimization\": {\"stage\": 3, \"stage3_param_persistence_threshold\": 0, \"offload_param\":
        {\"device\": \"nvme\", \"nvme_path\": \"$tmp\", \"buffer_count\": 1, \"buffer_size\": 4096, \"max_in_cpu\": $most}}}" >"$tmp/nvme$most.json"
done

# predict NAME RANKS OPTIONS...: predictions as $tmp/NAME
predict() {
    local name=$1 ranks=$2
    shift 2
    "$bin/zlaunch" --num_gpus "$ranks" "$bin/models/gpt2.so" --model_name_or_path "$tmp/model" --tokenizer_name bytes \
        --test_file "$tmp/in.jsonl" --output_dir "$tmp/out-$name" --max_new_tokens 50 "$@" >"$tmp/log" 2>&1 &&
        cp "$tmp/out-$name/predictions.jsonl" "$tmp/$name"
}
check "rows become predictions" predict alone 1 --per_device_eval_batch_size 1
check "a line for each, in their order" test "$(grep -o '"prompt":"[^"]\{0,5\}' "$tmp/alone" | cut -d '"' -f 4 | tr '\n' '|')" = 'The l|a|Each |né||'
same() { predict "$@" && cmp -s "$tmp/$1" "$tmp/alone"; }
check "the same texts when all are written at once" same batch 1
check "and on two ranks, of which one has less to do" same ranks 2 --per_device_eval_batch_size 2
check "and when weights are sharded" same sharded 3 --deepspeed "$tmp/stage3.json"
check "and in files in between" same nvme 2 --deepspeed "$tmp/nvme0.json"
check "and with some in host memory" same both 2 --deepspeed "$tmp/nvme18000.json"
sed 's/18000/36000/' "$tmp/nvme18000.json" >"$tmp/nvme36000.json"
check "with one rank, too, which works on them there" same one 1 --deepspeed "$tmp/nvme36000.json"

drawn=(--do_sample --seed 7 --top_k 40 --top_p 0.9 --num_return_sequences 3 --no_repeat_ngram_size 4)
check "texts are drawn" predict drawn 1 "${drawn[@]}" --per_device_eval_batch_size 1
check "other ones than the likeliest, three for each" test "$(grep -c '"generated":\["' "$tmp/drawn")" = 5
check "by the seed alone" predict drawn2 2 "${drawn[@]}" --deepspeed "$tmp/stage3.json"
check "whatever the ranks" cmp -s "$tmp/drawn" "$tmp/drawn2"
check "another seed draws others" predict drawn3 1 "${drawn[@]}" --seed 8
check "indeed" bash -c "! cmp -s '$tmp/drawn' '$tmp/drawn3'"

beams=(--num_beams 3 --num_return_sequences 2 --length_penalty 0.6)
check "beams search" predict beams 1 "${beams[@]}" --per_device_eval_batch_size 1
check "with a score for each text" test "$(grep -c '"score":\[-' "$tmp/beams")" = 5
check "and find the same on two ranks under stage 3" predict beams2 2 "${beams[@]}" --deepspeed "$tmp/stage3.json"
check "bit by bit" cmp -s "$tmp/beams" "$tmp/beams2"

run=("$bin/zlaunch" --num_gpus 1 "$bin/models/gpt2.so" --model_name_or_path "$tmp/model" --tokenizer_name bytes --max_new_tokens 20)
pieces() {
    "${run[@]}" --prompt "né" --temperature 0 >"$tmp/whole" 2>"$tmp/err" &&
        ZLAUNCH_LOG_FORMAT=json "${run[@]}" --prompt "né" --temperature 0 >"$tmp/json" 2>"$tmp/err" &&
        [ "$(grep -c '"event":"sample_part"' "$tmp/json")" -gt 2 ] &&
        [ "$(grep '"event":"sample"' "$tmp/json" | wc -l)" = 1 ] &&
        grep '"event":"sample_part"' "$tmp/json" | sed 's/.*"text":"//; s/"}$//' | tr -d '\n' >"$tmp/parts" &&
        grep '"event":"sample"' "$tmp/json" | sed 's/.*"text":"//; s/"}$//' | tr -d '\n' | cmp - "$tmp/parts"
}
check "pieces of a text are the text" pieces
several() { "${run[@]}" --prompt "one" "another" --temperature 0 >"$tmp/log" 2>/dev/null && [ "$(grep -c '^one\|^another' "$tmp/log")" = 2 ]; }
check "several prompts of a command line" several
several_each() {
    "${run[@]}" --prompt one two three --do_sample --num_return_sequences 2 >"$tmp/log" 2>/dev/null &&
        [ "$(sed -n 's/^\(one\|two\|three\).*/\1/p' "$tmp/log" | tr '\n' ' ')" = "one one two two three three " ]
}
check "and several texts of each" several_each

# a model that writes three zero bytes behind each letter
for ((i = 0; i < 3000; i++)); do printf 'a\0\0\0b\0\0\0'; done >"$tmp/zeros.txt"
"$bin/zworker" "$bin/models/gpt2.so" "${model[@]}" --n_positions 48 --data_format text --train_file "$tmp/zeros.txt" --max_steps 60 \
    --learning_rate 1e-2 --output_dir "$tmp/zeros" >"$tmp/log" 2>&1 || { cat "$tmp/log"; exit 1; }
zeros() { # zeros OUT ARGS...: its texts
    local out=$1
    shift
    "$bin/zlaunch" -q --num_gpus 2 "$bin/models/gpt2.so" --model_name_or_path "$tmp/zeros" --tokenizer_name bytes \
        --max_new_tokens 3 "$@" >"$out" 2>"$tmp/log"
}
zero_bytes() { zeros "$tmp/text" --prompt a --temperature 0 && printf 'a\0\0\0\n' | cmp - "$tmp/text"; }
check "zero bytes are text" zero_bytes
zero_samples() { zeros "$tmp/text" --prompt a b --temperature 0 && printf 'a\0\0\0\nb\0\0\0\n' | cmp - "$tmp/text"; }
check "of several texts, too" zero_samples
printf '{"prompt": "%s", "completion": "%s"}\n' a '\u0000\u0000\u0000' b '\u0000\u0000\u0000' >"$tmp/zeros.jsonl"
zero_lines() {
    zeros "$tmp/text" --predict_with_generate --test_file "$tmp/zeros.jsonl" --output_dir "$tmp/out-zeros" &&
        printf '{"prompt":"%s","generated":"%s"}\n' a '\u0000\u0000\u0000' b '\u0000\u0000\u0000' | cmp - "$tmp/out-zeros/predictions.jsonl" &&
        grep -q '"predict_chrf":100[.,]' "$tmp/out-zeros/predict_results.json"
}
check "and in files, with their scores" zero_lines

grep -q 'key/value cache' <("${run[@]}" --prompt abc --dry_run 2>&1) && has_cache=true || has_cache=false
check "the plan counts keys and values" "$has_cache"

refused() {
    local want=$1
    shift
    "${run[@]}" "$@" >"$tmp/log" 2>&1 && return 1
    grep -q -- "$want" "$tmp/log" || { cat "$tmp/log"; return 1; }
}
check "several likeliest texts are refused" refused 'there is one text alone, the likeliest' --prompt a --temperature 0 --num_return_sequences 2
check "more texts than beams are" refused '3 texts of 2 beams' --prompt a --num_beams 2 --num_return_sequences 3
check "predictions need a folder" refused 'needs an --output_dir' --test_file "$tmp/in.jsonl"
check "and a file" refused 'needs a --test_file' --do_predict --output_dir "$tmp/x"
printf '{"prompt": "a"}\n{"prompt": 5}\n' >"$tmp/bad.jsonl"
check "a row without a text is named" refused 'bad.jsonl:2' --test_file "$tmp/bad.jsonl" --output_dir "$tmp/x"
: >"$tmp/empty.txt"
printf 'ab\0%0100d\nc\n' 7 >"$tmp/zero.txt"
check "a file with zero bytes is no text" refused 'zero.txt: holds zero bytes' --test_file "$tmp/zero.txt" --output_dir "$tmp/x"
printf 'a text\n' | gzip >"$tmp/in.csv.gz"
check "nor is an archive" refused 'in.csv.gz: looks like a gzip archive' --test_file "$tmp/in.csv.gz" --output_dir "$tmp/x"
printf '%s\n' '{"prompt": "abc\u0000def"}' >"$tmp/nul.jsonl"
"${run[@]}" --test_file "$tmp/nul.jsonl" --output_dir "$tmp/nul" >"$tmp/log" 2>&1
check "a zero character of a prompt is one of it" grep -qF '"prompt":"abc\u0000def"' "$tmp/nul/predictions.jsonl"
"${run[@]}" --test_file "$tmp/zero.txt" --data_format text --output_dir "$tmp/zeros" >"$tmp/log" 2>&1
check "  also in a file whose bytes are meant" grep -qF '"prompt":"ab\u0000000' "$tmp/zeros/predictions.jsonl"
check "a file without rows is" refused 'empty.txt: there is no row in it' --test_file "$tmp/empty.txt" --output_dir "$tmp/x"
no_rows() { "${run[@]}" --test_file "$1" --output_dir "$tmp/x" >"$tmp/log" 2>&1; [ $? -eq 65 ]; }
check "  as data that are wrong" no_rows "$tmp/empty.txt"
: >"$tmp/empty.jsonl"
check "  records, too" no_rows "$tmp/empty.jsonl"
echo '{"prompt": null, "completion": "b"}' >"$tmp/hollow.jsonl"
check "a first row without its prompt does not make prompts of what follows them" refused 'hollow.jsonl:1: "prompt" is null' \
    --test_file "$tmp/hollow.jsonl" --output_dir "$tmp/x"
printf '%s\n' '{"note": "a"}' '{"note": "b", "prompt": "c"}' >"$tmp/late.jsonl"
check "  nor one that has no such column" refused 'late.jsonl:2: the row has "prompt", and the first row has not' --test_file "$tmp/late.jsonl" --output_dir "$tmp/x"
check "nothing was left there" test ! -e "$tmp/x"
check "a cache without room is refused with numbers" refused 'key/value cache [0-9]' --prompt a --per_device_eval_batch_size 8 \
    --num_return_sequences 1024 --device_memory 4MiB

# a rank that dies while others write is named, and nobody waits for it
killed() {
    local job victim
    "$bin/zlaunch" --num_gpus 2 "$bin/models/gpt2.so" --model_name_or_path "$tmp/model" --tokenizer_name bytes --prompt a \
        --max_new_tokens 1000000 --min_new_tokens 1000000 --deepspeed "$tmp/stage3.json" >"$tmp/text" 2>"$tmp/err" &
    job=$!
    until [ "$(wc -c <"$tmp/text")" -gt 20 ]; do
        kill -0 "$job" 2>/dev/null || return 1
    done
    for victim in $(pgrep -f "zworker $bin/models/gpt2.so --model_name_or_path $tmp/model"); do
        [ "$(tr '\0' '\n' <"/proc/$victim/environ" | sed -n 's/^RANK=//p')" != 1 ] || break
    done
    kill -9 "$victim"
    wait "$job"
    [ $? -eq 137 ] && grep -q "rank 1 (pid $victim) was killed by SIGKILL" "$tmp/err"
}
check "a killed rank is named while text is written" killed
finish
