/*
 * Cross-entropy. Each row of logits is read once for its lse, and by the same block again
 * where its gradient is made at once; the losses of rows (fp32 each) are then added in row order, in double: runs of neighbouring rows, one a thread,
 * and the runs in order.
 *
 * The next sync() reports a target outside the classes; until then the loss, the
 * row's lse and the row's gradient are NaN.
 */
#include "kernels/cuda/row.h"
#include "kernels/cuda/device_error.h"

#define SUM_THREADS 256

struct targets {
    const int32_t *of;
    int64_t classes;
    int32_t ignore;
    struct zt_cuda_device_error *error;
};

static __device__ __forceinline__ bool is_ignored(const struct targets &t, int64_t row)
{
    return t.of[row] == t.ignore;
}

static __device__ __forceinline__ bool is_class(const struct targets &t, int64_t row)
{
    return t.of[row] >= 0 && t.of[row] < t.classes;
}

/* Reports the first row whose target is outside the classes. One block runs it. */
static __device__ __forceinline__ void check_targets(const struct targets &t,
                                                     int64_t begin, int64_t rows,
                                                     enum zt_cuda_error_kind kind,
                                                     unsigned long long *first)
{
    int64_t at = zt_find_out_of_range(t.of + begin, rows, t.classes, t.ignore, first);

    if (threadIdx.x == 0 && at < rows)
        zt_cuda_report_error(t.error, kind, t.of[begin + at], begin + at, t.classes);
}

static struct targets targets_of(const struct zt_device *dev,
                                 const struct zt_view *targets,
                                 const struct zt_view *logits, int32_t ignore)
{
    struct targets t;

    t.of = static_cast<const int32_t *>(targets->data);
    t.classes = logits->shape[1];
    t.ignore = ignore;
    t.error = dev->error;
    return t;
}

/* The mean of a row, the same in all threads of the block. */
static __device__ __forceinline__ float row_mean(const struct zt_rows &x, int64_t row,
                                                 double *parts)
{
    float v[ZT_PACK], sum = 0;

    for (int64_t at = threadIdx.x * ZT_PACK; at < x.cols; at += blockDim.x * ZT_PACK) {
        zt_row_get(v, x, row, at, 0.0f);
        for (int i = 0; i < ZT_PACK; i++)
            sum += v[i];
    }
    return (float)(zt_block_sum((double)sum, parts) / (double)x.cols);
}

/* Of a row: dx may be x, as a thread writes the elements that it alone has read. e: the
 * smoothing */
static __device__ __forceinline__ void write_slope(const struct zt_rows &x,
                                                   const struct targets &t, int64_t row,
                                                   float lse, float scale, float e,
                                                   const struct zt_rows &dx,
                                                   bool accumulate)
{
    bool ignored = is_ignored(t, row);
    float v[ZT_PACK], spread = e / (float)x.cols * scale;
    float factor = ignored || is_class(t, row) ? scale : NAN;

    for (int64_t at = threadIdx.x * ZT_PACK; at < x.cols; at += blockDim.x * ZT_PACK) {
        zt_row_get(v, x, row, at, 0.0f);
        for (int i = 0; i < ZT_PACK; i++) {
            v[i] = ignored ? 0.0f : expf(v[i] - lse) * factor;
            if (!ignored && e > 0)
                v[i] -= spread;
            if (!ignored && at + i == t.of[row])
                v[i] -= (1 - e) * scale;
        }
        zt_row_put(dx, row, at, accumulate, v);
    }
}

/* What lies between a row and the next. */
static __device__ __forceinline__ void clear_behind(const struct zt_rows &r, int64_t row)
{
    for (int64_t at = r.cols + threadIdx.x; at < r.row_stride; at += blockDim.x)
        zt_put(r.data, r.dtype, row * r.row_stride + at, 0.0f);
}

/* Rows [begin, end); row_loss[0] is that of `begin`. e: the smoothing. dx without data: no
 * gradient is made; else for a gradient of the loss of `scale`. */
static __global__ void __launch_bounds__(ZT_ROW_THREADS)
    row_loss_kernel(struct zt_rows x, struct targets t, int64_t begin, int64_t end,
                    float e, float *lse, float *row_loss, struct zt_rows dx, float scale,
                    bool clear)
{
    __shared__ float part[ZT_WARP];
    __shared__ double parts[ZT_WARP];
    float max, log_sum = 0, loss = 0;
    double sum;

    for (int64_t row = begin + blockIdx.x; row < end; row += gridDim.x) {
        log_sum = loss = 0;
        if (!is_ignored(t, row) && is_class(t, row)) {
            zt_row_max_sum(x, row, part, parts, &max, &sum);
            log_sum = max + logf((float)sum);
            loss = log_sum - zt_get(x.data, x.dtype, row * x.row_stride + t.of[row]);
            if (e > 0)
                loss = e * (log_sum - row_mean(x, row, parts)) + (1 - e) * loss;
        } else if (!is_ignored(t, row)) {
            log_sum = loss = NAN;
        }
        if (threadIdx.x == 0) {
            lse[row] = log_sum;
            row_loss[row - begin] = loss;
        }
        if (!dx.data)
            continue;
        __syncthreads(); /* all have read what dx may overwrite */
        write_slope(x, t, row, log_sum, scale, e, dx, false);
        if (clear)
            clear_behind(dx, row);
    }
}

/* *loss = the carried sum + row_loss of the rows from `begin` on; it becomes the carry. */
static __global__ void __launch_bounds__(SUM_THREADS)
    sum_kernel(const float *row_loss, struct targets t, int64_t begin, int64_t rows,
               double *carry, float *loss)
{
    __shared__ double part[SUM_THREADS];
    __shared__ unsigned long long outside;
    int64_t each = (rows + SUM_THREADS - 1) / SUM_THREADS;
    int64_t from = threadIdx.x * each, to = from + each < rows ? from + each : rows;
    double sum = 0;

    check_targets(t, begin, rows, ZT_CUDA_ERROR_CROSS_ENTROPY, &outside);
    for (int64_t row = from; row < to; row++)
        sum += (double)row_loss[row];
    part[threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.x)
        return;
    sum = begin == 0 ? 0.0 : *carry;
    for (int i = 0; i < SUM_THREADS; i++)
        sum += part[i];
    *carry = sum;
    *loss = (float)sum;
}

zt_err zt_cuda_cross_entropy(struct zt_device *dev, struct zt_stream *s,
                             const struct zt_cross_entropy_args *a,
                             struct zt_fault *fault)
{
    const int64_t most = (int64_t)((ZT_CUDA_SCRATCH - sizeof(double)) / sizeof(float));
    zt_err rc = zt_check_cross_entropy(a, fault);
    struct zt_rows dx = {};
    int64_t begin = 0, rows, end;
    double *carry;
    float *row_loss;

    if (rc)
        return rc;
    if (a->dlogits.data)
        dx = zt_rows_of(&a->dlogits);
    struct targets t = targets_of(dev, &a->targets, &a->logits, a->ignore);

    rows = a->logits.shape[0];
    carry = static_cast<double *>(zt_cuda_scratch(dev, s));
    row_loss = reinterpret_cast<float *>(carry + 1);
    do {
        end = rows - begin < most ? rows : begin + most;
        if (end > begin)
            rc = zt_cuda_launch("cross_entropy", fault, dev, s,
                                zt_cuda_blocks(dev, end - begin, 1),
                                zt_row_threads(a->logits.shape[1]), row_loss_kernel,
                                zt_rows_of(&a->logits), t, begin, end, a->smoothing,
                                static_cast<float *>(a->lse.data), row_loss, dx, a->dloss,
                                a->clear_between);
        if (!rc)
            rc = zt_cuda_launch("cross_entropy", fault, dev, s, 1, SUM_THREADS,
                                sum_kernel, row_loss, t, begin, end - begin, carry,
                                static_cast<float *>(a->loss.data));
        begin = end;
    } while (!rc && begin < rows);
    return rc;
}

static __global__ void __launch_bounds__(ZT_ROW_THREADS)
    cross_entropy_bwd_kernel(struct zt_rows x, struct targets t, const float *lse,
                             const float *dloss, struct zt_rows dx, bool accumulate,
                             float e, bool clear)
{
    __shared__ unsigned long long outside;

    if (blockIdx.x == 0)
        check_targets(t, 0, x.rows, ZT_CUDA_ERROR_CROSS_ENTROPY_BWD, &outside);
    for (int64_t row = blockIdx.x; row < x.rows; row += gridDim.x) {
        if (!accumulate || !is_ignored(t, row))
            write_slope(x, t, row, lse[row], *dloss, e, dx, accumulate);
        if (clear)
            clear_behind(dx, row);
    }
}

/* dx = or += x, times what dloss is of made_for */
static __global__ void __launch_bounds__(ZT_ROW_THREADS)
    rescale_kernel(struct zt_rows x, const float *dloss, float made_for,
                   struct zt_rows dx, bool accumulate, bool clear)
{
    float v[ZT_PACK], by = *dloss / made_for;

    for (int64_t row = blockIdx.x; row < x.rows; row += gridDim.x) {
        for (int64_t at = threadIdx.x * ZT_PACK; at < x.cols;
             at += blockDim.x * ZT_PACK) {
            zt_row_get(v, x, row, at, 0.0f);
            for (int i = 0; i < ZT_PACK; i++)
                v[i] *= by;
            zt_row_put(dx, row, at, accumulate, v);
        }
        if (clear)
            clear_behind(dx, row);
    }
}

zt_err zt_cuda_cross_entropy_bwd(struct zt_device *dev, struct zt_stream *s,
                                 const struct zt_cross_entropy_bwd_args *a,
                                 struct zt_fault *fault)
{
    zt_err rc = zt_check_cross_entropy_bwd(a, fault);

    if (rc || zt_view_numel(&a->logits) == 0)
        return rc;
    if (a->made_for != 0)
        return zt_cuda_launch("cross_entropy_bwd", fault, dev, s,
                              zt_cuda_blocks(dev, a->logits.shape[0], 1),
                              zt_row_threads(a->logits.shape[1]), rescale_kernel,
                              zt_rows_of(&a->logits),
                              static_cast<const float *>(a->dloss.data), a->made_for,
                              zt_rows_of(&a->dlogits), a->accumulate, a->clear_between);
    return zt_cuda_launch(
        "cross_entropy_bwd", fault, dev, s, zt_cuda_blocks(dev, a->logits.shape[0], 1),
        zt_row_threads(a->logits.shape[1]), cross_entropy_bwd_kernel,
        zt_rows_of(&a->logits), targets_of(dev, &a->targets, &a->logits, a->ignore),
        static_cast<const float *>(a->lse.data),
        static_cast<const float *>(a->dloss.data), zt_rows_of(&a->dlogits), a->accumulate,
        a->smoothing, a->clear_between);
}
