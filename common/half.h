/*
 * half.h -- bf16 and fp16 to fp32 and back: to nearest, ties to even.
 *
 * Infinities and subnormals are kept; a NaN stays a NaN, becomes quiet and keeps its sign
 * and upper payload. Every vector form elsewhere gives the same bits. Pure functions.
 */
#ifndef COMMON_HALF_H
#define COMMON_HALF_H

#include <stdint.h>

static inline uint32_t zt_float_bits(float f)
{
    union {
        float f;
        uint32_t u;
    } v = {.f = f};

    return v.u;
}

static inline float zt_float_of_bits(uint32_t u)
{
    union {
        uint32_t u;
        float f;
    } v = {.u = u};

    return v.f;
}

static inline float zt_float_of_bf16(uint16_t h)
{
    return zt_float_of_bits((uint32_t)h << 16);
}

static inline uint16_t zt_bf16_of_float(float f)
{
    uint32_t u = zt_float_bits(f);
    uint32_t quiet = u >> 16 | 0x40u;
    uint32_t nearest = (u + 0x7fffu + (u >> 16 & 1u)) >> 16;

    return (uint16_t)((u & 0x7fffffffu) > 0x7f800000u ? quiet : nearest);
}

static inline float zt_float_of_f16(uint16_t h)
{
    uint32_t sign = (h & 0x8000u) << 16, rest = h & 0x7fffu;
    uint32_t small = zt_float_bits((float)(int32_t)rest * 0x1p-24f); /* subnormal */
    uint32_t normal = (rest << 13) + (112u << 23);
    uint32_t special = 0x7f800000u | rest << 13 | (rest > 0x7c00u ? 0x400000u : 0);

    return zt_float_of_bits(sign | (rest < 0x400u    ? small
                                    : rest < 0x7c00u ? normal
                                                     : special));
}

static inline uint16_t zt_f16_of_float(float f)
{
    uint32_t u = zt_float_bits(f), sign = u >> 16 & 0x8000u, x = u & 0x7fffffffu;
    /* adding 0.5 rounds to steps of 2^-24, the smallest that fp16 has */
    uint32_t tiny = x < 0x38800000u ? x : 0;
    uint32_t small = zt_float_bits(zt_float_of_bits(tiny) + 0.5f) - 0x3f000000u;
    uint32_t normal = (x - (112u << 23) + 0xfffu + (x >> 13 & 1u)) >> 13;
    uint32_t nan = 0x7e00u | (x >> 13 & 0x3ffu);

    return (uint16_t)(sign | (x > 0x7f800000u    ? nan
                              : x >= 0x477ff000u ? 0x7c00u /* 65520 and more */
                              : x >= 0x38800000u ? normal
                                                 : small));
}

#endif
