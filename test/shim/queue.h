/*
 * queue.h -- the queues of streams, and the thread that works on them: what stream.cpp
 * asks of queue.cpp. Everything here is called with the lock held (shim_locked).
 */
#ifndef SHIM_QUEUE_H
#define SHIM_QUEUE_H

#include <deque>
#include <vector>

#include "shim.h"

struct shim_piece {
    shim_work work;
    std::vector<shim_point> after;
    uint64_t order;    /* of queueing, over all streams */
    bool started;      /* a call to peers that goes on */
    double knocked_ms; /* when a peer was first seen to wait for it; 0: not yet */
};

struct CUstream_st {
    std::deque<shim_piece> queue;
    uint64_t num_queued = 0, num_done = 0;
    bool with_null = false; /* keeps the order of the NULL stream */
    bool destroyed = false;
    bool blocked = false; /* its first piece waits for peers */
};

extern std::vector<CUstream_st *>
    &shim_streams; /* all that ever were; the NULL one first */

bool shim_is_done(shim_point p);
/* At the end of s, after `after` as well. */
void shim_push(CUstream_st *s, shim_work work, std::vector<shim_point> after);
/* Whether this thread queued last: it moves work on by asking. */
bool shim_is_owner(void);
/*
 * Has the device work until p is done; gives the lock away meanwhile. Not patient: only
 * until nothing is left but waiting for peers. Whether p is done.
 */
bool shim_reach(shim_point p, bool patient);

#endif
