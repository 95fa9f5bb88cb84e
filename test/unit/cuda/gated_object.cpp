/*
 * An object as sdpa.h wants it, on the shim: no attention, and products with the backward of
 * a SwiGLU behind them by four engines. 0 is refused, 1 is right and faster than two kernels,
 * 2 is faster still and wrong, 3 is right and slow. SHIM_GATED_ENGINE is the one that it
 * names where none was measured.
 */
#include "kernels/cuda/attention/sdpa.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "cuda_bf16.h"
#include "cuda_fp16.h"
#include "shim.h"

enum { REFUSED, RIGHT, WRONG, SLOW, NUM_ENGINES };

struct zt_sdpa_gated_plan {
    struct zt_sdpa_gated p;
    int engine;
};

static float get(const void *p, int32_t dtype, int64_t at)
{
    return dtype == ZT_BF16 ? __bfloat162float(((const __nv_bfloat16 *)p)[at])
                            : __half2float(((const __half *)p)[at]);
}

static void put(void *p, int32_t dtype, int64_t at, float x)
{
    if (dtype == ZT_BF16)
        ((__nv_bfloat16 *)p)[at] = __float2bfloat16_rn(x);
    else
        ((__half *)p)[at] = __float2half_rn(x);
}

static float product(const struct zt_sdpa_gated &p, const struct zt_sdpa_gated_data &d,
                     int64_t i, int64_t j)
{
    double sum = 0;

    for (int64_t k = 0; k < p.k; k++)
        sum += (double)get(d.a, p.dtype, i * p.a_row + k * p.a_col) *
               (double)get(d.b, p.dtype, k * p.b_row + j * p.b_col);
    return (float)sum;
}

static void compute(const struct zt_sdpa_gated_plan &plan,
                    const struct zt_sdpa_gated_data &d)
{
    const struct zt_sdpa_gated &p = plan.p;

    for (int64_t i = 0; i < p.m; i++)
        for (int64_t j = 0; j < p.n; j++) {
            int64_t at = i * p.n + j;
            float dy = product(p, d, i, j), g = get(d.gate, p.dtype, at);
            float s = 1 / (1 + expf(-g)), up = get(d.up, p.dtype, at);

            put(d.dup, p.dtype, at, dy * g * s);
            put(d.dgate, p.dtype, at,
                dy * up * (plan.engine == WRONG ? s : s * (1 + g * (1 - s))));
        }
    shim_take_time(plan.engine == SLOW ? 9 : plan.engine == WRONG ? -0.5 : 0);
}

/* ---- the table ---- */

static zt_err open_lib(struct zt_sdpa_lib **out, char *, size_t)
{
    *out = NULL;
    return ZT_OK;
}

static void close_lib(struct zt_sdpa_lib *)
{
}

static zt_err plan(struct zt_sdpa_lib *, const struct zt_sdpa_problem *,
                   struct zt_sdpa_plan **, size_t *, char *why, size_t why_bytes)
{
    snprintf(why, why_bytes, "there is no attention in it");
    return ZT_E_UNSUPPORTED;
}

static void plan_close(struct zt_sdpa_plan *)
{
}

static zt_err run(struct zt_sdpa_lib *, const struct zt_sdpa_plan *, void *,
                  const struct zt_sdpa_data *, void *, char *why, size_t why_bytes)
{
    snprintf(why, why_bytes, "there is no attention in it");
    return ZT_E_UNSUPPORTED;
}

static int gated_engine(struct zt_sdpa_lib *, const struct zt_sdpa_gated *)
{
    const char *engine = getenv("SHIM_GATED_ENGINE");

    return engine ? atoi(engine) : -1;
}

static zt_err gated_plan(struct zt_sdpa_lib *, const struct zt_sdpa_gated *p, int engine,
                         struct zt_sdpa_gated_plan **out, size_t *workspace_bytes,
                         char *why, size_t why_bytes)
{
    if (engine >= NUM_ENGINES || engine == REFUSED) {
        snprintf(why, why_bytes, "engine %d does not do it", engine);
        return engine >= NUM_ENGINES ? ZT_E_LIMIT : ZT_E_UNSUPPORTED;
    }
    *out = new zt_sdpa_gated_plan{*p, engine};
    *workspace_bytes = 0;
    return ZT_OK;
}

static void gated_plan_close(struct zt_sdpa_gated_plan *plan)
{
    delete plan;
}

static zt_err gated_run(struct zt_sdpa_lib *, const struct zt_sdpa_gated_plan *plan,
                        void *stream, const struct zt_sdpa_gated_data *d, void *,
                        char *why, size_t why_bytes)
{
    struct zt_sdpa_gated_plan p = *plan;
    struct zt_sdpa_gated_data data = *d;

    if (shim_enqueue_launch((cudaStream_t)stream, {NULL, "gated", [p, data] {
                                                       compute(p, data);
                                                   }}) == cudaSuccess)
        return ZT_OK;
    snprintf(why, why_bytes, "the launch failed");
    return ZT_E_SYSTEM;
}

static size_t version(void)
{
    return 1;
}

extern "C" __attribute__((visibility("default"))) const struct zt_sdpa zt_sdpa_cudnn;
const struct zt_sdpa zt_sdpa_cudnn = {
    .abi = ZT_SDPA_ABI,
    .struct_bytes = sizeof(struct zt_sdpa),
    .name = "the shim's",
    .open = open_lib,
    .close = close_lib,
    .plan = plan,
    .plan_close = plan_close,
    .run = run,
    .gated_engine = gated_engine,
    .gated_plan = gated_plan,
    .gated_plan_close = gated_plan_close,
    .gated_run = gated_run,
    .version = version,
};
