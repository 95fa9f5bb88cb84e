/*
 * mask.c -- biases for attention from fields that say what is padding.
 *
 * A bias is fp32 whatever the run computes in, since lengths are exact there. It has one
 * row for all queries: a view with stride 0 along that axis, which attention reads in
 * place.
 */
#include <stdlib.h>

#include "worker/autograd/tape.h"

/* Its exponential beside any score is 0, and adding to it does not overflow. */
#define HIDDEN (-1e30f)

/* bias (B * Tk) of all queries as (B, 1, Tq, Tk). */
static zt_tensor *for_queries(zt_step *s, zt_tensor *bias, int64_t B, int64_t queries,
                              int64_t keys)
{
    const int64_t shape[4] = {B, 1, queries, keys}, stride[4] = {keys, 0, 0, 1};

    return bias ? zt_value_view(s, bias, 4, shape, stride, 0) : NULL;
}

static bool check_queries(struct zt_step *s, int64_t queries, int64_t keys)
{
    if (queries <= 0 || keys <= 0)
        zt_step_fail(s, ZT_E_ARG, "%lld queries of %lld keys", (long long)queries,
                     (long long)keys);
    return !s->fault.code;
}

zt_tensor *zt_padding_bias(zt_step *s, zt_tensor *mask, int64_t queries)
{
    static const float values[2] = {HIDDEN, 0};
    zt_tensor *bias;

    if (!ZT_OP_START(s, "padding_bias", mask))
        return NULL;
    if (mask->view.ndim != 2 || mask->view.dtype != ZT_I32)
        return zt_step_fail(s, ZT_E_ARG, "mask %s %s, but (B, T) i32 is wanted",
                            ZT_SHAPE_TEXT(mask), zt_dtype_name(mask->view.dtype));
    if (!check_queries(s, queries, mask->view.shape[1]))
        return NULL;
    bias = zt_embedding(s, mask, zt_constant(s, ZT_F32, ZT_SHAPE(2, 1), values));
    return for_queries(s, bias, mask->view.shape[0], queries, mask->view.shape[1]);
}

/* first, first + 1, ... as (n) or (n, 1) fp32. */
static zt_tensor *count_from(zt_step *s, float first, int64_t n, bool as_table)
{
    float *values = malloc((size_t)n * sizeof(*values));
    zt_tensor *t;

    if (!values)
        return zt_step_fail(s, ZT_E_NOMEM, "no host memory");
    for (int64_t i = 0; i < n; i++)
        values[i] = first + (float)i;
    t = zt_constant(s, ZT_F32, as_table ? 2 : 1, (const int64_t[]){n, 1}, values);
    free(values);
    return t;
}

/* relu(first + j - lengths[b]) as (B, keys) fp32; `less` (B, keys) is -lengths[b]. */
static zt_tensor *excess(zt_step *s, zt_tensor *less, float first, int64_t keys)
{
    return zt_relu(s, zt_add(s, less, count_from(s, first, keys, false)));
}

/*
 * Whole numbers, exact in fp32: relu(x + 1) - relu(x) of x = j - lengths[b] is 1 where
 * key j is padding, else 0.
 */
zt_tensor *zt_length_bias(zt_step *s, zt_tensor *lengths, int64_t queries, int64_t keys)
{
    zt_tensor *x;
    int64_t B;

    if (!ZT_OP_START(s, "length_bias", lengths))
        return NULL;
    if (lengths->view.ndim != 1 || lengths->view.dtype != ZT_I32)
        return zt_step_fail(s, ZT_E_ARG, "lengths %s %s, but (B) i32 is wanted",
                            ZT_SHAPE_TEXT(lengths), zt_dtype_name(lengths->view.dtype));
    if (!check_queries(s, queries, keys))
        return NULL;
    B = lengths->view.shape[0];
    x = zt_embedding(s, lengths, count_from(s, 0, keys + 1, true)); /* (B, 1) fp32 */
    if (!x)
        return NULL;
    x = zt_value_view(s, x, 2, (const int64_t[]){B, keys}, (const int64_t[]){1, 0}, 0);
    x = zt_scale(s, x, -1);
    x = zt_add(s, excess(s, x, 1, keys), zt_scale(s, excess(s, x, 0, keys), -1));
    return for_queries(s, zt_scale(s, x, HIDDEN), B, queries, keys);
}
