/*
 * fp8.h -- numbers in a byte, as "FP8 formats for deep learning" (Micikevicius et al.
 * 2022) and the tensor cores have them:
 *
 *      ZT_F8E4M3  | s | e e e e | m m m |   largest 448; no infinities, NaN is S.1111.111
 *      ZT_F8E5M2  | s | e e e e e | m m |   largest 57344; infinities and NaNs as IEEE
 *
 * Conversion to fp8 rounds to nearest even and saturates at the largest value. Infinities
 * and NaNs become the NaN 0x7f, so that they still show in a sum.
 * Pure functions; those marked ZT_INLINE serve device code, too.
 */
#ifndef KERNELS_FP8_H
#define KERNELS_FP8_H

#include "kernels/normal.h"

#define ZT_F8_NAN 0x7fu

static inline int zt_f8_fraction_bits(zt_dtype type)
{
    return type == ZT_F8E4M3 ? 3 : 2;
}

static inline int zt_f8_bias(zt_dtype type)
{
    return type == ZT_F8E4M3 ? 7 : 15;
}

ZT_INLINE float zt_f8_largest(zt_dtype type)
{
    return type == ZT_F8E4M3 ? 448.0f : 57344.0f;
}

static inline float zt_float_of_f8(uint8_t code, zt_dtype type)
{
    uint32_t sign = (uint32_t)(code & 0x80u) << 24, rest = code & 0x7fu;
    int fraction = zt_f8_fraction_bits(type), bias = zt_f8_bias(type);
    float x;

    if (type == ZT_F8E4M3 ? rest == 0x7fu : rest > 0x7cu)
        return zt_from_bits(sign | 0x7fc00000u);
    if (type == ZT_F8E5M2 && rest == 0x7cu)
        return zt_from_bits(sign | 0x7f800000u);
    if (rest >> fraction) /* normal: the exponent with another bias */
        return zt_from_bits(sign |
                            ((rest << (23 - fraction)) + ((uint32_t)(127 - bias) << 23)));
    x = (float)rest * zt_from_bits((uint32_t)(128 - bias - fraction) << 23);
    return zt_from_bits(sign | zt_bits_of(x));
}

static inline uint8_t zt_f8_of_float(float value, zt_dtype type)
{
    uint32_t u = zt_bits_of(value), sign = u >> 24 & 0x80u, x = u & 0x7fffffffu;
    int fraction = zt_f8_fraction_bits(type), bias = zt_f8_bias(type);
    int cut = 23 - fraction;
    uint32_t largest = zt_bits_of(zt_f8_largest(type));
    uint32_t smallest = (uint32_t)(128 - bias) << 23; /* smallest normal value */
    float step;

    if (x >= 0x7f800000u)
        return ZT_F8_NAN;
    x = x < largest ? x : largest;
    if (x < smallest) { /* adding 1.5 * 2^23 steps rounds to whole ones */
        step = zt_from_bits((uint32_t)(128 - bias - fraction) << 23) * ZT_ROUNDER;
        return (uint8_t)(sign | (zt_bits_of(zt_from_bits(x) + step) & 0xfu));
    }
    x += (1u << (cut - 1)) - 1 + (x >> cut & 1u);
    return (uint8_t)(sign | ((x >> cut) - ((uint32_t)(127 - bias) << fraction)));
}

/*
 * The factor that maps amax to the largest value of the type. 1 when amax is 0; bounded,
 * so that its inverse is a normal number.
 */
ZT_INLINE float zt_f8_factor(float amax, zt_dtype type)
{
    float factor = amax > 0 ? zt_f8_largest(type) / amax : 1.0f;

    return factor < 0x1p126f ? factor : 0x1p126f;
}

#endif
