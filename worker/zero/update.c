/* update.c -- the end of a step: the optimizer. */
#include <stdlib.h>

#include "common/trace/trace.h"
#include "kernels/integers.h"
#include "worker/zero/private.h"

/* ---- opening ---- */

/* Runs of parameters with the same settings, per block, or one parameter at a time for an
 * optimizer that needs the tensor; frozen ones are left out. */
static void make_segments(struct zt_zero *z)
{
    const struct zt_model *m = z->cfg.model;
    bool single = z->cfg.optimizer->needs_tensor;
    struct zt_segment *last = NULL;

    for (int i = 0; i < m->num_blocks; i++) {
        last = NULL;
        for (int j = 0; j < m->blocks[i]->num_params; j++) {
            const struct zt_param *p = m->blocks[i]->params[j];
            bool decay = !(p->flags & ZT_NO_DECAY);

            if (p->flags & ZT_FROZEN) {
                last = NULL;
            } else if (!single && last &&
                       last->decay == decay) { /* padding in between is zero */
                last->n = p->offset_elems + p->numel - last->at;
            } else {
                last = &z->segments[z->num_segments++];
                *last = (struct zt_segment){p->block, p->offset_elems, p->numel, decay,
                                            single ? p : NULL};
            }
        }
    }
}

/* The shard that this rank updates: all of the block when there is one rank or stage 0. */
static void own_shard(const struct zt_zero *z, const struct zt_block *b, int64_t *begin,
                      int64_t *end)
{
    *begin = z->stage ? zt_shard_begin(z, b) : 0;
    *end = *begin + (z->stage ? zt_shard_elems(z, b) : b->padded_elems);
}

size_t zt_update_piece_bytes(void)
{
    return (size_t)ZT_FP32_PIECE_ELEMS * sizeof(float);
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
    rc = zt_norm_open(z, fault);
    if (!rc && !zt_has_fp32_grads(z)) {
        rc = zt_memory_alloc(z, ZT_MEMORY_PRIVATE, zt_update_piece_bytes(), &p, fault);
        z->grads_fp32 = p;
    }
    return rc;
}

void zt_update_close(struct zt_zero *z)
{
    zt_norm_close(z);
    zt_memory_free(z, ZT_MEMORY_PRIVATE, z->grads_fp32, zt_update_piece_bytes());
    free(z->segments);
}

/* ---- pieces ---- */

int64_t zt_update_piece_elems(const struct zt_zero *z)
{
    int64_t n = z->cfg.options->sub_group_size;

    if (n <= 0)
        return INT64_MAX;
    return n < ZT_SHARD_ALIGN ? ZT_SHARD_ALIGN : n / ZT_SHARD_ALIGN * ZT_SHARD_ALIGN;
}

/* Elements of a piece of [at, end): as many as the optimizer takes at a time, as every
 * tier gives at once, and as the fp32 copy of 16-bit accumulators holds. */
static int64_t piece_elems(const struct zt_zero *z, const struct zt_block *b, int64_t at,
                           int64_t end)
{
    int64_t n = zt_min(end - at, zt_update_piece_elems(z));

    for (int kind = 0; kind < ZT_STATE_MOMENT + zt_num_moments(z); kind++)
        n = zt_min(n, zt_state_piece_elems(z, kind, b));
    return zt_has_fp32_grads(z) ? n : zt_min(n, ZT_FP32_PIECE_ELEMS);
}

zt_err zt_grads_as_fp32(struct zt_zero *z, void *grads, int64_t n, float **out,
                        struct zt_fault *fault)
{
    *out = grads;
    if (zt_has_fp32_grads(z))
        return ZT_OK;
    *out = z->grads_fp32;
    return zt_zero_axpby(z, grads, zt_state_dtype(z, ZT_STATE_GRADIENTS), *out, ZT_F32, n,
                         1, 0, fault);
}

/* ---- optimizer ---- */

/* The state of one piece of a block that the optimizer works on. */
struct zt_update_piece {
    struct zt_piece weights, master, grads, moments[ZT_OPTIM_MAX_STATES];
    float *grads_fp32; /* of the piece */
};

/* What the run has no state of, no piece is acquired of. */
static zt_err acquire_kind(struct zt_zero *z, zt_state_kind kind,
                           const struct zt_block *b, int64_t at, int64_t n,
                           zt_access access, struct zt_piece *out, struct zt_fault *fault)
{
    return zt_state_has(z, kind, b)
               ? zt_state_acquire(z, kind, b, at, n, access, out, fault)
               : ZT_OK;
}

/* n elements from `at` on of every kind. Gradients are only read: the next step replaces
 * them. */
static zt_err acquire_piece(struct zt_zero *z, const struct zt_block *b, int64_t at,
                            int64_t n, struct zt_update_piece *u, struct zt_fault *fault)
{
    zt_err rc =
        acquire_kind(z, ZT_STATE_GRADIENTS, b, at, n, ZT_READ_LAST, &u->grads, fault);

    if (!rc)
        rc = acquire_kind(z, ZT_STATE_WEIGHTS, b, at, n, ZT_READ_WRITE, &u->weights,
                          fault);
    if (!rc)
        rc = acquire_kind(z, ZT_STATE_MASTER, b, at, n, ZT_READ_WRITE, &u->master, fault);
    for (int k = 0; !rc && k < zt_num_moments(z); k++)
        rc = acquire_kind(z, ZT_STATE_MOMENT + k, b, at, n, ZT_READ_WRITE, &u->moments[k],
                          fault);
    return rc ? rc
              : zt_grads_as_fp32(z, u->grads.data, u->grads.n, &u->grads_fp32, fault);
}

static zt_err commit_piece(struct zt_zero *z, struct zt_update_piece *u, zt_err rc,
                           struct zt_fault *fault)
{
    for (int k = 0; k < zt_num_moments(z); k++)
        rc = zt_state_commit(&u->moments[k], rc, fault);
    rc = zt_state_commit(&u->master, rc, fault);
    rc = zt_state_commit(&u->weights, rc, fault);
    return zt_state_commit(&u->grads, rc, fault);
}

/* Elements [at, at + n) of a piece, all with the same settings. */
static zt_err update_slice(struct zt_zero *z, const struct zt_optim_step *how,
                           const struct zt_update_piece *u, const struct zt_segment *seg,
                           int64_t at, int64_t n, struct zt_fault *fault)
{
    void *weights = zt_piece_at(&u->weights, at);
    struct zt_optim_slice s = {
        .master = u->master.data ? zt_piece_at(&u->master, at) : weights,
        .master_dtype = u->master.data ? u->master.dtype : ZT_F32,
        .grad = u->grads_fp32 + (at - u->grads.begin),
        .param = u->master.data ? weights : NULL,
        .param_dtype = z->cfg.dtype,
        .n = n,
        .decay = seg->decay,
        .stream = (uint64_t)how->t << 24 | (uint64_t)seg->block->index,
        .offset = (uint64_t)at,
    };

    if (seg->param)
        s.tensor = (struct zt_optim_tensor){.name = seg->param->name,
                                            .ndim = seg->param->ndim,
                                            .shape = seg->param->shape,
                                            .first = at - seg->param->offset_elems};
    for (int k = 0; k < zt_num_moments(z); k++)
        s.state[k] = zt_piece_at(&u->moments[k], at);
    return z->cfg.optimizer->update(how, &s, fault);
}

/* The segments of a block as far as they lie in one piece. */
static zt_err update_piece(struct zt_zero *z, const struct zt_optim_step *how,
                           const struct zt_segment *seg, int64_t at, int64_t n,
                           struct zt_fault *fault)
{
    const struct zt_block *b = seg->block;
    struct zt_update_piece u = {.grads_fp32 = NULL};
    zt_err rc = acquire_piece(z, b, at, n, &u, fault);

    for (; !rc && seg->block == b; seg++) {
        int64_t begin = seg->at > at ? seg->at : at;
        int64_t end = seg->at + seg->n < at + n ? seg->at + seg->n : at + n;

        if (begin < end)
            rc = update_slice(z, how, &u, seg, begin, end - begin, fault);
    }
    return commit_piece(z, &u, rc, fault);
}

/* What backward does not touch of a piece begins to move. */
static zt_err prefetch_own(struct zt_zero *z, const struct zt_work *w, bool *begun,
                           struct zt_fault *fault)
{
    const struct zt_block *b = w->seg->block;
    zt_err rc = zt_state_prefetch(z, ZT_STATE_MASTER, b, w->at, w->n, begun, fault);

    for (int k = 0; !rc && *begun && k < zt_num_moments(z); k++)
        rc = zt_state_prefetch(z, ZT_STATE_MOMENT + k, b, w->at, w->n, begun, fault);
    return rc;
}

/* What comes after a piece may move while the optimizer is at this one. */
static zt_err prefetch_piece(struct zt_zero *z, const struct zt_work *w, bool *begun,
                             struct zt_fault *fault)
{
    const struct zt_block *b = w->seg->block;
    zt_err rc = zt_state_prefetch(z, ZT_STATE_GRADIENTS, b, w->at, w->n, begun, fault);

    if (!rc && *begun)
        rc = zt_state_prefetch(z, ZT_STATE_WEIGHTS, b, w->at, w->n, begun, fault);
    return rc || !*begun ? rc : prefetch_own(z, w, begun, fault);
}

/* The whole chunks of this rank's shard that a block's segments reach into. */
static void segment_range(const struct zt_zero *z, const struct zt_segment *seg,
                          int64_t *begin, int64_t *end)
{
    const struct zt_block *b = seg->block;
    int64_t first = seg->at / ZT_SHARD_ALIGN * ZT_SHARD_ALIGN, last = 0;

    for (; seg->block == b; seg++)
        last = seg->at + seg->n;
    last = (last + ZT_SHARD_ALIGN - 1) / ZT_SHARD_ALIGN * ZT_SHARD_ALIGN;
    own_shard(z, b, begin, end);
    *begin = first > *begin ? first : *begin;
    *end = zt_min(last, *end);
}

/* The first piece of the next block from `seg` on that has any. */
static struct zt_work first_work(const struct zt_zero *z, const struct zt_segment *seg)
{
    const struct zt_segment *stop = z->segments + z->num_segments;
    struct zt_work w = {.seg = seg};

    while (w.seg < stop) {
        const struct zt_block *b = w.seg->block;

        segment_range(z, w.seg, &w.at, &w.end);
        w.n = w.at < w.end ? piece_elems(z, b, w.at, w.end) : 0;
        if (w.n)
            return w;
        while (w.seg < stop && w.seg->block == b)
            w.seg++;
    }
    w.n = 0;
    return w;
}

static struct zt_work next_work(const struct zt_zero *z, struct zt_work w)
{
    const struct zt_segment *seg = w.seg;

    w.at += w.n;
    if (w.at < w.end) {
        w.n = piece_elems(z, seg->block, w.at, w.end);
        return w;
    }
    while (seg < z->segments + z->num_segments && seg->block == w.seg->block)
        seg++;
    return first_work(z, seg);
}

/* ---- when ---- */

/* Whether the state is in files that are read ahead; what peers read of memory that they
 * share has to be whole when a step ends. */
static bool may_be_beside_forward(const struct zt_zero *z)
{
    bool files = z->cfg.tiers[ZT_STATE_GRADIENTS] == &zt_file_tier;

    return files && z->cfg.swap.pipeline_read &&
           z->regions[ZT_STATE_WEIGHTS].memory != ZT_MEMORY_NODE;
}

/* A plan counts it by itself, as the work that it is. */
static bool is_beside_forward(const struct zt_zero *z)
{
    return !z->planning && may_be_beside_forward(z);
}

bool zt_zero_plan_late_update(struct zt_zero *z)
{
    z->update = (struct zt_update){.active = z->cfg.model->num_blocks > 0 &&
                                             may_be_beside_forward(z)};
    return z->update.active;
}

/* `w` and as many pieces behind it as there are buffers for begin to move. */
#define MOST_AHEAD 64
static zt_err prefetch_from(struct zt_zero *z, struct zt_work w, struct zt_fault *fault)
{
    bool begun = true;
    zt_err rc = ZT_OK;

    for (int i = 0; !rc && begun && w.n && i < MOST_AHEAD; i++, w = next_work(z, w))
        rc = prefetch_piece(z, &w, &begun, fault);
    return rc;
}

/* The piece that comes next, while those behind it are on their way. */
static zt_err update_next(struct zt_zero *z, struct zt_fault *fault)
{
    struct zt_update *u = &z->update;
    struct zt_work w = u->work;
    zt_err rc = prefetch_from(z, w, fault);

    if (!rc)
        rc = update_piece(z, &u->how, w.seg, w.at, w.n, fault);
    u->work = next_work(z, w);
    return rc;
}

zt_err zt_update_reach(struct zt_zero *z, const struct zt_block *b,
                       struct zt_fault *fault)
{
    struct zt_update *u = &z->update;
    zt_err rc = ZT_OK;

    if (!zt_update_is_due(z, b) || u->running) /* its own pieces */
        return ZT_OK;
    u->running = true;
    if (!z->planning)
        zt_trace_begin("optimizer", b->name);
    while (!rc && u->work.n && u->work.seg->block->index <= b->index)
        rc = update_next(z, fault);
    if (!z->planning)
        zt_trace_end();
    u->running = false;
    u->num_done = b->index + 1;
    u->active = u->num_done < z->cfg.model->num_blocks;
    return rc;
}

/* As much with every block of the last forward behind the last update, when the drive has nothing
 * else to do, and with every block that backward has done, as the block is long, as its kernels are:
 * gradients move meanwhile, too. */
zt_err zt_update_ahead(struct zt_zero *z, const struct zt_block *b,
                       struct zt_fault *fault)
{
    struct zt_update *u = &z->update;
    int64_t left = b->padded_elems;
    bool begun = true;
    zt_err rc = ZT_OK;

    if (!is_beside_forward(z) || u->active) /* a block that no call needed waits */
        return ZT_OK;
    if (!u->is_ahead)
        u->work = first_work(z, z->segments);
    u->is_ahead = true;
    while (!rc && begun && u->work.n && left > 0) {
        left -= u->work.n;
        rc = prefetch_own(z, &u->work, &begun, fault);
        if (!rc && begun)
            u->work = next_work(z, u->work);
    }
    return rc;
}

/* At stage 3 the order of gathers follows from what is due, and is to be one that was planned: in
 * training all blocks, or none; in other passes none. */
static bool is_to_be_whole(const struct zt_zero *z)
{
    return z->stage == 3 &&
           (z->mode != ZT_MODE_TRAIN || (z->call_index == 0 && z->update.num_done > 0));
}

zt_err zt_update_enter(struct zt_zero *z, const struct zt_block *called,
                       struct zt_fault *fault)
{
    bool last = z->mode == ZT_MODE_TRAIN && z->last_micro && !z->in_backward;
    const struct zt_block *n;
    zt_err rc = is_to_be_whole(z) ? zt_update_finish(z, fault) : ZT_OK;

    for (int i = 0; !rc && z->update.active && (n = zt_needed_block(called, i)); i++)
        rc = zt_update_reach(z, n, fault);
    /* its files moved while the block before computed */
    if (!rc && z->update.active)
        return zt_update_reach(z, z->cfg.model->blocks[z->update.num_done], fault);
    for (int i = 0; !rc && last && (n = zt_needed_block(called, i)); i++)
        rc = zt_update_ahead(z, n, fault);
    return rc;
}

zt_err zt_update_finish(struct zt_zero *z, struct zt_fault *fault)
{
    const struct zt_model *m = z->cfg.model;

    return z->update.active ? zt_update_reach(z, m->blocks[m->num_blocks - 1], fault)
                            : ZT_OK;
}

/*
 * State in files takes as long to read and write as the drive needs, which is much longer
 * than the update itself. So a block is updated when the next forward comes near it: its
 * files move while the blocks before compute. Whoever asks for state sees none of this:
 * zt_state_acquire() gets the update to the block first.
 */
zt_err zt_zero_update(struct zt_zero *z, const struct zt_optim_step *how,
                      struct zt_fault *fault)
{
    struct zt_work w = first_work(z, z->segments);
    zt_err rc = zt_publish_finish(z, fault);

    z->update = (struct zt_update){
        .active = z->cfg.model->num_blocks > 0, .how = *how, .work = w};
    if (!rc && !is_beside_forward(z))
        rc = zt_update_finish(z, fault);
    else if (!rc)
        rc = prefetch_from(z, w, fault);
    return rc ? rc : zt_publish(z, false, fault);
}
