/*
 * bench_attention: attention of GPT-2's heads, forward and backward.
 *
 *      build/release/bench/bench_attention [threads] [f32|bf16|f16 | TxD ...]
 *
 * 12 heads, at 16384 tokens 2, in packed rows of q, k and v, causal; GFLOP/s count the visible half of the
 * scores: 2 products forward, 5 backward, both together 7. A round is a square product of the same type, forward
 * and backward, a short one repeated; "% gemm" is the median over the rounds of attention's rate
 * over that of the product of its round, so that a machine whose speed changes does not decide.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/times.h"
#include "common/log.h"
#include "kernels/backend.h"

#define ROUNDS  5
#define PASS_S  0.05 /* a pass of a round takes so long, or one call */
#define HEADS   12   /* the longest rows have fewer, so that they end */
#define PRODUCT 1536

struct bench {
    const struct zt_backend *be;
    struct zt_device *dev;
    char *mem, *operands; /* of attention; of the square product */
};

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

enum { FORWARD, BACKWARD, BOTH, NUM_PASS };
static const char *const pass_name[] = {"forward", "backward", "both"};

/* Seconds of a call: the mean of as many as PASS_S holds, without the first of several. */
static zt_err time_pass(const struct bench *b, const struct tensors *t, bool backward,
                        double *seconds, struct zt_fault *fault)
{
    double start = zt_now(), passed = 0;
    bool warm = false;
    int n = 0;

    do {
        zt_err rc = backward ? b->be->kernels->attention_bwd(b->dev, NULL, &t->a, fault)
                             : b->be->kernels->attention(b->dev, NULL, &t->a.fwd, fault);

        if (rc != ZT_OK)
            return rc;
        passed = zt_now() - start;
        n++;
        if (!warm && passed < PASS_S) { /* the caches are those of this pass now */
            start = zt_now();
            n = 0, passed = 0;
        }
        warm = true;
    } while (passed < PASS_S);
    *seconds = passed / n;
    return ZT_OK;
}

static zt_err run(const struct bench *b, zt_dtype dtype, const int64_t *shape,
                  struct zt_fault *fault)
{
    const struct zt_product square = {PRODUCT, PRODUCT, PRODUCT};
    double per_product = (double)(shape[0] * shape[3] * shape[2]) * (double)shape[1] *
                         (double)(shape[1] + 1);
    double flops[NUM_PASS] = {2 * per_product, 5 * per_product, 7 * per_product};
    double took[NUM_PASS][ROUNDS], share[NUM_PASS][ROUNDS], rates[ROUNDS];
    struct tensors t;

    setup(&t, b->mem, dtype, shape);
    for (int i = 0; i < ROUNDS; i++) {
        zt_err rc = zt_measure_gemm_in(b->be, b->dev, dtype, false, 0, b->operands,
                                       square, &rates[i], fault);

        for (int pass = 0; pass < BOTH && rc == ZT_OK; pass++)
            rc = time_pass(b, &t, pass == BACKWARD, &took[pass][i], fault);
        if (rc != ZT_OK)
            return rc;
        took[BOTH][i] = took[FORWARD][i] + took[BACKWARD][i];
        for (int pass = 0; pass < NUM_PASS; pass++)
            share[pass][i] = 100 * flops[pass] / took[pass][i] / rates[i];
    }
    for (int pass = 0; pass < NUM_PASS; pass++) {
        double s = median_of(took[pass], ROUNDS), middle = median_of(share[pass], ROUNDS);

        printf("%-5s %-8s %5lld %5lld %5lld  %8.2f %7.0f %7.0f %6.1f [%.1f..%.1f]\n",
               zt_dtype_name(dtype), pass_name[pass], (long long)shape[0],
               (long long)shape[1], (long long)shape[2], 1e3 * s, flops[pass] / s / 1e9,
               median_of(rates, ROUNDS) / 1e9, middle, share[pass][0],
               share[pass][ROUNDS - 1]);
    }
    fflush(stdout);
    return ZT_OK;
}

/* Whether the command line asks for `name`: it does for all, if for none of its kind. */
static bool is_wanted(int argc, char **argv, const char *name)
{
    bool is_shape = strchr(name, 'x') != NULL, any = true;

    for (int i = 2; i < argc; i++) {
        if (strcmp(argv[i], name) == 0)
            return true;
        any = any && (strchr(argv[i], 'x') != NULL) != is_shape;
    }
    return any;
}

int main(int argc, char **argv)
{
    static const int64_t shapes[][4] = {{4, 64, 64, HEADS},   {4, 256, 64, HEADS},
                                        {4, 1024, 64, HEADS}, {4, 1024, 128, HEADS},
                                        {1, 4096, 64, HEADS}, {1, 4096, 128, HEADS},
                                        {1, 16384, 64, 2},    {1, 16384, 128, 2}};
    static const zt_dtype types[] = {ZT_F32, ZT_BF16, ZT_F16};
    const struct zt_product square = {PRODUCT, PRODUCT, PRODUCT};
    const size_t bytes = (size_t)512 << 20, more = zt_measure_bytes(ZT_F32, square);
    struct bench b = {.dev = NULL};
    struct zt_fault fault = {0};
    void *mem = NULL;
    zt_err rc = zt_backend_find("cpu", &b.be, &fault);

    if (rc == ZT_OK)
        rc = b.be->open(0, argc > 1 ? atoi(argv[1]) : 0, &b.dev, &fault);
    if (rc == ZT_OK)
        rc = b.be->alloc(b.dev, bytes + more, &mem, &fault);
    b.mem = mem;
    b.operands = b.mem ? b.mem + bytes : NULL;
    if (rc == ZT_OK)
        printf("# %s\n%-5s %-8s %5s %5s %5s  %8s %7s %7s %6s [least..most]\n",
               zt_cpu_describe(), "type", "pass", "batch", "T", "D", "ms", "GFLOP/s",
               "product", "% gemm");
    for (size_t i = 0; i < 3; i++)
        for (size_t j = 0; j < sizeof(shapes) / sizeof(shapes[0]) && rc == ZT_OK; j++) {
            char shape[48];

            snprintf(shape, sizeof(shape), "%lldx%lld", (long long)shapes[j][1],
                     (long long)shapes[j][2]);
            if (is_wanted(argc, argv, zt_dtype_name(types[i])) &&
                is_wanted(argc, argv, shape))
                rc = run(&b, types[i], shapes[j], &fault);
        }
    if (mem)
        b.be->free(b.dev, mem, bytes + more);
    if (b.dev)
        b.be->close(b.dev);
    if (rc != ZT_OK)
        fprintf(stderr, "bench_attention: %s\n", fault.text);
    return zt_err_exit_code(rc);
}
