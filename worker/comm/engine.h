/*
 * engine.h -- what carries out the collectives: one file, one const table, one line in
 * engines.c.
 *
 * comm.c has checked every argument, numbers the calls, and runs one at a time: on the
 * application's thread or on the progress thread, never on both at once, nor two of a
 * communicator and its groups. An engine sees calls only, so a wrapper (faulty.c) or a
 * queue (progress.c) needs one function.
 * Failure: an error from run() or queue() means that the communicator is dead; comm.c
 * makes no more calls.
 */
#ifndef WORKER_COMM_ENGINE_H
#define WORKER_COMM_ENGINE_H

#include "worker/comm/comm.h"

typedef enum zt_comm_op {
    ZT_COMM_OPEN,  /* the ranks connect; numbered like a call */
    ZT_COMM_ALLOC, /* count: bytes */
    ZT_COMM_SPLIT, /* into groups; the front has exchanged who goes where */
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
    size_t count;    /* elements per rank */
    bool background; /* on the progress thread, beside work: wait asleep, do not spin */
    uint64_t number; /* on a device: what await() is given */
    const void *send;
    void *recv;
};

/* What the engines for the host and those for a device have in common. */
struct zt_comm_engine_ops {
    void (*close)(void *self); /* also of a group, which is closed first; NULL is fine */
    /*
     * All ranks of `self` call it: `members` (num_members ranks of `self` in the order of
     * the group, the caller being members[my_index]) become group `group_id`, counted
     * from 0 among the groups of this split. ZT_E_NOMEM as in alloc().
     */
    zt_err (*split)(void *self, const int *members, int num_members, int my_index,
                    int group_id, void **group_self, struct zt_fault *fault);
    void (*abort)(void *self, int rank); /* any thread, signal handlers too */
    bool (*failed)(const void *self, struct zt_fault *fault); /* as zt_comm_failed() */
    /* optional: ZT_E_ARG for what this engine cannot do; breaks nothing */
    zt_err (*check)(const void *self, const struct zt_comm_call *call,
                    struct zt_fault *fault);
};

/* An engine for memory of the host. */
struct zt_comm_engine {
    struct zt_comm_engine_ops ops;
    const char *name;    /* as zt_comm_config.engine spells it, up to a ':' */
    bool can_share;      /* alloc() knows `shared`: all ranks map the same memory */
    zt_comm_needs needs; /* what open() wants of the configuration */

    /* Whether "auto" takes it for this configuration, if no engine before it is taken.
     * optional: NULL is never */
    bool (*is_default)(const struct zt_comm_config *cfg);
    zt_err (*open)(const struct zt_comm_config *cfg, void **self, struct zt_fault *fault);
    /*
     * Page-aligned zeroed memory, freed by close(): a piece per rank, or with `shared`
     * one piece for all. ZT_E_NOMEM, on all ranks alike, breaks nothing.
     */
    zt_err (*alloc)(void *self, size_t bytes, bool shared, void **out,
                    struct zt_fault *fault);
    /* Returns when the call is complete. */
    zt_err (*run)(void *self, const struct zt_comm_call *call, struct zt_fault *fault);
    /* optional: whether this instance can share, where `can_share` depends on it */
    bool (*shares)(const void *self);
};

/* An engine for memory of a device: it queues calls on a stream. */
struct zt_comm_device_engine {
    struct zt_comm_engine_ops ops;
    const char *name;

    zt_err (*open)(const struct zt_device_comm_config *cfg, void **self,
                   struct zt_fault *fault);
    /* Memory of the device, freed by close(). ZT_E_NOMEM as above. */
    zt_err (*alloc)(void *self, size_t bytes, void **out, struct zt_fault *fault);
    /* Returns when the call is queued; call->number counts from 1 over a communicator and
     * its groups. */
    zt_err (*queue)(void *self, const struct zt_comm_call *call, struct zt_fault *fault);
    /* Makes the device's main stream wait for call `number`. */
    zt_err (*await)(void *self, uint64_t number, struct zt_fault *fault);
    struct zt_comm *(*host)(const void *self); /* as zt_comm_host() */
};

extern const struct zt_comm_engine zt_comm_solo, zt_comm_shm, zt_comm_mpi, zt_comm_tcp,
    zt_comm_faulty;
extern const struct zt_comm_device_engine zt_comm_nccl;

/* The engine for this configuration. ZT_E_UNSUPPORTED: no such name. */
zt_err zt_comm_engine_find(const struct zt_comm_config *cfg,
                           const struct zt_comm_engine **out,
                           struct zt_fault *fault) ZT_MUST_CHECK;

/* "all_reduce"; "3 f32 (12 bytes)" and what else sets this call apart, for messages. */
const char *zt_comm_op_name(zt_comm_op op);
void zt_comm_call_text(const struct zt_comm_call *call, char *out, size_t out_bytes);

#endif
