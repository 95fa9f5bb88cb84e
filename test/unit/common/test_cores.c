/* Shares of cores on made-up machines, and on this one. */
#include "common/cores/cores.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BIG "package:2 numa:2 core:4 pu:2" /* 4 nodes of 4 cores of 2 threads */

static struct zt_cores machine(const char *name, const char *list)
{
    struct zt_cores c;
    struct zt_fault fault = {0};

    if (zt_cores_init_synthetic(&c, name, list, &fault))
        fail_msg("%s: %s", name, fault.text);
    return c;
}

/* The share as "0-3@0": processors, and the NUMA node if there is one. */
static const char *share_text(const struct zt_cores *c, int rank, int world)
{
    static char out[300];
    struct zt_core_share s;
    char list[256];

    zt_cores_share(c, rank, world, &s);
    assert_int_equal(s.memory, s.node);
    zt_cores_text(&s.mask, list, sizeof(list));
    if (s.node < 0)
        snprintf(out, sizeof(out), "%s%s", list, s.bind ? "" : " free");
    else
        snprintf(out, sizeof(out), "%s@%d", list, s.node);
    return out;
}

static int node_of(const struct zt_cores *c, int core)
{
    return c->core[core].node;
}

/* The first core from `at` on that is in the mask; only whole nodes may lie between. */
static int skip_nodes(const struct zt_cores *c, int at, const cpu_set_t *mask,
                      int *left_over)
{
    int from = at;
    cpu_set_t both;

    for (; at < c->num; at++) {
        CPU_ZERO(&both);
        if (mask)
            CPU_AND(&both, mask, &c->core[at].cpu);
        if (CPU_COUNT(&both))
            break;
    }
    if (at > from) {
        assert_true(from == 0 || node_of(c, from - 1) != node_of(c, from));
        assert_true(at == c->num || node_of(c, at - 1) != node_of(c, at));
    }
    *left_over += at - from;
    return at;
}

/* C1 to C4 of cores.h, from the masks alone. */
static void check_rules(const struct zt_cores *c, int world)
{
    int min = c->num, max = 0, crossing = 0, packs = 0, left_over = 0;
    int next = 0, least = c->num / world;

    for (int r = 0; r < world; r++) {
        struct zt_core_share s;
        int num = 0, first;

        zt_cores_share(c, r, world, &s);
        assert_true(s.bind);
        first = next = skip_nodes(c, next, &s.mask, &left_over);
        while (next < c->num) {
            cpu_set_t both;

            CPU_AND(&both, &s.mask, &c->core[next].cpu);
            if (!CPU_EQUAL(&both, &c->core[next].cpu))
                break;
            CPU_XOR(&s.mask, &s.mask, &both);
            next++;
            num++;
        }
        assert_int_equal(CPU_COUNT(&s.mask), 0); /* nothing but these */
        assert_int_equal(s.threads, num);
        assert_true(num >= least);
        crossing += node_of(c, first) != node_of(c, next - 1);
        min = num < min ? num : min;
        max = num > max ? num : max;
    }
    next = skip_nodes(c, next, NULL, &left_over);
    assert_int_equal(next, c->num);
    for (int i = 0; i < c->num;) { /* how many shares of `least` fit inside nodes */
        int n = 0;

        while (i + n < c->num && node_of(c, i + n) == node_of(c, i))
            n++;
        packs += n / least;
        i += n;
    }
    if (packs >= world) {
        assert_int_equal(crossing, 0);
    } else {
        assert_int_equal(left_over, 0);
        assert_true(max - min <= 1);
    }
}

static void test_every_number_of_ranks_keeps_the_rules(void **state)
{
    static const char *const machines[] = {
        BIG,
        "core:7 pu:1",
        "package:2 numa:1 core:5 pu:2",
        "numa:3 core:3 pu:4",
        "package:4 numa:1 core:16 pu:2",
    };

    (void)state;
    for (size_t i = 0; i < sizeof(machines) / sizeof(*machines); i++) {
        struct zt_cores c = machine(machines[i], NULL);

        for (int world = 1; world <= c.num; world++)
            check_rules(&c, world);
        zt_cores_release(&c);
    }
}

static void test_uneven_lists_keep_the_rules(void **state)
{
    unsigned seed = 5;

    (void)state;
    for (int round = 0; round < 200; round++) {
        char list[256] = "";
        struct zt_cores c;

        for (int cpu = 0; cpu < 32; cpu++) {
            seed = seed * 1103515245u + 12345u;
            if (seed >> 16 & 1)
                snprintf(list + strlen(list), sizeof(list) - strlen(list), "%s%d",
                         list[0] ? "," : "", cpu);
        }
        c = machine(BIG, list);
        for (int world = 1; world <= c.num; world++)
            check_rules(&c, world);
        zt_cores_release(&c);
    }
}

static void test_shares_stay_in_their_numa_node(void **state)
{
    struct zt_cores c = machine(BIG, NULL);

    (void)state;
    assert_int_equal(c.num, 16);
    assert_int_equal(c.num_nodes, 4);
    assert_string_equal(share_text(&c, 0, 1), "0-31");
    assert_string_equal(share_text(&c, 0, 2), "0-15");
    assert_string_equal(share_text(&c, 1, 4), "8-15@1");
    assert_string_equal(share_text(&c, 7, 8), "28-31@3");
    /* six: two nodes have two ranks each, two have one; nobody crosses */
    assert_string_equal(share_text(&c, 0, 6), "0-3@0");
    assert_string_equal(share_text(&c, 3, 6), "12-15@1");
    assert_string_equal(share_text(&c, 4, 6), "16-23@2");
    /* five: with one core less somebody would wait, so some do cross */
    assert_string_equal(share_text(&c, 0, 5), "0-5@0");
    assert_string_equal(share_text(&c, 1, 5), "6-11");
    assert_string_equal(share_text(&c, 0, 17), "0-31 free");
    zt_cores_release(&c);
}

static void test_a_list_is_obeyed(void **state)
{
    struct zt_cores c = machine(BIG, "2-5,8,24-27");
    struct zt_fault fault = {0};
    struct zt_cores none;

    (void)state;
    assert_int_equal(c.num, 5);
    assert_int_equal(c.num_nodes, 3);
    assert_string_equal(share_text(&c, 0, 5), "2-3@0");
    assert_string_equal(share_text(&c, 2, 5), "8@1"); /* one of its two threads */
    assert_string_equal(share_text(&c, 4, 5), "26-27@3");
    zt_cores_release(&c);
    assert_int_equal(zt_cores_init_synthetic(&none, BIG, "31-32", &fault), ZT_E_USAGE);
    assert_non_null(strstr(fault.text, "0-31"));
    assert_int_equal(zt_cores_init_synthetic(&none, BIG, "3-", &fault), ZT_E_USAGE);
    assert_int_equal(zt_cores_init_synthetic(&none, "cube:9", NULL, &fault), ZT_E_USAGE);
}

/* Numbers of one node need not be consecutive: 0, 2, 4, ... is common. */
static void test_interleaved_numbers_are_grouped_by_node(void **state)
{
    struct zt_cores c = machine("numa:2(indexes=0,1) core:4(indexes=0,2,4,6,1,3,5,7) "
                                "pu:1(indexes=0,2,4,6,1,3,5,7)",
                                NULL);

    (void)state;
    assert_int_equal(c.num_nodes, 2);
    assert_string_equal(share_text(&c, 0, 2), "0,2,4,6@0");
    assert_string_equal(share_text(&c, 1, 2), "1,3,5,7@1");
    zt_cores_release(&c);
}

static void test_this_machine_is_its_affinity_mask(void **state)
{
    struct zt_cores c;
    cpu_set_t mask, sum;

    (void)state;
    unsetenv("HWLOC_SYNTHETIC");
    assert_int_equal(sched_getaffinity(0, sizeof(mask), &mask), 0);
    assert_int_equal(zt_cores_init(&c, NULL, NULL), ZT_OK);
    CPU_ZERO(&sum);
    for (int i = 0; i < c.num; i++)
        CPU_OR(&sum, &sum, &c.core[i].cpu);
    assert_true(CPU_EQUAL(&sum, &mask));
    zt_cores_release(&c);
}

/* A machine that does not hold all of the mask is not this one. */
static void test_a_topology_that_does_not_fit_is_not_used(void **state)
{
    struct zt_cores c;
    cpu_set_t mask, sum;

    (void)state;
    assert_int_equal(sched_getaffinity(0, sizeof(mask), &mask), 0);
    if (CPU_COUNT(&mask) < 2)
        skip();
    setenv("HWLOC_SYNTHETIC", "numa:1 core:1 pu:1", 1);
    assert_int_equal(zt_cores_init(&c, NULL, NULL), ZT_OK);
    unsetenv("HWLOC_SYNTHETIC");
    CPU_ZERO(&sum);
    for (int i = 0; i < c.num; i++)
        CPU_OR(&sum, &sum, &c.core[i].cpu);
    assert_true(CPU_EQUAL(&sum, &mask));
    assert_int_equal(c.num_nodes, 1);
    zt_cores_release(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_number_of_ranks_keeps_the_rules),
        cmocka_unit_test(test_uneven_lists_keep_the_rules),
        cmocka_unit_test(test_shares_stay_in_their_numa_node),
        cmocka_unit_test(test_a_list_is_obeyed),
        cmocka_unit_test(test_interleaved_numbers_are_grouped_by_node),
        cmocka_unit_test(test_this_machine_is_its_affinity_mask),
        cmocka_unit_test(test_a_topology_that_does_not_fit_is_not_used),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
