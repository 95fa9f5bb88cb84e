/*
 * dot16.h -- dot products of few rows with many: the order of their sums.
 *
 * Product i is added to lane i % 16, fused, in order of i; then the lanes are added as a
 * tree. It depends on the number of products alone.
 */
#ifndef KERNELS_CPU_DOT16_H
#define KERNELS_CPU_DOT16_H

#include <math.h>

#include "kernels/cpu/simd.h"

/* Lanes 0..15 as a tree: i + (i + 8), then i + (i + 4), ... */
ZT_LANE_FN float zt_lanes16_sum(const float acc[16])
{
    float l[16];

    memcpy(l, acc, sizeof(l));
    for (int w = 8; w > 0; w /= 2)
        for (int i = 0; i < w; i++)
            l[i] += l[i + w];
    return l[0];
}

/* acc[l] += x[l] y[l] */
ZT_LANE_FN void zt_lanes16_add(float *restrict acc, const float *x, const float *y)
{
    for (int l = 0; l < 16; l++)
        acc[l] = fmaf(x[l], y[l], acc[l]);
}

/* x . y; for functions of ZT_SIMD */
ZT_LANE_FN float zt_dot16(const float *x, const float *y, int64_t n)
{
    float acc[16] = {0};
    int64_t i = 0;

    for (; i + 16 <= n; i += 16)
        zt_lanes16_add(acc, x + i, y + i);
    for (int l = 0; i + l < n; l++)
        acc[l] = fmaf(x[i + l], y[i + l], acc[l]);
    return zt_lanes16_sum(acc);
}

#endif
