/*
 * decode.c -- attention of one query a row over keys that earlier passes left.
 *
 * The keys of a head lie far apart, and each is read once: what counts is memory. A task is
 * one head of one row: scores by key, their exponentials, the sum of values by key. Scores
 * are sums in the order of dot16.h, the sum of exponentials is that of softmax; values are
 * added key by key, in order.
 */
#include <math.h>
#include <string.h>

#include "kernels/check.h"
#include "kernels/cpu/attention/attention.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/dot16.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/softmax.h"
#include "kernels/integers.h"

#define TOGETHER 4 /* keys that are worked on together */

struct decode {
    const struct zt_attention_decode_args *a;
    int64_t heads, group, dim, room; /* group: queries to a head of keys */
    uintptr_t scratch;               /* of thread 0 */
    size_t each;                     /* bytes of scratch of a thread */
};

/* One thread's scratch. */
struct decode_scratch {
    float *q, *out; /* (dim) */
    float *keys;    /* (TOGETHER, dim): of 16-bit keys and values */
    float *score;   /* (room) */
    float *p;       /* (room): the bias, then exponentials */
};

static size_t place(const struct decode *d, uintptr_t base, struct decode_scratch *s)
{
    float **const part[] = {&s->q, &s->out, &s->keys, &s->score, &s->p};
    const int64_t floats[] = {d->dim, d->dim, TOGETHER * d->dim, d->room, d->room};
    size_t at = 0;

    for (size_t i = 0; i < sizeof(floats) / sizeof(floats[0]); i++) {
        *part[i] = (float *)(base + at);
        at += ((size_t)floats[i] * sizeof(float) + 63) / 64 * 64;
    }
    return (at + 4095) / 4096 * 4096;
}

/* out[i] = q . key[i], for `num` keys (at most TOGETHER) */
ZT_SIMD static void scores_of(float *out, const float *q,
                              const float *const key[TOGETHER], int num, int64_t dim)
{
    for (int n = 0; n < num; n++)
        out[n] = zt_dot16(q, key[n], dim);
}

/* out += p[0] value[0] + ..., one after the other */
ZT_SIMD static void add_values(float *restrict out, const float *p,
                               const float *restrict a, const float *restrict b,
                               const float *restrict c, const float *restrict d,
                               int64_t dim)
{
    for (int64_t i = 0; i < dim; i++)
        out[i] = fmaf(p[3], d[i],
                      fmaf(p[2], c[i], fmaf(p[1], b[i], fmaf(p[0], a[i], out[i]))));
}

ZT_SIMD static void add_value(float *restrict out, float p, const float *restrict a,
                              int64_t dim)
{
    for (int64_t i = 0; i < dim; i++)
        out[i] = fmaf(p, a[i], out[i]);
}

ZT_SIMD static void scale_scores(float *restrict p, const float *bias, float scale,
                                 int64_t n)
{
    if (bias)
        for (int64_t i = 0; i < n; i++)
            p[i] = fmaf(p[i], scale, bias[i]);
    else
        for (int64_t i = 0; i < n; i++)
            p[i] *= scale;
}

/* Rows at, at + 1, ... (num) of a head as fp32: where they are, or widened into `buf`. */
static void load_keys(const struct zt_view *v, int64_t b, int64_t at, int64_t head,
                      int num, float *buf, const float *out[TOGETHER])
{
    int64_t dim = v->shape[3];

    for (int i = 0; i < num; i++) {
        const void *row = zt_attention_at(v, b, at + i, head);

        out[i] = v->dtype == ZT_F32 ? row : buf + i * dim;
        if (v->dtype != ZT_F32)
            zt_load_row(buf + i * dim, row, v->dtype, 1, dim);
    }
}

/* p[i] = exp(score[i] - the largest); returns their sum. */
static float softmax(float *p, const float *score, int64_t n)
{
    struct zt_row row = zt_row_at(score, ZT_F32, 0, NULL);
    double total;
    float max;

    zt_row_max_sum(&row, n, &max, &total);
    zt_tile_exp(p, score, max == -INFINITY ? 0 : max, 1, n);
    return (float)total;
}

static void attend(const struct decode *d, int64_t b, int64_t h,
                   const struct decode_scratch *s)
{
    const struct zt_attention_decode_args *a = d->a;
    int64_t n = ((const int32_t *)a->lengths.data)[b] + (a->k_new.data != NULL);
    int64_t lo = a->window ? zt_max(0, n - a->window) : 0, kv = h / d->group;
    const struct zt_view *bias = &a->bias;
    const float *key[TOGETHER];
    float sum = 0;

    zt_load_row(s->q, zt_attention_at(&a->q, b, 0, h), a->q.dtype, 1, d->dim);
    memset(s->out, 0, (size_t)d->dim * sizeof(float));
    for (int64_t j = lo; j < n; j += TOGETHER) {
        int num = (int)zt_min(TOGETHER, n - j);

        load_keys(&a->k, b, j, kv, num, s->keys, key);
        scores_of(s->score + j - lo, s->q, key, num, d->dim);
    }
    if (bias->data)
        zt_load_row(s->p,
                    (char *)zt_attention_at(bias, bias->shape[0] == 1 ? 0 : b,
                                            bias->shape[1] == 1 ? 0 : h, 0) +
                        lo * (int64_t)zt_dtype_bytes(bias->dtype),
                    bias->dtype, 1, n - lo);
    scale_scores(s->score, bias->data ? s->p : NULL, a->scale, n - lo);
    if (n > lo)
        sum = softmax(s->p, s->score, n - lo);
    for (int64_t j = lo; j < n; j += TOGETHER) {
        int num = (int)zt_min(TOGETHER, n - j);
        const float *p = s->p + j - lo;

        load_keys(&a->v, b, j, kv, num, s->keys, key);
        if (num == TOGETHER)
            add_values(s->out, p, key[0], key[1], key[2], key[3], d->dim);
        for (int i = 0; num < TOGETHER && i < num; i++)
            add_value(s->out, p[i], key[i], d->dim);
    }
    for (int64_t i = 0; i < d->dim; i++)
        s->out[i] = sum == 0 ? 0 : s->out[i] / sum;
    zt_store_row(zt_attention_at(&a->out, b, 0, h), a->out.dtype, 1, s->out, d->dim);
}

static void decode_heads(int64_t begin, int64_t end, int thread, void *ctx)
{
    const struct decode *d = ctx;
    struct decode_scratch s;

    place(d, d->scratch + (size_t)thread * d->each, &s);
    for (int64_t i = begin; i < end; i++)
        attend(d, i / d->heads, i % d->heads, &s);
}

/* The new key of each row behind those that it has. */
static void store_new(const struct zt_view *from, const struct zt_view *to,
                      const int32_t *lengths)
{
    size_t bytes = (size_t)from->shape[3] * zt_dtype_bytes(from->dtype);

    for (int64_t b = 0; b < from->shape[0]; b++)
        for (int64_t h = 0; h < from->shape[2]; h++)
            memcpy(zt_attention_at(to, b, lengths[b], h), zt_attention_at(from, b, 0, h),
                   bytes);
}

static zt_err check_lengths(const struct zt_attention_decode_args *a,
                            struct zt_fault *fault)
{
    const int32_t *lengths = a->lengths.data;
    int64_t room = a->k.shape[1] - (a->k_new.data != NULL);

    if (a->bias.data && a->bias.shape[3] < a->k.shape[1])
        room = zt_min(room, a->bias.shape[3] - (a->k_new.data != NULL));
    for (int64_t b = 0; b < a->lengths.shape[0]; b++)
        if (lengths[b] < 0 || lengths[b] > room)
            return zt_fault_set(fault, ZT_E_ARG,
                                "attention_decode: row %lld has %d keys, and there is "
                                "room for %lld",
                                (long long)b, (int)lengths[b], (long long)room);
    return ZT_OK;
}

zt_err zt_cpu_attention_decode(struct zt_device *dev, struct zt_stream *s,
                               const struct zt_attention_decode_args *a,
                               struct zt_fault *fault)
{
    struct decode d = {.a = a};
    struct decode_scratch unused;
    int64_t rows, keys;
    void *mem;
    zt_err rc = zt_check_attention_decode(a, fault);

    (void)s;
    if (!rc)
        rc = check_lengths(a, fault);
    if (rc)
        return rc;
    rows = a->q.shape[0];
    d.heads = a->q.shape[2];
    d.group = d.heads / a->k.shape[2];
    d.dim = a->q.shape[3];
    d.room = a->k.shape[1];
    if (rows * d.heads * d.dim == 0)
        return ZT_OK;
    d.each = place(&d, 0, &unused);
    rc = zt_cpu_scratch(dev, ZT_SCRATCH_ATTENTION, d.each * (size_t)zt_num_threads(),
                        &mem, fault);
    if (rc)
        return rc;
    d.scratch = (uintptr_t)mem;
    if (a->k_new.data) {
        store_new(&a->k_new, &a->k, a->lengths.data);
        store_new(&a->v_new, &a->v, a->lengths.data);
    }
    keys = ((const int32_t *)a->lengths.data)[0] + 1;
    zt_parallel_for(rows * d.heads, zt_max(1, ZT_GRAIN / (2 * keys * d.dim + 1)),
                    decode_heads, &d);
    return ZT_OK;
}
