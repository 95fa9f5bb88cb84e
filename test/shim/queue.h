/*
 * queue.h -- the queues of streams and the thread that runs them: the interface of
 * queue.cpp to stream.cpp. Everything here is called with the lock held (shim_locked).
 */
#ifndef SHIM_QUEUE_H
#define SHIM_QUEUE_H

#include <deque>
#include <vector>

#include "shim.h"

struct shim_queued_work {
    shim_work work;
    std::vector<shim_point> after;
    uint64_t order; /* in which it was queued, over all streams */
    bool started;   /* a call with peers that is in progress */
    double
        peer_waits_since_ms; /* when a peer was first seen to wait for it; 0: not yet */
};

struct CUstream_st {
    std::deque<shim_queued_work> queue;
    uint64_t num_queued = 0, num_done = 0;
    bool with_null = false; /* keeps the order of the NULL stream */
    bool destroyed = false;
    bool blocked = false; /* its first item waits for peers */
};

extern std::vector<CUstream_st *>
    &shim_streams; /* all that ever were; the NULL one first */

bool shim_is_done(shim_point p);
/* Appends work to s; it depends on the points in `after`, too. */
void shim_push(CUstream_st *s, shim_work work, std::vector<shim_point> after);
/* Whether this thread queued last: its queries make work progress. */
bool shim_is_owner(void);
/*
 * Lets the device run until p is done; releases the lock meanwhile. Not patient: only
 * until all that is left waits for peers. Returns whether p is done.
 */
bool shim_run_until(shim_point p, bool patient);

#endif
