/* Several nodes in one process test the links between them. */
#include "worker/daemon/links.h"

#include "common/message/frame.h"
#include "common/json/line.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define NUM 4

struct rig {
    uv_loop_t loop;
    struct zt_links *links[NUM];
    json_t *here[NUM], *found[NUM];
    int waiting;
};

struct answer {
    struct rig *rig;
    int node;
};

static void open_rig(struct rig *r)
{
    struct zt_fault fault = {0};

    memset(r, 0, sizeof(*r));
    assert_int_equal(uv_loop_init(&r->loop), 0);
    for (int i = 0; i < NUM; i++) {
        if (zt_links_open(&r->loop, &r->links[i], &fault))
            fail_msg("%s", fault.text);
        r->here[i] = zt_links_describe(r->links[i]);
        assert_non_null(r->here[i]);
    }
}

static void close_rig(struct rig *r)
{
    for (int i = 0; i < NUM; i++) {
        zt_links_close(r->links[i]);
        json_decref(r->here[i]);
        json_decref(r->found[i]);
    }
    uv_run(&r->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&r->loop), 0); /* no handle is left */
}

/* The node as LINKS_TRY has it: its words and its loopback addresses. */
static json_t *node_of(const json_t *here)
{
    json_t *o = json_object(), *at = json_array(), *a;
    size_t i;

    json_object_set(o, "ask", json_object_get(here, "ask"));
    json_object_set(o, "answer", json_object_get(here, "answer"));
    json_array_foreach(json_object_get(here, "addresses"), i, a)
    {
        if (json_is_true(json_object_get(a, "loopback")))
            json_array_append_new(at, json_pack("[O,O]", json_object_get(a, "address"),
                                                json_object_get(a, "port")));
    }
    json_object_set_new(o, "at", at);
    return o;
}

static json_t *order_of(const struct rig *r, int settle_ms, int timeout_ms)
{
    json_t *nodes = json_array();

    for (int i = 0; i < NUM; i++)
        json_array_append_new(nodes, node_of(r->here[i]));
    return json_pack("{s:i,s:i,s:i,s:o}", "round", 7, "settle_ms", settle_ms,
                     "timeout_ms", timeout_ms, "nodes", nodes);
}

static void on_found(void *ctx, json_t *found)
{
    struct answer *a = ctx;

    assert_null(a->rig->found[a->node]);
    a->rig->found[a->node] = found;
    if (--a->rig->waiting == 0)
        uv_stop(&a->rig->loop);
}

static zt_err try(struct rig *r, int node, const json_t *order, struct answer *a)
{
    struct zt_buf body;
    struct zt_fault fault = {0};
    zt_err rc;

    *a = (struct answer){r, node};
    zt_buf_init(&body, 1 << 20);
    assert_int_equal(zt_buf_put_u32(&body, (uint32_t)node), ZT_OK);
    assert_int_equal(zt_json_put(&body, order), ZT_OK);
    rc = zt_links_try(r->links[node], zt_buf_head(&body), zt_buf_used(&body), on_found, a,
                      &fault);
    zt_buf_release(&body);
    return rc;
}

/* Takes the order. */
static void try_all(struct rig *r, json_t *order)
{
    struct answer answers[NUM];

    r->waiting = NUM;
    for (int i = 0; i < NUM; i++)
        assert_int_equal(try(r, i, order, &answers[i]), ZT_OK);
    uv_run(&r->loop, UV_RUN_DEFAULT);
    assert_int_equal(r->waiting, 0);
    json_decref(order);
}

/* How many addresses of `to` were reached; every entry has a round trip. */
static int reached(const json_t *found, int to)
{
    int num = 0;
    json_t *v;
    size_t i;

    json_array_foreach(json_object_get(found, "reached"), i, v)
    {
        assert_true(json_integer_value(json_array_get(v, 2)) >= 0);
        num += json_integer_value(json_array_get(v, 0)) == to;
    }
    return num;
}

static void test_every_node_reaches_every_address_of_the_others(void **state)
{
    struct rig r;

    (void)state;
    open_rig(&r);
    try_all(&r, order_of(&r, 5000, 5000));
    for (int i = 0; i < NUM; i++) {
        assert_int_equal(zt_json_get_int(r.found[i], "round", 0), 7);
        for (int k = 0; k < NUM; k++) {
            json_t *node = node_of(r.here[k]);
            int num = (int)json_array_size(json_object_get(node, "at"));

            assert_true(num > 0);
            assert_int_equal(reached(r.found[i], k), i == k ? 0 : num);
            json_decref(node);
        }
    }
    close_rig(&r);
}

/* A port that accepts, and one that even answers, but not with the word. */
static void test_a_port_of_a_stranger_is_not_reached(void **state)
{
    struct rig r;
    json_t *order, *nodes;

    (void)state;
    open_rig(&r);
    order = order_of(&r, 100, 1000);
    nodes = json_object_get(order, "nodes");
    /* node 1's address leads to node 2; node 3's answer is not what it says */
    json_object_set(json_array_get(nodes, 1), "at",
                    json_object_get(json_array_get(nodes, 2), "at"));
    json_object_set_new(json_array_get(nodes, 3), "answer",
                        json_string("0123456789abcdef0123456789abcdef"));
    try_all(&r, order);
    for (int i = 0; i < NUM; i++) {
        assert_int_equal(reached(r.found[i], 1), 0);
        assert_int_equal(reached(r.found[i], 3), 0);
        assert_int_equal(reached(r.found[i], 2) > 0, i != 2);
    }
    close_rig(&r);
}

/* A listener that takes connections and says nothing costs the time limit, no more. */
static void test_a_silent_port_is_given_up(void **state)
{
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof(a);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct rig r;
    json_t *order, *node;

    (void)state;
    assert_int_equal(bind(fd, (struct sockaddr *)&a, n), 0);
    assert_int_equal(listen(fd, 16), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &n), 0);
    open_rig(&r);
    order = order_of(&r, 50, 300);
    node = json_array_get(json_object_get(order, "nodes"), 0);
    json_object_set_new(node, "at", json_pack("[[s,i]]", "127.0.0.1", ntohs(a.sin_port)));
    try_all(&r, order);
    assert_int_equal(reached(r.found[1], 0), 0);
    assert_true(reached(r.found[1], 2) > 0);
    /* all others were there for node 0, which need not visit itself */
    assert_true(reached(r.found[0], 1) > 0);
    close_rig(&r);
    close(fd);
}

/* Tries that are on their way when the node closes, or gets another order. */
static void test_a_new_order_replaces_the_old_one(void **state)
{
    struct answer first, second;
    struct rig r;
    json_t *order;

    (void)state;
    open_rig(&r);
    order = order_of(&r, 50, 1000);
    r.waiting = 1;
    assert_int_equal(try(&r, 0, order, &first), ZT_OK);
    uv_run(&r.loop, UV_RUN_ONCE);
    if (r.waiting) {
        assert_int_equal(try(&r, 0, order, &second), ZT_OK);
        uv_run(&r.loop, UV_RUN_DEFAULT);
    }
    assert_int_equal(r.waiting, 0);
    json_decref(r.found[0]);
    r.found[0] = NULL;
    assert_int_equal(try(&r, 0, order, &second), ZT_OK);
    uv_run(&r.loop, UV_RUN_NOWAIT);
    json_decref(order);
    close_rig(&r); /* in the middle of it */
}

static void test_a_malformed_order_is_refused(void **state)
{
    static const char *const bodies[] = {
        "",
        "{}",
        "{\"nodes\":[]}",
        "{\"nodes\":[{},{}]}",
        "{\"nodes\":[{\"ask\":\"a\",\"answer\":\"b\",\"at\":[]}]}",
    };
    struct answer a;
    struct rig r;
    json_t *order, *at;

    (void)state;
    open_rig(&r);
    for (size_t i = 0; i < sizeof(bodies) / sizeof(*bodies); i++) {
        char body[256] = {0};

        memcpy(body + 4, bodies[i], strlen(bodies[i]));
        assert_int_equal(
            zt_links_try(r.links[0], body, 4 + strlen(bodies[i]), on_found, &a, NULL),
            ZT_E_FORMAT);
    }
    order = order_of(&r, 50, 1000);
    at = json_object_get(json_array_get(json_object_get(order, "nodes"), 1), "at");
    json_array_set_new(at, 0, json_pack("[s,i]", "no.address", 5));
    assert_int_equal(try(&r, 0, order, &a), ZT_E_FORMAT);
    json_array_set_new(at, 0, json_pack("[s,i]", "127.0.0.1", 0));
    assert_int_equal(try(&r, 0, order, &a), ZT_E_FORMAT);
    json_decref(order);
    close_rig(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_node_reaches_every_address_of_the_others),
        cmocka_unit_test(test_a_port_of_a_stranger_is_not_reached),
        cmocka_unit_test(test_a_silent_port_is_given_up),
        cmocka_unit_test(test_a_new_order_replaces_the_old_one),
        cmocka_unit_test(test_a_malformed_order_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
