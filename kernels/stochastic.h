/*
 * stochastic.h -- stochastic rounding of fp32 to bf16: up or down at random, the nearer
 * neighbour more often, so that the mean over many roundings is the value itself. Rounding
 * to nearest would lose updates far smaller than a step of bf16; here some of them arrive.
 *
 * Pure functions, inline; the same source serves device code.
 */
#ifndef KERNELS_STOCHASTIC_H
#define KERNELS_STOCHASTIC_H

#include "kernels/normal.h"

/*
 * x as bf16. It rounds away from zero with the probability (cut off bits) / 2^16, decided
 * by the upper 16 bits of a random word. Values that bf16 represents are unchanged,
 * infinities too; a NaN becomes quiet.
 */
ZT_INLINE uint16_t zt_bf16_round_stochastic(float x, uint32_t word)
{
    uint32_t u = zt_bits_of(x), rest = u & 0x7fffffffu;
    uint32_t random_bits = rest < 0x7f800000u ? word >> 16 : 0;
    uint32_t quiet = rest > 0x7f800000u ? 0x400000u : 0;

    return (uint16_t)(((u | quiet) + random_bits) >> 16);
}

#endif
