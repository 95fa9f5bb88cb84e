"""Chat templates: what build/release/peers/render makes of them is what transformers does.

The templates are written for this test; they use what those of the known families use: ChatML
and Qwen (tools, namespaces, reversed searches), Llama 2 and 3 (system messages folded in, dates,
trimmed contents), Mistral (alternation that is checked), and every operator, filter, method and
test of the subset.
"""

import json
import random
import subprocess

TOOL = "build/release/peers/render"

CHATML = """{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\\nYou are helpful.<|im_end|>\\n' }}{% endif %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""

QWEN = """{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0]['role'] == 'system' %}
        {{- messages[0]['content'] }}
    {%- else %}
        {{- 'You are a model.' }}
    {%- endif %}
    {{- "\\n\\n# Tools\\n<tools>" }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\\n</tools><|im_end|>\\n" }}
{%- else %}
    {%- if messages[0]['role'] == 'system' %}
        {{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}
    {%- endif %}
{%- endif %}
{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == "user" and message.content is string and not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.multi_step_tool = false %}
        {%- set ns.last_query_index = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.content is string %}
        {%- set content = message.content %}
    {%- else %}
        {%- set content = '' %}
    {%- endif %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {%- set reasoning = '' %}
        {%- if '</think>' in content %}
            {%- set reasoning = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query_index and (loop.last or (not loop.last and reasoning)) %}
            {{- '<|im_start|>' + message.role + '\\n<think>\\n' + reasoning.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\\n' + content }}
        {%- endif %}
        {%- if message.tool_calls %}
            {%- for tool_call in message.tool_calls %}
                {%- if (loop.first and content) or (not loop.first) %}{{- '\\n' }}{%- endif %}
                {%- if tool_call.function %}
                    {%- set tool_call = tool_call.function %}
                {%- endif %}
                {{- '<tool_call>\\n{"name": "' }}
                {{- tool_call.name }}
                {{- '", "arguments": ' }}
                {%- if tool_call.arguments is string %}
                    {{- tool_call.arguments }}
                {%- else %}
                    {{- tool_call.arguments | tojson }}
                {%- endif %}
                {{- '}\\n</tool_call>' }}
            {%- endfor %}
        {%- endif %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.first or (messages[loop.index0 - 1].role != "tool") %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\\n<tool_response>\\n' }}
        {{- content }}
        {{- '\\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}
            {{- '<|im_end|>\\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}
"""

LLAMA2 = """{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set system_message = messages[0]['content'] %}{% else %}{% set loop_messages = messages %}{% set system_message = false %}{% endif %}{% for message in loop_messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Roles must alternate user/assistant') }}{% endif %}{% if loop.index0 == 0 and system_message != false %}{% set content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + message['content'] %}{% else %}{% set content = message['content'] %}{% endif %}{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}{% elif message['role'] == 'assistant' %}{{ ' '  + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}"""

LLAMA3 = """{{- bos_token }}
{%- if custom_tools is defined %}
    {%- set tools = custom_tools %}
{%- endif %}
{%- if not tools_in_user_message is defined %}
    {%- set tools_in_user_message = true %}
{%- endif %}
{%- if not date_string is defined %}
    {%- if strftime_now is defined %}
        {%- set date_string = strftime_now("%d %b %Y") %}
    {%- else %}
        {%- set date_string = "26 Jul 2024" %}
    {%- endif %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}

{#- This block extracts the system message, so we can slot it into the right place. #}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}

{#- System message #}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{%- if tools is not none %}
    {{- "Environment: ipython\\n" }}
{%- endif %}
{{- "Cutting Knowledge Date: December 2023\\n" }}
{{- "Today Date: " + date_string + "\\n\\n" }}
{{- system_message }}
{{- "<|eot_id|>" }}

{#- Custom tools are passed in a user message with some extra guidance #}
{%- if tools_in_user_message and not tools is none %}
    {%- if messages | length != 0 %}
        {%- set first_user_message = messages[0]['content']|trim %}
        {%- set messages = messages[1:] %}
    {%- else %}
        {{- raise_exception("Cannot put tools in the first user message when there's no first user message!") }}
    {%- endif %}
    {{- '<|start_header_id|>user<|end_header_id|>\\n\\n' -}}
    {{- "Given the following functions...\\n\\n" }}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\\n\\n" }}
    {%- endfor %}
    {{- first_user_message + "<|eot_id|>"}}
{%- endif %}

{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}
            {{- raise_exception("This model only supports single tool-calls at once!") }}
        {%- endif %}
        {%- set tool_call = message.tool_calls[0].function %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' -}}
        {{- '{"name": "' + tool_call.name + '", ' }}
        {{- '"parameters": ' }}
        {{- tool_call.arguments | tojson }}
        {{- "}" }}
        {{- "<|eot_id|>" }}
    {%- elif message.role == "tool" or message.role == "ipython" %}
        {{- "<|start_header_id|>ipython<|end_header_id|>\\n\\n" }}
        {%- if message.content is mapping or message.content is iterable %}
            {{- message.content | tojson }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
        {{- "<|eot_id|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
"""

MISTRAL = """{%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}
{%- set user_messages = loop_messages | selectattr("role", "equalto", "user") | list %}

{#- This block checks for alternating user/assistant messages, skipping tool calling messages #}
{%- set ns = namespace() %}
{%- set ns.index = 0 %}
{%- for message in loop_messages %}
    {%- if not (message.role == "tool" or message.role == "tool_results" or (message.tool_calls is defined and message.tool_calls is not none)) %}
        {%- if (message["role"] == "user") != (ns.index % 2 == 0) %}
            {{- raise_exception("After the optional system message, conversation roles must alternate user/assistant/user/assistant/...") }}
        {%- endif %}
        {%- set ns.index = ns.index + 1 %}
    {%- endif %}
{%- endfor %}

{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {%- if tools is not none and (message == user_messages[-1]) %}
            {{- "[AVAILABLE_TOOLS] [" }}
            {%- for tool in tools %}
                {%- set tool = tool.function %}
                {{- '{"type": "function", "function": {' }}
                {%- for key, val in tool.items() if key != "return" %}
                    {%- if val is string %}
                        {{- '"' + key + '": "' + val + '"' }}
                    {%- else %}
                        {{- '"' + key + '": ' + val|tojson }}
                    {%- endif %}
                    {%- if not loop.last %}
                        {{- ", " }}
                    {%- endif %}
                {%- endfor %}
                {{- "}}" }}
                {%- if not loop.last %}
                    {{- ", " }}
                {%- else %}
                    {{- "]" }}
                {%- endif %}
            {%- endfor %}
            {{- "[/AVAILABLE_TOOLS]" }}
        {%- endif %}
        {%- if loop.last and system_message is defined %}
            {{- "[INST] " + system_message + "\\n\\n" + message["content"] + "[/INST]" }}
        {%- else %}
            {{- "[INST] " + message["content"] + "[/INST]" }}
        {%- endif %}
    {%- elif message["role"] == "assistant" %}
        {{- " " + message["content"]|trim + eos_token}}
    {%- else %}
        {{- raise_exception("Only user and assistant roles are supported, with the exception of an initial optional system message!") }}
    {%- endif %}
{%- endfor %}
"""

# Expressions and blocks one by one; what stands before | | is indented, or spread over lines.
PIECES = [
    "{{ 1 + 2 * 3 - 4 // 3 % 2 }} {{ 7 / 2 }} {{ 2 ** 10 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7.5 // 2 }} {{ 1.0 }} {{ 1e3 if false else 0.1 }}",
    "{{ 'a' ~ 1 ~ none ~ true ~ 2.50 }} {{ 'ab' * 3 }} {{ [1] + [2, 3] == [1, 2, 3] }}",
    "{{ 1 < 2 < 3 }} {{ 'a' < 'b' }} {{ 3 >= 3 != false }} {{ 'x' in 'axb' }} {{ 'k' in {'k': 1} }} {{ 5 not in [1, 2] }}",
    "{{ not 1 == 2 and 0 or 'last' }} {{ '' or none or 'z' }} {{ 1 and 'both' }} {{ 'yes' if '' else 'no' }}|{{ 'x' if false }}|",
    "{{ 'abcdef'[1:4] }} {{ 'abcdef'[::-1] }} {{ 'abcdef'[-2:] }} {{ 'abcdef'[5:1:-2] }} {{ [1,2,3,4][1:-1] | tojson }} {{ 'é€x'[1] }} {{ 'é€x'[-1] }}",
    "{{ {'a': 1, 'b': [true, none, 2.5, 'q\"\\n']} | tojson }} {{ {'a': {'b': []}, 'c': [1, {}]} | tojson(indent=2) }}",
    "{{ 'a,b,,c'.split(',') | tojson }} {{ ' a  b c '.split() | tojson }} {{ 'a,b,c'.split(',', 1) | tojson }} {{ ' a b  c '.split(none, 1)|tojson }}",
    "{{ '  x '.strip() }}|{{ '  x '.lstrip() }}|{{ ' x  '.rstrip() }}|{{ 'xxaxx'.strip('x') }}|{{ '\u3000\u00a0y\u2003'|trim }}|{{ 'aba'|trim('a') }}|",
    "{{ 'hello World'.title() }} {{ 'hELLO w'.capitalize() }} {{ 'aB' | upper }} {{ 'aB' | lower }} {{ \"it's a dog\" | capitalize }}",
    "{{ 'a-b-c'.replace('-', '+') }} {{ 'a-b-c'.replace('-', '+', 1) }} {{ 'a-b' | replace('-', '') }}",
    "{{ [3, 1, 2] | join(', ') }} {{ ['x', 1, none] | join }} {{ messages | map(attribute='role') | join('/') }}",
    "{{ [1,2,3] | first }} {{ [1,2,3] | last }} {{ 'abc' | first }} {{ [] | first is defined }} {{ [1,2] | reverse | list | tojson }} {{ 'ab' | list | tojson }}",
    "{{ nothing is defined }} {{ nothing | default('d') }} {{ '' | default('e', true) }} {{ none | d('f') }} {{ nothing is undefined }} {{ nothing }}|{{ messages[99] is defined }}",
    "{{ 1 is number }} {{ true is number }} {{ 'a' is string }} {{ [] is iterable }} {{ {} is mapping }} {{ 'a' is sequence }} {{ 1.5 is float }} {{ 2 is even }} {{ 3 is odd }} {{ 9 is divisibleby 3 }} {{ none is none }} {{ true is true }} {{ 1 is integer }} {{ true is boolean }} {{ 3 is not eq 4 }}",
    "{% for k, v in {'x': 1, 'y': 2}.items() %}{{ k }}={{ v }};{% endfor %}{% for k in {'x': 1} %}{{ k }}{% endfor %}{% for c in 'añb' %}[{{ c }}]{% endfor %}{% for x in [] %}{% else %}none{% endfor %}",
    "{% for i in range(5) %}{% if i == 1 %}{% continue %}{% endif %}{% if i == 4 %}{% break %}{% endif %}{{ i }}{{ ',' if not loop.last }}{% endfor %}",
    "{% for m in messages if m.role == 'user' %}{{ loop.index }}/{{ loop.length }}/{{ loop.revindex }}/{{ loop.revindex0 }} {{ loop.previtem is defined }} {{ loop.nextitem is defined }}\n{% endfor %}",
    "{% set a = 1 %}{% for i in [1, 2] %}{% set a = a + i %}{{ a }}{% endfor %}{{ a }}{% if true %}{% set a = 9 %}{% endif %}{{ a }}",
    "{% set ns = namespace(n=0, s='') %}{% for i in [1, 2, 3] %}{% set ns.n = ns.n + i %}{% set ns.s = ns.s ~ i %}{% endfor %}{{ ns.n }}{{ ns.s }}{{ dict(a=1, b='c') | tojson }}",
    "{% set block %}one {{ 1 + 1 }}{% endset %}[{{ block }}] {{ block | length }} {{ [1, 2] | count }} {{ {'a': 1} | length }}",
    "  {% if true %}\n    indented\n  {% endif %}\n  {{ 'x' }}\n\t{# a comment #}\n  tail\n",
    "a {%- if true -%}  b  {%- endif -%} c\n {%+ if true %}\n d {% endif +%}\n e {#- gone -#} f\n\n",
    "x\r\ny\rz {{ 'q' -}}\r\n  w {{- 'r' }}\n",
    "{{ {'a': {'b': 'c'}}.a.b }} {{ {'a': {'b': 'c'}}['a'].get('b') }} {{ {'a': 1}.get('z', 'none') }} {{ {'a': 1}.get('z') }} {{ {'a': 1, 'b': 2}.keys() | list | tojson }} {{ {'a': 1}.values() | list | tojson }}",
    "{{ messages | rejectattr('role', 'equalto', 'user') | list | length }} {{ messages | selectattr('content') | list | length }} {{ (messages | first).role }}",
    "{{ 'a\\tb\\\\c\\'d' }} {{ \"q\\\"\" }} {{ 'x' if messages|length > 1 and messages[1].role == 'assistant' else 'y' }} {{ ('t', 1)[0] }} {{ 42 | string }}{{ '7' | int + 1 }}",
    "{% generation %}said{% endgeneration %} {{ messages[0]['content'] | length }} {{ messages[-1].content is string }} {{ 'A' == 'A' and 'b' != 'c' }}",
    "{% for x, y in [[1, 2], ['a', 'b']] %}{{ x }}{{ y }} {% endfor %}{% for (x, y) in [[3, 4]] %}{{ x }}{{ y }}{% endfor %}",
    "{{ 100000000000000000000.0 }} {{ 1.5e300 if false else 0.0001 }} {{ 123456789.125 }} {{ 1/3 }} {{ 5.0 * 2 }}",
]

# What is refused on both sides.
REFUSED = ["{% if true %}", "{{ 1 + 'a' }}", "{{ nothing.field }}", "{{ 'a' }", "{% for x in 3 %}{% endfor %}",
           "{% endif %}", "{{ unknown_function() }}", "{{ 1 | unknown_filter }}", "{{ 1 is unknown_test }}",
           "{% unknown %}", "{{ }}", "{# no end", "{{ 'no end }}", "{{ [1, 2 }}", "{{ 1 // 0 }}", "{{ a b }}",
           "{% set a.b = 1 %}", "{{ raise_exception('no') }}"]

WORDS = ["hello", " leading", "trailing ", "\n\nlines\n", "été", "日本語", "🙂", "a\tb", "\"quoted\"", "<think>why</think>\n\nso",
         "", "{{ not a tag }}", "\u00a0nbsp", "x" * 200, "back\\slash", "\x01control"]


def conversation(rng):
    messages = []
    if rng.random() < 0.5:
        messages.append({"role": "system", "content": rng.choice(WORDS)})
    for i in range(rng.randint(1, 6)):
        role = "assistant" if i % 2 else "user"
        content = " ".join(rng.choice(WORDS) for _ in range(rng.randint(1, 4)))
        message = {"role": role, "content": content}
        if role == "assistant" and rng.random() < 0.2:
            message["tool_calls"] = [{"function": {"name": "f", "arguments": {"x": 1, "é": [None, 1.5, "\u2028"]}}}]
        messages.append(message)
    if rng.random() < 0.1:
        messages.append({"role": "tool", "content": rng.choice(WORDS)})
    return messages


def values_of(rng):
    values = {"messages": conversation(rng), "bos_token": "<s>", "eos_token": "</s>",
              "add_generation_prompt": rng.random() < 0.5}
    if rng.random() < 0.3:
        values["tools"] = [{"type": "function", "function": {"name": "g", "description": "d\"é", "parameters": {"a": [1, 2.0, True]},
                                                             "return": {"type": "x"}}}]
    if rng.random() < 0.2:
        values["enable_thinking"] = rng.random() < 0.5
    return values


def theirs(template, values):
    from transformers.utils.chat_template_utils import _compile_jinja_template
    return _compile_jinja_template(template).render(**values)


def ours(cases):
    lines = "".join(json.dumps({"template": t, "values": v}) + "\n" for t, v in cases)
    done = subprocess.run([TOOL], input=lines, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.split("\n") if line]


def compare(cases):
    refused = 0
    for (template, values), mine in zip(cases, ours(cases), strict=True):
        try:
            wanted = theirs(template, values)
        except Exception as e:  # noqa: BLE001, whatever it raises, it refuses
            assert isinstance(mine, dict), f"{e!r} there, here {mine!r}: {template!r} {values!r}"
            refused += 1
            continue
        assert mine == wanted, f"{template!r}\n{values!r}\n{mine!r}\n{wanted!r}"
    return f"{len(cases)} texts equal, {refused} of them refused on both sides"


def families_render_as_transformers_does(_folder):
    rng = random.Random()
    return compare([(t, values_of(rng)) for t in (CHATML, QWEN, LLAMA2, LLAMA3, MISTRAL) for _ in range(200)])


def pieces_render_as_jinja_does(_folder):
    rng = random.Random()
    return compare([(t, values_of(rng)) for t in PIECES for _ in range(5)])


def what_jinja_refuses_is_refused(_folder):
    said = compare([(t, {"messages": []}) for t in REFUSED])
    assert said.endswith(f"{len(REFUSED)} of them refused on both sides"), said
    return said
