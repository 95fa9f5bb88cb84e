#!/bin/bash
# --interactive: lines of standard input are answered, by a pipe and by a terminal, with what was said before, on any
# number of ranks; Ctrl-C ends an answer; nothing is left whoever dies.
. "$(dirname "$0")/launch_lib.sh"
cp -r test/golden/tokenizer "$tmp/tok"
printf '%s' "{% for m in messages %}{{ '<' ~ m.role ~ '> ' ~ m.content ~ '\n' }}{% endfor %}" \
    "{% if add_generation_prompt %}{{ '<assistant> ' }}{% endif %}" >"$tmp/tok/chat_template.jinja"
model=("$bin/models/gpt2.so" --n_layer 2 --n_head 2 --n_embd 32 --tokenizer_name "$tmp/tok" --vocab_size 400 --temperature 0 --seed 3)
echo '{"zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0}}' >"$tmp/3.json"

# talk RANKS ARGS...: what is piped in is answered; events to $tmp/out
talk() { launch --num_gpus "$1" --log_format json "${model[@]}" --block_size 96 --max_new_tokens 8 --interactive "${@:2}"; }
replies() { sed -n 's/.*"event":"reply",.*"text":"\(.*\)"}/\1/p' "$tmp/out"; }

talk 1 < <(printf 'what is it\n\nand that')
check "lines are answered, up to the end of a pipe" code_is 0
check "  two of them, an empty one is none" test "$(replies | wc -l)" -eq 2
check "  each piece by piece" test "$(grep -c '"event":"reply_part"' "$tmp/out")" -ge 8
replies >"$tmp/one"
talk 2 --deepspeed "$tmp/3.json" < <(printf 'what is it\n\nand that')
check "  the same by two ranks that share the weights" cmp "$tmp/one" <(replies)

# the same conversation as the row of a file
first=$(head -1 "$tmp/one")
printf '{"messages": [%s, %s, %s]}\n' '{"role": "user", "content": "what is it"}' \
    '{"role": "assistant", "content": "'"$first"'"}' '{"role": "user", "content": "and that"}' >"$tmp/row.jsonl"
launch --num_gpus 1 "${model[@]}" --block_size 96 --max_new_tokens 8 --test_file "$tmp/row.jsonl" --output_dir "$tmp/predicted"
said=$(sed 's/.*"generated":"\(.*\)"}/\1/' "$tmp/predicted/predictions.jsonl")
check "what was said before is read" test "$(tail -1 "$tmp/one")" = "$said"
sed 's/\]}$/, {"role": "assistant", "content": "not this"}]}/' "$tmp/row.jsonl" >"$tmp/answered.jsonl"
launch --num_gpus 1 "${model[@]}" --block_size 96 --max_new_tokens 8 --test_file "$tmp/answered.jsonl" --output_dir "$tmp/predicted.again"
check "an answer at the end is what is meant, and no part of the prompt" cmp "$tmp/predicted/predictions.jsonl" "$tmp/predicted.again/predictions.jsonl"

launch --num_gpus 1 "${model[@]}" --block_size 16 --interactive < <(echo it)
check "a short context is shared by what is typed and the answer, unless asked" code_is 0
launch --num_gpus 1 --detach "${model[@]}" --block_size 96 --interactive
check "nobody types to a job of --detach" code_is 2
launch --num_gpus 1 --detach "${model[@]}" --block_size 96 --interactive=true
check "  however it is written" code_is 2
launch --num_gpus 1 --detach --log_file "$tmp/said" "${model[@]}" --block_size 96 --max_new_tokens 2 --prompt "it is" --interactive false
check "  and none is meant by false" code_is 0
launch --num_gpus 1 "$bin/models/t5.so" --d_model 32 --d_kv 8 --d_ff 48 --num_layers 2 --num_heads 3 --vocab_size 257 --interactive < <(echo cat)
check "an encoder-decoder writes no more than its texts have, unless asked" code_is 0

talk 1 < <(for i in 1 2 3 4 5 6 7 8; do echo "this is line $i"; done)
check "turns that no longer fit are dropped, which is said" grep -q "the oldest [0-9]* turns are no longer read: beside an answer of 8 tokens" "$tmp/out"
check "  and all lines are answered" test "$(replies | wc -l)" -eq 8
talk 1 < <({ for i in $(seq 60); do printf 'long '; done; echo; echo short; })
check "a line that never fits is not read" grep -q "that was not read: it has [0-9]* tokens" "$tmp/out"
check "  the next one is" test "$(replies | wc -l)" -eq 1
talk 1 < <({ head -c 70000 /dev/zero | tr '\0' x; echo; echo short; })
check "nor is one of 64 KiB" grep -q "a line of more than 65536 bytes was passed over" "$tmp/out"
check "  and the next one is" test "$(replies | wc -l)" -eq 1
rm "$tmp/tok/chat_template.jinja"
talk 1 < <(printf 'to be\nto be\n')
check "without a template each line is a prompt" test "$(replies | sort -u | wc -l)" -eq 1 -a "$(replies | wc -l)" -eq 2
echo "to be" >"$tmp/lines"
talk 1 --num_beams 2 <"$tmp/lines"
check "a file is input, and beams answer as well" test "$(replies | wc -l)" -eq 1 -a "$code" -eq 0
check "a rank by itself reads its own input" test -n "$(echo 'to be' | "$bin/zworker" "${model[@]}" --block_size 96 --max_new_tokens 8 --interactive 2>"$tmp/err")"
launch --num_gpus 1 "${model[@]}" --interactive --prompt a
check "a prompt is no dialogue" code_is 2
launch --num_gpus 1 "${model[@]}" --block_size 32 --max_new_tokens 33 --interactive
check "an answer has to leave room for what is typed" code_is 2

# an answer that would take long
has() { [ "$(grep -c "$2" "$tmp/out")" -ge "$1" ]; } # has NUM WORDS: so many lines of the output do
mkfifo "$tmp/typed"
exec 3<>"$tmp/typed"
talk_bg() { # in the background, with what is written to descriptor 3 for input
    new_mark
    env -u ZT_TEST_MARK_NEXT ZT_MARK=$mark setsid "$zlaunch" --num_gpus 2 --log_format json "${model[@]}" --block_size 100000 \
        --max_new_tokens 90000 --interactive <"$tmp/typed" >"$tmp/out" 2>"$tmp/err" &
    job=$!
}
talk_bg
echo "to be" >&3
check "an answer begins" within 20 has 1 '"event":"reply_part"'
kill -INT "$job"
check "Ctrl-C ends it" within 20 has 1 '"event":"reply",'
check "  and not the dialogue" within 20 has 2 '"event":"ask"'
pieces=$(grep -c '"event":"reply_part"' "$tmp/out")
echo "or not" >&3
check "  the next line is answered" within 20 has $((pieces + 1)) '"event":"reply_part"'
kill -INT "$job"
within 20 has 3 '"event":"ask"'
kill -INT "$job"
wait "$job"
check "between answers it ends the run" test $? -eq 130
check "  and nothing is left" nobody_left
talk_bg
check "a dialogue waits" within 20 has 1 '"event":"ask"'
kill -KILL "$job"
wait "$job" 2>/dev/null
check "a killed zlaunch leaves nothing" within 5 nobody_left

command -v script >/dev/null || finish
printf 'to be\n\004' | script -qec "'$zlaunch' --num_gpus 2 ${model[*]@Q} --block_size 96 --max_new_tokens 8 --interactive" /dev/null >"$tmp/out" 2>&1
check "at a terminal Ctrl-D ends it" test $? -eq 0
check "  with a prompt in front of each line" test "$(tr -d '\r' <"$tmp/out" | grep -o '^> \|> $' | wc -l)" -ge 2
finish
