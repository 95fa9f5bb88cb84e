/*
 * cuda_fp8.h -- the conversion to fp8 that kernels/cuda uses: to nearest with ties to
 * even, found by search among the values of all codes.
 */
#ifndef SHIM_CUDA_FP8_H
#define SHIM_CUDA_FP8_H

#include <math.h>

#include "cuda_runtime.h"

typedef unsigned char __nv_fp8_storage_t;
typedef unsigned short __nv_fp8x2_storage_t;
typedef enum { __NV_NOSAT, __NV_SATFINITE } __nv_saturation_t;
typedef enum { __NV_E4M3, __NV_E5M2 } __nv_fp8_interpretation_t;

/* Of a code without sign; e5m2's infinity and the NaNs are not asked for. */
static inline double shim_fp8_value(int code, __nv_fp8_interpretation_t kind)
{
    int fraction = kind == __NV_E4M3 ? 3 : 2, bias = kind == __NV_E4M3 ? 7 : 15;
    int exponent = code >> fraction, rest = code & ((1 << fraction) - 1);

    return exponent ? ldexp((1 << fraction) + rest, exponent - bias - fraction)
                    : ldexp(rest, 1 - bias - fraction);
}

/* Of all that CUDA offers, saturation alone. */
static inline __nv_fp8_storage_t __nv_cvt_float_to_fp8(float x, __nv_saturation_t,
                                                       __nv_fp8_interpretation_t kind)
{
    int largest = kind == __NV_E4M3 ? 0x7e : 0x7b, low = 0;
    double size = fabs((double)x), down, up;

    if (isnan(x))
        return 0x7f;
    while (low < largest && shim_fp8_value(low + 1, kind) <= size)
        low++;
    if (low < largest) {
        down = size - shim_fp8_value(low, kind);
        up = shim_fp8_value(low + 1, kind) - size;
        low += up < down || (up == down && low % 2);
    }
    return (__nv_fp8_storage_t)(low | (signbit(x) ? 0x80 : 0));
}

static inline __nv_fp8x2_storage_t __nv_cvt_float2_to_fp8x2(
    float2 x, __nv_saturation_t saturate, __nv_fp8_interpretation_t kind)
{
    return (__nv_fp8x2_storage_t)(__nv_cvt_float_to_fp8(x.x, saturate, kind) |
                                  __nv_cvt_float_to_fp8(x.y, saturate, kind) << 8);
}

#endif
