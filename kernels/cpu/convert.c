#include "kernels/convert.h"

#include "kernels/cpu/device.h"
#include "kernels/cpu/simd.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

/*
 * bf16 is integer arithmetic that compilers turn into vectors. vcvtneps2bf16 would be
 * shorter but takes subnormals for 0, and memory is the limit anyway.
 */
ZT_SIMD void zt_floats_of_bf16(float *restrict dst, const uint16_t *restrict src,
                               int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        dst[i] = zt_float_of_bf16(src[i]);
}

ZT_SIMD void zt_bf16_of_floats(uint16_t *restrict dst, const float *restrict src,
                               int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        dst[i] = zt_bf16_of_float(src[i]);
}

/* fp16 has an instruction that means the same in every case. Returns how many are done.
 */
#if defined(__x86_64__)
__attribute__((target("avx2,f16c"))) static int64_t widen_f16c(float *dst,
                                                               const uint16_t *src,
                                                               int64_t n)
{
    int64_t i = 0;

    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(dst + i,
                         _mm256_cvtph_ps(_mm_loadu_si128((const void *)(src + i))));
    return i;
}

__attribute__((target("avx2,f16c"))) static int64_t narrow_f16c(uint16_t *dst,
                                                                const float *src,
                                                                int64_t n)
{
    int64_t i = 0;

    for (; i + 8 <= n; i += 8)
        _mm_storeu_si128((void *)(dst + i), _mm256_cvtps_ph(_mm256_loadu_ps(src + i),
                                                            _MM_FROUND_TO_NEAREST_INT));
    return i;
}

static int64_t widen_fast(float *dst, const uint16_t *src, int64_t n)
{
    return zt_cpu_features() & ZT_CPU_AVX2 ? widen_f16c(dst, src, n) : 0;
}

static int64_t narrow_fast(uint16_t *dst, const float *src, int64_t n)
{
    return zt_cpu_features() & ZT_CPU_AVX2 ? narrow_f16c(dst, src, n) : 0;
}
#else
static int64_t widen_fast(float *dst, const uint16_t *src, int64_t n)
{
    (void)dst;
    (void)src;
    (void)n;
    return 0;
}

static int64_t narrow_fast(uint16_t *dst, const float *src, int64_t n)
{
    (void)dst;
    (void)src;
    (void)n;
    return 0;
}
#endif

void zt_floats_of_f16(float *dst, const uint16_t *src, int64_t n)
{
    for (int64_t i = widen_fast(dst, src, n); i < n; i++)
        dst[i] = zt_float_of_f16(src[i]);
}

void zt_f16_of_floats(uint16_t *dst, const float *src, int64_t n)
{
    for (int64_t i = narrow_fast(dst, src, n); i < n; i++)
        dst[i] = zt_f16_of_float(src[i]);
}
