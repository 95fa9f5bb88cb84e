/*
 * Layer norm (Ba et al. 2016) and RMS norm (Zhang & Sennrich 2019) over rows (N, C).
 *
 * forward   an addition if there is one, its sum being the row from then on; mean, the
 *           squared distances from it, the result. Memory is read once, the rest happens
 *           in a tile.
 * backward  with h = (x - mean) * rstd and g = dy * w:
 *               dx = rstd * (g - avg(g) - h * avg(g * h)),  dw += dy * h,  db += dy
 *           dw and db are summed over fixed chunks of rows: rows in order, then chunks
 *           in order.
 *
 * An RMS norm is a layer norm with mean 0, no b, no avg(g), and w or 1 + w. Sums over a
 * row: fp32 in a tile, double over tiles.
 */
#include <math.h>

#include "kernels/check.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/device.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/simd.h"
#include "kernels/cpu/tile.h"

/* Both norms, forward and backward; what one lacks is NULL or false. */
struct cpu_norm_job {
    int64_t cols, rows;
    const struct zt_view *x, *add, *sum, *y, *dy, *dx;
    float *mean, *rstd; /* mean NULL: RMS norm */
    const float *w, *b; /* (C) fp32, in scratch or in place */
    float *dw, *db;     /* (chunks, C) */
    float eps;
    bool accumulate;
};

static int64_t tile_of(int64_t cols, int64_t at)
{
    return cols - at < ZT_TILE ? cols - at : ZT_TILE;
}

/* ---- weights as fp32 ---- */

ZT_SIMD static void add_one(float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        x[i] += 1.0f;
}

/* `buf` holds C floats and is used unless the weights can stay where they are. */
static const float *weights(const struct zt_view *w, bool one_more, float *buf)
{
    int64_t n = w->shape[0];

    if (!w->data)
        return NULL;
    if (w->dtype == ZT_F32 && !one_more)
        return w->data;
    if (w->dtype == ZT_F32)
        memcpy(buf, w->data, (size_t)n * sizeof(float));
    else
        (void)zt_tile_load(w->data, w->dtype, 0, n, buf);
    if (one_more)
        add_one(buf, n);
    return buf;
}

/* ---- forward ---- */

ZT_SIMD static void scale_tile(float *restrict y, const float *restrict x, float mean,
                               float rstd, const float *restrict w,
                               const float *restrict b, int64_t n)
{
    if (b)
        for (int64_t i = 0; i < n; i++)
            y[i] = fmaf((x[i] - mean) * rstd, w[i], b[i]);
    else
        for (int64_t i = 0; i < n; i++)
            y[i] = (x[i] - mean) * rstd * w[i];
}

/*
 * The row that is normalised, made first where it is a sum; `in` and `spare`: a tile. The
 * sum goes straight to where fp32 belongs: what memcpy writes may have to come back from
 * farther away than the L1 cache.
 */
static struct zt_row row_of(const struct cpu_norm_job *job, int64_t row, float *in,
                            float *spare)
{
    const struct zt_view *x = job->x, *add = job->add, *sum = add->data ? job->sum : x;
    int64_t start = row * job->cols;

    for (int64_t at = 0; add->data && at < job->cols; at += ZT_TILE) {
        int64_t n = tile_of(job->cols, at);
        bool direct = sum->dtype == ZT_F32;
        float *to = direct ? (float *)sum->data + start + at : in;

        zt_tile_add_to(to, zt_tile_load(x->data, x->dtype, start + at, n, in),
                       zt_tile_load(add->data, add->dtype, start + at, n, spare), n);
        if (!direct)
            zt_tile_store(sum->data, sum->dtype, start + at, n, to, false);
    }
    return zt_row_at(sum->data, sum->dtype, start, in);
}

static void forward_row(const struct cpu_norm_job *job, int64_t row)
{
    float in[ZT_TILE], out[ZT_TILE];
    struct zt_row x = row_of(job, row, in, out);
    int64_t cols = job->cols, at, n;
    double sum = 0, sq = 0;
    float mean, rstd;

    for (at = 0; job->mean && at < cols; at += ZT_TILE) {
        n = tile_of(cols, at);
        sum += (double)zt_tile_sum(zt_row_tile(&x, at, n), n);
    }
    mean = (float)(sum / (double)cols);
    for (at = 0; at < cols; at += ZT_TILE) {
        n = tile_of(cols, at);
        sq += (double)zt_tile_sum_sq_from(zt_row_tile(&x, at, n), mean, n);
    }
    rstd = (float)(1.0 / sqrt(sq / (double)cols + (double)job->eps));
    for (at = 0; at < cols; at += ZT_TILE) {
        n = tile_of(cols, at);
        scale_tile(out, zt_row_tile(&x, at, n), mean, rstd, job->w + at,
                   job->b ? job->b + at : NULL, n);
        zt_tile_store(job->y->data, job->y->dtype, row * cols + at, n, out, false);
    }
    if (job->mean)
        job->mean[row] = mean;
    job->rstd[row] = rstd;
}

static void forward_part(int64_t begin, int64_t end, int thread, void *ctx)
{
    (void)thread;
    for (int64_t row = begin; row < end; row++)
        forward_row(ctx, row);
}

/* Rows per part of a loop, so that a part is worth a thread. */
static int64_t row_grain(int64_t cols)
{
    return cols >= ZT_GRAIN ? 1 : ZT_GRAIN / (cols ? cols : 1);
}

static zt_err forward(struct zt_device *dev, const struct zt_layernorm_args *a,
                      bool one_more, struct zt_fault *fault)
{
    struct cpu_norm_job job = {.rows = a->x.shape[0],
                               .cols = a->x.shape[1],
                               .x = &a->x,
                               .add = &a->add,
                               .sum = &a->sum,
                               .y = &a->y,
                               .mean = a->mean.data,
                               .rstd = a->rstd.data,
                               .eps = a->eps};
    void *scratch;
    zt_err rc;

    rc = zt_cpu_scratch(dev, ZT_SCRATCH_KERNEL, 2 * (size_t)job.cols * sizeof(float),
                        &scratch, fault);
    if (rc)
        return rc;
    job.w = weights(&a->w, one_more, scratch);
    job.b = weights(&a->b, false, (float *)scratch + job.cols);
    zt_parallel_for(job.rows, row_grain(job.cols), forward_part, &job);
    return ZT_OK;
}

zt_err zt_cpu_layernorm(struct zt_device *dev, struct zt_stream *s,
                        const struct zt_layernorm_args *a, struct zt_fault *fault)
{
    zt_err rc = zt_check_layernorm(a, fault);

    (void)s;
    return rc ? rc : forward(dev, a, false, fault);
}

zt_err zt_cpu_rmsnorm(struct zt_device *dev, struct zt_stream *s,
                      const struct zt_rmsnorm_args *a, struct zt_fault *fault)
{
    struct zt_layernorm_args same = {.x = a->x,
                                     .w = a->w,
                                     .y = a->y,
                                     .rstd = a->rstd,
                                     .eps = a->eps,
                                     .add = a->add,
                                     .sum = a->sum};
    zt_err rc = zt_check_rmsnorm(a, fault);

    (void)s;
    return rc ? rc : forward(dev, &same, a->add_one, fault);
}

/* ---- backward ---- */

/* h = (x - mean) * rstd, g = dy * w */
ZT_SIMD static void split_tile(float *restrict h, float *restrict g,
                               const float *restrict x, const float *restrict dy,
                               const float *restrict w, float mean, float rstd, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        h[i] = (x[i] - mean) * rstd;
        g[i] = dy[i] * w[i];
    }
}

ZT_SIMD static void dx_tile(float *restrict dx, const float *restrict h,
                            const float *restrict g, float avg_g, float avg_gh,
                            float rstd, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        dx[i] = rstd * (fmaf(-h[i], avg_gh, g[i]) - avg_g);
}

static void backward_row(const struct cpu_norm_job *job, int64_t row, float *dw,
                         float *db)
{
    float xin[ZT_TILE], dyin[ZT_TILE], h[ZT_TILE], g[ZT_TILE], out[ZT_TILE];
    int64_t cols = job->cols, at, n;
    struct zt_row x = zt_row_at(job->x->data, job->x->dtype, row * cols, xin);
    struct zt_row dy = zt_row_at(job->dy->data, job->dy->dtype, row * cols, dyin);
    float mean = job->mean ? job->mean[row] : 0, rstd = job->rstd[row];
    double sum_g = 0, sum_gh = 0;
    float avg_g, avg_gh;

    for (at = 0; at < cols; at += ZT_TILE) {
        n = tile_of(cols, at);
        const float *d = zt_row_tile(&dy, at, n);
        split_tile(h, g, zt_row_tile(&x, at, n), d, job->w + at, mean, rstd, n);
        if (dw)
            zt_tile_add_mul(dw + at, d, h, n);
        if (db)
            zt_tile_add(db + at, d, n);
        if (job->mean)
            sum_g += (double)zt_tile_sum(g, n);
        sum_gh += (double)zt_tile_dot(g, h, n);
    }
    if (!job->dx->data)
        return;
    avg_g = (float)(sum_g / (double)cols);
    avg_gh = (float)(sum_gh / (double)cols);
    for (at = 0; at < cols; at += ZT_TILE) {
        n = tile_of(cols, at);
        if (cols > ZT_TILE) /* else h and g are still there */
            split_tile(h, g, zt_row_tile(&x, at, n), zt_row_tile(&dy, at, n), job->w + at,
                       mean, rstd, n);
        dx_tile(out, h, g, avg_g, avg_gh, rstd, n);
        zt_tile_store(job->dx->data, job->dx->dtype, row * cols + at, n, out,
                      job->accumulate);
    }
}

static void backward_chunks(int64_t begin, int64_t end, int thread, void *ctx)
{
    const struct cpu_norm_job *job = ctx;
    int64_t each = zt_chunk_rows(job->rows);

    (void)thread;
    for (int64_t k = begin; k < end; k++) {
        int64_t last = (k + 1) * each < job->rows ? (k + 1) * each : job->rows;
        float *dw = job->dw ? job->dw + k * job->cols : NULL;
        float *db = job->db ? job->db + k * job->cols : NULL;

        if (dw)
            memset(dw, 0, (size_t)job->cols * sizeof(float));
        if (db)
            memset(db, 0, (size_t)job->cols * sizeof(float));
        for (int64_t row = k * each; row < last; row++)
            backward_row(job, row, dw, db);
    }
}

static zt_err backward(struct zt_device *dev, const struct zt_layernorm_bwd_args *a,
                       bool one_more, struct zt_fault *fault)
{
    struct cpu_norm_job job = {.rows = a->x.shape[0],
                               .cols = a->x.shape[1],
                               .x = &a->x,
                               .dy = &a->dy,
                               .dx = &a->dx,
                               .mean = a->mean.data,
                               .rstd = a->rstd.data,
                               .accumulate = a->accumulate};
    int64_t chunks = zt_num_chunks(job.rows), per = chunks * job.cols;
    float *scratch;
    void *p;
    zt_err rc;

    rc = zt_cpu_scratch(dev, ZT_SCRATCH_KERNEL,
                        (size_t)(job.cols + 2 * per) * sizeof(float), &p, fault);
    if (rc)
        return rc;
    scratch = p;
    job.w = weights(&a->w, one_more, scratch);
    job.dw = a->dw.data ? scratch + job.cols : NULL;
    job.db = a->db.data ? scratch + job.cols + per : NULL;
    zt_parallel_for(chunks, 1, backward_chunks, &job);
    if (job.dw)
        zt_sum_chunks(job.dw, chunks, job.cols, a->dw.data, ZT_F32, a->accumulate_w);
    if (job.db)
        zt_sum_chunks(job.db, chunks, job.cols, a->db.data, ZT_F32, a->accumulate_b);
    return ZT_OK;
}

zt_err zt_cpu_layernorm_bwd(struct zt_device *dev, struct zt_stream *s,
                            const struct zt_layernorm_bwd_args *a, struct zt_fault *fault)
{
    zt_err rc = zt_check_layernorm_bwd(a, fault);

    (void)s;
    return rc ? rc : backward(dev, a, false, fault);
}

zt_err zt_cpu_rmsnorm_bwd(struct zt_device *dev, struct zt_stream *s,
                          const struct zt_rmsnorm_bwd_args *a, struct zt_fault *fault)
{
    struct zt_layernorm_bwd_args same = {.dy = a->dy,
                                         .x = a->x,
                                         .w = a->w,
                                         .rstd = a->rstd,
                                         .dx = a->dx,
                                         .dw = a->dw,
                                         .accumulate = a->accumulate,
                                         .accumulate_w = a->accumulate_w};
    zt_err rc = zt_check_rmsnorm_bwd(a, fault);

    (void)s;
    return rc ? rc : backward(dev, &same, a->add_one, fault);
}
