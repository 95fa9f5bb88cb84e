/*
 * bench_attention: attention of GPT-2's heads, forward and backward.
 *
 *      build/release/bench/bench_attention [threads] [f32|bf16|f16 ...]
 *
 * 12 heads, at 16384 tokens 2, in packed rows of q, k and v, causal; GFLOP/s count the visible half of the
 * scores: 2 products forward, 5 backward. % gemm is relative to a square product of the
 * same type in the same run. One untimed call first; ms is the median.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/times.h"
#include "common/log.h"
#include "kernels/backend.h"

#define REPEATS  15
#define BUDGET_S 0.4
#define HEADS    12 /* the longest rows have fewer, so that they end */

struct tensors {
    struct zt_attention_bwd_args a;
    char *at; /* the next free byte of the region */
};

static struct zt_view take(struct tensors *t, zt_dtype dtype, int ndim,
                           const int64_t *shape)
{
    struct zt_view v = zt_view_of(t->at, dtype, ndim, shape);

    t->at += ((size_t)zt_view_numel(&v) * zt_dtype_bytes(dtype) + 63) / 64 * 64;
    return v;
}

/* q, k or v of a packed (B, T, 3, H, D) */
static struct zt_view third(struct zt_view qkv, int which)
{
    struct zt_view v = {.dtype = qkv.dtype, .ndim = 4};
    static const int axis[] = {0, 1, 3, 4};

    v.data =
        (char *)qkv.data + (size_t)(which * qkv.stride[2]) * zt_dtype_bytes(qkv.dtype);
    for (int i = 0; i < 4; i++) {
        v.shape[i] = qkv.shape[axis[i]];
        v.stride[i] = qkv.stride[axis[i]];
    }
    return v;
}

static void setup(struct tensors *t, char *mem, zt_dtype dtype, const int64_t *shape)
{
    int64_t b = shape[0], len = shape[1], dim = shape[2], heads = shape[3];
    const int64_t packed[] = {b, len, 3, heads, dim}, one[] = {b, len, heads, dim};
    const int64_t lse[] = {b, heads, len};
    struct zt_view qkv, dqkv;

    *t = (struct tensors){.at = mem};
    qkv = take(t, dtype, 5, packed);
    dqkv = take(t, dtype, 5, packed);
    t->a.fwd = (struct zt_attention_args){.q = third(qkv, 0),
                                          .k = third(qkv, 1),
                                          .v = third(qkv, 2),
                                          .out = take(t, dtype, 4, one),
                                          .lse = take(t, ZT_F32, 3, lse),
                                          .scale = 0.125f,
                                          .causal = true};
    t->a.dq = third(dqkv, 0);
    t->a.dk = third(dqkv, 1);
    t->a.dv = third(dqkv, 2);
    t->a.dout = take(t, dtype, 4, one);
}

static zt_err time_it(const struct zt_backend *be, struct zt_device *dev,
                      const struct tensors *t, bool backward, double *first,
                      double *median, struct zt_fault *fault)
{
    double took[REPEATS], start = 0;
    int n = -1; /* the first call is not counted */
    zt_err rc = ZT_OK;

    for (; rc == ZT_OK && n < REPEATS && (n < 3 || zt_now() - start < BUDGET_S); n++) {
        double t0 = zt_now();

        rc = backward ? be->kernels->attention_bwd(dev, NULL, &t->a, fault)
                      : be->kernels->attention(dev, NULL, &t->a.fwd, fault);
        if (n < 0) {
            *first = zt_now() - t0;
            start = zt_now();
        } else {
            took[n] = zt_now() - t0;
        }
    }
    if (rc != ZT_OK)
        return rc;
    qsort(took, (size_t)n, sizeof(took[0]), by_value);
    *median = took[n / 2];
    return ZT_OK;
}

static zt_err run(const struct zt_backend *be, struct zt_device *dev, char *mem,
                  zt_dtype dtype, const int64_t *shape, double rate,
                  struct zt_fault *fault)
{
    int64_t b = shape[0], len = shape[1], dim = shape[2];
    double product = (double)(b * shape[3] * dim) * (double)len * (double)(len + 1);
    struct tensors t;

    setup(&t, mem, dtype, shape);
    for (int backward = 0; backward < 2; backward++) {
        double flops = product * (backward ? 5 : 2), first, median;
        zt_err rc = time_it(be, dev, &t, backward, &first, &median, fault);

        if (rc != ZT_OK)
            return rc;
        printf("%-5s %-8s %5lld %5lld %5lld  %8.2f %8.2f %7.0f %6.1f\n",
               zt_dtype_name(dtype), backward ? "backward" : "forward", (long long)b,
               (long long)len, (long long)dim, 1e3 * first, 1e3 * median,
               flops / median / 1e9, 100 * flops / median / rate);
    }
    return ZT_OK;
}

int main(int argc, char **argv)
{
    static const int64_t shapes[][4] = {{4, 64, 64, HEADS},   {4, 256, 64, HEADS},
                                        {4, 1024, 64, HEADS}, {4, 1024, 128, HEADS},
                                        {1, 4096, 64, HEADS}, {1, 4096, 128, HEADS},
                                        {1, 16384, 64, 2},    {1, 16384, 128, 2}};
    static const zt_dtype types[] = {ZT_F32, ZT_BF16, ZT_F16};
    const size_t bytes = (size_t)512 << 20;
    const struct zt_backend *be;
    struct zt_device *dev = NULL;
    struct zt_fault fault = {0};
    void *mem = NULL;
    double rate;
    zt_err rc = zt_backend_find("cpu", &be, &fault);

    if (rc == ZT_OK)
        rc = be->open(0, argc > 1 ? atoi(argv[1]) : 0, &dev, &fault);
    if (rc == ZT_OK)
        rc = be->alloc(dev, bytes, &mem, &fault);
    for (int i = 0; i < 3 && rc == ZT_OK; i++) {
        bool wanted = argc <= 2;

        for (int j = 2; j < argc; j++)
            wanted = wanted || strcmp(argv[j], zt_dtype_name(types[i])) == 0;
        if (!wanted)
            continue;
        rc = zt_measure_gemm(be, dev, types[i], false, 0.5, &rate, &fault);
        if (rc != ZT_OK)
            break;
        printf("# %s, %s: square product %.0f GFLOP/s\n", zt_cpu_describe(),
               zt_dtype_name(types[i]), rate / 1e9);
        printf("%-5s %-8s %5s %5s %5s  %8s %8s %7s %6s\n", "type", "pass", "batch", "T",
               "D", "first/ms", "ms", "GFLOP/s", "% gemm");
        for (size_t j = 0; j < sizeof(shapes) / sizeof(shapes[0]) && rc == ZT_OK; j++)
            rc = run(be, dev, mem, types[i], shapes[j], rate, &fault);
    }
    if (mem)
        be->free(dev, mem, bytes);
    if (dev)
        be->close(dev);
    if (rc != ZT_OK)
        fprintf(stderr, "bench_attention: %s\n", fault.text);
    return zt_err_exit_code(rc);
}
