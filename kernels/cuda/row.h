/*
 * row.h -- loads and stores elements of a runtime dtype as floats: one element, or a pack
 * of ZT_PACK consecutive ones.
 *
 * All threads branch on the same dtype, so the test is free beside the memory access.
 * "wide" means that packs are accessed 16 bytes at a time. A pack holds the same elements
 * either way, so the alignment of memory never changes the order of a sum.
 */
#ifndef KERNELS_CUDA_ROW_H
#define KERNELS_CUDA_ROW_H

#include <math.h>
#include <string.h>

#include "kernels/cuda/cuda.h"

#define ZT_PACK 8

/* True if packs at multiples of ZT_PACK elements after p lie on 16-byte boundaries. */
static inline bool zt_is_aligned(const void *p)
{
    return (uintptr_t)p % 16 == 0;
}

static __device__ __forceinline__ float zt_get(const void *p, zt_dtype t, int64_t at)
{
    if (t == ZT_F32)
        return static_cast<const float *>(p)[at];
    if (t == ZT_BF16)
        return zt_float(static_cast<const __nv_bfloat16 *>(p)[at]);
    return zt_float(static_cast<const __half *>(p)[at]);
}

static __device__ __forceinline__ void zt_put(void *p, zt_dtype t, int64_t at, float x)
{
    if (t == ZT_F32)
        static_cast<float *>(p)[at] = x;
    else if (t == ZT_BF16)
        static_cast<__nv_bfloat16 *>(p)[at] = zt_round<__nv_bfloat16>(x);
    else
        static_cast<__half *>(p)[at] = zt_round<__half>(x);
}

/* x rounded to type t and widened again. */
static __device__ __forceinline__ float zt_rounded(float x, zt_dtype t)
{
    if (t == ZT_BF16)
        return zt_float(zt_round<__nv_bfloat16>(x));
    if (t == ZT_F16)
        return zt_float(zt_round<__half>(x));
    return x;
}

template <typename T>
static __device__ __forceinline__ void zt_get_wide(float x[ZT_PACK], const T *p)
{
    const uint4 *from = reinterpret_cast<const uint4 *>(p);
    uint4 word[ZT_PACK * sizeof(T) / sizeof(uint4)];
    T e[ZT_PACK];

    for (size_t i = 0; i < ZT_PACK * sizeof(T) / sizeof(uint4); i++)
        word[i] = from[i];
    memcpy(e, word, sizeof(e));
    for (int i = 0; i < ZT_PACK; i++)
        x[i] = zt_float(e[i]);
}

template <typename T>
static __device__ __forceinline__ void zt_put_wide(T *p, const float x[ZT_PACK])
{
    uint4 *to = reinterpret_cast<uint4 *>(p);
    uint4 word[ZT_PACK * sizeof(T) / sizeof(uint4)];
    T e[ZT_PACK];

    for (int i = 0; i < ZT_PACK; i++)
        e[i] = zt_round<T>(x[i]);
    memcpy(word, e, sizeof(e));
    for (size_t i = 0; i < ZT_PACK * sizeof(T) / sizeof(uint4); i++)
        to[i] = word[i];
}

/* Loads the pack at element `at` of p; elements from n on are set to `rest`. wide: the
 * pack is aligned and n >= ZT_PACK. */
static __device__ __forceinline__ void zt_get_pack(float x[ZT_PACK], const void *p,
                                                   zt_dtype t, int64_t at, int64_t n,
                                                   bool wide, float rest)
{
    if (!wide) {
        for (int i = 0; i < ZT_PACK; i++)
            x[i] = i < n ? zt_get(p, t, at + i) : rest;
    } else if (t == ZT_F32) {
        zt_get_wide(x, static_cast<const float *>(p) + at);
    } else if (t == ZT_BF16) {
        zt_get_wide(x, static_cast<const __nv_bfloat16 *>(p) + at);
    } else {
        zt_get_wide(x, static_cast<const __half *>(p) + at);
    }
}

static __device__ __forceinline__ void zt_put_pack(void *p, zt_dtype t, int64_t at,
                                                   int64_t n, bool wide,
                                                   const float x[ZT_PACK])
{
    if (!wide) {
        for (int i = 0; i < ZT_PACK; i++)
            if (i < n)
                zt_put(p, t, at + i, x[i]);
    } else if (t == ZT_F32) {
        zt_put_wide(static_cast<float *>(p) + at, x);
    } else if (t == ZT_BF16) {
        zt_put_wide(static_cast<__nv_bfloat16 *>(p) + at, x);
    } else {
        zt_put_wide(static_cast<__half *>(p) + at, x);
    }
}

/* A matrix with contiguous rows, as a kernel argument. */
struct zt_rows {
    void *data;
    zt_dtype dtype;
    int64_t rows, cols;
    int64_t row_stride; /* elements from row to row */
    bool wide;
};

static inline struct zt_rows zt_rows_of(const struct zt_view *v)
{
    struct zt_rows r;

    r.data = v->data;
    r.dtype = v->dtype;
    r.rows = v->shape[0];
    r.cols = v->shape[1];
    r.row_stride = v->stride[0];
    r.wide = zt_is_aligned(v->data) && r.row_stride % ZT_PACK == 0;
    return r;
}

#define ZT_ROW_THREADS 512

/* Threads of a block that works on one row of n elements, a pack per thread at a time. */
static inline unsigned zt_row_threads(int64_t n)
{
    int64_t packs = (n + ZT_PACK - 1) / ZT_PACK;
    int64_t warps = (packs + ZT_WARP - 1) / ZT_WARP;

    return ZT_WARP * (unsigned)(warps < 1 ? 1
                                : warps > ZT_ROW_THREADS / ZT_WARP
                                    ? ZT_ROW_THREADS / ZT_WARP
                                    : warps);
}

static __device__ __forceinline__ void zt_row_get(float x[ZT_PACK],
                                                  const struct zt_rows &r, int64_t row,
                                                  int64_t col, float rest)
{
    zt_get_pack(x, r.data, r.dtype, row * r.row_stride + col, r.cols - col,
                r.wide && r.cols - col >= ZT_PACK, rest);
}

static __device__ __forceinline__ void zt_row_put(const struct zt_rows &r, int64_t row,
                                                  int64_t col, bool accumulate,
                                                  float x[ZT_PACK])
{
    float old[ZT_PACK];

    if (accumulate) {
        zt_row_get(old, r, row, col, 0.0f);
        for (int i = 0; i < ZT_PACK; i++)
            x[i] += old[i];
    }
    zt_put_pack(r.data, r.dtype, row * r.row_stride + col, r.cols - col,
                r.wide && r.cols - col >= ZT_PACK, x);
}

/*
 * max x and sum exp(x - max) of a row, the same in all threads of the block. The sum of a
 * row of -inf is 0; a NaN in the row makes the sum NaN.
 */
static __device__ __forceinline__ void zt_row_max_sum(const struct zt_rows &r,
                                                      int64_t row, float *part,
                                                      double *parts, float *max,
                                                      double *sum)
{
    float x[ZT_PACK], best = -INFINITY, total = 0, shift;

    for (int64_t at = threadIdx.x * ZT_PACK; at < r.cols; at += blockDim.x * ZT_PACK) {
        float top = best;

        zt_row_get(x, r, row, at, -INFINITY);
        for (int i = 0; i < ZT_PACK; i++)
            top = fmaxf(top, x[i]);
        if (top > best) {
            total *= expf(best - top);
            best = top;
        }
        shift = best == -INFINITY ? 0.0f : best;
        for (int i = 0; i < ZT_PACK; i++)
            total += expf(x[i] - shift);
    }
    *max = zt_block_max(best, part);
    if (best != *max)
        total *= expf(best - *max);
    *sum = zt_block_sum((double)total, parts);
}

#endif
