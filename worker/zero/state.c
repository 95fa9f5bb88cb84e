/* state.c -- the regions of a rank: which state lies where, and how much it is. */
#include <stdlib.h>
#include <string.h>

#include "common/trace.h"
#include "worker/zero/private.h"

/* The made-up address space of a plan's pools: never touched. */
#define PLAN_BASE  ((void *)((uintptr_t)1 << 46))
#define PLAN_BYTES ((size_t)1 << 45)

static size_t page_up(size_t bytes)
{
    return (bytes + 4095) & ~(size_t)4095;
}

/* ---- small things ---- */

zt_err zt_zero_axpby(struct zt_zero *z, const void *x, zt_dtype xt, void *y, zt_dtype yt,
                     int64_t n, float alpha, float beta, struct zt_fault *fault)
{
    struct zt_axpby_args a = {.x = zt_view_of((void *)x, xt, 1, &n),
                              .y = zt_view_of(y, yt, 1, &n),
                              .alpha = alpha,
                              .beta = beta};

    return n ? z->k->axpby(z->cfg.device, NULL, &a, fault) : ZT_OK;
}

zt_err zt_zero_clear(struct zt_zero *z, void *y, zt_dtype dtype, int64_t n,
                     struct zt_fault *fault)
{
    struct zt_fill_args a = {.y = zt_view_of(y, dtype, 1, &n)};

    return n ? z->k->fill(z->cfg.device, NULL, &a, fault) : ZT_OK;
}

struct zt_block *zt_needed(const struct zt_block *b, int i)
{
    if (i == 0)
        return (struct zt_block *)b;
    for (int k = 0, found = 0; k < b->num_shared; k++) {
        struct zt_block *owner = b->shared[k]->block;
        bool seen = owner == b;

        for (int j = 0; j < k && !seen; j++)
            seen = b->shared[j]->block == owner;
        if (!seen && ++found == i)
            return owner;
    }
    return NULL;
}

/* ---- memory ---- */

zt_err zt_zone_take(struct zt_zero *z, zt_zone zone, size_t bytes, void **out,
                    struct zt_fault *fault)
{
    if (z->planning || zone == ZT_ZONE_OWN)
        return z->cfg.backend->alloc(z->cfg.device, bytes, out, fault);
    if (zone == ZT_ZONE_NODE)
        return zt_comm_alloc_shared(z->cfg.comm, bytes, out, fault);
    return zt_comm_alloc(z->cfg.comm, bytes, out, fault);
}

void zt_zone_give(struct zt_zero *z, zt_zone zone, void *p, size_t bytes)
{
    if (p && (z->planning || zone == ZT_ZONE_OWN))
        z->cfg.backend->free(z->cfg.device, p, bytes);
    /* the communicator's memory goes with it */
}

zt_err zt_pool_take(struct zt_pool *p, size_t bytes, void **out, struct zt_fault *fault)
{
    if (p)
        return zt_pool_alloc(p, bytes, out, fault);
    return zt_fault_set(fault, ZT_E_PLUGIN,
                        "a block is called that the plan saw no call of: forward must do "
                        "the same in every pass");
}

/* ---- regions ---- */

/* Give every block its place; which ones and how much of each is in `at` and `whole`. */
static void place(struct zt_zero *z, struct zt_region *r)
{
    int64_t elems = 0;

    for (int i = 0; i < z->cfg.model->num_blocks; i++) {
        const struct zt_block *b = z->cfg.model->blocks[i];

        if (r->at[i] < 0)
            continue;
        r->at[i] = elems;
        elems += r->whole[i] ? b->padded_elems : zt_shard_elems(z, b);
    }
    r->bytes = page_up((size_t)elems * zt_dtype_bytes(r->dtype));
}

static zt_err new_region(struct zt_zero *z, struct zt_region *r, zt_dtype dtype,
                         zt_zone zone, bool frozen_too, bool whole,
                         struct zt_fault *fault)
{
    size_t n = (size_t)z->cfg.model->num_blocks + 1;

    r->dtype = dtype;
    r->zone = zone;
    r->at = calloc(n, sizeof(*r->at));
    r->whole = calloc(n, sizeof(*r->whole));
    if (!r->at || !r->whole)
        return zt_fault_set(fault, ZT_E_NOMEM, "model state: no host memory");
    for (int i = 0; i < z->cfg.model->num_blocks; i++) {
        r->at[i] = !frozen_too && z->cfg.model->blocks[i]->frozen ? -1 : 0;
        r->whole[i] = whole;
    }
    return ZT_OK;
}

static zt_err fill_region(struct zt_zero *z, struct zt_region *r, struct zt_fault *fault)
{
    void *p = NULL;
    zt_err rc;

    place(z, r);
    if (!r->bytes)
        return ZT_OK;
    rc = zt_zone_take(z, r->zone, r->bytes, &p, fault);
    r->base = p;
    return rc;
}

static void drop_region(struct zt_zero *z, struct zt_region *r)
{
    zt_zone_give(z, r->zone, r->base, r->bytes);
    free(r->at);
    free(r->whole);
}

void *zt_region_at(const struct zt_zero *z, const struct zt_region *r,
                   const struct zt_block *b, int64_t i)
{
    int64_t at = r->at ? r->at[b->index] : -1;

    if (at < 0 || !r->base)
        return NULL;
    if (!r->whole[b->index])
        i -= zt_shard_begin(z, b);
    return r->base + (size_t)(at + i) * zt_dtype_bytes(r->dtype);
}

/*
 * Stage 3: blocks of few parameters stay whole on every rank, since gathering them costs
 * more than holding them, until together they are as many as the model may keep.
 */
static void keep_small_blocks(struct zt_zero *z)
{
    const struct zt_zero_options *o = z->cfg.options;
    int64_t kept = 0;

    for (int i = 0; i < z->cfg.model->num_blocks; i++) {
        const struct zt_block *b = z->cfg.model->blocks[i];

        if (b->numel > o->param_persistence_threshold ||
            b->numel > o->model_persistence_threshold - kept)
            continue;
        z->weights.whole[i] = true;
        kept += b->numel;
    }
}

static zt_zone weights_zone(const struct zt_zero *z)
{
    if (z->stage == 0)
        return ZT_ZONE_OWN;
    return z->stage < 3 && z->cfg.options->share_node_weights ? ZT_ZONE_NODE
                                                              : ZT_ZONE_HEAP;
}

static zt_err open_weights(struct zt_zero *z, struct zt_fault *fault)
{
    zt_err rc = new_region(z, &z->weights, z->cfg.dtype, weights_zone(z), true,
                           z->stage < 3, fault);

    if (!rc && z->stage == 3)
        keep_small_blocks(z);
    return rc ? rc : fill_region(z, &z->weights, fault);
}

static zt_err open_training(struct zt_zero *z, struct zt_fault *fault)
{
    const struct zt_zero_options *o = z->cfg.options;
    /* accumulators of one's own gradients are what peers sum; else sums arrive there */
    bool summed = z->transient && z->every;
    zt_zone grads = !summed && z->cfg.world > 1 ? ZT_ZONE_HEAP : ZT_ZONE_OWN;
    zt_err rc = ZT_OK;

    z->has_master = z->cfg.dtype != ZT_F32;
    z->has_grads = true;
    if (z->has_master) {
        rc = new_region(z, &z->master, ZT_F32, ZT_ZONE_OWN, false, z->stage == 0, fault);
        if (!rc)
            rc = fill_region(z, &z->master, fault);
    }
    for (int k = 0; !rc && k < z->cfg.num_states; k++) {
        rc = new_region(z, &z->moments[k], ZT_F32, ZT_ZONE_OWN, false, z->stage == 0,
                        fault);
        if (!rc)
            rc = fill_region(z, &z->moments[k], fault);
    }
    if (!rc)
        rc = new_region(z, &z->grads, o->grad_accum_dtype, grads, false,
                        z->stage == 0 || !summed, fault);
    return rc ? rc : fill_region(z, &z->grads, fault);
}

/* Groups of neighbouring ranks with a second, coarser partition of the weights. */
static zt_err open_secondary(struct zt_zero *z, struct zt_fault *fault)
{
    int group = z->cfg.options->hpz_partition_size;
    const struct zt_model *m = z->cfg.model;
    int64_t elems = 0;
    void *p = NULL;
    zt_err rc =
        new_region(z, &z->secondary, z->cfg.dtype, ZT_ZONE_HEAP, true, false, fault);

    if (rc)
        return rc;
    for (int i = 0; i < m->num_blocks; i++) {
        bool gathered = zt_is_gathered(z, m->blocks[i]);

        z->secondary.at[i] = gathered ? elems : -1;
        elems += gathered ? m->blocks[i]->padded_elems / group : 0;
    }
    z->secondary.bytes = page_up((size_t)elems * zt_dtype_bytes(z->cfg.dtype));
    if (z->planning || !elems)
        return ZT_OK;
    rc = zt_comm_split(z->cfg.comm, z->cfg.rank / group, &z->near, fault);
    if (!rc)
        rc = zt_comm_alloc(z->near, z->secondary.bytes, &p, fault);
    z->secondary.base = p;
    return rc;
}

static void bind_blocks(struct zt_zero *z)
{
    for (int i = 0; i < z->cfg.model->num_blocks; i++) {
        struct zt_block *b = z->cfg.model->blocks[i];
        void *w = z->weights.whole[i] ? zt_region_at(z, &z->weights, b, 0) : NULL;
        float *g =
            z->transient || !z->has_grads ? NULL : zt_region_at(z, &z->grads, b, 0);

        zt_block_bind(b, w, g);
        b->wants_grads = z->has_grads && !b->frozen;
    }
}

/* ---- pools ---- */

static zt_err open_pool(struct zt_zero *z, zt_zone zone, size_t bytes, void **base,
                        struct zt_pool **pool, struct zt_fault *fault)
{
    zt_err rc;

    if (z->planning)
        return zt_pool_open(PLAN_BASE, PLAN_BYTES, pool, fault);
    if (!bytes)
        return ZT_OK;
    rc = zt_zone_take(z, zone, bytes, base, fault);
    if (!rc)
        rc = zt_pool_open(*base, bytes, pool, fault);
    if (!rc && z->cfg.staged)
        zt_pool_is_late(*pool);
    return rc;
}

/* ---- the whole ---- */

static zt_err open_all(struct zt_zero *z, struct zt_fault *fault)
{
    const struct zt_zero_config *cfg = &z->cfg;
    zt_err rc = open_weights(z, fault);

    if (!rc && cfg->training)
        rc = open_training(z, fault);
    if (!rc && z->hpz)
        rc = open_secondary(z, fault);
    if (!rc)
        rc = open_pool(z, ZT_ZONE_OWN, cfg->live_bytes, &z->live_base, &z->live_pool,
                       fault);
    if (!rc)
        rc = open_pool(z, ZT_ZONE_HEAP, cfg->transient_bytes, &z->transient_base,
                       &z->transient_pool, fault);
    if (!rc)
        rc = zt_gather_open(z, fault);
    if (!rc)
        rc = zt_publish_open(z, fault);
    if (!rc && cfg->training)
        rc = zt_grads_open(z, fault);
    if (!rc && cfg->training)
        rc = zt_update_open(z, fault);
    if (!rc)
        rc = zt_values_open(z, fault);
    if (!rc)
        bind_blocks(z);
    return rc;
}

zt_err zt_zero_open(const struct zt_zero_config *cfg, struct zt_zero **out,
                    struct zt_fault *fault)
{
    struct zt_zero *z = calloc(1, sizeof(*z));
    zt_err rc;

    if (!z)
        return zt_fault_set(fault, ZT_E_NOMEM, "model state: no host memory");
    z->cfg = *cfg;
    z->host = cfg->comm ? zt_comm_host(cfg->comm) : NULL;
    z->k = cfg->backend->kernels;
    z->stage = cfg->world > 1 ? cfg->options->stage : 0;
    z->hpz = z->stage == 3 && cfg->options->hpz_partition_size > 1;
    z->planning = cfg->comm == NULL;
    zt_grads_plan(z);
    rc = open_all(z, fault);
    if (rc) {
        zt_zero_close(z);
        return rc;
    }
    *out = z;
    return ZT_OK;
}

void zt_zero_close(struct zt_zero *z)
{
    if (!z)
        return;
    zt_values_close(z);
    zt_update_close(z);
    zt_grads_close(z);
    zt_publish_close(z);
    zt_gather_close(z);
    zt_pool_close(z->transient_pool);
    zt_pool_close(z->live_pool);
    zt_zone_give(z, ZT_ZONE_HEAP, z->transient_base, z->cfg.transient_bytes);
    zt_zone_give(z, ZT_ZONE_OWN, z->live_base, z->cfg.live_bytes);
    zt_comm_close(z->near);
    free(z->secondary.at);
    free(z->secondary.whole);
    drop_region(z, &z->grads);
    for (int k = 0; k < z->cfg.num_states; k++)
        drop_region(z, &z->moments[k]);
    drop_region(z, &z->master);
    drop_region(z, &z->weights);
    free(z);
}

/* ---- figures ---- */

static size_t pool_bytes(const struct zt_pool *p)
{
    return p ? page_up(zt_pool_peak(p)) : 0;
}

struct zt_zero_bytes zt_zero_measure(const struct zt_zero *z)
{
    size_t others = (size_t)z->cfg.world - 1;
    struct zt_zero_bytes b = {
        .weights = z->weights.bytes,
        .master = z->master.bytes,
        .grads = z->grads.bytes,
        .live = pool_bytes(z->live_pool),
        .transient = pool_bytes(z->transient_pool),
        .secondary = z->secondary.bytes,
        .staging = zt_values_staging_bytes(z),
    };

    for (int k = 0; k < z->cfg.num_states; k++)
        b.moments += z->moments[k].bytes;
    if (z->piece)
        b.grads += zt_update_piece_bytes();
    if (z->weights.zone == ZT_ZONE_NODE) {
        b.weights = page_up(z->weights.bytes / (others + 1));
        b.peers = z->weights.bytes - b.weights;
    } else if (z->weights.zone == ZT_ZONE_HEAP) {
        b.peers = others * z->weights.bytes;
    }
    if (z->grads.zone == ZT_ZONE_HEAP)
        b.peers += others * z->grads.bytes;
    b.peers += others * b.transient;
    if (b.secondary)
        b.peers += (size_t)(z->cfg.options->hpz_partition_size - 1) * b.secondary;
    if (z->cfg.staged) /* devices send: nobody maps the memory of another */
        b.peers = 0;
    return b;
}

size_t zt_zero_total(const struct zt_zero_bytes *b)
{
    return b->weights + b->master + b->grads + b->moments + b->live + b->transient +
           b->secondary + b->staging;
}

int64_t zt_zero_live_peak(const struct zt_zero *z)
{
    return z->live_peak;
}

/* ---- hooks ---- */

static zt_err on_enter(void *ctx, struct zt_block *b, bool backward, struct zt_fault *f)
{
    struct zt_zero *z = ctx;
    zt_err rc;

    z->in_backward = backward;
    rc = zt_publish_await(z, b, f);
    if (!rc)
        rc = zt_gather_enter(z, b, f);
    if (!rc && backward)
        rc = zt_grads_need(z, b, f);
    if (!z->planning)
        zt_trace_begin(backward ? "backward" : "forward", b->name);
    return rc;
}

static zt_err on_leave(void *ctx, struct zt_block *b, bool backward, struct zt_fault *f)
{
    struct zt_zero *z = ctx;

    (void)backward;
    if (!z->planning)
        zt_trace_end();
    return zt_gather_leave(z, b, f);
}

static zt_err on_ready(void *ctx, struct zt_block *b, struct zt_fault *f)
{
    return zt_grads_ready(ctx, b, f);
}

struct zt_step_hooks zt_zero_hooks(struct zt_zero *z)
{
    return (struct zt_step_hooks){
        .ctx = z,
        .block_enter = on_enter,
        .block_leave = on_leave,
        .grads_ready = on_ready,
    };
}

void zt_zero_pass_begin(struct zt_zero *z, zt_mode mode, int64_t micro)
{
    z->mode = mode;
    z->first = micro == 0;
    z->last = micro == z->cfg.micro_batches - 1;
    z->in_backward = false;
    for (int i = 0; i < z->cfg.model->num_params; i++)
        z->cfg.model->params[i]->reached = false;
    zt_gather_begin(z);
}

zt_err zt_zero_pass_end(struct zt_zero *z, struct zt_fault *fault)
{
    zt_err rc = ZT_OK;

    if (z->mode == ZT_MODE_TRAIN)
        rc = zt_grads_end(z, fault);
    return rc ? rc : zt_gather_end(z, fault);
}
