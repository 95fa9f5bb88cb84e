/*
 * Quantization to fp8 with one scale per tensor. One kernel finds the largest magnitude per
 * block; a second one computes the scale from these and rounds. A maximum does not depend
 * on the order.
 *
 * Rounding goes by tiles, so that x is read once for both results:
 *
 *      x  --packs along rows-->  codes in shared memory  --rows-->     y
 *                                                        --columns-->  yt
 */
#include <float.h>

#include <cuda_fp8.h>

#include "kernels/cuda/row.h"
#include "kernels/fp8.h"

#define THREADS 256
#define TILE    64           /* rows and columns of a tile */
#define RUN     16           /* codes of a thread: one 16-byte access */
#define PART    (TILE / RUN) /* threads to a row */
#define PITCH   (TILE + 4) /* bytes of a row in shared memory: columns miss each other */

static_assert(TILE * PART == THREADS, "a thread has one run of a tile");

struct quantize_launch {
    const void *x;
    zt_dtype xtype, type;
    int64_t rows, cols, row_stride, col_stride;
    bool wide;            /* packs of x are on 16-byte boundaries */
    bool wide_y, wide_yt; /* and runs of the results */
    uint8_t *y, *yt;      /* NULL: absent */
    float *scale, *part;  /* part: of the blocks of amax_kernel */
    int num_parts;
};

/* Elements from (row, col) on; those outside are 0. */
static __device__ __forceinline__ void load(float x[ZT_PACK],
                                            const struct quantize_launch &q, int64_t row,
                                            int64_t col)
{
    int64_t at = row * q.row_stride + col * q.col_stride, left = q.cols - col;

    left = row < q.rows ? left : 0;
    if (q.col_stride == 1) {
        zt_get_pack(x, q.x, q.xtype, at, left, q.wide && left >= ZT_PACK, 0.0f);
        return;
    }
    for (int i = 0; i < ZT_PACK; i++)
        x[i] = i < left ? zt_get(q.x, q.xtype, at + i * q.col_stride) : 0.0f;
}

static __global__ void __launch_bounds__(THREADS) amax_kernel(struct quantize_launch q)
{
    __shared__ float part[ZT_WARP];
    int64_t packs = (q.cols + ZT_PACK - 1) / ZT_PACK;
    float x[ZT_PACK], best = 0;

    for (int64_t item = zt_thread_index(); item < q.rows * packs;
         item += zt_thread_count()) {
        load(x, q, item / packs, item % packs * ZT_PACK);
        for (int i = 0; i < ZT_PACK; i++)
            best = fmaxf(best, fabsf(x[i]) <= FLT_MAX ? fabsf(x[i]) : 0.0f);
    }
    best = zt_block_max(best, part);
    if (threadIdx.x == 0)
        q.part[blockIdx.x] = best;
}

/* The factor to multiply by; the same in all threads of all blocks. */
static __device__ __forceinline__ float factor_of(const struct quantize_launch &q,
                                                  float *part)
{
    float best = 0;

    for (int i = (int)threadIdx.x; i < q.num_parts; i += THREADS)
        best = fmaxf(best, q.part[i]);
    return zt_f8_factor(zt_block_max(best, part), q.type);
}

/* Inf would become the largest code. */
static __device__ __forceinline__ float scaled(float x, float factor)
{
    float v = __fmul_rn(x, factor);

    return fabsf(v) <= FLT_MAX ? v : NAN;
}

/* A pack as codes. */
static __device__ __forceinline__ uint2 rounded(const float x[ZT_PACK], float factor,
                                                zt_dtype type)
{
    __nv_fp8_interpretation_t kind = type == ZT_F8E4M3 ? __NV_E4M3 : __NV_E5M2;
    __nv_fp8x2_storage_t two[ZT_PACK / 2];
    uint2 codes;

    for (int i = 0; i < ZT_PACK / 2; i++)
        two[i] = __nv_cvt_float2_to_fp8x2(
            make_float2(scaled(x[2 * i], factor), scaled(x[2 * i + 1], factor)),
            __NV_SATFINITE, kind);
    memcpy(&codes, two, sizeof(codes));
    return codes;
}

/* A run of codes, of which `left` belong to the result. */
static __device__ __forceinline__ void put_run(uint8_t *to, uint4 codes, int64_t left,
                                               bool wide)
{
    uint8_t code[RUN];

    if (wide && left >= RUN) {
        *reinterpret_cast<uint4 *>(to) = codes;
        return;
    }
    memcpy(code, &codes, sizeof(code));
    for (int i = 0; i < RUN; i++)
        if (i < left)
            to[i] = code[i];
}

/* The thread's run of a row: from x to y and into the tile. */
static __device__ __forceinline__ void row_run(const struct quantize_launch &q,
                                               float factor, int64_t row, int64_t col,
                                               uint8_t *in_tile)
{
    float x[ZT_PACK];
    uint2 pack[2];
    uint4 codes;

    for (int i = 0; i < 2; i++) {
        load(x, q, row, col + i * ZT_PACK);
        pack[i] = rounded(x, factor, q.type);
    }
    codes = make_uint4(pack[0].x, pack[0].y, pack[1].x, pack[1].y);
    memcpy(in_tile, &codes, sizeof(codes));
    if (q.y && row < q.rows)
        put_run(q.y + row * q.cols + col, codes, q.cols - col, q.wide_y);
}

/* ... and of a column, from the tile to yt. */
static __device__ __forceinline__ void col_run(const struct quantize_launch &q,
                                               int64_t col, int64_t row,
                                               const uint8_t *in_tile)
{
    uint8_t code[RUN];
    uint4 codes;

    for (int i = 0; i < RUN; i++)
        code[i] = in_tile[i * PITCH];
    memcpy(&codes, code, sizeof(codes));
    if (col < q.cols)
        put_run(q.yt + col * q.rows + row, codes, q.rows - row, q.wide_yt);
}

static __global__ void __launch_bounds__(THREADS) round_kernel(struct quantize_launch q)
{
    __shared__ float part[ZT_WARP];
    __shared__ __align__(16) uint8_t tile[TILE * PITCH];
    int64_t across = (q.cols + TILE - 1) / TILE, down = (q.rows + TILE - 1) / TILE;
    int line = (int)threadIdx.x / PART, run = (int)threadIdx.x % PART * RUN;
    float factor = factor_of(q, part);

    if (blockIdx.x == 0 && threadIdx.x == 0)
        *q.scale = __fdiv_rn(1.0f, factor);
    for (int64_t t = blockIdx.x; t < across * down; t += gridDim.x) {
        int64_t row = t / across * TILE, col = t % across * TILE;

        row_run(q, factor, row + line, col + run, tile + line * PITCH + run);
        __syncthreads();
        if (q.yt)
            col_run(q, col + line, row + run, tile + run * PITCH + line);
        __syncthreads();
    }
}

/* Along the contiguous axis: a column-major x is its transpose in row-major order. */
static struct quantize_launch job_of(const struct zt_quantize_args *a)
{
    bool flip = a->x.stride[1] != 1 && a->x.stride[0] == 1;
    struct quantize_launch q = {};
    int64_t bytes = (int64_t)zt_dtype_bytes(a->x.dtype);

    q.x = a->x.data;
    q.xtype = a->x.dtype;
    q.type = a->y.data ? a->y.dtype : a->yt.dtype;
    q.rows = a->x.shape[flip];
    q.cols = a->x.shape[!flip];
    q.row_stride = a->x.stride[flip];
    q.col_stride = a->x.stride[!flip];
    q.wide = zt_is_aligned(q.x) && q.row_stride * bytes % 16 == 0;
    q.y = static_cast<uint8_t *>(flip ? a->yt.data : a->y.data);
    q.yt = static_cast<uint8_t *>(flip ? a->y.data : a->yt.data);
    q.wide_y = zt_is_aligned(q.y) && q.cols % RUN == 0;
    q.wide_yt = zt_is_aligned(q.yt) && q.rows % RUN == 0;
    q.scale = a->scale;
    return q;
}

zt_err zt_cuda_quantize(struct zt_device *dev, struct zt_stream *s,
                        const struct zt_quantize_args *a, struct zt_fault *fault)
{
    zt_err rc = zt_check_quantize(a, fault);
    struct quantize_launch q;
    int64_t tiles;

    if (rc)
        return rc;
    q = job_of(a);
    q.part = static_cast<float *>(zt_cuda_scratch(dev, s));
    q.num_parts =
        (int)zt_cuda_blocks(dev, q.rows * ((q.cols + ZT_PACK - 1) / ZT_PACK), THREADS);
    rc = zt_cuda_launch("quantize", fault, dev, s, (unsigned)q.num_parts, THREADS,
                        amax_kernel, q);
    if (rc)
        return rc;
    tiles = (q.rows + TILE - 1) / TILE * ((q.cols + TILE - 1) / TILE);
    return zt_cuda_launch("quantize", fault, dev, s,
                          zt_cuda_blocks(dev, tiles * THREADS, THREADS), THREADS,
                          round_kernel, q);
}
