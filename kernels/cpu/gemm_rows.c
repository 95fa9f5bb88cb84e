/* Rows of f32, bf16 and f16 to and from fp32. */
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "kernels/cpu/gemm.h"

static float from_bits(uint32_t u)
{
    float f;

    memcpy(&f, &u, sizeof(f));
    return f;
}

static uint32_t to_bits(float f)
{
    uint32_t u;

    memcpy(&u, &f, sizeof(u));
    return u;
}

static float bf16_to_f32(uint16_t h)
{
    return from_bits((uint32_t)h << 16);
}

/* to nearest even; a NaN stays one (and quiet) */
static uint16_t f32_to_bf16(float f)
{
    uint32_t u = to_bits(f);
    uint32_t rounded = (u + 0x7fff + (u >> 16 & 1)) >> 16;

    return (uint16_t)((u & 0x7fffffff) > 0x7f800000 ? u >> 16 | 0x40 : rounded);
}

static float f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, mag = h & 0x7fff;

    if (mag >= 0x7c00) /* inf, nan */
        return from_bits(sign | 0x7f800000 | (mag & 0x3ff) << 13);
    if (mag >= 0x400)
        return from_bits(sign | ((mag << 13) + ((127 - 15) << 23)));
    return from_bits(sign | to_bits((float)mag * 0x1p-24f));
}

static uint16_t f32_to_f16(float f)
{
    uint32_t u = to_bits(f), mag = u & 0x7fffffff;
    uint16_t sign = (uint16_t)(u >> 16 & 0x8000);

    if (mag > 0x7f800000)
        return sign | 0x7e00 | (uint16_t)(mag >> 13 & 0x3ff);
    if (mag >= 0x477ff000) /* rounds to more than 65504 */
        return sign | 0x7c00;
    if (mag < 0x38800000) { /* subnormal: the addition rounds at 2^-24 */
        float r = from_bits(mag) + 0.5f;
        return sign | (uint16_t)(to_bits(r) - to_bits(0.5f));
    }
    mag -= (127 - 15) << 23;
    return sign | (uint16_t)((mag + 0xfff + (mag >> 13 & 1)) >> 13);
}

/* ---- contiguous f16 by the processor's own conversion ---- */

#if defined(__x86_64__)
__attribute__((target("avx,f16c"))) static int64_t f16_load_wide(float *dst,
                                                                 const uint16_t *src,
                                                                 int64_t n)
{
    int64_t i = 0;

    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(dst + i,
                         _mm256_cvtph_ps(_mm_loadu_si128((const void *)(src + i))));
    return i;
}

__attribute__((target("avx,f16c"))) static int64_t f16_store_wide(uint16_t *dst,
                                                                  const float *src,
                                                                  int64_t n)
{
    int64_t i = 0;

    for (; i + 8 <= n; i += 8)
        _mm_storeu_si128((void *)(dst + i),
                         _mm256_cvtps_ph(_mm256_loadu_ps(src + i),
                                         _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    return i;
}
#else
static int64_t f16_load_wide(float *dst, const uint16_t *src, int64_t n)
{
    (void)dst, (void)src, (void)n;
    return 0;
}

static int64_t f16_store_wide(uint16_t *dst, const float *src, int64_t n)
{
    (void)dst, (void)src, (void)n;
    return 0;
}
#endif

static bool wide_f16(int64_t stride)
{
    return stride == 1 && (zt_cpu_features() & ZT_CPU_AVX2);
}

void zt_load_row(float *dst, const void *src, zt_dtype dtype, int64_t stride, int64_t n)
{
    const uint16_t *h = src;
    const float *f = src;
    int64_t i = 0;

    if (dtype == ZT_F32 && stride == 1) {
        memcpy(dst, src, (size_t)n * sizeof(*dst));
    } else if (dtype == ZT_F32) {
        for (; i < n; i++)
            dst[i] = f[i * stride];
    } else if (dtype == ZT_BF16 && stride == 1) {
        for (; i < n; i++)
            dst[i] = bf16_to_f32(h[i]);
    } else if (dtype == ZT_BF16) {
        for (; i < n; i++)
            dst[i] = bf16_to_f32(h[i * stride]);
    } else {
        if (wide_f16(stride))
            i = f16_load_wide(dst, h, n);
        for (; i < n; i++)
            dst[i] = f16_to_f32(h[i * stride]);
    }
}

void zt_store_row(void *dst, zt_dtype dtype, int64_t stride, const float *src, int64_t n)
{
    uint16_t *h = dst;
    float *f = dst;
    int64_t i = 0;

    if (dtype == ZT_F32 && stride == 1) {
        memcpy(dst, src, (size_t)n * sizeof(*src));
    } else if (dtype == ZT_F32) {
        for (; i < n; i++)
            f[i * stride] = src[i];
    } else if (dtype == ZT_BF16 && stride == 1) {
        for (; i < n; i++)
            h[i] = f32_to_bf16(src[i]);
    } else if (dtype == ZT_BF16) {
        for (; i < n; i++)
            h[i * stride] = f32_to_bf16(src[i]);
    } else {
        if (wide_f16(stride))
            i = f16_store_wide(h, src, n);
        for (; i < n; i++)
            h[i * stride] = f32_to_f16(src[i]);
    }
}
