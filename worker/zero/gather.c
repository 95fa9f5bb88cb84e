/*
 * gather.c -- weights of stage 3: gathered when a call needs them, ahead of that when the
 * order of calls is known, and let go when they are not needed soon.
 *
 * What is gathered counts against max_live_parameters. To make room, of all blocks that
 * nobody runs on the one whose next use is furthest goes first (Belady 1966), which is
 * possible because the order of calls is known from the pass before. Only when a single
 * call needs more than the limit is more than the limit held.
 */
#include <limits.h>
#include <stdlib.h>

#include "common/trace.h"
#include "worker/zero/private.h"

zt_err zt_gather_open(struct zt_zero *z, struct zt_fault *fault)
{
    z->live = calloc((size_t)z->cfg.model->num_blocks + 1, sizeof(*z->live));
    return z->live ? ZT_OK
                   : zt_fault_set(fault, ZT_E_NOMEM, "model state: no host memory");
}

/* After a failure gathers may be on their way: they write to memory that goes next. */
static void await_gathers(struct zt_zero *z)
{
    for (int i = 0; z->live && !z->planning && i < z->cfg.model->num_blocks; i++) {
        const struct zt_live *l = &z->live[i];
        zt_err rc = l->pending ? zt_comm_wait(l->from, l->gather, NULL) : ZT_OK;

        (void)rc;
    }
}

void zt_gather_close(struct zt_zero *z)
{
    await_gathers(z);
    free(z->live);
    for (int i = 0; i < 3; i++)
        free(z->visits[i].at);
}

/* ---- the order of calls ---- */

static struct zt_visits *visits(struct zt_zero *z)
{
    return &z->visits[z->mode];
}

/* Note that block b is called now, and whether that was expected. */
static zt_err visit(struct zt_zero *z, const struct zt_block *b, struct zt_fault *fault)
{
    struct zt_visits *v = visits(z);
    struct zt_visit now = {b->index, z->in_backward};

    if (z->on_track && z->pos < v->num &&
        (v->at[z->pos].block != now.block || v->at[z->pos].backward != now.backward))
        z->on_track = false;
    if (z->pos == v->cap) {
        int cap = v->cap ? 2 * v->cap : 64;
        struct zt_visit *more = realloc(v->at, (size_t)cap * sizeof(*more));

        if (!more)
            return zt_fault_set(fault, ZT_E_NOMEM, "model state: no host memory");
        v->at = more;
        v->cap = cap;
    }
    v->at[z->pos++] = now;
    return ZT_OK;
}

static const struct zt_block *called_at(const struct zt_zero *z, int call)
{
    return z->cfg.model->blocks[z->visits[z->mode].at[call].block];
}

/* Whether a call of block `called` runs on the weights of b. */
static bool needs(const struct zt_block *called, const struct zt_block *b)
{
    const struct zt_block *n;

    for (int i = 0; (n = zt_needed(called, i)); i++)
        if (n == b)
            return true;
    return false;
}

/* The next call after this one that needs the block; INT_MAX: none, or not known. */
static int next_use(const struct zt_zero *z, const struct zt_block *b)
{
    const struct zt_visits *v = &z->visits[z->mode];

    for (int i = z->pos; z->on_track && i < v->num; i++)
        if (needs(called_at(z, i), b))
            return i;
    return INT_MAX;
}

/* Parameters of the calls between this one and call `at`. */
static int64_t distance(const struct zt_zero *z, int at)
{
    int64_t sum = 0;

    for (int i = z->pos; i < at; i++)
        sum += called_at(z, i)->numel;
    return sum;
}

/* ---- one block ---- */

static struct zt_live *live_of(struct zt_zero *z, const struct zt_block *b)
{
    return &z->live[b->index];
}

static void release(struct zt_zero *z, struct zt_block *b)
{
    struct zt_live *l = live_of(z, b);

    zt_pool_free(z->live_pool, l->data);
    l->data = NULL;
    b->weights = NULL;
    z->live_elems -= b->numel;
}

/* Make place for `elems` by letting go of blocks whose next use is after call `after`. */
static bool make_room(struct zt_zero *z, int64_t elems, int after)
{
    while (z->live_elems + elems > z->cfg.options->max_live_parameters) {
        struct zt_block *victim = NULL;
        int furthest = after;

        for (int i = 0; i < z->cfg.model->num_blocks; i++) {
            struct zt_block *b = z->cfg.model->blocks[i];
            const struct zt_live *l = live_of(z, b);
            int use = l->data && !l->users && !l->pending ? next_use(z, b) : -1;

            if (use > furthest) {
                furthest = use;
                victim = b;
            }
        }
        if (!victim)
            return false;
        release(z, victim);
    }
    return true;
}

static zt_err start_gather(struct zt_zero *z, struct zt_block *b, struct zt_live *l,
                           struct zt_fault *fault)
{
    bool near = z->hpz && z->in_backward;
    int64_t n = zt_shard_elems(z, b);
    const void *from = zt_region_at(z, &z->weights, b, zt_shard_begin(z, b));

    if (near) {
        n = b->padded_elems / z->cfg.options->hpz_partition_size;
        from = z->secondary.base +
               (size_t)z->secondary.at[b->index] * zt_dtype_bytes(z->cfg.dtype);
    }
    l->from = near ? z->near : z->cfg.comm;
    return zt_all_gather_start(l->from, from, l->data, (size_t)n, z->cfg.dtype,
                               &l->gather, fault);
}

/* The pool is the same on all ranks, and so is what comes of this. */
static zt_err take_memory(struct zt_zero *z, const struct zt_block *b,
                          struct zt_fault *fault)
{
    size_t bytes = (size_t)b->padded_elems * zt_dtype_bytes(z->cfg.dtype);

    return zt_pool_take(z->live_pool, bytes, &live_of(z, b)->data, fault);
}

/* Start filling a block's memory. */
static zt_err begin_block(struct zt_zero *z, struct zt_block *b, struct zt_fault *fault)
{
    struct zt_live *l = live_of(z, b);

    z->live_elems += b->numel;
    z->live_peak = z->live_elems > z->live_peak ? z->live_elems : z->live_peak;
    l->pending = true;
    return z->planning ? ZT_OK : start_gather(z, b, l, fault);
}

/* The part of a gathered block that this rank holds for its group until the next step. */
static zt_err keep_secondary(struct zt_zero *z, const struct zt_block *b,
                             const struct zt_live *l, struct zt_fault *fault)
{
    size_t width = zt_dtype_bytes(z->cfg.dtype);
    size_t part = (size_t)(b->padded_elems / z->cfg.options->hpz_partition_size) * width;

    return z->cfg.backend->copy(
        z->cfg.device, NULL,
        z->secondary.base + (size_t)z->secondary.at[b->index] * width,
        (const char *)l->data + (size_t)zt_comm_rank(z->near) * part, part, fault);
}

static zt_err finish_block(struct zt_zero *z, struct zt_block *b, struct zt_fault *fault)
{
    struct zt_live *l = live_of(z, b);
    zt_err rc = ZT_OK;

    if (l->pending && !z->planning) {
        zt_trace_begin("wait", "gather");
        rc = zt_comm_wait(l->from, l->gather, fault);
        zt_trace_end();
        if (!rc && z->hpz && l->from != z->near && z->mode == ZT_MODE_TRAIN)
            rc = keep_secondary(z, b, l, fault);
    }
    l->pending = false;
    b->weights = l->data;
    return rc;
}

/* What is held or on its way for other calls than this one goes. */
static zt_err forget_others(struct zt_zero *z, struct zt_fault *fault)
{
    zt_err rc = ZT_OK;

    for (int i = 0; !rc && i < z->cfg.model->num_blocks; i++) {
        struct zt_block *other = z->cfg.model->blocks[i];

        if (!z->live[i].data || z->live[i].users)
            continue;
        rc = finish_block(z, other, fault);
        if (!rc)
            release(z, other);
    }
    return rc;
}

static zt_err fetch(struct zt_zero *z, struct zt_block *b, struct zt_fault *fault)
{
    struct zt_live *l = live_of(z, b);
    zt_err rc = ZT_OK;

    if (!l->data) {
        bool room = make_room(z, b->numel, -1) && !take_memory(z, b, NULL);

        /* what is on its way may be too much; another order than planned leaves holes */
        if (!room)
            rc = forget_others(z, fault);
        if (!rc && !room)
            rc = take_memory(z, b, fault);
        if (!rc)
            rc = begin_block(z, b, fault);
    }
    if (!rc)
        rc = finish_block(z, b, fault);
    if (rc)
        return zt_fault_context(fault, rc, "gathering the weights of block %s", b->name);
    return ZT_OK;
}

/* Parameters that were fetched ahead and not yet needed. */
static int64_t on_the_way(const struct zt_zero *z)
{
    int64_t sum = 0;

    for (int i = 0; i < z->cfg.model->num_blocks; i++)
        sum += z->live[i].pending ? z->cfg.model->blocks[i]->numel : 0;
    return sum;
}

/*
 * Start gathers for the calls that come next, as far as they fit: never are more than
 * prefetch_bucket_size parameters on their way, but for a single block ("auto" is less
 * than most blocks have), and none when it is 0. Not beyond the turn from forward to
 * backward when the two gather from different groups.
 */
static zt_err prefetch(struct zt_zero *z, struct zt_fault *fault)
{
    const struct zt_zero_options *o = z->cfg.options;
    const struct zt_visits *v = visits(z);
    int64_t ahead = on_the_way(z);
    zt_err rc = ZT_OK;

    if (!z->on_track || !o->overlap_comm || o->prefetch_bucket_size == 0)
        return ZT_OK;
    for (int call = z->pos; !rc && call < v->num; call++) {
        struct zt_block *b;

        if (z->hpz && v->at[call].backward != z->in_backward)
            break;
        for (int i = 0; !rc && (b = zt_needed(called_at(z, call), i)); i++) {
            if (!zt_is_gathered(z, b) || live_of(z, b)->data)
                continue;
            if (ahead > 0 && ahead + b->numel > o->prefetch_bucket_size)
                return ZT_OK;
            if (!make_room(z, b->numel, call) || take_memory(z, b, NULL))
                return ZT_OK;
            ahead += b->numel;
            rc = begin_block(z, b, fault);
        }
    }
    return rc;
}

/* ---- calls ---- */

zt_err zt_gather_enter(struct zt_zero *z, struct zt_block *b, struct zt_fault *fault)
{
    bool expected = z->on_track;
    struct zt_block *n;
    zt_err rc = ZT_OK;

    if (z->stage < 3)
        return ZT_OK;
    rc = visit(z, b, fault);
    for (int i = 0; (n = zt_needed(b, i)); i++)
        live_of(z, n)->users++; /* one does not make room for another */
    if (!rc && expected && !z->on_track)
        rc = forget_others(z, fault); /* they would only be in the way */
    for (int i = 0; !rc && (n = zt_needed(b, i)); i++)
        if (zt_is_gathered(z, n))
            rc = fetch(z, n, fault);
    return rc ? rc : prefetch(z, fault);
}

zt_err zt_gather_leave(struct zt_zero *z, struct zt_block *b, struct zt_fault *fault)
{
    struct zt_block *n;

    (void)fault;
    for (int i = 0; z->stage == 3 && (n = zt_needed(b, i)); i++) {
        int use;

        if (--live_of(z, n)->users > 0 || !zt_is_gathered(z, n))
            continue;
        use = next_use(z, n);
        if (use == INT_MAX || distance(z, use) > z->cfg.options->max_reuse_distance)
            release(z, n);
    }
    if (z->stage == 3)
        make_room(z, 0, -1); /* a call that needed more than the limit is over */
    return ZT_OK;
}

void zt_gather_begin(struct zt_zero *z)
{
    z->pos = 0;
    z->on_track = visits(z)->known;
}

zt_err zt_gather_end(struct zt_zero *z, struct zt_fault *fault)
{
    zt_err rc = ZT_OK;

    if (z->stage < 3)
        return ZT_OK;
    for (int i = 0; !rc && i < z->cfg.model->num_blocks; i++) {
        struct zt_block *b = z->cfg.model->blocks[i];

        if (!z->live[i].data)
            continue;
        rc = finish_block(z, b, fault); /* fetched ahead for a call that did not come */
        release(z, b);
    }
    visits(z)->num = z->pos;
    visits(z)->known = true;
    return rc;
}

int64_t zt_zero_largest_call(const struct zt_zero *z, const struct zt_block **block)
{
    int64_t most = 0;

    for (int i = 0; z->stage == 3 && i < z->cfg.model->num_blocks; i++) {
        const struct zt_block *b = z->cfg.model->blocks[i], *n;
        int64_t sum = 0;

        for (int k = 0; (n = zt_needed(b, k)); k++)
            sum += zt_is_gathered(z, n) ? n->numel : 0;
        if (sum > most) {
            most = sum;
            *block = b;
        }
    }
    return most;
}
