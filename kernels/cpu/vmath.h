/*
 * vmath.h -- exp, tanh, the normal distribution, log and sin/cos in fp32, without
 * branches, so that loops over them become vectors.
 *
 * Every step is an IEEE operation or an explicit fmaf(), so results are the same on every
 * processor and compiler. Largest errors seen over all or many floats (a test checks them
 * against double), in units of the last place:
 *
 *      exp      1.1      (also for subnormal results; 0 and inf at the ends)
 *      sigmoid  2.5      tanh 2
 *      normal distribution function: 8, growing as x*x/4 in the far negative tail
 *      log      1        of positive normal numbers
 *      sin/cos of 2 pi u: 1e-7 absolute
 *
 * A NaN gives a NaN. Coefficients: least squares with Lawson's weights (minimax).
 */
#ifndef KERNELS_CPU_VMATH_H
#define KERNELS_CPU_VMATH_H

#include <math.h>

#include "kernels/convert.h"
#include "kernels/cpu/simd.h"
#include "kernels/normal.h"

#define ZT_LOG2_E 1.44269504f

/* e^r for |r| <= ln 2 / 2, and n with x = n ln 2 + r. */
ZT_LANE_FN float zt_exp_reduced(float x, int32_t *n)
{
    float t = fmaf(x, ZT_LOG2_E, ZT_ROUNDER);
    float k = t - ZT_ROUNDER;
    float r = fmaf(k, -ZT_LN2_LO, fmaf(k, -ZT_LN2_HI, x));
    float q = 1.395048820e-03f;

    q = fmaf(q, r, 8.368887667e-03f);
    q = fmaf(q, r, 4.166620585e-02f);
    q = fmaf(q, r, 1.666651885e-01f);
    q = fmaf(q, r, 5.000000095e-01f);
    *n = (int32_t)(zt_float_bits(t) - zt_float_bits(ZT_ROUNDER));
    return fmaf(r * r, q, r) + 1.0f;
}

/* 2^n for -126 <= n <= 127 */
ZT_LANE_FN float zt_exp2_int(int32_t n)
{
    return zt_float_of_bits((uint32_t)(n + 127) << 23);
}

/*
 * x within [least, most], a negative and a positive number, of any x but a NaN. It compares bits:
 * whole numbers have a minimum, while of floats compilers make masks, for the sake of a NaN. Of
 * two negative floats the lesser one has the greater bits.
 */
ZT_LANE_FN float zt_bounded(float x, float least, float most)
{
    int32_t bits = (int32_t)zt_float_bits(x), above = (int32_t)zt_float_bits(most);
    uint32_t u = (uint32_t)(bits < above ? bits : above), below = zt_float_bits(least);

    return zt_float_of_bits(u < below ? u : below);
}

ZT_LANE_FN float zt_exp(float x)
{
    int32_t n, half;
    float p = zt_exp_reduced(zt_bounded(x, -104.0f, 89.0f), &n);

    half = n >> 1; /* in two steps: the last rounds once, to a subnormal or to inf */
    p = p * zt_exp2_int(half) * zt_exp2_int(n - half);
    return x == x ? p : x;
}

/* For x <= 0, as in a softmax: results below the normal range are 0. */
ZT_LANE_FN float zt_exp_nonpositive(float x)
{
    float c = x < -87.0f ? -87.0f : x;
    int32_t n;
    float e = zt_exp_reduced(c, &n) * zt_exp2_int(n);

    return x < -87.0f ? 0.0f : e;
}

/*
 * 1 + zt_exp(-x) for any x but a NaN, which gives some number. Powers below the normal range
 * do not reach the 1, and those within it are exact until it is added.
 */
ZT_LANE_FN float zt_one_plus_exp_minus(float x)
{
    int32_t n;
    float p = zt_exp_reduced(-zt_bounded(x, -89.0f, 80.0f), &n);

    return fmaf(p + p, zt_exp2_int(n - 1), 1.0f); /* 2^128 is no float */
}

ZT_LANE_FN float zt_sigmoid(float x)
{
    float s = 1.0f / zt_one_plus_exp_minus(x);

    return x == x ? s : x;
}

ZT_LANE_FN float zt_tanh(float x)
{
    float a = fabsf(x), z = x * x;
    float far = 1.0f - 2.0f / zt_one_plus_exp_minus(-2.0f * a);
    float q = -5.717044954e-03f;

    q = fmaf(q, z, 2.065058722e-02f);
    q = fmaf(q, z, -5.374349806e-02f);
    q = fmaf(q, z, 1.333149129e-01f);
    q = fmaf(q, z, -3.333328393e-01f);
    return copysignf(a >= 0.625f ? far : fmaf(q * z, a, a), x);
}

/* P(X <= x) of the standard normal, and its density. */
ZT_LANE_FN float zt_normal_cdf(float x, float *density)
{
    float a = fabsf(x);
    float s = 1.0f / fmaf(0.212132034f, a, 1.0f); /* 0.3 / sqrt(2) */
    float e = zt_exp(-0.5f * (x * x));
    float w = s - 0.5f, q = -1.295227505e-01f;

    /* erfc(t) exp(t^2) = s q(s - 1/2) with s = 1 / (1 + 0.3 t), t = |x| / sqrt(2) */
    q = fmaf(q, w, -3.252853503e-02f);
    q = fmaf(q, w, 2.805328127e-01f);
    q = fmaf(q, w, 6.534323018e-01f);
    q = fmaf(q, w, 9.112828477e-01f);
    q = fmaf(q, w, 9.497338948e-01f);
    q = fmaf(q, w, 7.951260828e-01f);
    q = fmaf(q, w, 5.530472400e-01f);
    q = fmaf(q, w, 3.249799177e-01f);
    q = 0.5f * q * s * e;
    *density = 0.398942280f * e;
    return x < 0.0f ? q : 1.0f - q;
}

#endif
