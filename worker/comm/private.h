/*
 * private.h -- what comm.c (calls), group.c (split) and device.c (communicators on a
 * device) share. Nobody else includes it.
 */
#ifndef WORKER_COMM_PRIVATE_H
#define WORKER_COMM_PRIVATE_H

#include "worker/comm/engine.h"
#include "worker/comm/progress.h"

#include <stdatomic.h>

/* What a communicator and its groups have in common: calls run one at a time. */
struct zt_comm_family {
    struct zt_progress *progress; /* NULL until the first start */
    uint64_t issued;              /* asynchronous calls so far */
    int num_members;              /* communicators that are open */
};

/*
 * `dead` and `dead_fault` belong to whoever runs calls: the caller's thread while nothing
 * is queued, else the progress thread. progress.h orders the two. A wait that does not
 * drain the queue may read them once it has seen `dead_from`, after which they stay.
 */
struct zt_comm {
    const struct zt_comm_engine_ops *ops; /* of the one of these two that is not NULL */
    const struct zt_comm_engine *engine;
    const struct zt_comm_device_engine *device_engine;
    void *self;
    int rank, world;
    const struct zt_comm *parent; /* of a group; NULL: it is the first of its family */
    struct zt_comm_family *family;
    zt_err dead;                /* of the call that broke the communicator */
    _Atomic uint64_t dead_from; /* first asynchronous call that got no result; 0: none */
    struct zt_fault dead_fault;
};

/* A communicator without an engine yet: of a new family, or `parent`'s. NULL: no memory.
 */
struct zt_comm *zt_comm_new(int rank, int world, const struct zt_comm *parent);
/* The engine's part is closed, or was never opened. */
void zt_comm_free(struct zt_comm *c);

/* Wait until nothing runs in the background. */
void zt_comm_drain(struct zt_comm *c);

/* Run a call, on the thread whose turn it is; an error means that c is dead. */
zt_err zt_comm_run_now(struct zt_comm *c, const struct zt_comm_call *call);

/* Report the fault of the call that broke the communicator to a later one. */
zt_err zt_comm_dead_error(const struct zt_comm *c, struct zt_fault *fault);

/* The end of an allocation or a split: reports c->dead_fault, and marks c as dead unless
 * rc is ZT_E_NOMEM, which breaks nothing. */
zt_err zt_comm_finish_alloc(struct zt_comm *c, zt_err rc, struct zt_fault *fault);

#endif
