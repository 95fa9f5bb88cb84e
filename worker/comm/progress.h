/*
 * progress.h -- a thread that runs calls in the order they were queued.
 *
 * One serves a communicator and its groups, so calls of all of them keep their order.
 * Ownership: the queue copies a call; the buffers it points to are the caller's.
 * Threads:   one producer, which also waits; `run` is called on the progress thread.
 *            What the producer did before zt_progress_push() is visible to `run`, and
 *            what `run` did is visible after zt_progress_wait().
 */
#ifndef WORKER_COMM_PROGRESS_H
#define WORKER_COMM_PROGRESS_H

#include "worker/comm/engine.h"

struct zt_progress;

/* `c` is as queued; `number` is that of the call, 1 for the first. */
typedef void (*zt_progress_fn)(struct zt_comm *c, const struct zt_comm_call *call,
                               uint64_t number);

/* Starts the thread. */
zt_err zt_progress_open(zt_progress_fn run, struct zt_progress **out,
                        struct zt_fault *fault) ZT_MUST_CHECK;

/* Runs what is queued, then stops. NULL is fine. */
void zt_progress_close(struct zt_progress *p);

/* Queue a call on c, waiting while the queue is full. Returns its number. */
uint64_t zt_progress_push(struct zt_progress *p, struct zt_comm *c,
                          const struct zt_comm_call *call);

/* Wait until call `number` has run, or all that were pushed. */
void zt_progress_wait(struct zt_progress *p, uint64_t number);
void zt_progress_drain(struct zt_progress *p);

#endif
