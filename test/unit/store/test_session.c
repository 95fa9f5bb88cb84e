/* The rendezvous store without sockets: what clients ask is answered as the protocol
 * says, who is missing is named, and bytes of any kind do no harm. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "store/native/session.h"

/* A client whose answers are kept. */
struct fake {
    struct zt_peer peer; /* first */
    struct zt_session *s;
    struct zt_buf got;
    bool dropped;
};

static void fake_send(struct zt_peer *p, const void *data, size_t bytes)
{
    assert_int_equal(zt_buf_put(&((struct fake *)p)->got, data, bytes), ZT_OK);
}

static void fake_drop(struct zt_peer *p)
{
    ((struct fake *)p)->dropped = true;
}

static struct zt_hub *hub;

static void come(struct fake *f)
{
    *f = (struct fake){.peer = {fake_send, fake_drop}};
    zt_buf_init(&f->got, 4u << 20);
    assert_int_equal(zt_session_open(hub, &f->peer, &f->s), ZT_OK);
}

static void go(struct fake *f)
{
    zt_session_close(f->s);
    zt_buf_release(&f->got);
}

static int set_up(void **state)
{
    (void)state;
    return zt_hub_open(5, "rank", &hub) != ZT_OK;
}

static int tear_down(void **state)
{
    (void)state;
    zt_hub_close(hub);
    return 0;
}

static zt_err ask(struct fake *f, const struct zt_store_request *r, double now)
{
    struct zt_buf out;
    zt_err rc;

    zt_buf_init(&out, ZT_STORE_MESSAGE + 4);
    assert_int_equal(zt_store_put_request(&out, r), ZT_OK);
    rc = zt_session_feed(f->s, zt_buf_head(&out), zt_buf_used(&out), now);
    zt_buf_release(&out);
    return rc;
}

static struct zt_span text(const char *s)
{
    return (struct zt_span){s, strlen(s)};
}

static bool silent(const struct fake *f)
{
    return zt_buf_used(&f->got) == 0;
}

/* The next answer has this status, and its body this text somewhere in it. */
static void expect(struct fake *f, zt_store_status status, const char *part)
{
    struct zt_span body = {0};
    char copy[2048];
    uint8_t kind = 99;
    size_t n = 0;

    assert_int_equal(zt_store_peek(&f->got, &kind, &body, &n), ZT_OK);
    snprintf(copy, sizeof(copy), "%.*s", (int)body.bytes, (const char *)body.data);
    if (kind != status || !strstr(copy, part))
        print_message("status %d: '%s', not %d '%s'\n", kind, copy, status, part);
    assert_int_equal(kind, status);
    assert_non_null(strstr(copy, part));
    zt_buf_drop(&f->got, n);
}

static void join(struct fake *f, uint32_t index, uint32_t count, const char *label)
{
    struct zt_store_request r = {
        .op = ZT_STORE_JOIN, .index = index, .count = count, .key = text(label)};

    assert_int_equal(ask(f, &r, 0), ZT_OK);
}

static zt_err barrier(struct fake *f, const char *name, uint32_t index, uint32_t count,
                      uint32_t timeout_ms, double now)
{
    struct zt_store_request r = {.op = ZT_STORE_BARRIER,
                                 .timeout_ms = timeout_ms,
                                 .index = index,
                                 .count = count,
                                 .key = text(name)};

    return ask(f, &r, now);
}

static void set(struct fake *f, const char *key, const char *value)
{
    struct zt_store_request r = {
        .op = ZT_STORE_SET, .key = text(key), .value = text(value)};

    assert_int_equal(ask(f, &r, 0), ZT_OK);
}

static void get(struct fake *f, const char *key, uint32_t timeout_ms, double now)
{
    struct zt_store_request r = {
        .op = ZT_STORE_GET, .key = text(key), .timeout_ms = timeout_ms};

    assert_int_equal(ask(f, &r, now), ZT_OK);
}

static void a_get_waits_for_a_set_and_only_for_its_own(void **state)
{
    struct fake a, b;

    (void)state;
    come(&a);
    come(&b);
    get(&a, "k", 0, 0);
    expect(&a, ZT_STORE_ABSENT, "\"k\" is not set");
    get(&a, "k", 1000, 0);
    assert_true(silent(&a));
    set(&b, "other", "x");
    expect(&b, ZT_STORE_OK, "");
    assert_true(silent(&a));
    set(&b, "k", "value");
    expect(&a, ZT_STORE_OK, "value");
    assert_true(zt_hub_next(hub) == 0);
    go(&a);
    go(&b);
}

static void a_wait_that_is_over_names_the_key_and_who_is_not_there(void **state)
{
    struct fake a, b;

    (void)state;
    come(&a);
    come(&b);
    join(&a, 0, 4, "node01 pid 10");
    join(&b, 2, 4, "node02 pid 20");
    expect(&a, ZT_STORE_OK, "");
    go(&b);
    get(&a, "address/1", 2000, 100);
    assert_true(zt_hub_next(hub) == 102);
    zt_hub_expire(hub, 101.9);
    assert_true(silent(&a));
    zt_hub_expire(hub, 102.0);
    expect(&a, ZT_STORE_TIMEOUT,
           "not there within 2.0 s: rank 1 (never connected), rank 2 (node02 pid 20, "
           "connection lost), rank 3 (never connected)");
    assert_true(zt_hub_next(hub) == 0);
    set(&a, "k", "v"); /* the session goes on */
    expect(&a, ZT_STORE_OK, "");
    go(&a);
}

static void a_barrier_lets_all_go_when_the_last_has_come_and_can_be_used_again(
    void **state)
{
    struct fake f[5];

    (void)state;
    for (uint32_t i = 0; i < 5; i++)
        come(&f[i]);
    for (int round = 0; round < 50; round++) {
        for (uint32_t i = 0; i < 5; i++) {
            for (uint32_t k = 0; k < 5; k++)
                assert_true(silent(&f[k]));
            assert_int_equal(barrier(&f[(i + 2) % 5], "b", (i + 2) % 5, 5, 1000, 0),
                             ZT_OK);
        }
        for (uint32_t i = 0; i < 5; i++)
            expect(&f[i], ZT_STORE_OK, "");
    }
    for (uint32_t i = 0; i < 5; i++)
        go(&f[i]);
}

static void a_failed_barrier_tells_everybody_in_it_the_same_missing_ranks(void **state)
{
    const char *want =
        "barrier \"init\": 2 of 5 have not come within 1.0 s: rank 3 (n3 pid "
        "3), rank 4 (never connected)";
    struct fake f[4];

    (void)state;
    for (uint32_t i = 0; i < 4; i++) {
        char label[16];

        snprintf(label, sizeof(label), "n%u pid %u", i, i);
        come(&f[i]);
        join(&f[i], i, 5, label);
        expect(&f[i], ZT_STORE_OK, "");
    }
    for (uint32_t i = 0; i < 3; i++) /* they come, and would give up, one after another */
        assert_int_equal(barrier(&f[i], "init", i, 5, 1000, 10 + i / 4.0), ZT_OK);
    assert_true(zt_hub_expire(hub, 11) == 0);
    for (uint32_t i = 0; i < 3; i++)
        expect(&f[i], ZT_STORE_TIMEOUT, want);
    for (uint32_t i = 0; i < 4; i++)
        go(&f[i]);
}

static void a_member_that_goes_leaves_its_barrier(void **state)
{
    struct fake a, b, c;

    (void)state;
    come(&a);
    come(&b);
    come(&c);
    assert_int_equal(barrier(&a, "x", 0, 2, 1000, 0), ZT_OK);
    go(&a);
    assert_int_equal(barrier(&b, "x", 1, 2, 1000, 0), ZT_OK);
    assert_true(silent(&b));
    assert_int_equal(barrier(&c, "x", 0, 2, 1000, 0), ZT_OK);
    expect(&b, ZT_STORE_OK, "");
    expect(&c, ZT_STORE_OK, "");
    go(&b);
    go(&c);
}

static void contradictions_are_told_and_harm_nobody_else(void **state)
{
    struct fake a, b, c;

    (void)state;
    come(&a);
    come(&b);
    come(&c);
    join(&a, 1, 4, "n1 pid 1");
    expect(&a, ZT_STORE_OK, "");
    join(&b, 1, 4, "n2 pid\n2");
    expect(&b, ZT_STORE_REFUSED, "rank 1 is here already (n1 pid 1)");
    join(&c, 2, 8, "n3 pid 3");
    expect(&c, ZT_STORE_REFUSED, "says the job has 8 ranks, others say 4");
    assert_int_equal(barrier(&a, "x", 1, 4, 1000, 0), ZT_OK);
    assert_int_equal(barrier(&b, "x", 1, 4, 1000, 0), ZT_OK);
    expect(&b, ZT_STORE_REFUSED, "rank 1 is in it already");
    assert_int_equal(barrier(&c, "x", 0, 3, 1000, 0), ZT_OK);
    expect(&c, ZT_STORE_REFUSED, "is for 3, others for 4");
    assert_true(silent(&a));
    assert_int_equal(ask(&a, &(struct zt_store_request){.op = ZT_STORE_DELETE}, 0),
                     ZT_E_FORMAT); /* a request while one is under way */
    go(&a);
    go(&b);
    go(&c);
}

static void a_restart_ends_the_old_generation_and_its_keys(void **state)
{
    struct fake a, b, c;

    (void)state;
    come(&a);
    come(&b);
    set(&a, "k", "old");
    join(&a, 0, 2, "n0");
    get(&b, "never", 100000, 0);
    expect(&a, ZT_STORE_OK, "");
    expect(&a, ZT_STORE_OK, "");
    zt_hub_advance(hub, 6);
    expect(&a, ZT_STORE_STALE, "went on to generation 6");
    expect(&b, ZT_STORE_STALE, "went on to generation 6");
    assert_true(a.dropped && b.dropped);
    come(&c);
    set(&a, "k", "too late"); /* not even when its bytes come after all */
    assert_true(silent(&a));
    get(&c, "k", 0, 0);
    expect(&c, ZT_STORE_ABSENT, "not set");
    join(&c, 0, 3, "n0 again"); /* the number of ranks may have changed, too */
    expect(&c, ZT_STORE_OK, "");
    go(&a);
    go(&b);
    go(&c);
}

static void compare_and_set_and_counters_and_lists_of_keys(void **state)
{
    struct zt_store_request r = {.op = ZT_STORE_CAS, .key = text("leader")};
    struct fake a, b;

    (void)state;
    come(&a);
    come(&b);
    r.value = text("7");
    assert_int_equal(ask(&a, &r, 0), ZT_OK);
    expect(&a, ZT_STORE_OK,
           "\1"
           "7");
    r.value = text("8");
    assert_int_equal(ask(&b, &r, 0), ZT_OK);
    assert_int_equal(zt_buf_head(&b.got)[5], 0); /* not stored: 7 stands */
    assert_int_equal(zt_buf_head(&b.got)[6], '7');
    zt_buf_drop(&b.got, zt_buf_used(&b.got));

    r = (struct zt_store_request){.op = ZT_STORE_ADD, .key = text("leader"), .delta = -9};
    assert_int_equal(ask(&a, &r, 0), ZT_OK);
    assert_true(zt_store_get_i64(zt_buf_head(&a.got) + 5) == -2);
    zt_buf_drop(&a.got, zt_buf_used(&a.got));

    r = (struct zt_store_request){.op = ZT_STORE_WAIT, .timeout_ms = 1000, .num_keys = 2};
    r.keys[0] = text("x");
    r.keys[1] = text("leader");
    assert_int_equal(ask(&a, &r, 0), ZT_OK);
    assert_true(silent(&a));
    set(&b, "x", "");
    expect(&a, ZT_STORE_OK, "");
    assert_int_equal(ask(&a, &r, 0), ZT_OK);
    expect(&a, ZT_STORE_OK, "");
    set(&a, "text", "no number");
    expect(&a, ZT_STORE_OK, "");
    r = (struct zt_store_request){.op = ZT_STORE_ADD, .key = text("text"), .delta = 1};
    assert_int_equal(ask(&a, &r, 0), ZT_OK);
    expect(&a, ZT_STORE_REFUSED, "no number");
    go(&a);
    go(&b);
}

/* Cut into pieces of every size, a conversation gives the same answers. */
static void requests_may_come_in_any_pieces(void **state)
{
    struct zt_buf all, whole;
    struct fake f;

    (void)state;
    zt_buf_init(&all, 1 << 20);
    zt_buf_init(&whole, 1 << 20);
    for (int i = 0; i < 20; i++) {
        struct zt_store_request r = {.op = i % 3 == 0   ? ZT_STORE_SET
                                           : i % 3 == 1 ? ZT_STORE_ADD
                                                        : ZT_STORE_DELETE,
                                     .key = text(i % 2 ? "n" : "m"),
                                     .value = text("12"),
                                     .delta = i};

        assert_int_equal(zt_store_put_request(&all, &r), ZT_OK);
    }
    for (size_t piece = zt_buf_used(&all); piece >= 1; piece--) {
        zt_hub_advance(hub, 10 + piece); /* the same, empty, store each time */
        come(&f);
        for (size_t at = 0; at < zt_buf_used(&all); at += piece) {
            size_t left = zt_buf_used(&all) - at;

            assert_int_equal(zt_session_feed(f.s, zt_buf_head(&all) + at,
                                             left < piece ? left : piece, 0),
                             ZT_OK);
        }
        assert_false(zt_session_is_partial(f.s));
        if (!zt_buf_used(&whole))
            assert_int_equal(zt_buf_put(&whole, zt_buf_head(&f.got), zt_buf_used(&f.got)),
                             ZT_OK);
        assert_int_equal(zt_buf_used(&f.got), zt_buf_used(&whole));
        assert_memory_equal(zt_buf_head(&f.got), zt_buf_head(&whole),
                            zt_buf_used(&whole));
        go(&f);
    }
    zt_buf_release(&all);
    zt_buf_release(&whole);
}

static void malformed_requests_end_the_session(void **state)
{
    static const uint8_t bad[][12] = {
        {0, 0, 0, 0},                                  /* no length */
        {0xff, 0xff, 0xff, 0xff},                      /* too long */
        {0, 0, 0, 1, 99},                              /* no such request */
        {0, 0, 0, 2, ZT_STORE_SET, 0},                 /* ends inside a key's length */
        {0, 0, 0, 4, ZT_STORE_DELETE, 0, 9, 'x'},      /* ends inside a key */
        {0, 0, 0, 4, ZT_STORE_DELETE, 0, 0, 'x'},      /* bytes too many */
        {0, 0, 0, 7, ZT_STORE_SET, 0, 0, 255, 0, 0, 0} /* a value without an end */
    };
    struct fake f;

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        come(&f);
        assert_int_equal(zt_session_feed(f.s, bad[i], sizeof(bad[i]), 0), ZT_E_FORMAT);
        go(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_get_waits_for_a_set_and_only_for_its_own,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            a_wait_that_is_over_names_the_key_and_who_is_not_there, set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            a_barrier_lets_all_go_when_the_last_has_come_and_can_be_used_again, set_up,
            tear_down),
        cmocka_unit_test_setup_teardown(
            a_failed_barrier_tells_everybody_in_it_the_same_missing_ranks, set_up,
            tear_down),
        cmocka_unit_test_setup_teardown(a_member_that_goes_leaves_its_barrier, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(contradictions_are_told_and_harm_nobody_else,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_restart_ends_the_old_generation_and_its_keys,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(compare_and_set_and_counters_and_lists_of_keys,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(requests_may_come_in_any_pieces, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(malformed_requests_end_the_session, set_up,
                                        tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
