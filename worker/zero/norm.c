/*
 * norm.c -- the squared norm of the gradients, of this rank's shards.
 *
 * Every block has lanes of its own (kernels/backend.h), whose chunks are numbered from where its
 * shard begins; lanes are added in their order, and blocks in theirs. So the sum is the same
 * whichever stage and tier holds the gradients, in pieces of whatever length, and in which order
 * blocks come. Gradients that leave for host memory or files are summed on their way, so that
 * nobody reads them again for it; all others when the norm is asked for.
 */
#include <stdlib.h>

#include "common/trace/trace.h"
#include "kernels/integers.h"
#include "worker/zero/private.h"

/* Of all blocks. */
static size_t lane_bytes(const struct zt_zero *z)
{
    return (size_t)z->cfg.model->num_blocks * ZT_NORM_LANES * sizeof(double);
}

zt_err zt_norm_open(struct zt_zero *z, struct zt_fault *fault)
{
    void *device = NULL, *host = NULL;
    zt_err rc;

    z->num_summed = calloc((size_t)z->cfg.model->num_blocks + 1, sizeof(*z->num_summed));
    if (!z->num_summed)
        return zt_fault_set(fault, ZT_E_NOMEM, "norm: no host memory");
    rc = zt_memory_alloc(z, ZT_MEMORY_PRIVATE, lane_bytes(z), &device, fault);
    z->sumsq = device;
    if (!rc)
        rc = z->cfg.backend->host_alloc(z->cfg.device, lane_bytes(z), &host, fault);
    z->sumsq_host = host;
    return rc;
}

void zt_norm_close(struct zt_zero *z)
{
    zt_memory_free(z, ZT_MEMORY_PRIVATE, z->sumsq, lane_bytes(z));
    z->cfg.backend->host_free(z->cfg.device, z->sumsq_host, lane_bytes(z));
    free(z->num_summed);
}

/* Add the next n gradients of the block's shard to its lanes. */
static zt_err add_next(struct zt_zero *z, const struct zt_block *b, void *grads,
                       int64_t n, struct zt_fault *fault)
{
    int64_t *done = &z->num_summed[b->index];
    struct zt_sumsq_args a = {.sums = z->sumsq + (int64_t)b->index * ZT_NORM_LANES};
    zt_err rc = ZT_OK;

    while (!rc && n > 0) {
        int64_t k = zt_has_fp32_grads(z) ? n : zt_min(n, ZT_FP32_PIECE_ELEMS);
        float *g = NULL;

        rc = zt_grads_as_fp32(z, grads, k, &g, fault);
        a.x = zt_view_of(g, ZT_F32, 1, &k);
        a.first = *done / ZT_NORM_CHUNK;
        a.accumulate = *done > 0;
        if (!rc)
            rc = z->kernels->sumsq(z->cfg.device, NULL, &a, fault);
        grads = (char *)grads +
                (size_t)k * zt_dtype_bytes(zt_state_dtype(z, ZT_STATE_GRADIENTS));
        *done += k;
        n -= k;
    }
    return rc;
}

void zt_norm_forget(struct zt_zero *z, const struct zt_block *b, int64_t begin)
{
    int64_t *done = &z->num_summed[b->index];
    int64_t at = begin - zt_shard_begin(z, b);

    *done = at < *done ? (at > 0 ? at : 0) : *done;
}

zt_err zt_norm_add(struct zt_zero *z, const struct zt_block *b,
                   const struct zt_piece *grads, struct zt_fault *fault)
{
    int64_t begin = zt_shard_begin(z, b), end = begin + zt_shard_elems(z, b);
    int64_t at = begin + z->num_summed[b->index];
    int64_t stop = zt_min(grads->begin + grads->n, end);

    return at < grads->begin || at >= stop
               ? ZT_OK
               : add_next(z, b, zt_piece_at(grads, at), stop - at, fault);
}

/* ---- what is not summed yet ---- */

struct norm_piece {
    const struct zt_block *block; /* NULL: behind the last */
    int64_t at, n;
};

/* The piece at `at` of the block of that index, or of the next that has some left. */
static struct norm_piece piece_at(const struct zt_zero *z, int index, int64_t at)
{
    for (; index < z->cfg.model->num_blocks; index++, at = 0) {
        const struct zt_block *b = z->cfg.model->blocks[index];
        int64_t begin = zt_shard_begin(z, b), end = begin + zt_shard_elems(z, b);

        begin += z->num_summed[index];
        at = at > begin ? at : begin;
        if (zt_state_has(z, ZT_STATE_GRADIENTS, b) && at < end)
            return (struct norm_piece){
                b, at, zt_min(end - at, zt_state_piece_elems(z, ZT_STATE_GRADIENTS, b))};
    }
    return (struct norm_piece){.block = NULL};
}

static zt_err sum_piece(struct zt_zero *z, const struct norm_piece *p,
                        struct zt_fault *fault)
{
    struct zt_piece grads;
    zt_err rc = zt_state_acquire(z, ZT_STATE_GRADIENTS, p->block, p->at, p->n, ZT_READ,
                                 &grads, fault);

    if (rc)
        return rc;
    rc = add_next(z, p->block, grads.data, grads.n, fault);
    return zt_state_commit(&grads, rc, fault);
}

/* From files the next piece is read meanwhile. */
static zt_err sum_rest(struct zt_zero *z, struct zt_fault *fault)
{
    struct norm_piece p = piece_at(z, 0, 0), next;
    zt_err rc = ZT_OK;
    bool begun;

    for (; !rc && p.block; p = next) {
        next = piece_at(z, p.block->index, p.at + p.n);
        if (next.block)
            rc = zt_state_prefetch(z, ZT_STATE_GRADIENTS, next.block, next.at, next.n,
                                   &begun, fault);
        if (!rc)
            rc = sum_piece(z, &p, fault);
    }
    return rc;
}

/* The ranks' parts are added in rank order by the caller. */
zt_err zt_zero_sumsq(struct zt_zero *z, double *out, struct zt_fault *fault)
{
    const struct zt_backend *be = z->cfg.backend;
    double sum = 0;
    zt_err rc = zt_update_finish(z, fault); /* of blocks that no call needed */

    if (!z->planning)
        zt_trace_begin("optimizer", "norm");
    if (!rc)
        rc = sum_rest(z, fault);
    if (!rc)
        rc = be->download(z->cfg.device, NULL, z->sumsq_host, z->sumsq, lane_bytes(z),
                          fault);
    if (!rc)
        rc = be->sync(z->cfg.device, NULL, fault);
    if (!z->planning)
        zt_trace_end();
    for (int i = 0; !rc && i < z->cfg.model->num_blocks; i++) {
        double of_block = 0;

        for (int k = 0; k < ZT_NORM_LANES && z->num_summed[i]; k++)
            of_block += z->sumsq_host[i * ZT_NORM_LANES + k];
        sum += of_block;
        z->num_summed[i] = 0; /* of the next step's gradients */
    }
    *out = sum;
    return rc;
}
