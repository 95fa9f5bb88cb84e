/*
 * small.h -- the end of a call so short that its data came along with the ranks' headers.
 */
#ifndef WORKER_COMM_SMALL_H
#define WORKER_COMM_SMALL_H

#include "worker/comm/engine.h"

/*
 * src[r] (world) is what rank r gave to this one: pieces of `bytes`. Writes call->recv in
 * rank order: sums, pieces side by side, or the root's.
 */
void zt_comm_take_small(const struct zt_comm_call *call, int rank, int world,
                        const void *const *src, size_t bytes);

#endif
