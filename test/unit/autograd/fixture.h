/*
 * fixture.h -- a step on a backend with its pool, and numbers in and out of it; for the
 * tests of this folder. Everything is static: each test program has its own.
 */
#ifndef TEST_AUTOGRAD_FIXTURE_H
#define TEST_AUTOGRAD_FIXTURE_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "worker/autograd/step.h"

#define POOL_BYTES ((size_t)64 << 20)

struct rig {
    const struct zt_backend *be;
    struct zt_device *dev;
    struct zt_pool *pool;
    void *base;
    struct zt_step *step;
    struct zt_model *model;
    void *weights[64]; /* per block */
    float *grads[64];
    zt_dtype dtype;
};

/* Fails the test with the sentence of `fault`. */
static void expect_ok(zt_err rc, const struct zt_fault *fault)
{
    if (rc)
        fail_msg("%s", fault->text);
}

__attribute__((unused)) static void expect_step_ok(const struct zt_step *s)
{
    struct zt_fault fault = {ZT_OK, ""};

    expect_ok(zt_step_status(s, &fault), &fault);
}

__attribute__((unused)) static void rig_close(struct rig *r)
{
    zt_step_close(r->step);
    assert_int_equal(zt_pool_used(r->pool), 0);
    zt_pool_close(r->pool);
    for (int i = 0; r->model && i < r->model->num_blocks; i++) {
        r->be->free(r->dev, r->weights[i], (size_t)r->model->blocks[i]->padded_elems * 4);
        r->be->free(r->dev, r->grads[i], (size_t)r->model->blocks[i]->padded_elems * 4);
    }
    zt_model_close(r->model);
    r->be->free(r->dev, r->base, POOL_BYTES);
    r->be->close(r->dev);
}

/* `plugin` NULL: a step for single ops. */
__attribute__((unused)) static void rig_open(struct rig *r, const char *backend,
                                             zt_dtype dtype,
                                             const struct zt_plugin *plugin,
                                             struct zt_step_config more)
{
    struct zt_model_config mc = {.compute_dtype = dtype};
    struct zt_fault fault = {ZT_OK, ""};

    *r = (struct rig){.dtype = dtype};
    expect_ok(zt_backend_find(backend, &r->be, &fault), &fault);
    expect_ok(r->be->open(0, 2, &r->dev, &fault), &fault);
    expect_ok(r->be->alloc(r->dev, POOL_BYTES, &r->base, &fault), &fault);
    expect_ok(zt_pool_open(r->base, POOL_BYTES, &r->pool, &fault), &fault);
    if (plugin) {
        expect_ok(zt_model_open(plugin, &mc, &r->model, &fault), &fault);
        zt_model_layout(r->model, 1);
    }
    for (int i = 0; r->model && i < r->model->num_blocks; i++) {
        size_t bytes = (size_t)r->model->blocks[i]->padded_elems * 4;
        void *g = NULL;

        if (!bytes)
            continue;
        expect_ok(r->be->alloc(r->dev, bytes, &r->weights[i], &fault), &fault);
        expect_ok(r->be->alloc(r->dev, bytes, &g, &fault), &fault);
        r->grads[i] = g;
        zt_block_bind(r->model->blocks[i], r->weights[i], r->grads[i]);
    }
    more.backend = r->be;
    more.device = r->dev;
    more.pool = r->pool;
    more.model = r->model;
    more.compute_dtype = dtype;
    expect_ok(zt_step_open(&more, &r->step, &fault), &fault);
}

/* ---- numbers ---- */

static uint64_t rand_state = 88172645463325252u;

/* Uniform in [-1, 1), the same on every run. */
__attribute__((unused)) static double rnd(void)
{
    rand_state ^= rand_state << 13; /* Marsaglia's xorshift64 */
    rand_state ^= rand_state >> 7;
    rand_state ^= rand_state << 17;
    return (double)(rand_state >> 11) * 0x1p-52 - 1;
}

__attribute__((unused)) static int64_t rnd_int(int64_t from, int64_t to)
{
    return from + (int64_t)((rnd() + 1) / 2 * (double)(to - from + 1));
}

static uint16_t to_bf16(float x)
{
    uint32_t u;

    memcpy(&u, &x, 4);
    return (uint16_t)((u + 0x7fff + ((u >> 16) & 1)) >> 16);
}

static float from_bf16(uint16_t h)
{
    uint32_t u = (uint32_t)h << 16;
    float x;

    memcpy(&x, &u, 4);
    return x;
}

__attribute__((unused)) static void put(void *to, zt_dtype dtype, int64_t i, double value)
{
    if (dtype == ZT_F32)
        ((float *)to)[i] = (float)value;
    else if (dtype == ZT_BF16)
        ((uint16_t *)to)[i] = to_bf16((float)value);
    else
        ((int32_t *)to)[i] = (int32_t)value;
}

__attribute__((unused)) static double get(const void *from, zt_dtype dtype, int64_t i)
{
    if (dtype == ZT_F32)
        return (double)((const float *)from)[i];
    if (dtype == ZT_BF16)
        return (double)from_bf16(((const uint16_t *)from)[i]);
    return ((const int32_t *)from)[i];
}

/* Values of every parameter of the rig's model, the same on every run. */
__attribute__((unused)) static void rig_init_weights(struct rig *r, double scale)
{
    rand_state = 42;
    for (int i = 0; i < r->model->num_params; i++) {
        const struct zt_param *p = r->model->params[i];

        for (int64_t j = 0; j < p->numel; j++)
            put(p->block->weights, r->dtype, p->offset_elems + j,
                p->ndim == 1 ? 1 + scale * rnd() : scale * rnd());
    }
}

__attribute__((unused)) static void rig_clear_grads(struct rig *r)
{
    for (int i = 0; i < r->model->num_blocks; i++)
        if (r->grads[i])
            memset(r->grads[i], 0, (size_t)r->model->blocks[i]->padded_elems * 4);
}

#endif
