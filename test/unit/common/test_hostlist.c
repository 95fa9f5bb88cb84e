/* Slurm's host lists and count lists mean what Slurm means by them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/hostlist.h"

static void lists_expand_as_slurm_does(void **state)
{
    static const struct {
        const char *list, *names;
    } cases[] = {
        {"", ""},
        {"node1", "node1 "},
        {"n[1-3]", "n1 n2 n3 "},
        {"n[098-102]", "n098 n099 n100 n101 n102 "},
        {"n[9-011]", "n9 n10 n11 "},
        {"n[1-02]", "n1 n2 "},
        {"n[0-00]", "n0 "},
        {"n[8-11]", "n8 n9 n10 n11 "},
        {"n[08-11]", "n08 n09 n10 n11 "},
        {"n[001-003,7]", "n001 n002 n003 n7 "},
        {"rack[1-2]n[01-02]", "rack1n01 rack1n02 rack2n01 rack2n02 "},
        {"n[1-2][3-4]", "n13 n14 n23 n24 "},
        {"n[0-1]x[0-1]y[5]", "n0x0y5 n0x1y5 n1x0y5 n1x1y5 "},
        {"a[1-2]-ib0", "a1-ib0 a2-ib0 "},
        {"n[1-3].example", "n1.example n2.example n3.example "},
        {"n[1,1,2]", "n1 n1 n2 "},
        {"n[2,1]", "n2 n1 "},
        {"b1,a1", "b1 a1 "},
        {",n1", "n1 "},
        {"n1,,n2,", "n1 n2 "},
        {" n1 n2\tn3\nn4 ", "n1 n2 n3 n4 "},
        {"[1-3]", "1 2 3 "},
        {"n-[1-2],n_1,n1-3", "n-1 n-2 n_1 n1-3 "},
        {"10.0.0.[1-3]", "10.0.0.1 10.0.0.2 10.0.0.3 "},
        {"n[4294967295-4294967297]", "n4294967295 n4294967296 n4294967297 "},
        {"n[1-2],m[3,5-6]k", "n1 n2 m3k m5k m6k "},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct zt_fault fault = {0};
        struct zt_hostlist h;
        char all[1024] = "";

        if (zt_hostlist_expand(cases[i].list, &h, &fault))
            print_message("%s: %s\n", cases[i].list, fault.text);
        assert_int_equal(fault.code, ZT_OK);
        for (int k = 0; k < h.num; k++)
            snprintf(all + strlen(all), sizeof(all) - strlen(all), "%s ", h.name[k]);
        assert_string_equal(all, cases[i].names);
        zt_hostlist_release(&h);
    }
}

static void what_is_no_list_is_refused_with_its_place(void **state)
{
    static const char *const cases[] = {"n[]",
                                        "n[3-1]",
                                        "n[a-c]",
                                        "n[1 ,2]",
                                        "n[1-8/2]",
                                        "n[1-3:2]",
                                        "n[1-3",
                                        "n1-3]",
                                        "n[[1-2]]",
                                        "n[-1]",
                                        "n[+1]",
                                        "n[1,]",
                                        "n[,1]",
                                        "n[1--2]",
                                        "n[1-2-3]",
                                        "n[",
                                        "]",
                                        "n[12345678901234567890]",
                                        "n[1][1][1][1][1][1][1][1][1]"};
    struct zt_hostlist h;

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct zt_fault fault = {0};

        assert_int_equal(zt_hostlist_expand(cases[i], &h, &fault), ZT_E_USAGE);
        assert_non_null(strstr(fault.text, "at position "));
    }
}

static void a_list_too_large_is_refused_before_it_is_made(void **state)
{
    static const char *const cases[] = {
        "n[0-999999999]",
        "n[0-262144]",
        "n[0-9999]x[0-9999]",
        "n[1-1000][1-1000][1-1000][1-1000][1-1000][1-1000][1-1000][1-1000]",
        "n[0-99999],n[0-99999],n[0-99999]",
    };
    struct zt_hostlist h;
    char *name = calloc(1, 400);

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_int_equal(zt_hostlist_expand(cases[i], &h, NULL), ZT_E_LIMIT);
    memset(name, 'n', 254);
    memcpy(name + 254, "[1-9]", 6);
    assert_int_equal(zt_hostlist_expand(name, &h, NULL), ZT_OK);
    zt_hostlist_release(&h);
    memcpy(name + 254, "[1-10]", 7);
    assert_int_equal(zt_hostlist_expand(name, &h, NULL), ZT_E_LIMIT);
    free(name);
}

/* Ranges of all kinds against a plain count. */
static void random_ranges_hold_every_number_once(void **state)
{
    (void)state;
    srand(3);
    for (int i = 0; i < 500; i++) {
        int lo = rand() % 2000, n = rand() % 300, width = rand() % 6;
        char list[64], want[64];
        struct zt_hostlist h;

        snprintf(list, sizeof(list), "a[%0*d-%d]b", width, lo, lo + n);
        assert_int_equal(zt_hostlist_expand(list, &h, NULL), ZT_OK);
        assert_int_equal(h.num, n + 1);
        for (int k = 0; k <= n; k++) {
            snprintf(want, sizeof(want), "a%0*db", width, lo + k);
            assert_string_equal(h.name[k], want);
        }
        zt_hostlist_release(&h);
    }
}

static void counts_are_those_of_the_nodes(void **state)
{
    static const int want[] = {2, 2, 2, 1};
    static const char *const bad[] = {
        "",       "2(x3)",   "2(x3),1,1",      "2(x4),1", "x",
        "2(x3,1", "2(3),1",  "2(x0),1",        "2(x3),",  "2(x3),0",
        "-2",     "2(x3) 1", "99999999999(x4)"};
    int *count;

    (void)state;
    assert_int_equal(zt_counts_expand("2(x3),1", 4, &count, NULL), ZT_OK);
    assert_memory_equal(count, want, sizeof(want));
    free(count);
    assert_int_equal(zt_counts_expand("2,2(x2),1", 4, &count, NULL), ZT_OK);
    assert_memory_equal(count, want, sizeof(want));
    free(count);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(zt_counts_expand(bad[i], 4, &count, NULL), ZT_E_USAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_expand_as_slurm_does),
        cmocka_unit_test(what_is_no_list_is_refused_with_its_place),
        cmocka_unit_test(a_list_too_large_is_refused_before_it_is_made),
        cmocka_unit_test(random_ranges_hold_every_number_once),
        cmocka_unit_test(counts_are_those_of_the_nodes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
