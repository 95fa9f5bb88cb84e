/*
 * cross_attention.c -- attention of the tokens of a text to its source, and the distances of
 * its tokens to each other.
 *
 * Passes that write from a cache read the keys of each source where its first pass has left
 * them. Rows of one source are neighbours and share them: as the keys of all these rows they
 * have a stride of zero.
 */
#include <math.h>
#include <stdlib.h>

#include "worker/autograd/tape.h"

/* Rows [row, row + num) of (B, ...). */
static struct zt_view rows_of(const struct zt_view *v, int64_t row, int64_t num)
{
    struct zt_view out = *v;

    out.shape[0] = num;
    out.data = (char *)v->data + (size_t)(row * v->stride[0]) * zt_dtype_bytes(v->dtype);
    return out;
}

/* What an entry keeps of the sources from `source` on, for `rows` rows of one source or of
 * one each: (rows, max_source, K, D). */
static struct zt_view kept(const struct zt_step *s, const struct zt_cache_entry *e,
                           void *memory, int64_t source, int64_t rows)
{
    const struct zt_cache *c = &s->cache;
    const int64_t shape[4] = {c->num_sources, c->max_source, e->heads, e->width};
    struct zt_view all = zt_view_of(memory, s->cfg.compute_dtype, 4, shape);
    struct zt_view out = rows_of(&all, source, rows);

    if (c->rows_each > 1)
        out.stride[0] = 0;
    return out;
}

/* q, out (B, 1, H, D): the rows of each source by one call, or all where each has its own. */
static void attend(struct zt_step *s, const struct zt_cache_entry *e,
                   const struct zt_attention_decode_args *all)
{
    int64_t each = s->cache.rows_each, B = s->pass.B, n;

    for (int64_t row = 0; !s->fault.code && row < B; row += n) {
        int64_t at = s->pass.cache_row + row;
        struct zt_attention_decode_args a = {.scale = all->scale};

        n = each > 1 && each - at % each < B - row ? each - at % each : B - row;
        a.q = rows_of(&all->q, row, n);
        a.out = rows_of(&all->out, row, n);
        a.lengths = rows_of(&all->lengths, row, n);
        a.k = kept(s, e, e->k, at / each, n);
        a.v = kept(s, e, e->v, at / each, n);
        zt_step_check(s, s->k->attention_decode(s->cfg.device, NULL, &a, &s->fault));
    }
}

static bool check_query(struct zt_step *s, const struct zt_tensor *q,
                        const struct zt_cache_entry *e)
{
    const int64_t *d = q->view.shape;

    if (q->view.ndim != 4 || d[0] != s->pass.B || d[1] != 1 || d[3] != e->width ||
        d[2] % e->heads)
        zt_step_fail(s, ZT_E_ARG,
                     "queries %s, but (%lld, 1, a multiple of %lld, %lld) is wanted",
                     ZT_SHAPE_TEXT(q), (long long)s->pass.B, (long long)e->heads,
                     (long long)e->width);
    return !s->fault.code;
}

static void count_flops(struct zt_step *s, const struct zt_tensor *q)
{
    for (int64_t b = 0; b < s->pass.B; b++)
        s->flops += 4 * (double)s->cache.uploaded_sources[b] *
                    (double)(q->view.shape[2] * q->view.shape[3]);
}

static struct zt_tensor *attend_cached(struct zt_step *s, struct zt_tensor *q,
                                       struct zt_tensor *k, struct zt_tensor *v,
                                       float scale)
{
    struct zt_attention_decode_args a = {.scale = scale};
    const struct zt_cache_entry *e;
    struct zt_tensor *lengths, *out;

    if (!zt_op_start(s, "cross_attention", &q, 1))
        return NULL;
    if (!k != !v || !k != !s->pass.S)
        return zt_step_fail(
            s, ZT_E_PLUGIN,
            "keys and values are there in the pass that reads the source, "
            "and NULL in those that follow");
    e = zt_cache_source(s, k, v);
    if (!e || !check_query(s, q, e))
        return NULL;
    q = zt_unit_last(s, q);
    lengths = zt_cache_source_lengths(s);
    out = q ? zt_value_new(s, q->view.dtype, 4, q->view.shape) : NULL;
    if (!q || !lengths || !out)
        return NULL;
    a.q = zt_data(q);
    a.lengths = zt_data(lengths);
    a.out = zt_data(out);
    if (scale == 0)
        a.scale = 1 / sqrtf((float)q->view.shape[3]);
    count_flops(s, q);
    attend(s, e, &a);
    return s->fault.code ? NULL : out;
}

zt_tensor *zt_cross_attention(zt_step *s, zt_tensor *q, zt_tensor *k, zt_tensor *v,
                              const struct zt_attention *opt)
{
    bool kept_sources = zt_cache_has_sources(s);

    if (opt && (opt->bias || opt->causal)) {
        if (zt_op_start(s, "cross_attention", &q, 1))
            zt_step_fail(s, ZT_E_ARG, "it is not causal and has no bias");
        return NULL;
    }
    if (kept_sources && zt_cache_is_used(s))
        return attend_cached(s, q, k, v, opt ? opt->scale : 0);
    if (kept_sources && s->pass.uncached && s->pass.S == 0)
        return q; /* a pass for its gathers: nobody reads what it computes */
    return zt_attention(s, q, k, v, opt);
}

/* ---- distances ---- */

static struct zt_tensor *ids_of_rows(struct zt_step *s, int64_t keys,
                                     int32_t (*of)(const void *ctx, int64_t distance),
                                     const void *ctx)
{
    const int64_t shape[3] = {s->pass.B, 1, keys};
    bool cached = zt_cache_is_used(s);
    int32_t *ids = zt_cache_relative_ids(s);
    struct zt_tensor *t = ids ? zt_value_new(s, ZT_I32, 3, shape) : NULL;

    if (!t)
        return NULL;
    for (int64_t b = 0; b < s->pass.B; b++)
        for (int64_t j = 0; j < keys; j++)
            ids[b * keys + j] = of(ctx, j - (cached ? zt_cache_length(s, b) : 0));
    zt_value_upload(s, t, ids);
    return s->fault.code ? NULL : t;
}

zt_tensor *zt_relative_positions(zt_step *s, int64_t T,
                                 int32_t (*of)(const void *ctx, int64_t distance),
                                 const void *ctx)
{
    bool cached = zt_cache_is_used(s);
    int64_t first = cached ? zt_cache_length(s, 0) : 0, keys = first + T;
    struct zt_tensor *t;
    int32_t *ids;

    if (!zt_op_start(s, "relative_positions", NULL, 0))
        return NULL;
    if (T <= 0 || T > INT32_MAX / 2 - first || !of)
        return zt_step_fail(s, ZT_E_ARG, "of %lld tokens", (long long)T);
    if (s->cache.open && s->pass.mode == ZT_MODE_GENERATE && T == 1)
        return ids_of_rows(s, cached ? s->cache.max_tokens : 1, of, ctx);
    ids = malloc((size_t)(T * keys) * sizeof(*ids));
    if (!ids)
        return zt_step_fail(s, ZT_E_NOMEM, "no host memory");
    for (int64_t j = 0; j < keys; j++)
        ids[j] = of(ctx, j - first);
    for (int64_t i = 1; i < T; i++) {
        ids[i * keys] = of(ctx, -(first + i));
        for (int64_t j = 1; j < keys; j++) /* as far apart as their neighbours */
            ids[i * keys + j] = ids[(i - 1) * keys + j - 1];
    }
    t = zt_constant(s, ZT_I32, ZT_SHAPE(1, T, keys), ids);
    free(ids);
    return t;
}
