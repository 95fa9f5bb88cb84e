/*
 * Backward of attention: the probabilities come back from the scores and lse, then
 *
 *      dP = dO V^T    dS = P (dP - rowsum(dO O))    dV = P^T dO
 *      dQ = scale dS K    dK = scale dS^T Q         dbias = dS
 *
 * Three kernels, each of which owns what it writes and adds in an order of its own: dQ by
 * tiles of queries over the keys they see; dK and dV by tiles of keys over the query
 * heads of their group and the queries of each; dbias by tiles over the sequences and
 * heads that share it.
 */
#include "kernels/cuda/attention/attention.h"

struct backward_launch {
    struct zt_attn t;
    struct zt_heads dout, dq, dk, dv, dbias;
    const float *delta; /* (B, H, Tq): rowsum(dO O); NULL: each tile computes its own */
    bool accumulate_q, accumulate_k, accumulate_v, accumulate_bias;
};

/* lse and delta of the rows of a tile, in shared memory. */
struct rows {
    float lse[ZT_TILE], delta[ZT_TILE];
};

/* ---- rowsum(dO O) ---- */

static __device__ __forceinline__ float delta_part(const struct backward_launch &f,
                                                   const struct zt_place &at, int64_t row,
                                                   int begin, int step)
{
    struct zt_head dout = zt_head_of(f.t, f.dout, at.b, at.h, f.t.tq);
    struct zt_head out = zt_head_of(f.t, f.t.out, at.b, at.h, f.t.tq);
    float sum = 0;

    for (int d = begin; d < f.t.dim; d += step)
        sum = fmaf(zt_get(dout.data, dout.dtype, dout.at + row * dout.stride + d),
                   zt_get(out.data, out.dtype, out.at + row * out.stride + d), sum);
    return sum;
}

/* A warp for each row. */
static __global__ void __launch_bounds__(ZT_TILE_THREADS)
    delta_kernel(struct backward_launch f, float *delta, int64_t num)
{
    int64_t lane = zt_thread_index() % ZT_WARP;

    for (int64_t n = zt_thread_index() / ZT_WARP; n < num;
         n += zt_thread_count() / ZT_WARP) {
        int64_t head = n / f.t.tq;
        struct zt_place at = {head / f.t.heads, head % f.t.heads, 0};
        float sum = zt_warp_sum(delta_part(f, at, n - head * f.t.tq, (int)lane, ZT_WARP));

        if (lane == 0)
            delta[n] = sum;
    }
}

/* ---- one tile of scores ---- */

static __device__ __forceinline__ void load_rows(const struct backward_launch &f,
                                                 const struct zt_place &at, int64_t q0,
                                                 struct rows *r)
{
    int64_t row = q0 + threadIdx.x;
    int64_t n = (at.b * f.t.heads + at.h) * f.t.tq + row;

    __syncthreads();
    if (threadIdx.x < ZT_TILE && row < f.t.tq) {
        r->lse[threadIdx.x] = f.t.lse[n];
        r->delta[threadIdx.x] = f.delta ? f.delta[n] : delta_part(f, at, row, 0, 1);
    }
    __syncthreads();
}

/* p: the kept probabilities; ds: the gradient of the scores. */
static __device__ __forceinline__ void score_gradients(
    float p[4][4], float ds[4][4], const struct backward_launch &f,
    const struct zt_place &at, int64_t q0, int64_t k0, const struct rows *r,
    struct zt_tile *a, struct zt_tile *b)
{
    int64_t row = threadIdx.x / 16 * 4, col = k0 + threadIdx.x % 16 * 4;
    float keep[4];

    zt_attn_scores(p, f.t, at, q0, k0, a, b);
    zt_tile_dot(ds, zt_head_of(f.t, f.dout, at.b, at.h, f.t.tq), q0,
                zt_head_of(f.t, f.t.v, at.b, at.kv, f.t.tk), k0, a, b);
    ZT_UNROLL
    for (int i = 0; i < 4; i++) {
        zt_attn_keep(keep, f.t, at, q0 + row + i, col);
        for (int j = 0; j < 4; j++) {
            /* masked: no gradient, whatever lse and delta hold */
            bool hidden = p[i][j] == -INFINITY || r->lse[row + i] == -INFINITY;
            float e = hidden ? 0.0f : expf(p[i][j] - r->lse[row + i]);

            p[i][j] = e * keep[j];
            ds[i][j] = hidden ? 0.0f : e * (ds[i][j] * keep[j] - r->delta[row + i]);
        }
    }
}

/* ---- dq ---- */

template <int CHUNKS>
static __device__ __forceinline__ void put_sums(const struct zt_head &m, int64_t row,
                                                const float acc[CHUNKS][4][4],
                                                float scale, bool accumulate)
{
    int col = (int)(threadIdx.x % 16) * 4;

    row += threadIdx.x / 16 * 4;
    ZT_UNROLL
    for (int c = 0; c < CHUNKS; c++)
        for (int i = 0; i < 4; i++)
            zt_head_put(m, row + i, c * ZT_TILE + col, acc[c][i], scale, accumulate);
}

template <int CHUNKS>
static __global__ void __launch_bounds__(ZT_TILE_THREADS)
    dq_kernel(struct backward_launch f)
{
    __shared__ struct zt_tile a, b;
    __shared__ struct rows r;
    float dq[CHUNKS][4][4], p[4][4], ds[4][4];
    int64_t tiles = (f.t.tq + ZT_TILE - 1) / ZT_TILE, head = blockIdx.x / tiles;
    int64_t q0 = (tiles - 1 - blockIdx.x % tiles) * ZT_TILE, lo, hi;
    struct zt_place at;

    at.b = head / f.t.heads;
    at.h = head % f.t.heads;
    at.kv = at.h / (f.t.heads / f.t.kv_heads);
    struct zt_head k = zt_head_of(f.t, f.t.k, at.b, at.kv, f.t.tk);

    ZT_UNROLL
    for (int c = 0; c < CHUNKS; c++)
        zt_tile_zero(dq[c]);
    load_rows(f, at, q0, &r);
    zt_attn_keys(f.t, at.b, q0, &lo, &hi);
    for (int64_t k0 = lo; k0 < hi; k0 += ZT_TILE) {
        score_gradients(p, ds, f, at, q0, k0, &r, &a, &b);
        zt_tile_write<true>(&a, ds);
        zt_tile_apply<CHUNKS>(dq, &a, &b, k, k0);
    }
    put_sums<CHUNKS>(zt_head_of(f.t, f.dq, at.b, at.h, f.t.tq), q0, dq, f.t.scale,
                     f.accumulate_q);
}

/* ---- dk and dv ---- */

template <int CHUNKS>
static __global__ void __launch_bounds__(ZT_TILE_THREADS)
    dkv_kernel(struct backward_launch f)
{
    __shared__ struct zt_tile a, b;
    __shared__ struct rows r;
    float dk[CHUNKS][4][4], dv[CHUNKS][4][4], p[4][4], ds[4][4];
    int64_t tiles = (f.t.tk + ZT_TILE - 1) / ZT_TILE, head = blockIdx.x / tiles;
    int64_t k0 = blockIdx.x % tiles * ZT_TILE, group = f.t.heads / f.t.kv_heads, lo, hi;
    struct zt_place at;

    at.b = head / f.t.kv_heads;
    at.kv = head % f.t.kv_heads;
    ZT_UNROLL
    for (int c = 0; c < CHUNKS; c++) {
        zt_tile_zero(dk[c]);
        zt_tile_zero(dv[c]);
    }
    zt_attn_queries(f.t, k0, &lo, &hi);
    for (at.h = at.kv * group; at.h < (at.kv + 1) * group; at.h++)
        for (int64_t q0 = lo; q0 < hi; q0 += ZT_TILE) {
            if (!zt_attn_meet(f.t, at.b, q0, k0))
                continue;
            load_rows(f, at, q0, &r);
            score_gradients(p, ds, f, at, q0, k0, &r, &a, &b);
            zt_tile_write<false>(&a, p);
            zt_tile_apply<CHUNKS>(dv, &a, &b, zt_head_of(f.t, f.dout, at.b, at.h, f.t.tq),
                                  q0);
            zt_tile_write<false>(&a, ds);
            zt_tile_apply<CHUNKS>(dk, &a, &b, zt_head_of(f.t, f.t.q, at.b, at.h, f.t.tq),
                                  q0);
        }
    put_sums<CHUNKS>(zt_head_of(f.t, f.dk, at.b, at.kv, f.t.tk), k0, dk, f.t.scale,
                     f.accumulate_k);
    put_sums<CHUNKS>(zt_head_of(f.t, f.dv, at.b, at.kv, f.t.tk), k0, dv, 1.0f,
                     f.accumulate_v);
}

/* ---- dbias ---- */

/* Element (bb, hh, i, j) of dbias = or += x. */
static __device__ __forceinline__ void put_bias(const struct backward_launch &f,
                                                int64_t bb, int64_t hh, int64_t i,
                                                int64_t j, float x)
{
    const struct zt_heads &d = f.dbias;
    int64_t at = bb * d.stride[0] + hh * d.stride[1] + i * d.stride[2] + j;

    if (i < f.t.tq && j < f.t.tk)
        zt_put(d.data, d.dtype, at,
               (f.accumulate_bias ? zt_get(d.data, d.dtype, at) : 0.0f) + x);
}

static __global__ void __launch_bounds__(ZT_TILE_THREADS)
    dbias_kernel(struct backward_launch f)
{
    __shared__ struct zt_tile a, b;
    __shared__ struct rows r;
    float sum[4][4], p[4][4], ds[4][4];
    int64_t across = (f.t.tk + ZT_TILE - 1) / ZT_TILE;
    int64_t down = (f.t.tq + ZT_TILE - 1) / ZT_TILE;
    int64_t k0 = blockIdx.x % across * ZT_TILE;
    int64_t q0 = blockIdx.x / across % down * ZT_TILE, bh = blockIdx.x / across / down;
    int64_t bb = bh / f.t.bias_heads, hh = bh % f.t.bias_heads;
    int64_t b_end = f.t.bias_batch == 1 ? f.t.batch : bb + 1;
    int64_t h_end = f.t.bias_heads == 1 ? f.t.heads : hh + 1, lo, hi;
    struct zt_place at;

    zt_tile_zero(sum);
    for (at.b = bb; at.b < b_end; at.b++) {
        zt_attn_keys(f.t, at.b, q0, &lo, &hi);
        for (at.h = hh; k0 >= lo && k0 < hi && at.h < h_end; at.h++) {
            at.kv = at.h / (f.t.heads / f.t.kv_heads);
            load_rows(f, at, q0, &r);
            score_gradients(p, ds, f, at, q0, k0, &r, &a, &b);
            for (int i = 0; i < 4; i++)
                for (int j = 0; j < 4; j++)
                    sum[i][j] += ds[i][j];
        }
    }
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++)
            put_bias(f, bb, hh, q0 + threadIdx.x / 16 * 4 + i,
                     k0 + threadIdx.x % 16 * 4 + j, sum[i][j]);
}

/* ---- the call ---- */

typedef void (*backward_fn)(struct backward_launch f);

static zt_err read_args(struct backward_launch *f, const struct zt_attention_bwd_args *a,
                        struct zt_fault *fault)
{
    zt_err rc = zt_attn_init(&f->t, &a->fwd, fault);

    if (rc == ZT_OK && f->t.tq > 1 && a->dout.stride[1] < f->t.dim)
        rc = zt_fault_set(fault, ZT_E_ARG, "attention: the positions of dout overlap");
    if (rc != ZT_OK)
        return rc;
    f->dout = zt_heads_of(&a->dout);
    f->dq = zt_heads_of(&a->dq);
    f->dk = zt_heads_of(&a->dk);
    f->dv = zt_heads_of(&a->dv);
    memset(&f->dbias, 0, sizeof(f->dbias));
    if (a->dbias.data)
        f->dbias = zt_heads_of(&a->dbias);
    f->delta = NULL;
    f->accumulate_q = a->accumulate_q;
    f->accumulate_k = a->accumulate_k;
    f->accumulate_v = a->accumulate_v;
    f->accumulate_bias = a->accumulate_bias;
    return ZT_OK;
}

static zt_err find_delta(struct zt_device *dev, struct zt_stream *s,
                         struct backward_launch *f, struct zt_fault *fault)
{
    int64_t num = f->t.batch * f->t.heads * f->t.tq;
    float *delta = static_cast<float *>(zt_cuda_scratch(dev, s));
    zt_err rc;

    if (num > (int64_t)(ZT_CUDA_SCRATCH / sizeof(float)))
        return ZT_OK;
    rc = zt_cuda_launch("attention_bwd", fault, dev, s,
                        zt_cuda_blocks(dev, num * ZT_WARP, ZT_TILE_THREADS),
                        ZT_TILE_THREADS, delta_kernel, *f, delta, num);
    f->delta = delta;
    return rc;
}

zt_err zt_cuda_attention_bwd(struct zt_device *dev, struct zt_stream *s,
                             const struct zt_attention_bwd_args *a,
                             struct zt_fault *fault)
{
    static const backward_fn dq[] = {dq_kernel<1>, dq_kernel<2>, dq_kernel<3>,
                                     dq_kernel<4>};
    static const backward_fn dkv[] = {dkv_kernel<1>, dkv_kernel<2>, dkv_kernel<3>,
                                      dkv_kernel<4>};
    struct backward_launch f;
    zt_err rc = zt_check_attention_bwd(a, fault);
    bool done = false;
    int chunk;

    if (rc == ZT_OK)
        rc = read_args(&f, a, fault);
    if (rc == ZT_OK)
        rc = zt_cuda_sdpa_backward(dev, s, a, &done, fault);
    if (rc != ZT_OK || done || f.t.batch * f.t.kv_heads * f.t.dim == 0)
        return rc;
    chunk = (f.t.dim - 1) / ZT_TILE;
    if (f.t.heads * f.t.tq > 0) {
        rc = find_delta(dev, s, &f, fault);
        if (rc == ZT_OK)
            rc = zt_cuda_launch("attention_bwd", fault, dev, s,
                                zt_attn_blocks(f.t.batch * f.t.heads, f.t.tq),
                                ZT_TILE_THREADS, dq[chunk], f);
    }
    if (rc == ZT_OK && f.t.tk > 0)
        rc = zt_cuda_launch("attention_bwd", fault, dev, s,
                            zt_attn_blocks(f.t.batch * f.t.kv_heads, f.t.tk),
                            ZT_TILE_THREADS, dkv[chunk], f);
    if (rc == ZT_OK && a->dbias.data && zt_view_numel(&a->dbias) > 0)
        rc = zt_cuda_launch("attention_bwd", fault, dev, s,
                            zt_attn_blocks(f.t.bias_batch * f.t.bias_heads, f.t.tq) *
                                zt_attn_blocks(1, f.t.tk),
                            ZT_TILE_THREADS, dbias_kernel, f);
    return rc;
}
