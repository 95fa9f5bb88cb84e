/*
 * gradients.c -- gradients: where backward adds to, and how they are summed over the ranks.
 *
 *      backward -> accumulators                     whole, reduced once per step (0, 1)
 *      backward -> transient -> accumulators        reduced every micro-batch (2, 3, ...)
 *      accumulators -> transient <- backward        offloaded, reduced once per step (1)
 *      backward -> accumulators, lent meanwhile     the same of one rank, where the tier lends them
 *
 * The third way gives the bits of the first: backward adds to the same values, in buffers
 * that are on the device only while backward is at their block. So does the fourth, which copies nothing.
 *
 * Blocks whose gradients are complete fill a bucket; a full one is reduced, a collective
 * per block, straight from the flat buffers. With overlap_comm one bucket is in
 * flight while the next is pending. Buckets above ENOUGH_ELEMS gain nothing (a message of that size
 * runs at full speed) and would keep gradients alive for longer, so they end there.
 */
#include <stdlib.h>
#include <string.h>

#include "common/trace/trace.h"
#include "worker/zero/private.h"

#define ENOUGH_ELEMS ((int64_t)4 << 20)

static zt_err no_memory(struct zt_fault *fault)
{
    return zt_fault_set(fault, ZT_E_NOMEM, "gradients: no host memory");
}

void zt_grads_plan(struct zt_zero *z)
{
    const struct zt_zero_options *o = z->cfg.options;
    const struct zt_tier *tier = z->cfg.tiers[ZT_STATE_GRADIENTS];
    bool many = z->cfg.world > 1, moved = tier && !tier->in_place;

    /* of one micro-batch that way is the cheaper, or rounds to 16 bits where stages 2 and 3 do */
    z->reduce_every =
        many && (z->stage >= 2 || z->cfg.reduce_every_micro_batch ||
                 (z->cfg.micro_batches == 1 && (moved || o->grad_accum_dtype != ZT_F32)));
    z->transient = (many && z->stage >= 2) ||
                   (z->reduce_every && z->cfg.micro_batches > 1) || moved ||
                   o->grad_accum_dtype != ZT_F32;
    z->carried = moved && !z->reduce_every && o->grad_accum_dtype == ZT_F32;
    z->prescale = many && o->prescale_gradients ? 1 / (float)z->cfg.world
                                                : 1 / (float)o->predivide_factor;
    z->postscale = 1 / z->prescale;
}

zt_err zt_grads_open(struct zt_zero *z, struct zt_fault *fault)
{
    size_t n = (size_t)z->cfg.model->num_blocks + 1;

    z->pending.reductions = calloc(n, sizeof(*z->pending.reductions));
    z->in_flight.reductions = calloc(n, sizeof(*z->in_flight.reductions));
    z->lent = calloc(n, sizeof(*z->lent));
    return z->pending.reductions && z->in_flight.reductions && z->lent ? ZT_OK
                                                                       : no_memory(fault);
}

void zt_grads_close(struct zt_zero *z)
{
    /* after a failure sums may be in flight: they write to memory that is freed next */
    for (int i = 0; i < z->in_flight.num; i++) {
        struct zt_reduction *s = &z->in_flight.reductions[i];
        zt_err rc = z->planning ? ZT_OK : zt_comm_wait(z->cfg.comm, s->handle, NULL);

        rc = zt_state_commit(&s->accumulators, rc, NULL);
        (void)rc;
    }
    for (int i = 0; z->lent && i < z->cfg.model->num_blocks; i++) {
        zt_err rc = zt_state_commit(&z->lent[i], ZT_E_CANCELLED, NULL); /* of no use */

        (void)rc;
    }
    free(z->lent);
    free(z->pending.reductions);
    free(z->in_flight.reductions);
}

/* ---- transient gradients ---- */

/* What the micro-batches before left in the accumulators. */
static zt_err load_accumulators(struct zt_zero *z, const struct zt_block *b, float *to,
                                struct zt_fault *fault)
{
    zt_err rc = ZT_OK;

    for (int64_t at = 0; !rc && at < b->padded_elems;) {
        struct zt_piece from;

        rc = zt_state_acquire(z, ZT_STATE_GRADIENTS, b, at, b->padded_elems - at, ZT_READ,
                              &from, fault);
        if (rc)
            return rc;
        rc = z->cfg.backend->copy(z->cfg.device, NULL, to + at, from.data,
                                  (size_t)from.n * sizeof(float), fault);
        at += from.n;
        rc = zt_state_commit(&from, rc, fault);
    }
    return rc;
}

/* Zeros from *begin to the parameter p (NULL: to the block's end), whose end is next. */
static zt_err clear_up_to(struct zt_zero *z, const struct zt_block *b,
                          const struct zt_param *p, int64_t *begin,
                          struct zt_fault *fault)
{
    int64_t end = p ? p->offset_elems : b->padded_elems;
    zt_err rc = end > *begin
                    ? zt_zero_clear(z, b->grads + *begin, ZT_F32, end - *begin, fault)
                    : ZT_OK;

    *begin = p ? end + p->numel : end;
    return rc;
}

/* Backward is to replace what is there of every parameter that it computes gradients of. */
static void mark_new(struct zt_block *b)
{
    for (int i = 0; i < b->num_params; i++)
        b->params[i]->is_new = !(b->params[i]->flags & ZT_FROZEN);
}

/* What backward will not replace, in memory that holds anything: frozen parameters, and what
 * lies between parameters. */
static zt_err clear_rest(struct zt_zero *z, const struct zt_block *b,
                         struct zt_fault *fault)
{
    int64_t begin = 0;
    zt_err rc = ZT_OK;

    for (int i = 0; !rc && i < b->num_params; i++)
        if (b->params[i]->is_new)
            rc = clear_up_to(z, b, b->params[i], &begin, fault);
    return rc ? rc : clear_up_to(z, b, NULL, &begin, fault);
}

/* What backward has not reached of a block whose gradients are complete. */
static zt_err clear_unreached(struct zt_zero *z, const struct zt_block *b,
                              struct zt_fault *fault)
{
    zt_err rc = ZT_OK;

    for (int i = 0; !rc && i < b->num_params; i++) {
        struct zt_param *p = b->params[i];

        if (!p->is_new)
            continue;
        p->is_new = false;
        rc = zt_zero_clear(z, b->grads + p->offset_elems, ZT_F32, p->numel, fault);
    }
    return rc;
}

void zt_grads_begin(struct zt_zero *z)
{
    const struct zt_model *m = z->cfg.model;

    for (int i = 0; i < m->num_blocks && !z->transient && z->first_micro; i++)
        if (m->blocks[i]->requires_grads)
            mark_new(m->blocks[i]); /* all else in accumulators is zero and stays so */
}

/* Whether backward adds to the accumulators where they are, which no other rank has a part in. */
static bool is_lent(const struct zt_zero *z, const struct zt_block *b)
{
    return z->carried && z->cfg.world == 1 && zt_state_lends(z, ZT_STATE_GRADIENTS, b);
}

/* Memory for the gradients of a block that backward is at, with what the accumulators hold, or with
 * anything. */
static zt_err place_transient(struct zt_zero *z, struct zt_block *b, bool loaded,
                              struct zt_fault *fault)
{
    struct zt_piece *lent = &z->lent[b->index];
    void *p = NULL;
    zt_err rc;

    if (is_lent(z, b)) {
        rc = zt_state_acquire_all(z, ZT_STATE_GRADIENTS, b,
                                  loaded ? ZT_READ_WRITE : ZT_WRITE, lent, fault);
        b->grads = rc ? NULL : lent->data;
        return rc;
    }
    rc = zt_zero_pool_alloc(z->transient_pool, (size_t)b->padded_elems * sizeof(float),
                            &p, fault);
    b->grads = p;
    return rc || !loaded ? rc : load_accumulators(z, b, b->grads, fault);
}

static zt_err alloc_transient(struct zt_zero *z, struct zt_block *b,
                              struct zt_fault *fault)
{
    bool loaded = z->carried && !z->first_micro;
    zt_err rc = place_transient(z, b, loaded, fault);

    if (!rc && !loaded) {
        mark_new(b);
        rc = clear_rest(z, b, fault);
    }
    return rc ? zt_fault_context(fault, rc, "gradients of block %s", b->name) : ZT_OK;
}

static void free_transient(struct zt_zero *z, struct zt_block *b)
{
    zt_pool_free(z->transient_pool, b->grads);
    b->grads = NULL;
}

zt_err zt_grads_alloc(struct zt_zero *z, struct zt_block *b, struct zt_fault *fault)
{
    struct zt_block *n;
    zt_err rc = ZT_OK;

    for (int i = 0; !rc && z->transient && (n = zt_needed_block(b, i)); i++)
        if (n->requires_grads && n->padded_elems && !n->grads)
            rc = alloc_transient(z, n, fault);
    return rc;
}

/* ---- one block's reduction ---- */

/* Sums of what backward left in transient buffers are added to the accumulators; else
 * the accumulators themselves are summed over the ranks. */
static bool reduces_transient(const struct zt_zero *z)
{
    return z->transient && (z->reduce_every || z->carried);
}

/* The block's gradients of the step are complete in this piece; of those that leave the norm is made
 * on their way. */
static zt_err add_to_norm(struct zt_zero *z, const struct zt_block *b,
                          const struct zt_piece *p, struct zt_fault *fault)
{
    return z->last_micro && !zt_state_in_place(z, ZT_STATE_GRADIENTS, b)
               ? zt_norm_add(z, b, p, fault)
               : ZT_OK;
}

/* accumulators = alpha * x + beta * accumulators, elements [begin, begin + n) */
static zt_err add_to_accumulators(struct zt_zero *z, const struct zt_block *b,
                                  int64_t begin, int64_t n, const void *x, zt_dtype dtype,
                                  float alpha, float beta, struct zt_fault *fault)
{
    zt_err rc = ZT_OK;

    for (int64_t done = 0; !rc && done < n;) {
        const char *from = (const char *)x + (size_t)done * zt_dtype_bytes(dtype);
        struct zt_piece to;

        rc = zt_state_acquire(z, ZT_STATE_GRADIENTS, b, begin + done, n - done,
                              beta == 0 ? ZT_WRITE : ZT_READ_WRITE, &to, fault);
        if (rc)
            return rc;
        done += to.n;
        rc = zt_zero_axpby(z, from, dtype, to.data, to.dtype, to.n, alpha, beta, fault);
        if (!rc)
            rc = add_to_norm(z, b, &to, fault);
        rc = zt_state_commit(&to, rc, fault);
    }
    return rc;
}

/* A copy in the type of communication, scaled down for the sum if so asked. */
static zt_err make_message(struct zt_zero *z, struct zt_reduction *s, const void *from,
                           zt_dtype dtype, struct zt_fault *fault)
{
    zt_dtype want = z->cfg.options->communication_dtype;
    int64_t n = s->block->padded_elems;
    void *p = NULL;
    zt_err rc = zt_zero_pool_alloc(z->transient_pool, (size_t)n * zt_dtype_bytes(want),
                                   &p, fault);

    if (rc)
        return rc;
    s->buf = p;
    s->dtype = want;
    s->message = true;
    return zt_zero_axpby(z, from, dtype, p, want, n, z->prescale, 0, fault);
}

/* Whether each rank gets its shard of a sum; else all get all of it. */
static bool is_scattered(const struct zt_zero *z)
{
    return z->stage > 0 && z->cfg.options->reduce_scatter;
}

/* What a plan would sum. */
static void count_sum(struct zt_zero *z, const struct zt_reduction *s)
{
    double bytes = (double)s->block->padded_elems * (double)zt_dtype_bytes(s->dtype);

    z->traffic.reduced += bytes;
    z->traffic.gathered += is_scattered(z) ? 0 : bytes;
}

static zt_err start_sum(struct zt_zero *z, struct zt_reduction *s, struct zt_fault *fault)
{
    const struct zt_block *b = s->block;
    size_t shard = (size_t)zt_shard_elems(z, b), all = (size_t)b->padded_elems;
    char *own = (char *)s->buf + (size_t)zt_shard_begin(z, b) * zt_dtype_bytes(s->dtype);
    float scale = s->dtype == ZT_F32 ? z->postscale : 1;

    if (z->planning) {
        count_sum(z, s);
        return ZT_OK;
    }
    if (!is_scattered(z))
        return zt_all_reduce_start(z->cfg.comm, s->buf, s->buf, all, s->dtype, ZT_SUM,
                                   scale, &s->handle, fault);
    if (s->direct)
        own = s->accumulators.data;
    return zt_reduce_scatter_start(z->cfg.comm, s->buf, own, shard, s->dtype, scale,
                                   &s->handle, fault);
}

/* The first sum of a step may replace what the accumulators hold. */
static bool is_direct(const struct zt_zero *z, const struct zt_reduction *s)
{
    return z->reduce_every && z->transient && z->first_micro && !s->message &&
           z->stage >= 1 && z->cfg.options->reduce_scatter &&
           zt_state_in_place(z, ZT_STATE_GRADIENTS, s->block) &&
           zt_state_dtype(z, ZT_STATE_GRADIENTS) == s->dtype;
}

/* What is reduced: transient gradients, or the accumulators; of those a piece is held
 * until the reduction is finished. */
static zt_err choose_buffer(struct zt_zero *z, struct zt_reduction *s,
                            struct zt_fault *fault)
{
    zt_err rc;

    if (reduces_transient(z)) {
        s->buf = s->block->grads;
        s->dtype = ZT_F32;
        return ZT_OK;
    }
    rc = zt_state_acquire_all(z, ZT_STATE_GRADIENTS, s->block, ZT_READ_WRITE,
                              &s->accumulators, fault);
    s->buf = s->accumulators.data;
    s->dtype = s->accumulators.dtype;
    return rc;
}

static zt_err start_reduction(struct zt_zero *z, struct zt_reduction *s,
                              struct zt_fault *fault)
{
    const struct zt_zero_options *o = z->cfg.options;
    struct zt_block *b = s->block;
    zt_err rc = choose_buffer(z, s, fault);

    if (rc)
        return rc;
    if (o->communication_dtype != s->dtype) {
        rc = make_message(z, s, s->buf, s->dtype, fault);
        if (!rc && reduces_transient(z))
            free_transient(z, b);
    } else if (z->prescale != 1) {
        rc = zt_zero_axpby(z, s->buf, s->dtype, s->buf, s->dtype, b->padded_elems,
                           z->prescale, 0, fault);
    }
    s->direct = is_direct(z, s);
    if (!rc && s->direct)
        rc = zt_state_acquire_all(z, ZT_STATE_GRADIENTS, b, ZT_WRITE, &s->accumulators,
                                  fault);
    return rc ? rc : start_sum(z, s, fault);
}

/* The sum has arrived: add it to the accumulators, unless it is there already. */
static zt_err add_sum(struct zt_zero *z, struct zt_reduction *s, struct zt_fault *fault)
{
    struct zt_block *b = s->block;
    int64_t begin = z->stage == 0 ? 0 : zt_shard_begin(z, b);
    int64_t n = z->stage == 0 ? b->padded_elems : zt_shard_elems(z, b);
    const char *sum = (const char *)s->buf + (size_t)begin * zt_dtype_bytes(s->dtype);
    float alpha = s->dtype == ZT_F32 ? 1 : z->postscale;
    float beta = reduces_transient(z) && !z->first_micro && !z->carried ? 1 : 0;
    zt_err rc = ZT_OK;

    if (!s->direct && (s->message || reduces_transient(z) || alpha != 1))
        rc = add_to_accumulators(z, b, begin, n, sum, s->dtype, alpha, beta, fault);
    return zt_state_commit(&s->accumulators, rc, fault);
}

static zt_err finish_reduction(struct zt_zero *z, struct zt_reduction *s,
                               struct zt_fault *fault)
{
    zt_err rc = ZT_OK;

    if (!z->planning) {
        zt_trace_begin("wait", "reduce");
        rc = zt_comm_wait(z->cfg.comm, s->handle, fault);
        zt_trace_end();
    }
    if (!rc)
        rc = add_sum(z, s, fault);
    if (rc)
        return zt_fault_context(fault, rc, "summing the gradients of block %s",
                                s->block->name);
    if (s->message)
        zt_pool_free(z->transient_pool, s->buf);
    else if (reduces_transient(z))
        free_transient(z, s->block);
    return ZT_OK;
}

/* ---- buckets ---- */

static zt_err wait_in_flight(struct zt_zero *z, struct zt_fault *fault)
{
    zt_err rc = ZT_OK;

    for (int i = 0; !rc && i < z->in_flight.num; i++)
        rc = finish_reduction(z, &z->in_flight.reductions[i], fault);
    if (!rc)
        z->in_flight.num = 0;
    return rc;
}

/* Start the reductions of the pending bucket, once the one in flight has finished. */
static zt_err start_bucket(struct zt_zero *z, struct zt_fault *fault)
{
    struct zt_bucket full = z->pending;
    zt_err rc = wait_in_flight(z, fault);

    if (rc)
        return rc;
    z->pending = z->in_flight;
    z->pending.num = 0;
    z->pending.elems = 0;
    z->in_flight = full;
    for (int i = 0; !rc && i < full.num; i++) {
        rc = start_reduction(z, &full.reductions[i], fault);
        if (!rc && !z->cfg.options->overlap_comm)
            rc = z->planning
                     ? ZT_OK
                     : zt_comm_wait(z->cfg.comm, full.reductions[i].handle, fault);
    }
    if (!rc && !z->cfg.options->overlap_comm)
        rc = wait_in_flight(z, fault);
    return rc;
}

static zt_err add_to_bucket(struct zt_zero *z, struct zt_block *b, struct zt_fault *fault)
{
    int64_t limit = z->cfg.options->reduce_bucket_size;

    z->pending.reductions[z->pending.num++] = (struct zt_reduction){.block = b};
    z->pending.elems += b->padded_elems;
    limit = limit < ENOUGH_ELEMS ? limit : ENOUGH_ELEMS;
    return z->pending.elems >= limit ? start_bucket(z, fault) : ZT_OK;
}

/* Add a micro-batch's gradients to the accumulators, without the other ranks, unless they are there. */
static zt_err accumulate(struct zt_zero *z, struct zt_block *b, struct zt_fault *fault)
{
    float beta = z->first_micro || z->carried ? 0 : 1;
    struct zt_piece *lent = &z->lent[b->index];
    zt_err rc;

    if (lent->region) {
        rc = add_to_norm(z, b, lent, fault);
        b->grads = NULL;
        return zt_state_commit(lent, rc, fault);
    }
    rc = add_to_accumulators(z, b, 0, b->padded_elems, b->grads, ZT_F32, 1, beta, fault);
    free_transient(z, b);
    return rc;
}

zt_err zt_grads_ready(struct zt_zero *z, struct zt_block *b, struct zt_fault *fault)
{
    bool reduced = z->cfg.world > 1 && (z->reduce_every || z->last_micro);
    zt_err rc = ZT_OK;

    if (!b->padded_elems)
        return ZT_OK;
    if (z->transient && !b->grads) /* backward did not reach the block: a sum of zeros */
        rc = alloc_transient(z, b, fault);
    if (!rc)
        rc = clear_unreached(z, b, fault);
    if (!rc && z->transient && !z->reduce_every && !(reduced && z->carried))
        rc = accumulate(z, b, fault);
    if (!rc && reduced)
        rc = add_to_bucket(z, b, fault);
    return rc || !z->last_micro ? rc : zt_update_ahead(z, b, fault);
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

    if (!rc && z->pending.num)
        rc = start_bucket(z, fault);
    return rc ? rc : wait_in_flight(z, fault);
}
