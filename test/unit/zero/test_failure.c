/*
 * A rank that fails, at any call between ranks, or is killed: the others get ZT_E_PEER,
 * wherever they are, and let go of everything. Waits would last TIMEOUT_S, and a rank
 * that hung would be ended by its alarm.
 */
#include "test/unit/zero/job.h"
#include "worker/comm/shm/abort.h"

#include <signal.h>

#define TIMEOUT_S 600

static long fails_at;    /* the failing rank's call; LONG_MAX: none */
static int to_parent[2]; /* a byte: "I am training" */

static const char *spec_of(long nth)
{
    static char text[64];

    snprintf(text, sizeof(text), "faulty:%ld:shm", nth);
    return text;
}

/* As far as it goes: all steps, or the first failure. */
static zt_err try_job(struct zt_comm *c, int steps)
{
    struct rank r = {.comm = c};
    double sums[2];
    uint64_t print;
    zt_err rc;

    open_model(&r, the_job);
    plan_rank(&r);
    open_device(&r);
    rc = open_state(&r);
    for (int s = 1; !rc && s <= steps; s++) {
        rc = train_step(&r, s, sums);
        if (!rc && the_job->eval_steps)
            rc = run_pass(&r, ZT_MODE_EVAL, s, 0, my_rank, NULL);
        if (!rc)
            rc = zt_zero_fingerprint(r.zero, &print, &fault);
        if (s == 2 && to_parent[1])
            CHECK(write(to_parent[1], "x", 1) == 1);
    }
    close_rank(&r);
    return rc;
}

/* ---- a call that fails, the first, the second, ... ---- */

static void nth_rank(struct zt_comm *none)
{
    struct group g = {.world = the_job->world, .fd = (int)the_result->eval[0]};
    struct zt_comm_config cfg;
    struct zt_comm *c;
    zt_err rc;

    (void)none;
    g.engine = my_rank == 1 ? spec_of(fails_at) : "shm";
    g.timeout_s = TIMEOUT_S;
    cfg = rank_config(&g, my_rank);
    DO(zt_comm_open(&cfg, &c, &fault));
    rc = try_job(c, 2);
    zt_comm_close(c);
    CHECK(rc == ZT_OK || rc == ZT_E_PEER);
    CHECK(rc == ZT_OK || strstr(fault.text, "rank 1"));
    if (my_rank == 1) /* how the test knows that it has reached the end */
        the_result->num_weights = rc == ZT_OK;
}

static bool survives(const struct job *j, long nth)
{
    struct group g = {.world = j->world};

    share_result();
    the_job = j;
    fails_at = nth;
    make_fd(&g);
    the_result->eval[0] = g.fd;
    for (int r = 0; r < j->world; r++)
        start_rank(&g, r, false, nth_rank);
    assert_ranks_end_well(&g);
    return the_result->num_weights;
}

/* Calls 1, 2, ... of rank 1 fail in turn, until none does. Every `stride`-th. */
static void fail_each(const struct job *j, long stride)
{
    long nth = 1;

    while (!survives(j, nth))
        nth += stride;
    assert_true(nth > 10);
}

static struct job busy_job(int world, int stage, bool overlap)
{
    struct job j = make_job(world, stage, ZT_BF16);

    j.micro_batches = 2;
    j.every = true;
    j.eval_steps = 1;
    j.o.overlap_comm = overlap;
    j.o.reduce_bucket_size = 1;
    j.o.max_live_parameters = 20000;
    return j;
}

static void test_any_call_may_fail_in_stage_0(void **state)
{
    struct job j = busy_job(2, 0, true);

    (void)state;
    fail_each(&j, 1);
}

static void test_any_call_may_fail_in_stage_1(void **state)
{
    struct job j = busy_job(2, 1, false);

    (void)state;
    fail_each(&j, 1);
    j.o.share_node_weights = true;
    fail_each(&j, 3);
}

static void test_any_call_may_fail_in_stage_2(void **state)
{
    struct job j = busy_job(3, 2, true);

    (void)state;
    j.o.communication_dtype = ZT_BF16;
    fail_each(&j, 3);
}

static void test_any_call_may_fail_in_stage_3(void **state)
{
    struct job j = busy_job(2, 3, true);

    (void)state;
    fail_each(&j, 1);
    j.o.overlap_comm = false;
    fail_each(&j, 7);
}

static void test_any_call_may_fail_in_groups(void **state)
{
    struct job j = busy_job(4, 3, true);

    (void)state;
    j.o.hpz_partition_size = 2;
    fail_each(&j, 9);
}

/* ---- a rank that is killed ---- */

static void endless_rank(struct zt_comm *c)
{
    zt_err rc = try_job(c, 1000000);

    CHECK(rc == ZT_E_PEER && strstr(fault.text, "rank 1"));
}

static void kill_one(const struct job *j)
{
    struct group g = {.world = j->world, .timeout_s = TIMEOUT_S};
    char byte;

    assert_int_equal(pipe(to_parent), 0);
    share_result();
    the_job = j;
    make_fd(&g);
    for (int r = 0; r < j->world; r++)
        start_rank(&g, r, true, endless_rank);
    for (int r = 0; r < j->world; r++)
        assert_int_equal(read(to_parent[0], &byte, 1), 1);
    kill(g.pid[1], SIGKILL);
    assert_true(WIFSIGNALED(end_of_rank(&g, 1)));
    zt_comm_abort_fd(g.fd, 1); /* as the daemon does */
    for (int r = 0; r < j->world; r++)
        if (r != 1)
            assert_int_equal(end_of_rank(&g, r), 0);
    close(g.fd);
    close(to_parent[0]);
    close(to_parent[1]);
    to_parent[0] = to_parent[1] = 0;
}

static void test_a_killed_rank_ends_the_others(void **state)
{
    (void)state;
    for (int round = 0; round < 3; round++)
        for (int stage = 0; stage < 4; stage++)
            for (int overlap = 0; overlap < 2; overlap++) {
                struct job j = busy_job(3, stage, overlap);

                if (in_sample())
                    kill_one(&j);
            }
}

/* ---- a rank whose plugin fails on its own, with much on its way ---- */

static zt_err watch_and_fail(void *ctx, struct zt_block *b, bool backward,
                             struct zt_fault *f)
{
    struct zt_zero *z = ctx;
    zt_err rc = zt_zero_hooks(z).block_enter(ctx, b, backward, f);

    if (!rc && my_rank == 0 && z->call_index == fails_at)
        return zt_fault_set(f, ZT_E_PLUGIN, "rank 0 has had enough");
    return rc;
}

static struct zt_step_hooks failing_hooks(struct zt_zero *z)
{
    struct zt_step_hooks h = zt_zero_hooks(z);

    h.block_enter = watch_and_fail;
    return h;
}

static void lone_rank(struct zt_comm *c)
{
    zt_err rc = try_job(c, 3);

    if (my_rank == 0) {
        CHECK(rc == ZT_E_PLUGIN);
        zt_comm_abort(c, 0);
    } else {
        /* in groups the second to fail may be the first that a third one notices */
        CHECK(rc == ZT_E_PEER);
        CHECK(the_job->o.hpz_partition_size > 1 || strstr(fault.text, "rank 0"));
    }
}

static void test_a_rank_that_fails_alone_lets_go_of_everything(void **state)
{
    (void)state;
    for (long at = 1; at <= 16; at += 3)
        for (int group = 1; group < 3; group++) {
            struct job j = busy_job(4, 3, true);

            fails_at = at;
            j.o.hpz_partition_size = group;
            j.o.max_live_parameters = 1000000000;
            j.watch = failing_hooks;
            if (in_sample())
                run_job(&j, lone_rank);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_call_may_fail_in_stage_0),
        cmocka_unit_test(test_any_call_may_fail_in_stage_1),
        cmocka_unit_test(test_any_call_may_fail_in_stage_2),
        cmocka_unit_test(test_any_call_may_fail_in_stage_3),
        cmocka_unit_test(test_any_call_may_fail_in_groups),
        cmocka_unit_test(test_a_killed_rank_ends_the_others),
        cmocka_unit_test(test_a_rank_that_fails_alone_lets_go_of_everything),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
