/*
 * stochastic.h -- fp32 to bf16, up or down by chance: the nearer neighbour is the
 * likelier one, so that the mean over many roundings is the value itself. What is far
 * smaller than a step of bf16 is not lost, as it is to nearest, but arrives now and then.
 *
 * Pure functions, inline; the same source serves device code.
 */
#ifndef KERNELS_STOCHASTIC_H
#define KERNELS_STOCHASTIC_H

#include "kernels/normal.h"

/*
 * x as bf16: away from zero with the probability (cut off bits) / 2^16, by the upper 16
 * bits of a random word. What bf16 has stays, infinities too; a NaN becomes quiet.
 */
ZT_INLINE uint16_t zt_bf16_by_chance(float x, uint32_t word)
{
    uint32_t u = zt_bits_of(x), rest = u & 0x7fffffffu;
    uint32_t chance = rest < 0x7f800000u ? word >> 16 : 0;
    uint32_t quiet = rest > 0x7f800000u ? 0x400000u : 0;

    return (uint16_t)(((u | quiet) + chance) >> 16);
}

#endif
