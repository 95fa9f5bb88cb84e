/* What goes wrong between ranks is named, on every rank, and never hangs. */
#include "test/unit/comm/ranks.h"
#include "worker/comm/shm/abort.h"

#include <signal.h>

static int to_parent[2]; /* a byte from a rank: "I am where you want me" */

/* `rc` is ZT_E_PEER and the text holds `part`. */
static void check_peer(zt_err rc, const char *part)
{
    if (rc == ZT_E_PEER && strstr(fault.text, part))
        return;
    fprintf(stderr, "rank %d: wanted '%s', got %s: %s\n", my_rank, part, zt_err_name(rc),
            rc ? fault.text : "");
    _exit(1);
}

static void await_bytes(int num)
{
    char b;

    for (int i = 0; i < num; i++)
        assert_int_equal(read(to_parent[0], &b, 1), 1);
}

static void tell_parent(void)
{
    CHECK(write(to_parent[1], "x", 1) == 1);
}

static int open_pipe(void **state)
{
    (void)state;
    return pipe(to_parent);
}

static int close_pipe(void **state)
{
    (void)state;
    return close(to_parent[0]) | close(to_parent[1]);
}

/* ---------------------------------------------------------------- a rank dies */
#define BIG 3000000

static void until_killed(struct zt_comm *c)
{
    float *buf = calloc(BIG, sizeof(*buf));
    zt_err rc = ZT_OK;

    for (int i = 0; !rc; i++) {
        if (i == 3)
            tell_parent();
        rc = zt_all_reduce(c, buf, buf, BIG, ZT_F32, ZT_SUM, 1.0f, &fault);
    }
    check_peer(rc, "rank 1 has failed");
    memset(&fault, 0, sizeof(fault));
    check_peer(zt_barrier(c, &fault), "rank 1 has failed"); /* and for good */
    free(buf);
}

static void test_a_killed_rank_is_named_to_the_others(void **state)
{
    struct group g = {.world = 3};

    (void)state;
    make_fd(&g);
    for (int r = 0; r < 3; r++)
        start_rank(&g, r, true, until_killed);
    await_bytes(3);
    kill(g.pid[1], SIGKILL);
    assert_true(WIFSIGNALED(end_of_rank(&g, 1)));
    zt_comm_abort_fd(g.fd, 1);
    zt_comm_abort_fd(g.fd, 2); /* the first blame stays */
    assert_int_equal(end_of_rank(&g, 0), 0);
    assert_int_equal(end_of_rank(&g, 2), 0);
    close(g.fd);
}

static void started_until_killed(struct zt_comm *c)
{
    static float buf[1000];
    zt_comm_handle h[3];
    zt_err rc;

    if (my_rank == 1) {
        DO(zt_all_reduce(c, buf, buf, 1000, ZT_F32, ZT_SUM, 1.0f, &fault));
        tell_parent();
        for (;;)
            pause();
    }
    for (int i = 0; i < 3; i++)
        DO(zt_all_reduce_start(c, buf, buf, 1000, ZT_F32, ZT_SUM, 1.0f, &h[i], &fault));
    DO(zt_comm_wait(c, h[0], &fault));
    tell_parent();
    check_peer(zt_comm_wait(c, h[2], &fault), "rank 1 has failed");
    check_peer(zt_comm_wait(c, h[1], &fault), "rank 1 has failed");
    DO(zt_comm_wait(c, h[0], &fault)); /* what was done stays done */
    rc = zt_all_reduce_start(c, buf, buf, 1000, ZT_F32, ZT_SUM, 1.0f, &h[0], &fault);
    CHECK(!rc);
    check_peer(zt_comm_wait(c, h[0], &fault), "rank 1 has failed");
}

static void test_started_calls_fail_when_a_rank_is_killed(void **state)
{
    struct group g = {.world = 2};

    (void)state;
    make_fd(&g);
    start_rank(&g, 0, true, started_until_killed);
    start_rank(&g, 1, true, started_until_killed);
    await_bytes(2);
    kill(g.pid[1], SIGKILL);
    assert_true(WIFSIGNALED(end_of_rank(&g, 1)));
    zt_comm_abort_fd(g.fd, 1);
    assert_int_equal(end_of_rank(&g, 0), 0);
    close(g.fd);
}

static struct group *early;

static void open_must_fail(struct zt_comm *none)
{
    struct zt_comm_config cfg = rank_config(early, my_rank);
    struct zt_comm *c;

    (void)none;
    check_peer(zt_comm_open(&cfg, &c, &fault), "rank 1 has failed");
}

static void test_a_rank_that_died_before_it_came_is_named_in_open(void **state)
{
    struct group g = {.world = 3};

    (void)state;
    make_fd(&g);
    early = &g;
    start_rank(&g, 2, false, open_must_fail);
    zt_comm_abort_fd(g.fd, 1); /* before or after rank 2 mapped its page: both hold */
    start_rank(&g, 0, false, open_must_fail);
    assert_int_equal(end_of_rank(&g, 2), 0);
    assert_int_equal(end_of_rank(&g, 0), 0);
    close(g.fd);
}

static struct zt_comm *on_alarm_comm;

static void abort_in_handler(int sig)
{
    (void)sig;
    zt_comm_abort(on_alarm_comm, 0);
}

static void abort_myself(struct zt_comm *c)
{
    if (my_rank == 0) {
        on_alarm_comm = c;
        signal(SIGUSR1, abort_in_handler);
        raise(SIGUSR1);
    }
    check_peer(zt_barrier(c, &fault), "rank 0 has failed");
}

static void test_abort_from_a_signal_handler_reaches_all(void **state)
{
    (void)state;
    run_ranks(3, abort_myself);
}

/* ---------------------------------------------------------------- a rank is missing */
static void wait_in_vain(struct zt_comm *c)
{
    if (my_rank == 1) { /* alive, but elsewhere */
        for (;;)
            pause();
    }
    zt_err rc = zt_barrier(c, &fault);

    CHECK(rc == ZT_E_PEER && strstr(fault.text, "rank 1 did not come"));
}

static void test_a_missing_rank_is_named_at_the_deadline(void **state)
{
    struct group g = {.world = 3, .timeout_s = 2}; /* room for open on a busy machine */

    (void)state;
    make_fd(&g);
    for (int r = 0; r < 3; r++)
        start_rank(&g, r, true, wait_in_vain);
    assert_int_equal(end_of_rank(&g, 0), 0);
    assert_int_equal(end_of_rank(&g, 2), 0);
    kill(g.pid[1], SIGKILL);
    assert_true(WIFSIGNALED(end_of_rank(&g, 1)));
    close(g.fd);
}

static void open_in_vain(struct zt_comm *none)
{
    struct zt_comm_config cfg = rank_config(early, my_rank);
    struct zt_comm *c;
    zt_err rc = zt_comm_open(&cfg, &c, &fault);

    (void)none;
    check_peer(rc, my_rank ? "rank 0 did not come" : "ranks 1, 2 did not come");
}

static void test_open_names_the_ranks_that_do_not_come(void **state)
{
    struct group g = {.world = 3, .timeout_s = 0.1};

    (void)state;
    early = &g;
    make_fd(&g);
    start_rank(&g, 2, false, open_in_vain);
    assert_int_equal(end_of_rank(&g, 2), 0);
    close(g.fd);
    make_fd(&g);
    start_rank(&g, 0, false, open_in_vain);
    assert_int_equal(end_of_rank(&g, 0), 0);
    close(g.fd);
}

static void leave_early(struct zt_comm *c)
{
    if (my_rank != 1)
        check_peer(zt_barrier(c, &fault), "rank 1 has closed its communicator");
}

static void test_a_rank_that_left_is_named_at_once(void **state)
{
    (void)state;
    run_ranks(3, leave_early);
}

/* ---------------------------------------------------------------- ranks differ */
static void differ_in_op(struct zt_comm *c)
{
    float send[3] = {0}, recv[9] = {0};
    zt_err rc;

    if (my_rank == 1)
        rc = zt_all_gather(c, send, recv, 3, ZT_F32, &fault);
    else
        rc = zt_all_reduce(c, recv, recv, 8, ZT_BF16, ZT_SUM, 1.0f, &fault);
    check_peer(rc, "rank 1 wants all_gather of 12 bytes (3 f32), rank 0 all_reduce of 16 "
                   "bytes (8 bf16) sum times 1");
}

static void differ_in_root(struct zt_comm *c)
{
    float v = 1;

    check_peer(zt_broadcast(c, &v, 1, ZT_F32, my_rank == 2, &fault),
               "rank 2 wants broadcast of 4 bytes (1 f32) from rank 1, rank 0 broadcast "
               "of 4 bytes (1 f32) from rank 0");
}

static void differ_in_scale(struct zt_comm *c)
{
    static float v[100000];

    check_peer(
        zt_all_reduce(c, v, v, 100000, ZT_F32, ZT_SUM, my_rank ? 0.5f : 1.0f, &fault),
        "rank 1 wants all_reduce of 400000 bytes (100000 f32) sum times 0.5, rank "
        "0 all_reduce of 400000 bytes (100000 f32) sum times 1");
}

static void differ_in_alloc(struct zt_comm *c)
{
    void *p;

    check_peer(zt_comm_alloc(c, my_rank ? 100 : 200, &p, &fault),
               "rank 1 wants alloc of 100 bytes, rank 0 alloc of 200 bytes");
}

static void test_a_difference_names_both_sides_on_all_ranks(void **state)
{
    (void)state;
    run_ranks(2, differ_in_op);
    run_ranks(3, differ_in_op);
    run_ranks(3, differ_in_root);
    run_ranks(3, differ_in_scale);
    run_ranks(2, differ_in_alloc);
}

static void other_world(struct zt_comm *none)
{
    struct zt_comm_config cfg = rank_config(early, my_rank);
    struct zt_comm *c;

    (void)none;
    cfg.world = 2 + my_rank;
    if (my_rank) {
        check_peer(zt_comm_open(&cfg, &c, &fault), "expects a world of 3");
        zt_comm_abort_fd(early->fd, 1); /* as the daemon does when a rank ends badly */
    } else {
        check_peer(zt_comm_open(&cfg, &c, &fault), "rank 1 has failed");
    }
}

static void test_another_world_size_is_found_in_open(void **state)
{
    struct group g = {.world = 2};

    (void)state;
    make_fd(&g);
    early = &g;
    start_rank(&g, 0, false, other_world);
    start_rank(&g, 1, false, other_world);
    assert_ranks_end_well(&g);
}

/* ---------------------------------------------------------------- failing on request */
static void fail_nth(struct zt_comm *none)
{
    struct zt_comm_config cfg = rank_config(early, my_rank);
    struct zt_comm *c;
    char engine[32];

    (void)none;
    for (int nth = 1; nth <= 5; nth++) {
        float v[2] = {1, 2}, all[4];
        void *p;
        zt_err rc;

        snprintf(engine, sizeof(engine), "faulty:%d:shm", nth);
        cfg.engine = my_rank ? "shm" : engine;
        cfg.shm_fd = early[nth].fd;
        DO(zt_comm_open(&cfg, &c, &fault));
        rc = zt_comm_alloc(c, 100, &p, &fault);
        if (!rc)
            rc = zt_all_reduce(c, v, v, 2, ZT_F32, ZT_SUM, 1.0f, &fault);
        if (!rc)
            rc = zt_all_gather(c, v, all, 2, ZT_F32, &fault);
        if (!rc)
            rc = zt_barrier(c, &fault);
        if (nth == 5)
            CHECK(!rc);
        else
            check_peer(rc,
                       my_rank ? "rank 0 has failed" : "rank 0 fails here on request");
        zt_comm_close(c);
    }
}

static void test_the_nth_call_can_fail_and_the_peer_learns_of_it(void **state)
{
    struct group g[6] = {{.world = 2}};

    (void)state;
    for (int i = 1; i <= 5; i++)
        make_fd(&g[i]);
    early = g;
    start_rank(&g[0], 0, false, fail_nth);
    start_rank(&g[0], 1, false, fail_nth);
    assert_int_equal(end_of_rank(&g[0], 0), 0);
    assert_int_equal(end_of_rank(&g[0], 1), 0);
    for (int i = 1; i <= 5; i++)
        close(g[i].fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_killed_rank_is_named_to_the_others),
        cmocka_unit_test(test_started_calls_fail_when_a_rank_is_killed),
        cmocka_unit_test(test_a_rank_that_died_before_it_came_is_named_in_open),
        cmocka_unit_test(test_abort_from_a_signal_handler_reaches_all),
        cmocka_unit_test(test_a_missing_rank_is_named_at_the_deadline),
        cmocka_unit_test(test_open_names_the_ranks_that_do_not_come),
        cmocka_unit_test(test_a_rank_that_left_is_named_at_once),
        cmocka_unit_test(test_a_difference_names_both_sides_on_all_ranks),
        cmocka_unit_test(test_another_world_size_is_found_in_open),
        cmocka_unit_test(test_the_nth_call_can_fail_and_the_peer_learns_of_it),
    };

    return cmocka_run_group_tests(tests, open_pipe, close_pipe);
}
