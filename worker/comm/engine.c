/* engine.c -- the list of engines, and what calls are named in messages. */
#include "worker/comm/engine.h"
#include "worker/comm/wire.h"

#include <stdio.h>
#include <string.h>

static const struct zt_comm_engine *const engines[] = {
    &zt_comm_solo, &zt_comm_shm, &zt_comm_mpi, &zt_comm_tcp, &zt_comm_faulty,
};

/* ---------------------------------------------------------------- names */
static const char *const op_names[ZT_COMM_NUM_OP] = {
    [ZT_COMM_OPEN] = "open",
    [ZT_COMM_ALLOC] = "alloc",
    [ZT_COMM_SPLIT] = "split",
    [ZT_COMM_ALL_REDUCE] = "all_reduce",
    [ZT_COMM_REDUCE_SCATTER] = "reduce_scatter",
    [ZT_COMM_ALL_GATHER] = "all_gather",
    [ZT_COMM_ALL_TO_ALL] = "all_to_all",
    [ZT_COMM_BROADCAST] = "broadcast",
    [ZT_COMM_BARRIER] = "barrier",
    [ZT_COMM_SUM_F64] = "sum_f64",
};

const char *zt_comm_op_name(zt_comm_op op)
{
    return (unsigned)op < ZT_COMM_NUM_OP ? op_names[op] : "unknown call";
}

void zt_comm_call_text(const struct zt_comm_call *call, char *out, size_t out_bytes)
{
    const char *name = zt_comm_op_name(call->op);
    int n;

    if (call->op == ZT_COMM_OPEN || call->op == ZT_COMM_SPLIT ||
        call->op == ZT_COMM_BARRIER) {
        snprintf(out, out_bytes, "%s", name);
        return;
    }
    if (call->op == ZT_COMM_ALLOC || (unsigned)call->dtype >= ZT_NUM_DTYPE) {
        snprintf(out, out_bytes, "%s%s of %zu bytes", name,
                 call->op == ZT_COMM_ALLOC && call->root ? " (shared)" : "", call->count);
        return;
    }
    if (call->op == ZT_COMM_SUM_F64) {
        snprintf(out, out_bytes, "%s of %zu bytes (%zu f64)", name, call->count * 8,
                 call->count);
        return;
    }
    n = snprintf(out, out_bytes, "%s of %zu bytes (%zu %s)", name,
                 call->count * zt_dtype_bytes(call->dtype), call->count,
                 zt_dtype_name(call->dtype));
    if (n < 0 || (size_t)n >= out_bytes)
        return;
    if (call->op == ZT_COMM_BROADCAST)
        snprintf(out + n, out_bytes - (size_t)n, " from rank %d", call->root);
    else if (call->op == ZT_COMM_ALL_REDUCE || call->op == ZT_COMM_REDUCE_SCATTER)
        snprintf(out + n, out_bytes - (size_t)n, " %s times %g",
                 call->reduce == ZT_MAX ? "max" : "sum", (double)call->scale);
}

/* ---------------------------------------------------------------- engines by name */
/* The engine that `name` means up to a ':'; NULL: none. */
static const struct zt_comm_engine *engine_named(const char *name)
{
    size_t len = strcspn(name, ":");

    for (size_t i = 0; i < sizeof(engines) / sizeof(engines[0]); i++)
        if (strlen(engines[i]->name) == len && !strncmp(engines[i]->name, name, len))
            return engines[i];
    return NULL;
}

static const char *auto_name(const struct zt_comm_config *cfg)
{
    if (cfg->world == 1)
        return "solo";
    if (cfg->shm_fd >= 0)
        return "shm";
    if (zt_wire_is_mpi())
        return "mpi";
    return cfg->meeting ? "tcp" : NULL;
}

zt_err zt_comm_engine_find(const struct zt_comm_config *cfg,
                           const struct zt_comm_engine **out, struct zt_fault *fault)
{
    const char *name = strcmp(cfg->engine, "auto") ? cfg->engine : auto_name(cfg);

    if (!name)
        return zt_fault_set(fault, ZT_E_UNSUPPORTED,
                            "comm: %d ranks with no way between them: start them with "
                            "zlaunch, or with mpirun where MPI is installed",
                            cfg->world);
    *out = engine_named(name);
    if (*out)
        return ZT_OK;
    return zt_fault_set(fault, ZT_E_UNSUPPORTED,
                        "comm: no engine '%s'; there are auto, solo, shm, mpi and tcp",
                        name);
}
