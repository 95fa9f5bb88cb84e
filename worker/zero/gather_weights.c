/*
 * gather_weights.c -- weights of stage 3: gathered when a call needs them, ahead of that when the
 * order of calls is known, and released when they are not needed soon.
 *
 * What is gathered counts against max_live_parameters. To make room, of all blocks that
 * nobody runs on the one whose next use is furthest goes first (Belady 1966), which is
 * possible because the order of calls is known from the pass before. Only when a single
 * call needs more than the limit is more than the limit held.
 *
 * A shard that is offloaded is loaded into device memory first: into the block's own
 * place where there is one rank, else into memory that peers read. What comes after it in
 * the order of calls begins to move towards it meanwhile. One rank whose tier keeps all weights
 * where kernels work on them is lent the block itself, from gather to release: nothing is copied,
 * and it takes no memory. Its update comes before that, or behind the pass.
 */
#include <limits.h>
#include <stdlib.h>

#include "common/trace/trace.h"
#include "worker/zero/private.h"

zt_err zt_gather_open(struct zt_zero *z, struct zt_fault *fault)
{
    z->gathered = calloc((size_t)z->cfg.model->num_blocks + 1, sizeof(*z->gathered));
    return z->gathered ? ZT_OK
                       : zt_fault_set(fault, ZT_E_NOMEM, "model state: no host memory");
}

/* After a failure gathers may be in flight: they write to memory that is freed next. */
static void wait_for_gathers(struct zt_zero *z)
{
    for (int i = 0; z->gathered && i < z->cfg.model->num_blocks; i++) {
        struct zt_gathered *g = &z->gathered[i];
        zt_err rc =
            g->in_flight && g->from ? zt_comm_wait(g->from, g->gather, NULL) : ZT_OK;

        rc = zt_state_commit(&g->shard, rc, NULL);
        (void)rc;
    }
}

void zt_gather_close(struct zt_zero *z)
{
    wait_for_gathers(z);
    free(z->gathered);
    for (int i = 0; i < 3; i++)
        free(z->call_records[i].at);
}

/* ---- the order of calls ---- */

static struct zt_call_record *record_of(struct zt_zero *z)
{
    return &z->call_records[z->mode];
}

/* Note that block b is called now, and whether that was expected. */
static zt_err record_call(struct zt_zero *z, const struct zt_block *b,
                          struct zt_fault *fault)
{
    struct zt_call_record *v = record_of(z);
    struct zt_block_call now = {b->index, z->in_backward};

    if (z->follows_record && z->call_index < v->num &&
        (v->at[z->call_index].block != now.block ||
         v->at[z->call_index].backward != now.backward))
        z->follows_record = false;
    if (z->call_index == v->cap) {
        int cap = v->cap ? 2 * v->cap : 64;
        struct zt_block_call *more = realloc(v->at, (size_t)cap * sizeof(*more));

        if (!more)
            return zt_fault_set(fault, ZT_E_NOMEM, "model state: no host memory");
        v->at = more;
        v->cap = cap;
    }
    v->at[z->call_index++] = now;
    return ZT_OK;
}

static const struct zt_block *called_at(const struct zt_zero *z, int call)
{
    return z->cfg.model->blocks[z->call_records[z->mode].at[call].block];
}

/* Whether a call of block `called` runs on the weights of b. */
static bool needs(const struct zt_block *called, const struct zt_block *b)
{
    const struct zt_block *n;

    for (int i = 0; (n = zt_needed_block(called, i)); i++)
        if (n == b)
            return true;
    return false;
}

/* The next call after this one that needs the block; INT_MAX: none, or not known. */
static int next_use(const struct zt_zero *z, const struct zt_block *b)
{
    const struct zt_call_record *v = &z->call_records[z->mode];

    for (int i = z->call_index; z->follows_record && i < v->num; i++)
        if (needs(called_at(z, i), b))
            return i;
    return INT_MAX;
}

/* Parameters of the calls between this one and call `at`. */
static int64_t distance(const struct zt_zero *z, int at)
{
    int64_t sum = 0;

    for (int i = z->call_index; i < at; i++)
        sum += called_at(z, i)->numel;
    return sum;
}

/* ---- one block ---- */

static struct zt_gathered *gathered_of(struct zt_zero *z, const struct zt_block *b)
{
    return &z->gathered[b->index];
}

/* Whether a gather is lent the weights where they are kept. */
static bool is_lent(const struct zt_zero *z, const struct zt_block *b)
{
    return z->cfg.world == 1 && !zt_state_in_place(z, ZT_STATE_WEIGHTS, b) &&
           zt_state_is_resident(z, ZT_STATE_WEIGHTS, b);
}

static void release(struct zt_zero *z, struct zt_block *b)
{
    struct zt_gathered *g = gathered_of(z, b);

    if (is_lent(z, b)) {
        zt_err rc = zt_state_commit(&g->shard, ZT_OK, NULL);

        (void)rc; /* it was only read: nothing moves */
    } else {
        zt_pool_free(z->gathered_pool, g->data);
    }
    g->data = NULL;
    b->weights = NULL;
    z->gathered_elems -= b->numel;
}

/* Make room for `elems` by releasing blocks whose next use is after call `after`. */
static bool make_room(struct zt_zero *z, int64_t elems, int after)
{
    while (z->gathered_elems + elems > z->cfg.options->max_live_parameters) {
        struct zt_block *victim = NULL;
        int furthest = after;

        for (int i = 0; i < z->cfg.model->num_blocks; i++) {
            struct zt_block *b = z->cfg.model->blocks[i];
            const struct zt_gathered *g = gathered_of(z, b);
            int use = g->data && !g->users && !g->in_flight ? next_use(z, b) : -1;

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

/* This rank's shard of an offloaded block into device memory. */
static zt_err load_shard(struct zt_zero *z, const struct zt_block *b, char *to,
                         struct zt_fault *fault)
{
    int64_t begin = zt_shard_begin(z, b), end = begin + zt_shard_elems(z, b);
    size_t width = zt_dtype_bytes(z->cfg.dtype);
    zt_err rc = ZT_OK;
    bool begun;

    for (int64_t at = begin; !rc && at < end;) {
        struct zt_piece from;

        rc = zt_state_prefetch(z, ZT_STATE_WEIGHTS, b, at, end - at, &begun, fault);
        if (!rc)
            rc = zt_state_acquire(z, ZT_STATE_WEIGHTS, b, at, end - at, ZT_READ, &from,
                                  fault);
        if (rc)
            return rc;
        rc = z->cfg.backend->copy(z->cfg.device, NULL, to + (size_t)(at - begin) * width,
                                  from.data, (size_t)from.n * width, fault);
        at += from.n;
        rc = zt_state_commit(&from, rc, fault);
    }
    return rc;
}

/* The memory that an offloaded shard is loaded to; with one rank that is the block's. */
static zt_err alloc_loaded(struct zt_zero *z, const struct zt_block *b,
                           struct zt_fault *fault)
{
    struct zt_gathered *g = gathered_of(z, b);
    size_t bytes = (size_t)zt_shard_elems(z, b) * zt_dtype_bytes(z->cfg.dtype);

    if (zt_state_in_place(z, ZT_STATE_WEIGHTS, b) || z->cfg.world == 1)
        return ZT_OK;
    return zt_zero_pool_alloc(z->transient_pool, bytes, &g->loaded, fault);
}

static zt_err gather_lent(struct zt_zero *z, const struct zt_block *b,
                          struct zt_gathered *g, struct zt_fault *fault)
{
    zt_err rc = zt_state_acquire_all(z, ZT_STATE_WEIGHTS, b, ZT_READ, &g->shard, fault);

    g->from = NULL;
    g->data = g->shard.data;
    return rc;
}

static zt_err gather_loaded(struct zt_zero *z, struct zt_block *b, struct zt_gathered *g,
                            struct zt_fault *fault)
{
    zt_err rc = load_shard(z, b, z->cfg.world == 1 ? g->data : g->loaded, fault);

    g->from = z->cfg.world == 1 ? NULL : z->cfg.comm;
    return rc || z->cfg.world == 1 ? rc
                                   : zt_all_gather_start(g->from, g->loaded, g->data,
                                                         (size_t)zt_shard_elems(z, b),
                                                         z->cfg.dtype, &g->gather, fault);
}

/* From the shards of all ranks, or from the larger ones of near ranks. */
static zt_err start_gather(struct zt_zero *z, struct zt_block *b, struct zt_gathered *g,
                           struct zt_fault *fault)
{
    bool near = z->hpz && z->in_backward;
    zt_err rc;

    if (!zt_state_in_place(z, ZT_STATE_WEIGHTS, b))
        return gather_loaded(z, b, g, fault);
    g->from = near ? z->secondary_comm : z->cfg.comm;
    rc = zt_state_acquire_all(z, near ? ZT_STATE_SECONDARY : ZT_STATE_WEIGHTS, b, ZT_READ,
                              &g->shard, fault);
    if (!rc)
        rc = zt_all_gather_start(g->from, g->shard.data, g->data, (size_t)g->shard.n,
                                 z->cfg.dtype, &g->gather, fault);
    return rc;
}

/* The pool is the same on all ranks, and so is what comes of this. */
static zt_err alloc_gathered(struct zt_zero *z, const struct zt_block *b,
                             struct zt_fault *fault)
{
    size_t bytes = (size_t)b->padded_elems * zt_dtype_bytes(z->cfg.dtype);

    if (is_lent(z, b))
        return ZT_OK;
    return zt_zero_pool_alloc(z->gathered_pool, bytes, &gathered_of(z, b)->data, fault);
}

/* The same on shapes: a shard that is offloaded is loaded there, too. */
static zt_err plan_gather(struct zt_zero *z, const struct zt_block *b,
                          struct zt_gathered *g, struct zt_fault *fault)
{
    double bytes = (double)b->padded_elems * (double)zt_dtype_bytes(z->cfg.dtype);

    *(z->hpz && z->in_backward ? &z->traffic.near_gathered : &z->traffic.gathered) +=
        z->cfg.world > 1 ? bytes : 0;
    return zt_state_in_place(z, ZT_STATE_WEIGHTS, b)
               ? ZT_OK
               : load_shard(z, b, z->cfg.world == 1 ? g->data : g->loaded, fault);
}

/* Begin to gather a block into the memory it has been given. */
static zt_err start_gather_into(struct zt_zero *z, struct zt_block *b,
                                struct zt_fault *fault)
{
    struct zt_gathered *g = gathered_of(z, b);

    zt_err rc = alloc_loaded(z, b, fault);

    z->gathered_elems += b->numel;
    z->gathered_peak =
        z->gathered_elems > z->gathered_peak ? z->gathered_elems : z->gathered_peak;
    g->in_flight = true;
    if (rc)
        return rc;
    if (is_lent(z, b))
        return gather_lent(z, b, g, fault);
    return z->planning ? plan_gather(z, b, g, fault) : start_gather(z, b, g, fault);
}

/* The part of a gathered block that this rank holds for its group until the next step. */
static zt_err save_secondary(struct zt_zero *z, const struct zt_block *b,
                             const struct zt_gathered *g, struct zt_fault *fault)
{
    size_t width = zt_dtype_bytes(z->cfg.dtype);
    struct zt_piece part;
    zt_err rc = zt_state_acquire_all(z, ZT_STATE_SECONDARY, b, ZT_WRITE, &part, fault);

    if (!rc)
        rc = z->cfg.backend->copy(z->cfg.device, NULL, part.data,
                                  (const char *)g->data + (size_t)part.begin * width,
                                  (size_t)part.n * width, fault);
    return zt_state_commit(&part, rc, fault);
}

static zt_err finish_gather(struct zt_zero *z, struct zt_block *b, struct zt_fault *fault)
{
    struct zt_gathered *g = gathered_of(z, b);
    zt_err rc = ZT_OK;

    if (g->in_flight && !z->planning && g->from) {
        zt_trace_begin("wait", "gather");
        rc = zt_comm_wait(g->from, g->gather, fault);
        zt_trace_end();
        rc = zt_state_commit(&g->shard, rc, fault);
        if (!rc && z->hpz && g->from != z->secondary_comm && z->mode == ZT_MODE_TRAIN)
            rc = save_secondary(z, b, g, fault);
    }
    if (g->loaded)
        zt_pool_free(z->transient_pool, g->loaded);
    g->loaded = NULL;
    g->in_flight = false;
    b->weights = g->data;
    return rc;
}

/* Release what is gathered, or being gathered, for other calls than this one. */
static zt_err release_others(struct zt_zero *z, struct zt_fault *fault)
{
    zt_err rc = ZT_OK;

    for (int i = 0; !rc && i < z->cfg.model->num_blocks; i++) {
        struct zt_block *other = z->cfg.model->blocks[i];

        if (!z->gathered[i].data || z->gathered[i].users)
            continue;
        rc = finish_gather(z, other, fault);
        if (!rc)
            release(z, other);
    }
    return rc;
}

static zt_err gather_block(struct zt_zero *z, struct zt_block *b, struct zt_fault *fault)
{
    struct zt_gathered *g = gathered_of(z, b);
    zt_err rc = ZT_OK;

    if (!g->data) {
        bool room = make_room(z, b->numel, -1) && !alloc_gathered(z, b, NULL);

        /* gathers in flight may take too much; another order than planned leaves holes */
        if (!room)
            rc = release_others(z, fault);
        if (!rc && !room)
            rc = alloc_gathered(z, b, fault);
        if (!rc)
            rc = start_gather_into(z, b, fault);
    }
    if (!rc)
        rc = finish_gather(z, b, fault);
    if (rc)
        return zt_fault_context(fault, rc, "gathering the weights of block %s", b->name);
    return ZT_OK;
}

/* Parameters that were fetched ahead and not yet needed. */
static int64_t elems_in_flight(const struct zt_zero *z)
{
    int64_t sum = 0;

    for (int i = 0; i < z->cfg.model->num_blocks; i++)
        sum += z->gathered[i].in_flight ? z->cfg.model->blocks[i]->numel : 0;
    return sum;
}

/*
 * Start gathers for the calls that come next, as far as they fit: never are more than
 * prefetch_bucket_size parameters in flight, but for a single block ("auto" is less
 * than most blocks have), and none when it is 0. Not beyond the turn from forward to
 * backward when the two gather from different groups.
 */
static zt_err prefetch(struct zt_zero *z, struct zt_fault *fault)
{
    const struct zt_zero_options *o = z->cfg.options;
    const struct zt_call_record *v = record_of(z);
    int64_t ahead = elems_in_flight(z);
    zt_err rc = ZT_OK;

    if (!z->follows_record || !o->overlap_comm || o->prefetch_bucket_size == 0)
        return ZT_OK;
    for (int call = z->call_index; !rc && call < v->num; call++) {
        struct zt_block *b;

        if (z->hpz && v->at[call].backward != z->in_backward)
            break;
        for (int i = 0; !rc && (b = zt_needed_block(called_at(z, call), i)); i++) {
            if (!zt_is_gathered(z, b) || gathered_of(z, b)->data)
                continue;
            if (zt_update_is_due(z, b)) /* it is not what it will be */
                return ZT_OK;
            if (ahead > 0 && ahead + b->numel > o->prefetch_bucket_size)
                return ZT_OK;
            if (!make_room(z, b->numel, call) || alloc_gathered(z, b, NULL))
                return ZT_OK;
            ahead += b->numel;
            rc = start_gather_into(z, b, fault);
        }
    }
    return rc;
}

/* The shard of the next block that is not here begins to move, where it is offloaded. */
static zt_err move_next(struct zt_zero *z, struct zt_fault *fault)
{
    const struct zt_call_record *v = record_of(z);
    bool begun;

    if (!z->follows_record || z->planning)
        return ZT_OK;
    for (int call = z->call_index; call < v->num; call++) {
        const struct zt_block *b;

        for (int i = 0; (b = zt_needed_block(called_at(z, call), i)); i++)
            if (zt_update_is_due(z, b))
                return ZT_OK;
            else if (zt_is_gathered(z, b) && !gathered_of(z, b)->data)
                return zt_state_prefetch(z, ZT_STATE_WEIGHTS, b, zt_shard_begin(z, b),
                                         zt_shard_elems(z, b), &begun, fault);
    }
    return ZT_OK;
}

/* ---- calls ---- */

zt_err zt_gather_enter(struct zt_zero *z, struct zt_block *b, struct zt_fault *fault)
{
    bool expected = z->follows_record;
    struct zt_block *n;
    zt_err rc = ZT_OK;

    if (z->stage < 3)
        return ZT_OK;
    rc = record_call(z, b, fault);
    for (int i = 0; (n = zt_needed_block(b, i)); i++)
        gathered_of(z, n)->users++; /* one does not make room for another */
    if (!rc && expected && !z->follows_record)
        rc = release_others(z,
                            fault); /* this pass calls other blocks: they are of no use */
    for (int i = 0; !rc && (n = zt_needed_block(b, i)); i++)
        if (zt_is_gathered(z, n))
            rc = gather_block(z, n, fault);
    if (!rc)
        rc = prefetch(z, fault);
    return rc ? rc : move_next(z, fault);
}

zt_err zt_gather_leave(struct zt_zero *z, struct zt_block *b, struct zt_fault *fault)
{
    struct zt_block *n;

    (void)fault;
    for (int i = 0; z->stage == 3 && (n = zt_needed_block(b, i)); i++) {
        int use;

        if (--gathered_of(z, n)->users > 0 || !zt_is_gathered(z, n))
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
    z->call_index = 0;
    z->follows_record = record_of(z)->known;
}

zt_err zt_gather_end(struct zt_zero *z, struct zt_fault *fault)
{
    zt_err rc = ZT_OK;

    if (z->stage < 3)
        return ZT_OK;
    for (int i = 0; !rc && i < z->cfg.model->num_blocks; i++) {
        struct zt_block *b = z->cfg.model->blocks[i];

        if (!z->gathered[i].data)
            continue;
        rc = finish_gather(z, b, fault); /* fetched ahead for a call that did not come */
        release(z, b);
    }
    record_of(z)->num = z->call_index;
    record_of(z)->known = true;
    return rc;
}

int64_t zt_zero_largest_call(const struct zt_zero *z, const struct zt_block **block)
{
    int64_t most = 0;

    for (int i = 0; z->stage == 3 && i < z->cfg.model->num_blocks; i++) {
        const struct zt_block *b = z->cfg.model->blocks[i], *n;
        int64_t sum = 0;

        for (int k = 0; (n = zt_needed_block(b, k)); k++)
            sum += zt_is_gathered(z, n) ? n->numel : 0;
        if (sum > most) {
            most = sum;
            *block = b;
        }
    }
    return most;
}
