/* state_values.c -- values of parameters in and out, whoever holds them; the fingerprint. */
#include <stdlib.h>
#include <xxhash.h>

#include "worker/zero/private.h"

#define PIECE_ELEMS ((int64_t)1 << 20)
#define PIECE_BYTES ((size_t)PIECE_ELEMS * sizeof(float))

/* ---- the staging piece ---- */

zt_err zt_values_open(struct zt_zero *z, struct zt_fault *fault)
{
    void *p = NULL;
    zt_err rc = ZT_OK;

    if (z->cfg.staged)
        rc = zt_memory_alloc(z, ZT_MEMORY_PRIVATE, PIECE_BYTES, &p, fault);
    z->staging = p;
    return rc;
}

void zt_values_close(struct zt_zero *z)
{
    zt_memory_free(z, ZT_MEMORY_PRIVATE, z->staging, PIECE_BYTES);
}

size_t zt_values_staging_bytes(const struct zt_zero *z)
{
    return z->cfg.staged ? PIECE_BYTES : 0;
}

/* ---- in ---- */

void zt_zero_part(const struct zt_zero *z, const struct zt_param *p, int64_t *from,
                  int64_t *n)
{
    const struct zt_block *b = p->block;
    int64_t begin = z->stage ? zt_shard_begin(z, b) - p->offset_elems : 0;
    int64_t end = z->stage ? begin + zt_shard_elems(z, b) : p->numel;

    begin = begin > 0 ? begin : 0;
    end = end < p->numel ? end : p->numel;
    *from = begin;
    *n = end > begin ? end - begin : 0;
}

/* `n` fp32 values that kernels reach, into one kind of state from element `at`. */
static zt_err store_kind(struct zt_zero *z, zt_state_kind kind, const struct zt_block *b,
                         int64_t at, int64_t n, const float *values,
                         struct zt_fault *fault)
{
    zt_err rc = ZT_OK;

    for (int64_t done = 0, k; !rc && done < n; done += k) {
        struct zt_piece to;

        rc = zt_state_acquire_around(z, kind, b, at + done, n - done, ZT_WRITE, &to,
                                     fault);
        if (rc)
            return rc;
        k = to.begin + to.n - (at + done);
        k = k < n - done ? k : n - done;
        rc = zt_zero_axpby(z, values + done, ZT_F32, zt_piece_at(&to, at + done),
                           to.dtype, k, 1, 0, fault);
        rc = zt_state_commit(&to, rc, fault);
    }
    return rc;
}

/* The same where ZT_STATE_VALUE means the master and the weights. */
static zt_err store_values(struct zt_zero *z, zt_state_kind kind,
                           const struct zt_block *b, int64_t at, int64_t n,
                           const float *values, struct zt_fault *fault)
{
    zt_err rc = ZT_OK;

    if (kind != ZT_STATE_VALUE)
        return store_kind(z, kind, b, at, n, values, fault);
    if (zt_state_has(z, ZT_STATE_MASTER, b))
        rc = store_kind(z, ZT_STATE_MASTER, b, at, n, values, fault);
    return rc ? rc : store_kind(z, ZT_STATE_WEIGHTS, b, at, n, values, fault);
}

/* The same from host memory, by the staging piece. */
static zt_err store_from_host(struct zt_zero *z, zt_state_kind kind,
                              const struct zt_block *b, int64_t at, int64_t n,
                              const float *values, struct zt_fault *fault)
{
    const struct zt_backend *be = z->cfg.backend;
    zt_err rc = ZT_OK;

    for (int64_t done = 0, k; !rc && done < n; done += k) {
        k = n - done < PIECE_ELEMS ? n - done : PIECE_ELEMS;
        rc = be->upload(z->cfg.device, NULL, z->staging, values + done,
                        (size_t)k * sizeof(float), fault);
        if (!rc)
            rc = store_values(z, kind, b, at + done, k, z->staging, fault);
        if (!rc) /* the upload has read the caller's memory */
            rc = be->sync(z->cfg.device, NULL, fault);
    }
    return rc;
}

/* A frozen parameter in a block that is not has room for gradients and moments, unused. */
bool zt_zero_has(const struct zt_zero *z, zt_state_kind kind, const struct zt_param *p)
{
    if (kind == ZT_STATE_VALUE)
        return true;
    if ((p->flags & ZT_FROZEN) && kind != ZT_STATE_WEIGHTS && kind != ZT_STATE_MASTER)
        return false;
    return zt_state_has(z, kind, p->block);
}

static zt_err check_has(const struct zt_zero *z, zt_state_kind kind,
                        const struct zt_param *p, struct zt_fault *fault)
{
    if (zt_zero_has(z, kind, p))
        return ZT_OK;
    return zt_fault_set(fault, ZT_E_ARG, "parameter %s has no %s in this run", p->name,
                        zt_state_name(kind));
}

zt_err zt_zero_set(struct zt_zero *z, zt_state_kind kind, const struct zt_param *p,
                   int64_t from, int64_t n, const float *values, struct zt_fault *fault)
{
    int64_t at = p->offset_elems + from;
    zt_err rc = check_has(z, kind, p, fault);

    if (!rc)
        rc = zt_publish_finish(z, fault);
    if (rc)
        return rc;
    if (zt_is_split(z, kind, p->block))
        return zt_split_store(z, p->block, at, n, values, fault);
    return z->staging ? store_from_host(z, kind, p->block, at, n, values, fault)
                      : store_values(z, kind, p->block, at, n, values, fault);
}

static zt_err make_values(struct zt_zero *z, const struct zt_param *p, uint64_t seed,
                          int64_t from, int64_t n, float *out, struct zt_fault *fault)
{
    struct zt_view y = zt_view_of(out, ZT_F32, 1, &n);

    if (p->init.kind == ZT_INIT_NORMAL || p->init.kind == ZT_INIT_UNIFORM) {
        struct zt_random_args a = {
            .y = y,
            .rng = {.seed = seed,
                    .stream = zt_param_init_stream(p),
                    .offset = (uint64_t)from},
            .normal = p->init.kind == ZT_INIT_NORMAL,
            .a = p->init.a,
            .b = p->init.b,
        };
        return z->kernels->random(z->cfg.device, NULL, &a, fault);
    }
    struct zt_fill_args f = {.y = y,
                             .value = p->init.kind == ZT_INIT_CONSTANT ? p->init.a : 0};
    return z->kernels->fill(z->cfg.device, NULL, &f, fault);
}

/* Values that a kernel has made become a parameter's. */
static zt_err store_made(struct zt_zero *z, const struct zt_block *b, int64_t at,
                         int64_t n, const float *piece, struct zt_fault *fault)
{
    const struct zt_backend *be = z->cfg.backend;
    size_t bytes = (size_t)n * sizeof(float);
    float *values;
    zt_err rc;

    if (!zt_is_split(z, ZT_STATE_VALUE, b))
        return store_values(z, ZT_STATE_VALUE, b, at, n, piece, fault);
    if (!z->cfg.staged)
        return zt_split_store(z, b, at, n, piece, fault);
    values = malloc(bytes);
    if (!values)
        return zt_fault_set(fault, ZT_E_NOMEM, "no host memory");
    rc = be->download(z->cfg.device, NULL, values, piece, bytes, fault);
    if (!rc)
        rc = be->sync(z->cfg.device, NULL, fault);
    if (!rc)
        rc = zt_split_store(z, b, at, n, values, fault);
    free(values);
    return rc;
}

static zt_err init_param(struct zt_zero *z, const struct zt_param *p, uint64_t seed,
                         float *piece, struct zt_fault *fault)
{
    int64_t at, left;
    zt_err rc = ZT_OK;

    zt_zero_part(z, p, &at, &left);
    while (!rc && left > 0) {
        int64_t n = left < PIECE_ELEMS ? left : PIECE_ELEMS;

        rc = make_values(z, p, seed, at, n, piece, fault);
        if (!rc)
            rc = store_made(z, p->block, p->offset_elems + at, n, piece, fault);
        at += n;
        left -= n;
    }
    return rc ? zt_fault_context(fault, rc, "initial values of %s", p->name) : ZT_OK;
}

zt_err zt_zero_init(struct zt_zero *z, uint64_t seed, struct zt_fault *fault)
{
    void *piece = z->staging;
    zt_err rc = zt_publish_finish(z, fault);

    if (!rc && !piece)
        rc = zt_memory_alloc(z, ZT_MEMORY_PRIVATE, PIECE_BYTES, &piece, fault);

    for (int i = 0; !rc && i < z->cfg.model->num_params; i++)
        rc = init_param(z, z->cfg.model->params[i], seed, piece, fault);
    if (!rc)
        rc = z->cfg.backend->sync(z->cfg.device, NULL, fault);
    if (piece != z->staging)
        zt_memory_free(z, ZT_MEMORY_PRIVATE, piece, PIECE_BYTES);
    return rc ? rc : zt_zero_publish(z, fault);
}

/* ---- out ---- */

/* The kind that ZT_STATE_VALUE is read from. */
static zt_state_kind read_kind(const struct zt_zero *z, zt_state_kind kind,
                               const struct zt_block *b)
{
    if (kind != ZT_STATE_VALUE)
        return kind;
    return zt_state_has(z, ZT_STATE_MASTER, b) ? ZT_STATE_MASTER : ZT_STATE_WEIGHTS;
}

/* Values that this rank holds itself, as fp32 where kernels reach them. */
static zt_err load_values(struct zt_zero *z, zt_state_kind kind, const struct zt_block *b,
                          int64_t at, int64_t n, float *out, struct zt_fault *fault)
{
    zt_err rc = ZT_OK;

    for (int64_t done = 0, k; !rc && done < n; done += k) {
        struct zt_piece from;

        rc = zt_state_acquire_around(z, kind, b, at + done, n - done, ZT_READ, &from,
                                     fault);
        if (rc)
            return rc;
        k = from.begin + from.n - (at + done);
        k = k < n - done ? k : n - done;
        rc = zt_zero_axpby(z, zt_piece_at(&from, at + done), from.dtype, out + done,
                           ZT_F32, k, 1, 0, fault);
        rc = zt_state_commit(&from, rc, fault);
    }
    return rc;
}

/* The same into host memory. */
static zt_err load_to_host(struct zt_zero *z, zt_state_kind kind,
                           const struct zt_block *b, int64_t at, int64_t n, float *out,
                           struct zt_fault *fault)
{
    const struct zt_backend *be = z->cfg.backend;
    zt_err rc = ZT_OK;

    kind = read_kind(z, kind, b);
    if (zt_is_split(z, kind, b))
        return zt_split_load(z, b, at, n, out, fault);
    if (!z->staging)
        return load_values(z, kind, b, at, n, out, fault);
    for (int64_t done = 0, k; !rc && done < n; done += k) {
        k = n - done < PIECE_ELEMS ? n - done : PIECE_ELEMS;
        rc = load_values(z, kind, b, at + done, k, z->staging, fault);
        if (!rc)
            rc = be->download(z->cfg.device, NULL, out + done, z->staging,
                              (size_t)k * sizeof(float), fault);
        if (!rc)
            rc = be->sync(z->cfg.device, NULL, fault);
    }
    return rc;
}

/* Whether this rank has all of a block's values itself. */
static bool knows_all(const struct zt_zero *z, zt_state_kind kind,
                      const struct zt_block *b)
{
    kind = read_kind(z, kind, b);
    if (z->stage == 0)
        return true;
    if (kind == ZT_STATE_GRADIENTS) /* of whole ones only the shard is summed */
        return false;
    return zt_is_whole(z, kind, b) && !z->unpublished;
}

zt_err zt_zero_get(struct zt_zero *z, zt_state_kind kind, const struct zt_param *p,
                   int64_t from, int64_t n, float *values, struct zt_fault *fault)
{
    const struct zt_block *b = p->block;
    int64_t lo = p->offset_elems + from, hi = lo + n, shard = zt_shard_elems(z, b);
    zt_err rc = check_has(z, kind, p, fault);

    if (!rc)
        rc = zt_publish_wait(z, NULL, fault);
    if (rc)
        return rc;
    if (knows_all(z, kind, b))
        return load_to_host(z, kind, b, lo, n, values, fault);
    for (int r = 0; !rc && r < z->cfg.world; r++) {
        int64_t begin = r * shard > lo ? r * shard : lo;
        int64_t end = (r + 1) * shard < hi ? (r + 1) * shard : hi;
        float *out = values + (begin - lo);

        if (begin >= end)
            continue;
        if (r == z->cfg.rank)
            rc = load_to_host(z, kind, b, begin, end - begin, out, fault);
        if (!rc)
            rc = zt_broadcast(z->host, out, (size_t)(end - begin), ZT_F32, r, fault);
    }
    return rc;
}

#define HASH_ELEMS (16 * ZT_NORM_CHUNK) /* read at once */

/* The hashes of a block's chunks in this rank's shard, added to *sum. */
static zt_err hash_block(struct zt_zero *z, const struct zt_block *b, float *values,
                         uint64_t *sum, struct zt_fault *fault)
{
    const struct zt_param *last = b->num_params ? b->params[b->num_params - 1] : NULL;
    int64_t end = last ? last->offset_elems + last->numel : 0;
    int64_t at = zt_shard_begin(z, b), stop = at + zt_shard_elems(z, b), n;
    zt_err rc = ZT_OK;

    for (; !rc && at < stop && at < end; at += n) {
        n = stop - at < HASH_ELEMS ? stop - at : HASH_ELEMS;
        rc = load_to_host(z, ZT_STATE_VALUE, b, at, n, values, fault);
        for (int64_t i = 0; !rc && i < n && at + i < end; i += ZT_NORM_CHUNK)
            *sum += XXH3_64bits_withSeed(values + i, ZT_NORM_CHUNK * sizeof(float),
                                         (uint64_t)b->index << 40 |
                                             (uint64_t)((at + i) / ZT_NORM_CHUNK));
    }
    return rc;
}

/* Of all blocks, or of the frozen ones. */
static zt_err hash_blocks(struct zt_zero *z, bool frozen, uint64_t *out,
                          struct zt_fault *fault)
{
    const struct zt_model *m = z->cfg.model;
    float *values = malloc(HASH_ELEMS * sizeof(*values));
    uint64_t sum = 0, all = 0;
    zt_err rc;

    if (!values)
        return zt_fault_set(fault, ZT_E_NOMEM, "fingerprint: no host memory");
    rc = zt_publish_wait(z, NULL, fault); /* it writes beside what is read here */
    for (int i = 0; !rc && i < m->num_blocks; i++)
        if (!frozen || m->blocks[i]->frozen)
            rc = hash_block(z, m->blocks[i], values, &sum, fault);
    free(values);
    if (!rc)
        rc = zt_all_reduce(z->host, &sum, &all, 1, ZT_I64, ZT_SUM, 1, fault);
    *out = all;
    return rc;
}

zt_err zt_zero_fingerprint(struct zt_zero *z, uint64_t *out, struct zt_fault *fault)
{
    return hash_blocks(z, false, out, fault);
}

zt_err zt_zero_frozen_fingerprint(struct zt_zero *z, uint64_t *out,
                                  struct zt_fault *fault)
{
    return hash_blocks(z, true, out, fault);
}
