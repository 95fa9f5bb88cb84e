/*
 * What distances add to scores, and back: a thread for each element of the result. The keys of
 * one bucket lie side by side, as buckets do not fall with the distance, so an element of a
 * gradient is the sum of a run of dy, in order.
 */
#include "kernels/cuda/operand.h"

/* ---- forward ---- */

struct distance_job {
    struct zt_operand by_query, by_key, y;
    const int32_t *bucket;
    int64_t B, H, Tq, Tk, R;
    float scale;
};

static __global__ void __launch_bounds__(ZT_THREADS)
    distance_kernel(struct distance_job d)
{
    int64_t all = d.B * d.H * d.Tq * d.Tk;

    for (int64_t at = zt_thread_index(); at < all; at += zt_thread_count()) {
        int64_t j = at % d.Tk, i = at / d.Tk % d.Tq, of = at / d.Tk / d.Tq;
        int64_t pair = of % d.H * d.B + of / d.H; /* (h, b) of (b, h) */
        int64_t u = d.bucket[i - j + d.Tk - 1];
        float sum = 0;

        if (d.by_query.data)
            sum += zt_get(d.by_query.data, d.by_query.dtype, (pair * d.Tq + i) * d.R + u);
        if (d.by_key.data)
            sum += zt_get(d.by_key.data, d.by_key.dtype, (pair * d.Tk + j) * d.R + u);
        zt_put(d.y.data, d.y.dtype, at, sum * d.scale);
    }
}

zt_err zt_cuda_distance(struct zt_device *dev, struct zt_stream *s,
                        const struct zt_distance_args *a, struct zt_fault *fault)
{
    struct distance_job job = {};
    zt_err rc = zt_check_distance(a, fault);

    if (rc || zt_view_numel(&a->y) == 0)
        return rc;
    job.by_query = zt_flat_operand(&a->by_query);
    job.by_key = zt_flat_operand(&a->by_key);
    job.y = zt_flat_operand(&a->y);
    job.bucket = static_cast<const int32_t *>(a->bucket.data);
    job.B = a->y.shape[0];
    job.H = a->y.shape[1];
    job.Tq = a->y.shape[2];
    job.Tk = a->y.shape[3];
    job.R = (a->by_query.data ? a->by_query : a->by_key).shape[3];
    job.scale = a->scale;
    return zt_cuda_launch("distance", fault, dev, s,
                          zt_cuda_blocks(dev, zt_view_numel(&a->y), ZT_THREADS),
                          ZT_THREADS, distance_kernel, job);
}

/* ---- backward ---- */

struct distance_gradient {
    struct zt_operand dy, to; /* (B, H, Tq, Tk), (H, B, T, R) */
    const int32_t *first;
    int64_t B, H, Tq, Tk, T, R;
    float scale;
    bool of_query, accumulate;
};

/* Sum of the elements of dy whose pair has a place in [first, last): of row or column t. */
static __device__ __forceinline__ float sum_run(const struct distance_gradient &g,
                                                int64_t pair, int64_t t, int64_t first,
                                                int64_t last)
{
    int64_t from = g.of_query ? t + g.Tk - last : first + t - g.Tk + 1;
    int64_t end = from + last - first, most = g.of_query ? g.Tk : g.Tq;
    float sum = 0;

    from = from > 0 ? from : 0;
    end = end < most ? end : most;
    for (int64_t k = from; k < end; k++) {
        int64_t row = g.of_query ? t : k, column = g.of_query ? k : t;

        sum += zt_get(g.dy.data, g.dy.dtype, (pair * g.Tq + row) * g.Tk + column);
    }
    return sum;
}

static __global__ void __launch_bounds__(ZT_THREADS)
    distance_bwd_kernel(struct distance_gradient g)
{
    int64_t all = g.H * g.B * g.T * g.R;

    for (int64_t at = zt_thread_index(); at < all; at += zt_thread_count()) {
        int64_t u = at % g.R, t = at / g.R % g.T, of = at / g.R / g.T;
        int64_t pair = of % g.B * g.H + of / g.B; /* (b, h) of (h, b) */
        float sum = sum_run(g, pair, t, g.first[u], g.first[u + 1]) * g.scale;

        if (g.accumulate)
            sum += zt_get(g.to.data, g.to.dtype, at);
        zt_put(g.to.data, g.to.dtype, at, sum);
    }
}

static zt_err gradient(struct zt_device *dev, struct zt_stream *s,
                       const struct zt_distance_bwd_args *a, const struct zt_view *to,
                       bool of_query, bool accumulate, struct zt_fault *fault)
{
    struct distance_gradient g = {};

    if (!to->data || zt_view_numel(to) == 0)
        return ZT_OK;
    g.dy = zt_flat_operand(&a->dy);
    g.to = zt_flat_operand(to);
    g.first = static_cast<const int32_t *>(a->first.data);
    g.B = a->dy.shape[0];
    g.H = a->dy.shape[1];
    g.Tq = a->dy.shape[2];
    g.Tk = a->dy.shape[3];
    g.T = to->shape[2];
    g.R = to->shape[3];
    g.scale = a->scale;
    g.of_query = of_query;
    g.accumulate = accumulate;
    return zt_cuda_launch("distance_bwd", fault, dev, s,
                          zt_cuda_blocks(dev, zt_view_numel(to), ZT_THREADS), ZT_THREADS,
                          distance_bwd_kernel, g);
}

zt_err zt_cuda_distance_bwd(struct zt_device *dev, struct zt_stream *s,
                            const struct zt_distance_bwd_args *a, struct zt_fault *fault)
{
    zt_err rc = zt_check_distance_bwd(a, fault);

    if (!rc)
        rc = gradient(dev, s, a, &a->dby_query, true, a->accumulate_query, fault);
    if (!rc)
        rc = gradient(dev, s, a, &a->dby_key, false, a->accumulate_key, fault);
    return rc;
}
