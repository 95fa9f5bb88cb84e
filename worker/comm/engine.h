/*
 * engine.h -- what carries the collectives: one file, one const table, one line in
 * comm.c.
 *
 * The front (comm.c) has checked every argument, numbers the calls, and runs one at a
 * time: the application's thread, or the progress thread, never both at once. An engine
 * sees calls only, so a wrapper (faulty.c) or a queue (progress.c) needs one function.
 * Failure: an error from run() means the communicator is dead; the front runs no more.
 */
#ifndef WORKER_COMM_ENGINE_H
#define WORKER_COMM_ENGINE_H

#include "worker/comm/comm.h"

#define ZT_COMM_ENGINE_ABI 1u

typedef enum zt_comm_op {
    ZT_COMM_OPEN,  /* the first meeting of the ranks, numbered like a call */
    ZT_COMM_ALLOC, /* count: bytes */
    ZT_COMM_ALL_REDUCE,
    ZT_COMM_REDUCE_SCATTER,
    ZT_COMM_ALL_GATHER,
    ZT_COMM_ALL_TO_ALL,
    ZT_COMM_BROADCAST, /* send == recv */
    ZT_COMM_BARRIER,
    ZT_COMM_SUM_F64, /* count doubles in place, at most ZT_COMM_F64_MAX; dtype unused */
    ZT_COMM_NUM_OP
} zt_comm_op;

/* The most doubles of one ZT_COMM_SUM_F64 call; the front cuts longer ones. */
#define ZT_COMM_F64_MAX 1024

/* One collective. Shapes as in comm.h. */
struct zt_comm_call {
    zt_comm_op op;
    zt_dtype dtype;
    zt_reduce_op reduce;
    float scale;
    int root;
    size_t count; /* elements per rank */
    const void *send;
    void *recv;
};

struct zt_comm_engine {
    uint32_t abi;     /* ZT_COMM_ENGINE_ABI */
    const char *name; /* as zt_comm_config.engine spells it, up to a ':' */

    zt_err (*open)(const struct zt_comm_config *cfg, void **self, struct zt_fault *fault);
    void (*close)(void *self); /* NULL is fine */
    /*
     * Page-aligned zeroed memory, freed by close(): a piece per rank at the same offset,
     * or with `shared` one piece for all.
     */
    zt_err (*alloc)(void *self, size_t bytes, bool shared, void **out,
                    struct zt_fault *fault);
    zt_err (*run)(void *self, const struct zt_comm_call *call, struct zt_fault *fault);
    void (*abort)(void *self, int rank); /* any thread, signal handlers too */
};

extern const struct zt_comm_engine zt_comm_solo, zt_comm_shm, zt_comm_faulty;

/* The engine for this configuration. ZT_E_UNSUPPORTED: no such name. */
zt_err zt_comm_engine_find(const struct zt_comm_config *cfg,
                           const struct zt_comm_engine **out,
                           struct zt_fault *fault) ZT_MUST_CHECK;

/* "all_reduce"; "3 f32 (12 bytes)" and what else sets this call apart, for messages. */
const char *zt_comm_op_name(zt_comm_op op);
void zt_comm_call_text(const struct zt_comm_call *call, char *out, size_t out_bytes);

#endif
