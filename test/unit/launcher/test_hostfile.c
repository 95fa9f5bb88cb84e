/* Hostfile and filters: the grammar, and every row of what a filter should do. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "launcher/plan/hostfile.h"

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
            ZT_E_USAGE);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(filters_do_what_they_say),
        cmocka_unit_test(comments_blanks_and_order_are_respected),
        cmocka_unit_test(bad_lines_are_named_by_number),
        cmocka_unit_test(limits_take_the_first_and_refuse_more_than_there_is),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
