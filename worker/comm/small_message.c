#include "worker/comm/small_message.h"

#include <string.h>

#include "worker/comm/reduce.h"

static void sum_f64(double *out, int world, const void *const *src, size_t count)
{
    memcpy(out, src[0], count * sizeof(*out));
    for (int r = 1; r < world; r++)
        for (size_t i = 0; i < count; i++)
            out[i] += ((const double *)src[r])[i];
}

void zt_comm_finish_small(const struct zt_comm_call *call, int rank, int world,
                          const void *const *src, size_t bytes)
{
    struct zt_rank_reduction how = {
        .dtype = call->dtype, .op = call->reduce, .scale = call->scale};
    void *out = call->recv;

    switch (call->op) {
    case ZT_COMM_ALL_REDUCE:
    case ZT_COMM_REDUCE_SCATTER:
        zt_reduce_ranks(&how, &out, 1, src, world, call->count);
        break;
    case ZT_COMM_ALL_GATHER:
    case ZT_COMM_ALL_TO_ALL:
        for (int r = 0; r < world; r++)
            zt_comm_copy((char *)out + (size_t)r * bytes, src[r], bytes, false);
        break;
    case ZT_COMM_BROADCAST:
        if (rank != call->root)
            zt_comm_copy(out, src[call->root], bytes, false);
        break;
    case ZT_COMM_SUM_F64:
        sum_f64(out, world, src, call->count);
        break;
    default:
        break;
    }
}
