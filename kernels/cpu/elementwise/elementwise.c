/*
 * Kernels where element i of the result depends on element i of the operands.
 *
 * Each walks tiles: load as fp32, compute, store. A part of the parallel loop starts at a
 * multiple of ZT_GRAIN.
 */
#include <math.h>

#include "kernels/check.h"
#include "kernels/convert.h"
#include "kernels/cpu/elementwise/activation.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/simd.h"
#include "kernels/cpu/tile.h"

static int64_t tile_of(int64_t at, int64_t end)
{
    return end - at < ZT_TILE ? end - at : ZT_TILE;
}

/* ---- y = f(x) ---- */

static void unary_part(int64_t begin, int64_t end, int thread, void *ctx)
{
    const struct zt_unary_args *a = ctx;
    float in[ZT_TILE], out[ZT_TILE];

    (void)thread;
    for (int64_t at = begin; at < end; at += ZT_TILE) {
        int64_t n = tile_of(at, end);
        const float *x = zt_tile_load(a->x.data, a->x.dtype, at, n, in);

        zt_tile_activate(a->kind, out, x, n);
        zt_tile_store(a->y.data, a->y.dtype, at, n, out, false);
    }
}

zt_err zt_cpu_unary(struct zt_device *dev, struct zt_stream *s,
                    const struct zt_unary_args *a, struct zt_fault *fault)
{
    zt_err rc = zt_check_unary(a, fault);

    (void)dev;
    (void)s;
    if (!rc)
        zt_parallel_for(zt_view_numel(&a->x), ZT_GRAIN, unary_part, (void *)a);
    return rc;
}

ZT_SIMD static void mul_tile(float *restrict y, const float *restrict x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] *= x[i];
}

static void unary_bwd_part(int64_t begin, int64_t end, int thread, void *ctx)
{
    const struct zt_unary_bwd_args *a = ctx;
    float xin[ZT_TILE], dyin[ZT_TILE], f[ZT_TILE], slope[ZT_TILE];

    (void)thread;
    for (int64_t at = begin; at < end; at += ZT_TILE) {
        int64_t n = tile_of(at, end);
        const float *x = zt_tile_load(a->x.data, a->x.dtype, at, n, xin);
        const float *dy = zt_tile_load(a->dy.data, a->dy.dtype, at, n, dyin);

        zt_tile_activate_slope(a->kind, f, slope, x, n);
        mul_tile(slope, dy, n);
        zt_tile_store(a->dx.data, a->dx.dtype, at, n, slope, a->accumulate);
    }
}

zt_err zt_cpu_unary_bwd(struct zt_device *dev, struct zt_stream *s,
                        const struct zt_unary_bwd_args *a, struct zt_fault *fault)
{
    zt_err rc = zt_check_unary_bwd(a, fault);

    (void)dev;
    (void)s;
    if (!rc)
        zt_parallel_for(zt_view_numel(&a->x), ZT_GRAIN, unary_bwd_part, (void *)a);
    return rc;
}

/* ---- y = a op b, b repeated along the leading axes of a ---- */

struct binary_job {
    const struct zt_binary_args *a;
    int64_t n, period;  /* elements of a, and of b */
    int64_t run;        /* what one step takes; never crosses the end of b */
    int64_t per_b;      /* steps from one start of b to the next */
    const float *tiled; /* a short b, repeated to `run` elements; NULL: read b itself */
};

ZT_SIMD static void mul_into(float *restrict out, const float *x, const float *y,
                             int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = x[i] * y[i];
}

static void binary_steps(int64_t begin, int64_t end, int thread, void *ctx)
{
    const struct binary_job *job = ctx;
    const struct zt_binary_args *a = job->a;
    float ain[ZT_TILE], bin[ZT_TILE], out[ZT_TILE];

    (void)thread;
    for (int64_t step = begin; step < end; step++) {
        int64_t in_b = step % job->per_b * job->run;
        int64_t at =
            job->tiled ? step * job->run : step / job->per_b * job->period + in_b;
        int64_t stop = job->tiled ? job->n : at - in_b + job->period;
        int64_t n = stop - at < job->run ? stop - at : job->run;
        const float *x = zt_tile_load(a->a.data, a->a.dtype, at, n, ain);
        const float *y =
            job->tiled ? job->tiled : zt_tile_load(a->b.data, a->b.dtype, in_b, n, bin);

        if (a->kind == ZT_B_ADD)
            zt_tile_add_to(out, x, y, n);
        else
            mul_into(out, x, y, n);
        zt_tile_store(a->y.data, a->y.dtype, at, n, out, a->accumulate);
    }
}

zt_err zt_cpu_binary(struct zt_device *dev, struct zt_stream *s,
                     const struct zt_binary_args *a, struct zt_fault *fault)
{
    struct binary_job job = {.a = a};
    float tiled[ZT_TILE], buf[ZT_TILE];
    zt_err rc = zt_check_binary(a, fault);
    int64_t steps;

    (void)dev;
    (void)s;
    if (rc)
        return rc;
    job.n = zt_view_numel(&a->a);
    job.period = zt_view_numel(&a->b);
    if (job.n == 0)
        return ZT_OK;
    if (job.period <= ZT_TILE / 2) {
        const float *b = zt_tile_load(a->b.data, a->b.dtype, 0, job.period, buf);

        job.run = ZT_TILE / job.period * job.period;
        job.per_b = 1;
        for (int64_t i = 0; i < job.run; i++)
            tiled[i] = b[i % job.period];
        job.tiled = tiled;
        steps = (job.n + job.run - 1) / job.run;
    } else {
        job.run = ZT_TILE;
        job.per_b = (job.period + ZT_TILE - 1) / ZT_TILE;
        steps = job.n / job.period * job.per_b;
    }
    zt_parallel_for(steps, ZT_GRAIN / ZT_TILE, binary_steps, &job);
    return ZT_OK;
}

/* ---- y = alpha x + beta y between any two layouts ---- */

struct axpby_job {
    void *y;
    const void *x;
    zt_dtype xtype, ytype;
    float alpha, beta;
    int ndim; /* of the outer axes */
    int64_t shape[ZT_MAX_NDIM], xstride[ZT_MAX_NDIM], ystride[ZT_MAX_NDIM];
    int64_t n, xstep, ystep; /* the inner axis */
    int64_t runs;            /* tiles per inner axis */
};

/* Axes of length 1 go; neighbours that are one axis in both operands become one. */
static void axpby_plan(struct axpby_job *job, const struct zt_axpby_args *a)
{
    int last = -1;

    for (int i = 0; i < a->x.ndim; i++) {
        int64_t n = a->x.shape[i], xs = a->x.stride[i], ys = a->y.stride[i];

        if (n == 1)
            continue;
        if (last >= 0 && job->xstride[last] == n * xs && job->ystride[last] == n * ys) {
            job->shape[last] *= n;
        } else {
            last++;
            job->shape[last] = n;
        }
        job->xstride[last] = xs;
        job->ystride[last] = ys;
    }
    job->ndim = last < 0 ? 0 : last;
    job->n = last < 0 ? 1 : job->shape[last];
    job->xstep = last < 0 ? 1 : job->xstride[last];
    job->ystep = last < 0 ? 1 : job->ystride[last];
    job->runs = (job->n + ZT_TILE - 1) / ZT_TILE;
}

static float get1(const void *base, zt_dtype dtype, int64_t at)
{
    const uint16_t *half = base;

    if (dtype == ZT_F32)
        return ((const float *)base)[at];
    return dtype == ZT_BF16 ? zt_float_of_bf16(half[at]) : zt_float_of_f16(half[at]);
}

static void put1(void *base, zt_dtype dtype, int64_t at, float value)
{
    if (dtype == ZT_F32)
        ((float *)base)[at] = value;
    else
        ((uint16_t *)base)[at] =
            dtype == ZT_BF16 ? zt_bf16_of_float(value) : zt_f16_of_float(value);
}

static const float *load_step(const void *base, zt_dtype dtype, int64_t at, int64_t step,
                              int64_t n, float *buf)
{
    if (step == 1)
        return zt_tile_load(base, dtype, at, n, buf);
    for (int64_t i = 0; i < n; i++)
        buf[i] = get1(base, dtype, at + i * step);
    return buf;
}

static void store_step(void *base, zt_dtype dtype, int64_t at, int64_t step, int64_t n,
                       const float *buf)
{
    if (step == 1)
        zt_tile_store(base, dtype, at, n, buf, false);
    else
        for (int64_t i = 0; i < n; i++)
            put1(base, dtype, at + i * step, buf[i]);
}

ZT_SIMD static void axpby_tile(float *restrict out, const float *x, const float *y,
                               float alpha, float beta, int64_t n)
{
    if (y)
        for (int64_t i = 0; i < n; i++)
            out[i] = fmaf(beta, y[i], alpha * x[i]);
    else
        for (int64_t i = 0; i < n; i++)
            out[i] = alpha * x[i];
}

static void axpby_runs(int64_t begin, int64_t end, int thread, void *ctx)
{
    const struct axpby_job *job = ctx;
    float xin[ZT_TILE], yin[ZT_TILE], out[ZT_TILE];

    (void)thread;
    for (int64_t run = begin; run < end; run++) {
        int64_t outer = run / job->runs, first = run % job->runs * ZT_TILE;
        int64_t n = tile_of(first, job->n);
        int64_t xat = first * job->xstep, yat = first * job->ystep;

        for (int i = job->ndim - 1; i >= 0; i--) {
            xat += outer % job->shape[i] * job->xstride[i];
            yat += outer % job->shape[i] * job->ystride[i];
            outer /= job->shape[i];
        }
        const float *x = load_step(job->x, job->xtype, xat, job->xstep, n, xin);
        const float *y = NULL;
        if (job->beta != 0.0f) /* else y may hold anything, a NaN too */
            y = load_step(job->y, job->ytype, yat, job->ystep, n, yin);
        if (y || job->alpha != 1.0f || x != xin) {
            axpby_tile(out, x, y, job->alpha, job->beta, n);
            x = out;
        }
        store_step(job->y, job->ytype, yat, job->ystep, n, x);
    }
}

zt_err zt_cpu_axpby(struct zt_device *dev, struct zt_stream *s,
                    const struct zt_axpby_args *a, struct zt_fault *fault)
{
    struct axpby_job job = {.y = a->y.data,
                            .x = a->x.data,
                            .xtype = a->x.dtype,
                            .ytype = a->y.dtype,
                            .alpha = a->alpha,
                            .beta = a->beta};
    zt_err rc = zt_check_axpby(a, fault);
    int64_t outer = 1, grain;

    (void)dev;
    (void)s;
    if (rc || zt_view_numel(&a->x) == 0)
        return rc;
    axpby_plan(&job, a);
    for (int i = 0; i < job.ndim; i++)
        outer *= job.shape[i];
    grain = job.n >= ZT_TILE ? ZT_GRAIN / ZT_TILE : ZT_GRAIN / job.n;
    zt_parallel_for(outer * job.runs, grain, axpby_runs, &job);
    return ZT_OK;
}

/* ---- y = value ---- */

struct fill_job {
    char *base;
    unsigned char pattern[4096];
    bool zero;
};

static void fill_bytes(int64_t begin, int64_t end, int thread, void *ctx)
{
    const struct fill_job *job = ctx;

    (void)thread;
    if (job->zero) {
        memset(job->base + begin, 0, (size_t)(end - begin));
        return;
    }
    for (int64_t at = begin; at < end; at += (int64_t)sizeof(job->pattern)) {
        int64_t n = end - at;

        if (n > (int64_t)sizeof(job->pattern))
            n = (int64_t)sizeof(job->pattern);
        memcpy(job->base + at, job->pattern, (size_t)n);
    }
}

static void fill_pattern(struct fill_job *job, zt_dtype dtype, float value)
{
    union {
        float f;
        uint16_t h;
        int32_t i;
        int64_t l;
        uint8_t b;
    } one = {.l = 0};
    size_t bytes = zt_dtype_bytes(dtype);

    switch (dtype) {
    case ZT_BF16:
        one.h = zt_bf16_of_float(value);
        break;
    case ZT_F16:
        one.h = zt_f16_of_float(value);
        break;
    case ZT_I32:
        one.i = (int32_t)value;
        break;
    case ZT_I64:
        one.l = (int64_t)value;
        break;
    case ZT_U8:
        one.b = (uint8_t)value;
        break;
    default:
        one.f = value;
        break;
    }
    job->zero = true;
    for (size_t at = 0; at < sizeof(job->pattern); at += bytes)
        memcpy(job->pattern + at, &one, bytes);
    for (size_t i = 0; i < bytes; i++)
        job->zero = job->zero && job->pattern[i] == 0;
}

zt_err zt_cpu_fill(struct zt_device *dev, struct zt_stream *s,
                   const struct zt_fill_args *a, struct zt_fault *fault)
{
    struct fill_job job = {.base = a->y.data};
    zt_err rc = zt_check_fill(a, fault);

    (void)dev;
    (void)s;
    if (rc)
        return rc;
    fill_pattern(&job, a->y.dtype, a->value);
    zt_parallel_for(zt_view_numel(&a->y) * (int64_t)zt_dtype_bytes(a->y.dtype),
                    4 * ZT_GRAIN, fill_bytes, &job);
    return ZT_OK;
}
