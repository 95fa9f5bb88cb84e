/* cudnn_plan.c -- what attention and products do alike with an engine of cuDNN. */
#include "backends/cudnn_graph.h"

#include <stdio.h>
#include <string.h>

/* What cuDNN says of its last error holds traces; one line of it is the reason. */
zt_err zt_cudnn_failed(cudnnStatus_t e, const char *what, char *why, size_t why_bytes)
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

bool zt_cudnn_is_deterministic(struct zt_cudnn_graph *g, cudnnBackendDescriptor_t engine)
{
    cudnnBackendNumericalNote_t note[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    int64_t num = 0;

    if (!g->e)
        g->e = cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                        CUDNN_TYPE_NUMERICAL_NOTE,
                                        CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &num, note);
    for (int64_t i = 0; !g->e && i < num; i++)
        if (note[i] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC)
            return false;
    return !g->e;
}

cudnnBackendDescriptor_t zt_cudnn_try_plan(struct zt_sdpa_lib *lib,
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

void zt_cudnn_put(struct zt_cudnn_pack *pack, int id, const void *at)
{
    pack->id[pack->num] = id;
    pack->at[pack->num++] = (void *)at;
}

cudnnStatus_t zt_cudnn_execute(struct zt_sdpa_lib *lib, cudnnBackendDescriptor_t plan,
                               const struct zt_cudnn_pack *pack, void *workspace)
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
        e = cudnnBackendExecute(lib->cudnn, plan, d);
    if (d)
        (void)cudnnBackendDestroyDescriptor(d);
    return e;
}
