/*
 * library.h -- NCCL, as a loadable object offers it.
 *
 * The object (backends/nccl.c) knows the library and nothing of zlaunch but this table,
 * which it exports as ZT_NCCL_SYMBOL; the engine is built on top (engine.h).
 *
 * Nothing here waits for other ranks but close() and abort(): what is not done yet when a
 * call returns is done when state() reports that it is not busy; until then no other
 * call on that communicator is allowed. Only then are collectives on their stream, in the
 * order of the calls. Functions that return int give 0, or an error number that why()
 * puts into words.
 * Threads: one at a time for a communicator and what was split from it; state() any.
 */
#ifndef WORKER_COMM_NCCL_LIBRARY_H
#define WORKER_COMM_NCCL_LIBRARY_H

#include "common/fault.h"
#include "common/unique_id.h"

#define ZT_NCCL_ABI    1u
#define ZT_NCCL_SYMBOL "zt_loaded_nccl"

#define ZT_NCCL_GPU_BYTES 24 /* "0000:3b:00.0" */

struct zt_nccl_comm;

/* Of sums and maxima that NCCL takes itself. */
struct zt_nccl_reduction {
    zt_dtype dtype;
    bool max, scatter; /* else the sum; else all_reduce */
    size_t count;      /* elements of recv */
};

struct zt_nccl {
    uint32_t abi;          /* ZT_NCCL_ABI */
    uint32_t struct_bytes; /* sizeof(struct zt_nccl) */
    const char *name;      /* "NCCL" */

    int (*version)(int *out); /* 22809 is 2.28.9 */
    /* The bus address of the GPU that is this thread's current one. */
    int (*gpu)(char out[ZT_NCCL_GPU_BYTES]);
    int (*make_id)(unsigned char id[ZT_UNIQUE_ID_BYTES]);

    /* On this thread's GPU. ids: (num_ids * ZT_UNIQUE_ID_BYTES), of all ranks the same.
     */
    int (*open)(int world, int rank, const unsigned char *ids, int num_ids,
                struct zt_nccl_comm **out);
    /*
     * All ranks of c: those of one color, in the order of their keys, have *out when c
     * is not busy; color -1: none. *out must stay where it is until then.
     */
    int (*split)(struct zt_nccl_comm *c, int color, int key, struct zt_nccl_comm **out);
    /* *busy: a call is in progress. An error: of any call before, or of the connections.
     */
    int (*state)(struct zt_nccl_comm *c, bool *busy);
    /* Collective, the last call. Busy until all ranks have made it. */
    int (*finish)(struct zt_nccl_comm *c);
    void (*close)(struct zt_nccl_comm *c); /* once finished */
    /* Aborts what is queued or in progress, on all of them at once, and closes them. Any
     * thread, even while another is in a call on one of them. */
    void (*abort)(struct zt_nccl_comm *const *all, int num);

    /* Queued on `stream` (a cudaStream_t). send == recv + rank * bytes is fine. */
    int (*all_gather)(struct zt_nccl_comm *c, void *stream, const void *send, void *recv,
                      size_t bytes);
    int (*broadcast)(struct zt_nccl_comm *c, void *stream, void *buf, size_t bytes,
                     int root);
    /* `bytes` at send + r * send_stride go to rank r, what comes from it to recv + r *
     * recv_stride; itself too. */
    int (*all_to_all)(struct zt_nccl_comm *c, void *stream, const void *send,
                      size_t send_stride, void *recv, size_t recv_stride, size_t bytes);
    /* send == recv; of scatter recv == send + rank * count: is fine */
    int (*reduce)(struct zt_nccl_comm *c, void *stream, const void *send, void *recv,
                  const struct zt_nccl_reduction *how);

    void (*error_text)(struct zt_nccl_comm *c, int error, char *out, size_t out_bytes);
};

/*
 * The table, loaded on the first call. Looked for in ZLAUNCH_NCCL_BACKEND, beside the
 * executable (backends/nccl.so) and where `make install` puts it
 * (../lib/zlaunch/backends/nccl.so). ZT_E_UNSUPPORTED: it is not there, or cannot be
 * used.
 */
zt_err zt_nccl_load(const struct zt_nccl **out, struct zt_fault *fault) ZT_MUST_CHECK;

/* Whether the object is there; it may yet fail to load. */
bool zt_nccl_is_built(void);

/* For tests: the table that zt_nccl_load() returns from now on. */
void zt_nccl_set_library(const struct zt_nccl *table);

#endif
