/*
 * nccl.cpp -- the calls of nccl.h: arguments, states and groups.
 *
 * States of a communicator, as ncclCommGetAsyncError() tells them:
 *
 *      ncclInProgress -> ncclSuccess <-> ncclInProgress   a job, or a call that is held
 *             \               \---------------v
 *              \--------------------------> an error: only ncclCommAbort() is left
 *
 * A job (meeting, splitting, ending) runs in the caller, or in a thread of its own where
 * the communicator is not blocking.
 */
#include "nccl.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <map>
#include <set>

#include "nccl_calls.h"

struct ncclComm {
    std::shared_ptr<wire> w; /* NULL: destroyed or aborted */
    int device = 0;
    bool blocking = true, finalized = false;
    std::atomic<int> num_jobs{0};
    shim_point last = {NULL, 0};

    /* not blocking: what has been issued and is not queued */
    std::vector<nccl_task> held;
    std::vector<cudaStream_t> held_on;
    std::atomic<bool> holds{false};
    pthread_t holder = {};
};

/* never freed: a handle that is used after its end is recognised */
static std::mutex &comms_guard = *new std::mutex;
static std::set<ncclComm *> &comms = *new std::set<ncclComm *>;

static ncclComm *new_comm(std::shared_ptr<wire> w, int device, bool blocking)
{
    std::lock_guard<std::mutex> hold(comms_guard);
    ncclComm *c = new ncclComm();

    c->w = w;
    c->device = device;
    c->blocking = blocking;
    comms.insert(c);
    return c;
}

/* NULL: no such communicator, or not any more. */
static std::shared_ptr<wire> wire_of(ncclComm_t comm)
{
    std::lock_guard<std::mutex> hold(comms_guard);

    return comms.count(comm) ? comm->w : NULL;
}

/* Nobody finds it any more. */
static std::shared_ptr<wire> retire(ncclComm_t comm)
{
    std::lock_guard<std::mutex> hold(comms_guard);

    return comms.count(comm) ? std::move(comm->w) : NULL;
}

static ncclResult_t no_comm(const char *call)
{
    return nccl_says(ncclInvalidArgument,
                     "%s: this is no communicator, or one that has been destroyed", call);
}

/* Success: the communicator can take a call. */
static ncclResult_t ready(ncclComm_t comm, const char *call)
{
    std::shared_ptr<wire> w = wire_of(comm);

    if (!w)
        return no_comm(call);
    if (w->result != ncclSuccess)
        return (ncclResult_t)w->result.load();
    if (comm->num_jobs > 0 || comm->holds)
        return nccl_says(ncclInvalidArgument,
                         "%s: the previous operation of this communicator is in "
                         "progress; wait until ncclCommGetAsyncError says ncclSuccess",
                         call);
    return ncclSuccess;
}

/* ---------------------------------------------------------------- jobs */
static ncclResult_t start_job(ncclComm_t comm, std::function<ncclResult_t(wire *)> job)
{
    std::shared_ptr<wire> w = wire_of(comm);
    ncclResult_t result;

    comm->num_jobs++;
    if (comm->blocking) {
        result = job(w.get());
        comm->num_jobs--;
        return result;
    }
    shim_new_thread([comm, w, job] {
        ncclResult_t did = job(w.get());

        if (did != ncclSuccess)
            wire_fail(w.get(), did, "%s", nccl_last_words().c_str());
        comm->num_jobs--;
    });
    return ncclInProgress;
}

static bool good_config(const ncclConfig_t *config)
{
    return !config || (config->size == sizeof(*config) && config->magic == 0xcafebeef &&
                       (config->blocking == NCCL_CONFIG_UNDEF_INT ||
                        config->blocking == 0 || config->blocking == 1));
}

static ncclResult_t bad_config(void)
{
    return nccl_says(ncclInvalidArgument,
                     "ncclConfig_t: not initialised with NCCL_CONFIG_INITIALIZER, or "
                     "blocking is neither 0 nor 1");
}

static bool is_blocking(const ncclConfig_t *config, bool otherwise)
{
    return !config || config->blocking == NCCL_CONFIG_UNDEF_INT ? otherwise
                                                                : config->blocking;
}

/* ---------------------------------------------------------------- beginnings */
static unsigned long long hash_of(const ncclUniqueId *ids, int num)
{
    unsigned long long h = 0xcbf29ce484222325u;

    for (int i = 0; i < num; i++)
        for (char c : ids[i].internal)
            h = (h ^ (unsigned char)c) * 0x100000001b3u;
    return h;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *uniqueId)
{
    if (!uniqueId)
        return nccl_says(ncclInvalidArgument, "ncclGetUniqueId: no place for the id");
    return wire_new_id(uniqueId);
}

ncclResult_t ncclCommInitRankScalable(ncclComm_t *newcomm, int nranks, int myrank,
                                      int nId, ncclUniqueId *commIds,
                                      ncclConfig_t *config)
{
    const char *host = getenv("NCCL_HOSTID");
    struct wire_hello hello = {};
    std::shared_ptr<wire> w = std::make_shared<wire>();
    ncclResult_t result;
    ncclUniqueId id;
    int device;

    if (!newcomm || !commIds || nranks < 1 || myrank < 0 || myrank >= nranks || nId < 1 ||
        nId > nranks)
        return nccl_says(ncclInvalidArgument, "rank %d of %d with %d ids cannot be",
                         myrank, nranks, nId);
    if (!good_config(config))
        return bad_config();
    cudaGetDevice(&device);
    hello.num = nranks;
    hello.rank = myrank;
    hello.ids = hash_of(commIds, nId);
    cudaDeviceGetPCIBusId(hello.bus, sizeof(hello.bus), device);
    strncpy(hello.host, host ? host : "", sizeof(hello.host) - 1);
    id = commIds[0];
    w->rank = myrank;
    w->num = nranks;
    *newcomm = new_comm(w, device, is_blocking(config, true));
    result =
        start_job(*newcomm, [id, hello](wire *it) { return wire_meet(it, &id, &hello); });
    if (result != ncclSuccess && result != ncclInProgress) {
        retire(*newcomm);
        *newcomm = NULL;
    }
    return result;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int nranks, ncclUniqueId commId,
                                    int rank, ncclConfig_t *config)
{
    return ncclCommInitRankScalable(comm, nranks, rank, 1, &commId, config);
}

ncclResult_t ncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId commId, int rank)
{
    return ncclCommInitRankConfig(comm, nranks, commId, rank, NULL);
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *newcomm,
                           ncclConfig_t *config)
{
    ncclResult_t result = ready(comm, "ncclCommSplit");
    bool blocking;
    int device;

    if (result != ncclSuccess)
        return result;
    if (!newcomm || (color < 0 && color != NCCL_SPLIT_NOCOLOR))
        return nccl_says(ncclInvalidArgument,
                         "ncclCommSplit: color %d is neither NCCL_SPLIT_NOCOLOR nor 0 or "
                         "more",
                         color);
    if (!good_config(config))
        return bad_config();
    blocking = is_blocking(config, comm->blocking);
    device = comm->device;
    *newcomm = NULL;
    return start_job(comm, [=](wire *parent) {
        std::shared_ptr<wire> child = std::make_shared<wire>();
        ncclResult_t did = wire_split(parent, color, key, child.get());

        if (did == ncclSuccess && color >= 0)
            __atomic_store_n(newcomm, new_comm(child, device, blocking),
                             __ATOMIC_RELEASE);
        return did;
    });
}

/* ---------------------------------------------------------------- ends */
ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    ncclResult_t result = ready(comm, "ncclCommFinalize");
    shim_point last;

    if (result != ncclSuccess)
        return result;
    if (comm->finalized)
        return nccl_says(ncclInvalidUsage, "ncclCommFinalize: for the second time");
    comm->finalized = true;
    last = comm->last;
    return start_job(comm, [last](wire *w) {
        shim_wait_for(last);
        return w->result != ncclSuccess ? (ncclResult_t)w->result.load() : wire_end(w);
    });
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    ncclResult_t result = ready(comm, "ncclCommDestroy");

    if (result != ncclSuccess)
        return result;
    if (!comm->finalized) {
        comm->blocking = true; /* what is left is done here */
        result = ncclCommFinalize(comm);
    }
    retire(comm);
    return result;
}

ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    std::shared_ptr<wire> w = retire(comm);

    if (!w)
        return no_comm("ncclCommAbort");
    wire_abort(w.get());
    return ncclSuccess;
}

/* ---------------------------------------------------------------- questions */
static ncclResult_t queue_held(ncclComm_t comm, std::shared_ptr<wire> w);

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *asyncError)
{
    std::shared_ptr<wire> w = wire_of(comm);
    int peer;

    if (!w || !asyncError)
        return no_comm("ncclCommGetAsyncError");
    if (comm->num_jobs > 0) {
        *asyncError =
            w->result == ncclSuccess ? ncclInProgress : (ncclResult_t)w->result.load();
        return ncclSuccess;
    }
    if (w->result == ncclSuccess && wire_peer_left(w.get(), &peer))
        wire_fail(w.get(), ncclRemoteError, "rank %d of %d has gone", peer, w->num);
    *asyncError = (ncclResult_t)w->result.load();
    if (*asyncError == ncclSuccess && comm->holds) {
        *asyncError = ncclInProgress;
        if (pthread_equal(comm->holder, pthread_self()))
            return queue_held(comm, w);
    }
    return ncclSuccess;
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int *count)
{
    ncclResult_t result = ready(comm, "ncclCommCount");

    if (result == ncclSuccess)
        *count = wire_of(comm)->num;
    return result;
}

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *rank)
{
    ncclResult_t result = ready(comm, "ncclCommUserRank");

    if (result == ncclSuccess)
        *rank = wire_of(comm)->rank;
    return result;
}

ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int *device)
{
    ncclResult_t result = ready(comm, "ncclCommCuDevice");

    if (result == ncclSuccess)
        *device = comm->device;
    return result;
}

ncclResult_t ncclGetVersion(int *version)
{
    *version = NCCL_VERSION_CODE;
    return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t result)
{
    switch (result) {
    case ncclSuccess:
        return "no error";
    case ncclUnhandledCudaError:
        return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
    case ncclSystemError:
        return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
    case ncclInternalError:
        return "internal error - please report this issue to the NCCL developers";
    case ncclInvalidArgument:
        return "invalid argument (run with NCCL_DEBUG=WARN for details)";
    case ncclInvalidUsage:
        return "invalid usage (run with NCCL_DEBUG=WARN for details)";
    case ncclRemoteError:
        return "remote process exited or there was a network error";
    case ncclInProgress:
        return "NCCL operation in progress";
    default:
        return "unknown result code";
    }
}

const char *ncclGetLastError(ncclComm_t)
{
    static thread_local char text[512];
    std::string said = nccl_last_words();

    strncpy(text, said.c_str(), sizeof(text) - 1);
    return text;
}

/* ---------------------------------------------------------------- memory */
static ncclResult_t of_cuda(cudaError_t e, const char *call)
{
    if (e == cudaSuccess)
        return ncclSuccess;
    return nccl_says(ncclUnhandledCudaError, "%s: %s", call, cudaGetErrorString(e));
}

ncclResult_t ncclMemAlloc(void **ptr, size_t size)
{
    return of_cuda(cudaMalloc(ptr, size), "ncclMemAlloc");
}

ncclResult_t ncclMemFree(void *ptr)
{
    return of_cuda(cudaFree(ptr), "ncclMemFree");
}

struct registration {
    ncclComm_t comm;
};

static std::set<struct registration *> &registrations =
    *new std::set<struct registration *>;

ncclResult_t ncclCommRegister(const ncclComm_t comm, void *buff, size_t size,
                              void **handle)
{
    ncclResult_t result = ready(comm, "ncclCommRegister");
    struct registration *r;
    size_t rest;

    if (result != ncclSuccess)
        return result;
    if (!handle || size == 0 || shim_side_of(buff, &rest) == SHIM_HOST || rest < size)
        return nccl_says(ncclInvalidArgument,
                         "ncclCommRegister: %zu bytes at %p are not in one allocation of "
                         "the device",
                         size, buff);
    r = new registration{comm};
    registrations.insert(r);
    *handle = r;
    return ncclSuccess;
}

ncclResult_t ncclCommDeregister(const ncclComm_t comm, void *handle)
{
    struct registration *r = (struct registration *)handle;

    if (!registrations.count(r) || r->comm != comm)
        return nccl_says(ncclInvalidArgument,
                         "ncclCommDeregister: this handle is not of this communicator");
    registrations.erase(r);
    delete r;
    return ncclSuccess;
}

/* ---------------------------------------------------------------- calls and groups */
struct issued {
    ncclComm_t comm;
    nccl_task task;
    cudaStream_t stream;
};

static thread_local int depth;
static thread_local ncclResult_t trouble; /* the first of the group */
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
    ncclResult_t result = ready(comm, name);
    std::shared_ptr<wire> w = wire_of(comm);

    if (result != ncclSuccess || !w)
        return result;
    if (comm->finalized)
        return nccl_says(ncclInvalidUsage, "%s: after ncclCommFinalize", name);
    if (nccl_type_bytes(t.type) == 0)
        return nccl_says(ncclInvalidArgument, "%s: data type %d", name, t.type);
    if (t.op != ncclSum && t.op != ncclMax)
        return nccl_says(ncclInvalidArgument, "%s: operation %d", name, t.op);
    if (has_root && (t.root < 0 || t.root >= w->num))
        return nccl_says(ncclInvalidArgument, "%s: rank %d of %d", name, t.root, w->num);
    if (t.count > SIZE_MAX / 2 / 8 / (size_t)w->num)
        return nccl_says(ncclInvalidArgument, "%s: %zu elements", name, t.count);
    check_buffers(t, *w);
    return ncclSuccess;
}

static ncclResult_t queue_held(ncclComm_t comm, std::shared_ptr<wire> w)
{
    const char *name = nccl_kind_name(comm->held[0].kind);
    cudaError_t e = shim_enqueue_call(
        comm->held_on, {NULL, name, nullptr, nccl_new_call(w, comm->held)}, &comm->last);

    comm->held.clear();
    comm->held_on.clear();
    comm->holds = false;
    return of_cuda(e, name);
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
        std::shared_ptr<wire> w = wire_of(c);
        ncclResult_t did = ncclInProgress;

        c->holder = pthread_self();
        c->holds = true;
        if (!w)
            did = no_comm("a group");
        else if (c->blocking)
            did = queue_held(c, w);
        if (result == ncclSuccess || (result == ncclInProgress && did != ncclSuccess))
            result = did;
    }
    return result;
}

ncclResult_t ncclGroupStart(void)
{
    if (depth++ == 0) {
        trouble = ncclSuccess;
        group = new std::vector<struct issued>;
    }
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void)
{
    std::vector<struct issued> some;

    if (depth == 0)
        return nccl_says(ncclInvalidUsage, "ncclGroupEnd: without ncclGroupStart");
    if (--depth > 0)
        return ncclSuccess;
    some.swap(*group);
    delete group;
    return trouble != ncclSuccess ? trouble : flush(std::move(some));
}

static ncclResult_t issue(ncclComm_t comm, cudaStream_t stream, nccl_task t)
{
    bool single = t.kind == NCCL_SEND || t.kind == NCCL_RECV;
    ncclResult_t result = check(comm, t, single || t.kind == NCCL_BROADCAST);

    if (result != ncclSuccess) {
        if (depth > 0 && trouble == ncclSuccess)
            trouble = result;
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
