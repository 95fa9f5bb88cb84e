#include "worker/engine/state.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

static size_t page_up(size_t bytes)
{
    return (bytes + 4095) & ~(size_t)4095;
}

static size_t f32_bytes(int64_t elems)
{
    return page_up((size_t)elems * sizeof(float));
}

static int64_t sum_elems(const struct zt_model *m, bool trainable_only)
{
    int64_t n = 0;

    for (int i = 0; i < m->num_blocks; i++)
        if (!trainable_only || !m->blocks[i]->frozen)
            n += m->blocks[i]->padded_elems;
    return n;
}

static size_t weight_bytes(const struct zt_state_config *cfg)
{
    return page_up((size_t)sum_elems(cfg->model, false) * zt_dtype_bytes(cfg->dtype));
}

struct zt_state_bytes zt_state_measure(const struct zt_state_config *cfg)
{
    size_t f32 = f32_bytes(sum_elems(cfg->model, true));
    size_t sharers = cfg->sharers > 1 ? (size_t)cfg->sharers : 1;
    struct zt_state_bytes b = {.weights = page_up(weight_bytes(cfg) / sharers)};

    if (!cfg->training)
        return b;
    b.master = cfg->dtype == ZT_F32 ? 0 : page_up(f32 / sharers);
    b.grads = f32 * (cfg->micro_grads ? 2 : 1);
    b.moments = page_up(f32 * (size_t)cfg->num_states / sharers);
    return b;
}

size_t zt_state_shared_bytes(const struct zt_state_config *cfg)
{
    size_t f32 = f32_bytes(sum_elems(cfg->model, true));
    size_t regions = (size_t)cfg->num_states + (cfg->dtype != ZT_F32);

    if (cfg->sharers <= 1)
        return 0;
    return weight_bytes(cfg) + (cfg->training ? f32 * regions : 0);
}

/* A region of the backend, or of the communicator: shared, or one that peers can read. */
static zt_err take(struct zt_state *st, size_t bytes, bool grads, void **out,
                   struct zt_fault *fault)
{
    if (grads && st->comm)
        return zt_comm_alloc(st->comm, bytes, out, fault);
    if (!grads && st->shared)
        return zt_comm_alloc_shared(st->comm, bytes, out, fault);
    return st->backend->alloc(st->device, bytes, out, fault);
}

static void give_back(struct zt_state *st, void *region, size_t bytes, bool grads)
{
    if (region && !(grads ? st->comm != NULL : st->shared))
        st->backend->free(st->device, region, bytes);
}

void zt_state_close(struct zt_state *st)
{
    size_t f32;

    if (!st)
        return;
    f32 = f32_bytes(st->train_elems);
    for (int k = 0; k < st->num_states; k++)
        give_back(st, st->moments[k], f32, false);
    give_back(st, st->master, f32, false);
    give_back(st, st->grads, f32, true);
    give_back(st, st->micro_grads, f32, true);
    give_back(st, st->weights, page_up((size_t)st->elems * zt_dtype_bytes(st->dtype)),
              false);
    free(st->base);
    free(st->train_base);
    free(st);
}

void *zt_state_weights(const struct zt_state *st, const struct zt_block *b)
{
    return (char *)st->weights + (size_t)st->base[b->index] * zt_dtype_bytes(st->dtype);
}

static float *slice(const struct zt_state *st, float *region, const struct zt_block *b)
{
    int64_t at = st->train_base[b->index];

    return region && at >= 0 ? region + at : NULL;
}

float *zt_state_master(const struct zt_state *st, const struct zt_block *b)
{
    if (st->dtype == ZT_F32)
        return zt_state_weights(st, b);
    return slice(st, st->master, b);
}

float *zt_state_grads(const struct zt_state *st, const struct zt_block *b)
{
    return slice(st, st->grads, b);
}

float *zt_state_moment(const struct zt_state *st, const struct zt_block *b, int k)
{
    return slice(st, st->moments[k], b);
}

/* Backward adds to `grads` of every trainable block. */
static void bind_blocks(struct zt_state *st, float *grads)
{
    for (int i = 0; i < st->model->num_blocks; i++) {
        struct zt_block *b = st->model->blocks[i];

        zt_block_bind(b, zt_state_weights(st, b), slice(st, grads, b));
    }
}

static zt_err take_f32(struct zt_state *st, bool grads, float **out,
                       struct zt_fault *fault)
{
    void *p = NULL;
    zt_err rc = take(st, f32_bytes(st->train_elems), grads, &p, fault);

    if (!rc)
        *out = p;
    return rc;
}

static zt_err take_training(struct zt_state *st, const struct zt_state_config *cfg,
                            struct zt_fault *fault)
{
    zt_err rc = ZT_OK;

    if (cfg->dtype != ZT_F32)
        rc = take_f32(st, false, &st->master, fault);
    for (int k = 0; !rc && k < cfg->num_states; k++)
        rc = take_f32(st, false, &st->moments[k], fault);
    if (!rc)
        rc = take_f32(st, true, &st->grads, fault);
    if (!rc && cfg->micro_grads)
        rc = take_f32(st, true, &st->micro_grads, fault);
    return rc;
}

/* Give every block its place in the regions. */
static zt_err place_blocks(struct zt_state *st, struct zt_fault *fault)
{
    size_t n = (size_t)st->model->num_blocks + 1;

    st->base = calloc(n, sizeof(*st->base));
    st->train_base = calloc(n, sizeof(*st->train_base));
    if (!st->base || !st->train_base)
        return zt_fault_set(fault, ZT_E_NOMEM, "model state: no host memory");
    for (int i = 0; i < st->model->num_blocks; i++) {
        const struct zt_block *b = st->model->blocks[i];

        st->base[i] = st->elems;
        st->elems += b->padded_elems;
        st->train_base[i] = b->frozen ? -1 : st->train_elems;
        st->train_elems += b->frozen ? 0 : b->padded_elems;
    }
    return ZT_OK;
}

zt_err zt_state_open(const struct zt_state_config *cfg, struct zt_state **out,
                     struct zt_fault *fault)
{
    struct zt_state *st = calloc(1, sizeof(*st));
    zt_err rc;

    if (!st)
        return zt_fault_set(fault, ZT_E_NOMEM, "model state: no host memory");
    st->backend = cfg->backend;
    st->device = cfg->device;
    st->model = cfg->model;
    st->dtype = cfg->dtype;
    st->training = cfg->training;
    st->num_states = cfg->training ? cfg->num_states : 0;
    st->comm = cfg->comm;
    st->shared = cfg->comm && cfg->sharers > 1;
    rc = place_blocks(st, fault);
    if (!rc)
        rc = take(st, weight_bytes(cfg), false, &st->weights, fault);
    if (!rc && cfg->training)
        rc = take_training(st, cfg, fault);
    if (rc) {
        zt_state_close(st);
        return rc;
    }
    bind_blocks(st, st->micro_grads ? st->micro_grads : st->grads);
    *out = st;
    return ZT_OK;
}

/* ---- initial values ---- */

static zt_err fill_param(struct zt_state *st, const struct zt_param *p, uint64_t seed,
                         float *dst, struct zt_fault *fault)
{
    const struct zt_kernels *k = st->backend->kernels;
    struct zt_view y = zt_view_of(dst, ZT_F32, 1, &p->numel);

    if (p->init.kind == ZT_INIT_NORMAL || p->init.kind == ZT_INIT_UNIFORM) {
        struct zt_random_args a = {
            .y = y,
            .rng = {.seed = seed, .stream = zt_param_init_stream(p)},
            .normal = p->init.kind == ZT_INIT_NORMAL,
            .a = p->init.a,
            .b = p->init.b,
        };
        return k->random(st->device, NULL, &a, fault);
    }
    struct zt_fill_args f = {.y = y,
                             .value = p->init.kind == ZT_INIT_CONSTANT ? p->init.a : 0};
    return k->fill(st->device, NULL, &f, fault);
}

bool zt_state_initialises(const struct zt_state *st, const struct zt_param *p)
{
    return !st->shared || p->index % zt_comm_world(st->comm) == zt_comm_rank(st->comm);
}

zt_err zt_state_set(struct zt_state *st, const struct zt_param *p, const float *values,
                    struct zt_fault *fault)
{
    const struct zt_kernels *k = st->backend->kernels;
    size_t width = zt_dtype_bytes(st->dtype);
    float *master = zt_state_master(st, p->block);
    struct zt_axpby_args a = {.x = zt_view_of((void *)values, ZT_F32, 1, &p->numel),
                              .alpha = 1};
    zt_err rc = ZT_OK;

    if (master) {
        a.y = zt_view_of(master + p->offset_elems, ZT_F32, 1, &p->numel);
        rc = k->axpby(st->device, NULL, &a, fault);
    }
    if (!rc && (void *)master != zt_state_weights(st, p->block)) {
        a.y = zt_view_of((char *)zt_state_weights(st, p->block) +
                             (size_t)p->offset_elems * width,
                         st->dtype, 1, &p->numel);
        rc = k->axpby(st->device, NULL, &a, fault);
    }
    return rc;
}

zt_err zt_state_init(struct zt_state *st, uint64_t seed, struct zt_fault *fault)
{
    int64_t most = 0;
    void *tmp = NULL;
    zt_err rc;

    for (int i = 0; i < st->model->num_params; i++)
        if (st->model->params[i]->numel > most)
            most = st->model->params[i]->numel;
    rc = st->backend->alloc(st->device, f32_bytes(most), &tmp, fault);
    for (int i = 0; !rc && i < st->model->num_params; i++) {
        const struct zt_param *p = st->model->params[i];

        if (!zt_state_initialises(st, p))
            continue;
        rc = fill_param(st, p, seed, tmp, fault);
        if (!rc)
            rc = zt_state_set(st, p, tmp, fault);
        if (rc)
            rc = zt_fault_context(fault, rc, "initial values of %s", p->name);
    }
    if (!rc)
        rc = st->backend->sync(st->device, NULL, fault);
    if (tmp)
        st->backend->free(st->device, tmp, f32_bytes(most));
    return rc;
}

/* `count` fp32 values of a block's flat buffer from element `at`. */
static zt_err get_flat(const struct zt_state *st, const struct zt_block *b, int64_t at,
                       int64_t count, float *values, struct zt_fault *fault)
{
    const float *master = zt_state_master(st, b);

    if (master) {
        memcpy(values, master + at, (size_t)count * sizeof(float));
        return ZT_OK;
    }
    struct zt_axpby_args a = {.x = zt_view_of((char *)zt_state_weights(st, b) +
                                                  (size_t)at * zt_dtype_bytes(st->dtype),
                                              st->dtype, 1, &count),
                              .y = zt_view_of(values, ZT_F32, 1, &count),
                              .alpha = 1};
    return st->backend->kernels->axpby(st->device, NULL, &a, fault);
}

zt_err zt_state_get(const struct zt_state *st, const struct zt_param *p, int64_t from,
                    int64_t count, float *values, struct zt_fault *fault)
{
    return get_flat(st, p->block, p->offset_elems + from, count, values, fault);
}

zt_err zt_state_fingerprint(const struct zt_state *st, uint64_t *out,
                            struct zt_fault *fault)
{
    float chunk[ZT_NORM_CHUNK];
    uint64_t sum = 0;

    for (int i = 0; i < st->model->num_blocks; i++) {
        const struct zt_block *b = st->model->blocks[i];
        const struct zt_param *last = b->num_params ? b->params[b->num_params - 1] : NULL;
        int64_t end = last ? last->offset_elems + last->numel : 0;

        for (int64_t c = 0; c * ZT_NORM_CHUNK < end; c++) {
            zt_err rc = get_flat(st, b, c * ZT_NORM_CHUNK, ZT_NORM_CHUNK, chunk, fault);

            if (rc)
                return rc;
            sum += XXH3_64bits_withSeed(chunk, sizeof(chunk),
                                        (uint64_t)i << 40 | (uint64_t)c);
        }
    }
    *out = sum;
    return ZT_OK;
}
