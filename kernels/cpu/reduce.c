/*
 * Sums over rows, and the sum of squares of a gradient.
 *
 * Both sum over fixed chunks, then the chunks in order (of squares: in order in each of
 * ZT_NORM_LANES lanes): the bits depend on the shape, not on threads, and (for squares) not on
 * how many calls there were.
 */
#include "kernels/check.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/device.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/simd.h"
#include "kernels/cpu/tile.h"

/* ---- column sums ---- */

struct colsum_job {
    const struct zt_colsum_args *a;
    int64_t rows, cols;
    float *partial; /* (chunks, cols) */
};

static void colsum_row(const struct colsum_job *job, int64_t row, float *acc)
{
    const struct zt_view *x = &job->a->x, *z = &job->a->z;
    float xin[ZT_TILE], zin[ZT_TILE];

    for (int64_t at = 0; at < job->cols; at += ZT_TILE) {
        int64_t n = job->cols - at < ZT_TILE ? job->cols - at : ZT_TILE;
        int64_t from = row * job->cols + at;
        const float *t = zt_tile_load(x->data, x->dtype, from, n, xin);

        if (z->data)
            zt_tile_add_mul(acc + at, t, zt_tile_load(z->data, z->dtype, from, n, zin),
                            n);
        else
            zt_tile_add(acc + at, t, n);
    }
}

static void colsum_chunks(int64_t begin, int64_t end, int thread, void *ctx)
{
    const struct colsum_job *job = ctx;
    int64_t each = zt_chunk_rows(job->rows);

    (void)thread;
    for (int64_t k = begin; k < end; k++) {
        int64_t last = (k + 1) * each < job->rows ? (k + 1) * each : job->rows;
        float *acc = job->partial + k * job->cols;

        memset(acc, 0, (size_t)job->cols * sizeof(float));
        for (int64_t row = k * each; row < last; row++)
            colsum_row(job, row, acc);
    }
}

zt_err zt_cpu_colsum(struct zt_device *dev, struct zt_stream *s,
                     const struct zt_colsum_args *a, struct zt_fault *fault)
{
    struct colsum_job job = {.a = a};
    zt_err rc = zt_check_colsum(a, fault);
    int64_t chunks;
    void *partial;

    (void)s;
    if (rc)
        return rc;
    job.rows = a->x.shape[0];
    job.cols = a->x.shape[1];
    chunks = zt_num_chunks(job.rows);
    rc = zt_cpu_scratch(dev, ZT_SCRATCH_KERNEL,
                        (size_t)(chunks * job.cols) * sizeof(float), &partial, fault);
    if (rc)
        return rc;
    job.partial = partial;
    zt_parallel_for(chunks, 1, colsum_chunks, &job);
    zt_sum_chunks(job.partial, chunks, job.cols, a->y.data, a->y.dtype, a->accumulate);
    return ZT_OK;
}

/* ---- sum of squares ---- */

/* In double: element i goes to lane i % 32, then the lanes as a tree. */
ZT_SIMD static double sumsq_chunk(const float *x, int64_t n)
{
    double lane[32] = {0};
    int64_t i = 0;

    for (; i + 32 <= n; i += 32)
        for (int l = 0; l < 32; l++)
            lane[l] += (double)x[i + l] * (double)x[i + l];
    for (int l = 0; i < n; i++, l++)
        lane[l] += (double)x[i] * (double)x[i];
    for (int w = 16; w > 0; w /= 2)
        for (int l = 0; l < w; l++)
            lane[l] += lane[l + w];
    return lane[0];
}

struct sumsq_job {
    const float *x;
    int64_t n;
    double *partial;
};

static void sumsq_chunks(int64_t begin, int64_t end, int thread, void *ctx)
{
    const struct sumsq_job *job = ctx;

    (void)thread;
    for (int64_t k = begin; k < end; k++) {
        int64_t at = k * ZT_NORM_CHUNK, n = job->n - at;

        job->partial[k] = sumsq_chunk(job->x + at, n < ZT_NORM_CHUNK ? n : ZT_NORM_CHUNK);
    }
}

zt_err zt_cpu_sumsq(struct zt_device *dev, struct zt_stream *s,
                    const struct zt_sumsq_args *a, struct zt_fault *fault)
{
    struct sumsq_job job = {.x = a->x.data, .n = zt_view_numel(&a->x)};
    int64_t chunks = (job.n + ZT_NORM_CHUNK - 1) / ZT_NORM_CHUNK;
    zt_err rc = zt_check_sumsq(a, fault);
    void *partial;

    (void)s;
    if (!rc)
        rc = zt_cpu_scratch(dev, ZT_SCRATCH_KERNEL, (size_t)chunks * sizeof(double),
                            &partial, fault);
    if (rc)
        return rc;
    job.partial = partial;
    zt_parallel_for(chunks, ZT_GRAIN / ZT_NORM_CHUNK, sumsq_chunks, &job);
    if (!a->accumulate)
        memset(a->sums, 0, ZT_NORM_LANES * sizeof(*a->sums));
    for (int64_t k = 0; k < chunks; k++)
        a->sums[(a->first + k) % ZT_NORM_LANES] += job.partial[k];
    return ZT_OK;
}
