/*
 * Adam and AdamW in one pass: 16 bytes read and 12 written per parameter, and the rounded
 * weight. The operations and their order are the contract (backend.h), each an IEEE
 * operation or an fmaf(): the bits are those of the cpu backend, wherever a shard begins.
 */
#include "kernels/cuda/operand.h"
#include "kernels/split.h"
#include "kernels/stochastic.h"

#define QUAD 4 /* elements of a thread: one 16-byte access per array */

struct adamw_job {
    float *p, *m, *v; /* p NULL: param and rest are the masters */
    uint16_t *rest;
    const float *grad;
    void *param; /* NULL: absent */
    zt_dtype param_type;
    const float *scale;
    const uint32_t *skip;
    int64_t n;
    float beta1, beta2, rest1, rest2, lr_t, vscale, eps;
    float shrink; /* lr * weight_decay, decoupled */
    float l2;     /* weight_decay, not decoupled */
    bool wide, stochastic;
    struct zt_philox rng;
};

static __device__ __forceinline__ void update(const struct adamw_job &r, float scale,
                                              float *p, float *m, float *v, float grad)
{
    float g = fmaf(r.l2, *p, __fmul_rn(grad, scale));
    float step, kept;

    *m = fmaf(r.beta1, *m, __fmul_rn(r.rest1, g));
    *v = fmaf(r.beta2, *v, __fmul_rn(__fmul_rn(r.rest2, g), g));
    step = __fdiv_rn(*m, fmaf(__fsqrt_rn(*v), r.vscale, r.eps));
    kept = fmaf(-r.shrink, *p, *p);
    *p = fmaf(-r.lr_t, step, kept);
}

/* wide: all of the quad exists, on a 16-byte boundary */
template <bool wide>
static __device__ __forceinline__ void load_quad(float x[QUAD], const float *from,
                                                 int64_t left)
{
    if (wide) {
        float4 q = *reinterpret_cast<const float4 *>(from);

        x[0] = q.x;
        x[1] = q.y;
        x[2] = q.z;
        x[3] = q.w;
    } else {
        for (int i = 0; i < QUAD; i++)
            x[i] = i < left ? from[i] : 0.0f;
    }
}

template <bool wide>
static __device__ __forceinline__ void store_quad(float *to, const float x[QUAD],
                                                  int64_t left)
{
    if (wide) {
        *reinterpret_cast<float4 *>(to) = make_float4(x[0], x[1], x[2], x[3]);
    } else {
        for (int i = 0; i < QUAD; i++)
            if (i < left)
                to[i] = x[i];
    }
}

template <bool wide, typename T>
static __device__ __forceinline__ void store_halves(T *to, const T e[QUAD], int64_t left)
{
    uint2 word;

    if (wide) {
        memcpy(&word, e, sizeof(word));
        *reinterpret_cast<uint2 *>(to) = word;
    } else {
        for (int i = 0; i < QUAD; i++)
            if (i < left)
                to[i] = e[i];
    }
}

template <bool wide>
static __device__ __forceinline__ void load_halves(uint16_t e[QUAD], const uint16_t *from,
                                                   int64_t left)
{
    if (wide) {
        uint2 word = *reinterpret_cast<const uint2 *>(from);

        memcpy(e, &word, sizeof(word));
    } else {
        for (int i = 0; i < QUAD; i++)
            e[i] = i < left ? from[i] : (uint16_t)0;
    }
}

template <bool wide>
static __device__ __forceinline__ void load_split(float p[QUAD],
                                                  const struct adamw_job &a, int64_t at)
{
    uint16_t high[QUAD], rest[QUAD];

    load_halves<wide>(high, static_cast<const uint16_t *>(a.param) + at, a.n - at);
    load_halves<wide>(rest, a.rest + at, a.n - at);
    for (int i = 0; i < QUAD; i++)
        p[i] = zt_join(high[i], rest[i]);
}

template <bool wide>
static __device__ __forceinline__ void store_split(const struct adamw_job &a, int64_t at,
                                                   const float p[QUAD])
{
    uint16_t high[QUAD], rest[QUAD];

    for (int i = 0; i < QUAD; i++) {
        struct zt_halves s = zt_split(p[i]);

        high[i] = s.bf16;
        rest[i] = s.rest;
    }
    store_halves<wide>(static_cast<uint16_t *>(a.param) + at, high, a.n - at);
    store_halves<wide>(a.rest + at, rest, a.n - at);
}

template <bool wide, typename T>
static __device__ __forceinline__ void round_quad(T *to, const float x[QUAD],
                                                  int64_t left)
{
    T e[QUAD];

    for (int i = 0; i < QUAD; i++)
        e[i] = zt_round<T>(x[i]);
    store_halves<wide>(to, e, left);
}

/* Four elements are those of one counter, unless the slice begins between two. */
template <bool wide>
static __device__ __forceinline__ void round_stochastically(const struct adamw_job &a,
                                                            int64_t at,
                                                            const float x[QUAD])
{
    uint16_t *to = static_cast<uint16_t *>(a.param) + at, e[QUAD];
    uint64_t first = a.rng.offset + (uint64_t)at;
    uint32_t word[QUAD];

    if (first % QUAD == 0)
        zt_philox_block(a.rng, first / QUAD, word);
    else
        for (int i = 0; i < QUAD; i++)
            word[i] = zt_philox_u32(a.rng, (uint64_t)(at + i));
    for (int i = 0; i < QUAD; i++)
        e[i] = zt_bf16_round_stochastic(x[i], word[i]);
    store_halves<wide>(to, e, a.n - at);
}

template <bool wide>
static __device__ __forceinline__ void store_param(const struct adamw_job &a, int64_t at,
                                                   const float p[QUAD])
{
    if (a.stochastic)
        round_stochastically<wide>(a, at, p);
    else if (a.param_type == ZT_F32)
        store_quad<wide>(static_cast<float *>(a.param) + at, p, a.n - at);
    else if (a.param_type == ZT_BF16)
        round_quad<wide>(static_cast<__nv_bfloat16 *>(a.param) + at, p, a.n - at);
    else
        round_quad<wide>(static_cast<__half *>(a.param) + at, p, a.n - at);
}

template <bool wide>
static __device__ __forceinline__ void update_quad(const struct adamw_job &a, float scale,
                                                   int64_t at)
{
    float p[QUAD], m[QUAD], v[QUAD], g[QUAD];
    int64_t left = a.n - at;

    if (a.p)
        load_quad<wide>(p, a.p + at, left);
    else
        load_split<wide>(p, a, at);
    load_quad<wide>(m, a.m + at, left);
    load_quad<wide>(v, a.v + at, left);
    load_quad<wide>(g, a.grad + at, left);
    for (int i = 0; i < QUAD; i++)
        update(a, scale, &p[i], &m[i], &v[i], g[i]);
    store_quad<wide>(a.m + at, m, left);
    store_quad<wide>(a.v + at, v, left);
    if (a.p)
        store_quad<wide>(a.p + at, p, left);
    else
        store_split<wide>(a, at, p);
    if (a.p && a.param)
        store_param<wide>(a, at, p);
}

static __global__ void __launch_bounds__(ZT_THREADS) adamw_kernel(struct adamw_job a)
{
    float scale = *a.scale;

    if (a.skip && *a.skip)
        return;
    for (int64_t at = zt_thread_index() * QUAD; at < a.n;
         at += zt_thread_count() * QUAD) {
        if (a.wide && a.n - at >= QUAD)
            update_quad<true>(a, scale, at);
        else
            update_quad<false>(a, scale, at);
    }
}

zt_err zt_cuda_adamw(struct zt_device *dev, struct zt_stream *s,
                     const struct zt_adamw_args *a, struct zt_fault *fault)
{
    zt_err rc = zt_check_adamw(a, fault);
    struct adamw_job job = {};

    if (rc || a->master.shape[0] == 0)
        return rc;
    if (a->master.dtype == ZT_REST16)
        job.rest = static_cast<uint16_t *>(a->master.data);
    else
        job.p = static_cast<float *>(a->master.data);
    job.m = static_cast<float *>(a->m.data);
    job.v = static_cast<float *>(a->v.data);
    job.grad = static_cast<const float *>(a->grad.data);
    job.param = a->param.data;
    job.param_type = a->param.dtype;
    job.scale = a->grad_scale;
    job.skip = a->skip;
    job.n = a->master.shape[0];
    job.beta1 = a->beta1;
    job.beta2 = a->beta2;
    job.rest1 = 1.0f - a->beta1;
    job.rest2 = 1.0f - a->beta2;
    job.lr_t = a->lr_t;
    job.vscale = a->vscale;
    job.eps = a->eps;
    job.shrink = a->decoupled ? a->lr * a->weight_decay : 0.0f;
    job.l2 = a->decoupled ? 0.0f : a->weight_decay;
    job.stochastic = a->stochastic;
    job.rng = a->rng;
    job.wide = zt_is_aligned(a->master.data) && zt_is_aligned(job.m) &&
               zt_is_aligned(job.v) && zt_is_aligned(job.grad) &&
               zt_is_aligned(job.param);
    return zt_cuda_launch("adamw", fault, dev, s,
                          zt_cuda_blocks(dev, (job.n + QUAD - 1) / QUAD, ZT_THREADS),
                          ZT_THREADS, adamw_kernel, job);
}
