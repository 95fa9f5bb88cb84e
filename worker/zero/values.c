/* values.c -- values of parameters in and out, whoever holds them; the fingerprint. */
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
        rc = zt_zone_take(z, ZT_ZONE_OWN, PIECE_BYTES, &p, fault);
    z->staging = p;
    return rc;
}

void zt_values_close(struct zt_zero *z)
{
    zt_zone_give(z, ZT_ZONE_OWN, z->staging, PIECE_BYTES);
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

/* Values that kernels reach, into everything that this rank holds of them. */
static zt_err store_values(struct zt_zero *z, const struct zt_block *b, int64_t at,
                           int64_t n, const float *values, struct zt_fault *fault)
{
    void *master = zt_region_at(z, &z->master, b, at);
    zt_err rc = ZT_OK;

    if (master)
        rc = zt_zero_axpby(z, values, ZT_F32, master, ZT_F32, n, 1, 0, fault);
    if (!rc)
        rc = zt_zero_axpby(z, values, ZT_F32, zt_region_at(z, &z->weights, b, at),
                           z->cfg.dtype, n, 1, 0, fault);
    return rc;
}

/* The same from host memory, by the staging piece. */
static zt_err stage_values(struct zt_zero *z, const struct zt_block *b, int64_t at,
                           int64_t n, const float *values, struct zt_fault *fault)
{
    const struct zt_backend *be = z->cfg.backend;
    zt_err rc = ZT_OK;

    for (int64_t done = 0, k; !rc && done < n; done += k) {
        k = n - done < PIECE_ELEMS ? n - done : PIECE_ELEMS;
        rc = be->upload(z->cfg.device, NULL, z->staging, values + done,
                        (size_t)k * sizeof(float), fault);
        if (!rc)
            rc = store_values(z, b, at + done, k, z->staging, fault);
        if (!rc) /* the caller's memory is his again */
            rc = be->sync(z->cfg.device, NULL, fault);
    }
    return rc;
}

zt_err zt_zero_set(struct zt_zero *z, const struct zt_param *p, int64_t from, int64_t n,
                   const float *values, struct zt_fault *fault)
{
    int64_t at = p->offset_elems + from;

    return z->staging ? stage_values(z, p->block, at, n, values, fault)
                      : store_values(z, p->block, at, n, values, fault);
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
        return z->k->random(z->cfg.device, NULL, &a, fault);
    }
    struct zt_fill_args f = {.y = y,
                             .value = p->init.kind == ZT_INIT_CONSTANT ? p->init.a : 0};
    return z->k->fill(z->cfg.device, NULL, &f, fault);
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
            rc = store_values(z, p->block, p->offset_elems + at, n, piece, fault);
        at += n;
        left -= n;
    }
    return rc ? zt_fault_context(fault, rc, "initial values of %s", p->name) : ZT_OK;
}

zt_err zt_zero_init(struct zt_zero *z, uint64_t seed, struct zt_fault *fault)
{
    void *piece = z->staging;
    zt_err rc = ZT_OK;

    if (!piece)
        rc = zt_zone_take(z, ZT_ZONE_OWN, PIECE_BYTES, &piece, fault);

    for (int i = 0; !rc && i < z->cfg.model->num_params; i++)
        rc = init_param(z, z->cfg.model->params[i], seed, piece, fault);
    if (!rc)
        rc = z->cfg.backend->sync(z->cfg.device, NULL, fault);
    if (piece != z->staging)
        zt_zone_give(z, ZT_ZONE_OWN, piece, PIECE_BYTES);
    return rc ? rc : zt_zero_publish(z, fault);
}

/* ---- out ---- */

/* Values that this rank holds itself, the fp32 master where there is one, as fp32 where
 * kernels reach them. */
static zt_err load_values(struct zt_zero *z, const struct zt_block *b, int64_t at,
                          int64_t n, float *out, struct zt_fault *fault)
{
    const void *master = zt_region_at(z, &z->master, b, at);

    return zt_zero_axpby(z, master ? master : zt_region_at(z, &z->weights, b, at),
                         master ? ZT_F32 : z->cfg.dtype, out, ZT_F32, n, 1, 0, fault);
}

/* The same into host memory. */
static zt_err own_values(struct zt_zero *z, const struct zt_block *b, int64_t at,
                         int64_t n, float *out, struct zt_fault *fault)
{
    const struct zt_backend *be = z->cfg.backend;
    zt_err rc = ZT_OK;

    if (!z->staging)
        return load_values(z, b, at, n, out, fault);
    for (int64_t done = 0, k; !rc && done < n; done += k) {
        k = n - done < PIECE_ELEMS ? n - done : PIECE_ELEMS;
        rc = load_values(z, b, at + done, k, z->staging, fault);
        if (!rc)
            rc = be->download(z->cfg.device, NULL, out + done, z->staging,
                              (size_t)k * sizeof(float), fault);
        if (!rc)
            rc = be->sync(z->cfg.device, NULL, fault);
    }
    return rc;
}

/* Whether this rank alone can tell a block's values. */
static bool holds_all(const struct zt_zero *z, const struct zt_block *b)
{
    return zt_region_at(z, &z->master, b, 0) ? z->master.whole[b->index]
                                             : z->weights.whole[b->index];
}

zt_err zt_zero_get(struct zt_zero *z, const struct zt_param *p, int64_t from, int64_t n,
                   float *values, struct zt_fault *fault)
{
    const struct zt_block *b = p->block;
    int64_t lo = p->offset_elems + from, hi = lo + n, shard = zt_shard_elems(z, b);
    zt_err rc = ZT_OK;

    rc = zt_publish_await(z, NULL, fault);
    if (rc)
        return rc;
    if (z->stage == 0 || (holds_all(z, b) && !z->unpublished))
        return own_values(z, b, lo, n, values, fault);
    for (int r = 0; !rc && r < z->cfg.world; r++) {
        int64_t begin = r * shard > lo ? r * shard : lo;
        int64_t end = (r + 1) * shard < hi ? (r + 1) * shard : hi;
        float *out = values + (begin - lo);

        if (begin >= end)
            continue;
        if (r == z->cfg.rank)
            rc = own_values(z, b, begin, end - begin, out, fault);
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
        rc = own_values(z, b, at, n, values, fault);
        for (int64_t i = 0; !rc && i < n && at + i < end; i += ZT_NORM_CHUNK)
            *sum += XXH3_64bits_withSeed(values + i, ZT_NORM_CHUNK * sizeof(float),
                                         (uint64_t)b->index << 40 |
                                             (uint64_t)((at + i) / ZT_NORM_CHUNK));
    }
    return rc;
}

zt_err zt_zero_fingerprint(struct zt_zero *z, uint64_t *out, struct zt_fault *fault)
{
    float *values = malloc(HASH_ELEMS * sizeof(*values));
    uint64_t sum = 0, all = 0;
    zt_err rc;

    if (!values)
        return zt_fault_set(fault, ZT_E_NOMEM, "fingerprint: no host memory");
    rc = zt_publish_await(z, NULL, fault); /* it writes beside what is read here */
    for (int i = 0; !rc && i < z->cfg.model->num_blocks; i++)
        rc = hash_block(z, z->cfg.model->blocks[i], values, &sum, fault);
    free(values);
    if (!rc)
        rc = zt_all_reduce(z->host, &sum, &all, 1, ZT_I64, ZT_SUM, 1, fault);
    *out = all;
    return rc;
}
