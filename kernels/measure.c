/* measure.c -- the rate of matrix products that a device reaches. */
#include "kernels/backend.h"

#include <math.h>
#include <time.h>

#define MEASURE_N 1536
#define QUEUED    8 /* products between two looks at the clock, where there is a queue */

static double now(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec;
}

/* The best rate of the products that fit in `seconds`: that of an undisturbed machine. */
static zt_err measure(const struct zt_backend *be, struct zt_device *dev,
                      const struct zt_gemm_args *args, double seconds, double *best,
                      struct zt_fault *fault)
{
    int queued = be->unified ? 1 : QUEUED;
    double start = now(), t0, took;
    bool warm = false;

    *best = INFINITY;
    do {
        t0 = now();
        zt_err rc = ZT_OK;

        for (int i = 0; rc == ZT_OK && i < queued; i++)
            rc = be->kernels->gemm(dev, NULL, args, fault);
        if (rc == ZT_OK)
            rc = be->sync(dev, NULL, fault);
        if (rc != ZT_OK)
            return rc;
        took = (now() - t0) / queued;
        if (warm && took < *best)
            *best = took;
        if (!warm)
            start = now();
        warm = true;
    } while (*best == INFINITY || now() - start < seconds);
    return ZT_OK;
}

size_t zt_measure_bytes(zt_dtype dtype, int64_t n)
{
    size_t one = (size_t)(n * n) * zt_dtype_bytes(dtype);

    /* fp8 makes a bf16 c, and has a scale behind it */
    return dtype == ZT_F8E4M3 ? 4 * one + sizeof(float) : 3 * one;
}

static void lay_out(struct zt_gemm_args *g, zt_dtype dtype, int64_t n, char *mem)
{
    const int64_t shape[2] = {n, n};
    bool fp8 = dtype == ZT_F8E4M3;
    size_t one = (size_t)(n * n) * zt_dtype_bytes(dtype);

    g->a = zt_view_of(mem, dtype, 2, shape);
    g->b = zt_view_of(mem + one, dtype, 2, shape);
    g->c = zt_view_of(mem + 2 * one, fp8 ? ZT_BF16 : dtype, 2, shape);
    if (!fp8)
        return;
    g->b.stride[0] = 1; /* neighbours on the summed axis */
    g->b.stride[1] = n;
    g->a_scale = g->b_scale = (float *)(void *)(mem + 4 * one);
}

/* Operands of 0.5 each. */
static zt_err fill_in(const struct zt_backend *be, struct zt_device *dev,
                      const struct zt_gemm_args *g, struct zt_fault *fault)
{
    bool fp8 = g->a_scale != NULL;
    int64_t n = 2 * zt_view_numel(&g->a), one = 1;
    struct zt_fill_args fill = {
        .y = zt_view_of(g->a.data, fp8 ? ZT_U8 : g->a.dtype, 1, &n),
        .value = fp8 ? 0x30 : 0.5f};
    zt_err rc = be->kernels->fill(dev, NULL, &fill, fault);

    if (rc || !fp8)
        return rc;
    fill.y = zt_view_of((float *)(uintptr_t)g->a_scale, ZT_F32, 1, &one);
    fill.value = 1;
    return be->kernels->fill(dev, NULL, &fill, fault);
}

zt_err zt_measure_gemm_in(const struct zt_backend *be, struct zt_device *dev,
                          zt_dtype dtype, bool tf32, double seconds, void *memory,
                          int64_t n, double *flops_per_s, struct zt_fault *fault)
{
    struct zt_gemm_args args = {.alpha = 1, .tf32 = tf32};
    double best, side = (double)n;
    zt_err rc;

    *flops_per_s = 0;
    if (dtype != ZT_F32 && dtype != ZT_BF16 && dtype != ZT_F16 && dtype != ZT_F8E4M3)
        return zt_fault_set(fault, ZT_E_ARG, "there is no product of %s to measure",
                            zt_dtype_name(dtype));
    lay_out(&args, dtype, n, memory);
    rc = fill_in(be, dev, &args, fault);
    if (rc == ZT_OK)
        rc = measure(be, dev, &args, seconds, &best, fault);
    if (rc == ZT_OK)
        *flops_per_s = 2 * side * side * side / best;
    return rc;
}

zt_err zt_measure_gemm(const struct zt_backend *be, struct zt_device *dev, zt_dtype dtype,
                       bool tf32, double seconds, double *flops_per_s,
                       struct zt_fault *fault)
{
    size_t bytes = zt_measure_bytes(dtype, MEASURE_N);
    void *memory;
    zt_err rc = be->alloc(dev, bytes, &memory, fault);

    if (rc != ZT_OK)
        return rc;
    rc = zt_measure_gemm_in(be, dev, dtype, tf32, seconds, memory, MEASURE_N, flops_per_s,
                            fault);
    be->free(dev, memory, bytes);
    return rc;
}
