/*
 * half.h -- one 16-bit float to fp32 and back, rounding to nearest, ties to even.
 *
 * The meaning that every vector form in fold.c must reproduce bit for bit. A NaN stays a
 * NaN and becomes quiet; infinities and subnormals are kept. Pure functions.
 */
#ifndef WORKER_COMM_HALF_H
#define WORKER_COMM_HALF_H

#include <stdint.h>

static inline uint32_t zt_f32_bits(float f)
{
    union {
        float f;
        uint32_t u;
    } v = {.f = f};

    return v.u;
}

static inline float zt_bits_f32(uint32_t u)
{
    union {
        uint32_t u;
        float f;
    } v = {.u = u};

    return v.f;
}

static inline float zt_bf16_to_f32(uint16_t h)
{
    return zt_bits_f32((uint32_t)h << 16);
}

static inline uint16_t zt_f32_to_bf16(float f)
{
    uint32_t u = zt_f32_bits(f);
    uint32_t nan = (u >> 16) | 0x40u;
    uint32_t near = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;

    return (uint16_t)((u & 0x7fffffffu) > 0x7f800000u ? nan : near);
}

static inline float zt_f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, rest = h & 0x7fffu;

    if (rest > 0x7c00u)
        return zt_bits_f32(sign | 0x7fc00000u | (rest & 0x3ffu) << 13);
    if (rest == 0x7c00u)
        return zt_bits_f32(sign | 0x7f800000u);
    if (rest >= 0x400u)
        return zt_bits_f32(sign | ((rest << 13) + (112u << 23)));
    return zt_bits_f32(sign | zt_f32_bits((float)rest * 0x1p-24f));
}

static inline uint16_t zt_f32_to_f16(float f)
{
    uint32_t u = zt_f32_bits(f), sign = u >> 16 & 0x8000u, x = u & 0x7fffffffu;

    if (x > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u | (x >> 13 & 0x3ffu));
    if (x >= 0x477ff000u) /* 65520 and more */
        return (uint16_t)(sign | 0x7c00u);
    if (x < 0x38800000u) /* below 2^-14: 0.5 has an ulp of 2^-24, the smallest step */
        return (uint16_t)(sign | (zt_f32_bits(zt_bits_f32(x) + 0.5f) - 0x3f000000u));
    return (uint16_t)(sign | (x - (112u << 23) + 0xfffu + (x >> 13 & 1u)) >> 13);
}

#endif
