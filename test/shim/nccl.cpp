/*
 * nccl.cpp -- collectives, sends and groups: arguments are looked at, and what was issued
 * between ncclGroupStart() and ncclGroupEnd() becomes one piece of work for each
 * communicator.
 */
#include <stdint.h>

#include <algorithm>

#include "nccl_comm.h"

struct issued {
    ncclComm_t comm;
    nccl_task task;
    cudaStream_t stream;
};

static thread_local int depth;
static thread_local ncclResult_t group_error; /* the first of the group */
static thread_local std::vector<struct issued> *group;

static void check_buffer(const nccl_task &t, const char *name, const void *p, size_t n)
{
    size_t rest;

    if (n == 0)
        return;
    if (shim_side_of(p, &rest) == SHIM_HOST && rest == SIZE_MAX)
        shim_die("%s: the %s is memory of the host that is not pinned",
                 nccl_kind_name(t.kind), name);
    if (rest < n)
        shim_die("%s: the %s has %zu bytes up to the end of its allocation, and %zu are "
                 "needed",
                 nccl_kind_name(t.kind), name, rest, n);
}

/* The one place where the ranges of a task may overlap; -1: none. */
static ptrdiff_t in_place_at(const nccl_task &t, int rank)
{
    ptrdiff_t own = (ptrdiff_t)((size_t)rank * t.count * nccl_type_bytes(t.type));

    switch (t.kind) {
    case NCCL_ALL_GATHER:
        return own;
    case NCCL_REDUCE_SCATTER:
        return -own;
    default:
        return 0;
    }
}

static void check_buffers(const nccl_task &t, const wire &w)
{
    size_t out = nccl_send_bytes(t, w), in = nccl_recv_bytes(t, w);
    uintptr_t send = (uintptr_t)t.send, recv = (uintptr_t)t.recv;
    bool in_place =
        t.kind != NCCL_ALL_TO_ALL && (ptrdiff_t)(send - recv) == in_place_at(t, w.rank);

    check_buffer(t, "send buffer", t.send, out);
    check_buffer(t, "receive buffer", t.recv, in);
    if (out > 0 && in > 0 && send < recv + in && recv < send + out && !in_place)
        shim_die("%s: send and receive buffer overlap", nccl_kind_name(t.kind));
}

static ncclResult_t check(ncclComm_t comm, const nccl_task &t, bool has_root)
{
    const char *name = nccl_kind_name(t.kind);
    ncclResult_t result = nccl_check_ready(comm, name);
    std::shared_ptr<wire> w = nccl_wire_of(comm);

    if (result != ncclSuccess || !w)
        return result;
    if (comm->finalized)
        return nccl_set_error(ncclInvalidUsage, "%s: after ncclCommFinalize", name);
    if (nccl_type_bytes(t.type) == 0)
        return nccl_set_error(ncclInvalidArgument, "%s: data type %d", name, t.type);
    if (t.op != ncclSum && t.op != ncclMax)
        return nccl_set_error(ncclInvalidArgument, "%s: operation %d", name, t.op);
    if (has_root && (t.root < 0 || t.root >= w->num))
        return nccl_set_error(ncclInvalidArgument, "%s: rank %d of %d", name, t.root,
                              w->num);
    if (t.count > SIZE_MAX / 2 / 8 / (size_t)w->num)
        return nccl_set_error(ncclInvalidArgument, "%s: %zu elements", name, t.count);
    check_buffers(t, *w);
    return ncclSuccess;
}

ncclResult_t nccl_queue_held(ncclComm_t comm, std::shared_ptr<wire> w)
{
    const char *name = nccl_kind_name(comm->held[0].kind);
    cudaError_t e = shim_enqueue_call(
        comm->held_on, {NULL, name, nullptr, nccl_new_call(w, comm->held)}, &comm->last);

    comm->held.clear();
    comm->held_on.clear();
    comm->holds = false;
    return nccl_of_cuda(e, name);
}

/* What was issued, communicator by communicator. */
static ncclResult_t flush(std::vector<struct issued> some)
{
    std::vector<ncclComm_t> order;
    ncclResult_t result = ncclSuccess;

    for (const struct issued &i : some) {
        ncclComm_t c = i.comm;

        if (std::find(order.begin(), order.end(), c) == order.end())
            order.push_back(c);
        c->held.push_back(i.task);
        if (std::find(c->held_on.begin(), c->held_on.end(), i.stream) == c->held_on.end())
            c->held_on.push_back(i.stream);
    }
    for (ncclComm_t c : order) {
        std::shared_ptr<wire> w = nccl_wire_of(c);
        ncclResult_t did = ncclInProgress;

        c->holder = pthread_self();
        c->holds = true;
        if (!w)
            did = nccl_no_comm("a group");
        else if (c->blocking)
            did = nccl_queue_held(c, w);
        if (result == ncclSuccess || (result == ncclInProgress && did != ncclSuccess))
            result = did;
    }
    return result;
}

ncclResult_t ncclGroupStart(void)
{
    if (depth++ == 0) {
        group_error = ncclSuccess;
        group = new std::vector<struct issued>;
    }
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void)
{
    std::vector<struct issued> some;

    if (depth == 0)
        return nccl_set_error(ncclInvalidUsage, "ncclGroupEnd: without ncclGroupStart");
    if (--depth > 0)
        return ncclSuccess;
    some.swap(*group);
    delete group;
    return group_error != ncclSuccess ? group_error : flush(std::move(some));
}

static ncclResult_t issue(ncclComm_t comm, cudaStream_t stream, nccl_task t)
{
    bool single = t.kind == NCCL_SEND || t.kind == NCCL_RECV;
    ncclResult_t result = check(comm, t, single || t.kind == NCCL_BROADCAST);

    if (result != ncclSuccess) {
        if (depth > 0 && group_error == ncclSuccess)
            group_error = result;
        return result;
    }
    if (t.count == 0 && !single)
        return ncclSuccess; /* not a barrier either */
    if (depth == 0)
        return flush({{comm, t, stream}});
    group->push_back({comm, t, stream});
    return ncclSuccess;
}

ncclResult_t ncclBroadcast(const void *sendbuff, void *recvbuff, size_t count,
                           ncclDataType_t datatype, int root, ncclComm_t comm,
                           cudaStream_t stream)
{
    return issue(comm, stream,
                 {NCCL_BROADCAST, sendbuff, recvbuff, count, datatype, ncclSum, root});
}

ncclResult_t ncclAllReduce(const void *sendbuff, void *recvbuff, size_t count,
                           ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                           cudaStream_t stream)
{
    return issue(comm, stream,
                 {NCCL_ALL_REDUCE, sendbuff, recvbuff, count, datatype, op, -1});
}

ncclResult_t ncclReduceScatter(const void *sendbuff, void *recvbuff, size_t recvcount,
                               ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                               cudaStream_t stream)
{
    return issue(comm, stream,
                 {NCCL_REDUCE_SCATTER, sendbuff, recvbuff, recvcount, datatype, op, -1});
}

ncclResult_t ncclAllGather(const void *sendbuff, void *recvbuff, size_t sendcount,
                           ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream)
{
    return issue(comm, stream,
                 {NCCL_ALL_GATHER, sendbuff, recvbuff, sendcount, datatype, ncclSum, -1});
}

ncclResult_t ncclAlltoAll(const void *sendbuff, void *recvbuff, size_t count,
                          ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream)
{
    return issue(comm, stream,
                 {NCCL_ALL_TO_ALL, sendbuff, recvbuff, count, datatype, ncclSum, -1});
}

ncclResult_t ncclSend(const void *sendbuff, size_t count, ncclDataType_t datatype,
                      int peer, ncclComm_t comm, cudaStream_t stream)
{
    return issue(comm, stream,
                 {NCCL_SEND, sendbuff, NULL, count, datatype, ncclSum, peer});
}

ncclResult_t ncclRecv(void *recvbuff, size_t count, ncclDataType_t datatype, int peer,
                      ncclComm_t comm, cudaStream_t stream)
{
    return issue(comm, stream,
                 {NCCL_RECV, NULL, recvbuff, count, datatype, ncclSum, peer});
}
