/*
 * cuda_bf16.h -- the type of bf16 and its conversions, to nearest with ties to even; the
 * bits are those of common/half.h, NaN included. No arithmetic: kernels compute in fp32.
 */
#ifndef SHIM_CUDA_BF16_H
#define SHIM_CUDA_BF16_H

#include "cuda_runtime.h"

struct alignas(2) __nv_bfloat16 {
    unsigned short shim_bits;
};
struct alignas(4) __nv_bfloat162 {
    __nv_bfloat16 x, y;
};
typedef __nv_bfloat16 nv_bfloat16;
typedef __nv_bfloat162 nv_bfloat162;

static inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 h)
{
    return h.shim_bits;
}

static inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits)
{
    return {bits};
}

static inline float __bfloat162float(__nv_bfloat16 h)
{
    return __uint_as_float((unsigned)h.shim_bits << 16);
}

static inline __nv_bfloat16 __float2bfloat16_rn(float x)
{
    unsigned u = __float_as_uint(x);

    if ((u & 0x7fffffffu) > 0x7f800000u)
        return {(unsigned short)(u >> 16 | 0x40u)};
    return {(unsigned short)((u + 0x7fffu + (u >> 16 & 1u)) >> 16)};
}

static inline __nv_bfloat16 __float2bfloat16(float x)
{
    return __float2bfloat16_rn(x);
}

static inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y)
{
    return {__float2bfloat16_rn(x), __float2bfloat16_rn(y)};
}

static inline float2 __bfloat1622float2(__nv_bfloat162 h)
{
    return {__bfloat162float(h.x), __bfloat162float(h.y)};
}

#endif
