/* A plan on shapes alone has just the peaks that the run then has: for random options. */
#include "test/unit/zero/job.h"

/* ZT_SEED repeats a run, ZT_CONFIGS makes more of them. */
static uint64_t seed = 1, drawn;

static int64_t draw(int64_t n)
{
    return (int64_t)(mix(seed, 77, drawn++) % (uint64_t)n);
}

static int64_t pick(const int64_t *from, int64_t n)
{
    return from[draw(n)];
}

static zt_dtype draw_dtype(void)
{
    return (zt_dtype)draw(3);
}

/* Never more than the type holds: sums of 16-bit floats stay finite. */
static struct job draw_job(void)
{
    static const int64_t sizes[] = {0, 1, 1100, 5000, 10000, 20000, 1000000000};
    int world = draw(4) ? 2 + (int)draw(2) : 4;
    struct job j = make_job(world, draw(3) ? 3 : (int)draw(3), draw_dtype());

    j.micro_batches = 1 + draw(3);
    j.every = draw(2);
    j.recompute = draw(2);
    j.eval_steps = (int)draw(2);
    j.dloss = 1;
    j.o.overlap_comm = draw(3) > 0;
    j.o.reduce_scatter = draw(3) > 0;
    j.o.allgather_partitions = draw(3) > 0;
    j.o.reduce_bucket_size = pick(sizes, 7);
    j.o.allgather_bucket_size = pick(sizes, 7);
    j.o.sub_group_size = pick(sizes, 7);
    j.o.prefetch_bucket_size = pick(sizes, 7);
    j.o.max_live_parameters = pick(sizes, 7);
    j.o.max_reuse_distance = pick(sizes, 7);
    j.o.param_persistence_threshold = draw(3) ? 0 : pick(sizes, 7);
    j.o.model_persistence_threshold = draw(3) ? INT64_MAX : pick(sizes, 7);
    j.o.hpz_partition_size = j.o.stage == 3 && draw(2) ? (world == 3 ? 3 : 2) : 1;
    j.o.share_node_weights = (j.o.stage == 1 || j.o.stage == 2) && draw(2);
    j.o.prescale_gradients = draw(4) == 0;
    j.o.communication_dtype = draw(2) ? ZT_F32 : draw_dtype();
    j.o.grad_accum_dtype = draw(2) ? ZT_F32 : draw_dtype();
    return j;
}

/* The job of the most distant way to the same numbers: stage 0, or 2 where it matters. */
static struct job plainest(const struct job *j)
{
    struct job p = make_job(j->world, 0, j->dtype);

    p.micro_batches = j->micro_batches;
    p.every = j->every || j->o.stage >= 2;
    p.eval_steps = j->eval_steps;
    p.dloss = j->dloss;
    p.o.prescale_gradients = j->o.prescale_gradients;
    p.o.communication_dtype = j->o.communication_dtype;
    p.o.grad_accum_dtype = j->o.grad_accum_dtype;
    return p;
}

/* train() compares the pools with the plan, byte by byte. */
static void test_plans_are_exact_and_options_change_no_bit(void **state)
{
    static struct result want, got;
    int64_t configs = number_of("ZT_CONFIGS", 120);

    (void)state;
    seed = (uint64_t)number_of("ZT_SEED", 1);
    for (int64_t i = 0; i < configs; i++) {
        struct job j = draw_job(), p = plainest(&j);

        if (!in_sample())
            continue;
        print_job(&j);
        train(&p, &want);
        train(&j, &got);
        assert_same(&j, &want, &got);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plans_are_exact_and_options_change_no_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
