/* update.c -- the end of a step: norm and optimizer. */
#include <stdlib.h>

#include "worker/zero/private.h"

#define PIECE_ELEMS ((int64_t)1 << 20) /* of 16-bit accumulators, in fp32 at once */

/* ---- opening ---- */

/* Runs of parameters with the same settings, per block; frozen ones are left out. */
static void make_segments(struct zt_zero *z)
{
    const struct zt_model *m = z->cfg.model;
    struct zt_segment *last = NULL;

    for (int i = 0; i < m->num_blocks; i++) {
        last = NULL;
        for (int j = 0; j < m->blocks[i]->num_params; j++) {
            const struct zt_param *p = m->blocks[i]->params[j];
            bool decay = !(p->flags & ZT_NO_DECAY);

            if (p->flags & ZT_FROZEN) {
                last = NULL;
            } else if (last && last->decay == decay) { /* padding in between is zero */
                last->n = p->offset_elems + p->numel - last->at;
            } else {
                last = &z->segments[z->num_segments++];
                *last = (struct zt_segment){p->block, p->offset_elems, p->numel, decay};
            }
        }
    }
}

/* Sums of squares that a block's shard gives: one, or one for each fp32 piece. */
static int64_t sumsq_pieces(const struct zt_zero *z, const struct zt_block *b)
{
    int64_t n = zt_shard_elems(z, b);

    if (z->grads.at[b->index] < 0 || n == 0)
        return 0;
    return z->grads.dtype == ZT_F32 ? 1 : (n + PIECE_ELEMS - 1) / PIECE_ELEMS;
}

static size_t sumsq_bytes(const struct zt_zero *z)
{
    return ((size_t)z->num_sumsq + 1) * sizeof(double);
}

size_t zt_update_piece_bytes(void)
{
    return (size_t)PIECE_ELEMS * sizeof(float);
}

zt_err zt_update_open(struct zt_zero *z, struct zt_fault *fault)
{
    size_t most = (size_t)z->cfg.model->num_params + 1;
    void *p = NULL;
    zt_err rc;

    z->segments = calloc(most, sizeof(*z->segments));
    if (!z->segments)
        return zt_fault_set(fault, ZT_E_NOMEM, "optimizer: no host memory");
    make_segments(z);
    for (int i = 0; i < z->cfg.model->num_blocks; i++)
        z->num_sumsq += sumsq_pieces(z, z->cfg.model->blocks[i]);
    rc = zt_zone_take(z, ZT_ZONE_OWN, sumsq_bytes(z), &p, fault);
    z->sumsq = p;
    p = NULL;
    if (!rc)
        rc = z->cfg.backend->host_alloc(z->cfg.device, sumsq_bytes(z), &p, fault);
    z->sumsq_host = p;
    if (!rc && z->grads.dtype != ZT_F32) {
        p = NULL;
        rc = zt_zone_take(z, ZT_ZONE_OWN, zt_update_piece_bytes(), &p, fault);
        z->piece = p;
    }
    return rc;
}

void zt_update_close(struct zt_zero *z)
{
    zt_zone_give(z, ZT_ZONE_OWN, z->sumsq, sumsq_bytes(z));
    z->cfg.backend->host_free(z->cfg.device, z->sumsq_host, sumsq_bytes(z));
    zt_zone_give(z, ZT_ZONE_OWN, z->piece, zt_update_piece_bytes());
    free(z->segments);
}

/* ---- accumulators as fp32 ---- */

/*
 * Elements [at, at + *n) of a block's accumulated gradients; *n is cut to what fits the
 * fp32 piece when they are kept in 16 bit.
 */
static zt_err grads_f32(struct zt_zero *z, const struct zt_block *b, int64_t at,
                        int64_t *n, float **out, struct zt_fault *fault)
{
    void *g = zt_region_at(z, &z->grads, b, at);

    *out = g;
    if (z->grads.dtype == ZT_F32)
        return ZT_OK;
    *n = *n < PIECE_ELEMS ? *n : PIECE_ELEMS;
    *out = z->piece;
    return zt_zero_axpby(z, g, z->grads.dtype, z->piece, ZT_F32, *n, 1, 0, fault);
}

/* ---- norm ---- */

/* The squares of a block's shard, chunk by chunk, into device memory from `sum` on. */
static zt_err block_sumsq(struct zt_zero *z, const struct zt_block *b, double *sum,
                          struct zt_fault *fault)
{
    int64_t at = zt_shard_begin(z, b), end = at + zt_shard_elems(z, b), n;
    zt_err rc = ZT_OK;

    for (; !rc && at < end; at += n, sum++) {
        struct zt_sumsq_args a = {.sum = sum};
        float *g = NULL;

        n = end - at;
        rc = grads_f32(z, b, at, &n, &g, fault);
        a.x = zt_view_of(g, ZT_F32, 1, &n);
        if (!rc)
            rc = z->k->sumsq(z->cfg.device, NULL, &a, fault);
    }
    return rc;
}

/*
 * Blocks in order; the ranks' parts are added in rank order by the caller. The same sum
 * whichever stage holds the gradients.
 */
zt_err zt_zero_sumsq(struct zt_zero *z, double *out, struct zt_fault *fault)
{
    const struct zt_backend *be = z->cfg.backend;
    int64_t at = 0;
    double sum = 0;
    zt_err rc = ZT_OK;

    for (int i = 0; !rc && i < z->cfg.model->num_blocks; i++) {
        const struct zt_block *b = z->cfg.model->blocks[i];
        int64_t pieces = sumsq_pieces(z, b);

        if (pieces)
            rc = block_sumsq(z, b, z->sumsq + at, fault);
        at += pieces;
    }
    if (!rc)
        rc = be->download(z->cfg.device, NULL, z->sumsq_host, z->sumsq, sumsq_bytes(z),
                          fault);
    if (!rc)
        rc = be->sync(z->cfg.device, NULL, fault);
    for (int64_t i = 0; !rc && i < z->num_sumsq; i++)
        sum += z->sumsq_host[i];
    *out = sum;
    return rc;
}

/* ---- optimizer ---- */

/* Elements [at, at + n) of a block, all with the same settings and all in one shard. */
static zt_err update_slice(struct zt_zero *z, const struct zt_optimizer *optimizer,
                           const struct zt_optim_step *how, const struct zt_segment *seg,
                           float *grad, struct zt_fault *fault)
{
    const struct zt_block *b = seg->block;
    void *weights = zt_region_at(z, &z->weights, b, seg->at);
    struct zt_optim_slice s = {
        .master = z->has_master ? zt_region_at(z, &z->master, b, seg->at) : weights,
        .grad = grad,
        .param = z->has_master ? weights : NULL,
        .param_dtype = z->cfg.dtype,
        .n = seg->n,
        .decay = seg->decay,
        .stream = (uint64_t)how->t << 24 | (uint64_t)b->index,
        .offset = (uint64_t)seg->at,
    };

    for (int k = 0; k < z->cfg.num_states; k++)
        s.state[k] = zt_region_at(z, &z->moments[k], b, seg->at);
    return optimizer->update(how, &s, fault);
}

/* The part of a segment that this rank updates, in pieces of sub_group_size. */
static zt_err update_segment(struct zt_zero *z, const struct zt_optimizer *optimizer,
                             const struct zt_optim_step *how,
                             const struct zt_segment *seg, struct zt_fault *fault)
{
    const struct zt_block *b = seg->block;
    int64_t begin = z->stage ? zt_shard_begin(z, b) : 0, n;
    int64_t end = begin + (z->stage ? zt_shard_elems(z, b) : b->padded_elems);
    int64_t most = z->cfg.options->sub_group_size;
    zt_err rc = ZT_OK;

    begin = seg->at > begin ? seg->at : begin;
    end = seg->at + seg->n < end ? seg->at + seg->n : end;
    for (int64_t at = begin; !rc && at < end; at += n) {
        struct zt_segment piece = {b, at, 0, seg->decay};
        float *g = NULL;

        n = most > 0 && end - at > most ? most : end - at;
        rc = grads_f32(z, b, at, &n, &g, fault);
        piece.n = n;
        if (!rc)
            rc = update_slice(z, optimizer, how, &piece, g, fault);
    }
    return rc;
}

/* The optimizer has zeroed what it used; of whole gradients more is left. */
static zt_err clear_foreign_shards(struct zt_zero *z, struct zt_fault *fault)
{
    zt_err rc = ZT_OK;

    if (z->stage == 0 || z->transient)
        return ZT_OK;
    for (int i = 0; !rc && i < z->cfg.model->num_blocks; i++) {
        const struct zt_block *b = z->cfg.model->blocks[i];
        int64_t begin = zt_shard_begin(z, b), end = begin + zt_shard_elems(z, b);
        float *g = zt_region_at(z, &z->grads, b, 0);

        if (!g)
            continue;
        rc = zt_zero_clear(z, g, ZT_F32, begin, fault);
        if (!rc)
            rc = zt_zero_clear(z, g + end, ZT_F32, b->padded_elems - end, fault);
    }
    return rc;
}

zt_err zt_zero_update(struct zt_zero *z, const struct zt_optimizer *optimizer,
                      const struct zt_optim_step *how, struct zt_fault *fault)
{
    zt_err rc = ZT_OK;

    for (int i = 0; !rc && i < z->num_segments; i++)
        rc = update_segment(z, optimizer, how, &z->segments[i], fault);
    if (!rc)
        rc = clear_foreign_shards(z, fault);
    return rc ? rc : zt_publish(z, false, fault);
}

zt_err zt_zero_skip(struct zt_zero *z, struct zt_fault *fault)
{
    return zt_zero_clear(z, z->grads.base, z->grads.dtype,
                         (int64_t)(z->grads.bytes / zt_dtype_bytes(z->grads.dtype)),
                         fault);
}
