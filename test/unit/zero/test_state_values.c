/* Where state lies, initial values, and the fingerprint. */
#include <time.h>

#include "test/unit/zero/job.h"

static void test_shards_are_whole_chunks_at_any_world_size(void **state)
{
    (void)state;
    for (int world = 1; world < 8; world++) {
        struct job j = make_job(world, 0, ZT_F32);
        struct rank r = {.comm = NULL};

        open_model(&r, &j);
        for (int i = 0; i < r.model->num_blocks; i++) {
            const struct zt_block *b = r.model->blocks[i];

            assert_true(b->padded_elems >= b->numel);
            assert_int_equal(b->padded_elems % (world * ZT_SHARD_ALIGN), 0);
        }
        zt_model_close(r.model);
    }
}

/* Open, tell values and fingerprint, close. */
static void initial_rank(struct zt_comm *c)
{
    static float values[MAX_WEIGHTS];
    struct rank r;
    uint64_t print;
    int n;

    open_rank(&r, the_job, c);
    get_weights(&r, values, &n);
    DO(zt_zero_fingerprint(r.zero, &print, &fault));
    if (my_rank == 0) {
        memcpy(the_result->weights, values, sizeof(values));
        the_result->num_weights = n;
        the_result->fingerprint[0] = print;
    }
    DO(zt_barrier(c, &fault));
    CHECK(memcmp(values, the_result->weights, sizeof(values)) == 0);
    CHECK(print == the_result->fingerprint[0]);
    close_rank(&r);
}

static void test_initial_values_and_fingerprint_do_not_depend_on_world_or_stage(
    void **state)
{
    static struct result want;

    (void)state;
    for (int d = 0; d < 2; d++)
        for (int world = 1; world < 6; world++)
            for (int stage = 0; stage < 4; stage++) {
                struct job j = make_job(world, stage, d ? ZT_BF16 : ZT_F32);

                j.o.param_persistence_threshold = world & 1 ? 0 : 3000;
                run_job(&j, initial_rank);
                if (world == 1 && stage == 0) {
                    want = *the_result;
                    assert_true(want.num_weights > 20000);
                    continue;
                }
                assert_true(the_result->fingerprint[0] == want.fingerprint[0]);
                assert_memory_equal(the_result->weights, want.weights,
                                    sizeof(want.weights));
            }
}

/* A late rank: the first values of the others wait for it while they are written over. */
static void replacing_rank(struct zt_comm *c)
{
    static float values[MAX_WEIGHTS];
    const struct timespec late = {.tv_nsec = 2000000};
    struct rank r;

    open_rank(&r, the_job, c);
    for (int turn = 0; turn < 3; turn++) {
        DO(zt_barrier(c, &fault));
        if (my_rank == turn % zt_comm_world(c))
            nanosleep(&late, NULL);
        DO(zt_zero_init(r.zero, (uint64_t)turn, &fault));
        for (int i = 0; i < r.model->num_params; i++) {
            const struct zt_param *p = r.model->params[i];
            int64_t from, n;

            zt_zero_part(r.zero, p, &from, &n);
            for (int64_t k = 0; k < n; k++)
                values[k] = (float)((from + k + turn) % 61);
            DO(zt_zero_set(r.zero, ZT_STATE_VALUE, p, from, n, values, &fault));
        }
        DO(zt_zero_publish(r.zero, &fault));
        for (int i = 0; i < r.model->num_params; i++) {
            const struct zt_param *p = r.model->params[i];

            DO(zt_zero_get(r.zero, ZT_STATE_WEIGHTS, p, 0, p->numel, values, &fault));
            for (int64_t k = 0; k < p->numel; k++)
                CHECK(values[k] == (float)((k + turn) % 61));
        }
    }
    close_rank(&r);
}

static void test_first_values_on_their_way_do_not_come_back(void **state)
{
    (void)state;
    for (int world = 2; world < 5; world++)
        for (int stage = 0; stage < 4; stage++)
            for (int d = 0; d < 2; d++) {
                struct job j = make_job(world, stage, d ? ZT_BF16 : ZT_F32);

                j.o.overlap_comm = true;
                j.o.param_persistence_threshold = 100000;
                run_job(&j, replacing_rank);
            }
}

/* Flip the last bit of an element, on the rank whose it is. */
static void flip(const struct rank *r, const struct zt_param *p, int64_t i)
{
    struct zt_zero *z = r->zero;
    bool master = zt_state_has(z, ZT_STATE_MASTER, p->block);
    struct zt_piece piece;
    int64_t from, n;
    uint32_t word, *at;

    zt_zero_part(z, p, &from, &n);
    if (i < from || i >= from + n)
        return;
    DO(zt_state_acquire_around(z, master ? ZT_STATE_MASTER : ZT_STATE_WEIGHTS, p->block,
                               p->offset_elems + i, 1, ZT_READ_WRITE, &piece, &fault));
    at = zt_piece_at(&piece, p->offset_elems + i);
    memcpy(&word, at, sizeof(word));
    word ^= 1;
    memcpy(at, &word, sizeof(word));
    DO(zt_state_commit(&piece, ZT_OK, &fault));
}

static void flipping_rank(struct zt_comm *c)
{
    struct rank r;
    uint64_t before, after;

    open_rank(&r, the_job, c);
    DO(zt_zero_fingerprint(r.zero, &before, &fault));
    for (int i = 0; i < r.model->num_params; i++) {
        const struct zt_param *p = r.model->params[i];

        if (p->flags & ZT_FROZEN) /* of the 16-bit types there is no fp32 to flip */
            continue;
        flip(&r, p, p->numel - 1);
        DO(zt_zero_fingerprint(r.zero, &after, &fault));
        CHECK(after != before);
        flip(&r, p, p->numel - 1);
        DO(zt_zero_fingerprint(r.zero, &after, &fault));
        CHECK(after == before);
    }
    close_rank(&r);
}

static void test_fingerprint_sees_one_changed_bit(void **state)
{
    (void)state;
    for (int stage = 0; stage < 4; stage++) {
        struct job j = make_job(3, stage, stage & 1 ? ZT_F32 : ZT_BF16);

        run_job(&j, flipping_rank);
    }
}

static void check_moments(struct rank *r, const char *name, double mean, double sd)
{
    static float x[MAX_WEIGHTS];
    const struct zt_param *p = zt_model_find(r->model, name);
    double sum = 0, sq = 0, n = (double)p->numel;

    DO(zt_zero_get(r->zero, ZT_STATE_VALUE, p, 0, p->numel, x, &fault));
    for (int64_t i = 0; i < p->numel; i++) {
        sum += (double)x[i];
        sq += ((double)x[i] - mean) * ((double)x[i] - mean);
    }
    CHECK(fabs(sum / n - mean) < 5 * sd / sqrt(n) + 1e-12);
    CHECK(fabs(sqrt(sq / n) - sd) < 5 * sd / sqrt(n) + 1e-12);
}

static void moments_rank(struct zt_comm *c)
{
    struct rank r;

    open_rank(&r, the_job, c);
    check_moments(&r, "wte", 0, 0.1f);
    check_moments(&r, "a.up", 0, 0.1f);
    check_moments(&r, "a.bias", 0, 0.2 / sqrt(12)); /* uniform in [-0.1, 0.1) */
    check_moments(&r, "b.ln", 1, 0);
    close_rank(&r);
}

static void test_initial_values_have_the_asked_moments(void **state)
{
    struct job j = make_job(2, 3, ZT_F32);

    (void)state;
    run_job(&j, moments_rank);
}

static void parts_rank(struct zt_comm *c)
{
    struct rank r;

    open_rank(&r, the_job, c);
    for (int i = 0; i < r.model->num_params; i++) {
        const struct zt_param *p = r.model->params[i];
        int64_t begin = 0, from, n;
        double all[2];

        zt_zero_part(r.zero, p, &from, &n);
        CHECK(n >= 0 && (n == 0 || (from >= 0 && from + n <= p->numel)));
        all[0] = (double)n;
        all[1] = (double)(n * from + n * (n - 1) / 2); /* sum of the indices */
        DO(zt_sum_f64(c, all, 2, &fault));
        if (the_job->o.stage == 0 || the_job->world == 1)
            begin = the_job->world;
        else
            begin = 1;
        CHECK(all[0] == (double)(begin * p->numel));
        CHECK(all[1] == (double)(begin * (p->numel * (p->numel - 1) / 2)));
    }
    close_rank(&r);
}

static void test_the_parts_of_the_ranks_make_a_parameter(void **state)
{
    (void)state;
    for (int world = 1; world < 6; world++)
        for (int stage = 0; stage < 4; stage += 3) {
            struct job j = make_job(world, stage, ZT_F32);

            run_job(&j, parts_rank);
        }
}

static void frozen_rank(struct zt_comm *c)
{
    struct rank r;
    const struct zt_block *b;
    struct zt_zero *z;

    open_rank(&r, the_job, c);
    z = r.zero;
    b = zt_model_find(r.model, "frozen.w")->block;
    CHECK(!zt_state_has(z, ZT_STATE_GRADIENTS, b));
    CHECK(!zt_state_has(z, ZT_STATE_MASTER, b));
    CHECK(!zt_state_has(z, ZT_STATE_MOMENT, b));
    CHECK(!z->regions[ZT_STATE_MOMENT + 2].stores[ZT_STORE_DEVICE].store && !b->grads &&
          !b->requires_grads);
    CHECK(zt_state_has(z, ZT_STATE_WEIGHTS, b));
    close_rank(&r);
}

static void test_frozen_blocks_take_no_training_memory(void **state)
{
    (void)state;
    for (int stage = 0; stage < 4; stage++) {
        struct job j = make_job(2, stage, ZT_BF16);

        run_job(&j, frozen_rank);
    }
}

/* Up to a page, n elements of `width` bytes. */
static void check_bytes(size_t bytes, int64_t n, size_t width)
{
    CHECK(bytes >= (size_t)n * width && bytes < (size_t)n * width + 4096);
}

static void measuring_rank(struct zt_comm *c)
{
    int stage = the_job->o.stage, world = the_job->world;
    int64_t all = 0, trained = 0;
    struct zt_zero_bytes bytes;
    struct zt_state_bytes b;
    struct rank r;

    open_rank(&r, the_job, c);
    for (int i = 0; i < r.model->num_blocks; i++) {
        all += r.model->blocks[i]->padded_elems;
        trained += r.model->blocks[i]->frozen ? 0 : r.model->blocks[i]->padded_elems;
    }
    bytes = zt_zero_measure(r.zero);
    b = bytes.in[ZT_PLACE_DEVICE];
    check_bytes(b.weights, stage == 3 ? all / world : all, 2);
    check_bytes(b.master, stage ? trained / world : trained, 4);
    check_bytes(b.moments / 2, stage ? trained / world : trained, 4);
    check_bytes(b.grads, stage >= 2 ? trained / world : trained, 4);
    CHECK(b.gathered == 0 && b.transient == 0); /* peaks, and nothing has run */
    CHECK(zt_zero_total(&bytes, ZT_PLACE_DEVICE) ==
          b.weights + b.master + b.moments + b.grads);
    for (zt_memory_place place = ZT_PLACE_PINNED; place < ZT_NUM_PLACES; place++)
        CHECK(zt_zero_total(&bytes, place) == 0);
    close_rank(&r);
}

static void test_measure_is_what_the_stage_promises(void **state)
{
    (void)state;
    for (int world = 2; world < 5; world++)
        for (int stage = 0; stage < 4; stage++) {
            struct job j = make_job(world, stage, ZT_BF16);

            run_job(&j, measuring_rank);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shards_are_whole_chunks_at_any_world_size),
        cmocka_unit_test(
            test_initial_values_and_fingerprint_do_not_depend_on_world_or_stage),
        cmocka_unit_test(test_first_values_on_their_way_do_not_come_back),
        cmocka_unit_test(test_fingerprint_sees_one_changed_bit),
        cmocka_unit_test(test_initial_values_have_the_asked_moments),
        cmocka_unit_test(test_the_parts_of_the_ranks_make_a_parameter),
        cmocka_unit_test(test_frozen_blocks_take_no_training_memory),
        cmocka_unit_test(test_measure_is_what_the_stage_promises),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
