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

CHATML = """{% for m in messages %}{% if loop.first and m['role'] != 'system' %}{{ '<|im_start|>system\\nBe brief.<|im_end|>\\n' }}{% endif %}{{ '<|im_start|>' + m['role'] + '\\n' }}{% if m['role'] == 'assistant' %}{% generation %}{{ m['content'] + '<|im_end|>' + '\\n' }}{% endgeneration %}{% else %}{{ m['content'] + '<|im_end|>' + '\\n' }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""

# As Qwen's: tools, thoughts of earlier turns left out, answers of tools in turns of the user.
QWEN = """{%- set start = '<|im_start|>' -%}
{%- set stop = '<|im_end|>\\n' -%}
{%- set seen = namespace(question=-1) -%}
{%- for m in messages[::-1] -%}
    {%- if seen.question < 0 and m.role == "user" and m.content is string and not m.content.startswith('<result>') -%}
        {%- set seen.question = messages|length - 1 - loop.index0 -%}
    {%- endif -%}
{%- endfor -%}
{%- if tools -%}
    {{- start + 'system\\n' -}}
    {%- if messages[0].role == 'system' -%}{{- messages[0].content + "\\n\\n" -}}{%- endif -%}
    {{- "# What can be called\\n<tools>" -}}
    {%- for one in tools -%}
        {{- "\\n" -}}{{- one | tojson -}}
    {%- endfor -%}
    {{- "\\n</tools>" + stop -}}
{%- elif messages[0].role == 'system' -%}
    {{- start ~ 'system\\n' ~ messages[0].content ~ stop -}}
{%- endif -%}
{%- for m in messages -%}
    {%- set said = m.content if m.content is string else '' -%}
    {%- if m.role == 'user' or (m.role == 'system' and not loop.first) -%}
        {{- start + m.role + '\\n' + said + stop -}}
    {%- elif m.role == 'assistant' -%}
        {%- set thought = '' -%}
        {%- if '</think>' in said -%}
            {%- set thought = said.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') -%}
            {%- set said = said.split('</think>')[-1].lstrip('\\n') -%}
        {%- endif -%}
        {{- start + m.role + '\\n' -}}
        {%- if loop.index0 > seen.question and (loop.last or thought) -%}
            {{- '<think>\\n' + thought.strip('\\n') + '\\n</think>\\n\\n' -}}
        {%- endif -%}
        {{- said -}}
        {%- for call in m.tool_calls or [] -%}
            {%- if said or not loop.first -%}{{- '\\n' -}}{%- endif -%}
            {%- if call.function -%}{%- set call = call.function -%}{%- endif -%}
            {{- '<tool_call>\\n{"name": "' + call.name + '", "arguments": ' -}}
            {{- call.arguments if call.arguments is string else call.arguments | tojson -}}
            {{- '}\\n</tool_call>' -}}
        {%- endfor -%}
        {{- stop -}}
    {%- elif m.role == 'tool' -%}
        {%- if loop.first or loop.previtem.role != 'tool' -%}{{- start + 'user' -}}{%- endif -%}
        {{- '\\n<result>\\n' + said + '\\n</result>' -}}
        {%- if loop.last or messages[loop.index0 + 1].role != 'tool' -%}{{- stop -}}{%- endif -%}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{- start + 'assistant\\n' -}}
    {%- if enable_thinking is defined and enable_thinking is false -%}{{- '<think>\\n\\n</think>\\n\\n' -}}{%- endif -%}
{%- endif -%}
"""

# As Llama 2's: the system's message within the first of the user.
LLAMA2 = """{% set rules = messages[0]['content'] if messages[0]['role'] == 'system' else none %}{% set talk = messages if rules is none else messages[1:] %}{% for m in talk %}{% if (loop.index0 % 2 == 0) != (m['role'] == 'user') %}{{ raise_exception('user and assistant take turns') }}{% endif %}{% if m['role'] == 'user' %}{% if loop.first and rules is not none %}{% set asked = '<<SYS>>\\n' + rules + '\\n<</SYS>>\\n\\n' + m['content'] %}{% else %}{% set asked = m['content'] %}{% endif %}{{ bos_token + '[INST] ' + asked.strip() + ' [/INST]' }}{% elif m['role'] == 'assistant' %}{{ ' ' + m['content'].strip() + ' ' + eos_token }}{% endif %}{% endfor %}"""

# As Llama 3's: headers, trimmed contents, a date, tools in the first message of the user.
LLAMA3 = """{{- bos_token }}
{%- if not day is defined %}
    {%- if strftime_now is defined %}
        {%- set day = strftime_now("%d %b %Y") %}
    {%- else %}
        {%- set day = "1 Jan 2024" %}
    {%- endif %}
{%- endif %}
{%- set callable = tools if tools is defined else none %}
{%- set rules = "" %}
{%- set rest = messages %}
{%- if messages[0]['role'] == 'system' %}
    {%- set rules = messages[0]['content'] | trim %}
    {%- set rest = messages[1:] %}
{%- endif %}

{#- who it is, and when #}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{%- if callable is not none %}
    {{- "Tools: yes\\n" }}
{%- endif %}
{{- "Today: " + day + "\\n\\n" + rules + "<|eot_id|>" }}

{#- what can be called, in front of the first question #}
{%- if callable is not none %}
    {%- if rest | length == 0 %}
        {{- raise_exception("there is no question to put the tools into") }}
    {%- endif %}
    {{- "<|start_header_id|>user<|end_header_id|>\\n\\n" -}}
    {{- "These can be called:\\n\\n" }}
    {%- for one in callable %}
        {{- one | tojson(indent=4) + "\\n\\n" }}
    {%- endfor %}
    {{- rest[0]['content'] | trim ~ "<|eot_id|>" }}
    {%- set rest = rest[1:] %}
{%- endif %}

{%- for m in rest %}
    {%- if m.role in ['tool', 'ipython'] %}
        {{- "<|start_header_id|>ipython<|end_header_id|>\\n\\n" }}
        {%- if m.content is mapping or m.content is iterable %}
            {{- m.content | tojson }}
        {%- else %}
            {{- m.content }}
        {%- endif %}
        {{- "<|eot_id|>" }}
    {%- elif 'tool_calls' in m %}
        {%- if m.tool_calls | length != 1 %}
            {{- raise_exception("one call at a time") }}
        {%- endif %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' -}}
        {{- '{"name": "' + m.tool_calls[0].function.name + '", "parameters": ' }}
        {{- m.tool_calls[0].function.arguments | tojson }}
        {{- "}<|eot_id|>" }}
    {%- else %}
        {{- '<|start_header_id|>' + m['role'] + '<|end_header_id|>\\n\\n' + m['content'] | trim + '<|eot_id|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
"""

# As Mistral's: the system's message and the tools go into the last of the user; turns are checked.
MISTRAL = """{%- set rules = messages[0]["content"] if messages[0]["role"] == "system" else none %}
{%- set talk = messages[1:] if rules is not none else messages %}
{%- set callable = tools if tools is defined else none %}
{%- set questions = talk | selectattr("role", "equalto", "user") | list %}
{%- set turn = namespace(n=0) %}
{%- for m in talk if m.role != "tool" and not (m.tool_calls is defined and m.tool_calls is not none) %}
    {%- if (m["role"] == "user") != (turn.n % 2 == 0) %}
        {{- raise_exception("user and assistant take turns, behind the system's message if there is one") }}
    {%- endif %}
    {%- set turn.n = turn.n + 1 %}
{%- endfor %}

{{- bos_token }}
{%- for m in talk %}
    {%- if m["role"] == "user" %}
        {%- if callable is not none and m == questions[-1] %}
            {{- "[AVAILABLE_TOOLS] [" }}
            {%- for one in callable %}
                {{- '{"type": "function", "function": {' }}
                {%- for key, value in one.function.items() if key != "return" %}
                    {{- '"' + key + '": ' }}
                    {%- if value is string %}
                        {{- '"' + value + '"' }}
                    {%- else %}
                        {{- value|tojson }}
                    {%- endif %}
                    {{- ", " if not loop.last }}
                {%- endfor %}
                {{- "}}" + ("]" if loop.last else ", ") }}
            {%- endfor %}
            {{- "[/AVAILABLE_TOOLS]" }}
        {%- endif %}
        {{- "[INST] " + (rules + "\\n\\n" if loop.last and rules is not none else "") + m["content"] + "[/INST]" }}
    {%- elif m["role"] == "assistant" %}
        {{- " " + m["content"]|trim + eos_token}}
    {%- else %}
        {{- raise_exception("there are user, assistant and, at first, system") }}
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
    "{{ \"it's a-b c_d\" | title }} {{ 'a\u00a0b c'.split() | join('/') }} {{ 1.0 % 0.1 }} {{ 1.0 // 0.1 }} {{ true is sameas 1 }} {{ true is odd }} {{ x is sequence }}",
    "{{ 'y' if messages | selectattr('role', 'equalto', 'x') else 'n' }} {{ (messages | map(attribute='role'))[0] is defined }} {{ [{'f': {'n': 'a'}}] | map(attribute='f.n') | join }}",
    "{% set d = {'items': 1, 'pop': 2} %}{{ d['items'] }} {{ d.items is callable }} {{ d.pop is defined }} {{ d['keys'] is defined }}{% set ns = namespace(items=3) %}{{ ns.items }}",
    "{% generation %}{% set a = 1 %}{{ a }}{% endgeneration %}{{ a is defined }}{% set t %}{% set b = 1 %}{{ b }}{% endset %}{{ t }}{{ b is defined }}",
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
