/*
 * Rotary embedding (Su et al. 2021): pairs (a, b) of a head turn by an angle that depends
 * on the position. The pairs are (x_i, x_{i + R/2}), or neighbours (x_2i, x_2i+1).
 *
 *      a' = a cos - b sin        b' = b cos + a sin        (inverse: sin changes sign)
 *
 * One pass; dimensions from rotary_dims on are copied.
 */
#include <math.h>

#include "kernels/check.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/simd.h"
#include "kernels/cpu/tile.h"

#define PAIRS (ZT_TILE / 2) /* at a time */

ZT_SIMD static void turn(float *restrict a_out, float *restrict b_out,
                         const float *restrict a, const float *restrict b,
                         const float *restrict cosine, const float *restrict sine,
                         float sign, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        float s = sign * sine[i];

        a_out[i] = fmaf(a[i], cosine[i], -(b[i] * s));
        b_out[i] = fmaf(b[i], cosine[i], a[i] * s);
    }
}

ZT_SIMD static void split_pairs(float *restrict a, float *restrict b,
                                const float *restrict x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        a[i] = x[2 * i];
        b[i] = x[2 * i + 1];
    }
}

ZT_SIMD static void join_pairs(float *restrict x, const float *restrict a,
                               const float *restrict b, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        x[2 * i] = a[i];
        x[2 * i + 1] = b[i];
    }
}

/* One head: xat and yat are where it starts; cosine and sine are its position's rows. */
static void rotate_head(const struct zt_rope_args *r, int64_t xat, int64_t yat,
                        const float *cosine, const float *sine)
{
    const struct zt_view *x = &r->x, *y = &r->y;
    int64_t half = r->rotary_dims / 2;
    float sign = r->inverse ? -1.0f : 1.0f;
    float in[ZT_TILE], a[PAIRS], b[PAIRS], a_out[PAIRS], b_out[PAIRS];

    for (int64_t i = 0; i < half; i += PAIRS) {
        int64_t n = half - i < PAIRS ? half - i : PAIRS;

        if (r->interleaved) {
            split_pairs(a, b, zt_tile_load(x->data, x->dtype, xat + 2 * i, 2 * n, in), n);
            turn(a_out, b_out, a, b, cosine + i, sine + i, sign, n);
            join_pairs(in, a_out, b_out, n);
            zt_tile_store(y->data, y->dtype, yat + 2 * i, 2 * n, in, r->accumulate);
            continue;
        }
        const float *first = zt_tile_load(x->data, x->dtype, xat + i, n, a);
        const float *second = zt_tile_load(x->data, x->dtype, xat + half + i, n, b);
        turn(a_out, b_out, first, second, cosine + i, sine + i, sign, n);
        zt_tile_store(y->data, y->dtype, yat + i, n, a_out, r->accumulate);
        zt_tile_store(y->data, y->dtype, yat + half + i, n, b_out, r->accumulate);
    }
}

/* The dimensions that do not turn. */
static void copy_rest(const struct zt_rope_args *r, int64_t xat, int64_t yat)
{
    const struct zt_view *x = &r->x, *y = &r->y;
    float in[ZT_TILE], out[ZT_TILE];

    if (x->data == y->data && xat == yat && !r->accumulate)
        return;
    for (int64_t i = r->rotary_dims; i < x->shape[3]; i += ZT_TILE) {
        int64_t n = x->shape[3] - i < ZT_TILE ? x->shape[3] - i : ZT_TILE;

        memcpy(out, zt_tile_load(x->data, x->dtype, xat + i, n, in),
               (size_t)n * sizeof(float));
        zt_tile_store(y->data, y->dtype, yat + i, n, out, r->accumulate);
    }
}

/* `index` runs over (B, T). */
static void rope_part(int64_t begin, int64_t end, int thread, void *ctx)
{
    const struct zt_rope_args *r = ctx;
    const int32_t *position = r->positions.data;
    int64_t T = r->x.shape[1], heads = r->x.shape[2], half = r->rotary_dims / 2;
    bool shared = r->positions.ndim == 1; /* by all rows */

    (void)thread;
    for (int64_t index = begin; index < end; index++) {
        int64_t b = index / T, t = index % T;
        int64_t row = position[shared ? t : index] * half;

        for (int64_t h = 0; h < heads; h++) {
            int64_t xat = b * r->x.stride[0] + t * r->x.stride[1] + h * r->x.stride[2];
            int64_t yat = b * r->y.stride[0] + t * r->y.stride[1] + h * r->y.stride[2];

            rotate_head(r, xat, yat, (const float *)r->cos.data + row,
                        (const float *)r->sin.data + row);
            copy_rest(r, xat, yat);
        }
    }
}

zt_err zt_cpu_rope(struct zt_device *dev, struct zt_stream *s,
                   const struct zt_rope_args *a, struct zt_fault *fault)
{
    zt_err rc = zt_check_rope(a, fault);
    const int32_t *position = a->positions.data;
    int64_t per;

    (void)dev;
    (void)s;
    if (rc)
        return rc;
    for (int64_t t = 0; t < zt_view_numel(&a->positions); t++)
        if (position[t] < 0 || position[t] >= a->cos.shape[0])
            return zt_fault_set(fault, ZT_E_ARG,
                                "rope: position %d is outside the table of %lld",
                                (int)position[t], (long long)a->cos.shape[0]);
    per = a->x.shape[2] * a->x.shape[3] + 1;
    zt_parallel_for(a->x.shape[0] * a->x.shape[1], ZT_GRAIN / per + 1, rope_part,
                    (void *)a);
    return ZT_OK;
}
