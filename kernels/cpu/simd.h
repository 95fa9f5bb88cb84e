/*
 * simd.h -- vectorized loops, and sums whose order does not depend on the vector width.
 *
 * ZT_SIMD before a function compiles it for the levels x86-64-v4 (AVX-512), v3 (AVX2,
 * fma) and the baseline; the loader picks one. All three give the same bits: fused
 * multiply-adds are written as fmaf(), and sums run over ZT_LANES fixed lanes.
 *
 * A sum of n values: value i is added to lane i % 64, in order of i; then the lanes are
 * added as a tree. It depends on n alone.
 */
#ifndef KERNELS_CPU_SIMD_H
#define KERNELS_CPU_SIMD_H

#include <stdint.h>
#include <string.h>

/*
 * The resolvers of clones run before a sanitizer is ready; clang (which checks this code,
 * and can build it) does not inline wide vectors into clones.
 */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) &&                   \
    defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__) &&                           \
    !defined(__SANITIZE_THREAD__)
#define ZT_SIMD                                                                          \
    __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define ZT_SIMD
#endif

#define ZT_LANE_FN static inline __attribute__((always_inline, unused))

/* Vectors wider than the target are legal and become several; no ABI sees them. */
#pragma GCC diagnostic ignored "-Wpsabi"
typedef float zt_v16 __attribute__((vector_size(64)));

#define ZT_LANES 64 /* 4 vectors of 16, to hide the latency of the additions */

ZT_LANE_FN zt_v16 zt_v16_load(const float *p)
{
    zt_v16 v;

    memcpy(&v, p, sizeof(v));
    return v;
}

/* Lanes 0..63 as a tree: i + (i + 32), then i + (i + 16), ... */
ZT_LANE_FN float zt_lanes_sum(const zt_v16 acc[4])
{
    zt_v16 t = (acc[0] + acc[2]) + (acc[1] + acc[3]);
    float l[16];

    memcpy(l, &t, sizeof(l));
    for (int w = 8; w > 0; w /= 2)
        for (int i = 0; i < w; i++)
            l[i] += l[i + w];
    return l[0];
}

/*
 * The body of a function that returns the sum of n values. value(i, k) is a zt_v16 of the
 * values from i on, of which the first k count and the others are 0.
 */
#define ZT_SUM_BODY(n, value)                                                            \
    zt_v16 acc[4] = {0};                                                                 \
    int64_t i = 0;                                                                       \
    for (; i + ZT_LANES <= (n); i += ZT_LANES)                                           \
        for (int l = 0; l < 4; l++)                                                      \
            acc[l] += value(i + 16 * l, 16);                                             \
    for (int l = 0; i < (n); i += 16, l++)                                               \
        acc[l] += value(i, (n)-i < 16 ? (n)-i : 16);                                     \
    return zt_lanes_sum(acc)

/* 16 values from p, of which the first n exist; the others are 0. */
ZT_LANE_FN zt_v16 zt_v16_some(const float *p, int64_t n)
{
    zt_v16 v = {0};

    if (n >= 16)
        return zt_v16_load(p);
    memcpy(&v, p, (size_t)n * sizeof(float));
    return v;
}

#endif
