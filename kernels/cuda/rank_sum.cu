/*
 * The sum of the ranks' values, which lie side by side in memory: in rank order in fp32, so
 * the bits equal those of every other gradient exchange (worker/comm/comm.h).
 */
#include "kernels/cuda/operand.h"

static __global__ void __launch_bounds__(ZT_THREADS)
    rank_sum_kernel(struct zt_operand x, int64_t ranks, int64_t distance, int64_t n,
                    float scale, struct zt_operand y)
{
    float sum[ZT_PACK], v[ZT_PACK];

    for (int64_t at = zt_first_pack(); at < n; at += zt_pack_step()) {
        zt_load(sum, x, at, n - at);
        for (int64_t r = 1; r < ranks; r++) {
            zt_load(v, x, r * distance + at, n - at);
            for (int i = 0; i < ZT_PACK; i++)
                sum[i] = __fadd_rn(sum[i], v[i]);
        }
        for (int i = 0; i < ZT_PACK; i++)
            sum[i] = __fmul_rn(sum[i], scale);
        zt_store(y, at, n - at, false, sum);
    }
}

zt_err zt_cuda_rank_sum(struct zt_device *dev, struct zt_stream *s,
                        const struct zt_rank_sum_args *a, struct zt_fault *fault)
{
    zt_err rc = zt_check_rank_sum(a, fault);
    int64_t n = a->x.shape[1];

    if (rc || n == 0)
        return rc;
    return zt_cuda_launch("rank_sum", fault, dev, s, zt_flat_blocks(dev, n), ZT_THREADS,
                          rank_sum_kernel, zt_operand_of(&a->x, a->x.stride[0]),
                          a->x.shape[0], a->x.stride[0], n, a->scale,
                          zt_flat_operand(&a->y));
}
