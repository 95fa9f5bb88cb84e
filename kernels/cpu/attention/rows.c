/* The row kernels of attention, by width of vectors. */
#include <math.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "kernels/cpu/attention/attention.h"
#include "kernels/philox.h"

/* 16 lanes whatever the processor: the compiler splits them where it must. */
typedef float lanes __attribute__((vector_size(64), may_alias));
typedef float lanes_mem __attribute__((vector_size(64), may_alias, aligned(4)));
typedef int32_t lanes_i __attribute__((vector_size(64), may_alias));
typedef uint32_t lanes_u __attribute__((vector_size(64), may_alias));
typedef uint16_t lanes_h __attribute__((vector_size(32), may_alias, aligned(2)));

#define splat(x)         ((lanes){0} + (float)(x))
#define pick(mask, a, b) ((lanes)(((mask) & (lanes_i)(a)) | (~(mask) & (lanes_i)(b))))

#define NAME(x)      any_##x
#define FMA(a, b, c) ((a) * (b) + (c))
#include "kernels/cpu/attention/rows.inc"

#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#endif
#define NAME(x)      avx2_##x
#define FMA(a, b, c) ((a) * (b) + (c))
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
#define FMA(a, b, c) ((lanes)_mm512_fmadd_ps((__m512)(a), (__m512)(b), (__m512)(c)))
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
    if (zt_cpu_features() & ZT_CPU_AVX512)
        return &avx512_kernels;
    if (zt_cpu_features() & ZT_CPU_AVX2)
        return &avx2_kernels;
#endif
    return &any_kernels;
}
