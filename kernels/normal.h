/*
 * normal.h -- log and sin/cos of 2 pi u, for normally distributed numbers (Box and Muller).
 *
 * Every step is an IEEE operation or an explicit fmaf(), and no product feeds a sum that
 * a compiler could fuse: the bits are the same on every processor and device. Errors and
 * the origin of the coefficients: kernels/cpu/vmath.h.
 *
 * Pure functions, inline; the same source serves device code.
 */
#ifndef KERNELS_NORMAL_H
#define KERNELS_NORMAL_H

#include <math.h>
#include <string.h>

#include "kernels/philox.h"

#define ZT_LN2_HI 0.693147182f
#define ZT_LN2_LO (-1.904654323e-9f)
#define ZT_ROUNDER                                                                       \
    12582912.0f /* 1.5 * 2^23: adding it leaves an integer in the low bits */

/* The bits of a float and back, for devices too; common/half.h has them for the host. */
ZT_INLINE uint32_t zt_bits_of(float x)
{
    uint32_t u;

    memcpy(&u, &x, sizeof(u));
    return u;
}

ZT_INLINE float zt_from_bits(uint32_t u)
{
    float x;

    memcpy(&x, &u, sizeof(x));
    return x;
}

/* Natural logarithm of a positive normal number. */
ZT_INLINE float zt_log(float x)
{
    uint32_t u = zt_bits_of(x);
    int32_t k = (int32_t)(u - 0x3f3504f3u) >> 23; /* mantissa in [sqrt(1/2), sqrt(2)) */
    float f = zt_from_bits(u - ((uint32_t)k << 23)) - 1.0f;
    float e = (float)k, z = f * f, q = 6.917023115e-02f;

    q = fmaf(q, f, -1.179192321e-01f);
    q = fmaf(q, f, 1.187337991e-01f);
    q = fmaf(q, f, -1.238404126e-01f);
    q = fmaf(q, f, 1.421856864e-01f);
    q = fmaf(q, f, -1.666926427e-01f);
    q = fmaf(q, f, 2.000223113e-01f);
    q = fmaf(q, f, -2.499998643e-01f);
    q = fmaf(q, f, 3.333331038e-01f);
    q = fmaf(e, ZT_LN2_LO, q * f * z);
    q = fmaf(-0.5f, z, q);
    return fmaf(e, ZT_LN2_HI, f + q);
}

/* sin and cos of 2 pi u for u in [0, 1). */
ZT_INLINE void zt_sincos_turn(float u, float *sine, float *cosine)
{
    float t = fmaf(u, 4.0f, ZT_ROUNDER);
    int32_t quarter = (int32_t)zt_bits_of(t); /* in its low bits */
    float r = fmaf(u, 2.0f, -0.5f * (t - ZT_ROUNDER)), z = r * r;
    float s = -5.890786555e-01f, c = 2.313297167e-01f, a, b;

    s = fmaf(s, z, 2.549767298f);
    s = fmaf(s, z, -5.167707829f);
    s = fmaf(s, z, 3.141592644f) * r;
    c = fmaf(c, z, -1.335044564f);
    c = fmaf(c, z, 4.058707263f);
    c = fmaf(c, z, -4.934802163f);
    c = fmaf(c, z, 1.0f);
    a = quarter & 1 ? c : s;
    b = quarter & 1 ? s : c;
    *sine = quarter & 2 ? -a : a;
    *cosine = (quarter + 1) & 2 ? -b : b;
}

#endif
