/*
 * Attention of one query a row over cached keys (kernels/backend.h has the contract).
 *
 * A block has one head of one row. Its warps take keys in turn, warp w those with j % WARPS
 * == w counted from the first that is seen; the lanes of a warp share the dimensions. Each
 * warp keeps a running maximum, the sum of exponentials and the sum of values relative to it;
 * in the end the warps' are added in order. So sums depend on the number of keys alone.
 *
 * The new key and value are read where they are; the first head of its group stores them.
 */
#include "kernels/cuda/attention/attention.h"

#define WARPS    8
#define MOST_DIM ZT_MAX_HEAD_DIM
#define EACH     (MOST_DIM / 32) /* dimensions of a lane, at most */

struct decode_job {
    struct zt_heads q, k, v, k_new, v_new, bias, out;
    const int32_t *lengths;
    int64_t heads, kv_heads, room, bias_batch, bias_heads, bias_keys, window;
    int dim;
    bool has_new;
    float scale;
};

static __device__ __forceinline__ int64_t element(const struct zt_heads &h, int64_t b,
                                                  int64_t t, int64_t head)
{
    return b * h.stride[0] + t * h.stride[1] + head * h.stride[2];
}

/* Where key j of the row is: in the cache, or the new one. */
struct key_place {
    const struct zt_heads *from;
    int64_t at;
};

static __device__ __forceinline__ struct key_place find_key(const struct zt_heads &cache,
                                                            const struct zt_heads &fresh,
                                                            int64_t b, int64_t j,
                                                            int64_t old, int64_t kv)
{
    struct key_place p = {&cache, 0};

    if (j >= old)
        p.from = &fresh;
    p.at = element(*p.from, b, j >= old ? 0 : j, kv);
    return p;
}

/* What a warp has of its keys so far. */
struct partial {
    float max, sum, out[EACH];
};

static __device__ __forceinline__ void take_key(const struct decode_job &t,
                                                struct partial *p, const float q[EACH],
                                                int64_t b, int64_t h, int64_t kv,
                                                int64_t j, int64_t old)
{
    struct key_place k = find_key(t.k, t.k_new, b, j, old, kv);
    struct key_place v = find_key(t.v, t.v_new, b, j, old, kv);
    int lane = (int)threadIdx.x % 32;
    float dot = 0, score, top, shrink, weight;

    ZT_UNROLL
    for (int i = 0; i < EACH; i++)
        if (lane + 32 * i < t.dim)
            dot = fmaf(q[i], zt_get(k.from->data, k.from->dtype, k.at + lane + 32 * i),
                       dot);
    score = zt_warp_sum(dot) * t.scale;
    if (t.bias.data)
        score += zt_get(t.bias.data, t.bias.dtype,
                        (t.bias_batch == 1 ? 0 : b) * t.bias.stride[0] +
                            (t.bias_heads == 1 ? 0 : h) * t.bias.stride[1] + j);
    top = score > p->max ? score : p->max;
    if (top == -INFINITY)
        return;
    shrink = expf(p->max - top);
    weight = expf(score - top);
    p->max = top;
    p->sum = fmaf(p->sum, shrink, weight);
    ZT_UNROLL
    for (int i = 0; i < EACH; i++)
        if (lane + 32 * i < t.dim)
            p->out[i] =
                fmaf(weight, zt_get(v.from->data, v.from->dtype, v.at + lane + 32 * i),
                     __fmul_rn(p->out[i], shrink));
}

/* Dimension d of the new key and value goes where the cache has its end. */
static __device__ __forceinline__ void store_new(const struct decode_job &t, int64_t b,
                                                 int64_t kv, int64_t old)
{
    int64_t k = element(t.k, b, old, kv), v = element(t.v, b, old, kv);
    int64_t k_new = element(t.k_new, b, 0, kv), v_new = element(t.v_new, b, 0, kv);

    for (int d = (int)threadIdx.x; d < t.dim; d += (int)blockDim.x) {
        zt_put(t.k.data, t.k.dtype, k + d,
               zt_get(t.k_new.data, t.k_new.dtype, k_new + d));
        zt_put(t.v.data, t.v.dtype, v + d,
               zt_get(t.v_new.data, t.v_new.dtype, v_new + d));
    }
}

static __global__ void __launch_bounds__(32 * WARPS) decode_kernel(struct decode_job t)
{
    __shared__ float max[WARPS], sum[WARPS], out[WARPS][MOST_DIM];
    int64_t b = blockIdx.x / t.heads, h = blockIdx.x - b * t.heads;
    int64_t group = t.heads / t.kv_heads, kv = h / group, old = t.lengths[b], lo;
    int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    int64_t most = t.room - (t.has_new ? 1 : 0), n;
    struct partial p = {-INFINITY, 0, {0}};
    float q[EACH];

    old = old < 0      ? 0
          : old > most ? most
                       : old; /* nothing outside of the cache is touched */
    n = old + (t.has_new ? 1 : 0);
    lo = t.window && n > t.window ? n - t.window : 0;
    ZT_UNROLL
    for (int i = 0; i < EACH; i++)
        q[i] = lane + 32 * i < t.dim
                   ? zt_get(t.q.data, t.q.dtype, element(t.q, b, 0, h) + lane + 32 * i)
                   : 0;
    for (int64_t j = lo + warp; j < n; j += WARPS)
        take_key(t, &p, q, b, h, kv, j, old);
    if (t.has_new && h == kv * group)
        store_new(t, b, kv, old);
    if (lane == 0) {
        max[warp] = p.max;
        sum[warp] = p.sum;
    }
    ZT_UNROLL
    for (int i = 0; i < EACH; i++)
        if (lane + 32 * i < t.dim)
            out[warp][lane + 32 * i] = p.out[i];
    __syncthreads();
    for (int d = (int)threadIdx.x; d < t.dim; d += (int)blockDim.x) {
        float top = -INFINITY, whole = 0, value = 0;

        for (int w = 0; w < WARPS; w++)
            top = max[w] > top ? max[w] : top;
        for (int w = 0; w < WARPS && top > -INFINITY; w++) {
            float shrink = expf(max[w] - top);

            whole = fmaf(sum[w], shrink, whole);
            value = fmaf(out[w][d], shrink, value);
        }
        zt_put(t.out.data, t.out.dtype, element(t.out, b, 0, h) + d,
               whole == 0 ? 0 : value / whole);
    }
}

zt_err zt_cuda_attention_decode(struct zt_device *dev, struct zt_stream *s,
                                const struct zt_attention_decode_args *a,
                                struct zt_fault *fault)
{
    struct decode_job t = {};
    zt_err rc = zt_check_attention_decode(a, fault);

    if (rc)
        return rc;
    if (a->q.shape[3] > MOST_DIM)
        return zt_fault_set(fault, ZT_E_UNSUPPORTED,
                            "attention_decode: heads of %lld dimensions; at most %d",
                            (long long)a->q.shape[3], MOST_DIM);
    t.q = zt_heads_of(&a->q);
    t.k = zt_heads_of(&a->k);
    t.v = zt_heads_of(&a->v);
    t.out = zt_heads_of(&a->out);
    t.has_new = a->k_new.data != NULL;
    t.k_new = t.has_new ? zt_heads_of(&a->k_new) : t.k;
    t.v_new = t.has_new ? zt_heads_of(&a->v_new) : t.v;
    if (a->bias.data) {
        t.bias = zt_heads_of(&a->bias);
        t.bias_batch = a->bias.shape[0];
        t.bias_heads = a->bias.shape[1];
    }
    t.lengths = static_cast<const int32_t *>(a->lengths.data);
    t.heads = a->q.shape[2];
    t.kv_heads = a->k.shape[2];
    t.room = a->k.shape[1];
    t.dim = (int)a->q.shape[3];
    t.scale = a->scale;
    t.window = a->window;
    if (a->q.shape[0] * t.heads * t.dim == 0)
        return ZT_OK;
    return zt_cuda_launch("attention_decode", fault, dev, s,
                          (unsigned)(a->q.shape[0] * t.heads), 32 * WARPS, decode_kernel,
                          t);
}
