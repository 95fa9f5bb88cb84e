/*
 * What distances add to scores, and back. The keys of one bucket lie side by side, as buckets
 * do not fall with the distance: so each element of a gradient is the sum of a run of dy, in
 * order, by one thread and without scratch.
 */
#include "kernels/check.h"
#include "kernels/convert.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/simd.h"
#include "kernels/cpu/tile.h"

static inline float float_of_float(float x)
{
    return x;
}

/* Runs body(T, convert) for the type of elements; convert(T) is fp32. */
#define BY_TYPE(dtype, body)                                                             \
    switch (dtype) {                                                                     \
    case ZT_BF16:                                                                        \
        body(uint16_t, zt_float_of_bf16);                                                \
        break;                                                                           \
    case ZT_F16:                                                                         \
        body(uint16_t, zt_float_of_f16);                                                 \
        break;                                                                           \
    default:                                                                             \
        body(float, float_of_float);                                                     \
        break;                                                                           \
    }

/* ---- forward ---- */

static zt_err buckets_in_order(const struct zt_distance_args *a, int64_t most,
                               struct zt_fault *fault)
{
    const int32_t *bucket = a->bucket.data;
    int64_t n = a->bucket.shape[0];

    for (int64_t i = 0; i < n; i++)
        if (bucket[i] < 0 || bucket[i] >= most || (i && bucket[i] < bucket[i - 1]))
            return zt_fault_set(fault, ZT_E_ARG,
                                "distance: bucket %d at position %lld is outside [0, "
                                "%lld) or below the one before it",
                                (int)bucket[i], (long long)i, (long long)most);
    return ZT_OK;
}

/* out[j] += the element u = bucket[-j] of row j; rows are `step` apart, the first at `from`. */
static void add_gathered(float *restrict out, const struct zt_view *v, int64_t from,
                         int64_t step, const int32_t *bucket, int64_t n)
{
#define ADD(T, convert)                                                                  \
    for (int64_t j = 0; j < n; j++)                                                      \
    out[j] += convert(((const T *)v->data)[from + j * step + bucket[-j]])
    BY_TYPE(v->dtype, ADD)
#undef ADD
}

ZT_SIMD static void multiply(float *x, float factor, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        x[i] *= factor;
}

/* Row (b, h, i) of y. */
static void score_rows(int64_t begin, int64_t end, int thread, void *ctx)
{
    const struct zt_distance_args *a = ctx;
    const int64_t *d = a->y.shape;
    int64_t B = d[0], H = d[1], Tq = d[2], Tk = d[3];
    float out[ZT_TILE];

    (void)thread;
    for (int64_t row = begin; row < end; row++) {
        int64_t i = row % Tq, h = row / Tq % H, b = row / Tq / H, pair = h * B + b;
        const int32_t *bucket = (const int32_t *)a->bucket.data + i + Tk - 1;

        for (int64_t at = 0; at < Tk; at += ZT_TILE) {
            int64_t n = Tk - at < ZT_TILE ? Tk - at : ZT_TILE;

            memset(out, 0, (size_t)n * sizeof(*out));
            if (a->by_query.data)
                add_gathered(out, &a->by_query, (pair * Tq + i) * a->by_query.shape[3], 0,
                             bucket - at, n);
            if (a->by_key.data)
                add_gathered(out, &a->by_key, (pair * Tk + at) * a->by_key.shape[3],
                             a->by_key.shape[3], bucket - at, n);
            multiply(out, a->scale, n);
            zt_tile_store(a->y.data, a->y.dtype, row * Tk + at, n, out, false);
        }
    }
}

static int64_t row_grain(int64_t cols)
{
    return cols >= ZT_GRAIN ? 1 : ZT_GRAIN / (cols ? cols : 1);
}

zt_err zt_cpu_distance(struct zt_device *dev, struct zt_stream *s,
                       const struct zt_distance_args *a, struct zt_fault *fault)
{
    zt_err rc = zt_check_distance(a, fault);
    const struct zt_view *by = a->by_query.data ? &a->by_query : &a->by_key;

    (void)dev;
    (void)s;
    if (!rc)
        rc = buckets_in_order(a, by->shape[3], fault);
    if (!rc)
        zt_parallel_for(a->y.shape[0] * a->y.shape[1] * a->y.shape[2],
                        row_grain(a->y.shape[3]), score_rows, (void *)a);
    return rc;
}

/* ---- backward ---- */

/* Sum of n elements, `step` apart, in order. */
static float sum_of(const struct zt_view *v, int64_t from, int64_t step, int64_t n)
{
    float sum = 0;

#define ADD(T, convert)                                                                  \
    for (int64_t k = 0; k < n; k++)                                                      \
    sum += convert(((const T *)v->data)[from + k * step])
    BY_TYPE(v->dtype, ADD)
#undef ADD
    return sum;
}

/* The part of [from, to) that is within [0, most). */
struct score_run {
    int64_t from, count;
};

static struct score_run cut(int64_t from, int64_t to, int64_t most)
{
    struct score_run r;

    r.from = from > 0 ? from : 0;
    r.count = (to < most ? to : most) - r.from;
    r.count = r.count > 0 ? r.count : 0;
    return r;
}

/*
 * Buckets at ... at + n - 1 of row t of a gradient: of query t of (b, h), or of key t. The
 * pair of query i and key j has place i - j + Tk - 1.
 */
static void sum_buckets(float *out, const struct zt_distance_bwd_args *a, bool of_query,
                        int64_t pair, int64_t t, int64_t at, int64_t n)
{
    int64_t Tq = a->dy.shape[2], Tk = a->dy.shape[3];
    const int32_t *first = (const int32_t *)a->first.data + at;

    for (int64_t u = 0; u < n; u++) {
        struct score_run r =
            of_query ? cut(t + Tk - first[u + 1], t + Tk - first[u], Tk)
                     : cut(first[u] + t - Tk + 1, first[u + 1] + t - Tk + 1, Tq);
        int64_t row = of_query ? t : r.from, column = of_query ? r.from : t;

        out[u] =
            sum_of(&a->dy, (pair * Tq + row) * Tk + column, of_query ? 1 : Tk, r.count);
    }
}

struct gradient {
    const struct zt_distance_bwd_args *a;
    const struct zt_view *to; /* (H, B, T, R) */
    bool of_query, accumulate;
};

/* Row (h, b, t) of a gradient. */
static void gradient_rows(int64_t begin, int64_t end, int thread, void *ctx)
{
    const struct gradient *g = ctx;
    const int64_t *d = g->to->shape;
    float out[ZT_TILE];

    (void)thread;
    for (int64_t row = begin; row < end; row++) {
        int64_t t = row % d[2], b = row / d[2] % d[1], h = row / d[2] / d[1];

        for (int64_t at = 0; at < d[3]; at += ZT_TILE) {
            int64_t n = d[3] - at < ZT_TILE ? d[3] - at : ZT_TILE;

            sum_buckets(out, g->a, g->of_query, b * d[0] + h, t, at, n);
            multiply(out, g->a->scale, n);
            zt_tile_store(g->to->data, g->to->dtype, row * d[3] + at, n, out,
                          g->accumulate);
        }
    }
}

static void gradient(const struct zt_distance_bwd_args *a, const struct zt_view *to,
                     bool of_query, bool accumulate)
{
    struct gradient g = {a, to, of_query, accumulate};
    const int64_t *d = to->shape;

    if (to->data)
        zt_parallel_for(d[0] * d[1] * d[2], row_grain(d[3]), gradient_rows, &g);
}

zt_err zt_cpu_distance_bwd(struct zt_device *dev, struct zt_stream *s,
                           const struct zt_distance_bwd_args *a, struct zt_fault *fault)
{
    zt_err rc = zt_check_distance_bwd(a, fault);

    (void)dev;
    (void)s;
    if (rc)
        return rc;
    gradient(a, &a->dby_query, true, a->accumulate_query);
    gradient(a, &a->dby_key, false, a->accumulate_key);
    return ZT_OK;
}
