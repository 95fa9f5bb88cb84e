/*
 * rows_alone.c -- products of few rows, in which each row has the bits that it has alone.
 *
 * This is what a model computes for each token that it writes: some rows, one a text, times
 * every weight once. Weights are read from memory as they lie there, in long stretches, and
 * each is used for a group of rows while it is in a register.
 *
 *      b (K, N)       c[n] += a[k] b[k][n], fused, in order of k
 *      b (N, K)^T     a . b[n] in the order of dot16.h
 *
 * In fp32, from operands of any type; c is rounded once. The order of a sum depends on K and
 * on how b lies in memory: not on the number of rows, columns or threads.
 */
#include <string.h>

#include "kernels/cpu/dot16.h"
#include "kernels/cpu/gemm/call.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/tile.h"
#include "kernels/integers.h"

#define GROUP   8    /* rows that use a weight together */
#define STEP    4    /* rows of b that are added together */
#define COLUMNS 1024 /* of c that are worked on together: they stay in the L1 cache */

struct alone_rows {
    const struct zt_gemm_call *k;
    float *a;        /* (M, K) */
    float *c;        /* (M, N) */
    uintptr_t widen; /* scratch of thread 0 for 16-bit weights */
    size_t widen_each;
    int64_t m, n, kk;
};

/* ---- b (K, N) ---- */

/* c (num, ld) += a (num, lda), its first STEP columns, times b (STEP, ldb) */
#define DEFINE_ADD(num)                                                                  \
    ZT_SIMD static void add_##num(float *restrict c, int64_t ld, const float *a,         \
                                  int64_t lda, const float *restrict b, int64_t ldb,     \
                                  int64_t n)                                             \
    {                                                                                    \
        for (int64_t i = 0; i < n; i++) {                                                \
            float b0 = b[i], b1 = b[ldb + i], b2 = b[2 * ldb + i], b3 = b[3 * ldb + i];  \
                                                                                         \
            _Pragma("GCC unroll 4") for (int r = 0; r < (num); r++)                      \
            {                                                                            \
                const float *f = a + r * lda;                                            \
                                                                                         \
                c[r * ld + i] =                                                          \
                    fmaf(f[3], b3,                                                       \
                         fmaf(f[2], b2, fmaf(f[1], b1, fmaf(f[0], b0, c[r * ld + i])))); \
            }                                                                            \
        }                                                                                \
    }
DEFINE_ADD(1)
DEFINE_ADD(2)
DEFINE_ADD(4)

/* The same for one row of b. */
ZT_SIMD static void add_one(float *restrict c, float a, const float *restrict b,
                            int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        c[i] = fmaf(a, b[i], c[i]);
}

/* Rows [k, k + num) and columns [col, col + n) of b as fp32; *ld: from row to row. */
static const float *load_b(const struct alone_rows *r, int64_t k, int64_t num,
                           int64_t col, int64_t n, int thread, int64_t *ld)
{
    const struct zt_gemm_mat *b = &r->k->b;
    float *to = (float *)(r->widen + (size_t)thread * r->widen_each);

    *ld = b->stride[1];
    if (b->dtype == ZT_F32)
        return (const float *)(const void *)zt_gemm_element(b, 0, k, col);
    for (int64_t i = 0; i < num; i++)
        zt_load_row(to + i * COLUMNS, zt_gemm_element(b, 0, k + i, col), b->dtype, 1, n);
    *ld = COLUMNS;
    return to;
}

static void add_step(const struct alone_rows *r, int64_t k, const float *b, int64_t ldb,
                     int64_t col, int64_t n)
{
    int64_t row = 0;

    while (row < r->m) {
        float *c = r->c + row * r->n + col;
        const float *a = r->a + row * r->kk + k;
        int64_t left = r->m - row;

        if (left >= 4)
            add_4(c, r->n, a, r->kk, b, ldb, n);
        else if (left >= 2)
            add_2(c, r->n, a, r->kk, b, ldb, n);
        else
            add_1(c, r->n, a, r->kk, b, ldb, n);
        row += left >= 4 ? 4 : left >= 2 ? 2 : 1;
    }
}

static void add_columns(const struct alone_rows *r, int64_t col, int64_t n, int thread)
{
    int64_t k = 0, ldb;
    const float *b;

    for (int64_t row = 0; row < r->m; row++)
        memset(r->c + row * r->n + col, 0, (size_t)n * sizeof(float));
    for (; k + STEP <= r->kk; k += STEP) {
        b = load_b(r, k, STEP, col, n, thread, &ldb);
        add_step(r, k, b, ldb, col, n);
    }
    for (; k < r->kk; k++) {
        b = load_b(r, k, 1, col, n, thread, &ldb);
        for (int64_t row = 0; row < r->m; row++)
            add_one(r->c + row * r->n + col, r->a[row * r->kk + k], b, n);
    }
}

/* ---- b (N, K)^T ---- */

/* out[r] = a[r] . b for `num` rows a (num, lda) */
#define DEFINE_DOT(num)                                                                  \
    ZT_SIMD static void dot_##num(float out[GROUP], const float *a, int64_t lda,         \
                                  const float *b, int64_t n)                             \
    {                                                                                    \
        float acc[num][16] = {{0}};                                                      \
        int64_t i = 0;                                                                   \
                                                                                         \
        for (; i + 16 <= n; i += 16)                                                     \
            _Pragma("GCC unroll 8") for (int r = 0; r < (num); r++)                      \
                zt_lanes16_add(acc[r], a + r * lda + i, b + i);                          \
        for (int l = 0; i + l < n; l++)                                                  \
            for (int r = 0; r < (num); r++)                                              \
                acc[r][l] = fmaf(a[r * lda + i + l], b[i + l], acc[r][l]);               \
        for (int r = 0; r < (num); r++)                                                  \
            out[r] = zt_lanes16_sum(acc[r]);                                             \
    }
DEFINE_DOT(1)
DEFINE_DOT(2)
DEFINE_DOT(4)
DEFINE_DOT(8)

/* Column n of b, which lies in one piece, as fp32. */
static const float *load_column(const struct alone_rows *r, int64_t n, int thread)
{
    const struct zt_gemm_mat *b = &r->k->b;
    float *to = (float *)(r->widen + (size_t)thread * r->widen_each);
    const void *at = zt_gemm_element(b, 0, 0, n);

    if (b->dtype == ZT_F32)
        return at;
    zt_load_row(to, at, b->dtype, 1, r->kk);
    return to;
}

static void dot_column(const struct alone_rows *r, int64_t n, const float *b)
{
    float out[GROUP];

    for (int64_t row = 0; row < r->m;) {
        const float *a = r->a + row * r->kk;
        int64_t left = r->m - row, num = left >= 8   ? 8
                                         : left >= 4 ? 4
                                         : left >= 2 ? 2
                                                     : 1;

        if (num == 8)
            dot_8(out, a, r->kk, b, r->kk);
        else if (num == 4)
            dot_4(out, a, r->kk, b, r->kk);
        else if (num == 2)
            dot_2(out, a, r->kk, b, r->kk);
        else
            dot_1(out, a, r->kk, b, r->kk);
        for (int64_t i = 0; i < num; i++)
            r->c[(row + i) * r->n + n] = out[i];
        row += num;
    }
}

/* ---- both ---- */

static void some_columns(int64_t begin, int64_t end, int thread, void *ctx)
{
    const struct alone_rows *r = ctx;

    if (r->k->b.stride[2] == 1 && r->n > 1) {
        for (int64_t col = begin; col < end; col += COLUMNS)
            add_columns(r, col, zt_min(COLUMNS, end - col), thread);
        return;
    }
    for (int64_t n = begin; n < end; n++)
        dot_column(r, n, load_column(r, n, thread));
}

bool zt_gemm_takes_rows_alone(const struct zt_gemm_call *k)
{
    return k->rows_alone && k->c.batch == 1 && !k->accumulate && k->alpha == 1 &&
           k->a.dtype <= ZT_F16 && k->b.dtype <= ZT_F16 && k->a.stride[2] == 1 &&
           (k->b.stride[1] == 1 || k->b.stride[2] == 1);
}

zt_err zt_gemm_rows_alone(struct zt_device *dev, const struct zt_gemm_call *k,
                          struct zt_fault *fault)
{
    struct alone_rows r = {.k = k, .m = k->c.rows, .n = k->c.cols, .kk = k->a.cols};
    int64_t widened = k->b.dtype == ZT_F32 ? 0 : zt_max(STEP * COLUMNS, r.kk);
    struct zt_gemm_mat made = {
        .dtype = ZT_F32, .batch = 1, .rows = r.m, .cols = r.n, .stride = {0, r.n, 1}};
    size_t a_bytes = ((size_t)(r.m * r.kk) * sizeof(float) + 63) / 64 * 64;
    size_t c_bytes = ((size_t)(r.m * r.n) * sizeof(float) + 63) / 64 * 64;
    void *mem;
    zt_err rc;

    r.widen_each = ((size_t)widened * sizeof(float) + 4095) / 4096 * 4096;
    rc = zt_cpu_scratch(dev, ZT_SCRATCH_GEMM,
                        a_bytes + c_bytes + r.widen_each * (size_t)zt_num_threads(), &mem,
                        fault);
    if (rc)
        return rc;
    r.a = mem;
    r.c = (float *)mem + a_bytes / sizeof(float);
    r.widen = (uintptr_t)mem + a_bytes + c_bytes;
    for (int64_t i = 0; i < r.m; i++)
        zt_load_row(r.a + i * r.kk, zt_gemm_element(&k->a, 0, i, 0), k->a.dtype, 1, r.kk);
    zt_parallel_for(r.n, zt_max(16, ZT_GRAIN / (r.m * r.kk + 1) / 16 * 16), some_columns,
                    &r);
    made.data = (char *)r.c;
    zt_gemm_finish_rows(k, &made);
    return ZT_OK;
}
