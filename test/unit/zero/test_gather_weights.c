/*
 * Stage 3: which weights are whole when. A rank looks at every block before and after
 * every call, from hooks around those of zt_zero_hooks().
 */
#include "test/unit/zero/job.h"

static struct zt_step_hooks inner;
static int64_t most_ahead, most_gathered, most_need; /* seen by this rank */
static int calls, fetched_ahead;

/* Parameters a call of b needs beside what is always whole. */
static int64_t need_of(const struct zt_zero *z, const struct zt_block *b)
{
    int64_t sum = 0;
    const struct zt_block *n;

    for (int i = 0; (n = zt_needed_block(b, i)); i++)
        sum += zt_is_gathered(z, n) ? n->numel : 0;
    return sum;
}

static bool is_needed(const struct zt_block *call, const struct zt_block *b)
{
    const struct zt_block *n;

    for (int i = 0; (n = zt_needed_block(call, i)); i++)
        if (n == b)
            return true;
    return false;
}

/* Weights are there when the block is, and what is there is counted. */
static void check_blocks(const struct zt_zero *z)
{
    int64_t live = 0, ahead = 0, last = 0;

    for (int i = 0; i < z->cfg.model->num_blocks; i++) {
        const struct zt_block *b = z->cfg.model->blocks[i];
        const struct zt_gathered *l = &z->gathered[i];

        if (!b->padded_elems)
            continue;
        if (!zt_is_gathered(z, b)) {
            CHECK(b->weights && !l->data);
            continue;
        }
        CHECK(b->weights == (l->in_flight ? NULL : l->data));
        CHECK(!l->in_flight || (l->data && !l->users));
        CHECK(!l->users || b->weights);
        live += l->data ? b->numel : 0;
        ahead += l->in_flight ? b->numel : 0;
        last = l->in_flight ? b->numel : last; /* the only one, where the limit is less */
    }
    CHECK(live == z->gathered_elems && live <= zt_zero_gathered_peak(z));
    CHECK(ahead <= z->cfg.options->prefetch_bucket_size || ahead == last);
    CHECK(!ahead || z->cfg.options->prefetch_bucket_size > 0);
    most_ahead = ahead > most_ahead ? ahead : most_ahead;
    most_gathered = live > most_gathered ? live : most_gathered;
}

/* What is on its way is what will be needed next, and nothing before it is missing. */
static void check_order(const struct zt_zero *z)
{
    const struct zt_call_record *v = &z->call_records[z->mode];
    const struct zt_zero_options *o = z->cfg.options;
    bool met[16] = {false};
    /* limits let go of what was held when more was fetched behind it */
    bool roomy = o->max_live_parameters >= 1000000 && o->max_reuse_distance >= 1000000;
    int left = 0;

    for (int i = 0; i < z->cfg.model->num_blocks; i++)
        left += z->gathered[i].in_flight;
    CHECK(!left || (z->follows_record && o->overlap_comm));
    fetched_ahead += left;
    for (int at = z->call_index; left > 0 && at < v->num; at++) {
        const struct zt_block *call = z->cfg.model->blocks[v->at[at].block], *n;

        for (int i = 0; left > 0 && (n = zt_needed_block(call, i)); i++) {
            if (!zt_is_gathered(z, n))
                continue;
            CHECK(z->gathered[n->index].data || !roomy);
            left -= z->gathered[n->index].in_flight && !met[n->index];
            met[n->index] = true;
        }
    }
    CHECK(left == 0);
}

static zt_err see_enter(void *ctx, struct zt_block *b, bool backward, struct zt_fault *f)
{
    struct zt_zero *z = ctx;
    int64_t limit = z->cfg.options->max_live_parameters, need = need_of(z, b);
    const struct zt_block *n;
    zt_err rc = inner.block_enter(ctx, b, backward, f);

    if (rc)
        return rc;
    most_need = need > most_need ? need : most_need;
    calls++;
    check_blocks(z);
    check_order(z);
    for (int i = 0; (n = zt_needed_block(b, i)); i++)
        CHECK(n->weights || !n->padded_elems);
    CHECK(z->gathered_elems <= (need > limit ? need : limit));
    return rc;
}

static zt_err see_leave(void *ctx, struct zt_block *b, bool backward, struct zt_fault *f)
{
    struct zt_zero *z = ctx;
    const struct zt_call_record *v = &z->call_records[z->mode];
    const struct zt_block *next = NULL;
    zt_err rc = inner.block_leave(ctx, b, backward, f);

    if (rc)
        return rc;
    check_blocks(z);
    CHECK(z->gathered_elems <= z->cfg.options->max_live_parameters);
    if (z->follows_record && z->call_index < v->num)
        next = z->cfg.model->blocks[v->at[z->call_index].block];
    for (int i = 0; i < z->cfg.model->num_blocks; i++) {
        const struct zt_block *o = z->cfg.model->blocks[i];

        CHECK(z->gathered[i].users == 0);
        if (z->cfg.options->max_reuse_distance == 0 && z->gathered[i].data &&
            !z->gathered[i].in_flight)
            CHECK(next && is_needed(next, o));
    }
    return rc;
}

static struct zt_step_hooks watch(struct zt_zero *z)
{
    struct zt_step_hooks mine;

    inner = mine = zt_zero_hooks(z);
    mine.block_enter = see_enter;
    mine.block_leave = see_leave;
    return mine;
}

/* ---- what is held ---- */

static struct result want;

static void watched_rank(struct zt_comm *c)
{
    int64_t limit = the_job->o.max_live_parameters;

    train_rank(c);
    CHECK(calls > 0);
    /* some of it went again within a call, to make room for what comes next */
    CHECK(most_gathered > 0 && the_result->gathered_peak >= most_gathered);
    CHECK(the_result->gathered_peak <= (most_need > limit ? most_need : limit));
    if (the_job->o.overlap_comm && the_job->o.prefetch_bucket_size >= 10000 &&
        the_job->o.max_live_parameters >= 25000)
        CHECK(fetched_ahead > 0 && most_ahead > 0);
    else if (!the_job->o.overlap_comm || the_job->o.prefetch_bucket_size == 0)
        CHECK(fetched_ahead == 0 && most_ahead == 0);
}

static void run_watched(struct job *j)
{
    j->watch = watch;
    run_job(j, watched_rank);
    assert_same(j, &want, the_result);
}

static void test_no_more_is_live_than_allowed(void **state)
{
    const int64_t limits[] = {0, 1, 10000, 12000, 20000, 25000, 1000000000};
    const int64_t prefetch[] = {0, 1100, 5000, 10000, 50000000};
    struct job j = make_job(3, 0, ZT_BF16);

    (void)state;
    j.micro_batches = 2;
    j.every = true;
    j.eval_steps = 1;
    train(&j, &want);
    for (int l = 0; l < 7; l++)
        for (int p = 0; p < 5; p++)
            for (int reuse = 0; reuse < 3; reuse++) {
                j.o = make_job(3, 3, ZT_BF16).o;
                if (!in_sample())
                    continue;
                j.recompute = (l + p + reuse) & 1;
                j.o.max_live_parameters = limits[l];
                j.o.prefetch_bucket_size = prefetch[p];
                j.o.max_reuse_distance = (int64_t[]){0, 10000, 1000000000}[reuse];
                run_watched(&j);
            }
}

static void test_without_overlap_nothing_is_fetched_ahead(void **state)
{
    struct job j = make_job(2, 0, ZT_F32);

    (void)state;
    train(&j, &want);
    for (int reuse = 0; reuse < 2; reuse++) {
        j.o = make_job(2, 3, ZT_F32).o;
        j.o.overlap_comm = false;
        j.o.max_reuse_distance = reuse ? 1000000000 : 0;
        run_watched(&j);
        if (!reuse) /* c, which uses a matrix of a, and no more */
            assert_int_equal(the_result->gathered_peak,
                             3 * NET_INNER * NET_D + NET_INNER);
    }
}

/* ---- orders that change ---- */

static net_order mixed(int step, int64_t micro)
{
    return (net_order)(mix(5, (uint64_t)step, (uint64_t)micro) % 3);
}

static net_order alternating(int step, int64_t micro)
{
    (void)micro;
    return step & 1 ? NET_ALL : NET_WITHOUT_B;
}

static net_order early_then_late(int step, int64_t micro)
{
    (void)micro;
    return step < 3 ? NET_WITHOUT_B : NET_ALL;
}

static void test_calls_may_change_their_order_between_passes(void **state)
{
    net_order (*const orders[])(int, int64_t) = {mixed, alternating, early_then_late};

    (void)state;
    for (int k = 0; k < 3; k++) {
        struct job j = make_job(2, 0, ZT_F32);

        j.order = orders[k];
        j.steps = MAX_STEPS;
        j.micro_batches = 2;
        j.every = true;
        j.eval_steps = 2;
        train(&j, &want);
        for (int i = 0; i < 8; i++) {
            j.o = make_job(2, 3, ZT_F32).o;
            j.o.overlap_comm = !(i & 1);
            j.o.max_live_parameters = i & 2 ? 12000 : 1000000000;
            j.o.max_reuse_distance = i & 4 ? 0 : 1000000000;
            run_watched(&j);
        }
    }
}

static void test_calls_may_change_their_order_in_groups(void **state)
{
    struct job j = make_job(4, 0, ZT_BF16);

    (void)state;
    j.order = mixed;
    j.steps = MAX_STEPS;
    j.micro_batches = 2;
    j.every = true;
    train(&j, &want);
    for (int i = 0; i < 4; i++) {
        j.o = make_job(4, 3, ZT_BF16).o;
        j.o.hpz_partition_size = 2;
        j.o.max_live_parameters = i & 1 ? 12000 : 1000000000;
        j.recompute = i & 2;
        run_watched(&j);
    }
}

/* ---- small blocks ---- */

static void persistent_rank(struct zt_comm *c)
{
    const struct zt_zero_options *o = &the_job->o;
    struct rank r;
    int64_t kept = 0;
    double sums[2];

    open_rank(&r, the_job, c);
    DO(train_step(&r, 1, sums));
    DO(zt_barrier(c, &fault));
    for (int i = 0; i < r.model->num_blocks; i++) {
        const struct zt_block *b = r.model->blocks[i];
        bool whole = b->numel <= o->param_persistence_threshold &&
                     b->numel <= o->model_persistence_threshold - kept;

        if (!b->padded_elems)
            continue;
        CHECK(zt_is_whole(r.zero, ZT_STATE_WEIGHTS, b) == whole);
        CHECK((b->weights != NULL) == whole); /* between passes, too */
        kept += whole ? b->numel : 0;
    }
    CHECK((kept > 0) == (o->param_persistence_threshold > 1000));
    close_rank(&r);
}

static void test_small_blocks_stay_whole(void **state)
{
    const int64_t params[] = {0, 1100, 5000, 1000000};
    const int64_t models[] = {0, 3000, INT64_MAX};
    struct job j = make_job(3, 0, ZT_BF16);

    (void)state;
    train(&j, &want);
    for (int p = 0; p < 4; p++)
        for (int m = 1; m < 3; m++) {
            j.o = make_job(3, 3, ZT_BF16).o;
            j.watch = NULL;
            j.o.param_persistence_threshold = params[p];
            j.o.model_persistence_threshold = models[m];
            run_job(&j, persistent_rank);
            assert_trains_like(&j, &want);
        }
}

static void test_one_rank_holds_everything(void **state)
{
    struct job j = make_job(1, 3, ZT_F32);

    (void)state;
    train(&j, &want);
    assert_int_equal(want.gathered_peak, 0);
}

/* ---- one rank that keeps them off the device ---- */

/* In files there is room for all of them, or for some; what stays in host memory is lent in any case. */
static void lent_rank(struct zt_comm *c)
{
    struct job copied = *the_job;
    int in_host = 0, in_files = 0;
    struct rank r;

    open_rank(&r, the_job, c);
    CHECK((r.gathered_bytes == 0) == (!the_job->dir || the_job->weights_buffers > 2));
    for (int i = 0; i < r.model->num_blocks; i++) {
        const struct zt_block *b = r.model->blocks[i];
        bool host = r.zero->regions[ZT_STATE_WEIGHTS].in[i] == ZT_STORE_HOST;

        if (!b->padded_elems)
            continue;
        in_host += host;
        in_files += !host;
        CHECK(zt_state_is_resident(r.zero, ZT_STATE_WEIGHTS, b) ==
              (host || r.gathered_bytes == 0));
    }
    CHECK((in_host > 0) == (the_job->weights_in_host > 0) && in_files > 0);
    close_rank(&r);
    copied.in_reach = false;
    open_rank(&r, &copied, c);
    CHECK(r.gathered_bytes > 0);
    close_rank(&r);
}

static void test_one_rank_works_on_weights_where_they_are_kept(void **state)
{
    (void)state;
    for (int i = 0; i < 64; i++) {
        struct job j = make_job(1, 3, i & 1 ? ZT_BF16 : ZT_F32);

        if (!in_sample())
            continue;
        j.micro_batches = i & 2 ? 2 : 1;
        j.recompute = i & 4;
        j.eval_steps = 1;
        j.order = i & 8 ? mixed : NULL;
        j.steps = MAX_STEPS;
        train(&j, &want);
        j.o.max_live_parameters = i & 16 ? 12000 : 1000000000;
        j.o.max_reuse_distance = i & 16 ? 0 : 1000000000;
        j.on_host = j.in_reach = j.weights_too = true;
        j.pipeline = i & 1;
        for (int place = 0; place < 4; place++) {
            j.dir = place ? "." : NULL;
            j.weights_buffers = place > 1 ? 0 : 16;
            j.weights_in_host = place > 2 ? 30000 : 0;
            run_job(&j, lent_rank);
            run_watched(&j);
            j.watch = NULL;
            j.o.sub_group_size =
                i & 32 ? 4096 : 1000000000; /* pieces of the update alone */
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_more_is_live_than_allowed),
        cmocka_unit_test(test_without_overlap_nothing_is_fetched_ahead),
        cmocka_unit_test(test_calls_may_change_their_order_between_passes),
        cmocka_unit_test(test_calls_may_change_their_order_in_groups),
        cmocka_unit_test(test_small_blocks_stay_whole),
        cmocka_unit_test(test_one_rank_holds_everything),
        cmocka_unit_test(test_one_rank_works_on_weights_where_they_are_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
