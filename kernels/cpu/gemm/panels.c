#include "kernels/cpu/gemm/panels.h"

#include <stdbool.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "kernels/cpu/features.h"
#include "kernels/cpu/gemm/bf16_dot.h"
#include "kernels/integers.h"

#if defined(__x86_64__)

#define INLINE static inline __attribute__((always_inline))

/*
 * Lines are pages apart, which the processor does not foresee. What is asked for past the
 * end does no harm.
 */
#define VALUES_AHEAD 64 /* of each line */
#define STEPS_AHEAD  12
/* panels of rows that are packed together, for longer stretches of memory */
#define ABREAST 4
/* parts of the panel that is fetched: one during each tile; k between two fetches */
#define AHEAD 8
/* values of a piece that is packed meanwhile, a line of the cache, and how many are on the way */
#define PIECE        16
#define PIECES_AHEAD 8

/* `n` lines of the cache, `dist` floats apart. */
INLINE void fetch(const float *at, int64_t dist, int n)
{
    for (int i = 0; i < n; i++)
        _mm_prefetch((const char *)at + i * dist * (int64_t)sizeof(*at), _MM_HINT_T0);
}

/* Lines of a panel that has fewer than `width`, or values that are few. */
static void pack_some(float *dst, int64_t width, const float *src, int64_t line,
                      int64_t step, int64_t k, int64_t n)
{
    for (int64_t i = 0; i < k; i++)
        for (int64_t j = 0; j < width; j++)
            dst[i * width + j] = j < n ? src[i * step + j * line] : 0;
}

/* n values of a row. */
INLINE void take_values(float *to, const float *src, int64_t n)
{
    if (n == PIECE)
        memcpy(to, src, PIECE * sizeof(*to));
    else
        memcpy(to, src, (size_t)n * sizeof(*to));
}

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,prfchw"))),                 \
                             apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,prfchw")
#endif
/* 8 rows of 8 change places with their columns. */
INLINE void transpose(__m256 r[8])
{
    __m256 t[8];

#pragma GCC unroll 4
    for (int i = 0; i < 8; i += 2) { /* pairs of rows */
        t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 8; i += 4) { /* fours */
        r[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
        r[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
        r[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        r[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        t[i] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x20);
        t[i + 4] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x31);
    }
    memcpy(r, t, sizeof(t));
}

/* 8 values each of `lines` lines, `width` floats apart; 8 floats are written of each value. */
INLINE void pack_square(float *dst, int64_t width, const float *src, int64_t line,
                        int lines)
{
    __m256 r[8];

#pragma GCC unroll 8
    for (int j = 0; j < 8; j++)
        r[j] = j < lines ? _mm256_loadu_ps(src + j * line) : _mm256_setzero_ps();
    transpose(r);
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++)
        _mm256_storeu_ps(dst + i * width, r[i]);
}

/* 12 of 16 registers are sums. */
#define NAME(x)                by_avx2_##x
#define LANES                  8
#define FMA(a, b, c)           ((lanes)_mm256_fmadd_ps((__m256)(a), (__m256)(b), (__m256)(c)))
#define PAIRS                  false
#define DOT(a, b, c)           FMA(a, b, c)
#define COLUMN(src, j)         ((src) + (j))
#define TAKE(to, src, step, n) take_values(to, src, n)
#define SPLAT(x)               ((lanes)_mm256_set1_ps(x))
#define ROWS                   6
#define VECTORS                2
#define EACH_ROW(X)            X(0) X(1) X(2) X(3) X(4) X(5)
#define EACH_VECTOR(X, i)      X(i, 0) X(i, 1)
#define TOGETHER               4
#include "kernels/cpu/gemm/panels.inc"

#if defined(__clang__)
#pragma clang attribute pop
#pragma clang attribute push(                                                            \
    __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,prfchw"))),       \
    apply_to = function)
#else
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,prfchw")
#endif
/* 24 of 32. */
#define NAME(x)                by_avx512_##x
#define LANES                  16
#define FMA(a, b, c)           ((lanes)_mm512_fmadd_ps((__m512)(a), (__m512)(b), (__m512)(c)))
#define PAIRS                  false
#define DOT(a, b, c)           FMA(a, b, c)
#define COLUMN(src, j)         ((src) + (j))
#define TAKE(to, src, step, n) take_values(to, src, n)
#define SPLAT(x)               ((lanes)_mm512_set1_ps(x))
#define ROWS                   8
#define VECTORS                3
#define EACH_ROW(X)            X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7)
#define EACH_VECTOR(X, i)      X(i, 0) X(i, 1) X(i, 2)
#define TOGETHER               2
#include "kernels/cpu/gemm/panels.inc"

#if defined(__clang__)
#pragma clang attribute pop
#pragma clang attribute push(                                                            \
    __attribute__((                                                                      \
        target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma,prfchw"))),       \
    apply_to = function)
#else
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma,prfchw")
#endif
/* n pairs of two rows, `step` elements apart. */
INLINE void take_pairs(float *to, const float *src, int64_t step, int64_t n)
{
    const uint16_t *even = (const uint16_t *)src;
    __mmask16 mask = (__mmask16)((1u << n) - 1);
    __m512i low = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, even));
    __m512i high = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, even + step));

    _mm512_storeu_si512(to, _mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
}

#define NAME(x)                by_pairs_##x
#define LANES                  16
#define FMA(a, b, c)           ((lanes)_mm512_fmadd_ps((__m512)(a), (__m512)(b), (__m512)(c)))
#define PAIRS                  true
#define DOT(a, b, c)           ((lanes)_mm512_dpbf16_ps((__m512)(c), (__m512bh)(a), (__m512bh)(b)))
#define COLUMN(src, j)         ((const float *)((const uint16_t *)(src) + (j)))
#define TAKE(to, src, step, n) take_pairs(to, src, step, n)
#define SPLAT(x)               ((lanes)_mm512_set1_ps(x))
#define ROWS                   8
#define VECTORS                3
#define EACH_ROW(X)            X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7)
#define EACH_VECTOR(X, i)      X(i, 0) X(i, 1) X(i, 2)
#define TOGETHER               2
#include "kernels/cpu/gemm/panels.inc"
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

const struct zt_panel_kernels *zt_panel_kernels(void)
{
    unsigned f = zt_cpu_features();

    return f & ZT_CPU_AVX512 ? &by_avx512_kernels
           : f & ZT_CPU_AVX2 ? &by_avx2_kernels
                             : NULL;
}

const struct zt_panel_kernels *zt_panel_kernels_of_pairs(void)
{
    return zt_dot_is_supported() ? &by_pairs_kernels : NULL;
}

#else

const struct zt_panel_kernels *zt_panel_kernels_of_pairs(void)
{
    return NULL;
}

const struct zt_panel_kernels *zt_panel_kernels(void)
{
    return NULL;
}

#endif
