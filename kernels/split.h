/*
 * split.h -- an fp32 number as two of 16 bits: the bf16 next to it, and what that leaves.
 *
 *      fp32     | s e e e e e e e | e f f f f f f f | 16 more bits, the rest |
 *      bf16     the upper half, and 1 more where the rest is 0x8000 or above
 *
 * The bf16 is the nearest one, and of two that are as near the one away from zero: so the
 * rest alone says which way it went, and with both the fp32 is known to the last bit. With
 * ties to even it would not be: an even bf16 is the nearest of 65537 numbers, one more than
 * a rest tells apart. Signs, subnormal numbers and infinities are split like others; a NaN
 * stays one, is made quiet and loses the lower half of its payload.
 *
 * Pure functions, inline; the same source serves device code.
 */
#ifndef KERNELS_SPLIT_H
#define KERNELS_SPLIT_H

#include "kernels/normal.h"

struct zt_halves {
    uint16_t bf16, rest;
};

ZT_INLINE struct zt_halves zt_split(float x)
{
    uint32_t u = zt_bits_of(x);
    bool nan = (u & 0x7fffffffu) > 0x7f800000u;
    uint32_t whole = nan ? (u | 0x400000u) & 0xffff0000u : u;
    struct zt_halves s;

    s.bf16 = (uint16_t)((whole + 0x8000u) >> 16);
    s.rest = (uint16_t)whole;
    return s;
}

ZT_INLINE float zt_join(uint16_t bf16, uint16_t rest)
{
    uint32_t u = (uint32_t)bf16 << 16 | rest;

    return zt_from_bits(u - ((uint32_t)(rest & 0x8000u) << 1));
}

#endif
