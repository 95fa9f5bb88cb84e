/*
 * activation.h -- the functions of enum zt_unary on a pack of fp32, and their slopes.
 */
#ifndef KERNELS_CUDA_ELEMENTWISE_ACTIVATION_H
#define KERNELS_CUDA_ELEMENTWISE_ACTIVATION_H

#include "kernels/cuda/row.h"

#define ZT_SQRT_2_OVER_PI 0.797884561f
#define ZT_GELU_CUBIC     0.044715f

/* x sigmoid(2 u), u = sqrt(2/pi) (x + 0.044715 x^3): nothing cancels, as 1 + tanh would.
 */
static __device__ __forceinline__ float zt_gelu_tanh(float x, float *slope)
{
    float z = x * x;
    float u2 = 2.0f * ZT_SQRT_2_OVER_PI * x * fmaf(ZT_GELU_CUBIC, z, 1.0f);
    float s = 1.0f / (1.0f + expf(-u2)), rest = s * (1.0f - s);
    float d = 2.0f * ZT_SQRT_2_OVER_PI * fmaf(3.0f * ZT_GELU_CUBIC, z, 1.0f) * x;

    *slope = fmaf(rest, rest == 0.0f ? 0.0f : d, s); /* d may be inf where rest is 0 */
    return x * s;
}

static __device__ __forceinline__ float zt_gelu_erf(float x, float *slope)
{
    float p = 0.5f * (1.0f + erff(0.707106781f * x));

    *slope = fmaf(x, 0.398942280f * expf(-0.5f * (x * x)), p);
    return x * p;
}

static __device__ __forceinline__ float zt_silu(float x, float *slope)
{
    float s = 1.0f / (1.0f + expf(-x));

    *slope = s * fmaf(x, 1.0f - s, 1.0f);
    return x * s;
}

static __device__ __forceinline__ float zt_relu(float x, float *slope)
{
    *slope = x > 0.0f ? 1.0f : 0.0f;
    return x < 0.0f ? 0.0f : x; /* a NaN stays */
}

static __device__ __forceinline__ float zt_tanh(float x, float *slope)
{
    float t = tanhf(x);

    *slope = fmaf(-t, t, 1.0f);
    return t;
}

#define ZT_EACH(f)                                                                       \
    for (int i = 0; i < ZT_PACK; i++)                                                    \
        y[i] = f(x[i], &slope[i]);                                                       \
    break

/* y = f(x) and slope = f'(x); y may be x. The compiler removes a slope that is not read. */
static __device__ __forceinline__ void zt_activate(zt_unary kind, float y[ZT_PACK],
                                                   float slope[ZT_PACK],
                                                   const float x[ZT_PACK])
{
    switch (kind) {
    case ZT_U_GELU_TANH:
        ZT_EACH(zt_gelu_tanh);
    case ZT_U_GELU_ERF:
        ZT_EACH(zt_gelu_erf);
    case ZT_U_SILU:
        ZT_EACH(zt_silu);
    case ZT_U_RELU:
        ZT_EACH(zt_relu);
    case ZT_U_TANH:
        ZT_EACH(zt_tanh);
    }
}
#undef ZT_EACH

#endif
