/*
 * cuda_fp16.h -- the type of fp16 and its conversions, to nearest with ties to even; the
 * bits are those of common/half.h, NaN included. No arithmetic: kernels compute in fp32.
 */
#ifndef SHIM_CUDA_FP16_H
#define SHIM_CUDA_FP16_H

#include "cuda_runtime.h"

struct alignas(2) __half {
    unsigned short shim_bits;
};
struct alignas(4) __half2 {
    __half x, y;
};
typedef __half half;
typedef __half2 half2;

static inline unsigned short __half_as_ushort(__half h)
{
    return h.shim_bits;
}

static inline __half __ushort_as_half(unsigned short bits)
{
    return {bits};
}

static inline float __half2float(__half h)
{
    unsigned sign = (h.shim_bits & 0x8000u) << 16, exponent = h.shim_bits >> 10 & 31u;
    unsigned fraction = h.shim_bits & 0x3ffu;

    if (exponent == 0) { /* zero and subnormal: exact in fp32 */
        float x = (float)fraction * 0x1p-24f;
        return __uint_as_float(sign | __float_as_uint(x));
    }
    if (exponent == 31) /* a NaN becomes quiet */
        return __uint_as_float(sign | 0x7f800000u | fraction << 13 |
                               (fraction ? 0x400000u : 0));
    return __uint_as_float(sign | (exponent + 112u) << 23 | fraction << 13);
}

/* shifts x right, rounding the bits that leave to nearest, ties to even */
static inline unsigned shim_round_shift(unsigned x, unsigned by)
{
    unsigned kept = x >> by, lost = x & ((1u << by) - 1u), tie = 1u << (by - 1u);

    return kept + (lost > tie || (lost == tie && (kept & 1u)));
}

static inline __half __float2half_rn(float x)
{
    unsigned u = __float_as_uint(x), sign = u >> 16 & 0x8000u, rest = u & 0x7fffffffu,
             bits;
    unsigned exponent = rest >> 23;

    if (rest > 0x7f800000u)
        bits = 0x7e00u | (rest >> 13 & 0x3ffu);
    else if (rest >= 0x477ff000u) /* 65520 and more */
        bits = 0x7c00u;
    else if (exponent >= 113)
        bits = shim_round_shift(rest - (112u << 23), 13);
    else if (exponent >= 102) /* steps of 2^-24 */
        bits = shim_round_shift((rest & 0x7fffffu) | 0x800000u, 126u - exponent);
    else
        bits = 0;
    return {(unsigned short)(sign | bits)};
}

static inline __half __float2half(float x)
{
    return __float2half_rn(x);
}

static inline __half2 __floats2half2_rn(float x, float y)
{
    return {__float2half_rn(x), __float2half_rn(y)};
}

static inline float2 __half22float2(__half2 h)
{
    return {__half2float(h.x), __half2float(h.y)};
}

#endif
