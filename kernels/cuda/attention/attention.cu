/*
 * Attention forward: a block owns 64 queries of one head and walks over the keys they
 * see, keeping the running maximum and sum of each row (Dao et al. 2022). The order of
 * all sums follows from the shapes.
 */
#include "kernels/cuda/attention/attention.h"

/* ---- the call ---- */

struct zt_heads zt_heads_of(const struct zt_view *v)
{
    uintptr_t quad = 4 * zt_dtype_bytes(v->dtype);
    struct zt_heads m;

    m.data = v->data;
    m.dtype = v->dtype;
    m.wide = v->shape[3] % 4 == 0 && (uintptr_t)v->data % quad == 0;
    for (int i = 0; i < 3; i++) {
        m.stride[i] = v->stride[i];
        m.wide = m.wide && (v->shape[i] <= 1 || v->stride[i] % 4 == 0);
    }
    return m;
}

static bool overlaps(const struct zt_view *v)
{
    return v->shape[1] > 1 && v->stride[1] < v->shape[3];
}

zt_err zt_attn_init(struct zt_attn *t, const struct zt_attention_args *a,
                    struct zt_fault *fault)
{
    if (overlaps(&a->q) || overlaps(&a->k) || overlaps(&a->v))
        return zt_fault_set(fault, ZT_E_ARG,
                            "attention: the positions of q, k and v must not overlap");
    if (a->q.shape[3] > ZT_MAX_HEAD_DIM)
        return zt_fault_set(fault, ZT_E_UNSUPPORTED,
                            "cuda: attention: heads of %lld dimensions, %d at most",
                            (long long)a->q.shape[3], ZT_MAX_HEAD_DIM);
    memset(t, 0, sizeof(*t));
    t->q = zt_heads_of(&a->q);
    t->k = zt_heads_of(&a->k);
    t->v = zt_heads_of(&a->v);
    t->out = zt_heads_of(&a->out);
    if (a->bias.data) {
        t->bias = zt_heads_of(&a->bias);
        t->bias_batch = a->bias.shape[0];
        t->bias_heads = a->bias.shape[1];
    }
    if (a->mask.data) {
        t->mask = zt_heads_of(&a->mask);
        t->mask_batch = a->mask.shape[0];
        t->mask_heads = a->mask.shape[1];
    }
    t->batch = a->q.shape[0];
    t->tq = a->q.shape[1];
    t->heads = a->q.shape[2];
    t->tk = a->k.shape[1];
    t->kv_heads = a->k.shape[2];
    t->dim = (int)a->q.shape[3];
    t->lse = static_cast<float *>(a->lse.data);
    t->scale = a->scale;
    t->causal = a->causal;
    t->window = a->window < t->tq + t->tk ? a->window : 0;
    t->key_begin = static_cast<const int32_t *>(a->key_begin.data);
    t->key_end = static_cast<const int32_t *>(a->key_end.data);
    t->rng = a->rng;
    t->drop_below = a->dropout > 0 ? zt_philox_drop_below(a->dropout) : 0;
    t->keep = 1 / (1 - a->dropout);
    return ZT_OK;
}

/* ---- forward ---- */

/* Over the 16 threads that share rows. */
static __device__ __forceinline__ float row_max(float x)
{
    for (int d = 8; d; d /= 2)
        x = fmaxf(x, __shfl_xor_sync(0xFFFFFFFFu, x, d));
    return x;
}

static __device__ __forceinline__ float row_sum(float x)
{
    for (int d = 8; d; d /= 2)
        x += __shfl_xor_sync(0xFFFFFFFFu, x, d);
    return x;
}

/*
 * Scores of one row become kept exponentials; returns what sums so far must be multiplied
 * with. A NaN passes the maximum by and shows in the sum.
 */
static __device__ __forceinline__ float next_row(float s[4], const float keep[4],
                                                 float *max, float *sum)
{
    float top = row_max(fmaxf(fmaxf(s[0], s[1]), fmaxf(s[2], s[3]))), mine = 0, factor;

    top = fmaxf(top, *max);
    factor = top == *max ? 1.0f : expf(*max - top);
    for (int j = 0; j < 4; j++) {
        float e = expf(s[j] - (top == -INFINITY ? 0.0f : top));

        mine += e;
        s[j] = e * keep[j];
    }
    *max = top;
    *sum = *sum * factor + row_sum(mine);
    return factor;
}

/* acc of a row becomes its output; a row that sees nothing gives zeros. */
template <int CHUNKS>
static __device__ __forceinline__ void finish_row(const struct zt_attn &t,
                                                  const struct zt_place &at, int64_t row,
                                                  const float acc[CHUNKS][4][4], int i,
                                                  float max, float sum)
{
    struct zt_head out = zt_head_of(t, t.out, at.b, at.h, t.tq);
    int col = (int)(threadIdx.x % 16) * 4;

    ZT_UNROLL
    for (int c = 0; c < CHUNKS; c++) {
        float x[4];

        for (int j = 0; j < 4; j++)
            x[j] = sum == 0 ? 0.0f : acc[c][i][j] / sum;
        zt_head_put(out, row, c * ZT_TILE + col, x, 1.0f, false);
    }
    if (t.lse && col == 0 && row < t.tq)
        t.lse[(at.b * t.heads + at.h) * t.tq + row] =
            sum == 0 ? -INFINITY : max + logf(sum);
}

template <int CHUNKS>
static __global__ void __launch_bounds__(ZT_TILE_THREADS) forward_kernel(struct zt_attn t)
{
    __shared__ struct zt_tile a, b;
    float acc[CHUNKS][4][4], s[4][4], keep[4], sum[4] = {0, 0, 0, 0};
    float max[4] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY};
    int64_t tiles = (t.tq + ZT_TILE - 1) / ZT_TILE, head = blockIdx.x / tiles;
    int64_t q0 = (tiles - 1 - blockIdx.x % tiles) * ZT_TILE; /* causal: longest first */
    int64_t row = q0 + threadIdx.x / 16 * 4, lo, hi;
    struct zt_place at;

    at.b = head / t.heads;
    at.h = head % t.heads;
    at.kv = at.h / (t.heads / t.kv_heads);
    struct zt_head v = zt_head_of(t, t.v, at.b, at.kv, t.tk);

    ZT_UNROLL
    for (int c = 0; c < CHUNKS; c++)
        zt_tile_zero(acc[c]);
    zt_attn_keys(t, at.b, q0, &lo, &hi);
    for (int64_t k0 = lo; k0 < hi; k0 += ZT_TILE) {
        zt_attn_scores(s, t, at, q0, k0, &a, &b);
        ZT_UNROLL
        for (int i = 0; i < 4; i++) {
            float factor;

            zt_attn_keep(keep, t, at, row + i, k0 + threadIdx.x % 16 * 4);
            factor = next_row(s[i], keep, &max[i], &sum[i]);
            ZT_UNROLL
            for (int c = 0; c < CHUNKS; c++)
                for (int j = 0; j < 4; j++)
                    acc[c][i][j] *= factor;
        }
        zt_tile_write<true>(&a, s);
        zt_tile_apply<CHUNKS>(acc, &a, &b, v, k0);
    }
    ZT_UNROLL
    for (int i = 0; i < 4; i++)
        finish_row<CHUNKS>(t, at, row + i, acc, i, max[i], sum[i]);
}

typedef void (*forward_fn)(struct zt_attn t);

zt_err zt_cuda_attention(struct zt_device *dev, struct zt_stream *s,
                         const struct zt_attention_args *a, struct zt_fault *fault)
{
    static const forward_fn by_chunks[] = {forward_kernel<1>, forward_kernel<2>,
                                           forward_kernel<3>, forward_kernel<4>};
    struct zt_attn t;
    bool done = false;
    zt_err rc = zt_check_attention(a, fault);

    if (rc == ZT_OK)
        rc = zt_attn_init(&t, a, fault);
    if (rc == ZT_OK)
        rc = zt_cuda_sdpa_forward(dev, s, a, &done, fault);
    if (rc != ZT_OK || done || t.batch * t.heads * t.tq * t.dim == 0)
        return rc;
    return zt_cuda_launch("attention", fault, dev, s,
                          zt_attn_blocks(t.batch * t.heads, t.tq), ZT_TILE_THREADS,
                          by_chunks[(t.dim - 1) / ZT_TILE], t);
}
