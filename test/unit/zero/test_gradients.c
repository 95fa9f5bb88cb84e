/* Ways in which gradients travel: buckets, types, scales, groups, shared memory. */
#include "test/unit/zero/oracle.h"

static struct result want;

/* Plain stage 0 of the same world, dtype and micro-batches. */
static struct job plain(const struct job *j)
{
    struct job p = make_job(j->world, 0, j->dtype);

    p.micro_batches = j->micro_batches;
    p.every = j->every;
    return p;
}

/* ---- what changes no bit ---- */

static void each_bucket(int stage, int64_t bucket)
{
    for (int overlap = 0; overlap < 2; overlap++)
        for (int scatter = 0; scatter < 2; scatter++) {
            struct job j = make_job(3, stage, ZT_BF16);

            j.micro_batches = 2;
            j.every = true;
            j.o.reduce_bucket_size = bucket;
            j.o.overlap_comm = overlap;
            j.o.reduce_scatter = scatter;
            assert_trains_like(&j, &want);
        }
}

static void test_buckets_overlap_and_scatter_change_nothing(void **state)
{
    const int64_t buckets[] = {0, 1, 20000, INT64_MAX};
    struct job j = make_job(3, 0, ZT_BF16);

    (void)state;
    j.micro_batches = 2;
    j.every = true;
    train(&j, &want);
    for (int stage = 0; stage < 4; stage++)
        for (int i = 0; i < 4; i++)
            each_bucket(stage, buckets[i]);
}

static void test_without_scatter_once_a_step_changes_nothing(void **state)
{
    (void)state;
    for (int stage = 0; stage < 2; stage++) {
        struct job j = make_job(3, stage, ZT_F32), p;

        j.micro_batches = 2;
        p = plain(&j);
        j.o.reduce_scatter = false;
        j.o.overlap_comm = true;
        j.o.reduce_bucket_size = 1;
        assert_train_alike(&j, &p);
    }
}

static void test_ways_of_publishing_change_nothing(void **state)
{
    (void)state;
    for (int stage = 1; stage < 4; stage++)
        for (int i = 0; i < 8; i++) {
            struct job j = make_job(3, stage, i & 4 ? ZT_BF16 : ZT_F32);
            struct job p = plain(&j);

            j.o.allgather_partitions = i & 1;
            j.o.allgather_bucket_size = i & 2 ? 1 : 500000000;
            j.o.overlap_comm = i & 1;
            j.o.param_persistence_threshold = 5000; /* stage 3 has something to publish */
            assert_train_alike(&j, &p);
        }
}

static void test_pieces_of_the_optimizer_change_nothing(void **state)
{
    const int64_t pieces[] = {0, 1000, 4096, 5001};

    (void)state;
    for (int stage = 0; stage < 4; stage++)
        for (int i = 0; i < 4; i++) {
            struct job j = make_job(2, stage, ZT_BF16);

            if (stage + i == 0)
                train(&j, &want);
            j.o.sub_group_size = pieces[i];
            assert_trains_like(&j, &want);
        }
}

static void test_shared_weights_of_a_node_change_nothing(void **state)
{
    (void)state;
    for (int stage = 1; stage < 3; stage++)
        for (int d = 0; d < 2; d++)
            for (int64_t micro = 1; micro < 3; micro++) {
                struct job j = make_job(3, stage, d ? ZT_BF16 : ZT_F32), own;

                j.steps = 3;
                j.every = true;
                j.micro_batches = micro;
                own = j;
                j.o.share_node_weights = true;
                assert_train_alike(&j, &own);
            }
}

static void test_groups_with_second_shards_change_nothing(void **state)
{
    (void)state;
    for (int group = 2; group <= 4; group += 2)
        for (int i = 0; i < 8; i++) {
            struct job j = make_job(4, 3, i & 1 ? ZT_BF16 : ZT_F32), without;

            j.every = true;
            j.micro_batches = 2;
            j.eval_steps = 1;
            j.recompute = i & 4;
            without = j;
            j.o.hpz_partition_size = group;
            j.o.overlap_comm = i & 2;
            j.o.max_live_parameters = i & 4 ? 12000 : 1000000000;
            j.o.max_reuse_distance = i & 4 ? 0 : 1000000000;
            assert_train_alike(&j, &without);
        }
}

/* ---- scales ---- */

static void test_scales_that_are_powers_of_two_change_nothing_in_fp32(void **state)
{
    (void)state;
    for (int world = 2; world <= 4; world += 2)
        for (int stage = 0; stage < 4; stage++)
            for (int prescale = 0; prescale < 2; prescale++) {
                struct job j = make_job(world, stage, ZT_F32), p;

                j.micro_batches = 2;
                j.every = true;
                p = plain(&j);
                j.o.prescale_gradients = prescale;
                j.o.predivide_factor = prescale ? 1 : 8;
                assert_train_alike(&j, &p);
            }
}

static void test_other_scales_change_roundings_only(void **state)
{
    static struct result got;

    (void)state;
    for (int stage = 0; stage < 4; stage++)
        for (int prescale = 0; prescale < 2; prescale++) {
            struct job j = make_job(3, stage, ZT_F32), p = plain(&j);

            train(&p, &want);
            j.o.prescale_gradients = prescale;
            j.o.predivide_factor = prescale ? 1 : 3.7;
            train(&j, &got);
            assert_true(fabs(got.sumsq[0] - want.sumsq[0]) < 1e-6 * want.sumsq[0]);
        }
}

/* ---- types ---- */

static void test_narrow_messages_are_rounded_once_each(void **state)
{
    (void)state;
    for (int stage = 0; stage < 4; stage++)
        for (int i = 0; i < 8; i++) {
            struct job j = make_job(3, stage, ZT_F32);

            j.dloss = 16;
            j.micro_batches = i & 4 ? 2 : 1;
            j.o.communication_dtype = i & 1 ? ZT_F16 : ZT_BF16;
            j.o.overlap_comm = i & 2;
            j.o.reduce_bucket_size = i & 2 ? 1 : 500000000;
            assert_oracle(&j);
        }
}

static void test_narrow_messages_are_scaled_before_they_are_rounded(void **state)
{
    (void)state;
    for (int stage = 0; stage < 4; stage++) {
        struct job j = make_job(4, stage, ZT_BF16);

        j.dloss = 64;
        j.o.communication_dtype = ZT_F16;
        j.o.prescale_gradients = true;
        assert_oracle(&j);
    }
}

static void test_narrow_accumulators_are_rounded_at_each_micro_batch(void **state)
{
    (void)state;
    for (int stage = 0; stage < 4; stage++)
        for (int i = 0; i < 8; i++) {
            struct job j = make_job(3, stage, ZT_F32);

            j.dloss = 16;
            j.micro_batches = 3;
            j.every = i & 4;
            j.o.grad_accum_dtype = i & 1 ? ZT_F16 : ZT_BF16;
            j.o.reduce_scatter = !(i & 2);
            assert_oracle(&j);
        }
}

static void test_narrow_accumulators_and_messages(void **state)
{
    const zt_dtype narrow[] = {ZT_BF16, ZT_F16};

    (void)state;
    for (int stage = 0; stage < 4; stage++)
        for (int i = 0; i < 8; i++) {
            struct job j = make_job(2, stage, ZT_BF16);

            j.dloss = 16;
            j.micro_batches = 2;
            j.every = i & 4;
            j.o.grad_accum_dtype = narrow[i & 1];
            j.o.communication_dtype = narrow[i >> 1 & 1];
            j.o.prescale_gradients = i & 1;
            assert_oracle(&j);
        }
}

static void test_narrow_accumulators_of_one_rank(void **state)
{
    struct job j = make_job(1, 2, ZT_BF16);

    (void)state;
    j.micro_batches = 3;
    j.o.stage = 0; /* which stage 2 is, alone */
    j.o.grad_accum_dtype = ZT_BF16;
    oracle(&j, &want);
    j.o.stage = 2;
    {
        static struct result got;

        train(&j, &got);
        assert_matches(&j, &want, &got);
    }
}

/* ---- parameters that take no part ---- */

static void refusing_rank(struct zt_comm *c)
{
    struct rank r;
    double sums[2];

    open_rank(&r, the_job, c);
    CHECK(train_step(&r, 1, sums) == ZT_E_PLUGIN);
    CHECK(strstr(fault.text, "b.unused"));
    CHECK(strstr(fault.text, "ignore_unused_parameters"));
    close_rank(&r);
}

static void test_an_unused_parameter_is_named_when_asked_for(void **state)
{
    (void)state;
    for (int world = 1; world < 3; world++)
        for (int stage = 0; stage < 4; stage++) {
            struct job j = make_job(world, stage, ZT_F32);

            j.o.ignore_unused_parameters = false;
            j.o.overlap_comm = stage & 1;
            j.o.reduce_bucket_size = 1;
            run_job(&j, refusing_rank);
        }
}

/* ---- where they are kept ---- */

static size_t planned_for(const struct job *j, struct zt_comm *c)
{
    struct rank r;
    size_t bytes;

    open_rank(&r, j, c);
    bytes = r.transient_bytes;
    close_rank(&r);
    return bytes;
}

/* In files there are no more than three buffers. */
static void lent_rank(struct zt_comm *c)
{
    struct job copied = *the_job;
    size_t bytes = planned_for(the_job, c);

    copied.in_reach = false;
    CHECK(the_job->dir ? bytes < planned_for(&copied, c) : bytes == 0);
}

static void test_gradients_of_one_rank_are_made_where_they_are_kept(void **state)
{
    (void)state;
    for (int i = 0; i < 16; i++) {
        struct job j = make_job(1, 2, i & 1 ? ZT_BF16 : ZT_F32), p;

        j.micro_batches = i & 2 ? 2 : 1;
        p = plain(&j);
        j.on_host = j.in_reach = j.pipeline = true;
        j.dir = i & 4 ? "." : NULL;
        j.ratio = i & 8 ? 0.4 : 0;
        run_job(&j, lent_rank);
        assert_train_alike(&j, &p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_buckets_overlap_and_scatter_change_nothing),
        cmocka_unit_test(test_without_scatter_once_a_step_changes_nothing),
        cmocka_unit_test(test_ways_of_publishing_change_nothing),
        cmocka_unit_test(test_pieces_of_the_optimizer_change_nothing),
        cmocka_unit_test(test_shared_weights_of_a_node_change_nothing),
        cmocka_unit_test(test_groups_with_second_shards_change_nothing),
        cmocka_unit_test(test_scales_that_are_powers_of_two_change_nothing_in_fp32),
        cmocka_unit_test(test_other_scales_change_roundings_only),
        cmocka_unit_test(test_narrow_messages_are_rounded_once_each),
        cmocka_unit_test(test_narrow_messages_are_scaled_before_they_are_rounded),
        cmocka_unit_test(test_narrow_accumulators_are_rounded_at_each_micro_batch),
        cmocka_unit_test(test_narrow_accumulators_and_messages),
        cmocka_unit_test(test_narrow_accumulators_of_one_rank),
        cmocka_unit_test(test_an_unused_parameter_is_named_when_asked_for),
        cmocka_unit_test(test_gradients_of_one_rank_are_made_where_they_are_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
