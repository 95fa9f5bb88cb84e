#include "kernels/cpu/softmax.h"

#include <math.h>

#include "kernels/check.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/vmath.h"

ZT_SIMD void zt_tile_exp(float *y, const float *x, float shift, float scale, int64_t n)
{
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++)
        y[i] = zt_exp_nonpositive(x[i] - shift) * scale;
}

/*
 * Tile after tile: when a tile holds a new maximum, what has been summed so far shrinks
 * to it. The sum is fp32 inside a tile and double over tiles.
 */
void zt_row_max_sum(struct zt_row *x, int64_t n, float *max, double *sum)
{
    float e[ZT_TILE], best = -INFINITY;
    double total = 0;

    for (int64_t at = 0; at < n; at += ZT_TILE) {
        int64_t len = n - at < ZT_TILE ? n - at : ZT_TILE;
        const float *t = zt_row_tile(x, at, len);
        float top = zt_tile_max(t, len);

        if (top > best) {
            total *= (double)zt_exp_nonpositive(best - top);
            best = top;
        }
        /* nothing but -inf (or NaNs) yet: 0 keeps -inf - (-inf) from being a NaN */
        zt_tile_exp(e, t, best == -INFINITY ? 0.0f : best, 1.0f, len);
        total += (double)zt_tile_sum(e, len);
    }
    *max = best;
    *sum = total;
}

static int64_t row_grain(int64_t cols)
{
    return cols >= ZT_GRAIN ? 1 : ZT_GRAIN / (cols ? cols : 1);
}

static void softmax_rows(int64_t begin, int64_t end, int thread, void *ctx)
{
    const struct zt_softmax_args *a = ctx;
    int64_t cols = a->x.shape[1];
    float in[ZT_TILE], out[ZT_TILE], max;
    double sum;

    (void)thread;
    for (int64_t row = begin; row < end; row++) {
        struct zt_row x = zt_row_at(a->x.data, a->x.dtype, row * cols, in);

        zt_row_max_sum(&x, cols, &max, &sum);
        for (int64_t at = 0; at < cols; at += ZT_TILE) {
            int64_t n = cols - at < ZT_TILE ? cols - at : ZT_TILE;

            zt_tile_exp(out, zt_row_tile(&x, at, n), max, (float)(1.0 / sum), n);
            zt_tile_store(a->y.data, a->y.dtype, row * cols + at, n, out, false);
        }
    }
}

zt_err zt_cpu_softmax(struct zt_device *dev, struct zt_stream *s,
                      const struct zt_softmax_args *a, struct zt_fault *fault)
{
    zt_err rc = zt_check_softmax(a, fault);

    (void)dev;
    (void)s;
    if (!rc)
        zt_parallel_for(a->x.shape[0], row_grain(a->x.shape[1]), softmax_rows, (void *)a);
    return rc;
}

/* out = y (dy - dot) */
ZT_SIMD static void backward_tile(float *restrict out, const float *restrict y,
                                  const float *restrict dy, float dot, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = y[i] * (dy[i] - dot);
}

static void softmax_bwd_rows(int64_t begin, int64_t end, int thread, void *ctx)
{
    const struct zt_softmax_bwd_args *a = ctx;
    int64_t cols = a->y.shape[1];
    float yin[ZT_TILE], dyin[ZT_TILE], out[ZT_TILE];

    (void)thread;
    for (int64_t row = begin; row < end; row++) {
        struct zt_row y = zt_row_at(a->y.data, a->y.dtype, row * cols, yin);
        struct zt_row dy = zt_row_at(a->dy.data, a->dy.dtype, row * cols, dyin);
        double dot = 0;

        for (int64_t at = 0; at < cols; at += ZT_TILE) {
            int64_t n = cols - at < ZT_TILE ? cols - at : ZT_TILE;

            dot +=
                (double)zt_tile_dot(zt_row_tile(&y, at, n), zt_row_tile(&dy, at, n), n);
        }
        for (int64_t at = 0; at < cols; at += ZT_TILE) {
            int64_t n = cols - at < ZT_TILE ? cols - at : ZT_TILE;

            backward_tile(out, zt_row_tile(&y, at, n), zt_row_tile(&dy, at, n),
                          (float)dot, n);
            zt_tile_store(a->dx.data, a->dx.dtype, row * cols + at, n, out,
                          a->accumulate);
        }
    }
}

zt_err zt_cpu_softmax_bwd(struct zt_device *dev, struct zt_stream *s,
                          const struct zt_softmax_bwd_args *a, struct zt_fault *fault)
{
    zt_err rc = zt_check_softmax_bwd(a, fault);

    (void)dev;
    (void)s;
    if (!rc)
        zt_parallel_for(a->y.shape[0], row_grain(a->y.shape[1]), softmax_bwd_rows,
                        (void *)a);
    return rc;
}
