/*
 * nccl_comm.cpp -- communicators: how they begin, how they describe themselves, how they
 * end.
 *
 * States of a communicator, as ncclCommGetAsyncError() tells them:
 *
 *      ncclInProgress -> ncclSuccess <-> ncclInProgress   a job, or a call that is held
 *             \               \---------------v
 *              \--------------------------> an error: only ncclCommAbort() is left
 *
 * A job (connecting, splitting, ending) runs in the caller, or in a thread of its own where
 * the communicator is not blocking.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <set>

#include "nccl_comm.h"

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

std::shared_ptr<wire> nccl_wire_of(ncclComm_t comm)
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

ncclResult_t nccl_no_comm(const char *call)
{
    return nccl_set_error(ncclInvalidArgument,
                          "%s: this is no communicator, or one that has been destroyed",
                          call);
}

ncclResult_t nccl_check_ready(ncclComm_t comm, const char *call)
{
    std::shared_ptr<wire> w = nccl_wire_of(comm);

    if (!w)
        return nccl_no_comm(call);
    if (w->result != ncclSuccess)
        return (ncclResult_t)w->result.load();
    if (comm->num_jobs > 0 || comm->holds)
        return nccl_set_error(
            ncclInvalidArgument,
            "%s: the previous operation of this communicator is in "
            "progress; wait until ncclCommGetAsyncError says ncclSuccess",
            call);
    return ncclSuccess;
}

/* ---------------------------------------------------------------- jobs */
static ncclResult_t start_job(ncclComm_t comm, std::function<ncclResult_t(wire *)> job)
{
    std::shared_ptr<wire> w = nccl_wire_of(comm);
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
            wire_fail(w.get(), did, "%s", nccl_last_error().c_str());
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
    return nccl_set_error(
        ncclInvalidArgument,
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
        return nccl_set_error(ncclInvalidArgument,
                              "ncclGetUniqueId: no place for the id");
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
        return nccl_set_error(ncclInvalidArgument, "rank %d of %d with %d ids cannot be",
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
    result = start_job(*newcomm,
                       [id, hello](wire *it) { return wire_connect(it, &id, &hello); });
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
    ncclResult_t result = nccl_check_ready(comm, "ncclCommSplit");
    bool blocking;
    int device;

    if (result != ncclSuccess)
        return result;
    if (!newcomm || (color < 0 && color != NCCL_SPLIT_NOCOLOR))
        return nccl_set_error(
            ncclInvalidArgument,
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
    ncclResult_t result = nccl_check_ready(comm, "ncclCommFinalize");
    shim_point last;

    if (result != ncclSuccess)
        return result;
    if (comm->finalized)
        return nccl_set_error(ncclInvalidUsage, "ncclCommFinalize: for the second time");
    comm->finalized = true;
    last = comm->last;
    return start_job(comm, [last](wire *w) {
        shim_wait_for(last);
        return w->result != ncclSuccess ? (ncclResult_t)w->result.load() : wire_end(w);
    });
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    ncclResult_t result = nccl_check_ready(comm, "ncclCommDestroy");

    if (result != ncclSuccess)
        return result;
    if (!comm->finalized) {
        comm->blocking = true; /* what is left is done here */
        result = ncclCommFinalize(comm);
    }
    if (result == ncclSuccess)
        retire(comm);
    return result;
}

ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    std::shared_ptr<wire> w = retire(comm);

    if (!w)
        return nccl_no_comm("ncclCommAbort");
    wire_abort(w.get());
    return ncclSuccess;
}

/* ---------------------------------------------------------------- questions */
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *asyncError)
{
    std::shared_ptr<wire> w = nccl_wire_of(comm);
    int peer;

    if (!w || !asyncError)
        return nccl_no_comm("ncclCommGetAsyncError");
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
            return nccl_queue_held(comm, w);
    }
    return ncclSuccess;
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int *count)
{
    ncclResult_t result = nccl_check_ready(comm, "ncclCommCount");

    if (result == ncclSuccess)
        *count = nccl_wire_of(comm)->num;
    return result;
}

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *rank)
{
    ncclResult_t result = nccl_check_ready(comm, "ncclCommUserRank");

    if (result == ncclSuccess)
        *rank = nccl_wire_of(comm)->rank;
    return result;
}

ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int *device)
{
    ncclResult_t result = nccl_check_ready(comm, "ncclCommCuDevice");

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
    std::string said = nccl_last_error();

    strncpy(text, said.c_str(), sizeof(text) - 1);
    return text;
}

/* ---------------------------------------------------------------- memory */
ncclResult_t nccl_of_cuda(cudaError_t e, const char *call)
{
    if (e == cudaSuccess)
        return ncclSuccess;
    return nccl_set_error(ncclUnhandledCudaError, "%s: %s", call, cudaGetErrorString(e));
}

ncclResult_t ncclMemAlloc(void **ptr, size_t size)
{
    return nccl_of_cuda(cudaMalloc(ptr, size), "ncclMemAlloc");
}

ncclResult_t ncclMemFree(void *ptr)
{
    return nccl_of_cuda(cudaFree(ptr), "ncclMemFree");
}

struct registration {
    ncclComm_t comm;
};

static std::set<struct registration *> &registrations =
    *new std::set<struct registration *>;

ncclResult_t ncclCommRegister(const ncclComm_t comm, void *buff, size_t size,
                              void **handle)
{
    ncclResult_t result = nccl_check_ready(comm, "ncclCommRegister");
    struct registration *r;
    size_t rest;

    if (result != ncclSuccess)
        return result;
    if (!handle || size == 0 || shim_side_of(buff, &rest) == SHIM_HOST || rest < size)
        return nccl_set_error(
            ncclInvalidArgument,
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
        return nccl_set_error(
            ncclInvalidArgument,
            "ncclCommDeregister: this handle is not of this communicator");
    registrations.erase(r);
    delete r;
    return ncclSuccess;
}
