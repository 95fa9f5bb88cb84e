/*
 * Losses. Cross-entropy reads each row of logits once: running maximum and sum of
 * exponentials, tile by tile; and again, from a cache, where it makes their gradient at
 * once. Losses of rows (fp32 each) are added in row order, in double.
 */
#include <math.h>

#include "kernels/check.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/device.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/simd.h"
#include "kernels/cpu/softmax.h"
#include "kernels/cpu/tile.h"
#include "kernels/cpu/vmath.h"

static int64_t tile_of(int64_t at, int64_t end)
{
    return end - at < ZT_TILE ? end - at : ZT_TILE;
}

/* ---- cross-entropy ---- */

static zt_err targets_in_range(const char *op, const struct zt_view *targets,
                               int32_t ignore, int64_t classes, struct zt_fault *fault)
{
    const int32_t *t = targets->data;

    for (int64_t i = 0; i < targets->shape[0]; i++)
        if (t[i] != ignore && (t[i] < 0 || t[i] >= classes))
            return zt_fault_set(fault, ZT_E_ARG,
                                "%s: target %d in row %lld is outside [0, %lld)", op,
                                (int)t[i], (long long)i, (long long)classes);
    return ZT_OK;
}

struct ce_job {
    const struct zt_cross_entropy_args *a;
    float *row_loss;
};

/* ln of a sum of exponentials of which the largest is 1 (or a NaN, or nothing: -inf) */
static float log_sum(float max, double sum)
{
    float s = (float)sum;

    return s >= 1.0f && s < INFINITY ? max + zt_log(s) : max + logf(s);
}

/* The mean of a row, tile by tile. */
static float row_mean(const struct zt_view *x, int64_t row)
{
    int64_t classes = x->shape[1];
    float in[ZT_TILE];
    double sum = 0;

    for (int64_t at = 0; at < classes; at += ZT_TILE) {
        int64_t n = tile_of(at, classes);

        sum += (double)zt_tile_sum(
            zt_tile_load(x->data, x->dtype, row * x->stride[0] + at, n, in), n);
    }
    return (float)(sum / (double)classes);
}

/* lse - (1 - e) target - e mean */
static float smoothed(float lse, float target, float mean, float e)
{
    return e * (lse - mean) + (1 - e) * (lse - target);
}

ZT_SIMD static void shift(float *x, float by, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        x[i] += by;
}

/* Where the gradient of a row goes, and for what. */
struct row_slope {
    const struct zt_view *x, *dx;
    float lse, dloss, smoothing;
    int64_t target; /* -1: the row is ignored */
    bool accumulate;
};

/* What lies between a row of v and the next. */
static void clear_behind(const struct zt_view *v, int64_t row)
{
    size_t width = zt_dtype_bytes(v->dtype);

    memset((char *)v->data + (size_t)(row * v->stride[0] + v->shape[1]) * width, 0,
           (size_t)(v->stride[0] - v->shape[1]) * width);
}

/* dx may be x: an element is read before it is written. */
static void write_slope(const struct row_slope *r, int64_t row)
{
    const struct zt_view *x = r->x, *dx = r->dx;
    int64_t classes = x->shape[1];
    bool is_direct = dx->dtype == ZT_F32 && !r->accumulate;
    float in[ZT_TILE], tile[ZT_TILE], e = r->smoothing;

    for (int64_t at = 0; at < classes; at += ZT_TILE) {
        int64_t n = tile_of(at, classes), hit = r->target - at;
        float *out = tile;

        if (is_direct)
            out = (float *)dx->data + row * dx->stride[0] + at;
        if (r->target < 0)
            memset(out, 0, (size_t)n * sizeof(float));
        else
            zt_tile_exp(out,
                        zt_tile_load(x->data, x->dtype, row * x->stride[0] + at, n, in),
                        r->lse, r->dloss, n);
        if (r->target >= 0 && e > 0)
            shift(out, -e / (float)classes * r->dloss, n);
        if (r->target >= 0 && hit >= 0 && hit < n)
            out[hit] -= (1 - e) * r->dloss;
        if (!is_direct)
            zt_tile_store(dx->data, dx->dtype, row * dx->stride[0] + at, n, out,
                          r->accumulate);
    }
}

static void write_own_slope(const struct zt_cross_entropy_args *a, int64_t row)
{
    const int32_t *target = a->targets.data;
    struct row_slope r = {.x = &a->logits,
                          .dx = &a->dlogits,
                          .lse = ((const float *)a->lse.data)[row],
                          .dloss = a->dloss,
                          .smoothing = a->smoothing,
                          .target = target[row] == a->ignore ? -1 : target[row]};

    if (!a->dlogits.data)
        return;
    write_slope(&r, row);
    if (a->clear_between)
        clear_behind(&a->dlogits, row);
}

static void ce_rows(int64_t begin, int64_t end, int thread, void *ctx)
{
    const struct ce_job *job = ctx;
    const struct zt_view *x = &job->a->logits;
    const int32_t *target = job->a->targets.data;
    float *lse = job->a->lse.data, in[ZT_TILE], one[1], max, hit, e = job->a->smoothing;
    int64_t classes = x->shape[1], distance = x->stride[0];
    double sum;

    (void)thread;
    for (int64_t row = begin; row < end; row++) {
        struct zt_row r = zt_row_at(x->data, x->dtype, row * distance, in);

        lse[row] = job->row_loss[row] = 0;
        if (target[row] != job->a->ignore) {
            zt_row_max_sum(&r, classes, &max, &sum);
            lse[row] = log_sum(max, sum);
            hit = *zt_tile_load(x->data, x->dtype, row * distance + target[row], 1, one);
            job->row_loss[row] =
                e > 0 ? smoothed(lse[row], hit, row_mean(x, row), e) : lse[row] - hit;
        }
        write_own_slope(job->a, row);
    }
}

static int64_t row_grain(int64_t cols)
{
    return cols >= ZT_GRAIN ? 1 : ZT_GRAIN / (cols ? cols : 1);
}

zt_err zt_cpu_cross_entropy(struct zt_device *dev, struct zt_stream *s,
                            const struct zt_cross_entropy_args *a, struct zt_fault *fault)
{
    struct ce_job job = {.a = a};
    zt_err rc = zt_check_cross_entropy(a, fault);
    int64_t rows, classes;
    double loss = 0;
    void *scratch;

    (void)s;
    if (rc)
        return rc;
    rows = a->logits.shape[0];
    classes = a->logits.shape[1];
    rc = targets_in_range("cross_entropy", &a->targets, a->ignore, classes, fault);
    if (!rc)
        rc = zt_cpu_scratch(dev, ZT_SCRATCH_KERNEL, (size_t)rows * sizeof(float),
                            &scratch, fault);
    if (rc)
        return rc;
    job.row_loss = scratch;
    zt_parallel_for(rows, row_grain(classes), ce_rows, &job);
    for (int64_t row = 0; row < rows; row++)
        loss += (double)job.row_loss[row];
    *(float *)a->loss.data = (float)loss;
    return ZT_OK;
}

/* dx = or += what x is, times by. */
static void rescale(const struct zt_view *x, const struct zt_view *dx, int64_t row,
                    float by, bool accumulate)
{
    float in[ZT_TILE], out[ZT_TILE];

    for (int64_t at = 0; at < x->shape[1]; at += ZT_TILE) {
        int64_t n = tile_of(at, x->shape[1]);
        const float *from =
            zt_tile_load(x->data, x->dtype, row * x->stride[0] + at, n, in);

        for (int64_t i = 0; i < n; i++)
            out[i] = from[i] * by;
        zt_tile_store(dx->data, dx->dtype, row * dx->stride[0] + at, n, out, accumulate);
    }
}

static void ce_bwd_rows(int64_t begin, int64_t end, int thread, void *ctx)
{
    const struct zt_cross_entropy_bwd_args *a = ctx;
    const int32_t *target = a->targets.data;
    struct row_slope r = {.x = &a->logits,
                          .dx = &a->dlogits,
                          .dloss = *(const float *)a->dloss.data,
                          .smoothing = a->smoothing,
                          .accumulate = a->accumulate};

    (void)thread;
    for (int64_t row = begin; row < end; row++) {
        bool ignored = target[row] == a->ignore;

        if (a->clear_between)
            clear_behind(&a->dlogits, row);
        if (ignored && a->accumulate)
            continue;
        if (a->made_for != 0) {
            rescale(r.x, r.dx, row, r.dloss / a->made_for, a->accumulate);
            continue;
        }
        r.lse = ((const float *)a->lse.data)[row];
        r.target = ignored ? -1 : target[row];
        write_slope(&r, row);
    }
}

zt_err zt_cpu_cross_entropy_bwd(struct zt_device *dev, struct zt_stream *s,
                                const struct zt_cross_entropy_bwd_args *a,
                                struct zt_fault *fault)
{
    zt_err rc = zt_check_cross_entropy_bwd(a, fault);

    (void)dev;
    (void)s;
    if (!rc)
        rc = targets_in_range("cross_entropy_bwd", &a->targets, a->ignore,
                              a->logits.shape[1], fault);
    if (!rc)
        zt_parallel_for(a->logits.shape[0], row_grain(a->logits.shape[1]), ce_bwd_rows,
                        (void *)a);
    return rc;
}

/* ---- squared error: a chunk is a tile ---- */

ZT_SIMD static void difference(float *restrict d, const float *restrict x,
                               const float *restrict y, float scale, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        d[i] = (x[i] - y[i]) * scale;
}

struct se_job {
    const struct zt_squared_error_args *a;
    int64_t n;
    double *partial;
};

static void se_chunks(int64_t begin, int64_t end, int thread, void *ctx)
{
    const struct se_job *job = ctx;
    const struct zt_view *x = &job->a->x, *y = &job->a->y;
    float xin[ZT_TILE], yin[ZT_TILE], d[ZT_TILE];

    (void)thread;
    for (int64_t k = begin; k < end; k++) {
        int64_t at = k * ZT_TILE, n = tile_of(at, job->n);

        difference(d, zt_tile_load(x->data, x->dtype, at, n, xin),
                   zt_tile_load(y->data, y->dtype, at, n, yin), 1.0f, n);
        job->partial[k] = (double)zt_tile_dot(d, d, n);
    }
}

zt_err zt_cpu_squared_error(struct zt_device *dev, struct zt_stream *s,
                            const struct zt_squared_error_args *a, struct zt_fault *fault)
{
    struct se_job job = {.a = a, .n = zt_view_numel(&a->x)};
    int64_t chunks = (job.n + ZT_TILE - 1) / ZT_TILE;
    zt_err rc = zt_check_squared_error(a, fault);
    double loss = 0;
    void *partial;

    (void)s;
    if (!rc)
        rc = zt_cpu_scratch(dev, ZT_SCRATCH_KERNEL, (size_t)chunks * sizeof(double),
                            &partial, fault);
    if (rc)
        return rc;
    job.partial = partial;
    zt_parallel_for(chunks, ZT_GRAIN / ZT_TILE, se_chunks, &job);
    for (int64_t k = 0; k < chunks; k++)
        loss += job.partial[k];
    *(float *)a->loss.data = (float)loss;
    return ZT_OK;
}

static void se_bwd_part(int64_t begin, int64_t end, int thread, void *ctx)
{
    const struct zt_squared_error_bwd_args *a = ctx;
    float xin[ZT_TILE], yin[ZT_TILE], d[ZT_TILE], minus[ZT_TILE];
    float scale = 2.0f * *(const float *)a->dloss.data;

    (void)thread;
    for (int64_t at = begin; at < end; at += ZT_TILE) {
        int64_t n = tile_of(at, end);
        const float *x = zt_tile_load(a->x.data, a->x.dtype, at, n, xin);
        const float *y = zt_tile_load(a->y.data, a->y.dtype, at, n, yin);

        difference(d, x, y, scale, n);
        difference(minus, x, y, -scale, n);
        if (a->dx.data)
            zt_tile_store(a->dx.data, a->dx.dtype, at, n, d, a->accumulate_x);
        if (a->dy.data)
            zt_tile_store(a->dy.data, a->dy.dtype, at, n, minus, a->accumulate_y);
    }
}

zt_err zt_cpu_squared_error_bwd(struct zt_device *dev, struct zt_stream *s,
                                const struct zt_squared_error_bwd_args *a,
                                struct zt_fault *fault)
{
    zt_err rc = zt_check_squared_error_bwd(a, fault);

    (void)dev;
    (void)s;
    if (!rc)
        zt_parallel_for(zt_view_numel(&a->x), ZT_GRAIN, se_bwd_part, (void *)a);
    return rc;
}
