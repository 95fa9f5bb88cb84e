/* values.c -- values of parameters in and out, whoever holds them; the fingerprint. */
#include <string.h>
#include <xxhash.h>

#include "worker/zero/private.h"

#define PIECE_ELEMS ((int64_t)1 << 20)

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

zt_err zt_zero_set(struct zt_zero *z, const struct zt_param *p, int64_t from, int64_t n,
                   const float *values, struct zt_fault *fault)
{
    const struct zt_block *b = p->block;
    int64_t at = p->offset_elems + from;
    void *master = zt_region_at(z, &z->master, b, at);
    zt_err rc = ZT_OK;

    if (master)
        rc = zt_zero_axpby(z, values, ZT_F32, master, ZT_F32, n, 1, 0, fault);
    if (!rc)
        rc = zt_zero_axpby(z, values, ZT_F32, zt_region_at(z, &z->weights, b, at),
                           z->cfg.dtype, n, 1, 0, fault);
    return rc;
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
            rc = zt_zero_set(z, p, at, n, piece, fault);
        at += n;
        left -= n;
    }
    return rc ? zt_fault_context(fault, rc, "initial values of %s", p->name) : ZT_OK;
}

zt_err zt_zero_init(struct zt_zero *z, uint64_t seed, struct zt_fault *fault)
{
    size_t bytes = (size_t)PIECE_ELEMS * sizeof(float);
    void *piece = NULL;
    zt_err rc = zt_zone_take(z, ZT_ZONE_OWN, bytes, &piece, fault);

    for (int i = 0; !rc && i < z->cfg.model->num_params; i++)
        rc = init_param(z, z->cfg.model->params[i], seed, piece, fault);
    if (!rc)
        rc = z->cfg.backend->sync(z->cfg.device, NULL, fault);
    zt_zone_give(z, ZT_ZONE_OWN, piece, bytes);
    return rc ? rc : zt_zero_publish(z, fault);
}

/* ---- out ---- */

/* Values that this rank holds itself: the fp32 master where there is one. */
static zt_err own_values(const struct zt_zero *z, const struct zt_block *b, int64_t at,
                         int64_t n, float *out, struct zt_fault *fault)
{
    const void *master = zt_region_at(z, &z->master, b, at);

    return zt_zero_axpby((struct zt_zero *)z,
                         master ? master : zt_region_at(z, &z->weights, b, at),
                         master ? ZT_F32 : z->cfg.dtype, out, ZT_F32, n, 1, 0, fault);
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
            rc = zt_broadcast(z->cfg.comm, out, (size_t)(end - begin), ZT_F32, r, fault);
    }
    return rc;
}

zt_err zt_zero_fingerprint(struct zt_zero *z, uint64_t *out, struct zt_fault *fault)
{
    float chunk[ZT_NORM_CHUNK];
    uint64_t sum = 0, all = 0;
    zt_err rc = zt_publish_await(z, NULL, fault); /* it writes beside what is read here */

    for (int i = 0; !rc && i < z->cfg.model->num_blocks; i++) {
        const struct zt_block *b = z->cfg.model->blocks[i];
        const struct zt_param *last = b->num_params ? b->params[b->num_params - 1] : NULL;
        int64_t end = last ? last->offset_elems + last->numel : 0;
        int64_t at = zt_shard_begin(z, b), stop = at + zt_shard_elems(z, b);

        for (; !rc && at < stop && at < end; at += ZT_NORM_CHUNK) {
            rc = own_values(z, b, at, ZT_NORM_CHUNK, chunk, fault);
            sum += XXH3_64bits_withSeed(
                chunk, sizeof(chunk), (uint64_t)i << 40 | (uint64_t)(at / ZT_NORM_CHUNK));
        }
    }
    if (!rc)
        rc = zt_all_reduce(z->cfg.comm, &sum, &all, 1, ZT_I64, ZT_SUM, 1, fault);
    *out = all;
    return rc;
}
