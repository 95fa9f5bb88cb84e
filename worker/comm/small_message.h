/*
 * small_message.h -- completes a call whose data travelled with the ranks' headers.
 */
#ifndef WORKER_COMM_SMALL_MESSAGE_H
#define WORKER_COMM_SMALL_MESSAGE_H

#include "worker/comm/engine.h"

/*
 * src[r] (world) is what rank r sent to this one, pieces of `bytes`. Writes call->recv:
 * the reduction in rank order, all pieces, or the root's.
 */
void zt_comm_finish_small(const struct zt_comm_call *call, int rank, int world,
                          const void *const *src, size_t bytes);

#endif
