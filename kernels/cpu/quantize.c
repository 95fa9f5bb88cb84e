/*
 * fp8 with one scale: a pass for the largest magnitude, a pass that rounds. A maximum is
 * the same in any order, so neither threads nor pieces show.
 */
#include <float.h>
#include <math.h>

#include "kernels/check.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/gemm/gemm.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/tile.h"
#include "kernels/fp8.h"

struct quantize_job {
    const struct zt_quantize_args *a;
    zt_dtype type;
    float factor;
    float amax[ZT_MAX_THREADS];
};

/* n elements of row `row` from column `col` on. */
static void load(const struct zt_view *x, int64_t row, int64_t col, int64_t n, float *to)
{
    int64_t at = row * x->stride[0] + col * x->stride[1];

    zt_load_row(to, (const char *)x->data + at * (int64_t)zt_dtype_bytes(x->dtype),
                x->dtype, x->stride[1], n);
}

static void find_amax(int64_t begin, int64_t end, int thread, void *ctx)
{
    struct quantize_job *job = ctx;
    const struct zt_view *x = &job->a->x;
    float buf[ZT_TILE], best = 0;

    for (int64_t row = begin; row < end; row++)
        for (int64_t col = 0; col < x->shape[1]; col += ZT_TILE) {
            int64_t n = x->shape[1] - col < ZT_TILE ? x->shape[1] - col : ZT_TILE;

            load(x, row, col, n, buf);
            for (int64_t i = 0; i < n; i++) {
                float size = fabsf(buf[i]);

                best = size <= FLT_MAX && size > best ? size : best;
            }
        }
    job->amax[thread] = best;
}

static void round_rows(int64_t begin, int64_t end, int thread, void *ctx)
{
    const struct quantize_job *job = ctx;
    const struct zt_view *x = &job->a->x;
    int64_t rows = x->shape[0], cols = x->shape[1];
    uint8_t *y = job->a->y.data, *yt = job->a->yt.data, code;
    float buf[ZT_TILE];

    (void)thread;
    for (int64_t row = begin; row < end; row++)
        for (int64_t col = 0; col < cols; col += ZT_TILE) {
            int64_t n = cols - col < ZT_TILE ? cols - col : ZT_TILE;

            load(x, row, col, n, buf);
            for (int64_t i = 0; i < n; i++) {
                code = zt_f8_of_float(buf[i] * job->factor, job->type);
                if (y)
                    y[row * cols + col + i] = code;
                if (yt)
                    yt[(col + i) * rows + row] = code;
            }
        }
}

zt_err zt_cpu_quantize(struct zt_device *dev, struct zt_stream *s,
                       const struct zt_quantize_args *a, struct zt_fault *fault)
{
    struct quantize_job job = {.a = a, .type = a->y.data ? a->y.dtype : a->yt.dtype};
    zt_err rc = zt_check_quantize(a, fault);
    float amax = 0;

    (void)dev;
    (void)s;
    if (rc)
        return rc;
    zt_parallel_for(a->x.shape[0], 1, find_amax, &job);
    for (int i = 0; i < ZT_MAX_THREADS; i++)
        amax = job.amax[i] > amax ? job.amax[i] : amax;
    job.factor = zt_f8_factor(amax, job.type);
    *a->scale = 1.0f / job.factor;
    zt_parallel_for(a->x.shape[0], 1, round_rows, &job);
    return ZT_OK;
}
