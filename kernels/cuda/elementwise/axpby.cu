/*
 * y = alpha x + beta y between any two layouts and types.
 *
 * Axes that are one axis in both operands are merged first. Then the last one is walked
 * by packs where it is dense in both, and element by element where it is not; the others
 * are the rows of the grid.
 */
#include "kernels/cuda/operand.h"

struct axpby_launch {
    struct zt_operand x, y;
    float alpha, beta;
    int ndim; /* of the outer axes */
    int64_t shape[ZT_MAX_NDIM], xstride[ZT_MAX_NDIM], ystride[ZT_MAX_NDIM];
    int64_t rows; /* product of the outer axes */
    int64_t n, xstep, ystep;
};

static __device__ __forceinline__ void row_starts(const struct axpby_launch &job,
                                                  int64_t row, int64_t *x, int64_t *y)
{
    *x = *y = 0;
    for (int i = job.ndim - 1; i >= 0; i--) {
        int64_t next = row / job.shape[i], index = row - next * job.shape[i];

        *x += index * job.xstride[i];
        *y += index * job.ystride[i];
        row = next;
    }
}

/* beta 0: y may hold anything, a NaN too */
static __device__ __forceinline__ float mix(const struct axpby_launch &job, float x,
                                            float y)
{
    float scaled = __fmul_rn(job.alpha, x);

    return job.beta == 0.0f ? scaled : fmaf(job.beta, y, scaled);
}

static __global__ void __launch_bounds__(ZT_THREADS) dense_kernel(struct axpby_launch job)
{
    float v[ZT_PACK], old[ZT_PACK];
    int64_t xat, yat;

    for (int64_t row = zt_first_row(); row < job.rows; row += zt_row_step()) {
        row_starts(job, row, &xat, &yat);
        for (int64_t col = zt_first_col(); col < job.n; col += zt_col_step()) {
            struct zt_raw x = zt_fetch(job.x, xat + col, job.n - col), y = {};

            if (job.beta != 0.0f)
                y = zt_fetch(job.y, yat + col, job.n - col);
            zt_unpack(v, x, job.x);
            zt_unpack(old, y, job.y);
            for (int i = 0; i < ZT_PACK; i++)
                v[i] = mix(job, v[i], old[i]);
            zt_store(job.y, yat + col, job.n - col, false, v);
        }
    }
}

static __global__ void __launch_bounds__(ZT_THREADS)
    strided_kernel(struct axpby_launch job)
{
    int64_t step = (int64_t)gridDim.x * blockDim.x, xat, yat;

    for (int64_t row = zt_first_row(); row < job.rows; row += zt_row_step()) {
        row_starts(job, row, &xat, &yat);
        for (int64_t i = zt_thread_index(); i < job.n; i += step) {
            int64_t to = yat + i * job.ystep;
            float x = zt_get(job.x.data, job.x.dtype, xat + i * job.xstep);
            float y = job.beta != 0.0f ? zt_get(job.y.data, job.y.dtype, to) : 0.0f;

            zt_put(job.y.data, job.y.dtype, to, mix(job, x, y));
        }
    }
}

/* Axes of length 1 go; neighbours that are one axis in both operands become one. */
static void merge_axes(struct axpby_launch *job, const struct zt_axpby_args *a)
{
    int last = -1;

    for (int i = 0; i < a->x.ndim; i++) {
        int64_t n = a->x.shape[i], xs = a->x.stride[i], ys = a->y.stride[i];

        if (n == 1)
            continue;
        if (last >= 0 && job->xstride[last] == n * xs && job->ystride[last] == n * ys)
            job->shape[last] *= n;
        else
            job->shape[++last] = n;
        job->xstride[last] = xs;
        job->ystride[last] = ys;
    }
    job->ndim = last < 0 ? 0 : last;
    job->n = last < 0 ? 1 : job->shape[last];
    job->xstep = last < 0 ? 1 : job->xstride[last];
    job->ystep = last < 0 ? 1 : job->ystride[last];
    job->rows = 1;
    for (int i = 0; i < job->ndim; i++)
        job->rows *= job->shape[i];
}

static void use_packs(struct axpby_launch *job, const struct zt_axpby_args *a)
{
    job->x = zt_flat_operand(&a->x);
    job->y = zt_flat_operand(&a->y);
    for (int i = 0; i < job->ndim; i++) {
        job->x.wide = job->x.wide && zt_operand_of(&a->x, job->xstride[i]).wide;
        job->y.wide = job->y.wide && zt_operand_of(&a->y, job->ystride[i]).wide;
    }
}

zt_err zt_cuda_axpby(struct zt_device *dev, struct zt_stream *s,
                     const struct zt_axpby_args *a, struct zt_fault *fault)
{
    struct axpby_launch job = {};
    zt_err rc = zt_check_axpby(a, fault);
    dim3 blocks, threads;
    bool dense;

    if (rc || zt_view_numel(&a->x) == 0)
        return rc;
    merge_axes(&job, a);
    use_packs(&job, a);
    job.alpha = a->alpha;
    job.beta = a->beta;
    dense = job.xstep == 1 && job.ystep == 1;
    /* one element where the other kernel has a pack */
    zt_matrix_grid(dev, job.rows, dense ? job.n : job.n * ZT_PACK, &blocks, &threads);
    return zt_cuda_launch("axpby", fault, dev, s, blocks, threads,
                          dense ? dense_kernel : strided_kernel, job);
}
