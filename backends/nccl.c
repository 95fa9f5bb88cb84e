/*
 * nccl.c -- NCCL behind the table that zlaunch knows (worker/comm/nccl/library.h). A
 * shared object of its own, since only this needs the library. Compiles as C, and as C++
 * against test/shim/nccl.h.
 *
 * Communicators do not block (config.blocking = 0): no call here waits for
 * another rank, so a caller that waits can give up. Every call that starts something may
 * return ncclInProgress, which is no error; state() tells when it has completed.
 */
#include "worker/comm/nccl/library.h"

#include <cuda_runtime.h>
#include <nccl.h>

#include <stdio.h>
#include <string.h>

static ncclComm_t native(struct zt_nccl_comm *c)
{
    return (ncclComm_t)(void *)c;
}

static cudaStream_t stream_of(void *stream)
{
    return (cudaStream_t)stream;
}

static int status(ncclResult_t r)
{
    return r == ncclInProgress ? 0 : (int)r;
}

/* ---------------------------------------------------------------- the library */
static int version(int *out)
{
    return (int)ncclGetVersion(out);
}

static int gpu(char out[ZT_NCCL_GPU_BYTES])
{
    int device = 0;
    cudaError_t e = cudaGetDevice(&device);

    if (e == cudaSuccess)
        e = cudaDeviceGetPCIBusId(out, ZT_NCCL_GPU_BYTES, device);
    return e == cudaSuccess ? 0 : (int)ncclUnhandledCudaError;
}

static int make_id(unsigned char id[ZT_UNIQUE_ID_BYTES])
{
    ncclUniqueId made;
    ncclResult_t r = ncclGetUniqueId(&made);

    if (r == ncclSuccess)
        memcpy(id, made.internal, ZT_UNIQUE_ID_BYTES);
    return (int)r;
}

static void error_text(struct zt_nccl_comm *c, int error, char *out, size_t out_bytes)
{
    const char *last = ncclGetLastError(native(c));

    snprintf(out, out_bytes, "%s%s%s", ncclGetErrorString((ncclResult_t)error),
             last && *last ? ": " : "", last ? last : "");
    for (char *p = out; *p; p++)
        if (*p == '\n')
            *p = ' ';
}

/* ---------------------------------------------------------------- communicators */
static int open_comm(int world, int rank, const unsigned char *ids, int num_ids,
                     struct zt_nccl_comm **out)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t comm = NULL;
    ncclUniqueId first;
    ncclResult_t r;

    config.blocking = 0;
    memcpy(first.internal, ids, sizeof(first.internal));
    if (num_ids == 1)
        r = ncclCommInitRankConfig(&comm, world, first, rank, &config);
    else /* an id is its bytes and nothing else */
        r = ncclCommInitRankScalable(&comm, world, rank, num_ids,
                                     (ncclUniqueId *)(void *)(uintptr_t)ids, &config);
    *out = (struct zt_nccl_comm *)(void *)comm;
    return status(r);
}

/* NCCL writes *out from a thread of its own: a pointer, as this one is. */
static int split(struct zt_nccl_comm *c, int color, int key, struct zt_nccl_comm **out)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;

    config.blocking = 0;
    return status(ncclCommSplit(native(c), color < 0 ? NCCL_SPLIT_NOCOLOR : color, key,
                                (ncclComm_t *)(void *)out, &config));
}

static int state(struct zt_nccl_comm *c, bool *busy)
{
    ncclResult_t now = ncclSuccess, r = ncclCommGetAsyncError(native(c), &now);

    *busy = now == ncclInProgress;
    return r == ncclSuccess ? status(now) : (int)r;
}

static int finish(struct zt_nccl_comm *c)
{
    return status(ncclCommFinalize(native(c)));
}

static void close_comm(struct zt_nccl_comm *c)
{
    (void)ncclCommDestroy(native(c));
}

/* In a group, all of them start to end before any of them is waited for. */
static void abort_comms(struct zt_nccl_comm *const *all, int num)
{
    bool group = num > 1 && ncclGroupStart() == ncclSuccess;

    for (int i = 0; i < num; i++)
        (void)ncclCommAbort(native(all[i]));
    if (group)
        (void)ncclGroupEnd();
}

/* ---------------------------------------------------------------- collectives */
static int all_gather(struct zt_nccl_comm *c, void *stream, const void *send, void *recv,
                      size_t bytes)
{
    return status(
        ncclAllGather(send, recv, bytes, ncclInt8, native(c), stream_of(stream)));
}

static int broadcast(struct zt_nccl_comm *c, void *stream, void *buf, size_t bytes,
                     int root)
{
    return status(
        ncclBroadcast(buf, buf, bytes, ncclInt8, root, native(c), stream_of(stream)));
}

/* End the group after errors, too, or the thread would stay in it. */
static int all_to_all(struct zt_nccl_comm *c, void *stream, const void *send,
                      size_t send_stride, void *recv, size_t recv_stride, size_t bytes)
{
    ncclComm_t comm = native(c);
    cudaStream_t s = stream_of(stream);
    int world = 0, e = status(ncclCommCount(comm, &world)), end;

    if (e)
        return e;
    e = (int)ncclGroupStart();
    if (e)
        return e;
    for (int r = 0; !e && r < world; r++) {
        e = status(ncclSend((const char *)send + (size_t)r * send_stride, bytes, ncclInt8,
                            r, comm, s));
        if (!e)
            e = status(ncclRecv((char *)recv + (size_t)r * recv_stride, bytes, ncclInt8,
                                r, comm, s));
    }
    end = status(ncclGroupEnd());
    return e ? e : end;
}

static ncclDataType_t type_of(zt_dtype dtype)
{
    switch (dtype) {
    case ZT_F32:
        return ncclFloat32;
    case ZT_BF16:
        return ncclBfloat16;
    case ZT_F16:
        return ncclFloat16;
    case ZT_I32:
        return ncclInt32;
    case ZT_I64:
        return ncclInt64;
    default:
        return ncclUint8;
    }
}

static int reduce(struct zt_nccl_comm *c, void *stream, const void *send, void *recv,
                  const struct zt_nccl_reduction *how)
{
    ncclRedOp_t op = how->max ? ncclMax : ncclSum;
    ncclDataType_t type = type_of(how->dtype);

    if (how->scatter)
        return status(ncclReduceScatter(send, recv, how->count, type, op, native(c),
                                        stream_of(stream)));
    return status(
        ncclAllReduce(send, recv, how->count, type, op, native(c), stream_of(stream)));
}

/* ---------------------------------------------------------------- the table */
#ifdef __cplusplus
extern "C" {
#endif
__attribute__((visibility("default"))) extern const struct zt_nccl zt_loaded_nccl;
const struct zt_nccl zt_loaded_nccl = {
    .abi = ZT_NCCL_ABI,
    .struct_bytes = sizeof(struct zt_nccl),
    .name = "NCCL",
    .version = version,
    .gpu = gpu,
    .make_id = make_id,
    .open = open_comm,
    .split = split,
    .state = state,
    .finish = finish,
    .close = close_comm,
    .abort = abort_comms,
    .all_gather = all_gather,
    .broadcast = broadcast,
    .all_to_all = all_to_all,
    .reduce = reduce,
    .error_text = error_text,
};
#ifdef __cplusplus
}
#endif
