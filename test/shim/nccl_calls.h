/*
 * nccl_calls.h -- collectives, sends and receives as work of a stream.
 */
#ifndef SHIM_NCCL_CALLS_H
#define SHIM_NCCL_CALLS_H

#include "nccl_wire.h"
#include "shim.h"

enum nccl_kind {
    NCCL_BROADCAST,
    NCCL_ALL_REDUCE,
    NCCL_REDUCE_SCATTER,
    NCCL_ALL_GATHER,
    NCCL_ALL_TO_ALL,
    NCCL_SEND,
    NCCL_RECV
};

/* One call of the program, arguments copied. */
struct nccl_task {
    nccl_kind kind;
    const void *send; /* of no use where nothing is sent */
    void *recv;
    size_t count;
    ncclDataType_t type;
    ncclRedOp_t op; /* ncclSum for those that reduce nothing */
    int root;       /* or the peer; -1: neither */
};

const char *nccl_kind_name(nccl_kind kind);
/* 0: no such type */
size_t nccl_type_bytes(ncclDataType_t type);
/* What a task reads and writes on this rank. */
size_t nccl_send_bytes(const nccl_task &t, const wire &w);
size_t nccl_recv_bytes(const nccl_task &t, const wire &w);

/*
 * All tasks of a group on one communicator: sends and receives go on side by side,
 * collectives one after the other. A mismatch with a peer ends the process.
 */
std::shared_ptr<shim_call> nccl_new_call(std::shared_ptr<wire> w,
                                         const std::vector<nccl_task> &tasks);

/*
 * `type` numbers: out[i] = the sum or maximum of from[r][i] over all ranks r, rounded at
 * each step, in the order of a ring whose start moves with i. out may be any of `from`.
 */
void nccl_reduce(ncclDataType_t type, ncclRedOp_t op, void *out,
                 const std::vector<const void *> &from, size_t count, int first);

#endif
