#!/bin/bash
# Conversations become text by the chat template of the tokenizer's folder: the tokens are those of
# the text that a template makes, on every rank and by ztok; the assistant's answers alone are learnt;
# what cannot be is refused by its line.
. "$(dirname "$0")/text_lib.sh"
tok=$tmp/tokenizer
cp -r test/golden/tokenizer "$tok"

# chat.jsonl, and what the template below makes of its rows as text: one sentence a message
awk -v chat="$tmp/chat.jsonl" -v text="$tmp/text.jsonl" '
    BEGIN {
        for (i = 0; i < 80; i++) {
            rows = said = ""
            for (k = 0; k < 2 + i % 3; k++) {
                role = k % 2 ? "assistant" : "user"
                words = sprintf("what %d is of %d, é and %d", k, i * 37 % 11, i % 7)
                rows = rows (k ? ", " : "") sprintf("{\"role\": \"%s\", \"content\": \" %s\\n\"}", role, words)
                said = said sprintf("<%s> %s<|endoftext|>\\n", toupper(role), words)
            }
            printf "{\"id\": %d, \"messages\": [%s]}\n", i, rows >chat
            printf "{\"text\": \"%s\"}\n", said >text
        }
    }'
template() { printf '%s\n' "$1" >"$tok/chat_template.jinja"; }
template "{# a line each #}
{%- for message in messages %}
{{ '<' ~ message.role.upper() ~ '> ' ~ message['content'] | trim ~ eos_token }}
{% endfor -%}"


check "ztok writes the tokens of conversations" "$bin/ztok" "$tmp/chat.jsonl" --tokenizer "$tok" --out "$tmp/chat"
check "  and of the text that they become" "$bin/ztok" "$tmp/text.jsonl" --tokenizer "$tok" --out "$tmp/text"
check "  which are the same" cmp "$tmp/chat.bin" "$tmp/text.bin"
cp -r "$tok" "$tmp/asks"
echo "{% if tools is none and documents is none %}$(cat "$tok/chat_template.jinja")
{% endif -%}" >"$tmp/asks/chat_template.jinja"
"$bin/ztok" "$tmp/chat.jsonl" --tokenizer "$tmp/asks" --out "$tmp/asked" >/dev/null
check "  tools and documents that a row has not are none" cmp "$tmp/asked.bin" "$tmp/text.bin"
cp "$tok/chat_template.jinja" "$tmp/asks"
echo '{"tokenizer_class": "GPT2TokenizerFast"}' >"$tmp/asks/tokenizer_config.json"
"$bin/ztok" "$tmp/chat.jsonl" --tokenizer "$tmp/asks" --out "$tmp/class" >/dev/null
check "  and the end of text may be that of the class" cmp "$tmp/class.bin" "$tmp/text.bin"
echo '{"eos_token": "a"}' >"$tmp/asks/tokenizer_config.json"
echo '{"eos_token": "<|endoftext|>"}' >"$tmp/asks/special_tokens_map.json"
"$bin/ztok" "$tmp/chat.jsonl" --tokenizer "$tmp/asks" --out "$tmp/map" >/dev/null
check "  or of special_tokens_map.json, before tokenizer_config.json" cmp "$tmp/map.bin" "$tmp/text.bin"
sed -i 's/eos_token/line_token/' "$tmp/asks/chat_template.jinja"
echo '{"eos_token": "a", "extra_special_tokens": {"line_token": "<|endoftext|>"}}' >"$tmp/asks/tokenizer_config.json"
"$bin/ztok" "$tmp/chat.jsonl" --tokenizer "$tmp/asks" --out "$tmp/own" >/dev/null
check "  and tokens have names of the model's own" cmp "$tmp/own.bin" "$tmp/text.bin"
check "training on conversations" gpt2 1 "$tmp/1" --train_file "$tmp/chat.jsonl" --tokenizer_name "$tok" --assistant_only_loss false
gpt2 1 "$tmp/2" --train_file "$tmp/text.jsonl" --tokenizer_name "$tok"
check "  gives the bits of training on their text" same_bits "$tmp/1" "$tmp/2"
gpt2 2 "$tmp/3" --train_file "$tmp/chat.jsonl" --tokenizer_name "$tok" --data_cache_dir "$tmp/cache" --assistant_only_loss false
check "  on two ranks the same curve" same_curve "$tmp/1" "$tmp/3" 1e-5

check "the answers alone are learnt" gpt2 1 "$tmp/a1" --train_file "$tmp/chat.jsonl" --tokenizer_name "$tok"
check "  which gives other bits" eval '! same_bits "$tmp/1" "$tmp/a1" >/dev/null'
gpt2 2 "$tmp/a2" --train_file "$tmp/chat.jsonl" --tokenizer_name "$tok" --data_cache_dir "$tmp/cache"
check "  on two ranks the same curve" same_curve "$tmp/a1" "$tmp/a2" 1e-5
grep -o '<ASSISTANT>[^<]*<|endoftext|>' "$tmp/text.jsonl" | sed 's/.*/{"text": "&\\n"}/' >"$tmp/answers.jsonl"
gpt2 1 "$tmp/eval" --eval_file "$tmp/chat.jsonl" --train_file "$tmp/chat.jsonl" --do_eval --tokenizer_name "$tok"
check "  and the tokens that count are those of the answers" grep -qF \
    "\"tokens\":$("$bin/ztok" "$tmp/answers.jsonl" --tokenizer "$tok" --out "$tmp/answers" 2>&1 | sed 's/.*: \([0-9]*\) tokens.*/\1/')," "$tmp/eval"
check "  kept beside the tokens that are all learnt" [ "$(find "$tmp/cache" -name 'tokens-*' | wc -l)" -eq 2 ]
gpt2 1 "$tmp/a3" --train_file "$tmp/chat.jsonl" --tokenizer_name "$tok" --data_cache_dir "$tmp/cache"
check "  and from there the same bits" same_bits "$tmp/a1" "$tmp/a3"
cp "$tok/chat_template.jinja" "$tmp/plain"
template "{% for message in messages %}{% set said = '<' ~ message.role.upper() ~ '> ' %}
{%- set words = message['content'] | trim ~ eos_token ~ '\n' %}
{%- if message.role == 'assistant' %}{% generation %}{{ said ~ words }}{% endgeneration %}{% else %}{{ said ~ words }}{% endif %}
{%- endfor %}"
gpt2 1 "$tmp/a4" --train_file "$tmp/chat.jsonl" --tokenizer_name "$tok"
check "  as a template marks them by {% generation %}" same_curve "$tmp/a1" "$tmp/a4" 0
template "{{ messages | length }}{% for m in messages %}{{ m.content }}{% endfor %}"
check "a template whose texts do not begin alike" refused 65 "what the assistant says in message 1 cannot be found" \
    --train_file "$tmp/chat.jsonl" --tokenizer_name "$tok"
grep -o '.*"role": "user"' "$tmp/chat.jsonl" | sed 's/assistant/user/g; s/$/, "content": "so"}]}/' >"$tmp/asked.jsonl"
cp "$tmp/plain" "$tok/chat_template.jinja"
check "conversations without an answer" refused 65 "no message of its conversations is the assistant's" \
    --train_file "$tmp/asked.jsonl" --tokenizer_name "$tok"
sed 's/^{/{"model_max_length": 1000000000000000019884624838656, /' test/golden/tokenizer/tokenizer_config.json \
    >"$tok/tokenizer_config.json"
gpt2 1 "$tmp/a5" --train_file "$tmp/chat.jsonl" --tokenizer_name "$tok"
check "a tokenizer_config.json with a number of 31 digits" same_bits "$tmp/a1" "$tmp/a5"
echo '{"eos_token": ' >"$tok/tokenizer_config.json"
check "  and one that is cut short" refused 65 "tokenizer_config.json:2: " --train_file "$tmp/chat.jsonl" --tokenizer_name "$tok"
mv "$tok/chat_template.jinja" "$tmp/template"
sed "s/^{/{\"chat_template\": $(sed 's/$/\\\\n/' "$tmp/template" | tr -d '\n' | sed 's/.*/"&"/; s/[&/]/\\&/g'), /" \
    test/golden/tokenizer/tokenizer_config.json >"$tok/tokenizer_config.json"
gpt2 1 "$tmp/4" --train_file "$tmp/chat.jsonl" --tokenizer_name "$tok" --assistant_only_loss false
check "  also by a template in tokenizer_config.json" same_bits "$tmp/1" "$tmp/4"
sed 's/"messages"/"talk"/' "$tmp/chat.jsonl" >"$tmp/talk.jsonl"
gpt2 1 "$tmp/5" --train_file "$tmp/talk.jsonl" --tokenizer_name "$tok" --text_column talk --assistant_only_loss false
check "  and of a column that is named" same_bits "$tmp/1" "$tmp/5"
template "{% for m in messages %}{{ m.content }}{% endfor %}"
gpt2 1 "$tmp/6" --train_file "$tmp/chat.jsonl" --tokenizer_name "$tok" --data_cache_dir "$tmp/cache"
check "another template gives other tokens, whatever is in the cache" [ "$(find "$tmp/cache" -name 'tokens-*' | wc -l)" -eq 3 ]

template "{% for m in messages %}{{ m.content | shout }}{% endfor %}"
check "what is not in the subset is refused by name and line" refused 65 "chat_template.jinja:1: the filter 'shout' is not" \
    --train_file "$tmp/chat.jsonl" --tokenizer_name "$tok"
template "{% if messages | length > 3 %}{{ raise_exception('too long a talk') }}{% endif %}{{ messages[0].content }}"
check "what a template refuses by the row's line" refused 65 "chat.jsonl:3: " --train_file "$tmp/chat.jsonl" --tokenizer_name "$tok"
check "  and its words" grep -qF "too long a talk" "$tmp/refused" "$tmp/refused.err"
echo '{"messages": [{"content": "nobody says this"}]}' >>"$tmp/chat.jsonl"
template "{% for m in messages %}{{ m.content }}{% endfor %}"
check "a message without a role" refused 65 'chat.jsonl:81: \"messages\"[0] has no \"role\"' --train_file "$tmp/chat.jsonl" \
    --tokenizer_name "$tok"
echo '{"text": ["a", "list", "of", "words"]}' >"$tmp/words.jsonl"
check "a list of words is no conversation, which nobody is sent to find a template for" refused 65 \
    'words.jsonl:1: \"text\" is a list of other things than messages' --train_file "$tmp/words.jsonl" --tokenizer_name test/golden/tokenizer
refused_talk() { refused 2 'holds messages: say --text_column talk' --train_file "$tmp/talk.jsonl" --tokenizer_name test/golden/tokenizer; }
check "a column of conversations by another name is named" refused_talk
echo '{"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]}' >"$tmp/share.jsonl"
check "ShareGPT's names of members" refused 65 'then say --text_column conversations' \
    --train_file "$tmp/share.jsonl" --tokenizer_name test/golden/tokenizer
echo '{"id": "talk_1", "conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]}' >"$tmp/named.jsonl"
check "  also beside what names the row, which is no text" refused 65 'then say --text_column conversations' \
    --train_file "$tmp/named.jsonl" --tokenizer_name test/golden/tokenizer
echo '{"version": "1.1 of these", "data": [{"text": "a"}, {"text": "b"}]}' >"$tmp/around.json"
check "  and of one object around all rows" refused 65 'rows that are inside of \"data\" are to be the file' \
    --train_file "$tmp/around.json" --tokenizer_name test/golden/tokenizer
check "  also of a column that is named" refused 65 'share.jsonl:1: \"conversations\" holds messages by ShareGPT' \
    --train_file "$tmp/share.jsonl" --tokenizer_name test/golden/tokenizer --text_column conversations
echo '{"prompt": [{"role": "user", "content": "a"}], "completion": [{"role": "assistant", "content": "b"}]}' >"$tmp/two.jsonl"
check "conversations in two columns are told how they become one" refused 65 'messages: (.prompt + .completion)' --train_file "$tmp/two.jsonl" \
    --tokenizer_name test/golden/tokenizer
echo '{"messages": []}' >"$tmp/none.jsonl"
check "a list without messages" refused 65 'none.jsonl:1: \"messages\" is a list without messages' --train_file "$tmp/none.jsonl" \
    --tokenizer_name "$tok"
{ echo '{"id": "a", "messages": null}' && cat "$tmp/chat.jsonl"; } >"$tmp/hollow.jsonl"
check "a first row without messages does not make texts of another column" refused 65 'hollow.jsonl:1: \"messages\" is null' \
    --train_file "$tmp/hollow.jsonl" --tokenizer_name "$tok"
template "{% for m in messages %}{{ m.reasoning_content ~ m.thinking ~ m.n | tojson }}{% endfor %}"
echo '{"id": 12345678901234567890, "messages": [{"role": "user", "n": 7}, {"role": "assistant", "reasoning": "so it is", "n": -1}]}' >"$tmp/thinks.jsonl"
echo '{"text": "7so it isso it is-1"}' >"$tmp/thought.jsonl"
"$bin/ztok" "$tmp/thinks.jsonl" --tokenizer "$tok" --out "$tmp/thinks" >/dev/null
"$bin/ztok" "$tmp/thought.jsonl" --tokenizer "$tok" --out "$tmp/thought" >/dev/null
check "what is thought by any of its names, and whole numbers beside one beyond 64 bits" cmp "$tmp/thinks.bin" "$tmp/thought.bin"
template "{% for m in messages %}{{ m.role ~ m.content }}{% if m.calls %}{{ m.calls.n }}{% endif %}{% if m.name is defined %}!{% endif %}{% endfor %}"
echo '{"messages": [{"role": "user", "content": "a", "name": null}, {"role": "assistant", "content": null, "calls": {"n": null}}]}' >"$tmp/nulls.jsonl"
echo '{"text": "useraassistantNone"}' >"$tmp/thought.jsonl"
"$bin/ztok" "$tmp/nulls.jsonl" --tokenizer "$tok" --out "$tmp/nulls" >/dev/null
"$bin/ztok" "$tmp/thought.jsonl" --tokenizer "$tok" --out "$tmp/none" >/dev/null
check "what is null in a message is none, and within what it has as it stands" cmp "$tmp/nulls.bin" "$tmp/none.bin"
echo '{"messages": [{"role": "user", "n": 12345678901234567890}]}' >"$tmp/huge.jsonl"
check "  which is refused within a message" refused 65 'huge.jsonl:1: a number in \"messages\" is beyond 64 bits' \
    --train_file "$tmp/huge.jsonl" --tokenizer_name "$tok"
echo '{"tools": "[]", "messages": [{"role": "user", "content": "a"}]}' >"$tmp/tools.jsonl"
check "tools that are text, letter by letter" refused 65 'tools.jsonl:1: \"tools\" is text, and is to be a list of objects' \
    --train_file "$tmp/tools.jsonl" --tokenizer_name "$tok"
sed 's/.*"messages": \(.*\)}$/\1/; s/"/\\"/g; s/.*/{"id": 1, "messages": "&"}/' "$tmp/thinks.jsonl" >"$tmp/written.jsonl"
check "a conversation that is written as text" refused 2 'written.jsonl:1: \"messages\" holds a list that is written as text' \
    --train_file "$tmp/written.jsonl" --tokenizer_name "$tok"
rm "$tok/chat_template.jinja"
echo '{"tools": [], "messages": [{"role": "user", "content": "a"}]}' >"$tmp/uses.jsonl"
sed 's/^{/{"chat_template": [{"name": "default", "template": "{{ messages[0].content }}"}, {"name": "tool_use", "template": "{{ tools }}"}], /' \
    test/golden/tokenizer/tokenizer_config.json >"$tok/tokenizer_config.json"
check "tools of a row whose template is another one" refused 65 'uses.jsonl:1: the row has \"tools\", for which' \
    --train_file "$tmp/uses.jsonl" --tokenizer_name "$tok"
template "{% for m in messages %}{{ m.content }}{% endfor %}"
check "  which is given as the only one then" "$bin/ztok" "$tmp/uses.jsonl" --tokenizer "$tok" --out "$tmp/uses"
check "a folder without a template" refused 65 "neither chat_template.jinja nor" --train_file "$tmp/chat.jsonl" \
    --tokenizer_name test/golden/tokenizer
check "no tokenizer" refused 2 "give its folder, --tokenizer_name FOLDER" --train_file "$tmp/chat.jsonl"
finish
