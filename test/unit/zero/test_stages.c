/* Stages 0 to 3 give the same numbers, and those that one process gives alone. */
#include "test/unit/zero/oracle.h"

static const zt_dtype dtypes[] = {ZT_F32, ZT_BF16, ZT_F16};

/* Every stage against the oracle, and with it the stages against each other. */
static void each_stage(int world, int64_t micro_batches, bool every)
{
    static struct result want, first, got;

    for (size_t d = 0; d < 3; d++) {
        for (int stage = 0; stage < 4; stage++) {
            struct job j = make_job(world, stage, dtypes[d]);

            j.micro_batches = micro_batches;
            j.every = every;
            if (stage == 0)
                oracle(&j, &want);
            train(&j, &got);
            assert_matches(&j, &want, &got);
            if (stage == 0)
                first = got;
            assert_same(&j, &first, &got);
        }
    }
}

static void test_one_rank(void **state)
{
    (void)state;
    each_stage(1, 1, false);
    each_stage(1, 2, false);
}

static void test_two_ranks(void **state)
{
    (void)state;
    each_stage(2, 1, false);
    each_stage(2, 2, true);
}

static void test_three_ranks(void **state)
{
    (void)state;
    each_stage(3, 1, false);
    each_stage(3, 3, true);
}

static void test_four_ranks(void **state)
{
    (void)state;
    each_stage(4, 1, false);
    each_stage(4, 2, true);
}

/* Stages 0 and 1 add up micro-batches before the ranks, unless told otherwise. */
static void test_micro_batches_are_added_up_before_the_ranks(void **state)
{
    (void)state;
    for (int stage = 0; stage < 2; stage++) {
        struct job j = make_job(3, stage, ZT_BF16);

        j.micro_batches = 3;
        assert_oracle(&j);
    }
}

static void test_recomputation_changes_nothing(void **state)
{
    static struct result want;

    (void)state;
    for (int stage = 0; stage < 4; stage++) {
        struct job j = make_job(2, stage, ZT_BF16);

        if (stage == 0)
            train(&j, &want);
        j.recompute = true;
        assert_trains_like(&j, &want);
    }
}

static void test_evaluation_in_between_changes_nothing(void **state)
{
    static struct result without, want, got;

    (void)state;
    for (int stage = 0; stage < 4; stage++) {
        struct job j = make_job(3, stage, ZT_F32);

        j.steps = 4;
        if (stage == 0)
            train(&j, &without);
        j.eval_steps = 1;
        train(&j, &got);
        assert_true(got.eval[3] > 0);
        assert_memory_equal(got.weights, without.weights, sizeof(got.weights));
        if (stage == 0)
            want = got;
        assert_same(&j, &want, &got);
    }
}

/* One skipped step in the middle: as if it had never been. */
static void skipping_rank(struct zt_comm *c)
{
    struct rank r;

    open_rank(&r, the_job, c);
    for (int s = 1; s <= 3; s++) {
        double sums[2] = {0};

        for (int64_t i = 0; s == 2 && i < the_job->micro_batches; i++)
            DO(run_pass(&r, ZT_MODE_TRAIN, 9, i, my_rank, NULL));
        if (s == 2)
            continue;
        DO(train_step(&r, s == 1 ? 1 : 2, sums));
        if (my_rank == 0) {
            the_result->sumsq[s / 2] = sums[0];
            the_result->loss[s / 2] = sums[1];
        }
        DO(zt_zero_fingerprint(r.zero, &the_result->fingerprint[s / 2], &fault));
    }
    if (my_rank == 0)
        get_weights(&r, the_result->weights, &the_result->num_weights);
    else
        get_weights(&r, (float[MAX_WEIGHTS]){0}, &(int){0});
    close_rank(&r);
}

static void test_a_skipped_step_leaves_nothing(void **state)
{
    static struct result want;

    (void)state;
    for (int stage = 0; stage < 4; stage++)
        for (int accum = 0; accum < 2; accum++) {
            struct job j = make_job(2, stage, ZT_F16);

            j.micro_batches = 2;
            j.o.grad_accum_dtype = accum ? ZT_BF16 : ZT_F32;
            j.o.overlap_comm = true;
            train(&j, &want);
            run_job(&j, skipping_rank);
            assert_same(&j, &want, the_result);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_rank),
        cmocka_unit_test(test_two_ranks),
        cmocka_unit_test(test_three_ranks),
        cmocka_unit_test(test_four_ranks),
        cmocka_unit_test(test_micro_batches_are_added_up_before_the_ranks),
        cmocka_unit_test(test_recomputation_changes_nothing),
        cmocka_unit_test(test_evaluation_in_between_changes_nothing),
        cmocka_unit_test(test_a_skipped_step_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
