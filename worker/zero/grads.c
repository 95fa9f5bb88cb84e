/*
 * grads.c -- gradients: where backward adds to, and how they are summed over the ranks.
 *
 *      backward -> accumulators                     whole, reduced once per step (0, 1)
 *      backward -> transient -> accumulators        reduced every micro-batch (2, 3, ...)
 *
 * Blocks whose gradients are complete fill a bucket; a full one is reduced, a collective
 * per block, straight from the flat buffers. With overlap_comm one bucket is on its way
 * while the next fills. Buckets above ENOUGH_ELEMS gain nothing (a message of that size
 * runs at full speed) and would keep gradients alive for longer, so they end there.
 */
#include <stdlib.h>
#include <string.h>

#include "common/trace.h"
#include "worker/zero/private.h"

#define ENOUGH_ELEMS ((int64_t)4 << 20)

static zt_err no_memory(struct zt_fault *fault)
{
    return zt_fault_set(fault, ZT_E_NOMEM, "gradients: no host memory");
}

void zt_grads_plan(struct zt_zero *z)
{
    const struct zt_zero_options *o = z->cfg.options;
    bool many = z->cfg.world > 1;

    z->every = many && (z->stage >= 2 || z->cfg.reduce_every_micro_batch);
    z->transient = (many && z->stage >= 2) || (z->every && z->cfg.micro_batches > 1) ||
                   o->grad_accum_dtype != ZT_F32;
    z->pre = many && o->prescale_gradients ? 1 / (float)z->cfg.world
                                           : 1 / (float)o->predivide_factor;
    z->post = 1 / z->pre;
}

zt_err zt_grads_open(struct zt_zero *z, struct zt_fault *fault)
{
    size_t n = (size_t)z->cfg.model->num_blocks + 1;

    z->filling.sends = calloc(n, sizeof(*z->filling.sends));
    z->flying.sends = calloc(n, sizeof(*z->flying.sends));
    return z->filling.sends && z->flying.sends ? ZT_OK : no_memory(fault);
}

void zt_grads_close(struct zt_zero *z)
{
    /* after a failure sums may be on their way: they write to memory that goes next */
    for (int i = 0; !z->planning && i < z->flying.num; i++) {
        zt_err rc = zt_comm_wait(z->cfg.comm, z->flying.sends[i].handle, NULL);

        (void)rc;
    }
    free(z->filling.sends);
    free(z->flying.sends);
}

/* ---- transient gradients ---- */

static zt_err take_transient(struct zt_zero *z, struct zt_block *b,
                             struct zt_fault *fault)
{
    void *p = NULL;
    zt_err rc = zt_pool_take(z->transient_pool, (size_t)b->padded_elems * sizeof(float),
                             &p, fault);

    if (!rc)
        rc = zt_zero_clear(z, p, ZT_F32, b->padded_elems, fault);
    if (rc)
        return zt_fault_context(fault, rc, "gradients of block %s", b->name);
    b->grads = p;
    return ZT_OK;
}

static void drop_transient(struct zt_zero *z, struct zt_block *b)
{
    zt_pool_free(z->transient_pool, b->grads);
    b->grads = NULL;
}

zt_err zt_grads_need(struct zt_zero *z, struct zt_block *b, struct zt_fault *fault)
{
    struct zt_block *n;
    zt_err rc = ZT_OK;

    for (int i = 0; !rc && z->transient && (n = zt_needed(b, i)); i++)
        if (n->wants_grads && n->padded_elems && !n->grads)
            rc = take_transient(z, n, fault);
    return rc;
}

/* ---- one block's reduction ---- */

/* The accumulators of what this rank keeps the sum of: its shard, at stage 0 all. */
static void *kept(const struct zt_zero *z, const struct zt_block *b, int64_t *begin,
                  int64_t *n)
{
    *begin = z->stage == 0 ? 0 : zt_shard_begin(z, b);
    *n = z->stage == 0 ? b->padded_elems : zt_shard_elems(z, b);
    return zt_region_at(z, &z->grads, b, *begin);
}

/* A copy in the type of communication, scaled down for the sum if so asked. */
static zt_err make_message(struct zt_zero *z, struct zt_send *s, const void *from,
                           zt_dtype dtype, struct zt_fault *fault)
{
    zt_dtype want = z->cfg.options->communication_dtype;
    int64_t n = s->block->padded_elems;
    void *p = NULL;
    zt_err rc =
        zt_pool_take(z->transient_pool, (size_t)n * zt_dtype_bytes(want), &p, fault);

    if (rc)
        return rc;
    s->buf = p;
    s->dtype = want;
    s->message = true;
    return zt_zero_axpby(z, from, dtype, p, want, n, z->pre, 0, fault);
}

static zt_err start_sum(struct zt_zero *z, struct zt_send *s, struct zt_fault *fault)
{
    const struct zt_block *b = s->block;
    size_t shard = (size_t)zt_shard_elems(z, b), all = (size_t)b->padded_elems;
    char *own = (char *)s->buf + (size_t)zt_shard_begin(z, b) * zt_dtype_bytes(s->dtype);
    float scale = s->dtype == ZT_F32 ? z->post : 1;
    int64_t begin, n;

    if (z->planning)
        return ZT_OK;
    if (z->stage == 0 || !z->cfg.options->reduce_scatter)
        return zt_all_reduce_start(z->cfg.comm, s->buf, s->buf, all, s->dtype, ZT_SUM,
                                   scale, &s->handle, fault);
    if (s->direct)
        own = kept(z, b, &begin, &n);
    return zt_reduce_scatter_start(z->cfg.comm, s->buf, own, shard, s->dtype, scale,
                                   &s->handle, fault);
}

/* Send a block's gradients, which are in `from`, on their way. */
static zt_err start_send(struct zt_zero *z, struct zt_send *s, struct zt_fault *fault)
{
    const struct zt_zero_options *o = z->cfg.options;
    struct zt_block *b = s->block;
    void *from = z->transient && z->every ? b->grads : zt_region_at(z, &z->grads, b, 0);
    zt_dtype dtype = z->transient && z->every ? ZT_F32 : z->grads.dtype;
    zt_err rc = ZT_OK;

    s->buf = from;
    s->dtype = dtype;
    s->message = false;
    if (o->communication_dtype != dtype) {
        rc = make_message(z, s, from, dtype, fault);
        if (!rc && from == b->grads && z->transient)
            drop_transient(z, b);
    } else if (z->pre != 1) {
        rc =
            zt_zero_axpby(z, from, dtype, from, dtype, b->padded_elems, z->pre, 0, fault);
    }
    /* the first sum of a step may replace what the accumulators hold */
    s->direct = z->every && z->transient && z->first && !s->message && z->stage >= 1 &&
                o->reduce_scatter && z->grads.dtype == dtype;
    return rc ? rc : start_sum(z, s, fault);
}

/* The sum is there: into the accumulators with it. */
static zt_err settle(struct zt_zero *z, struct zt_send *s, struct zt_fault *fault)
{
    struct zt_block *b = s->block;
    bool apart = z->transient && z->every;
    int64_t begin, n;
    void *to = kept(z, b, &begin, &n);
    const char *sum = (const char *)s->buf + (size_t)begin * zt_dtype_bytes(s->dtype);
    float alpha = s->dtype == ZT_F32 ? 1 : z->post;

    if (s->direct || (!s->message && !apart && alpha == 1))
        return ZT_OK;
    return zt_zero_axpby(z, sum, s->dtype, to, z->grads.dtype, n, alpha,
                         apart && !z->first ? 1 : 0, fault);
}

static zt_err finish_send(struct zt_zero *z, struct zt_send *s, struct zt_fault *fault)
{
    zt_err rc = ZT_OK;

    if (!z->planning) {
        zt_trace_begin("wait", "reduce");
        rc = zt_comm_wait(z->cfg.comm, s->handle, fault);
        zt_trace_end();
    }
    if (!rc)
        rc = settle(z, s, fault);
    if (rc)
        return zt_fault_context(fault, rc, "summing the gradients of block %s",
                                s->block->name);
    if (s->message)
        zt_pool_free(z->transient_pool, s->buf);
    else if (z->transient && z->every)
        drop_transient(z, s->block);
    return ZT_OK;
}

/* ---- buckets ---- */

static zt_err land(struct zt_zero *z, struct zt_fault *fault)
{
    zt_err rc = ZT_OK;

    for (int i = 0; !rc && i < z->flying.num; i++)
        rc = finish_send(z, &z->flying.sends[i], fault);
    if (!rc)
        z->flying.num = 0;
    return rc;
}

/* What has gathered in the bucket takes off, once the one before has landed. */
static zt_err flush(struct zt_zero *z, struct zt_fault *fault)
{
    struct zt_bucket full = z->filling;
    zt_err rc = land(z, fault);

    if (rc)
        return rc;
    z->filling = z->flying;
    z->filling.num = 0;
    z->filling.elems = 0;
    z->flying = full;
    for (int i = 0; !rc && i < full.num; i++) {
        rc = start_send(z, &full.sends[i], fault);
        if (!rc && !z->cfg.options->overlap_comm)
            rc = z->planning ? ZT_OK
                             : zt_comm_wait(z->cfg.comm, full.sends[i].handle, fault);
    }
    if (!rc && !z->cfg.options->overlap_comm)
        rc = land(z, fault);
    return rc;
}

static zt_err push(struct zt_zero *z, struct zt_block *b, struct zt_fault *fault)
{
    int64_t limit = z->cfg.options->reduce_bucket_size;

    z->filling.sends[z->filling.num++] = (struct zt_send){.block = b};
    z->filling.elems += b->padded_elems;
    limit = limit < ENOUGH_ELEMS ? limit : ENOUGH_ELEMS;
    return z->filling.elems >= limit ? flush(z, fault) : ZT_OK;
}

/* A micro-batch's gradients join what the step has so far, without the other ranks. */
static zt_err accumulate(struct zt_zero *z, struct zt_block *b, struct zt_fault *fault)
{
    zt_err rc =
        zt_zero_axpby(z, b->grads, ZT_F32, zt_region_at(z, &z->grads, b, 0),
                      z->grads.dtype, b->padded_elems, 1, z->first ? 0 : 1, fault);

    drop_transient(z, b);
    return rc;
}

zt_err zt_grads_ready(struct zt_zero *z, struct zt_block *b, struct zt_fault *fault)
{
    zt_err rc = ZT_OK;

    if (!b->padded_elems)
        return ZT_OK;
    if (z->transient && !b->grads) /* backward never came by: a sum of zeros */
        rc = take_transient(z, b, fault);
    if (!rc && z->transient && !z->every)
        rc = accumulate(z, b, fault);
    if (!rc && z->cfg.world > 1 && (z->every || z->last))
        rc = push(z, b, fault);
    return rc;
}

/* A parameter that the loss does not depend on is a mistake, where that is asked for. */
static zt_err check_reached(const struct zt_zero *z, struct zt_fault *fault)
{
    const struct zt_model *m = z->cfg.model;

    if (z->cfg.options->ignore_unused_parameters || z->planning)
        return ZT_OK;
    for (int i = 0; i < m->num_params; i++) {
        const struct zt_param *p = m->params[i];

        if (!p->reached && !(p->flags & ZT_FROZEN))
            return zt_fault_set(fault, ZT_E_PLUGIN,
                                "the loss does not depend on %s; freeze it (ZT_FROZEN), "
                                "or set zero_optimization.ignore_unused_parameters to "
                                "true",
                                p->name);
    }
    return ZT_OK;
}

zt_err zt_grads_end(struct zt_zero *z, struct zt_fault *fault)
{
    zt_err rc = check_reached(z, fault);

    if (!rc && z->filling.num)
        rc = flush(z, fault);
    return rc ? rc : land(z, fault);
}
