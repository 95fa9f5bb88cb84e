/*
 * chunks.h -- deterministic sums over the rows of a matrix: the order follows from the
 * shape.
 *
 *      rows -> chunks of consecutive rows -> partial (chunks, cols) -> y (cols)
 *
 * A block sums one chunk. A thread takes the pack of columns of its threadIdx.x and every
 * blockDim.y-th row; these sums are added in order of threadIdx.y. A second kernel adds
 * the chunks in groups of consecutive ones, and then the groups in order.
 */
#ifndef KERNELS_CUDA_CHUNKS_H
#define KERNELS_CUDA_CHUNKS_H

#include "kernels/cuda/operand.h"

/* A few blocks for each of the 132 multiprocessors that an H100 has. */
#define ZT_MAX_CHUNKS 1056

/* Rows per chunk: at least `least`, so that there are at most `most` chunks. */
static inline int64_t zt_rows_per_chunk(int64_t rows, int64_t least, int64_t most)
{
    int64_t each = (rows + most - 1) / most;

    return each > least ? each : least;
}

#define ZT_FOLD_FLOATS (ZT_THREADS * ZT_PACK)

/*
 * Adds acc of the threads with equal threadIdx.x, in order of threadIdx.y, and stores the
 * sum at row[col ...]; the row has `cols` elements. `tile` is __shared__
 * float[ZT_FOLD_FLOATS] and is used only if blockDim.y > 1; the block then has ZT_THREADS
 * threads. All threads of the block call it.
 */
static __device__ __forceinline__ void zt_fold(float *row, int64_t cols, bool wide,
                                               const float acc[ZT_PACK], int64_t col,
                                               float *tile)
{
    int width = (int)blockDim.x * ZT_PACK;
    int me = (int)(threadIdx.y * blockDim.x + threadIdx.x);
    int64_t first = col - (int64_t)threadIdx.x * ZT_PACK;

    if (blockDim.y == 1) {
        zt_store_f32(row + col, wide, cols - col, acc);
        return;
    }
    for (int i = 0; i < ZT_PACK; i++)
        tile[me * ZT_PACK + i] = acc[i];
    __syncthreads();
    for (int c = me; c < width; c += ZT_THREADS) {
        float sum = 0;

        for (int y = 0; y < (int)blockDim.y; y++)
            sum += tile[y * width + c];
        if (first + c < cols)
            row[first + c] = sum;
    }
    __syncthreads();
}

/* y (cols) = or += the sum of partial (chunks, cols); chunks may be 0. */
zt_err zt_cuda_sum_chunks(const char *what, struct zt_device *dev, struct zt_stream *s,
                          const float *partial, int64_t chunks, int64_t cols, void *y,
                          zt_dtype dtype, bool accumulate, struct zt_fault *fault);

#endif
