/* The row kernels of attention, by width of vectors. */
#include <math.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "kernels/cpu/attention/attention.h"
#include "kernels/cpu/philox_words.h"

#define splat(x)         ((lanes){0} + (float)(x))
#define pick(mask, a, b) ((lanes)(((mask) & (lanes_i)(a)) | (~(mask) & (lanes_i)(b))))

/* Rounds to nearest even, by integers. */
#define ROUNDED(u) (((u) + 0x7fff + ((u) >> 16 & 1)) >> 16)
#define HALVES(v)  __builtin_convertvector(ROUNDED((lanes_u)(v)), lanes_h)

/* Of two that are not ordered the second, as the instructions have it. */
#define NAME(x)      any_##x
#define LANES        4
#define FMA(a, b, c) ((a) * (b) + (c))
#define LARGER(a, b) pick((a) > (b), a, b)
#define LESSER(a, b) pick((a) < (b), a, b)
#define TO_BF16(v)   HALVES(v)
#define WIDE         0
#include "kernels/cpu/attention/rows.inc"

#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#endif
#define NAME(x)      avx2_##x
#define LANES        8
#define FMA(a, b, c) ((lanes)_mm256_fmadd_ps((__m256)(a), (__m256)(b), (__m256)(c)))
#define LARGER(a, b) ((lanes)_mm256_max_ps((__m256)(a), (__m256)(b)))
#define LESSER(a, b) ((lanes)_mm256_min_ps((__m256)(a), (__m256)(b)))
#define TO_BF16(v)   HALVES(v)
#define WIDE         0
#include "kernels/cpu/attention/rows.inc"
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
#define NAME(x)      avx512_##x
#define LANES        16
#define FMA(a, b, c) ((lanes)_mm512_fmadd_ps((__m512)(a), (__m512)(b), (__m512)(c)))
#define LARGER(a, b) ((lanes)_mm512_max_ps((__m512)(a), (__m512)(b)))
#define LESSER(a, b) ((lanes)_mm512_min_ps((__m512)(a), (__m512)(b)))
#define TO_BF16(v)   HALVES(v)
#define WIDE         1
#include "kernels/cpu/attention/rows.inc"
#if defined(__clang__)
#pragma clang attribute pop
#pragma clang attribute push(                                                            \
    __attribute__((target("avx512bf16,avx512f,avx512bw,avx512dq,avx512vl,avx2,fma"))),   \
    apply_to = function)
#else
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target(                                                                      \
    "avx512bf16,avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,prefer-vector-width=512")
#endif
/* Subnormal numbers become 0 here: the products that read bf16 take them for that. */
#define NAME(x)      avx512_bf16_##x
#define LANES        16
#define FMA(a, b, c) ((lanes)_mm512_fmadd_ps((__m512)(a), (__m512)(b), (__m512)(c)))
#define LARGER(a, b) ((lanes)_mm512_max_ps((__m512)(a), (__m512)(b)))
#define LESSER(a, b) ((lanes)_mm512_min_ps((__m512)(a), (__m512)(b)))
#define TO_BF16(v)   ((lanes_h)_mm512_cvtneps_pbh((__m512)(v)))
#define WIDE         1
#include "kernels/cpu/attention/rows.inc"
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif

const struct zt_row_kernels *zt_row_kernels(void)
{
#if defined(__x86_64__)
    const unsigned features = zt_cpu_features();

    if ((features & ZT_CPU_AVX512) && (features & ZT_CPU_AVX512_BF16))
        return &avx512_bf16_kernels;
    if (features & ZT_CPU_AVX512)
        return &avx512_kernels;
    if (features & ZT_CPU_AVX2)
        return &avx2_kernels;
#endif
    return &any_kernels;
}
