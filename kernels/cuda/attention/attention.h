/*
 * attention.h -- shared by the forward and the backward of attention.
 *
 * A block of 256 threads works on tiles of 64 queries by 64 keys; the matrix of scores
 * stays on the chip. Thread (ty, tx) of 16 by 16 owns the 4 by 4 elements from (4 ty, 4
 * tx). All arithmetic is fp32, whatever the tensors are. Two tiles of shared memory hold
 * the operands of one product at a time. Heads of any size up to ZT_MAX_HEAD_DIM go
 * through them 64 dimensions after the other; sums over dimensions of a head stay in
 * registers.
 *
 *      product:  acc[row][col] += a[k][row] b[k][col] for k in order
 *
 * so an operand whose sum runs along its own rows is loaded transposed.
 */
#ifndef KERNELS_CUDA_ATTENTION_ATTENTION_H
#define KERNELS_CUDA_ATTENTION_ATTENTION_H

#include "kernels/cuda/row.h"
#include "kernels/philox.h"

#define ZT_TILE         64
#define ZT_TILE_THREADS 256
#define ZT_MAX_HEAD_DIM 256

/* An array of sums stays in registers only if the loops over it are unrolled. */
#ifdef __NVCC__
#define ZT_UNROLL _Pragma("unroll")
#else
#define ZT_UNROLL
#endif

/* Padded by one column, so that the elements of a column lie in different banks. */
struct zt_tile {
    float4 row[ZT_TILE][ZT_TILE / 4 + 1];
};
#define ZT_TILE_LD (ZT_TILE + 4)

/* (B, T, H, D) with unit last stride; for a bias the axes are (B, H, T) and keys. */
struct zt_heads {
    void *data;
    zt_dtype dtype;
    int64_t stride[3];
    bool wide; /* four elements at a multiple of 4 are one aligned access */
};

/* One head of one sequence: (rows, dim). */
struct zt_head {
    void *data;
    zt_dtype dtype;
    bool wide;
    int64_t at, stride, rows; /* element of row 0 */
    int dim;
};

/* A call, as a kernel argument. */
struct zt_attn {
    struct zt_heads q, k, v, out, bias, mask;
    int64_t bias_batch, bias_heads, mask_batch, mask_heads;
    int64_t batch, heads, kv_heads, tq, tk;
    int dim;
    float *lse; /* (B, H, Tq), or NULL */
    float scale;
    bool causal;
    int64_t window; /* 0: none that matters */
    const int32_t *key_begin,
        *key_end; /* (B, Tq): the keys that each query may see; or NULL */
    struct zt_philox rng;
    uint32_t drop_below; /* 0: no dropout */
    float keep;          /* 1 / (1 - p) */
};

/* The sequence and head that a block works on. */
struct zt_place {
    int64_t b, h, kv;
};

/* attention.cu: fills in *t. ZT_E_ARG or ZT_E_UNSUPPORTED if no kernel here can do it. */
zt_err zt_attn_init(struct zt_attn *t, const struct zt_attention_args *a,
                    struct zt_fault *fault) ZT_MUST_CHECK;
struct zt_heads zt_heads_of(const struct zt_view *v);

/* sdpa.cu: tries the library of sdpa.h. *done: it was queued; else nothing happened. The
 * arguments have been checked. */
zt_err zt_cuda_sdpa_forward(struct zt_device *dev, struct zt_stream *s,
                            const struct zt_attention_args *a, bool *done,
                            struct zt_fault *fault) ZT_MUST_CHECK;
zt_err zt_cuda_sdpa_backward(struct zt_device *dev, struct zt_stream *s,
                             const struct zt_attention_bwd_args *a, bool *done,
                             struct zt_fault *fault) ZT_MUST_CHECK;

/* Blocks of a launch: tiles of all heads. */
static inline unsigned zt_attn_blocks(int64_t heads, int64_t length)
{
    return (unsigned)(heads * ((length + ZT_TILE - 1) / ZT_TILE));
}

/* ---------------------------------------------------------------- masks */

static __device__ __forceinline__ bool zt_attn_sees(const struct zt_attn &t, int64_t b,
                                                    int64_t i, int64_t j)
{
    int64_t diagonal = i + t.tk - t.tq;

    return i < t.tq && j < t.tk && (!t.causal || j <= diagonal) &&
           (!t.window || j > diagonal - t.window) &&
           (!t.key_begin || j >= t.key_begin[b * t.tq + i]) &&
           (!t.key_end || j < t.key_end[b * t.tq + i]);
}

/* No key before *lo and none from *hi on is one that queries [q0, end) of row b may see. */
static __device__ __forceinline__ void zt_attn_limits(const struct zt_attn &t, int64_t b,
                                                      int64_t q0, int64_t end,
                                                      int64_t *lo, int64_t *hi)
{
    int64_t first = t.tk, last = 0;

    for (int64_t i = q0; i < end; i++) {
        int64_t from = t.key_begin ? t.key_begin[b * t.tq + i] : 0;
        int64_t to = t.key_end ? t.key_end[b * t.tq + i] : t.tk;

        first = from < first ? from : first;
        last = to > last ? to : last;
    }
    *lo = first > *lo ? first : *lo;
    *hi = last < *hi ? last : *hi;
}

/* The keys that queries [q0, q0 + ZT_TILE) of row b may see; *lo is the begin of a tile. */
static __device__ __forceinline__ void zt_attn_keys(const struct zt_attn &t, int64_t b,
                                                    int64_t q0, int64_t *lo, int64_t *hi)
{
    int64_t end = q0 + ZT_TILE < t.tq ? q0 + ZT_TILE : t.tq, last = end - 1;
    int64_t ahead = t.tk - t.tq, first = t.window ? q0 + ahead - t.window + 1 : 0;

    *hi = t.causal && last + ahead + 1 < t.tk ? last + ahead + 1 : t.tk;
    if (t.key_begin || t.key_end)
        zt_attn_limits(t, b, q0, end, &first, hi);
    *lo = first > 0 ? first / ZT_TILE * ZT_TILE : 0;
}

/* Whether queries [q0, q0 + ZT_TILE) of row b may see any of keys [k0, k0 + ZT_TILE). */
static __device__ __forceinline__ bool zt_attn_meet(const struct zt_attn &t, int64_t b,
                                                    int64_t q0, int64_t k0)
{
    int64_t lo, hi;

    if (!t.key_begin && !t.key_end)
        return true;
    zt_attn_keys(t, b, q0, &lo, &hi);
    return k0 >= lo && k0 < hi;
}

/* The queries that may see keys [k0, k0 + ZT_TILE). */
static __device__ __forceinline__ void zt_attn_queries(const struct zt_attn &t,
                                                       int64_t k0, int64_t *lo,
                                                       int64_t *hi)
{
    int64_t last = (k0 + ZT_TILE < t.tk ? k0 + ZT_TILE : t.tk) - 1, ahead = t.tk - t.tq;
    int64_t first = t.causal ? k0 - ahead : 0, end = last - ahead + t.window;

    *hi = t.window && end < t.tq ? end : t.tq;
    *lo = first > 0 ? first / ZT_TILE * ZT_TILE : 0;
}

static __device__ __forceinline__ struct zt_head zt_head_of(const struct zt_attn &t,
                                                            const struct zt_heads &m,
                                                            int64_t b, int64_t h,
                                                            int64_t rows)
{
    struct zt_head r;

    r.data = m.data;
    r.dtype = m.dtype;
    r.wide = m.wide;
    r.at = b * m.stride[0] + h * m.stride[2];
    r.stride = m.stride[1];
    r.rows = rows;
    r.dim = t.dim;
    return r;
}

/* ---------------------------------------------------------------- memory */

template <typename T> static __device__ __forceinline__ float4 zt_get_quad(const T *p)
{
    uint2 word = *reinterpret_cast<const uint2 *>(p);
    T e[4];

    static_assert(sizeof(e) == sizeof(word), "of 16 bits each");
    memcpy(e, &word, sizeof(e));
    return make_float4(zt_float(e[0]), zt_float(e[1]), zt_float(e[2]), zt_float(e[3]));
}

static __device__ __forceinline__ float4 zt_head_get(const struct zt_head &m, int64_t row,
                                                     int col)
{
    int64_t at = m.at + row * m.stride + col;
    float x[4];

    if (row >= m.rows || col >= m.dim)
        return make_float4(0, 0, 0, 0);
    if (m.wide && m.dtype == ZT_F32)
        return *reinterpret_cast<const float4 *>(static_cast<const float *>(m.data) + at);
    if (m.wide && m.dtype == ZT_BF16)
        return zt_get_quad(static_cast<const __nv_bfloat16 *>(m.data) + at);
    if (m.wide)
        return zt_get_quad(static_cast<const __half *>(m.data) + at);
    for (int i = 0; i < 4; i++)
        x[i] = col + i < m.dim ? zt_get(m.data, m.dtype, at + i) : 0.0f;
    return make_float4(x[0], x[1], x[2], x[3]);
}

/* Elements from (row, col) on = or += scale * x. */
static __device__ __forceinline__ void zt_head_put(const struct zt_head &m, int64_t row,
                                                   int col, const float x[4], float scale,
                                                   bool accumulate)
{
    int64_t at = m.at + row * m.stride + col;

    for (int i = 0; i < 4; i++)
        if (row < m.rows && col + i < m.dim) {
            float old = accumulate ? zt_get(m.data, m.dtype, at + i) : 0.0f;

            zt_put(m.data, m.dtype, at + i, old + scale * x[i]);
        }
}

/*
 * Loads rows from `row` and dimensions from `dim` into t, zeros where there are none. A
 * warp loads eight rows by four quads: whole sectors of memory, and few bank conflicts
 * when transposed.
 */
template <bool TRANSPOSED>
static __device__ __forceinline__ void zt_tile_load(struct zt_tile *t,
                                                    const struct zt_head &m, int64_t row,
                                                    int dim)
{
    float *x = reinterpret_cast<float *>(t);

    for (unsigned i = threadIdx.x; i < ZT_TILE * ZT_TILE / 4; i += ZT_TILE_THREADS) {
        unsigned r = (i & 7) | ((i >> 5 & 7) << 3), quad = (i >> 3 & 3) | (i >> 8 << 2);
        float4 v = zt_head_get(m, row + r, dim + (int)quad * 4);

        if (!TRANSPOSED) {
            t->row[r][quad] = v;
            continue;
        }
        x[(4 * quad) * ZT_TILE_LD + r] = v.x;
        x[(4 * quad + 1) * ZT_TILE_LD + r] = v.y;
        x[(4 * quad + 2) * ZT_TILE_LD + r] = v.z;
        x[(4 * quad + 3) * ZT_TILE_LD + r] = v.w;
    }
}

/* Writes each thread's elements into t, after a barrier. */
template <bool TRANSPOSED>
static __device__ __forceinline__ void zt_tile_write(struct zt_tile *t,
                                                     const float x[4][4])
{
    unsigned ty = threadIdx.x / 16, tx = threadIdx.x % 16;

    __syncthreads();
    for (int i = 0; i < 4; i++)
        if (TRANSPOSED)
            t->row[4 * tx + i][ty] = make_float4(x[0][i], x[1][i], x[2][i], x[3][i]);
        else
            t->row[4 * ty + i][tx] = make_float4(x[i][0], x[i][1], x[i][2], x[i][3]);
}

/* ---------------------------------------------------------------- products */

static __device__ __forceinline__ void zt_tile_zero(float acc[4][4])
{
    ZT_UNROLL
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++)
            acc[i][j] = 0;
}

static __device__ __forceinline__ void zt_tile_product(float acc[4][4],
                                                       const struct zt_tile *a,
                                                       const struct zt_tile *b, int depth)
{
    unsigned ty = threadIdx.x / 16, tx = threadIdx.x % 16;

    for (int k = 0; k < depth; k++) {
        float4 x4 = a->row[k][ty], y4 = b->row[k][tx];
        float x[4] = {x4.x, x4.y, x4.z, x4.w}, y[4] = {y4.x, y4.y, y4.z, y4.w};

        ZT_UNROLL
        for (int i = 0; i < 4; i++)
            for (int j = 0; j < 4; j++)
                acc[i][j] = fmaf(x[i], y[j], acc[i][j]);
    }
}

/* acc = x y^T of 64 rows each. */
static __device__ __forceinline__ void zt_tile_dot(float acc[4][4],
                                                   const struct zt_head &x, int64_t x_row,
                                                   const struct zt_head &y, int64_t y_row,
                                                   struct zt_tile *a, struct zt_tile *b)
{
    zt_tile_zero(acc);
    for (int d = 0; d < x.dim; d += ZT_TILE) {
        __syncthreads();
        zt_tile_load<true>(a, x, x_row, d);
        zt_tile_load<true>(b, y, y_row, d);
        __syncthreads();
        zt_tile_product(acc, a, b, x.dim - d < ZT_TILE ? x.dim - d : ZT_TILE);
    }
}

/* acc += a (written by zt_tile_write) times 64 rows of m, over all its dimensions. */
template <int CHUNKS>
static __device__ __forceinline__ void zt_tile_apply(float acc[CHUNKS][4][4],
                                                     const struct zt_tile *a,
                                                     struct zt_tile *b,
                                                     const struct zt_head &m, int64_t row)
{
    ZT_UNROLL
    for (int c = 0; c < CHUNKS; c++) {
        __syncthreads();
        zt_tile_load<false>(b, m, row, c * ZT_TILE);
        __syncthreads();
        zt_tile_product(acc[c], a, b, ZT_TILE);
    }
}

/* ---------------------------------------------------------------- scores */

/* Element (b, h, i, j) of a bias or mask that `batch` rows and `heads` heads have. */
static __device__ __forceinline__ float zt_attn_addend(const struct zt_heads &m,
                                                       int64_t batch, int64_t heads,
                                                       const struct zt_place &at,
                                                       int64_t i, int64_t j)
{
    int64_t b = batch == 1 ? 0 : at.b, h = heads == 1 ? 0 : at.h;

    return zt_get(m.data, m.dtype,
                  b * m.stride[0] + h * m.stride[1] + i * m.stride[2] + j);
}

/* What is added to a score: bias + mask, of which at least one is there. */
static __device__ __forceinline__ float zt_attn_bias(const struct zt_attn &t,
                                                     const struct zt_place &at, int64_t i,
                                                     int64_t j)
{
    float x = 0;

    if (t.bias.data)
        x = zt_attn_addend(t.bias, t.bias_batch, t.bias_heads, at, i, j);
    if (t.mask.data)
        x += zt_attn_addend(t.mask, t.mask_batch, t.mask_heads, at, i, j);
    return x;
}

/* The thread's scores of queries from q0 and keys from k0; -inf where masked. */
static __device__ __forceinline__ void zt_attn_scores(
    float s[4][4], const struct zt_attn &t, const struct zt_place &at, int64_t q0,
    int64_t k0, struct zt_tile *a, struct zt_tile *b)
{
    int64_t row = q0 + threadIdx.x / 16 * 4, col = k0 + threadIdx.x % 16 * 4;

    zt_tile_dot(s, zt_head_of(t, t.q, at.b, at.h, t.tq), q0,
                zt_head_of(t, t.k, at.b, at.kv, t.tk), k0, a, b);
    ZT_UNROLL
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++) {
            if (!zt_attn_sees(t, at.b, row + i, col + j))
                s[i][j] = -INFINITY;
            else if (t.bias.data || t.mask.data)
                s[i][j] = fmaf(s[i][j], t.scale, zt_attn_bias(t, at, row + i, col + j));
            else
                s[i][j] *= t.scale;
        }
}

/* Dropout factors of the probabilities of query i and keys j ... j + 3. */
static __device__ __forceinline__ void zt_attn_keep(float keep[4],
                                                    const struct zt_attn &t,
                                                    const struct zt_place &at, int64_t i,
                                                    int64_t j)
{
    uint64_t first =
        t.rng.offset + (uint64_t)(((at.b * t.heads + at.h) * t.tq + i) * t.tk + j);
    unsigned skip = (unsigned)(first % 4);
    uint32_t word[8] = {0, 0, 0, 0, 0, 0, 0, 0};

    if (t.drop_below)
        zt_philox_block(t.rng, first / 4, word);
    if (t.drop_below && skip)
        zt_philox_block(t.rng, first / 4 + 1, word + 4);
    ZT_UNROLL
    for (int x = 0; x < 4; x++) {
        uint32_t mine = skip == 0   ? word[x]
                        : skip == 1 ? word[x + 1]
                        : skip == 2 ? word[x + 2]
                                    : word[x + 3];

        keep[x] = mine < t.drop_below ? 0.0f : t.keep;
    }
}

#endif
