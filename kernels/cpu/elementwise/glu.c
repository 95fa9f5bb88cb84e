/*
 * Gated units (Shazeer 2020): y = f(gate) * up, rows at any stride, so that gate and up
 * may be the two halves of one matrix product.
 */
#include "kernels/check.h"
#include "kernels/cpu/elementwise/activation.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/simd.h"
#include "kernels/cpu/tile.h"

/* Element offset of (row, col). */
static int64_t offset(const struct zt_view *v, int64_t row, int64_t col)
{
    return row * v->stride[0] + col;
}

static int64_t tile_of(int64_t at, int64_t end)
{
    return end - at < ZT_TILE ? end - at : ZT_TILE;
}

static int64_t row_grain(int64_t cols)
{
    return cols >= ZT_GRAIN ? 1 : ZT_GRAIN / (cols ? cols : 1);
}

ZT_SIMD static void mul_tile(float *restrict y, const float *restrict x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] *= x[i];
}

static void glu_rows(int64_t begin, int64_t end, int thread, void *ctx)
{
    const struct zt_glu_args *a = ctx;
    int64_t cols = a->gate.shape[1];
    float gin[ZT_TILE], uin[ZT_TILE], out[ZT_TILE];

    (void)thread;
    for (int64_t row = begin; row < end; row++) {
        for (int64_t at = 0; at < cols; at += ZT_TILE) {
            int64_t n = tile_of(at, cols);
            const float *gate = zt_tile_load(a->gate.data, a->gate.dtype,
                                             offset(&a->gate, row, at), n, gin);
            const float *up =
                zt_tile_load(a->up.data, a->up.dtype, offset(&a->up, row, at), n, uin);

            zt_tile_activate(a->kind, out, gate, n);
            mul_tile(out, up, n);
            zt_tile_store(a->y.data, a->y.dtype, offset(&a->y, row, at), n, out, false);
        }
    }
}

zt_err zt_cpu_glu(struct zt_device *dev, struct zt_stream *s, const struct zt_glu_args *a,
                  struct zt_fault *fault)
{
    zt_err rc = zt_check_glu(a, fault);

    (void)dev;
    (void)s;
    if (!rc)
        zt_parallel_for(a->gate.shape[0], row_grain(a->gate.shape[1]), glu_rows,
                        (void *)a);
    return rc;
}

/* slope = dy up f'(gate), f = dy f(gate) */
ZT_SIMD static void gradients(float *restrict f, float *restrict slope,
                              const float *restrict dy, const float *restrict up,
                              int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        f[i] *= dy[i];
        slope[i] *= dy[i] * up[i];
    }
}

static void glu_bwd_rows(int64_t begin, int64_t end, int thread, void *ctx)
{
    const struct zt_glu_bwd_args *a = ctx;
    int64_t cols = a->gate.shape[1];
    float gin[ZT_TILE], uin[ZT_TILE], din[ZT_TILE], f[ZT_TILE], slope[ZT_TILE];

    (void)thread;
    for (int64_t row = begin; row < end; row++) {
        for (int64_t at = 0; at < cols; at += ZT_TILE) {
            int64_t n = tile_of(at, cols);
            const float *gate = zt_tile_load(a->gate.data, a->gate.dtype,
                                             offset(&a->gate, row, at), n, gin);
            const float *up =
                zt_tile_load(a->up.data, a->up.dtype, offset(&a->up, row, at), n, uin);
            const float *dy =
                zt_tile_load(a->dy.data, a->dy.dtype, offset(&a->dy, row, at), n, din);

            zt_tile_activate_slope(a->kind, f, slope, gate, n);
            gradients(f, slope, dy, up, n);
            if (a->dgate.data)
                zt_tile_store(a->dgate.data, a->dgate.dtype, offset(&a->dgate, row, at),
                              n, slope, a->accumulate_gate);
            if (a->dup.data)
                zt_tile_store(a->dup.data, a->dup.dtype, offset(&a->dup, row, at), n, f,
                              a->accumulate_up);
        }
    }
}

zt_err zt_cpu_glu_bwd(struct zt_device *dev, struct zt_stream *s,
                      const struct zt_glu_bwd_args *a, struct zt_fault *fault)
{
    zt_err rc = zt_check_glu_bwd(a, fault);

    (void)dev;
    (void)s;
    if (!rc)
        zt_parallel_for(a->gate.shape[0], row_grain(a->gate.shape[1]), glu_bwd_rows,
                        (void *)a);
    return rc;
}
