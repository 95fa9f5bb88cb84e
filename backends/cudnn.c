/*
 * cudnn.c -- attention by cuDNN, in a shared object of its own, as nothing else needs the
 * library. cudnn_graph.h builds the graphs; this file has their execution plans for one
 * device, and runs them. cudnn_gated.c does so for products.
 */
#include "backends/cudnn_graph.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OLDEST  91600 /* before it lengths that are no multiple of 128 went wrong */
#define CHOICES 8     /* kernels that are tried */
#define ALIGNED 256   /* bytes, of each part of a workspace */

struct zt_sdpa_plan {
    cudnnBackendDescriptor_t plan;
    size_t delta_bytes, dq_bytes; /* at the begin of the workspace */
    bool backward, causal;
};

/* ------------------------------------------------------------------ plans */

/* Collects the engines that cuDNN proposes, best first; returns how many. */
static int64_t choices(struct zt_cudnn_graph *g, struct zt_sdpa_lib *lib,
                       cudnnBackendDescriptor_t config[CHOICES])
{
    cudnnBackendDescriptor_t ops = zt_cudnn_whole(g, lib->cudnn);
    cudnnBackendDescriptor_t heur = zt_cudnn_make(g, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    const cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
    int64_t num = 0;

    zt_cudnn_set_desc(g, heur, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, ops);
    zt_cudnn_set(g, heur, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    zt_cudnn_finalize(g, heur);
    for (int i = 0; i < CHOICES; i++)
        config[i] = zt_cudnn_make(g, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    if (!g->e)
        g->e = cudnnBackendGetAttribute(heur, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                        CUDNN_TYPE_BACKEND_DESCRIPTOR, CHOICES, &num,
                                        config);
    return g->e ? 0 : num < CHOICES ? num : CHOICES;
}

/* Kernels whose order of sums varies from run to run are skipped. */
static bool is_deterministic(struct zt_cudnn_graph *g, cudnnBackendDescriptor_t config)
{
    cudnnBackendDescriptor_t engine = zt_cudnn_make(g, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    int64_t num = 0;

    if (!g->e)
        g->e = cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE,
                                        CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &num, &engine);
    return zt_cudnn_is_deterministic(g, engine);
}

/*
 * Hopper's kernels can add to dQ block after block. No heuristic proposes that, so it is asked
 * for by engine and settings; which these are NVIDIA's front end says.
 */
#define FIRST_IN_ORDER   92500
#define ENGINE_OF_HOPPER 6

static const struct {
    cudnnBackendKnobType_t knob;
    int64_t value;
} in_order[] = {{CUDNN_KNOB_TYPE_TILE_M, 2},     {CUDNN_KNOB_TYPE_TILE_N, 1},
                {CUDNN_KNOB_TYPE_KERNEL_CFG, 2}, {CUDNN_KNOB_TYPE_STREAM_K, 0},
                {CUDNN_KNOB_TYPE_TILE_CGA_M, 0}, {CUDNN_KNOB_TYPE_STAGES, 4}};
#define NUM_KNOBS ((int)(sizeof(in_order) / sizeof(in_order[0])))

static cudnnBackendDescriptor_t plan_in_order(struct zt_cudnn_graph *g,
                                              struct zt_sdpa_lib *lib)
{
    cudnnBackendDescriptor_t ops, engine, config, set[NUM_KNOBS];
    const int64_t number = ENGINE_OF_HOPPER;

    if (cudnnGetVersion() < FIRST_IN_ORDER) {
        g->e = CUDNN_STATUS_NOT_SUPPORTED;
        return NULL;
    }
    ops = zt_cudnn_whole(g, lib->cudnn);
    engine = zt_cudnn_make(g, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    zt_cudnn_set_desc(g, engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, ops);
    zt_cudnn_set(g, engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &number);
    zt_cudnn_finalize(g, engine);
    for (int i = 0; i < NUM_KNOBS; i++) {
        set[i] = zt_cudnn_make(g, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
        zt_cudnn_set(g, set[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1,
                     &in_order[i].knob);
        zt_cudnn_set(g, set[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1,
                     &in_order[i].value);
        zt_cudnn_finalize(g, set[i]);
    }
    config = zt_cudnn_make(g, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    zt_cudnn_set_desc(g, config, CUDNN_ATTR_ENGINECFG_ENGINE, engine);
    zt_cudnn_set(g, config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES,
                 CUDNN_TYPE_BACKEND_DESCRIPTOR, NUM_KNOBS, set);
    zt_cudnn_finalize(g, config);
    return g->e ? NULL : zt_cudnn_try_plan(lib, config, &g->e);
}

/* The first that works; NULL, and the reason in g->e. */
static cudnnBackendDescriptor_t find_plan(struct zt_cudnn_graph *g,
                                          struct zt_sdpa_lib *lib)
{
    cudnnBackendDescriptor_t config[CHOICES], plan = NULL;
    cudnnStatus_t e = CUDNN_STATUS_NOT_SUPPORTED;
    int64_t num = choices(g, lib, config);

    for (int64_t i = 0; i < num && !plan; i++)
        if (g->p->sums == ZT_SDPA_AS_THEY_COME || is_deterministic(g, config[i]))
            plan = zt_cudnn_try_plan(lib, config[i], &e);
    if (!plan && !g->e)
        g->e = e;
    return plan;
}

static size_t aligned(int64_t floats)
{
    return ((size_t)floats * sizeof(float) + ALIGNED - 1) / ALIGNED * ALIGNED;
}

static void plan_close(struct zt_sdpa_plan *plan)
{
    if (plan && plan->plan)
        (void)cudnnBackendDestroyDescriptor(plan->plan);
    free(plan);
}

static zt_err plan_open(struct zt_sdpa_lib *lib, const struct zt_sdpa_problem *p,
                        struct zt_sdpa_plan **out, size_t *workspace_bytes, char *why,
                        size_t why_bytes)
{
    struct zt_sdpa_plan *plan = calloc(1, sizeof(*plan));
    struct zt_cudnn_graph g;
    int64_t bytes = 0, num = 0;
    zt_err rc = ZT_OK;

    if (!plan) {
        snprintf(why, why_bytes, "no host memory for a plan");
        return ZT_E_NOMEM;
    }
    plan->backward = p->backward;
    plan->causal = p->causal;
    if (p->backward)
        plan->delta_bytes = aligned(p->batch * p->heads * p->tq);
    if (p->sums != ZT_SDPA_STORED)
        plan->dq_bytes = aligned(p->batch * p->heads * p->tq * p->dim);
    zt_cudnn_graph_init(&g, p);
    plan->plan =
        p->sums == ZT_SDPA_IN_ORDER ? plan_in_order(&g, lib) : find_plan(&g, lib);
    if (!g.e)
        g.e =
            cudnnBackendGetAttribute(plan->plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                     CUDNN_TYPE_INT64, 1, &num, &bytes);
    if (g.e)
        rc = zt_cudnn_failed(g.e, "no plan", why, why_bytes);
    zt_cudnn_graph_release(&g);
    if (rc) {
        plan_close(plan);
        return rc;
    }
    *workspace_bytes = plan->delta_bytes + plan->dq_bytes + (size_t)bytes;
    *out = plan;
    return ZT_OK;
}

/* ------------------------------------------------------------------ running */

static zt_err run(struct zt_sdpa_lib *lib, const struct zt_sdpa_plan *plan, void *stream,
                  const struct zt_sdpa_data *d, void *workspace, char *why,
                  size_t why_bytes)
{
    const float hidden = -INFINITY, one = 1;
    struct zt_cudnn_pack pack = {.num = 0};
    cudnnStatus_t e;

    zt_cudnn_put(&pack, ZT_Q, d->q);
    zt_cudnn_put(&pack, ZT_K, d->k);
    zt_cudnn_put(&pack, ZT_V, d->v);
    zt_cudnn_put(&pack, ZT_OUT, d->out);
    zt_cudnn_put(&pack, ZT_LSE, d->lse);
    zt_cudnn_put(&pack, ZT_SCALE, &d->scale);
    if (plan->causal)
        zt_cudnn_put(&pack, ZT_HIDDEN, &hidden);
    if (plan->backward) {
        zt_cudnn_put(&pack, ZT_DOUT, d->dout);
        zt_cudnn_put(&pack, ZT_DQ, d->dq);
        zt_cudnn_put(&pack, ZT_DK, d->dk);
        zt_cudnn_put(&pack, ZT_DV, d->dv);
        zt_cudnn_put(&pack, ZT_DELTA, workspace);
        if (plan->dq_bytes)
            zt_cudnn_put(&pack, ZT_DQ_SUM, (char *)workspace + plan->delta_bytes);
        zt_cudnn_put(&pack, ZT_ONE, &one);
    }
    e = cudnnSetStream(lib->cudnn, stream);
    if (!e)
        e = zt_cudnn_execute(lib, plan->plan, &pack,
                             (char *)workspace + plan->delta_bytes + plan->dq_bytes);
    return e ? zt_cudnn_failed(e, "run", why, why_bytes) : ZT_OK;
}

/* ------------------------------------------------------------------ the library */

static zt_err open_lib(struct zt_sdpa_lib **out, char *why, size_t why_bytes)
{
    struct zt_sdpa_lib *lib;
    cudnnStatus_t e;

    if (cudnnGetVersion() < OLDEST) {
        snprintf(why, why_bytes, "version %zu is too old, %d is needed",
                 cudnnGetVersion(), OLDEST);
        return ZT_E_UNSUPPORTED;
    }
    lib = calloc(1, sizeof(*lib));
    if (!lib) {
        snprintf(why, why_bytes, "no host memory");
        return ZT_E_NOMEM;
    }
    e = cudnnCreate(&lib->cudnn);
    if (e) {
        free(lib);
        return zt_cudnn_failed(e, "it does not start", why, why_bytes);
    }
    *out = lib;
    return ZT_OK;
}

static void close_lib(struct zt_sdpa_lib *lib)
{
    if (lib)
        (void)cudnnDestroy(lib->cudnn);
    free(lib);
}

__attribute__((visibility("default"))) extern const struct zt_sdpa zt_sdpa_cudnn;
const struct zt_sdpa zt_sdpa_cudnn = {
    .abi = ZT_SDPA_ABI,
    .struct_bytes = sizeof(struct zt_sdpa),
    .name = "cuDNN",
    .open = open_lib,
    .close = close_lib,
    .plan = plan_open,
    .plan_close = plan_close,
    .run = run,
    .gated_engine = zt_cudnn_gated_engine,
    .gated_plan = zt_cudnn_gated_plan,
    .gated_plan_close = zt_cudnn_gated_plan_close,
    .gated_run = zt_cudnn_gated_run,
    .version = cudnnGetVersion,
};
