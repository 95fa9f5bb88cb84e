/*
 * transport.h -- messages of bytes between processes: over TCP (tcp/transport.h), or by a
 * library behind a loadable object.
 *
 * The object (backends/mpi.c) knows its library and nothing of zlaunch but this table,
 * which it exports as ZT_TRANSPORT_SYMBOL. Collectives are built on top (mesh.h).
 *
 * Messages from one rank to another with the same tag arrive in the order they were sent.
 * A receive may be larger than what comes. Functions that return int give 0, or an error
 * number that error_text() describes.
 * Threads: one at a time, any; start() and stop() on the main thread.
 */
#ifndef WORKER_COMM_MESH_TRANSPORT_H
#define WORKER_COMM_MESH_TRANSPORT_H

#include "common/fault.h"

#define ZT_TRANSPORT_ABI    4u
#define ZT_TRANSPORT_SYMBOL "zt_transport_mpi"

/* Messages in flight that are waited for together; empty again once all are done. */
struct zt_transport_batch;

struct zt_transport {
    uint32_t abi;          /* ZT_TRANSPORT_ABI */
    uint32_t struct_bytes; /* sizeof(struct zt_transport) */
    const char *name;      /* of the library that it was built for */
    /* a message of a closed batch may still be read from the caller's memory, until
     * stop(); else nothing touches it after batch_close() */
    bool sends_outlive_batch;

    /*
     * Connect to the other processes of the job; waits until all are there. Once in a
     * process. Tags are 0 to *max_tag. On an error `why` holds a sentence.
     */
    int (*start)(int *rank, int *world, int *max_tag, char *error_text, size_t why_bytes);
    void (*stop)(void); /* collective: returns when the last rank has called it */
    /* optional: where stop() does not return. Tell the launcher that this process ends as it
     * should; waits for nobody, may be called in a signal handler, and the process ends. */
    void (*leave)(void);

    /* Space for `max` messages; NULL: no memory. Closing cancels what is in flight. */
    struct zt_transport_batch *(*batch_open)(int max);
    void (*batch_close)(struct zt_transport_batch *b); /* NULL is fine */

    /* Into the batch; the memory stays until poll() says done. bytes <= INT_MAX. */
    int (*send)(struct zt_transport_batch *b, const void *at, size_t bytes, int to,
                int tag);
    int (*recv)(struct zt_transport_batch *b, void *at, size_t bytes, int from, int tag);

    /* Make progress, without waiting. *done: all messages of the batch are complete. */
    int (*poll)(struct zt_transport_batch *b, bool *done);

    /* Ranks whose messages of the batch are not complete: senders, or if there is none
     * receivers. Returns how many were written. */
    int (*pending_ranks)(const struct zt_transport_batch *b, int *ranks, int max_ranks);

    /* Receive a message from anyone with `tag` (-1: any) if one is there. `at` holds
     * `bytes`; *got: there was one. */
    int (*try_recv)(void *at, size_t bytes, int tag, bool *got);

    void (*error_text)(int error, char *out, size_t out_bytes);

    /*
     * optional, together: a transport that notices the end of a rank. find_lost(), from
     * any thread: the error of a rank that is gone without stop(), 0 if there is none.
     * error_rank(): the rank that an error is about; -1: no single one.
     * lost_ranks(): those of find_lost(), at most `max`, in rising order; returns how many.
     */
    int (*find_lost)(void);
    int (*error_rank)(int error);
    int (*lost_ranks)(int *ranks, int max);

    /* optional: what the call that failed returns; NULL: ZT_E_LOST for all errors. */
    zt_err (*error_code)(int error);
};

/*
 * The transport for MPI, loaded on the first call. Looked for in ZLAUNCH_MPI_BACKEND,
 * beside the executable (backends/mpi.so) and where `make install` puts it
 * (../lib/zlaunch/backends/mpi.so). ZT_E_UNSUPPORTED: it is not there, or cannot be used.
 */
zt_err zt_transport_load_mpi(const struct zt_transport **out,
                             struct zt_fault *fault) ZT_MUST_CHECK;

/* Whether the object for MPI is there; it may yet fail to load. */
bool zt_transport_mpi_is_built(void);

/*
 * Whether MPI is this process's default: an MPI launcher started it, or a daemon that
 * acts as one, and the transport for MPI is there, and so it is on all hosts: zlaunch names
 * one that has none in ZLAUNCH_NO_MPI. Ranks that chose differently would wait for each
 * other.
 */
#define ZT_TRANSPORT_NO_MPI "ZLAUNCH_NO_MPI"
bool zt_transport_prefers_mpi(void);

#endif
