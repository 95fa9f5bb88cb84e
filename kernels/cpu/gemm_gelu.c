/* The activation that follows a product, over rows that are still in cache. */
#include <string.h>

#include "kernels/cpu/gemm.h"

#define INLINE static inline __attribute__((always_inline))

/* e^y within 2 ulp; y is cut to the range of normal results. Branch free: vectorises. */
INLINE float exp_f32(float y)
{
    const float magic = 0x1.8p23f; /* adding it rounds to an integer */
    float r, f, p, scale;
    uint32_t bits;

    y = y < -87.0f ? -87.0f : y > 88.0f ? 88.0f : y;
    r = y * 0x1.715476p0f + magic;
    memcpy(&bits, &r, sizeof(bits));
    r -= magic;
    f = y - r * 0x1.62e4p-1f - r * 0x1.7f7d1cp-20f; /* ln 2 in two pieces */
    p = 1.0f / 720;
    p = p * f + 1.0f / 120;
    p = p * f + 1.0f / 24;
    p = p * f + 1.0f / 6;
    p = p * f + 0.5f;
    p = p * f + 1.0f;
    p = p * f + 1.0f;
    bits = (bits + 127) << 23; /* the low bits of r are the exponent */
    memcpy(&scale, &bits, sizeof(scale));
    return p * scale;
}

/* x/2 (1 + tanh u) = x / (1 + e^-2u) */
INLINE void gelu_tanh(float *x, int64_t n)
{
    const float c = 0.7978845608f; /* sqrt(2 / pi) */

    for (int64_t i = 0; i < n; i++) {
        float u = c * (x[i] + 0.044715f * x[i] * x[i] * x[i]);
        x[i] = x[i] / (1.0f + exp_f32(-2.0f * u));
    }
}

/* erf by Abramowitz and Stegun 7.1.26, within 2e-7 */
INLINE void gelu_erf(float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        float z = x[i] * 0.70710678f;
        float a = z < 0 ? -z : z;
        float t = 1.0f / (1.0f + 0.3275911f * a);
        float p = 1.061405429f;

        p = p * t - 1.453152027f;
        p = p * t + 1.421413741f;
        p = p * t - 0.284496736f;
        p = p * t + 0.254829592f;
        float tail = 0.5f * p * t * exp_f32(-a * a); /* (1 - erf a) / 2 */
        x[i] = x[i] * (z < 0 ? tail : 1.0f - tail);
    }
}

INLINE void gelu(float *x, int64_t n, bool tanh_form)
{
    if (tanh_form)
        gelu_tanh(x, n);
    else
        gelu_erf(x, n);
}

#if defined(__x86_64__)
__attribute__((target("avx512f,avx512dq,avx512vl,avx512bw"))) static void gelu_avx512(
    float *x, int64_t n, bool tanh_form)
{
    gelu(x, n, tanh_form);
}

__attribute__((target("avx2"))) static void gelu_avx2(float *x, int64_t n, bool tanh_form)
{
    gelu(x, n, tanh_form);
}
#endif

void zt_gelu_row(float *x, int64_t n, bool tanh_form)
{
#if defined(__x86_64__)
    if (zt_cpu_features() & ZT_CPU_AVX512) {
        gelu_avx512(x, n, tanh_form);
        return;
    }
    if (zt_cpu_features() & ZT_CPU_AVX2) {
        gelu_avx2(x, n, tanh_form);
        return;
    }
#endif
    gelu(x, n, tanh_form);
}
