/*
 * cudnn_gated.c -- a product and the backward of the SwiGLU behind it as one graph, for
 * cuDNN's engines that compile such a kernel. They are tried by number, and measured by the
 * backend. Where nobody has measured, it is the engine that cuDNN falls back to, which compiles
 * for the device's own instructions: what its heuristics propose first for a Hopper GPU, as of
 * 9.19, is a kernel of Ampere's.
 */
#include "backends/cudnn_graph.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct zt_sdpa_gated_plan {
    cudnnBackendDescriptor_t plan;
};

static struct zt_cudnn_node matrix(struct zt_cudnn_graph *g, enum zt_cudnn_tensor which,
                                   int64_t rows, int64_t cols, int64_t row, int64_t col)
{
    cudnnDataType_t type = which == ZT_VIRTUAL ? CUDNN_DATA_FLOAT : g->type;
    int64_t all = row > col ? rows * row : cols * col;

    return zt_cudnn_tensor(g, which, type, 3, (int64_t[]){1, rows, cols},
                           (int64_t[]){all, row, col});
}

/* dup = dy silu(gate), dgate = (dy up) silu'(gate), dy = a b */
static void build(struct zt_cudnn_graph *g, const struct zt_sdpa_gated *p)
{
    struct zt_cudnn_node a, b, gate, up, dgate, dup, dy, silu, t;

    memset(g, 0, sizeof(*g));
    g->type = p->dtype == ZT_BF16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_HALF;
    g->next_id = ZT_NUM_REAL;
    a = matrix(g, ZT_A, p->m, p->k, p->a_row, p->a_col);
    b = matrix(g, ZT_B, p->k, p->n, p->b_row, p->b_col);
    gate = matrix(g, ZT_GATE, p->m, p->n, p->n, 1);
    up = matrix(g, ZT_UP, p->m, p->n, p->n, 1);
    dgate = matrix(g, ZT_DGATE, p->m, p->n, p->n, 1);
    dup = matrix(g, ZT_DUP, p->m, p->n, p->n, 1);
    dy = matrix(g, ZT_VIRTUAL, p->m, p->n, p->n, 1);
    silu = matrix(g, ZT_VIRTUAL, p->m, p->n, p->n, 1);
    t = matrix(g, ZT_VIRTUAL, p->m, p->n, p->n, 1);
    zt_cudnn_matmul(g, &a, &b, &dy);
    zt_cudnn_compute(g, CUDNN_POINTWISE_SWISH_FWD, &gate, NULL, &silu);
    zt_cudnn_compute(g, CUDNN_POINTWISE_MUL, &dy, &silu, &dup);
    zt_cudnn_compute(g, CUDNN_POINTWISE_MUL, &dy, &up, &t);
    zt_cudnn_slope(g, CUDNN_POINTWISE_SWISH_BWD, &t, &gate, &dgate);
}

/* An engine of the graph as it is configured by itself. *past: there are not that many. */
static cudnnBackendDescriptor_t configure(struct zt_cudnn_graph *g,
                                          struct zt_sdpa_lib *lib, int64_t number,
                                          bool *past)
{
    cudnnBackendDescriptor_t ops = zt_cudnn_whole(g, lib->cudnn), engine, config;
    int64_t count = 0, num = 0;

    if (!g->e)
        g->e =
            cudnnBackendGetAttribute(ops, CUDNN_ATTR_OPERATIONGRAPH_ENGINE_GLOBAL_COUNT,
                                     CUDNN_TYPE_INT64, 1, &num, &count);
    *past = !g->e && number >= count;
    if (g->e || *past)
        return NULL;
    engine = zt_cudnn_make(g, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    zt_cudnn_set_desc(g, engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, ops);
    zt_cudnn_set(g, engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &number);
    zt_cudnn_finalize(g, engine);
    if (!g->e && !zt_cudnn_is_deterministic(g, engine) && !g->e)
        g->e = CUDNN_STATUS_NOT_SUPPORTED;
    config = zt_cudnn_make(g, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    zt_cudnn_set_desc(g, config, CUDNN_ATTR_ENGINECFG_ENGINE, engine);
    zt_cudnn_finalize(g, config);
    return g->e ? NULL : config;
}

int zt_cudnn_gated_engine(struct zt_sdpa_lib *lib, const struct zt_sdpa_gated *p)
{
    const cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_FALLBACK;
    cudnnBackendDescriptor_t heur, config, engine;
    int64_t found = 0, num = 0, number = -1;
    struct zt_cudnn_graph g;

    build(&g, p);
    heur = zt_cudnn_make(&g, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    zt_cudnn_set_desc(&g, heur, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH,
                      zt_cudnn_whole(&g, lib->cudnn));
    zt_cudnn_set(&g, heur, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    zt_cudnn_finalize(&g, heur);
    config = zt_cudnn_make(&g, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    engine = zt_cudnn_make(&g, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    if (!g.e)
        g.e = cudnnBackendGetAttribute(heur, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                       CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &found, &config);
    if (!g.e && found)
        g.e = cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE,
                                       CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &num, &engine);
    if (!g.e && found)
        g.e = cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX,
                                       CUDNN_TYPE_INT64, 1, &num, &number);
    if (g.e || number > INT_MAX)
        number = -1;
    zt_cudnn_graph_release(&g);
    return (int)number;
}

void zt_cudnn_gated_plan_close(struct zt_sdpa_gated_plan *plan)
{
    if (plan && plan->plan)
        (void)cudnnBackendDestroyDescriptor(plan->plan);
    free(plan);
}

zt_err zt_cudnn_gated_plan(struct zt_sdpa_lib *lib, const struct zt_sdpa_gated *p,
                           int engine, struct zt_sdpa_gated_plan **out,
                           size_t *workspace_bytes, char *why, size_t why_bytes)
{
    struct zt_sdpa_gated_plan *plan = calloc(1, sizeof(*plan));
    cudnnBackendDescriptor_t config;
    struct zt_cudnn_graph g;
    int64_t bytes = 0, num = 0;
    bool past = false;
    zt_err rc = ZT_OK;

    if (!plan) {
        snprintf(why, why_bytes, "no host memory for a plan");
        return ZT_E_NOMEM;
    }
    build(&g, p);
    config = configure(&g, lib, engine, &past);
    if (config)
        plan->plan = zt_cudnn_try_plan(lib, config, &g.e);
    if (!g.e && plan->plan)
        g.e =
            cudnnBackendGetAttribute(plan->plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                     CUDNN_TYPE_INT64, 1, &num, &bytes);
    if (past) {
        snprintf(why, why_bytes, "cuDNN has no engine %d", engine);
        rc = ZT_E_LIMIT;
    } else if (g.e) {
        rc = zt_cudnn_failed(g.e, "no plan", why, why_bytes);
    }
    zt_cudnn_graph_release(&g);
    if (rc) {
        zt_cudnn_gated_plan_close(plan);
        return rc;
    }
    *workspace_bytes = (size_t)bytes;
    *out = plan;
    return ZT_OK;
}

zt_err zt_cudnn_gated_run(struct zt_sdpa_lib *lib, const struct zt_sdpa_gated_plan *plan,
                          void *stream, const struct zt_sdpa_gated_data *d,
                          void *workspace, char *why, size_t why_bytes)
{
    struct zt_cudnn_pack pack = {.num = 0};
    cudnnStatus_t e;

    zt_cudnn_put(&pack, ZT_A, d->a);
    zt_cudnn_put(&pack, ZT_B, d->b);
    zt_cudnn_put(&pack, ZT_GATE, d->gate);
    zt_cudnn_put(&pack, ZT_UP, d->up);
    zt_cudnn_put(&pack, ZT_DGATE, d->dgate);
    zt_cudnn_put(&pack, ZT_DUP, d->dup);
    e = cudnnSetStream(lib->cudnn, stream);
    if (!e)
        e = zt_cudnn_execute(lib, plan->plan, &pack, workspace);
    return e ? zt_cudnn_failed(e, "run", why, why_bytes) : ZT_OK;
}
