/*
 * Adam and AdamW in one pass: 16 bytes read and 12 written per parameter, and the rounded
 * weight. The operations and their order are part of the contract (backend.h): each is an
 * IEEE operation or an fmaf(), so the bits do not depend on the vectors, and a shard
 * gives what the whole would.
 */
#include <math.h>

#include "kernels/check.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/simd.h"
#include "kernels/cpu/tile.h"
#include "kernels/cpu/philox_words.h"
#include "kernels/split.h"
#include "kernels/stochastic.h"

struct rates {
    float scale, beta1, beta2, rest1, rest2, lr_t, vscale, eps;
    float shrink; /* lr * weight_decay, decoupled */
    float l2;     /* weight_decay, not decoupled */
};

ZT_SIMD static void update_tile(const struct rates *rates, float *restrict p,
                                float *restrict m, float *restrict v,
                                const float *restrict grad, int64_t n)
{
    const struct rates r = *rates;

    for (int64_t i = 0; i < n; i++) {
        float g = fmaf(r.l2, p[i], grad[i] * r.scale);
        float mi = fmaf(r.beta1, m[i], r.rest1 * g);
        float vi = fmaf(r.beta2, v[i], r.rest2 * g * g);
        float step = mi / fmaf(sqrtf(vi), r.vscale, r.eps);
        float kept = fmaf(-r.shrink, p[i], p[i]);

        m[i] = mi;
        v[i] = vi;
        p[i] = fmaf(-r.lr_t, step, kept);
    }
}

/* Elements at ... at + n - 1, n <= ZT_TILE; words are drawn from whole batches. */
ZT_SIMD static void round_tile(uint16_t *restrict param, const float *restrict p,
                               struct zt_philox rng, int64_t at, int64_t n)
{
    uint32_t word[ZT_TILE + 2 * ZT_PHILOX_WORDS_BATCH];
    uint64_t first = rng.offset + (uint64_t)at;
    int64_t lead = (int64_t)(first % ZT_PHILOX_WORDS_BATCH);
    int64_t count = (lead + n + ZT_PHILOX_WORDS_BATCH - 1) / ZT_PHILOX_WORDS_BATCH *
                    ZT_PHILOX_WORDS_BATCH;

    zt_philox_words(rng, first - (uint64_t)lead, count, word);
    for (int64_t i = 0; i < n; i++)
        param[i] = zt_bf16_round_stochastic(p[i], word[lead + i]);
}

ZT_SIMD static void join_tile(const uint16_t *restrict param,
                              const uint16_t *restrict rest, float *restrict p, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        p[i] = zt_join(param[i], rest[i]);
}

ZT_SIMD static void split_tile(const float *restrict p, uint16_t *restrict param,
                               uint16_t *restrict rest, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        struct zt_halves s = zt_split(p[i]);

        param[i] = s.bf16;
        rest[i] = s.rest;
    }
}

struct cpu_adamw_job {
    const struct zt_adamw_args *a;
    struct rates rates;
};

/* Elements at ... at + n - 1, n <= ZT_TILE, of split masters. */
static void update_split_tile(const struct cpu_adamw_job *job, int64_t at, int64_t n)
{
    const struct zt_adamw_args *a = job->a;
    uint16_t *param = (uint16_t *)a->param.data + at;
    uint16_t *rest = (uint16_t *)a->master.data + at;
    float p[ZT_TILE];

    join_tile(param, rest, p, n);
    update_tile(&job->rates, p, (float *)a->m.data + at, (float *)a->v.data + at,
                (const float *)a->grad.data + at, n);
    split_tile(p, param, rest, n);
}

static void update_part(int64_t begin, int64_t end, int thread, void *ctx)
{
    const struct cpu_adamw_job *job = ctx;
    const struct zt_adamw_args *a = job->a;
    float *p = a->master.data;
    const float *grad = a->grad.data;

    (void)thread;
    for (int64_t at = begin; at < end; at += ZT_TILE) {
        int64_t n = end - at < ZT_TILE ? end - at : ZT_TILE;

        if (a->master.dtype == ZT_REST16) {
            update_split_tile(job, at, n);
            continue;
        }
        update_tile(&job->rates, p + at, (float *)a->m.data + at, (float *)a->v.data + at,
                    grad + at, n);
        if (a->stochastic)
            round_tile((uint16_t *)a->param.data + at, p + at, a->rng, at, n);
        else if (a->param.data)
            zt_tile_store(a->param.data, a->param.dtype, at, n, p + at, false);
    }
}

zt_err zt_cpu_adamw(struct zt_device *dev, struct zt_stream *s,
                    const struct zt_adamw_args *a, struct zt_fault *fault)
{
    struct cpu_adamw_job job = {.a = a};
    zt_err rc = zt_check_adamw(a, fault);

    (void)dev;
    (void)s;
    if (rc)
        return rc;
    if (a->skip && *a->skip)
        return ZT_OK;
    job.rates = (struct rates){
        .scale = *a->grad_scale,
        .beta1 = a->beta1,
        .beta2 = a->beta2,
        .rest1 = 1.0f - a->beta1,
        .rest2 = 1.0f - a->beta2,
        .lr_t = a->lr_t,
        .vscale = a->vscale,
        .eps = a->eps,
        .shrink = a->decoupled ? a->lr * a->weight_decay : 0,
        .l2 = a->decoupled ? 0 : a->weight_decay,
    };
    zt_parallel_for(a->master.shape[0], ZT_GRAIN, update_part, &job);
    return ZT_OK;
}
