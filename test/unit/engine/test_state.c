/* The regions of a model: places, initial values, fingerprints, frozen blocks. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "worker/engine/state.h"

/* Two trainable blocks and a frozen one between them, of awkward sizes. */
static zt_err build(zt_model *m, void **self)
{
    zt_block *a = zt_model_block(m, "a"), *b = zt_model_block(m, "b"),
             *c = zt_model_block(m, "c");

    *self = NULL;
    zt_block_param(a, "a.w", ZT_SHAPE(37, 113), ZT_NORMAL(0, 0.5f), 0);
    zt_block_param(a, "a.b", ZT_SHAPE(113), ZT_UNIFORM(-1, 1), ZT_NO_DECAY);
    zt_block_param(b, "b.w", ZT_SHAPE(9, 7), ZT_ONES(), ZT_FROZEN);
    zt_block_param(c, "c.w", ZT_SHAPE(5001), ZT_NORMAL(1, 2), 0);
    return zt_model_status(m);
}

static const struct zt_plugin plugin = {
    .abi = ZT_ABI, .struct_bytes = sizeof(plugin), .name = "toy", .build = build};

struct rig {
    struct zt_model *model;
    struct zt_device *device;
    struct zt_state *state;
};

static struct rig open_rig(int world, zt_dtype dtype)
{
    struct zt_model_config mc = {.compute_dtype = dtype};
    struct zt_state_config sc = {.dtype = dtype, .training = true, .num_states = 2};
    struct rig r = {0};

    assert_int_equal(zt_backend_find("cpu", &sc.backend, NULL), ZT_OK);
    assert_int_equal(sc.backend->open(0, 1, &r.device, NULL), ZT_OK);
    assert_int_equal(zt_model_open(&plugin, &mc, &r.model, NULL), ZT_OK);
    zt_model_layout(r.model, world);
    sc.device = r.device;
    sc.model = r.model;
    assert_int_equal(zt_state_open(&sc, &r.state, NULL), ZT_OK);
    assert_int_equal(zt_state_init(r.state, 11, NULL), ZT_OK);
    return r;
}

static void close_rig(struct rig *r)
{
    const struct zt_backend *be = r->state->backend;

    zt_state_close(r->state);
    zt_model_close(r->model);
    be->close(r->device);
}

static uint64_t fingerprint(struct rig *r)
{
    uint64_t f = 0;

    assert_int_equal(zt_state_fingerprint(r->state, &f, NULL), ZT_OK);
    return f;
}

static void test_shards_are_whole_chunks_at_any_world_size(void **state)
{
    (void)state;
    for (int world = 1; world < 8; world++) {
        struct rig r = open_rig(world, ZT_F32);

        for (int i = 0; i < r.model->num_blocks; i++) {
            const struct zt_block *b = r.model->blocks[i];

            assert_true(b->padded_elems >= b->numel);
            assert_int_equal(b->padded_elems % (world * ZT_SHARD_ALIGN), 0);
        }
        close_rig(&r);
    }
}

static void test_initial_values_and_fingerprint_do_not_depend_on_world(void **state)
{
    struct rig one = open_rig(1, ZT_F32), five = open_rig(5, ZT_F32);

    (void)state;
    assert_true(fingerprint(&one) == fingerprint(&five));
    for (int i = 0; i < one.model->num_params; i++) {
        const struct zt_param *p = one.model->params[i], *q = five.model->params[i];
        float *x = calloc((size_t)p->numel, sizeof(*x));
        float *y = calloc((size_t)p->numel, sizeof(*y));

        assert_int_equal(zt_state_get(one.state, p, 0, p->numel, x, NULL), ZT_OK);
        assert_int_equal(zt_state_get(five.state, q, 0, q->numel, y, NULL), ZT_OK);
        assert_memory_equal(x, y, (size_t)p->numel * sizeof(*x));
        free(x);
        free(y);
    }
    close_rig(&one);
    close_rig(&five);
}

static void test_fingerprint_sees_one_changed_bit(void **state)
{
    struct rig r = open_rig(2, ZT_F32);
    struct zt_param *p = zt_model_find(r.model, "c.w");
    float *w = zt_state_master(r.state, p->block) + p->offset_elems;
    uint64_t before = fingerprint(&r), bits;
    uint32_t word;

    (void)state;
    memcpy(&word, &w[5000], sizeof(word));
    word ^= 1;
    memcpy(&w[5000], &word, sizeof(word));
    bits = fingerprint(&r);
    assert_true(bits != before);
    word ^= 1;
    memcpy(&w[5000], &word, sizeof(word));
    assert_true(fingerprint(&r) == before);
    close_rig(&r);
}

static void test_initial_values_have_the_asked_moments(void **state)
{
    struct rig r = open_rig(1, ZT_F32);
    float x[5001];
    double sum = 0, sq = 0;

    (void)state;
    assert_int_equal(
        zt_state_get(r.state, zt_model_find(r.model, "c.w"), 0, 5001, x, NULL), ZT_OK);
    for (int i = 0; i < 5001; i++) {
        sum += x[i];
        sq += (double)x[i] * x[i];
    }
    assert_true(fabs(sum / 5001 - 1) < 0.15);          /* mean 1 */
    assert_true(fabs(sqrt(sq / 5001 - 1) - 2) < 0.15); /* deviation 2 */
    assert_int_equal(zt_state_get(r.state, zt_model_find(r.model, "b.w"), 3, 60, x, NULL),
                     ZT_OK);
    for (int i = 0; i < 60; i++)
        assert_true(x[i] == 1);
    close_rig(&r);
}

static void test_weights_are_the_rounded_master(void **state)
{
    struct rig r = open_rig(2, ZT_BF16);
    struct zt_param *p = zt_model_find(r.model, "a.w");
    float *master = zt_state_master(r.state, p->block) + p->offset_elems;
    uint16_t *w = (uint16_t *)zt_state_weights(r.state, p->block) + p->offset_elems;

    (void)state;
    for (int64_t i = 0; i < p->numel; i++) {
        uint32_t bits = (uint32_t)w[i] << 16;
        float back;

        memcpy(&back, &bits, sizeof(back));
        assert_true(fabsf(back - master[i]) <= fabsf(master[i]) / 256);
    }
    close_rig(&r);
}

static void test_frozen_blocks_take_no_training_memory(void **state)
{
    struct rig r = open_rig(2, ZT_BF16);
    struct zt_block *b = zt_model_find(r.model, "b.w")->block;

    (void)state;
    assert_null(zt_state_grads(r.state, b));
    assert_null(zt_state_master(r.state, b));
    assert_null(zt_state_moment(r.state, b, 0));
    assert_null(b->grads);
    assert_non_null(zt_state_weights(r.state, b));
    assert_int_equal(r.state->elems - r.state->train_elems, b->padded_elems);
    close_rig(&r);
}

static void test_measure_is_what_open_takes(void **state)
{
    struct rig r = open_rig(3, ZT_BF16);
    struct zt_state_config sc = {
        .model = r.model, .dtype = ZT_BF16, .training = true, .num_states = 2};
    struct zt_state_bytes b = zt_state_measure(&sc);

    (void)state;
    assert_true(b.weights >= (size_t)r.state->elems * 2);
    assert_true(b.weights < (size_t)r.state->elems * 2 + 4096);
    assert_true(b.moments == 2 * b.master && b.grads == b.master);
    assert_true(b.master >= (size_t)r.state->train_elems * 4);
    sc.training = false;
    b = zt_state_measure(&sc);
    assert_true(b.master == 0 && b.grads == 0 && b.moments == 0);
    close_rig(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shards_are_whole_chunks_at_any_world_size),
        cmocka_unit_test(test_initial_values_and_fingerprint_do_not_depend_on_world),
        cmocka_unit_test(test_fingerprint_sees_one_changed_bit),
        cmocka_unit_test(test_initial_values_have_the_asked_moments),
        cmocka_unit_test(test_weights_are_the_rounded_master),
        cmocka_unit_test(test_frozen_blocks_take_no_training_memory),
        cmocka_unit_test(test_measure_is_what_open_takes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
