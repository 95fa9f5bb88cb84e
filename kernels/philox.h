/*
 * philox.h -- Philox4x32-10 (Salmon, Moraes, Dror, Shaw 2011): random numbers by counter.
 *
 * Element i of a stream is a pure function of (seed, stream, offset + i). It does not
 * depend on the thread, the order or the device that computes it.
 *
 *      counter (128 bits) = | stream (64) | (offset + i) / 4 (64) |     key = seed
 *      element i          = word (offset + i) % 4 of the four that come out
 *
 * Pure functions, inline; the same source serves device code.
 */
#ifndef KERNELS_PHILOX_H
#define KERNELS_PHILOX_H

#include "kernels/backend.h"

#ifdef __CUDACC__
#define ZT_INLINE static __host__ __device__ __forceinline__
#else
#define ZT_INLINE static inline __attribute__((always_inline, unused))
#endif

#define ZT_PHILOX_ROUNDS 10
#define ZT_PHILOX_M0     0xD2511F53u /* multipliers and the golden-ratio key steps */
#define ZT_PHILOX_M1     0xCD9E8D57u
#define ZT_PHILOX_W0     0x9E3779B9u
#define ZT_PHILOX_W1     0xBB67AE85u

/* The four words of one counter. */
ZT_INLINE void zt_philox4x32(const uint32_t ctr[4], uint32_t k0, uint32_t k1,
                             uint32_t out[4])
{
    uint32_t c0 = ctr[0], c1 = ctr[1], c2 = ctr[2], c3 = ctr[3];

    for (int r = 0; r < ZT_PHILOX_ROUNDS; r++) {
        uint64_t p0 = (uint64_t)ZT_PHILOX_M0 * c0, p1 = (uint64_t)ZT_PHILOX_M1 * c2;

        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += ZT_PHILOX_W0;
        k1 += ZT_PHILOX_W1;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

/* Words of counter `block`: elements 4 * block ... 4 * block + 3 when offset is 0. */
ZT_INLINE void zt_philox_block(struct zt_philox rng, uint64_t block, uint32_t out[4])
{
    const uint32_t ctr[4] = {(uint32_t)block, (uint32_t)(block >> 32),
                             (uint32_t)rng.stream, (uint32_t)(rng.stream >> 32)};

    zt_philox4x32(ctr, (uint32_t)rng.seed, (uint32_t)(rng.seed >> 32), out);
}

/* Element i. */
ZT_INLINE uint32_t zt_philox_u32(struct zt_philox rng, uint64_t i)
{
    uint32_t out[4];

    zt_philox_block(rng, (rng.offset + i) / 4, out);
    return out[(rng.offset + i) % 4];
}

/* 24 bits of a word as a number in [0, 1). */
ZT_INLINE float zt_philox_unit(uint32_t word)
{
    return (float)(int32_t)(word >> 8) * 0x1p-24f;
}

/* Element i as a number in [0, 1). */
ZT_INLINE float zt_philox_uniform(struct zt_philox rng, uint64_t i)
{
    return zt_philox_unit(zt_philox_u32(rng, i));
}

/* Dropout of probability p keeps the elements whose word is not below this. */
ZT_INLINE uint32_t zt_philox_drop_below(float p)
{
    return p >= 1 ? 0xFFFFFFFFu : (uint32_t)((double)p * 4294967296.0);
}

/*
 * ZT_PHILOX_BATCH counters at once, in a form compilers turn into vectors: `out` gets the
 * words of counters first ... first + 15 in element order.
 */
#define ZT_PHILOX_BATCH 16
ZT_INLINE void zt_philox_batch(struct zt_philox rng, uint64_t first,
                               uint32_t out[4 * ZT_PHILOX_BATCH])
{
    uint32_t c0[ZT_PHILOX_BATCH], c1[ZT_PHILOX_BATCH], c2[ZT_PHILOX_BATCH],
        c3[ZT_PHILOX_BATCH];
    uint32_t k0 = (uint32_t)rng.seed, k1 = (uint32_t)(rng.seed >> 32);

    for (int j = 0; j < ZT_PHILOX_BATCH; j++) {
        c0[j] = (uint32_t)(first + (uint64_t)j);
        c1[j] = (uint32_t)((first + (uint64_t)j) >> 32);
        c2[j] = (uint32_t)rng.stream;
        c3[j] = (uint32_t)(rng.stream >> 32);
    }
    for (int r = 0; r < ZT_PHILOX_ROUNDS; r++) {
        for (int j = 0; j < ZT_PHILOX_BATCH; j++) {
            uint64_t p0 = (uint64_t)ZT_PHILOX_M0 * c0[j];
            uint64_t p1 = (uint64_t)ZT_PHILOX_M1 * c2[j];

            c0[j] = (uint32_t)(p1 >> 32) ^ c1[j] ^ k0;
            c1[j] = (uint32_t)p1;
            c2[j] = (uint32_t)(p0 >> 32) ^ c3[j] ^ k1;
            c3[j] = (uint32_t)p0;
        }
        k0 += ZT_PHILOX_W0;
        k1 += ZT_PHILOX_W1;
    }
    for (int j = 0; j < ZT_PHILOX_BATCH; j++) {
        out[4 * j] = c0[j];
        out[4 * j + 1] = c1[j];
        out[4 * j + 2] = c2[j];
        out[4 * j + 3] = c3[j];
    }
}

#endif
