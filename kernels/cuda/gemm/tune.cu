/*
 * Tuning: each product of a model is computed once on random numbers, in memory of its own,
 * while plan.cu and gated.cu time what they could do (zt_gemm_is_tuning). Products of fp8
 * are left as cuBLASLt proposes them.
 */
#include "kernels/cuda/gemm/gemm.h"

#include <stdlib.h>
#include <string.h>

#define MOST_OPERANDS 10
#define ALIGNED       256 /* bytes, of what cudaMalloc gives */

struct tuned_operands {
    void *at[MOST_OPERANDS];
    int num;
};

/* Elements from the first to the last, whatever lies between. */
static int64_t span_of(const struct zt_view *v)
{
    int64_t n = 1;

    for (int i = 0; i < v->ndim; i++)
        n += (v->shape[i] - 1) * v->stride[i];
    return n;
}

/* Memory for v, aligned as its `data` says, full of normal numbers. Power, and so the clock,
 * depends on what is multiplied. */
static zt_err provide(struct zt_device *dev, struct tuned_operands *all,
                      struct zt_view *v, struct zt_fault *fault)
{
    struct zt_random_args r = {};
    int64_t n = span_of(v);
    size_t off = (uintptr_t)v->data % ALIGNED;
    void *p = NULL;
    cudaError_t e;

    if (!v->data)
        return ZT_OK;
    e = cudaMalloc(&p, off + (size_t)n * zt_dtype_bytes(v->dtype));
    if (e != cudaSuccess) {
        (void)cudaGetLastError(); /* or the next launch would report it */
        return zt_cuda_failed("memory to tune a product in", e, fault);
    }
    all->at[all->num++] = p;
    v->data = static_cast<char *>(p) + off;
    r.y = zt_view_of(v->data, v->dtype, 1, &n);
    r.normal = true;
    r.b = 1;
    r.rng.seed = (uint64_t)all->num;
    return zt_cuda_random(dev, NULL, &r, fault);
}

static zt_err provide_all(struct zt_device *dev, struct tuned_operands *all,
                          struct zt_gemm_args *g, struct zt_fault *fault)
{
    struct zt_view *const views[] = {&g->a,     &g->b,     &g->c,    &g->bias, &g->pre,
                                     &g->a_sum, &g->b_sum, &g->gate, &g->up,   &g->dgate};
    zt_err rc = ZT_OK;

    static_assert(sizeof(views) / sizeof(views[0]) == MOST_OPERANDS, "room for all");
    for (struct zt_view *v : views)
        if (!rc)
            rc = provide(dev, all, v, fault);
    return rc;
}

static zt_err tune_one(struct zt_device *dev, const struct zt_gemm_args *product,
                       struct zt_fault *fault)
{
    struct zt_gemm_args g = *product;
    struct tuned_operands all = {};
    zt_err rc;

    if (g.a_scale || zt_view_numel(&g.c) == 0 || g.a.shape[g.a.ndim - 1] == 0)
        return ZT_OK;
    rc = provide_all(dev, &all, &g, fault);
    if (!rc)
        rc = zt_cuda_gemm(dev, NULL, &g, fault);
    if (!rc)
        rc = zt_cuda_backend.sync(dev, NULL, fault);
    while (all.num > 0)
        (void)cudaFree(all.at[--all.num]); /* waits until nothing uses it */
    return rc;
}

/* What was found by other choices. */
static void forget(struct zt_device *dev)
{
    zt_gemm_forget_plans(dev);
    zt_cuda_gated_close(dev, dev->gated);
    dev->gated = NULL;
}

zt_err zt_cuda_tune(struct zt_device *dev, const struct zt_gemm_args *products, int num,
                    const char *known, char **out, struct zt_fault *fault)
{
    zt_err rc;
    cudaError_t e;

    (void)cudaSetDevice(dev->ordinal);
    *out = NULL;
    rc = zt_gemm_choices_read(dev, known, fault);
    if (rc)
        return rc;
    forget(dev);
    e = cudaEventCreate(&dev->choices->begun);
    if (e == cudaSuccess)
        e = cudaEventCreate(&dev->choices->ended);
    if (e != cudaSuccess)
        return zt_cuda_failed("an event", e, fault);
    dev->choices->tuning = true;
    for (int i = 0; !rc && i < num; i++)
        rc = tune_one(dev, &products[i], fault);
    dev->choices->tuning = false;
    return rc ? rc : zt_gemm_choices_text(dev, out, fault);
}

zt_err zt_cuda_use_tuning(struct zt_device *dev, const char *text, struct zt_fault *fault)
{
    zt_err rc;

    (void)cudaSetDevice(dev->ordinal);
    rc = zt_gemm_choices_read(dev, text, fault);
    forget(dev);
    return rc;
}
