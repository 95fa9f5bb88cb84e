/* Hostfile and filters: the grammar, and every row of what a filter should do. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <regex.h>

#include "launcher/plan/hostfile.h"
#include "test/unit/mutations.h"

static const char two[] = "worker-0 slots=4\nworker-1 slots=4\n";

/* "worker-0:0,1 worker-1:3" */
static const char *show(const struct zt_hosts *h)
{
    static char text[512];
    size_t at = 0;

    text[0] = 0;
    for (int i = 0; i < h->num; i++) {
        at += (size_t)snprintf(text + at, sizeof(text) - at, "%s%s:", i ? " " : "",
                               h->host[i].name);
        for (int k = 0; k < h->host[i].num_slots; k++)
            at += (size_t)snprintf(text + at, sizeof(text) - at, "%s%d", k ? "," : "",
                                   h->host[i].slots[k]);
    }
    return text;
}

static void filters_do_what_they_say(void **state)
{
    static const struct {
        bool include;
        const char *spec, *want; /* NULL: an error */
    } cases[] = {
        {true, "worker-1:0,2", "worker-1:0,2"},
        {true, "worker-0@worker-1:0,2", "worker-0:0,1,2,3 worker-1:0,2"},
        {true, "worker-0", "worker-0:0,1,2,3"},
        {true, "worker-1:7", NULL},
        {true, "worker-1:2,0@worker-1:2@worker-0:3", "worker-0:3 worker-1:0,2"},
        {true, "worker-1@worker-0", "worker-0:0,1,2,3 worker-1:0,1,2,3"},
        {true, "worker-2", NULL},
        {true, "", NULL},
        {true, "worker-0@", NULL},
        {true, "worker-0:", NULL},
        {true, "worker-0:1,", NULL},
        {true, "worker-0:a", NULL},
        {true, "worker-0:-1", NULL},
        {true, "worker-0:99999999999999999999", NULL},
        {false, "worker-1:0", "worker-0:0,1,2,3 worker-1:1,2,3"},
        {false, "worker-0", "worker-1:0,1,2,3"},
        {false, "worker-0:0@worker-0", "worker-1:0,1,2,3"},
        {false, "worker-0:9", NULL},
        {false, "worker-0@worker-1", NULL},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct zt_fault fault = {0};
        struct zt_hosts h;
        zt_err rc;

        assert_int_equal(zt_hosts_parse(two, strlen(two), "f", &h, NULL), ZT_OK);
        rc = cases[i].include ? zt_hosts_include(&h, cases[i].spec, &fault)
                              : zt_hosts_exclude(&h, cases[i].spec, &fault);
        if (cases[i].want) {
            assert_int_equal(rc, ZT_OK);
            assert_string_equal(show(&h), cases[i].want);
        } else {
            assert_int_equal(rc, ZT_E_USAGE);
            assert_non_null(
                strstr(fault.text, cases[i].include ? "--include" : "--exclude"));
            assert_string_equal(show(&h), "worker-0:0,1,2,3 worker-1:0,1,2,3");
        }
        zt_hosts_release(&h);
    }
}

static void comments_blanks_and_order_are_respected(void **state)
{
    static const char text[] =
        "# a cluster\n\n  b slots=2  \r\n\t# more\na\tslots=1 # fast\n"
        "c slots=3";
    struct zt_hosts h;

    (void)state;
    assert_int_equal(zt_hosts_parse(text, strlen(text), "f", &h, NULL), ZT_OK);
    assert_string_equal(show(&h), "b:0,1 a:0 c:0,1,2");
    assert_int_equal(zt_hosts_total(&h), 6);
    zt_hosts_release(&h);
}

static void bad_lines_are_named_by_number(void **state)
{
    static const struct {
        const char *text, *where;
    } cases[] = {
        {"a slots=1\na slots=2\n", "hf:2"},
        {"a\n", "hf:1"},
        {"# x\n\na slots=0\n", "hf:3"},
        {"a slots=x\n", "hf:1"},
        {"a slots=4x\n", "hf:1"},
        {"a slots=99999\n", "hf:1"},
        {"slots=4\n", "hf:1"},
        {"a slots=2 b slots=2\n", "hf:1"},
        {"-oProxyCommand=x slots=1\n", "hf:1: '-oProxyCommand=x' is no host"},
        {"u@-x slots=1\n", "hf:1"},
        {"-l@h slots=1\n", "hf:1"},
        {"a;b slots=1\n", "hf:1"},
        {"a/b slots=1\n", "hf:1"},
        {"$(a) slots=1\n", "hf:1"},
        {"a\001 slots=1\n", "hf:1"},
        {"\xc3\xa4 slots=1\n", "hf:1"},
        {"# nothing\n", "hf: no host"},
        {"", "hf: no host"},
        {"a slots=", "hf:1"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct zt_fault fault = {0};
        struct zt_hosts h;

        assert_int_equal(
            zt_hosts_parse(cases[i].text, strlen(cases[i].text), "hf", &h, &fault),
            ZT_E_FORMAT);
        assert_non_null(strstr(fault.text, cases[i].where));
    }
}

static void limits_take_the_first_and_refuse_more_than_there_is(void **state)
{
    struct zt_hosts h;

    (void)state;
    assert_int_equal(zt_hosts_parse(two, strlen(two), "f", &h, NULL), ZT_OK);
    assert_int_equal(zt_hosts_limit(&h, 3, -1, NULL), ZT_E_USAGE);
    assert_int_equal(zt_hosts_limit(&h, -1, 5, NULL), ZT_E_USAGE);
    assert_int_equal(zt_hosts_limit(&h, -1, -1, NULL), ZT_OK);
    assert_int_equal(zt_hosts_total(&h), 8);
    assert_int_equal(zt_hosts_limit(&h, 1, 2, NULL), ZT_OK);
    assert_string_equal(show(&h), "worker-0:0,1");
    zt_hosts_release(&h);
}

/* ---- mutations: the grammar once more, as regular expressions ---- */

#define USER "^(([[:alnum:]._+$\\][[:alnum:]._+$\\-]*)@)?"
#define HOST "[[:alnum:]._:%][[:alnum:]._:%-]*"
#define ONE  "[[:alnum:]._%][[:alnum:]._%-]*" /* without a colon */
#define PORT "(:([0-9]+))?$"

static regex_t line_form, bracket_form, port_form, colons_form;

static void compile(regex_t *r, const char *text)
{
    assert_int_equal(regcomp(r, text, REG_EXTENDED), 0);
}

static void compile_all(void)
{
    compile(&line_form, "^[ \t\r]*([^ \t\r]+)[ \t\r]+slots=([0-9]+)"
                        "([ \t\r]+#.*|[ \t\r]*)$");
    compile(&bracket_form, USER "\\[(" HOST ")\\]" PORT);
    compile(&port_form, USER "(" ONE ")" PORT);
    compile(&colons_form, USER "(" HOST ")$");
}

static void free_all(void)
{
    regfree(&line_form);
    regfree(&bracket_form);
    regfree(&port_form);
    regfree(&colons_form);
}

struct expected {
    char name[8][96], user[8][96];
    long port[8], slots[8];
    int num;
};

static void cut(char out[96], const char *text, regmatch_t m)
{
    snprintf(out, 96, "%.*s", m.rm_so < 0 ? 0 : (int)(m.rm_eo - m.rm_so),
             m.rm_so < 0 ? "" : text + m.rm_so);
}

/* A line that is neither blank nor a comment; false: it is wrong. */
static bool expect_line(const char *line, struct expected *out)
{
    regmatch_t m[4], a[6];
    char where[96], slots[96], port[96];
    int i = out->num;

    if (regexec(&line_form, line, 4, m, 0))
        return false;
    cut(where, line, m[1]);
    cut(slots, line, m[2]);
    if (regexec(&bracket_form, where, 6, a, 0) && regexec(&port_form, where, 6, a, 0)) {
        const char *colon = strchr(where, ':');

        if (!colon || !strchr(colon + 1, ':') || regexec(&colons_form, where, 6, a, 0))
            return false;
        a[5].rm_so = -1;
    }
    cut(out->user[i], where, a[2]);
    cut(out->name[i], where, a[3]);
    cut(port, where, a[5]);
    out->port[i] = strtol(port, NULL, 10);
    out->slots[i] = strtol(slots, NULL, 10);
    if (out->slots[i] < 1 || out->slots[i] > ZT_MAX_SLOTS || out->port[i] > 65535 ||
        (port[0] && out->port[i] < 1))
        return false;
    for (int k = 0; k < i; k++)
        if (!strcmp(out->name[k], out->name[i]) &&
            (!out->port[k] || !out->port[i] || out->port[k] == out->port[i]))
            return false;
    out->num++;
    return true;
}

static bool expect_file(const char *text, struct expected *out)
{
    char copy[512], *at = NULL;

    out->num = 0;
    snprintf(copy, sizeof(copy), "%s", text);
    for (char *line = strtok_r(copy, "\n", &at); line; line = strtok_r(NULL, "\n", &at)) {
        const char *first = line + strspn(line, " \t\r");

        if (*first && *first != '#' && !expect_line(line, out))
            return false;
    }
    return out->num > 0;
}

static void same_hosts(const struct expected *e, const struct zt_hosts *h,
                       const char *text)
{
    bool same = h->num == e->num;

    for (int i = 0; same && i < e->num; i++) {
        const struct zt_host *o = &h->host[i];

        same = !strcmp(o->name, e->name[i]) && o->port == e->port[i] &&
               o->num_slots == e->slots[i] && !strcmp(o->user ? o->user : "", e->user[i]);
    }
    if (!same)
        fail_msg("\"%s\" is another file: %s", text, show(h));
}

static void a_zero_byte_is_refused_with_its_line(void **state)
{
    static const char in_name[] = "a slots=1\nb\0c slots=1\n",
                      behind[] = "a slots=1\nb slots=1\0c slots=2\n";
    struct zt_hosts h;
    struct zt_fault fault = {0};

    (void)state;
    assert_int_equal(zt_hosts_parse(in_name, sizeof(in_name) - 1, "hh", &h, &fault),
                     ZT_E_FORMAT);
    assert_non_null(strstr(fault.text, "hh:2: a zero byte"));
    assert_int_equal(zt_hosts_parse(behind, sizeof(behind) - 1, "hh", &h, &fault),
                     ZT_E_FORMAT);
    assert_non_null(strstr(fault.text, "hh:2: a zero byte"));
    assert_int_equal(zt_hosts_one("-", 1, &h, &fault), ZT_E_USAGE);
}

static void changed_bytes_mean_what_they_say_or_are_refused(void **state)
{
    static const char whole[] = "# hosts\n"
                                "worker-0 slots=4\n"
                                "me@worker-1:22 slots=2 # the small one\n"
                                "\t[fe80::1%eth0]:2222  slots=1\r\n"
                                "\n"
                                "fe80::2 slots=3\n"
                                "10.0.0.7 slots=8\n";
    int mutations = num_mutations(2000), accepted = 0;
    uint64_t x = mutation_seed();

    (void)state;
    compile_all();
    for (int i = 0; i < mutations; i++) {
        char text[sizeof(whole)];
        struct zt_fault fault = {0};
        struct expected e;
        struct zt_hosts h;
        bool good;

        memcpy(text, whole, sizeof(whole));
        change_bytes((uint8_t *)text, sizeof(whole) - 1,
                     " \t\n\r#=@:[]%._-+$\\/;0123456789slots", &x);
        good = expect_file(text, &e);
        if (zt_hosts_parse(text, strlen(text), "f", &h, &fault) == ZT_OK) {
            if (!good)
                fail_msg("\"%s\" is accepted: %s", text, show(&h));
            same_hosts(&e, &h, text);
            zt_hosts_release(&h);
            accepted++;
        } else if (good || fault.code != ZT_E_FORMAT) {
            fail_msg("\"%s\" is refused: %s", text, fault.text);
        }
    }
    free_all();
    print_message("%d mutations, %d accepted\n", mutations, accepted);
    assert_true(accepted > mutations / 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(filters_do_what_they_say),
        cmocka_unit_test(comments_blanks_and_order_are_respected),
        cmocka_unit_test(bad_lines_are_named_by_number),
        cmocka_unit_test(limits_take_the_first_and_refuse_more_than_there_is),
        cmocka_unit_test(a_zero_byte_is_refused_with_its_line),
        cmocka_unit_test(changed_bytes_mean_what_they_say_or_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
