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
#include <math.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "common/half.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/features.h"
#include "kernels/cpu/gemm/call.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/simd.h"
#include "kernels/cpu/tile.h"
#include "kernels/integers.h"

#define ADD_STEPS   4    /* rows of b that are added together */
#define DOT_COLUMNS 3    /* columns of b that are multiplied together */
#define IN_CACHE    4096 /* floats of c that are worked on together: half of an L1 cache */

/* c (m, n) += a (m, steps) b (steps, n): steps is ADD_STEPS or 1, type F32 or BF16. */
struct alone_add {
    const float *a;
    const void *b;
    float *c;
    int64_t lda, ldb, ldc, m, n;
    int64_t ahead; /* bytes from b to what comes next of it; 0: nothing does */
    int steps;
    zt_dtype type;
};

/* c (m, n) = a (m, k) b^T, b (n, k) of type F32 or BF16. */
struct alone_dot {
    const float *a;
    const void *b;
    float *c;
    int64_t lda, ldb, ldc, m, n, k;
    zt_dtype type;
};

struct alone_kernels {
    void (*add)(const struct alone_add *p);
    void (*dot)(const struct alone_dot *p);
};

/* As zt_lanes16_sum() of dot16.h. */
static inline __attribute__((always_inline)) float sum_of_lanes(const float l[16])
{
    typedef float quad __attribute__((vector_size(16)));
    quad q[4], t;

    memcpy(q, l, sizeof(q));
    t = (q[0] + q[2]) + (q[1] + q[3]);
    return (t[0] + t[2]) + (t[1] + t[3]);
}

/* Vectors, and the same in memory. */
typedef float alone_v8 __attribute__((vector_size(32)));
typedef float alone_m8 __attribute__((vector_size(32), may_alias, aligned(4)));

#define SPLAT_8(x) ((alone_v8){(x), (x), (x), (x), (x), (x), (x), (x)})

#define NAME(x)  any_##x
#define WIDTH    8
#define VEC      alone_v8
#define MEM      alone_m8
#define SPLAT(x) SPLAT_8(x)
#define WIDEN(p)                                                                         \
    ((alone_v8){zt_float_of_bf16((p)[0]), zt_float_of_bf16((p)[1]),                      \
                zt_float_of_bf16((p)[2]), zt_float_of_bf16((p)[3]),                      \
                zt_float_of_bf16((p)[4]), zt_float_of_bf16((p)[5]),                      \
                zt_float_of_bf16((p)[6]), zt_float_of_bf16((p)[7])})
#define FMA(c, a, b)                                                                     \
    for (int lane = 0; lane < 8; lane++)                                                 \
    (c)[lane] = fmaf((a)[lane], (b)[lane], (c)[lane])
#include "kernels/cpu/gemm/rows_alone.inc"

#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#endif
#define NAME(x)  avx2_##x
#define WIDTH    8
#define VEC      alone_v8
#define MEM      alone_m8
#define SPLAT(x) SPLAT_8(x)
#define WIDEN(p)                                                                         \
    ((alone_v8)_mm256_slli_epi32(                                                        \
        _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(p))), 16))
#define FMA(c, a, b)                                                                     \
    (c) = (alone_v8)_mm256_fmadd_ps((__m256)(a), (__m256)(b), (__m256)(c))
#include "kernels/cpu/gemm/rows_alone.inc"
#if defined(__clang__)
#pragma clang attribute pop
#pragma clang attribute push(                                                            \
    __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma"))),              \
    apply_to = function)
#else
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,prefer-vector-width=512")
#endif
typedef float alone_v16 __attribute__((vector_size(64)));
typedef float alone_m16 __attribute__((vector_size(64), may_alias, aligned(4)));
#define NAME(x)  avx512_##x
#define WIDTH    16
#define VEC      alone_v16
#define MEM      alone_m16
#define SPLAT(x) ((alone_v16)_mm512_set1_ps(x))
#define WIDEN(p)                                                                         \
    ((alone_v16)_mm512_slli_epi32(                                                       \
        _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(p))), 16))
#define FMA(c, a, b)                                                                     \
    (c) = (alone_v16)_mm512_fmadd_ps((__m512)(a), (__m512)(b), (__m512)(c))
#include "kernels/cpu/gemm/rows_alone.inc"
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif

static const struct alone_kernels *kernels_of_processor(void)
{
#if defined(__x86_64__)
    if (zt_cpu_features() & ZT_CPU_AVX512)
        return &avx512_kernels;
    if (zt_cpu_features() & ZT_CPU_AVX2)
        return &avx2_kernels;
#endif
    return &any_kernels;
}

/* ---- a product ---- */

struct alone_rows {
    const struct zt_gemm_call *k;
    const struct alone_kernels *kernels;
    float *a; /* (M, lda) */
    float *c; /* (M, ldc) */
    int64_t lda, ldc;
    uintptr_t widen; /* scratch of thread 0 for weights that the loops do not take */
    size_t widen_each;
    int64_t m, n, kk;
    int64_t columns; /* of c that are worked on together, of b (K, N) */
};

/* Lines [at, at + num) of b, elements [from, from + n) of each: where they are, or widened;
 * *ld: from line to line. */
static const void *load_b(const struct alone_rows *r, const struct zt_gemm_mat *lines,
                          int64_t at, int64_t num, int64_t from, int64_t n, int thread,
                          int64_t *ld)
{
    float *to = (float *)(r->widen + (size_t)thread * r->widen_each);

    *ld = lines->stride[1];
    if (!r->widen_each)
        return zt_gemm_element(lines, 0, at, from);
    for (int64_t i = 0; i < num; i++)
        zt_load_row(to + i * n, zt_gemm_element(lines, 0, at + i, from), lines->dtype, 1,
                    n);
    *ld = n;
    return to;
}

static zt_dtype loaded_type(const struct alone_rows *r)
{
    return r->widen_each ? ZT_F32 : r->k->b.dtype;
}

static void add_columns(const struct alone_rows *r, int64_t col, int64_t n, int thread)
{
    struct alone_add p = {.c = r->c + col,
                          .lda = r->lda,
                          .ldc = r->ldc,
                          .m = r->m,
                          .n = n,
                          .type = loaded_type(r)};
    const struct zt_gemm_mat *b = &r->k->b;

    for (int64_t row = 0; row < r->m; row++)
        memset(p.c + row * p.ldc, 0, (size_t)n * sizeof(float));
    for (int64_t k = 0; k < r->kk; k += p.steps) {
        p.steps = k + ADD_STEPS <= r->kk ? ADD_STEPS : 1;
        p.a = r->a + k;
        p.b = load_b(r, b, k, p.steps, col, n, thread, &p.ldb);
        p.ahead = k + 2 * ADD_STEPS <= r->kk && !r->widen_each
                      ? ADD_STEPS * p.ldb * (int64_t)zt_dtype_bytes(p.type)
                      : 0;
        r->kernels->add(&p);
    }
}

static void dot_columns(const struct alone_rows *r, int64_t col, int64_t n, int thread)
{
    const struct zt_gemm_mat b = zt_gemm_transposed(r->k->b); /* (N, K), as it lies */
    struct alone_dot p = {.a = r->a,
                          .c = r->c + col,
                          .lda = r->lda,
                          .ldc = r->ldc,
                          .m = r->m,
                          .n = n,
                          .k = r->kk,
                          .type = loaded_type(r)};

    p.b = load_b(r, &b, col, n, 0, r->kk, thread, &p.ldb);
    r->kernels->dot(&p);
}

static bool is_added(const struct zt_gemm_call *k)
{
    return k->b.stride[2] == 1 && k->c.cols > 1;
}

static void some_columns(int64_t begin, int64_t end, int thread, void *ctx)
{
    const struct alone_rows *r = ctx;
    bool added = is_added(r->k);
    int64_t each = added ? r->columns : r->widen_each ? DOT_COLUMNS : end - begin;

    for (int64_t col = begin; col < end; col += each)
        (added ? add_columns : dot_columns)(r, col, zt_min(each, end - col), thread);
}

bool zt_gemm_takes_rows_alone(const struct zt_gemm_call *k)
{
    return k->rows_alone && k->c.batch == 1 && !k->accumulate && k->alpha == 1 &&
           k->a.dtype <= ZT_F16 && k->b.dtype <= ZT_F16 && k->a.stride[2] == 1 &&
           (k->b.stride[1] == 1 || k->b.stride[2] == 1);
}

/* From row to row of n floats: rows that are a power of two apart share a few sets of a cache. */
static int64_t spaced(int64_t n)
{
    return (zt_num_parts(n, 16) | 1) * 16;
}

/* A thread's part of N columns in pieces of equal size that stay in the cache. */
static int64_t columns_together(int64_t m, int64_t n)
{
    int64_t each = zt_num_parts(n, zt_num_threads());
    int64_t fit = zt_max(64, IN_CACHE / zt_max(4, m));

    return (zt_num_parts(each, zt_num_parts(each, fit)) + 31) / 32 * 32;
}

zt_err zt_gemm_rows_alone(struct zt_device *dev, const struct zt_gemm_call *k,
                          struct zt_fault *fault)
{
    struct alone_rows r = {.k = k,
                           .kernels = kernels_of_processor(),
                           .m = k->c.rows,
                           .n = k->c.cols,
                           .kk = k->a.cols,
                           .lda = spaced(k->a.cols),
                           .ldc = spaced(k->c.cols),
                           .columns = columns_together(k->c.rows, k->c.cols)};
    int64_t widened = is_added(k) ? ADD_STEPS * r.columns : DOT_COLUMNS * r.kk;
    struct zt_gemm_mat made = {
        .dtype = ZT_F32, .batch = 1, .rows = r.m, .cols = r.n, .stride = {0, r.ldc, 1}};
    size_t a_bytes = (size_t)(r.m * r.lda) * sizeof(float);
    size_t c_bytes = (size_t)(r.m * r.ldc) * sizeof(float);
    void *mem;
    zt_err rc;

    if (k->b.dtype == ZT_F16)
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
        zt_load_row(r.a + i * r.lda, zt_gemm_element(&k->a, 0, i, 0), k->a.dtype, 1,
                    r.kk);
    zt_parallel_for(r.n, zt_max(16, ZT_GRAIN / (r.m * r.kk + 1) / 16 * 16), some_columns,
                    &r);
    made.data = (char *)r.c;
    zt_gemm_finish_rows(k, &made);
    return ZT_OK;
}
