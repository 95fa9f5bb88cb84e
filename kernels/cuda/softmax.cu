/*
 * Softmax over rows, a block for each: maximum and sum of exponentials in one pass, the
 * quotients in a second one. Sums of a thread are fp32, over threads double.
 */
#include "kernels/cuda/row.h"

static __global__ void __launch_bounds__(ZT_ROW_THREADS)
    softmax_kernel(struct zt_rows x, struct zt_rows y)
{
    __shared__ float part[ZT_WARP];
    __shared__ double parts[ZT_WARP];
    float v[ZT_PACK], max;
    double sum;

    for (int64_t row = blockIdx.x; row < x.rows; row += gridDim.x) {
        zt_row_max_sum(x, row, part, parts, &max, &sum);
        float inverse = (float)(1.0 / sum);

        for (int64_t at = threadIdx.x * ZT_PACK; at < x.cols;
             at += blockDim.x * ZT_PACK) {
            zt_row_get(v, x, row, at, 0.0f);
            for (int i = 0; i < ZT_PACK; i++)
                v[i] = expf(v[i] - max) * inverse;
            zt_row_put(y, row, at, false, v);
        }
    }
}

zt_err zt_cuda_softmax(struct zt_device *dev, struct zt_stream *s,
                       const struct zt_softmax_args *a, struct zt_fault *fault)
{
    zt_err rc = zt_check_softmax(a, fault);

    if (rc || zt_view_numel(&a->x) == 0)
        return rc;
    return zt_cuda_launch("softmax", fault, dev, s, zt_cuda_blocks(dev, a->x.shape[0], 1),
                          zt_row_threads(a->x.shape[1]), softmax_kernel,
                          zt_rows_of(&a->x), zt_rows_of(&a->y));
}

/* dx = y (dy - sum of y dy) */
static __global__ void __launch_bounds__(ZT_ROW_THREADS)
    softmax_bwd_kernel(struct zt_rows dy, struct zt_rows y, struct zt_rows dx,
                       bool accumulate)
{
    __shared__ double parts[ZT_WARP];
    float g[ZT_PACK], v[ZT_PACK];

    for (int64_t row = blockIdx.x; row < y.rows; row += gridDim.x) {
        float mine = 0, dot;

        for (int64_t at = threadIdx.x * ZT_PACK; at < y.cols;
             at += blockDim.x * ZT_PACK) {
            zt_row_get(g, dy, row, at, 0.0f);
            zt_row_get(v, y, row, at, 0.0f);
            for (int i = 0; i < ZT_PACK; i++)
                mine += g[i] * v[i];
        }
        dot = (float)zt_block_sum((double)mine, parts);
        for (int64_t at = threadIdx.x * ZT_PACK; at < y.cols;
             at += blockDim.x * ZT_PACK) {
            zt_row_get(g, dy, row, at, 0.0f);
            zt_row_get(v, y, row, at, 0.0f);
            for (int i = 0; i < ZT_PACK; i++)
                v[i] *= g[i] - dot;
            zt_row_put(dx, row, at, accumulate, v);
        }
    }
}

zt_err zt_cuda_softmax_bwd(struct zt_device *dev, struct zt_stream *s,
                           const struct zt_softmax_bwd_args *a, struct zt_fault *fault)
{
    zt_err rc = zt_check_softmax_bwd(a, fault);

    if (rc || zt_view_numel(&a->y) == 0)
        return rc;
    return zt_cuda_launch(
        "softmax_bwd", fault, dev, s, zt_cuda_blocks(dev, a->y.shape[0], 1),
        zt_row_threads(a->y.shape[1]), softmax_bwd_kernel, zt_rows_of(&a->dy),
        zt_rows_of(&a->y), zt_rows_of(&a->dx), a->accumulate);
}
