/*
 * attention_problem.h -- a call of attention and of its backward with all their tensors, and the
 * same in float64 with the whole matrix of scores held.
 */
#ifndef TEST_UNIT_KERNELS_ATTENTION_PROBLEM_H
#define TEST_UNIT_KERNELS_ATTENTION_PROBLEM_H

#include "test/unit/kernels/ref.h"

#include "kernels/cpu/features.h"
#include "kernels/cpu/gemm/bf16_dot.h"
#include "kernels/cpu/gemm/gemm.h"
#include "kernels/philox.h"
#include "test/unit/sample.h"

static struct zt_device *dev;

static int open_device(void **state)
{
    (void)state;
    return zt_cpu_backend.open(0, 2, &dev, NULL) == ZT_OK ? 0 : -1;
}

static int close_device(void **state)
{
    (void)state;
    zt_cpu_backend.close(dev);
    return 0;
}

/* ---- on matrix tiles, or their emulation ---- */

static unsigned features; /* of this processor */

/* Whether bf16 can be multiplied by them: what packs for them needs AVX-512. */
static bool has_tiles_or_emulation(void)
{
    return strcmp(REF_BACKEND.name, "cpu") == 0 &&
           (zt_cpu_features() & ZT_CPU_AVX512_BF16);
}

static int open_with_tiles(void **state)
{
    features = zt_cpu_features();
    zt_cpu_set_features(features | ZT_CPU_AMX_BF16 | ZT_CPU_FAST_BF16);
    return zt_dot_is_supported() && zt_dot_form()->pack_rows ? open_device(state) : -1;
}

static int close_with_tiles(void **state)
{
    zt_cpu_set_features(features);
    return close_device(state);
}

/* How the tests end as this processor runs them, and once more on tiles. */
#define RUN_WITH_AND_WITHOUT_TILES(tests)                                                \
    (cmocka_run_group_tests(tests, open_device, close_device) +                          \
     (has_tiles_or_emulation()                                                           \
          ? cmocka_run_group_tests(tests, open_with_tiles, close_with_tiles)             \
          : 0))

static uint64_t seed = 7;

static float uniform(void)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (float)((double)(seed >> 33) / (1u << 30) - 1.0);
}

/* ---- a problem ---- */

/* Which keys each query may see. */
enum limits {
    ALL_KEYS,
    BEGINS,   /* samples share rows; each query has the begin of its own */
    SEGMENTS, /* and the end */
    ANYTHING  /* ends that follow no order, empty and beyond the keys */
};

struct shape {
    int64_t batch, tq, tk, heads, kv_heads, dim;
    bool causal;
    int64_t window;
    int64_t bias_batch, bias_heads; /* 0: no bias */
    int64_t mask_batch, mask_heads; /* 0: no mask */
    float dropout;
    zt_dtype dtype;
    bool packed;     /* q, k and v are columns of one matrix of rows */
    bool accumulate; /* add to what the gradients hold */
    enum limits limits;
    int64_t sample; /* of limits: tokens of a sample, at most */
};

/* Every tensor of a forward and a backward call. */
struct problem {
    struct shape s;
    struct zt_attention_bwd_args a;
    void *mem[16];
    size_t bytes[16];
    int num;
};

static struct zt_view tensor(struct problem *p, zt_dtype dtype, const int64_t shape[4])
{
    struct zt_view v = zt_view_of(NULL, dtype, 4, shape);
    int64_t n = zt_view_numel(&v);
    size_t width = zt_dtype_bytes(dtype);

    v.data = ref_alloc((size_t)n * width + 1);
    assert_non_null(v.data);
    for (int64_t i = 0; i < n; i++) {
        float x = uniform();
        zt_store_row((char *)v.data + (size_t)i * width, dtype, 1, &x, 1);
    }
    p->mem[p->num] = v.data;
    p->bytes[p->num++] = (size_t)n * width;
    return v;
}

/* Heads [from, from + heads) of a view. */
static struct zt_view heads_of(struct zt_view v, int64_t from, int64_t heads)
{
    v.data = (char *)v.data + from * v.stride[2] * (int64_t)zt_dtype_bytes(v.dtype);
    v.shape[2] = heads;
    return v;
}

static struct zt_view limit_view(struct problem *p)
{
    const int64_t shape[2] = {p->s.batch, p->s.tq};
    struct zt_view v = zt_view_of(NULL, ZT_I32, 2, shape);

    p->bytes[p->num] = (size_t)zt_view_numel(&v) * sizeof(int32_t);
    v.data = ref_alloc(p->bytes[p->num] + 1);
    assert_non_null(v.data);
    p->mem[p->num++] = v.data;
    return v;
}

/* A whole number in [0, below). */
static int64_t number(int64_t below)
{
    return (int64_t)((uniform() + 1) / 2 * (float)below * 0.999f);
}

static void set_limits(struct problem *p)
{
    const struct shape *s = &p->s;
    struct zt_attention_args *f = &p->a.fwd;
    struct zt_view begin, end;
    int32_t *from, *to;

    if (s->limits == ALL_KEYS)
        return;
    begin = limit_view(p);
    end = limit_view(p);
    from = begin.data;
    to = end.data;
    for (int64_t b = 0; b < s->batch; b++)
        for (int64_t i = 0, first = 0, next = 0; i < s->tq; i++) {
            if (i == next) {
                first = i;
                next = i + 1 + number(s->sample);
                next = next < s->tq ? next : s->tq;
            }
            from[b * s->tq + i] = (int32_t)first;
            to[b * s->tq + i] = (int32_t)next;
            if (s->limits == ANYTHING) {
                from[b * s->tq + i] = (int32_t)(number(s->tk + 4) - 2);
                to[b * s->tq + i] = (int32_t)(from[b * s->tq + i] + number(s->sample));
            }
        }
    f->key_begin = begin;
    if (s->limits != BEGINS)
        f->key_end = end;
}

static void setup(struct problem *p, const struct shape *s)
{
    const int64_t q[4] = {s->batch, s->tq, s->heads, s->dim};
    const int64_t k[4] = {s->batch, s->tk, s->kv_heads, s->dim};
    const int64_t both[4] = {s->batch, s->tq, s->heads + 2 * s->kv_heads, s->dim};
    const int64_t lse[4] = {1, s->batch, s->heads, s->tq};
    const int64_t bias[4] = {s->bias_batch, s->bias_heads, s->tq, s->tk};
    const int64_t mask[4] = {s->mask_batch, s->mask_heads, s->tq, s->tk};
    struct zt_attention_args *f = &p->a.fwd;

    *p = (struct problem){.s = *s};
    if (s->packed) {
        struct zt_view qkv = tensor(p, s->dtype, both), d = tensor(p, s->dtype, both);

        f->q = heads_of(qkv, 0, s->heads);
        f->k = heads_of(qkv, s->heads, s->kv_heads);
        f->v = heads_of(qkv, s->heads + s->kv_heads, s->kv_heads);
        p->a.dq = heads_of(d, 0, s->heads);
        p->a.dk = heads_of(d, s->heads, s->kv_heads);
        p->a.dv = heads_of(d, s->heads + s->kv_heads, s->kv_heads);
    } else {
        f->q = tensor(p, s->dtype, q);
        f->k = tensor(p, s->dtype, k);
        f->v = tensor(p, s->dtype, k);
        p->a.dq = tensor(p, s->dtype, q);
        p->a.dk = tensor(p, s->dtype, k);
        p->a.dv = tensor(p, s->dtype, k);
    }
    f->out = tensor(p, s->dtype, q);
    p->a.dout = tensor(p, s->dtype, q);
    f->lse = tensor(p, ZT_F32, lse);
    f->lse.ndim = 3;
    for (int i = 0; i < 3; i++) {
        f->lse.shape[i] = lse[i + 1];
        f->lse.stride[i] = f->lse.stride[i + 1];
    }
    if (s->bias_batch) {
        f->bias = tensor(p, s->dtype, bias);
        p->a.dbias = tensor(p, ZT_F32, bias);
    }
    if (s->mask_batch)
        f->mask = tensor(p, ZT_F32, mask);
    f->scale = 1 / sqrtf((float)s->dim);
    f->causal = s->causal;
    f->window = s->window;
    f->dropout = s->dropout;
    f->rng = (struct zt_philox){.seed = 42, .stream = 3, .offset = 5};
    p->a.accumulate_q = p->a.accumulate_k = p->a.accumulate_v = p->a.accumulate_bias =
        s->accumulate;
    set_limits(p);
}

static void teardown(struct problem *p)
{
    for (int i = 0; i < p->num; i++)
        ref_free(p->mem[i]);
}

static double get(const struct zt_view *v, int64_t i0, int64_t i1, int64_t i2, int64_t i3)
{
    int64_t at =
        i0 * v->stride[0] + i1 * v->stride[1] + i2 * v->stride[2] + i3 * v->stride[3];
    float x;

    zt_load_row(&x, (const char *)v->data + at * (int64_t)zt_dtype_bytes(v->dtype),
                v->dtype, 1, 1);
    return x;
}

/* ---- the reference ---- */

/* Results in double, dense, in the order of the tensors' axes. */
struct reference {
    double *out, *lse, *dq, *dk, *dv, *dbias;
    double *q, *k, *v, *dout; /* the operands */
};

static double *zeros(int64_t n)
{
    double *x = calloc((size_t)n + 1, sizeof(*x));

    assert_non_null(x);
    return x;
}

static bool sees(const struct problem *p, int64_t b, int64_t i, int64_t j)
{
    const struct shape *s = &p->s;
    const int32_t *begin = p->a.fwd.key_begin.data, *end = p->a.fwd.key_end.data;
    int64_t d = i + s->tk - s->tq, row = b * s->tq + i;

    return (!s->causal || j <= d) && (s->window == 0 || j > d - s->window) &&
           (!begin || j >= begin[row]) && (!end || j < end[row]);
}

static double bias_at(const struct problem *p, int64_t b, int64_t h, int64_t i, int64_t j)
{
    const struct zt_view *v[] = {&p->a.fwd.bias, &p->a.fwd.mask};
    double sum = 0;

    for (int n = 0; n < 2; n++)
        if (v[n]->data)
            sum +=
                get(v[n], v[n]->shape[0] == 1 ? 0 : b, v[n]->shape[1] == 1 ? 0 : h, i, j);
    return sum;
}

/* One row: probabilities, output and all gradients that come from it. */
static void reference_row(const struct problem *p, struct reference *r, int64_t b,
                          int64_t h, int64_t i)
{
    const struct shape *s = &p->s;
    const struct zt_attention_args *f = &p->a.fwd;
    int64_t kv = h / (s->heads / s->kv_heads), d = s->dim;
    int64_t row = (b * s->tq + i) * s->heads + h;
    int64_t keys = (b * s->tk * s->kv_heads + kv) * d, next = s->kv_heads * d;
    const double *q = r->q + row * d, *dout = r->dout + row * d;
    double *prob = zeros(s->tk), *keep = zeros(s->tk), *dp = zeros(s->tk);
    double max = -INFINITY, sum = 0, delta = 0;

    for (int64_t j = 0; j < s->tk; j++) {
        uint64_t e = (uint64_t)(((b * s->heads + h) * s->tq + i) * s->tk + j);

        prob[j] = -INFINITY;
        keep[j] = zt_philox_u32(f->rng, e) < zt_philox_drop_below(s->dropout)
                      ? 0
                      : 1 / (1 - (double)s->dropout);
        if (!sees(p, b, i, j))
            continue;
        prob[j] = bias_at(p, b, h, i, j);
        for (int64_t x = 0; x < d; x++)
            prob[j] += f->scale * q[x] * r->k[keys + j * next + x];
        max = fmax(max, prob[j]);
    }
    for (int64_t j = 0; j < s->tk; j++)
        sum += max == -INFINITY ? 0 : exp(prob[j] - max);
    r->lse[(b * s->heads + h) * s->tq + i] = sum == 0 ? -INFINITY : max + log(sum);
    for (int64_t j = 0; j < s->tk; j++) {
        const double *v = r->v + keys + j * next;

        prob[j] = sum == 0 ? 0 : exp(prob[j] - max) / sum;
        for (int64_t x = 0; prob[j] != 0 && x < d; x++) {
            r->out[row * d + x] += prob[j] * keep[j] * v[x];
            r->dv[keys + j * next + x] += prob[j] * keep[j] * dout[x];
            dp[j] += keep[j] * dout[x] * v[x];
        }
        delta += prob[j] * dp[j];
    }
    for (int64_t j = 0; j < s->tk; j++) {
        double ds = prob[j] * (dp[j] - delta);

        for (int64_t x = 0; prob[j] != 0 && x < d; x++) {
            r->dq[row * d + x] += f->scale * ds * r->k[keys + j * next + x];
            r->dk[keys + j * next + x] += f->scale * ds * q[x];
        }
        if (s->bias_batch)
            r->dbias[(((s->bias_batch == 1 ? 0 : b) * s->bias_heads +
                       (s->bias_heads == 1 ? 0 : h)) *
                          s->tq +
                      i) *
                         s->tk +
                     j] += ds;
    }
    free(prob);
    free(keep);
    free(dp);
}

/* The elements of a tensor. */
static void read_tensor(double *to, const struct zt_view *v)
{
    int64_t at = 0;

    for (int64_t i = 0; i < v->shape[0]; i++)
        for (int64_t j = 0; j < v->shape[1]; j++)
            for (int64_t k = 0; k < v->shape[2]; k++)
                for (int64_t l = 0; l < v->shape[3]; l++)
                    to[at++] = get(v, i, j, k, l);
}

static void reference(const struct problem *p, struct reference *r)
{
    const struct shape *s = &p->s;
    int64_t nq = s->batch * s->tq * s->heads * s->dim;
    int64_t nk = s->batch * s->tk * s->kv_heads * s->dim;
    int64_t nb = s->bias_batch * s->bias_heads * s->tq * s->tk;

    *r = (struct reference){zeros(nq), zeros(s->batch * s->tq * s->heads),
                            zeros(nq), zeros(nk),
                            zeros(nk), zeros(nb),
                            zeros(nq), zeros(nk),
                            zeros(nk), zeros(nq)};
    read_tensor(r->q, &p->a.fwd.q);
    read_tensor(r->k, &p->a.fwd.k);
    read_tensor(r->v, &p->a.fwd.v);
    read_tensor(r->dout, &p->a.dout);
    if (s->accumulate) {
        read_tensor(r->dq, &p->a.dq);
        read_tensor(r->dk, &p->a.dk);
        read_tensor(r->dv, &p->a.dv);
        if (nb)
            read_tensor(r->dbias, &p->a.dbias);
    }
    for (int64_t b = 0; b < s->batch; b++)
        for (int64_t h = 0; h < s->heads; h++)
            for (int64_t i = 0; i < s->tq; i++)
                reference_row(p, r, b, h, i);
}

static void reference_free(struct reference *r)
{
    free(r->out);
    free(r->lse);
    free(r->dq);
    free(r->dk);
    free(r->dv);
    free(r->dbias);
    free(r->q);
    free(r->k);
    free(r->v);
    free(r->dout);
}

/* Relative to the largest element: what rounding of the operands leaves. */
static void expect_near(const struct zt_view *v, const double *want, double tolerance,
                        const char *what)
{
    int64_t at = 0;
    double largest = 1;

    for (int64_t i = 0; i < zt_view_numel(v); i++)
        largest = fmax(largest, fabs(want[i]));
    for (int64_t i = 0; i < v->shape[0]; i++)
        for (int64_t j = 0; j < v->shape[1]; j++)
            for (int64_t k = 0; k < v->shape[2]; k++)
                for (int64_t l = 0; l < v->shape[3]; l++, at++) {
                    double got = get(v, i, j, k, l);
                    if (!(fabs(got - want[at]) <= tolerance * largest))
                        fail_msg("%s[%d,%d,%d,%d]: got %.7g, want %.7g", what, (int)i,
                                 (int)j, (int)k, (int)l, got, want[at]);
                }
}

static void run(struct problem *p)
{
    struct zt_fault fault = {0};

    if (zt_cpu_attention(dev, NULL, &p->a.fwd, &fault) != ZT_OK ||
        zt_cpu_attention_bwd(dev, NULL, &p->a, &fault) != ZT_OK)
        fail_msg("%s", fault.text);
}

static void check(const struct shape *s)
{
    double tol = s->dtype == ZT_F32 ? 2e-5 : s->dtype == ZT_F16 ? 2e-3 : 2e-2;
    struct problem p;
    struct reference r;
    struct zt_view lse;

    if (!in_sample())
        return;
    setup(&p, s);
    reference(&p, &r);
    run(&p);
    expect_near(&p.a.fwd.out, r.out, tol, "out");
    lse = zt_view_of(p.a.fwd.lse.data, ZT_F32, 4,
                     (int64_t[]){1, s->batch, s->heads, s->tq});
    for (int64_t i = 0; i < zt_view_numel(&lse); i++)
        if (r.lse[i] == -INFINITY) {
            assert_true(((float *)lse.data)[i] == -INFINITY);
            ((float *)lse.data)[i] = 0;
            r.lse[i] = 0;
        }
    expect_near(&lse, r.lse, tol, "lse");
    expect_near(&p.a.dq, r.dq, tol, "dq");
    expect_near(&p.a.dk, r.dk, tol, "dk");
    expect_near(&p.a.dv, r.dv, tol, "dv");
    if (s->bias_batch)
        expect_near(&p.a.dbias, r.dbias, 2 * tol, "dbias");
    reference_free(&r);
    teardown(&p);
}

static const zt_dtype types[] = {ZT_F32, ZT_BF16, ZT_F16};

#endif
