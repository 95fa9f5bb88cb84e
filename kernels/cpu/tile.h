/*
 * tile.h -- kernels compute on short runs of fp32 that stay in the L1 cache.
 *
 *      memory (f32, bf16, f16)  --load-->  float[ZT_TILE]  --store-->  memory
 *
 * So each kernel's arithmetic is written once, in fp32, and memory is read once.
 * Offsets `at` and lengths are in elements. Loops of kernels run on the threads of
 * parallel.h; buffers are on the stack of the body.
 */
#ifndef KERNELS_CPU_TILE_H
#define KERNELS_CPU_TILE_H

#include "kernels/backend.h"

#define ZT_TILE 1024 /* floats: 4 KiB */

/* Smallest part of a parallel loop that is worth a thread; a multiple of ZT_TILE. */
#define ZT_GRAIN (8 * ZT_TILE)

/*
 * Elements at ... at + n - 1 of `base` as fp32: a pointer into `base` when they are fp32,
 * else into `buf`, where they are converted. The caller does not write to it.
 */
const float *zt_tile_load(const void *base, zt_dtype dtype, int64_t at, int64_t n,
                          float *buf);

/* = or, with accumulate, += from buf, rounded to nearest even. */
void zt_tile_store(void *base, zt_dtype dtype, int64_t at, int64_t n, const float *buf,
                   bool accumulate);

/*
 * A row read several times, tile by tile. Rows of up to ZT_TILE are converted once.
 */
struct zt_row {
    const void *base;
    zt_dtype dtype;
    int64_t start, cached; /* in elements; cached: offset of what buf holds, or -1 */
    const float *tile;
    float *buf; /* ZT_TILE floats of the caller */
};
struct zt_row zt_row_at(const void *base, zt_dtype dtype, int64_t start, float *buf);
const float *zt_row_tile(struct zt_row *r, int64_t at, int64_t n);

/* ---- sums over a tile, in the order of simd.h ---- */

float zt_tile_sum(const float *x, int64_t n);
float zt_tile_dot(const float *x, const float *y, int64_t n);
float zt_tile_sum_sq_from(const float *x, float center, int64_t n); /* (x - center)^2 */
float zt_tile_max(const float *x, int64_t n); /* NaNs are passed over; -inf if n is 0 */

/* out[i] = x[i] + y[i]; out may be x or y */
void zt_tile_add_to(float *out, const float *x, const float *y, int64_t n);

/* acc[i] += x[i], acc[i] += x[i] * y[i] (two roundings) */
void zt_tile_add(float *acc, const float *x, int64_t n);
void zt_tile_add_mul(float *acc, const float *x, const float *y, int64_t n);

/* ---- sums over rows: fixed chunks of rows, chunks in order ---- */

/* From the number of rows alone: at least 32 rows each, at most 64 chunks. */
int64_t zt_chunk_rows(int64_t rows);
int64_t zt_num_chunks(int64_t rows);

/* out[c] = or += sum over chunks, in order, of partial (chunks, cols) */
void zt_sum_chunks(const float *partial, int64_t chunks, int64_t cols, void *out,
                   zt_dtype dtype, bool accumulate);

#endif
