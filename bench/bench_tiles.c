/*
 * bench_tiles: products of bf16 by our own tiles beside oneDNN's, call by call in turns.
 *
 *      build/release/bench/bench_tiles [seconds for each product]
 *
 * One thread, its processor time; on a shared machine the ratio says more than the rates.
 * ratio: oneDNN's time over ours, median and quartiles of neighbouring calls. Where the
 * header says that oneDNN is held below the tiles, it is.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench/times.h"
#include "common/log.h"
#include "kernels/backend.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/features.h"
#include "kernels/cpu/gemm/call.h"

#define MOST_CALLS  2000
#define LEAST_CALLS 4

struct product {
    const char *name;
    int64_t m, k, n;
    bool ta, tb, accumulate;
};

static const struct product products[] = {
    {"forward", 256, 768, 2304, false, false, false},
    {"dgrad", 256, 2304, 768, false, true, false},
    {"wgrad", 768, 256, 2304, true, false, true},
    {"forward", 256, 3072, 768, false, false, false},
    {"head", 256, 768, 50257, false, true, false},
    {"head dgrad", 256, 50257, 768, false, false, false},
    {"head wgrad", 50257, 256, 768, true, false, true},
    {"forward", 1024, 768, 768, false, false, false},
    {"forward", 1024, 768, 3072, false, false, false},
    {"dgrad", 1024, 3072, 768, false, true, false},
    {"wgrad", 768, 1024, 3072, true, false, true},
    {"forward", 1024, 3072, 768, false, false, false},
    {"wgrad", 3072, 1024, 768, true, false, true},
    {"head", 1024, 768, 50257, false, true, false},
    {"head dgrad", 1024, 50257, 768, false, false, false},
    {"head wgrad", 50257, 1024, 768, true, false, true},
    {"forward", 256, 2048, 8192, false, false, false},
    {"wgrad", 2048, 256, 512, true, false, true},
    {"dgrad", 1024, 8192, 2048, false, true, false},
    {"narrow", 1024, 768, 32, false, false, false},
    {"few rows", 32, 768, 3072, false, false, false},
    {"odd", 1000, 777, 999, false, false, false},
};

static struct zt_gemm_mat matrix(zt_dtype dtype, int64_t rows, int64_t cols,
                                 bool transposed)
{
    size_t n = (size_t)(rows * cols);
    struct zt_gemm_mat m = {.dtype = dtype,
                            .batch = 1,
                            .rows = rows,
                            .cols = cols,
                            .stride = {0, transposed ? 1 : cols, transposed ? rows : 1}};

    m.data = aligned_alloc(64, (n * zt_dtype_bytes(dtype) + 63) / 64 * 64);
    for (size_t i = 0; m.data && i < n; i++) {
        float x = (float)((int)(i * 2654435761u % 201) - 100) /
                  100; /* spread, no pattern of a tile */

        zt_store_row(m.data + i * zt_dtype_bytes(dtype), dtype, 1, &x, 1);
    }
    return m;
}

/* Seconds of a call of each, who is first in turns; the number of pairs, or 0. */
static int measure(struct zt_device *dev, const struct zt_gemm_call *call, double budget,
                   double took[2][MOST_CALLS], struct zt_fault *fault)
{
    double start = zt_now();
    int n = 0;

    for (; n < MOST_CALLS && (n < LEAST_CALLS || zt_now() - start < budget); n++)
        for (int i = 0; i < 2; i++) {
            bool other = i ^ (n & 1);
            double t0 = zt_now();

            if (other ? zt_gemm_by_onednn(dev, call, false, fault)
                      : zt_gemm_tiled(dev, call, fault))
                return 0;
            took[other][n] = zt_now() - t0;
        }
    return n;
}

static zt_err run(struct zt_device *dev, const struct product *p, double budget,
                  struct zt_fault *fault)
{
    static double took[2][MOST_CALLS], ratio[MOST_CALLS];
    struct zt_gemm_call call = {
        .a = matrix(ZT_BF16, p->m, p->k, p->ta),
        .b = matrix(ZT_BF16, p->k, p->n, p->tb),
        .c = matrix(p->accumulate ? ZT_F32 : ZT_BF16, p->m, p->n, false),
        .alpha = 1,
        .accumulate = p->accumulate};
    double gflop = 2e-9 * (double)p->m * (double)p->n * (double)p->k;
    bool good = call.a.data && call.b.data && call.c.data;
    int n = good ? measure(dev, &call, budget, took, fault) : 0;

    for (int i = 0; i < n; i++)
        ratio[i] = took[1][i] / took[0][i];
    qsort(took[0], (size_t)n, sizeof(double), by_value);
    qsort(took[1], (size_t)n, sizeof(double), by_value);
    qsort(ratio, (size_t)n, sizeof(double), by_value);
    if (n)
        printf(
            "%-10s %6lld %6lld %6lld  %7.0f %7.0f  %7.0f %7.0f   %.2f [%.2f .. %.2f]\n",
            p->name, (long long)p->m, (long long)p->k, (long long)p->n,
            gflop / took[0][n / 2], gflop / took[0][0], gflop / took[1][n / 2],
            gflop / took[1][0], ratio[n / 2], ratio[n / 4], ratio[n - 1 - n / 4]);
    free(call.a.data);
    free(call.b.data);
    free(call.c.data);
    return n      ? ZT_OK
           : good ? fault->code
                  : zt_fault_set(fault, ZT_E_NOMEM, "no memory for a product");
}

int main(int argc, char **argv)
{
    double budget = argc > 1 ? atof(argv[1]) : 1;
    struct zt_fault fault = {0};
    struct zt_device *dev = NULL;
    zt_err rc = zt_cpu_backend.open(0, 1, &dev, &fault);

    if (!rc && !zt_cpu_has_tiles())
        rc = zt_fault_set(&fault, ZT_E_UNSUPPORTED, "this processor has no tiles");
    if (!rc)
        printf("# %s; GFLOP/s: median and best\n%-10s %6s %6s %6s  %15s  %15s   %s\n",
               zt_cpu_describe(), "product", "m", "k", "n", "own tiles", "oneDNN",
               "ratio");
    for (size_t i = 0; !rc && i < sizeof(products) / sizeof(*products); i++)
        rc = run(dev, &products[i], budget, &fault);
    if (rc)
        fprintf(stderr, "bench_tiles: %s\n", fault.text);
    if (dev)
        zt_cpu_backend.close(dev);
    return rc ? 1 : 0;
}
