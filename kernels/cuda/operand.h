/*
 * operand.h -- tensors that kernels read in packs of ZT_PACK elements (row.h): a flat
 * array, or a matrix with any row stride.
 *
 * A grid for a matrix has packs of columns along x and rows along y, and loops with the
 * grid's stride:
 *      for (row = zt_first_row(); row < rows; row += zt_row_step())
 *          for (col = zt_first_col(); col < cols; col += zt_col_step())
 */
#ifndef KERNELS_CUDA_OPERAND_H
#define KERNELS_CUDA_OPERAND_H

#include "kernels/cuda/row.h"

struct zt_operand {
    void *data; /* NULL: absent */
    zt_dtype dtype;
    bool wide; /* packs are on 16-byte boundaries */
};

/* row_stride in elements; 0: there is one row. */
static inline struct zt_operand zt_operand_of(const struct zt_view *v, int64_t row_stride)
{
    struct zt_operand o;

    o.data = v->data;
    o.dtype = v->dtype;
    o.wide = zt_is_aligned(v->data) &&
             row_stride * (int64_t)zt_dtype_bytes(v->dtype) % (int64_t)sizeof(uint4) == 0;
    return o;
}

static inline struct zt_operand zt_flat_operand(const struct zt_view *v)
{
    return zt_operand_of(v, 0);
}

/*
 * A pack as loaded, not yet converted. Conversion to floats waits for the load, so a
 * kernel fetches all its operands first and has all loads in flight at once.
 */
struct zt_raw {
    uint4 word[2]; /* the second one for fp32 only */
};

template <typename T>
static __device__ __forceinline__ void zt_fetch_as(struct zt_raw *r, const T *p,
                                                   int64_t left, bool wide)
{
    const uint4 *from = reinterpret_cast<const uint4 *>(p);
    T e[ZT_PACK] = {};

    if (wide && left >= ZT_PACK) {
        r->word[0] = from[0];
        if (sizeof(e) > sizeof(uint4))
            r->word[1] = from[1];
        return;
    }
    for (int i = 0; i < ZT_PACK; i++)
        if (i < left)
            e[i] = p[i];
    memcpy(r, e, sizeof(e));
}

/* Loads the pack at element `at`, of which `left` elements exist; the others are 0. */
static __device__ __forceinline__ struct zt_raw zt_fetch(const struct zt_operand &o,
                                                         int64_t at, int64_t left)
{
    struct zt_raw r = {};

    if (o.dtype == ZT_F32)
        zt_fetch_as(&r, static_cast<const float *>(o.data) + at, left, o.wide);
    else /* bf16 and fp16: 16 bits either way */
        zt_fetch_as(&r, static_cast<const unsigned short *>(o.data) + at, left, o.wide);
    return r;
}

template <typename T>
static __device__ __forceinline__ void zt_unpack_as(float x[ZT_PACK],
                                                    const struct zt_raw &r)
{
    T e[ZT_PACK];

    memcpy(e, &r, sizeof(e));
    for (int i = 0; i < ZT_PACK; i++)
        x[i] = zt_float(e[i]);
}

static __device__ __forceinline__ void zt_unpack(float x[ZT_PACK], const struct zt_raw &r,
                                                 const struct zt_operand &o)
{
    if (o.dtype == ZT_F32)
        zt_unpack_as<float>(x, r);
    else if (o.dtype == ZT_BF16)
        zt_unpack_as<__nv_bfloat16>(x, r);
    else
        zt_unpack_as<__half>(x, r);
}

static __device__ __forceinline__ void zt_load(float x[ZT_PACK],
                                               const struct zt_operand &o, int64_t at,
                                               int64_t left)
{
    zt_unpack(x, zt_fetch(o, at, left), o);
}

/* Loads the same pack of two operands. */
static __device__ __forceinline__ void zt_load_two(float x[ZT_PACK],
                                                   const struct zt_operand &ox,
                                                   float y[ZT_PACK],
                                                   const struct zt_operand &oy,
                                                   int64_t at, int64_t left)
{
    struct zt_raw rx = zt_fetch(ox, at, left), ry = zt_fetch(oy, at, left);

    zt_unpack(x, rx, ox);
    zt_unpack(y, ry, oy);
}

/* Stores x, or adds it to memory; x is the sum afterwards. */
static __device__ __forceinline__ void zt_store(const struct zt_operand &o, int64_t at,
                                                int64_t left, bool accumulate,
                                                float x[ZT_PACK])
{
    float old[ZT_PACK];

    if (accumulate) {
        zt_load(old, o, at, left);
        for (int i = 0; i < ZT_PACK; i++)
            x[i] += old[i];
    }
    zt_put_pack(o.data, o.dtype, at, left, o.wide && left >= ZT_PACK, x);
}

/* The same for memory that is fp32 by contract. */
static __device__ __forceinline__ void zt_load_f32(float x[ZT_PACK], const float *p,
                                                   bool wide, int64_t left)
{
    zt_get_pack(x, p, ZT_F32, 0, left, wide && left >= ZT_PACK, 0.0f);
}

static __device__ __forceinline__ void zt_store_f32(float *p, bool wide, int64_t left,
                                                    const float x[ZT_PACK])
{
    zt_put_pack(p, ZT_F32, 0, left, wide && left >= ZT_PACK, x);
}

/* ---- grids ---- */

#define ZT_THREADS 256

static inline int64_t zt_packs(int64_t n)
{
    return (n + ZT_PACK - 1) / ZT_PACK;
}

/* Blocks of ZT_THREADS for n elements in packs: for (at = zt_first_pack(); at < n; ...)
 */
static inline unsigned zt_flat_blocks(const struct zt_device *dev, int64_t n)
{
    return zt_cuda_blocks(dev, zt_packs(n), ZT_THREADS);
}

static __device__ __forceinline__ int64_t zt_first_pack(void)
{
    return zt_thread_index() * ZT_PACK;
}

static __device__ __forceinline__ int64_t zt_pack_step(void)
{
    return zt_thread_count() * ZT_PACK;
}

/* Threads for the packs of a row: a power of two, at most `most`. */
static inline unsigned zt_threads_for(int64_t packs, unsigned most)
{
    unsigned n = 1;

    while (n < packs && n < most)
        n *= 2;
    return n;
}

static inline void zt_matrix_grid(const struct zt_device *dev, int64_t rows, int64_t cols,
                                  dim3 *blocks, dim3 *threads)
{
    int64_t x = zt_threads_for(zt_packs(cols), ZT_THREADS), y = ZT_THREADS / x;
    int64_t wide = zt_cuda_blocks(dev, zt_packs(cols), (unsigned)x);
    int64_t most = (int64_t)dev->num_sm * 16 / wide, high = (rows + y - 1) / y;

    most = most < 1 ? 1 : most;
    high = high < 1 ? 1 : high < most ? high : most;
    *threads = dim3((unsigned)x, (unsigned)y);
    *blocks = dim3((unsigned)wide, (unsigned)high);
}

static __device__ __forceinline__ int64_t zt_first_row(void)
{
    return (int64_t)blockIdx.y * blockDim.y + threadIdx.y;
}

static __device__ __forceinline__ int64_t zt_row_step(void)
{
    return (int64_t)gridDim.y * blockDim.y;
}

static __device__ __forceinline__ int64_t zt_first_col(void)
{
    return ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * ZT_PACK;
}

static __device__ __forceinline__ int64_t zt_col_step(void)
{
    return (int64_t)gridDim.x * blockDim.x * ZT_PACK;
}

#endif
