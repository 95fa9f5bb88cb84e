/* gemm_rate.c -- the rate of matrix products that a device reaches. */
#include "kernels/backend.h"

#include <math.h>
#include <time.h>

#define MEASURE_N 1536
#define PERIOD    65521 /* random numbers, a prime: rows of operands differ */
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

/* Where c is behind a and b, and where a scale is behind c. */
static size_t c_at(zt_dtype dtype, struct zt_product p)
{
    size_t bytes = (size_t)(p.m * p.k + p.k * p.n) * zt_dtype_bytes(dtype);

    return (bytes + 63) & ~(size_t)63;
}

static size_t scale_at(zt_dtype dtype, struct zt_product p)
{
    zt_dtype c = dtype == ZT_F8E4M3 ? ZT_BF16 : dtype; /* fp8 makes a bf16 c */

    return (c_at(dtype, p) + (size_t)(p.m * p.n) * zt_dtype_bytes(c) + 63) & ~(size_t)63;
}

size_t zt_measure_bytes(zt_dtype dtype, struct zt_product p)
{
    return scale_at(dtype, p) + sizeof(float);
}

static void lay_out(struct zt_gemm_args *g, zt_dtype dtype, struct zt_product p,
                    char *mem)
{
    const int64_t a[2] = {p.m, p.k}, b[2] = {p.k, p.n}, c[2] = {p.m, p.n};
    bool fp8 = dtype == ZT_F8E4M3;

    g->a = zt_view_of(mem, dtype, 2, a);
    g->b = zt_view_of(mem + (size_t)(p.m * p.k) * zt_dtype_bytes(dtype), dtype, 2, b);
    g->c = zt_view_of(mem + c_at(dtype, p), fp8 ? ZT_BF16 : dtype, 2, c);
    if (!fp8)
        return;
    g->b.stride[0] = 1; /* neighbours on the summed axis */
    g->b.stride[1] = p.k;
    g->a_scale = g->b_scale = (float *)(void *)(mem + scale_at(dtype, p));
}

/* Repeats the first `have` bytes at mem until there are `bytes`. */
static zt_err repeat(const struct zt_backend *be, struct zt_device *dev, char *mem,
                     size_t have, size_t bytes, struct zt_fault *fault)
{
    zt_err rc = ZT_OK;

    while (!rc && have < bytes) {
        size_t n = have < bytes - have ? have : bytes - have;

        rc = be->copy(dev, NULL, mem + have, mem, n, fault);
        have += n;
    }
    return rc;
}

/*
 * Random operands: a GPU draws less power over equal ones, and is faster by that. A period
 * of them is drawn, for fp8 where the result will be, as there are no random codes.
 */
static zt_err fill_in(const struct zt_backend *be, struct zt_device *dev,
                      const struct zt_gemm_args *g, struct zt_fault *fault)
{
    bool fp8 = g->a_scale != NULL;
    int64_t n = zt_view_numel(&g->a) + zt_view_numel(&g->b);
    int64_t room = fp8 ? zt_view_numel(&g->c) : n, period = n < PERIOD ? n : PERIOD;
    struct zt_random_args random = {.rng = {.seed = 1}, .normal = true, .b = 0.5f};
    struct zt_quantize_args codes;
    zt_err rc;

    period = period < room ? period : room;
    random.y = zt_view_of(fp8 ? g->c.data : g->a.data, g->c.dtype, 1, &period);
    rc = be->kernels->random(dev, NULL, &random, fault);
    if (!rc && fp8) {
        const int64_t row[2] = {1, period};

        codes = (struct zt_quantize_args){
            .x = zt_view_of(g->c.data, g->c.dtype, 2, row),
            .y = zt_view_of(g->a.data, g->a.dtype, 2, row),
            .scale = (float *)(uintptr_t)g->a_scale,
        };
        rc = be->kernels->quantize(dev, NULL, &codes, fault);
    }
    return rc ? rc
              : repeat(be, dev, g->a.data, (size_t)period * zt_dtype_bytes(g->a.dtype),
                       (size_t)n * zt_dtype_bytes(g->a.dtype), fault);
}

zt_err zt_measure_gemm_in(const struct zt_backend *be, struct zt_device *dev,
                          zt_dtype dtype, bool tf32, double seconds, void *memory,
                          struct zt_product p, double *flops_per_s,
                          struct zt_fault *fault)
{
    struct zt_gemm_args args = {.alpha = 1, .tf32 = tf32};
    double best;
    zt_err rc;

    *flops_per_s = 0;
    if (dtype != ZT_F32 && dtype != ZT_BF16 && dtype != ZT_F16 && dtype != ZT_F8E4M3)
        return zt_fault_set(fault, ZT_E_ARG, "there is no product of %s to measure",
                            zt_dtype_name(dtype));
    lay_out(&args, dtype, p, memory);
    rc = fill_in(be, dev, &args, fault);
    if (rc == ZT_OK)
        rc = measure(be, dev, &args, seconds, &best, fault);
    if (rc == ZT_OK)
        *flops_per_s = 2 * (double)p.m * (double)p.n * (double)p.k / best;
    return rc;
}

zt_err zt_measure_gemm(const struct zt_backend *be, struct zt_device *dev, zt_dtype dtype,
                       bool tf32, double seconds, double *flops_per_s,
                       struct zt_fault *fault)
{
    const struct zt_product square = {MEASURE_N, MEASURE_N, MEASURE_N};
    size_t bytes = zt_measure_bytes(dtype, square);
    void *memory;
    zt_err rc = be->alloc(dev, bytes, &memory, fault);

    if (rc != ZT_OK)
        return rc;
    rc = zt_measure_gemm_in(be, dev, dtype, tf32, seconds, memory, square, flops_per_s,
                            fault);
    be->free(dev, memory, bytes);
    return rc;
}
