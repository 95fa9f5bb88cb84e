/*
 * attention_decode.c -- attention of a token that is being written to those before it.
 *
 * The kernel puts the new keys and values into the cache itself, each row's behind its own.
 */
#include <math.h>

#include "worker/autograd/tape.h"

/* Two products with each key that is seen. */
static void count_flops(struct zt_step *s, const struct zt_tensor *q, int64_t window)
{
    for (int64_t b = 0; b < s->pass.B; b++) {
        int64_t keys = zt_cache_length(s, b) + 1;

        keys = window && keys > window ? window : keys;
        s->flops += 4 * (double)(keys * q->view.shape[2]) * (double)q->view.shape[3];
    }
}

/* For every key of every row, or for as many as the cache has room for. */
static bool check_bias(struct zt_step *s, const char *name, const struct zt_tensor *bias,
                       const struct zt_tensor *q)
{
    int64_t B = q->view.shape[0], H = q->view.shape[2], keys = zt_cache_longest(s) + 1;
    const int64_t *d = bias->view.shape;

    if (bias->view.ndim != 4 || (d[0] != 1 && d[0] != B) || (d[1] != 1 && d[1] != H) ||
        d[2] != 1 || (d[3] != keys && d[3] != s->cache.max_tokens) ||
        bias->view.dtype > ZT_F16)
        zt_step_fail(s, ZT_E_ARG, "%s %s, but (1 or %lld, 1 or %lld, 1, %lld) is wanted",
                     name, ZT_SHAPE_TEXT(bias), (long long)B, (long long)H,
                     (long long)keys);
    return !s->fault.code;
}

struct zt_tensor *zt_attention_decode(struct zt_step *s, struct zt_tensor *q,
                                      struct zt_tensor *k, struct zt_tensor *v,
                                      const struct zt_attention *how)
{
    struct zt_attention_decode_args a = {.window = how->window};
    struct zt_cache_entry *e = zt_cache_next(s, k);
    struct zt_tensor *lengths, *out, *bias = how->bias ? how->bias : how->mask;

    if (how->bias && how->mask)
        return zt_step_fail(s, ZT_E_UNSUPPORTED,
                            "a bias and a mask: a token that is written behind cached "
                            "ones takes one of them; add them up");
    if (!e || (bias && !check_bias(s, how->bias ? "bias" : "mask", bias, q)))
        return NULL;
    bias = bias ? zt_unit_last(s, bias) : NULL;
    lengths = zt_cache_lengths(s);
    out = zt_value_new(s, q->view.dtype, 4, q->view.shape);
    if (s->fault.code)
        return NULL;
    a.q = zt_data(q);
    a.k_new = zt_data(k);
    a.v_new = zt_data(v);
    a.k = zt_cache_rows(s, e, e->k);
    a.v = zt_cache_rows(s, e, e->v);
    a.lengths = zt_data(lengths);
    a.out = zt_data(out);
    if (bias)
        a.bias = zt_data(bias);
    a.scale = how->scale != 0 ? how->scale : 1 / sqrtf((float)q->view.shape[3]);
    count_flops(s, q, how->window);
    zt_step_check(s, s->k->attention_decode(s->cfg.device, NULL, &a, &s->fault));
    return s->fault.code ? NULL : out;
}
