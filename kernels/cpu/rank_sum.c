/* rank_sum.c -- the sum over ranks of what lies side by side in memory. */
#include <string.h>

#include "kernels/check.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/tile.h"

struct rank_sum_job {
    const struct zt_rank_sum_args *a;
};

static void sum_tiles(int64_t begin, int64_t end, int thread, void *ctx)
{
    const struct zt_rank_sum_args *a = ((const struct rank_sum_job *)ctx)->a;
    float sum[ZT_TILE], buf[ZT_TILE];

    (void)thread;
    for (int64_t at = begin, n; at < end; at += n) {
        n = end - at < ZT_TILE ? end - at : ZT_TILE;
        memcpy(sum, zt_tile_load(a->x.data, a->x.dtype, at, n, buf),
               (size_t)n * sizeof(float));
        for (int64_t r = 1; r < a->x.shape[0]; r++) {
            const float *x =
                zt_tile_load(a->x.data, a->x.dtype, r * a->x.stride[0] + at, n, buf);

            zt_tile_add(sum, x, n);
        }
        for (int64_t i = 0; i < n; i++)
            sum[i] *= a->scale;
        zt_tile_store(a->y.data, a->y.dtype, at, n, sum, false);
    }
}

zt_err zt_cpu_rank_sum(struct zt_device *dev, struct zt_stream *s,
                       const struct zt_rank_sum_args *a, struct zt_fault *fault)
{
    struct rank_sum_job job = {a};
    zt_err rc = zt_check_rank_sum(a, fault);

    (void)dev;
    (void)s;
    if (!rc)
        zt_parallel_for(a->x.shape[1], ZT_GRAIN, sum_tiles, &job);
    return rc;
}
