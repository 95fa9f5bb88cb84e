/*
 * client.h -- a client of PyTorch's TCPStore: what torchrun's agent serves at
 * MASTER_ADDR:MASTER_PORT.
 *
 * A key k stands in the store as "/k", as torch's own clients write it.
 * Failure: ZT_E_PEER with a sentence; ZT_E_LOST: the connection is gone, and every call fails.
 * Threads: one at a time.
 */
#ifndef STORE_TCPSTORE_CLIENT_H
#define STORE_TCPSTORE_CLIENT_H

#include "common/fault.h"

struct zt_tcp_store;

/* Connects (again and again, up to timeout_s), and makes sure that a TCPStore answers. */
zt_err zt_tcp_store_open(const char *host, int port, double timeout_s, double resolve_s,
                         struct zt_tcp_store **out, struct zt_fault *fault) ZT_MUST_CHECK;
void zt_tcp_store_close(struct zt_tcp_store *s); /* NULL is fine */

zt_err zt_tcp_store_set(struct zt_tcp_store *s, const char *key, const void *value,
                        size_t bytes, struct zt_fault *fault) ZT_MUST_CHECK;
/* The value, allocated, with a NUL behind it. Waits for the key up to timeout_s. */
zt_err zt_tcp_store_get(struct zt_tcp_store *s, const char *key, double timeout_s,
                        void **out, size_t *bytes, struct zt_fault *fault) ZT_MUST_CHECK;
zt_err zt_tcp_store_add(struct zt_tcp_store *s, const char *key, int64_t delta,
                        int64_t *out, struct zt_fault *fault) ZT_MUST_CHECK;
/* Until all keys are there; ZT_E_PEER naming the keys when the time is over. */
zt_err zt_tcp_store_wait(struct zt_tcp_store *s, const char *const *keys, size_t num_keys,
                         double timeout_s, struct zt_fault *fault) ZT_MUST_CHECK;
/* Are all keys there now? */
zt_err zt_tcp_store_check(struct zt_tcp_store *s, const char *const *keys,
                          size_t num_keys, bool *all,
                          struct zt_fault *fault) ZT_MUST_CHECK;
/* *now, allocated: what the store answers (see docs/PROTOCOL.md for a missing key). */
zt_err zt_tcp_store_compare_set(struct zt_tcp_store *s, const char *key,
                                const char *expected, const char *desired, char **now,
                                struct zt_fault *fault) ZT_MUST_CHECK;
zt_err zt_tcp_store_delete(struct zt_tcp_store *s, const char *key, bool *was,
                           struct zt_fault *fault) ZT_MUST_CHECK;

#endif
