/*
 * wire.h -- bytes between processes: by TCP (tcp_wire.h), or as a loadable object offers
 * them.
 *
 * The object (backends/mpi.c) knows its library and nothing of zlaunch but this table,
 * which it exports as ZT_WIRE_SYMBOL; what is made of messages is above (mesh.h).
 *
 * Messages from one rank to another with the same tag arrive in the order they were sent.
 * A receive may be larger than what comes. Functions that return int give 0, or an error
 * number that why() puts into words.
 * Threads: one at a time, any; start() and stop() on the main thread.
 */
#ifndef WORKER_COMM_WIRE_H
#define WORKER_COMM_WIRE_H

#include "common/fault.h"

#define ZT_WIRE_ABI    2u
#define ZT_WIRE_SYMBOL "zt_wire_mpi"

/* Messages in flight that are waited for together; empty again once all are done. */
struct zt_wire_batch;

struct zt_wire {
    uint32_t abi;          /* ZT_WIRE_ABI */
    uint32_t struct_bytes; /* sizeof(struct zt_wire) */
    const char *name;      /* of the library that it was built for */

    /*
     * Meet the other processes of the job; waits until all came. Once in a process.
     * max_tag: tags are 0 to that. Not 0: `why` holds a sentence.
     */
    int (*start)(int *rank, int *world, int *max_tag, char *why, size_t why_bytes);
    void (*stop)(void); /* all ranks: the end of the last one's work */

    /* Room for `max` messages; NULL: no memory. Closing gives up what is in flight. */
    struct zt_wire_batch *(*batch_open)(int max);
    void (*batch_close)(struct zt_wire_batch *b); /* NULL is fine */

    /* Into the batch; the memory stays until poll() says done. bytes <= INT_MAX. */
    int (*send)(struct zt_wire_batch *b, const void *at, size_t bytes, int to, int tag);
    int (*recv)(struct zt_wire_batch *b, void *at, size_t bytes, int from, int tag);

    /* Move messages, without waiting; are all of the batch done? */
    int (*poll)(struct zt_wire_batch *b, bool *done);

    /* Ranks that a message of the batch has yet to come from or go to; their number. */
    int (*missing)(const struct zt_wire_batch *b, int *ranks, int max_ranks);

    /* A message from anyone, if one with `tag` (-1: any) is there; at most `bytes`. */
    int (*heard)(void *at, size_t bytes, int tag, bool *got);

    void (*why)(int error, char *out, size_t out_bytes);

    /*
     * optional, together: a wire that notices the end of a rank. lost() is called from
     * any thread: the error of a rank that is gone without stop(), 0 if there is none.
     * who(): the rank that an error is about; -1: of none alone.
     */
    int (*lost)(void);
    int (*who)(int error);
};

/*
 * The wire for MPI, loaded on the first call. Looked for in ZLAUNCH_MPI_BACKEND, beside
 * the executable (backends/mpi.so) and where `make install` puts it
 * (../lib/zlaunch/backends/mpi.so). ZT_E_UNSUPPORTED: it is not there, or cannot be used.
 */
zt_err zt_wire_load(const struct zt_wire **out, struct zt_fault *fault) ZT_MUST_CHECK;

/*
 * Is MPI what carries the data of this process, if nobody says otherwise? An MPI launcher
 * started it, or a daemon that speaks for one; and the wire for MPI is there.
 */
bool zt_wire_is_mpi(void);

#endif
