/* <zlaunch/weights.h>: what a plugin's hooks read and write, under every stage. */
#include "test/unit/zero/job.h"

static float buf[MAX_WEIGHTS], again[MAX_WEIGHTS];

#define ASK(call)                                                                        \
    do {                                                                                 \
        if (!(call))                                                                     \
            return ZT_E_PLUGIN;                                                          \
    } while (0)

/* What element i of a parameter is made to be; exact in every type. */
static float made(int64_t i, int salt)
{
    return (float)((i * 7 + salt) % 61 - 30) / 32;
}

/* Every rank asks for its own idea of the values; those of rank 0 count. */
static zt_err write_param(zt_weights *w, zt_param *p, int64_t from, int64_t n, int salt)
{
    for (int64_t i = 0; i < n; i++)
        buf[i] = made(from + i, salt) + (zt_weights_rank(w) ? 1000 : 0);
    ASK(zt_weights_write(w, p, from, n, buf));
    for (int64_t i = 0; i < n; i++)
        CHECK(buf[i] == made(from + i, salt)); /* they know what was written */
    return ZT_OK;
}

static zt_err expect_param(zt_weights *w, const zt_param *p, int64_t from, int64_t n,
                           int salt)
{
    ASK(zt_weights_read(w, p, from, n, again));
    for (int64_t i = 0; i < n; i++)
        CHECK(again[i] == made(from + i, salt));
    return ZT_OK;
}

/* ---- reading ---- */

static struct rank *the_rank;

static zt_err read_all(zt_weights *w, struct net *net)
{
    const struct zt_model *m = the_rank->model;

    (void)net;
    CHECK(zt_weights_rank(w) == my_rank && zt_weights_world(w) == the_job->world);
    for (int i = 0; i < m->num_params; i++) {
        const struct zt_param *p = m->params[i];
        int64_t from = p->numel / 3, n = p->numel - from - p->numel / 5;

        CHECK(zt_param_numel(p) == p->numel);
        ASK(zt_weights_read(w, p, from, n, again));
        DO(zt_zero_get(the_rank->zero, ZT_STATE_VALUE, p, from, n, buf, &fault));
        CHECK(memcmp(buf, again, (size_t)n * sizeof(*buf)) == 0);
    }
    return ZT_OK;
}

static void reading_rank(struct zt_comm *c)
{
    struct rank r;

    open_rank(&r, the_job, c);
    the_rank = &r;
    net_setup = read_all;
    DO(zt_zero_setup_model(r.zero, &fault));
    close_rank(&r);
}

/* In a sanitised build a sample, with what the others of a world and dtype are compared
 * to. */
static void for_each_setting(void (*what)(const struct job *j))
{
    for (int world = 1; world < 4; world++)
        for (int stage = 0; stage < 4; stage++)
            for (int d = 0; d < 2; d++)
                for (int extra = 0; extra < 3; extra++) {
                    struct job j = make_job(world, stage, d ? ZT_BF16 : ZT_F32);
                    bool is_first = stage == 0 && extra == 0;

                    if (!is_first && !in_sample())
                        continue;
                    j.o.share_node_weights =
                        extra == 1 && world > 1 && (stage == 1 || stage == 2);
                    j.o.param_persistence_threshold = extra ? 10000 : 0;
                    j.o.overlap_comm = extra == 2;
                    j.o.allgather_bucket_size = extra == 2 ? 1 : 500000000;
                    what(&j);
                }
}

static void read_job(const struct job *j)
{
    run_job(j, reading_rank);
}

static void test_reads_are_the_values(void **state)
{
    (void)state;
    for_each_setting(read_job);
}

/* ---- writing ---- */

static zt_err write_some(zt_weights *w, struct net *net)
{
    zt_err rc = write_param(w, net->wte, 100, 9000, 3);

    if (!rc)
        rc = write_param(w, net->frozen_w, 0, NET_D * NET_D, 4);
    if (!rc) /* part of what was written before, and beyond it */
        rc = write_param(w, net->wte, 5000, 4600, 5);
    if (!rc)
        rc = write_param(w, net->twice_w, 1, 1, 6);
    return rc;
}

static zt_err expect_some(zt_weights *w, struct net *net)
{
    zt_err rc = expect_param(w, net->wte, 100, 4900, 3);

    if (!rc)
        rc = expect_param(w, net->wte, 5000, 4600, 5);
    if (!rc)
        rc = expect_param(w, net->frozen_w, 0, NET_D * NET_D, 4);
    return rc ? rc : expect_param(w, net->twice_w, 1, 1, 6);
}

static zt_err write_and_look(zt_weights *w, struct net *net)
{
    zt_err rc = write_some(w, net);

    return rc ? rc : expect_some(w, net);
}

/* All that a rank holds of the weights agrees with the values; get_weights() looks. */
static void writing_rank(struct zt_comm *c)
{
    static struct result mine;
    struct rank r;

    open_rank(&r, the_job, c);
    net_setup = write_and_look;
    DO(zt_zero_setup_model(r.zero, &fault));
    net_setup = expect_some;
    DO(zt_zero_setup_model(r.zero, &fault));
    get_weights(&r, mine.weights, &mine.num_weights);
    for (int i = 0; i < r.model->num_blocks; i++) {
        const struct zt_block *b = r.model->blocks[i];
        const float *whole = b->weights;
        const struct zt_param *p = b->num_params ? b->params[0] : NULL;

        if (!p || !whole || the_job->dtype != ZT_F32)
            continue;
        DO(zt_zero_get(r.zero, ZT_STATE_VALUE, p, 0, p->numel, buf, &fault));
        CHECK(memcmp(whole + p->offset_elems, buf, (size_t)p->numel * 4) == 0);
    }
    net_setup = NULL;
    run_steps(&r, &mine); /* what was written is what is trained */
    if (my_rank == 0)
        *the_result = mine;
    close_rank(&r);
}

static struct result want[4][2];

static void write_job(const struct job *j)
{
    struct result *w = &want[j->world][j->dtype != ZT_F32];

    run_job(j, writing_rank);
    if (j->o.stage == 0 && !w->num_weights)
        *w = *the_result;
    assert_same(j, w, the_result);
}

static void test_a_write_reaches_all_who_hold_it(void **state)
{
    (void)state;
    for_each_setting(write_job);
}

/* ---- after a step ---- */

/* Keep the rows of a matrix short, as a plugin would. */
static zt_err clamp(zt_weights *w, struct net *net, int64_t step)
{
    int64_t n = zt_param_numel(net->up);

    CHECK(step >= 1 && step <= the_job->steps);
    ASK(zt_weights_read(w, net->up, 0, n, buf));
    for (int64_t i = 0; i < n; i++)
        buf[i] = fminf(fmaxf(buf[i], -0.05f), 0.05f);
    return zt_weights_write(w, net->up, 0, n, buf) ? ZT_OK : ZT_E_PLUGIN;
}

static void clamping_rank(struct zt_comm *c)
{
    net_after_step = clamp;
    train_rank(c);
}

static void clamp_job(const struct job *j)
{
    static struct result first[4][2];
    struct result *w = &first[j->world][j->dtype != ZT_F32];

    run_job(j, clamping_rank);
    if (j->o.stage == 0 && !w->num_weights)
        *w = *the_result;
    assert_same(j, w, the_result);
}

static void test_a_hook_after_each_step_gives_the_same_under_every_stage(void **state)
{
    (void)state;
    for_each_setting(clamp_job);
}

/* ---- mistakes ---- */

static int64_t bad_from, bad_n;
static bool bad_write;

static zt_err out_of_range(zt_weights *w, struct net *net)
{
    CHECK(zt_weights_read(w, net->wte, 0, 1, buf));
    if (bad_write)
        CHECK(!zt_weights_write(w, net->c_down, bad_from, bad_n, buf));
    else
        CHECK(!zt_weights_read(w, net->c_down, bad_from, bad_n, buf));
    /* and from there on nothing happens any more */
    CHECK(!zt_weights_read(w, net->wte, 0, 1, buf));
    CHECK(!zt_weights_write(w, net->wte, 0, 1, buf));
    return ZT_OK;
}

static void mistaken_rank(struct zt_comm *c)
{
    const int64_t n = NET_D * NET_INNER;
    const int64_t bad[][2] = {{n, 1},  {n + 1, 0},     {-1, 1},       {0, n + 1},
                              {0, -1}, {1, INT64_MAX}, {INT64_MAX, 1}};
    struct rank r;

    open_rank(&r, the_job, c);
    net_setup = out_of_range;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        bad_from = bad[i][0];
        bad_n = bad[i][1];
        bad_write = i & 1;
        CHECK(zt_zero_setup_model(r.zero, &fault) == ZT_E_PLUGIN);
        CHECK(strstr(fault.text, "c.down") && strstr(fault.text, "4096"));
        CHECK(strstr(fault.text, "plugin net, setup"));
    }
    close_rank(&r);
}

static void test_elements_that_are_not_there_are_an_error(void **state)
{
    (void)state;
    for (int stage = 0; stage < 4; stage++) {
        struct job j = make_job(2, stage, ZT_F32);

        run_job(&j, mistaken_rank);
    }
}

static zt_err no_parameter(zt_weights *w, struct net *net)
{
    (void)net;
    return zt_weights_read(w, NULL, 0, 1, buf) ? ZT_OK : ZT_E_PLUGIN;
}

static zt_err own_failure(zt_weights *w, struct net *net, int64_t step)
{
    (void)w;
    (void)net;
    return step == 2 ? ZT_E_FORMAT : ZT_OK;
}

static void failing_rank(struct zt_comm *c)
{
    struct rank r;
    double sums[2];

    open_rank(&r, the_job, c);
    net_setup = no_parameter;
    CHECK(zt_zero_setup_model(r.zero, &fault) == ZT_E_PLUGIN);
    CHECK(strstr(fault.text, "no parameter"));
    net_after_step = own_failure;
    DO(train_step(&r, 1, sums));
    CHECK(train_step(&r, 2, sums) == ZT_E_PLUGIN);
    CHECK(strstr(fault.text, "after_step"));
    close_rank(&r);
}

static void test_a_hook_that_fails_stops_the_run(void **state)
{
    struct job j = make_job(2, 3, ZT_BF16);

    (void)state;
    run_job(&j, failing_rank);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reads_are_the_values),
        cmocka_unit_test(test_a_write_reaches_all_who_hold_it),
        cmocka_unit_test(test_a_hook_after_each_step_gives_the_same_under_every_stage),
        cmocka_unit_test(test_elements_that_are_not_there_are_an_error),
        cmocka_unit_test(test_a_hook_that_fails_stops_the_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
