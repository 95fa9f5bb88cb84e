/* Which network is chosen, from made-up nodes. */
#include "launcher/supervise/network.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NUM 3

/* Node i has these interfaces; "%d" becomes i + 1. */
struct iface {
    const char *name, *address;
    int bits, mbps;
    int us; /* round trip to it; -1: nobody gets there */
};

static json_t *here_of(const struct iface *ifs, int num, int i)
{
    json_t *list = json_array();

    for (int k = 0; k < num; k++) {
        char address[64], name[64];

        snprintf(address, sizeof(address), ifs[k].address, i + 1);
        snprintf(name, sizeof(name), ifs[k].name, i + 1);
        json_array_append_new(list, json_pack("{ss ss si si si}", "name", name, "address",
                                              address, "bits", ifs[k].bits, "port",
                                              1000 + k, "mbps", ifs[k].mbps));
    }
    return json_pack("{ss ss sb so}", "ask", "a", "answer", "b", "rdma", 0, "addresses",
                     list);
}

/* All nodes alike; cut: node 1 does not reach node 2. */
static struct zt_links_table table_of(const struct iface *ifs, int num, bool cut)
{
    static const char *const hosts[NUM] = {"a", "b", "c"};
    struct zt_links_table t;

    assert_int_equal(zt_links_table_init(&t, NUM, NULL), ZT_OK);
    for (int i = 0; i < NUM; i++) {
        json_t *here = here_of(ifs, num, i);

        t.node[i].host = hosts[i];
        assert_true(zt_links_table_here(&t, i, here));
        json_decref(here);
    }
    for (int i = 0; i < NUM; i++) {
        json_t *found = json_pack("{s:[]}", "reached");

        for (int to = 0; to < NUM; to++)
            for (int k = 0; k < num; k++)
                if (to != i && ifs[k].us >= 0 && !(cut && i == 1 && to == 2))
                    json_array_append_new(json_object_get(found, "reached"),
                                          json_pack("[iii]", to, k, ifs[k].us));
        assert_true(zt_links_table_found(&t, i, found));
        json_decref(found);
    }
    return t;
}

/* Choose, compare the sentence, release. NULL: nothing joins them. */
static void expect(struct zt_links_table *t, const char *text)
{
    struct zt_links_choice c;
    char got[256];

    assert_int_equal(zt_links_choose(t, &c, NULL), ZT_OK);
    if (text) {
        assert_non_null(c.at);
        zt_links_choice_text(t, &c, got, sizeof(got));
        assert_string_equal(got, text);
    } else {
        assert_null(c.at);
    }
    zt_links_choice_release(&c);
    zt_links_table_release(t);
}

static void test_the_network_that_all_reach_is_chosen(void **state)
{
    const struct iface ifs[] = {{"eth0", "10.1.0.%d", 16, 0, -1},
                                {"eth1", "10.2.3.%d", 20, 0, 300},
                                {"docker0", "172.17.0.1", 16, 0, -1}};
    struct zt_links_table t = table_of(ifs, 3, false);

    (void)state;
    expect(&t, "eth1 10.2.0.0/20 reaches all 3 nodes, rtt 0.3 ms");
}

static void test_a_faster_link_is_better_than_a_shorter_round_trip(void **state)
{
    const struct iface ifs[] = {{"eth0", "10.1.0.%d", 16, 1000, 100},
                                {"ib0", "10.2.0.%d", 16, 100000, 200}};
    struct zt_links_table t = table_of(ifs, 2, false);

    (void)state;
    expect(&t, "ib0 10.2.0.0/16 reaches all 3 nodes, rtt 0.2 ms");
}

static void test_without_speeds_the_round_trip_decides(void **state)
{
    const struct iface ifs[] = {{"eth0", "10.1.0.%d", 16, 0, 500},
                                {"ib0", "10.2.0.%d", 16, 100000, 200}};
    struct zt_links_table t = table_of(ifs, 2, false);

    (void)state;
    expect(&t, "ib0 10.2.0.0/16 reaches all 3 nodes, rtt 0.2 ms");
}

static void test_equals_go_by_order_and_ipv4_first(void **state)
{
    const struct iface ifs[] = {{"eth0", "fd00::%d", 64, 0, 100},
                                {"eth0", "10.1.0.%d", 16, 0, 110},
                                {"eth1", "10.2.0.%d", 16, 0, 90}};
    struct zt_links_table t = table_of(ifs, 3, false);

    (void)state;
    expect(&t, "eth0 10.1.0.0/16 reaches all 3 nodes, rtt 0.1 ms");
}

static void test_a_self_made_address_is_the_last_choice(void **state)
{
    const struct iface ifs[] = {{"usb0", "169.254.1.%d", 16, 0, 10},
                                {"eth0", "fd00::%d", 64, 0, 400}};
    struct zt_links_table t = table_of(ifs, 2, false);

    (void)state;
    expect(&t, "eth0 fd00::/64 reaches all 3 nodes, rtt 0.4 ms");
    t = table_of(ifs, 1, false);
    expect(&t, "usb0 169.254.0.0/16 reaches all 3 nodes, rtt 0.01 ms");
}

/* A subnet for each node, with routers between them. */
static void test_interfaces_of_one_name_in_several_subnets(void **state)
{
    const struct iface ifs[] = {{"eth0", "10.%d.0.1", 24, 0, 200},
                                {"eth1", "10.0.%d.1", 30, 0, -1}};
    struct zt_links_table t = table_of(ifs, 2, false);

    (void)state;
    expect(&t, "eth0 in several networks reaches all 3 nodes, rtt 0.2 ms");
}

static void test_one_subnet_under_several_names(void **state)
{
    const struct iface ifs[] = {{"lan%d", "10.0.0.%d", 24, 0, 200}};
    struct zt_links_table t = table_of(ifs, 1, false);
    struct zt_links_choice c;
    json_t *env;

    (void)state;
    assert_int_equal(zt_links_choose(&t, &c, NULL), ZT_OK);
    env = zt_links_choice_env(&t, &c, 2);
    assert_string_equal(json_string_value(json_object_get(env, "NCCL_SOCKET_IFNAME")),
                        "=lan3");
    assert_string_equal(json_string_value(json_object_get(env, "UCX_NET_DEVICES")),
                        "lan3");
    json_decref(env);
    t.node[0].rdma = true; /* UCX knows better devices there */
    env = zt_links_choice_env(&t, &c, 2);
    assert_null(json_object_get(env, "UCX_NET_DEVICES"));
    json_decref(env);
    zt_links_choice_release(&c);
    expect(&t, "interfaces of several names 10.0.0.0/24 reaches all 3 nodes, rtt 0.2 ms");
}

static void test_one_way_that_is_cut_is_named(void **state)
{
    const struct iface ifs[] = {{"eth0", "10.1.0.%d", 16, 0, 100},
                                {"eth1", "10.2.0.%d", 16, 0, 100}};
    struct zt_links_table t = table_of(ifs, 2, true);
    int pairs;
    char *text = zt_links_missing_text(&t, &pairs);

    (void)state;
    assert_int_equal(pairs, 1);
    assert_string_equal(text, "  b cannot reach c (10.1.0.3 10.2.0.3)\n");
    free(text);
    expect(&t, NULL);
}

static void test_forgotten_answers_do_not_count(void **state)
{
    const struct iface ifs[] = {{"eth0", "10.1.0.%d", 16, 0, 100}};
    struct zt_links_table t = table_of(ifs, 1, false);
    int pairs;
    char *text;

    (void)state;
    zt_links_table_clear(&t);
    text = zt_links_missing_text(&t, &pairs);
    assert_int_equal(pairs, NUM * (NUM - 1));
    free(text);
    expect(&t, NULL);
}

static void test_nonsense_of_a_node_is_refused(void **state)
{
    static const char *const heres[] = {
        "{}",
        "{\"ask\":\"a\",\"answer\":\"b\",\"addresses\":[{}]}",
        "{\"ask\":\"a\",\"answer\":\"b\",\"addresses\":[{\"name\":\"e\",\"address\":"
        "\"1.2.3\",\"port\":1,\"bits\":8}]}",
        "{\"ask\":\"a\",\"answer\":\"b\",\"addresses\":[{\"name\":\"e\",\"address\":"
        "\"1.2.3.4\",\"port\":0,\"bits\":8}]}",
        "{\"ask\":\"a\",\"answer\":\"b\",\"addresses\":[{\"name\":\"e\",\"address\":"
        "\"1.2.3.4\",\"port\":1,\"bits\":33}]}",
    };
    static const char *const founds[] = {
        "{}",
        "{\"reached\":[5]}",
        "{\"reached\":[[0,0,1]]}", /* itself */
        "{\"reached\":[[3,0,1]]}",
        "{\"reached\":[[1,1,1]]}",
        "{\"reached\":[[1,-1,1]]}",
        "{\"reached\":[[1,0,-1]]}",
    };
    const struct iface ifs[] = {{"eth0", "10.1.0.%d", 16, 0, 100}};
    struct zt_links_table t = table_of(ifs, 1, false);

    (void)state;
    for (size_t i = 0; i < sizeof(founds) / sizeof(*founds); i++) {
        json_t *o = json_loads(founds[i], 0, NULL);

        assert_non_null(o);
        assert_false(zt_links_table_found(&t, 0, o));
        json_decref(o);
    }
    for (size_t i = 0; i < sizeof(heres) / sizeof(*heres); i++) {
        json_t *o = json_loads(heres[i], 0, NULL);

        assert_non_null(o);
        assert_false(zt_links_table_here(&t, 0, o));
        json_decref(o);
    }
    zt_links_table_release(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_network_that_all_reach_is_chosen),
        cmocka_unit_test(test_a_faster_link_is_better_than_a_shorter_round_trip),
        cmocka_unit_test(test_without_speeds_the_round_trip_decides),
        cmocka_unit_test(test_equals_go_by_order_and_ipv4_first),
        cmocka_unit_test(test_a_self_made_address_is_the_last_choice),
        cmocka_unit_test(test_interfaces_of_one_name_in_several_subnets),
        cmocka_unit_test(test_one_subnet_under_several_names),
        cmocka_unit_test(test_one_way_that_is_cut_is_named),
        cmocka_unit_test(test_forgotten_answers_do_not_count),
        cmocka_unit_test(test_nonsense_of_a_node_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
