#include "kernels/cpu/elementwise/activation.h"

#include "kernels/cpu/vmath.h"

#define SQRT_2_OVER_PI 0.797884561f
#define GELU_CUBIC     0.044715f

/*
 * gelu, tanh form: x (1 + tanh(u)) / 2 = x sigmoid(2 u), u = sqrt(2/pi) (x + 0.044715
 * x^3). The sigmoid loses nothing where 1 + tanh would cancel.
 */
ZT_LANE_FN float gelu_tanh(float x, float *slope)
{
    float z = x * x;
    float u2 = 2.0f * SQRT_2_OVER_PI * x * fmaf(GELU_CUBIC, z, 1.0f);
    float s = 1.0f / zt_one_plus_exp_minus(u2);
    /* x times the slope of s, which is s (1 - s); 0 once s is: x^3 must not reach inf */
    float d = 2.0f * SQRT_2_OVER_PI * fmaf(3.0f * GELU_CUBIC, z, 1.0f) * x;

    d = fmaf(s * (1.0f - s), s * (1.0f - s) == 0.0f ? 0.0f : d, s);
    *slope = x == x ? d : x;
    return x * s;
}

ZT_LANE_FN float gelu_erf(float x, float *slope)
{
    float density, p = zt_normal_cdf(x, &density);

    *slope = fmaf(x, density, p);
    return x * p;
}

ZT_LANE_FN float silu(float x, float *slope)
{
    float s = zt_sigmoid(x);

    *slope = s * fmaf(x, 1.0f - s, 1.0f);
    return x * s;
}

ZT_LANE_FN float relu(float x, float *slope)
{
    *slope = x > 0.0f ? 1.0f : 0.0f;
    return x < 0.0f ? 0.0f : x; /* a NaN stays */
}

ZT_LANE_FN float hyperbolic_tangent(float x, float *slope)
{
    float t = zt_tanh(x);

    *slope = fmaf(-t, t, 1.0f);
    return t;
}

/* Two loops per function; the unused slope of the first is dropped by the compiler. */
#define LOOPS(f)                                                                         \
    ZT_SIMD static void f##_tile(float *y, const float *x, int64_t n)                    \
    {                                                                                    \
        float slope;                                                                     \
                                                                                         \
        _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) y[i] = f(x[i], &slope);     \
    }                                                                                    \
    ZT_SIMD static void f##_slope_tile(float *restrict y, float *restrict d,             \
                                       const float *restrict x, int64_t n)               \
    {                                                                                    \
        for (int64_t i = 0; i < n; i++)                                                  \
            y[i] = f(x[i], &d[i]);                                                       \
    }
LOOPS(gelu_tanh)
LOOPS(gelu_erf)
LOOPS(silu)
LOOPS(relu)
LOOPS(hyperbolic_tangent)

void zt_tile_activate(zt_unary kind, float *y, const float *x, int64_t n)
{
    switch (kind) {
    case ZT_U_GELU_TANH:
        gelu_tanh_tile(y, x, n);
        break;
    case ZT_U_GELU_ERF:
        gelu_erf_tile(y, x, n);
        break;
    case ZT_U_SILU:
        silu_tile(y, x, n);
        break;
    case ZT_U_RELU:
        relu_tile(y, x, n);
        break;
    case ZT_U_TANH:
        hyperbolic_tangent_tile(y, x, n);
        break;
    }
}

void zt_tile_activate_slope(zt_unary kind, float *y, float *slope, const float *x,
                            int64_t n)
{
    switch (kind) {
    case ZT_U_GELU_TANH:
        gelu_tanh_slope_tile(y, slope, x, n);
        break;
    case ZT_U_GELU_ERF:
        gelu_erf_slope_tile(y, slope, x, n);
        break;
    case ZT_U_SILU:
        silu_slope_tile(y, slope, x, n);
        break;
    case ZT_U_RELU:
        relu_slope_tile(y, slope, x, n);
        break;
    case ZT_U_TANH:
        hyperbolic_tangent_slope_tile(y, slope, x, n);
        break;
    }
}
