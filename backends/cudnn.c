/*
 * cudnn.c -- attention by cuDNN, in a shared object of its own, as nothing else needs the
 * library. cudnn_graph.h builds the graphs; this file has their execution plans for one
 * device, and runs them.
 */
#include "backends/cudnn_graph.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OLDEST  91600 /* before it lengths that are no multiple of 128 went wrong */
#define CHOICES 8     /* kernels that are tried */
#define ALIGNED 256   /* bytes, of each part of a workspace */

struct zt_sdpa_lib {
    cudnnHandle_t cudnn;
};

struct zt_sdpa_plan {
    cudnnBackendDescriptor_t plan;
    size_t delta_bytes; /* at the begin of the workspace */
    bool backward, causal;
};

/* What cuDNN says of its last error holds traces; one line of it is the reason. */
static zt_err failed(cudnnStatus_t e, const char *what, char *why, size_t why_bytes)
{
    static const char mark[] = "Reason: ";
    char last[2048] = "", *reason;

    cudnnGetLastErrorString(last, sizeof(last));
    reason = strstr(last, mark);
    reason = reason ? reason + sizeof(mark) - 1 : last + strspn(last, "\n");
    reason[strcspn(reason, "\n")] = 0;
    snprintf(why, why_bytes, "%s: %s%s%s", what, cudnnGetErrorString(e),
             reason[0] ? ": " : "", reason);
    /* 3000 to 3999 are the reasons for which a graph has no kernel */
    return e / 1000 == 3 ? ZT_E_UNSUPPORTED : ZT_E_SYSTEM;
}

/* ------------------------------------------------------------------ plans */

/* Kernels whose order of sums varies from run to run are skipped. */
static bool is_deterministic(struct zt_cudnn_graph *g, cudnnBackendDescriptor_t config)
{
    cudnnBackendDescriptor_t engine = zt_cudnn_make(g, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    cudnnBackendNumericalNote_t note[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    int64_t num = 0;

    if (!g->e)
        g->e = cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE,
                                        CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &num, &engine);
    if (!g->e)
        g->e = cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                        CUDNN_TYPE_NUMERICAL_NOTE,
                                        CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &num, note);
    for (int64_t i = 0; !g->e && i < num; i++)
        if (note[i] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC)
            return false;
    return !g->e;
}

/* Collects the engines that cuDNN proposes, best first; returns how many. */
static int64_t choices(struct zt_cudnn_graph *g, struct zt_sdpa_lib *lib,
                       cudnnBackendDescriptor_t config[CHOICES])
{
    cudnnBackendDescriptor_t ops =
        zt_cudnn_make(g, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    cudnnBackendDescriptor_t heur = zt_cudnn_make(g, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    const cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
    int64_t num = 0;

    zt_cudnn_set(g, ops, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1,
                 &lib->cudnn);
    zt_cudnn_set(g, ops, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                 g->num_ops, g->op);
    zt_cudnn_finalize(g, ops);
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

/* A plan for one of them; NULL: it does not work here. */
static cudnnBackendDescriptor_t try_plan(struct zt_sdpa_lib *lib,
                                         cudnnBackendDescriptor_t config,
                                         cudnnStatus_t *e)
{
    cudnnBackendDescriptor_t plan = NULL;

    *e = cudnnBackendCreateDescriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &plan);
    if (!*e)
        *e = cudnnBackendSetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE,
                                      CUDNN_TYPE_HANDLE, 1, &lib->cudnn);
    if (!*e)
        *e = cudnnBackendSetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
                                      CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &config);
    if (!*e)
        *e = cudnnBackendFinalize(plan);
    if (!*e)
        return plan;
    if (plan)
        (void)cudnnBackendDestroyDescriptor(plan);
    return NULL;
}

/* The first that works; NULL, and the reason in g->e. */
static cudnnBackendDescriptor_t find_plan(struct zt_cudnn_graph *g,
                                          struct zt_sdpa_lib *lib)
{
    cudnnBackendDescriptor_t config[CHOICES], plan = NULL;
    cudnnStatus_t e = CUDNN_STATUS_NOT_SUPPORTED;
    int64_t num = choices(g, lib, config);

    for (int64_t i = 0; i < num && !plan; i++)
        if (is_deterministic(g, config[i]))
            plan = try_plan(lib, config[i], &e);
    if (!plan && !g->e)
        g->e = e;
    return plan;
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
        plan->delta_bytes =
            ((size_t)(p->batch * p->heads * p->tq) * sizeof(float) + ALIGNED - 1) /
            ALIGNED * ALIGNED;
    zt_cudnn_graph_init(&g, p);
    plan->plan = find_plan(&g, lib);
    if (!g.e)
        g.e =
            cudnnBackendGetAttribute(plan->plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                     CUDNN_TYPE_INT64, 1, &num, &bytes);
    if (g.e)
        rc = failed(g.e, "no plan", why, why_bytes);
    zt_cudnn_graph_release(&g);
    if (rc) {
        plan_close(plan);
        return rc;
    }
    *workspace_bytes = plan->delta_bytes + (size_t)bytes;
    *out = plan;
    return ZT_OK;
}

/* ------------------------------------------------------------------ running */

/* The operands of a run: device pointers, and scalars of the host. */
struct pack {
    int64_t id[ZT_NUM_REAL];
    void *at[ZT_NUM_REAL];
    int num;
};

static void put(struct pack *pack, int id, const void *at)
{
    pack->id[pack->num] = id;
    pack->at[pack->num++] = (void *)at;
}

static cudnnStatus_t execute(struct zt_sdpa_lib *lib, const struct zt_sdpa_plan *plan,
                             const struct pack *pack, void *workspace)
{
    cudnnBackendDescriptor_t d = NULL;
    cudnnStatus_t e;

    e = cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &d);
    if (!e)
        e = cudnnBackendSetAttribute(d, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS,
                                     CUDNN_TYPE_INT64, pack->num, pack->id);
    if (!e)
        e = cudnnBackendSetAttribute(d, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
                                     CUDNN_TYPE_VOID_PTR, pack->num, pack->at);
    if (!e)
        e = cudnnBackendSetAttribute(d, CUDNN_ATTR_VARIANT_PACK_WORKSPACE,
                                     CUDNN_TYPE_VOID_PTR, 1, &workspace);
    if (!e)
        e = cudnnBackendFinalize(d);
    if (!e)
        e = cudnnBackendExecute(lib->cudnn, plan->plan, d);
    if (d)
        (void)cudnnBackendDestroyDescriptor(d);
    return e;
}

static zt_err run(struct zt_sdpa_lib *lib, const struct zt_sdpa_plan *plan, void *stream,
                  const struct zt_sdpa_data *d, void *workspace, char *why,
                  size_t why_bytes)
{
    const float hidden = -INFINITY, one = 1;
    struct pack pack = {.num = 0};
    cudnnStatus_t e;

    put(&pack, ZT_Q, d->q);
    put(&pack, ZT_K, d->k);
    put(&pack, ZT_V, d->v);
    put(&pack, ZT_OUT, d->out);
    put(&pack, ZT_LSE, d->lse);
    put(&pack, ZT_SCALE, &d->scale);
    if (plan->causal)
        put(&pack, ZT_HIDDEN, &hidden);
    if (plan->backward) {
        put(&pack, ZT_DOUT, d->dout);
        put(&pack, ZT_DQ, d->dq);
        put(&pack, ZT_DK, d->dk);
        put(&pack, ZT_DV, d->dv);
        put(&pack, ZT_DELTA, workspace);
        put(&pack, ZT_ONE, &one);
    }
    e = cudnnSetStream(lib->cudnn, stream);
    if (!e)
        e = execute(lib, plan, &pack, (char *)workspace + plan->delta_bytes);
    return e ? failed(e, "run", why, why_bytes) : ZT_OK;
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
        return failed(e, "it does not start", why, why_bytes);
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
};
