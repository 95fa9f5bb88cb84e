/* call_text.c -- how messages describe a call. */
#include "worker/comm/engine.h"

#include <stdio.h>

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
