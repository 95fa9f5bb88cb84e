/*
 * server_thread.h -- a rendezvous store in a thread of its own, for a process that has no
 * libuv loop: rank 0 of a job without zlaunch.
 *
 * Threads: open and close from one; the server lives in the thread it makes, which has
 * all signals blocked.
 */
#ifndef STORE_SERVER_THREAD_H
#define STORE_SERVER_THREAD_H

#include "store/native/server.h"

struct zt_store_thread;

/* As zt_store_server_open(); `closed` of the configuration is not used. */
zt_err zt_store_thread_open(const struct zt_store_server_config *cfg,
                            struct zt_store_thread **out,
                            struct zt_fault *fault) ZT_MUST_CHECK;
int zt_store_thread_port(const struct zt_store_thread *h);

/* A new generation; returns when it has begun. */
void zt_store_thread_advance(struct zt_store_thread *h, uint64_t generation);

/*
 * Lets members finish: waits, up to linger_s, until none is connected, then ends the
 * server and its thread. NULL is fine.
 */
void zt_store_thread_close(struct zt_store_thread *h, double linger_s);

#endif
