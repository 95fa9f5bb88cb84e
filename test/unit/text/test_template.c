/*
 * Chat templates: what they make of a conversation, as Jinja does (test/peers compares many more
 * with transformers itself), what is refused and where, and that no damaged one does harm.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "worker/template/template.h"

static const char conversation[] =
    "{\"messages\": [{\"role\": \"system\", \"content\": \" Be kind. \"}, {\"role\": "
    "\"user\", "
    "\"content\": \"Hi\\n\"}, {\"role\": \"assistant\", \"content\": \"\\u00a0Hello "
    "\\u00e9\"}], "
    "\"bos_token\": \"<s>\", \"eos_token\": \"</s>\", \"add_generation_prompt\": false}";

/* What the template makes, to be freed; NULL: refused, `fault` says why. */
static char *render_spans(const char *text, size_t n, struct zt_buf *spans,
                          struct zt_fault *fault)
{
    json_t *values = json_loads(conversation, 0, NULL);
    struct zt_template *t = NULL;
    struct zt_buf out;
    char *made = NULL;

    assert_non_null(values);
    *fault = (struct zt_fault){ZT_OK, ""};
    zt_buf_init(&out, 1 << 24);
    if (zt_template_parse("chat", text, n, &t, fault) == ZT_OK &&
        zt_template_render(t, values, &out, spans, fault) == ZT_OK) {
        made = calloc(1, zt_buf_used(&out) + 1);
        assert_non_null(made);
        if (zt_buf_used(&out))
            memcpy(made, zt_buf_head(&out), zt_buf_used(&out));
    }
    zt_buf_release(&out);
    zt_template_close(t);
    json_decref(values);
    return made;
}

static char *render(const char *text, size_t n, struct zt_fault *fault)
{
    return render_spans(text, n, NULL, fault);
}

static void assert_renders(const char *text, const char *wanted)
{
    struct zt_fault fault;
    char *made = render(text, strlen(text), &fault);

    if (!made)
        fail_msg("%s: %s", text, fault.text);
    assert_string_equal(made, wanted);
    free(made);
}

static void test_conversations_become_text(void **state)
{
    (void)state;
    assert_renders(
        "{% for m in messages %}<|{{ m['role'] }}|>{{ m.content | trim }}{% endfor %}",
        "<|system|>Be kind.<|user|>Hi<|assistant|>Hello \xc3\xa9");
    assert_renders(
        "{%- for m in messages[1:] %}\n    {%- if m.role == 'user' %}\n"
        "{{- bos_token + '[INST] ' + m.content.strip() + ' [/INST]' }}\n"
        "    {%- else %}\n{{- ' ' ~ m.content | trim ~ eos_token }}\n    {%- endif %}\n"
        "{%- endfor %}\n",
        "<s>[INST] Hi [/INST] Hello \xc3\xa9</s>");
    assert_renders(
        "{% set ns = namespace(n=0) %}{% for m in messages if m.role != 'system' %}"
        "{% set ns.n = ns.n + loop.index %}{% endfor %}{{ ns.n }}",
        "3");
}

static void test_what_is_generated_is_told(void **state)
{
    static const char text[] =
        "{% for m in messages %}{{ m.role }}:{% generation %}{{ m.content | trim }}"
        "{% endgeneration %};{% endfor %}"
        "{% set kept %}{% generation %}x{% endgeneration %}{% endset %}{{ kept }}";
    struct zt_template_span *s;
    struct zt_fault fault;
    struct zt_buf spans;
    char *made;

    (void)state;
    zt_buf_init(&spans, 1 << 12);
    made = render_spans(text, strlen(text), &spans, &fault);
    assert_non_null(made);
    assert_string_equal(made, "system:Be kind.;user:Hi;assistant:Hello \xc3\xa9;x");
    assert_int_equal(zt_buf_used(&spans), 3 * sizeof(*s));
    s = (struct zt_template_span *)(void *)(spans.data + spans.off);
    assert_int_equal(s[1].from, strlen("system:Be kind.;user:"));
    assert_int_equal(s[1].to - s[1].from, strlen("Hi"));
    assert_int_equal(s[2].to, strlen(made) - strlen(";x"));
    zt_buf_release(&spans);
    free(made);
}

static void test_blanks_are_stripped_as_transformers_does(void **state)
{
    (void)state;
    assert_renders("a\n  {% if true %}\nb\n  {% endif %}\nc\n", "a\nb\nc");
    assert_renders("a\n  {{ 'x' }}\n", "a\n  x");
    assert_renders("a  {%- if true -%}  b  {%- endif %}\n c", "ab c");
    assert_renders("a\n {%+ if true %}b{% endif +%}\nc", "a\n b\nc");
    assert_renders("{# gone #}\nx {#- gone -#} y\r\nz\n", "xy\nz");
}

static void test_expressions_are_pythons(void **state)
{
    (void)state;
    assert_renders(
        "{{ -7 // 2 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 2 ** 10 }} {{ 1e3 }} {{ 1/3 }}",
        "-4 2 3.5 1024 1000.0 0.3333333333333333");
    assert_renders("{{ 'abc'[::-1] }} {{ 'a,b,c'.split(',', 1) | tojson }} {{ ' a b "
                   "'.split() | length }}",
                   "cba [\"a\", \"b,c\"] 2");
    assert_renders("{{ nothing }}{{ nothing is defined }} {{ none }} {{ '' or 'x' }} {{ "
                   "1 < 2 < 3 }}",
                   "False None x True");
    assert_renders(
        "{{ {'a': [1, none, 'q\"']} | tojson }}{{ {'a': {}} | tojson(indent=2) }}",
        "{\"a\": [1, null, \"q\\\"\"]}{\n  \"a\": {}\n}");
    assert_renders("{% for i in range(9) %}{% if i % 2 %}{% continue %}{% endif %}"
                   "{% if i > 5 %}{% break %}{% endif %}{{ i }}{{ ',' if not loop.last "
                   "}}{% endfor %}",
                   "0,2,4,");
}

static void test_arguments_of_filters_count(void **state)
{
    (void)state;
    assert_renders(
        "{{ 'aaa' | replace('a', 'b', 2) }} {{ 'aaa' | replace('a', 'b') }} {{ "
        "'aaa'.replace('a', 'b', 1) }} {{ 'aaa' | replace('a', 'b', count=1) "
        "}}",
        "bba bbb baa baa");
    assert_renders("{{ '12' | int }} {{ ' 7 ' | int }} {{ '12abc' | int }} {{ 'x' | "
                   "int(5) }} {{ '3.9' | int }} {{ '0x10' | int(default=3) }} {{ -2.5 | "
                   "int }} {{ true | int }} {{ none | int }}",
                   "12 7 0 5 3 3 -2 1 0");
    assert_renders("{% for i in [1, 2] %}{{ loop.depth }}{{ loop.depth0 }}{% for j in "
                   "[3] %}{{ loop.depth }}{% endfor %}{% endfor %}",
                   "101101");
    assert_renders("{{ 9223372036854775807 }} {{ 'a b c'.split(sep=' ', maxsplit=1) | "
                   "length }}",
                   "9223372036854775807 2");
}

static void assert_refused(const char *text, const char *why)
{
    struct zt_fault fault;
    char *made = render(text, strlen(text), &fault);

    if (made)
        fail_msg("%s becomes %s", text, made);
    if (!strstr(fault.text, why))
        fail_msg("%s: %s", text, fault.text);
}

/* What Jinja has in other places than one may think. */
static void test_corners_are_jinjas(void **state)
{
    (void)state;
    assert_renders("{{ \"it's a-b c_d\" | title }} {{ \"it's\".title() }}",
                   "It's A-B C_d It'S");
    assert_renders(
        "{{ 'a\u00a0b c'.split() | join('/') }} {{ 1.0 % 0.1 }} {{ 1.0 // 0.1 }} "
        "{{ -7.5 // 2 }} {{ -7.5 % 2 }}",
        "a/b/c 0.09999999999999995 9.0 -4.0 0.5");
    /* what a filter makes is true and has no items before it is a list */
    assert_renders(
        "{{ 'yes' if messages | selectattr('role', 'equalto', 'x') else 'no' }} "
        "{{ 'yes' if messages | selectattr('role', 'equalto', 'x') | list else "
        "'no' }} {{ (messages | map(attribute='role'))[0] is defined }} {{ "
        "'user' in messages | map(attribute='role') }}",
        "yes no False True");
    assert_refused(
        "{% set roles = messages | map(attribute='role') %}\n{{ roles | join }}"
        "{{ roles | join }}",
        "chat:2: what a filter makes is gone through twice");
    assert_renders("{{ [{'f': {'name': 'a'}}, {'f': {'name': 'b'}}] | "
                   "map(attribute='f.name') | join(',') }} {{ [{'f': {'n': 1}}, {'f': "
                   "{'n': 2}}] | selectattr('f.n', 'equalto', 2) | list | length }}",
                   "a,b 1");
    /* a method comes before an item, and an item before a method in brackets */
    assert_renders("{% set d = {'items': 1, 'pop': 2} %}{{ d['items'] }} {{ d.items is "
                   "callable }} {{ d.pop is defined }} {{ d['keys'] is defined }} {{ "
                   "d['x'] is defined }}{% set ns = namespace(items=3) %} {{ ns.items }}",
                   "1 True False True False 3");
    assert_renders(
        "{% generation %}{% set a = 1 %}{{ a }}{% endgeneration %}{{ a is "
        "defined }}{% set t %}{% set b = 1 %}{{ b }}{% endset %}{{ t }}{{ b is "
        "defined }}",
        "1False1False");
    assert_renders(
        "{{ true is sameas 1 }} {{ none is sameas none }} {{ true is odd }} {{ "
        "x is sequence }} {{ x == 'undefined' }} {{ 'y' if 0 | safe }}",
        "False True True True False y");
    assert_refused("{{ 'a' is odd }}", "chat:1: 'is odd' of text");
    assert_refused("{{ messages | tojson(2) }}", "tojson takes indent= by its name");
    assert_refused("{{ messages | tojson(indent='x') }}", "tojson: indent is none, or");
}

static void test_what_is_not_known_is_named_with_its_line(void **state)
{
    (void)state;
    assert_refused("\n\n{% macro f() %}{% endmacro %}",
                   "chat:3: {% macro %} is not in the subset");
    assert_refused(
        "{% generation %}{% generation %}{% endgeneration %}{% endgeneration %}",
        "chat:1: {% generation %} is within another one");
    assert_refused("{{ messages | dictsort }}",
                   "chat:1: the filter 'dictsort' is not in the subset");
    assert_refused("{{ 1 is even_more }}",
                   "chat:1: the test 'is even_more' is not in the subset");
    assert_refused("{{ 9223372036854775808 }}",
                   "chat:1: the number 9223372036854775808... is too large");
    assert_refused("{{ '9223372036854775808' | int }}",
                   "chat:1: an integer is too large");
    assert_refused("{{ 'a' | upper(1) }}",
                   "chat:1: upper() with 1 arguments is not in the subset");
    assert_refused("{{ messages | map(attribute='role', default='x') | list }}",
                   "chat:1: map(default=) is not in the subset");
    assert_refused("{{ '10' | int(0, 2) }}",
                   "chat:1: int() with 2 arguments is not in the subset");
    assert_refused("{{ 'abc'.startswith('b', 1) }}",
                   "chat:1: startswith() with 2 arguments is not in the subset");
    assert_refused("{{ 'a'.zfill(3) }}", "chat:1: text.zfill() is not in the subset");
    assert_refused("\n{{ cycler('a') }}", "chat:2: cycler() is not in the subset");
    assert_refused(
        "x\n{{ raise_exception('roles must alternate') }}",
        "chat:2: the template refuses this conversation: roles must alternate");
    assert_refused("{% if true %}\n\n", "and {% endif %} is missing");
    assert_refused("{{ nothing.more }}", "chat:1: 'more' of what is not defined");
    assert_refused("{{ 'a' + 1 }}", "chat:1: '+' of text and a number");
    assert_refused("{{ 'open }}", "chat:1: a string has no end");
    assert_refused("{{ messages }}", "chat:1: a list is printed: | tojson does that");
}

static void test_no_template_runs_for_ever(void **state)
{
    char deep[4096];

    (void)state;
    assert_refused(
        "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}",
        "values of more than 256 MiB");
    assert_refused(
        "{% for a in range(1, 90000) %}{% if a and a and a and a and a and a and a and a "
        "and a and a and a and a and a and a and a and a and a %}{% endif %}{% endfor %}",
        "steps");
    assert_refused("{{ 'x' * 268435457 }}", "longer than 256 MiB");
    assert_refused("{% set ns = namespace() %}{% set ns.x = [ns] %}",
                   "becomes a part of itself");
    memset(deep, '(', sizeof(deep));
    memcpy(deep, "{{", 2);
    deep[sizeof(deep) - 1] = 0;
    assert_refused(deep, "more than 64 levels");
}

static void test_damaged_templates_do_no_harm(void **state)
{
    static const char good[] =
        "{%- set ns = namespace(found=false, n=messages|length - 1) %}\n"
        "{%- for message in messages[::-1] if message.role != 'x' %}\n"
        "    {%- set i = (messages|length - 1) - loop.index0 %}\n"
        "    {%- if not ns.found and message['content'] is string %}{% set ns.found = "
        "true %}\n"
        "    {%- elif i > 2 or i in [1, 2] %}{{- {'a': i, 'b': [1.5, none]} | tojson "
        "-}}{% endif %}\n"
        "    {{- '<|' ~ message.role.upper() + '|>' + message.content.split(' "
        "')[-1].strip('\\n') }}\n"
        "{%- endfor %}{# done #}{{ eos_token if add_generation_prompt else bos_token * 2 "
        "}}\n";
    unsigned seed = (unsigned)time(NULL);
    char text[sizeof(good)];
    int kept = 0;

    (void)state;
    print_message("seed %u\n", seed);
    for (int i = 0; i < 2000; i++) {
        struct zt_fault fault;
        size_t n = sizeof(good) - 1;
        char *made;

        memcpy(text, good, sizeof(good));
        for (int k = 0; k < 1 + i % 3; k++) {
            size_t at = (size_t)rand_r(&seed) % n;

            if (i % 4 == 0)
                n = at + 1;
            else if (i % 4 == 1)
                text[at] = good[(size_t)rand_r(&seed) % (sizeof(good) - 1)];
            else
                text[at] = (char)(rand_r(&seed) & (i % 4 == 2 ? 127 : 255));
        }
        made = render(text, n, &fault);
        assert_true(made || strncmp(fault.text, "chat:", 5) == 0);
        kept += made != NULL;
        free(made);
    }
    assert_true(kept > 0 && kept < 2000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_conversations_become_text),
        cmocka_unit_test(test_what_is_generated_is_told),
        cmocka_unit_test(test_blanks_are_stripped_as_transformers_does),
        cmocka_unit_test(test_expressions_are_pythons),
        cmocka_unit_test(test_arguments_of_filters_count),
        cmocka_unit_test(test_corners_are_jinjas),
        cmocka_unit_test(test_what_is_not_known_is_named_with_its_line),
        cmocka_unit_test(test_no_template_runs_for_ever),
        cmocka_unit_test(test_damaged_templates_do_no_harm),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
