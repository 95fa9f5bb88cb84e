/*
 * sdpa_test.h -- attention in 16 bits beside a reference in double: what the tests of
 * sdpa.h with a made-up library and with the real one share.
 */
#ifndef TEST_UNIT_CUDA_SDPA_TEST_H
#define TEST_UNIT_CUDA_SDPA_TEST_H

#include "test/unit/cuda/device_test.h"

#include <math.h>

#include <vector>

#include "kernels/cuda/cuda.h"

struct sdpa_shape {
    int64_t batch, tq, tk, heads, kv_heads, dim;
    bool causal, packed; /* packed: q, k and v are columns of one matrix */
    zt_dtype dtype;
};

struct sdpa_memory {
    void *at;
    size_t bytes;
};

/* A backward call, whose `fwd` is the forward call; memory for both. */
struct sdpa_case {
    struct sdpa_shape s;
    struct zt_attention_bwd_args a;
    std::vector<struct sdpa_memory> mem;
};

static uint64_t sdpa_seed = 11;

static inline float sdpa_uniform(void)
{
    sdpa_seed = sdpa_seed * 6364136223846793005u + 1442695040888963407u;
    return (float)((double)(sdpa_seed >> 33) / (1u << 30) - 1.0);
}

static inline float sdpa_get(const struct zt_view *v, int64_t at)
{
    if (v->dtype == ZT_F32)
        return ((const float *)v->data)[at];
    if (v->dtype == ZT_BF16)
        return __bfloat162float(((const __nv_bfloat16 *)v->data)[at]);
    return __half2float(((const __half *)v->data)[at]);
}

static inline void sdpa_put(const struct zt_view *v, int64_t at, float x)
{
    if (v->dtype == ZT_F32)
        ((float *)v->data)[at] = x;
    else if (v->dtype == ZT_BF16)
        ((__nv_bfloat16 *)v->data)[at] = __float2bfloat16_rn(x);
    else
        ((__half *)v->data)[at] = __float2half_rn(x);
}

static inline struct zt_view sdpa_tensor(struct sdpa_case *c, zt_dtype dtype, int ndim,
                                         const int64_t *shape)
{
    struct zt_view v = zt_view_of(NULL, dtype, ndim, shape);
    size_t bytes = (size_t)zt_view_numel(&v) * zt_dtype_bytes(dtype);

    v.data = managed(bytes, (char)0);
    for (int64_t i = 0; i < zt_view_numel(&v); i++)
        sdpa_put(&v, i, sdpa_uniform());
    c->mem.push_back({v.data, bytes});
    return v;
}

static inline struct zt_view sdpa_heads(struct zt_view v, int64_t from, int64_t heads)
{
    v.data = (char *)v.data + from * v.stride[2] * (int64_t)zt_dtype_bytes(v.dtype);
    v.shape[2] = heads;
    return v;
}

static inline struct sdpa_case sdpa_setup(const struct sdpa_shape &s)
{
    const int64_t q[4] = {s.batch, s.tq, s.heads, s.dim};
    const int64_t k[4] = {s.batch, s.tk, s.kv_heads, s.dim};
    const int64_t all[4] = {s.batch, s.tq, s.heads + 2 * s.kv_heads, s.dim};
    const int64_t lse[3] = {s.batch, s.heads, s.tq};
    struct sdpa_case c = {};
    struct zt_attention_args *f = &c.a.fwd;

    c.s = s;
    if (s.packed) {
        struct zt_view x = sdpa_tensor(&c, s.dtype, 4, all),
                       d = sdpa_tensor(&c, s.dtype, 4, all);

        f->q = sdpa_heads(x, 0, s.heads);
        f->k = sdpa_heads(x, s.heads, s.kv_heads);
        f->v = sdpa_heads(x, s.heads + s.kv_heads, s.kv_heads);
        c.a.dq = sdpa_heads(d, 0, s.heads);
        c.a.dk = sdpa_heads(d, s.heads, s.kv_heads);
        c.a.dv = sdpa_heads(d, s.heads + s.kv_heads, s.kv_heads);
    } else {
        f->q = sdpa_tensor(&c, s.dtype, 4, q);
        f->k = sdpa_tensor(&c, s.dtype, 4, k);
        f->v = sdpa_tensor(&c, s.dtype, 4, k);
        c.a.dq = sdpa_tensor(&c, s.dtype, 4, q);
        c.a.dk = sdpa_tensor(&c, s.dtype, 4, k);
        c.a.dv = sdpa_tensor(&c, s.dtype, 4, k);
    }
    f->out = sdpa_tensor(&c, s.dtype, 4, q);
    f->lse = sdpa_tensor(&c, ZT_F32, 3, lse);
    c.a.dout = sdpa_tensor(&c, s.dtype, 4, q);
    f->scale = 1 / sqrtf((float)s.dim);
    f->causal = s.causal;
    return c;
}

static inline void sdpa_teardown(struct sdpa_case *c)
{
    for (const auto &m : c->mem)
        cudaFree(m.at);
}

static inline void sdpa_forward(struct zt_device *dev, const struct sdpa_case &c)
{
    struct zt_fault fault = {};

    if (zt_cuda_attention(dev, NULL, &c.a.fwd, &fault) != ZT_OK ||
        zt_cuda_backend.sync(dev, NULL, &fault) != ZT_OK)
        fail_msg("forward: %s", fault.text);
}

static inline void sdpa_backward(struct zt_device *dev, const struct sdpa_case &c)
{
    struct zt_fault fault = {};

    if (zt_cuda_attention_bwd(dev, NULL, &c.a, &fault) != ZT_OK ||
        zt_cuda_backend.sync(dev, NULL, &fault) != ZT_OK)
        fail_msg("backward: %s", fault.text);
}

/* All memory of the case: what was read, and what was written. */
static inline std::vector<char> sdpa_bits(const struct sdpa_case &c)
{
    std::vector<char> bits;

    for (const auto &m : c.mem)
        bits.insert(bits.end(), (const char *)m.at, (const char *)m.at + m.bytes);
    return bits;
}

/* ---- the reference ---- */

struct sdpa_reference {
    std::vector<double> out, lse, dq, dk, dv; /* dense, axes as the tensors' */
};

/* Row (b, i, h) of a view as doubles. */
static inline std::vector<double> sdpa_row(const struct zt_view &v, int64_t b, int64_t i,
                                           int64_t h)
{
    std::vector<double> x((size_t)v.shape[3]);
    int64_t at = b * v.stride[0] + i * v.stride[1] + h * v.stride[2];

    for (size_t d = 0; d < x.size(); d++)
        x[d] = (double)sdpa_get(&v, at + (int64_t)d);
    return x;
}

static inline double sdpa_dot(const std::vector<double> &x, const std::vector<double> &y)
{
    double sum = 0;

    for (size_t i = 0; i < x.size(); i++)
        sum += x[i] * y[i];
    return sum;
}

static inline void sdpa_axpy(double a, const std::vector<double> &x, double *y)
{
    for (size_t i = 0; i < x.size(); i++)
        y[i] += a * x[i];
}

/* All that comes from query i of head h. */
static inline void sdpa_reference_row(const struct sdpa_case &c, struct sdpa_reference *r,
                                      int64_t b, int64_t h, int64_t i)
{
    const struct sdpa_shape &s = c.s;
    const struct zt_attention_args &f = c.a.fwd;
    int64_t kv = h / (s.heads / s.kv_heads), row = ((b * s.tq + i) * s.heads + h) * s.dim;
    int64_t seen = s.causal && i + s.tk - s.tq + 1 < s.tk ? i + s.tk - s.tq + 1 : s.tk;
    std::vector<double> p((size_t)seen), dp((size_t)seen),
        q = sdpa_row(f.q, b, i, h), g = sdpa_row(c.a.dout, b, i, h);
    double max = -INFINITY, sum = 0, delta = 0;

    for (int64_t j = 0; j < seen; j++) {
        p[(size_t)j] = (double)f.scale * sdpa_dot(q, sdpa_row(f.k, b, j, kv));
        dp[(size_t)j] = sdpa_dot(g, sdpa_row(f.v, b, j, kv));
        max = fmax(max, p[(size_t)j]);
    }
    for (double &x : p)
        sum += x = exp(x - max);
    r->lse[(size_t)((b * s.heads + h) * s.tq + i)] = max + log(sum);
    for (int64_t j = 0; j < seen; j++)
        delta += (p[(size_t)j] /= sum) * dp[(size_t)j];
    for (int64_t j = 0; j < seen; j++) {
        int64_t key = ((b * s.tk + j) * s.kv_heads + kv) * s.dim;
        double ds = (double)f.scale * p[(size_t)j] * (dp[(size_t)j] - delta);

        sdpa_axpy(p[(size_t)j], sdpa_row(f.v, b, j, kv), &r->out[(size_t)row]);
        sdpa_axpy(p[(size_t)j], g, &r->dv[(size_t)key]);
        sdpa_axpy(ds, sdpa_row(f.k, b, j, kv), &r->dq[(size_t)row]);
        sdpa_axpy(ds, q, &r->dk[(size_t)key]);
    }
}

static inline struct sdpa_reference sdpa_reference_of(const struct sdpa_case &c)
{
    const struct sdpa_shape &s = c.s;
    size_t rows = (size_t)(s.batch * s.tq * s.heads), dim = (size_t)s.dim;
    size_t keys = (size_t)(s.batch * s.tk * s.kv_heads);
    struct sdpa_reference r;

    r.out.resize(rows * dim);
    r.lse.resize(rows);
    r.dq.resize(rows * dim);
    r.dk.resize(keys * dim);
    r.dv.resize(keys * dim);
    for (int64_t b = 0; b < s.batch; b++)
        for (int64_t h = 0; h < s.heads; h++)
            for (int64_t i = 0; i < s.tq; i++)
                sdpa_reference_row(c, &r, b, h, i);
    return r;
}

/* Within `tolerance` of the largest element: what rounding of the operands leaves. */
static inline void sdpa_near(const char *what, const struct zt_view &v,
                             const std::vector<double> &want, double tolerance)
{
    int64_t n[4] = {1, 1, 1, 1}, stride[4] = {0, 0, 0, 0};
    double largest = 0;
    size_t at = 0;

    for (int i = 0; i < v.ndim; i++) {
        n[4 - v.ndim + i] = v.shape[i];
        stride[4 - v.ndim + i] = v.stride[i];
    }
    for (double x : want)
        largest = fmax(largest, fabs(x));
    for (int64_t i = 0; i < n[0] * n[1]; i++)
        for (int64_t j = 0; j < n[2]; j++)
            for (int64_t k = 0; k < n[3]; k++, at++) {
                int64_t from = i / n[1] * stride[0] + i % n[1] * stride[1] +
                               j * stride[2] + k * stride[3];
                double got = (double)sdpa_get(&v, from);

                if (!(fabs(got - want[at]) <= tolerance * largest))
                    fail_msg("%s[%d,%d,%d]: got %.7g, want %.7g, largest %.3g", what,
                             (int)i, (int)j, (int)k, got, want[at], largest);
            }
}

/* `rounding`: how many times the type's own error is allowed. */
static inline void sdpa_expect(const struct sdpa_case &c, const struct sdpa_reference &r,
                               double rounding)
{
    double tolerance = rounding * (c.s.dtype == ZT_BF16 ? 0x1p-8 : 0x1p-11);

    sdpa_near("out", c.a.fwd.out, r.out, tolerance);
    sdpa_near("lse", c.a.fwd.lse, r.lse, 1e-4);
    sdpa_near("dq", c.a.dq, r.dq, tolerance);
    sdpa_near("dk", c.a.dk, r.dk, tolerance);
    sdpa_near("dv", c.a.dv, r.dv, tolerance);
}

#endif
