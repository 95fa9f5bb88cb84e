/*
 * client.h -- a process of a job at its rendezvous store: blocking calls, every one with
 * a deadline.
 *
 * Keys and barriers of one generation of the job; see server.h. A value is any bytes, up
 * to 1 MiB; a key any text up to 1024 bytes.
 * Failure:  ZT_E_PEER with a sentence that names who is missing when a time is over;
 *           ZT_E_LOST, what happened when the store is gone: then every call fails.
 * Threads:  one at a time.
 */
#ifndef STORE_NATIVE_CLIENT_H
#define STORE_NATIVE_CLIENT_H

#include "store/native/handshake.h"

struct zt_store_client;

struct zt_store_config {
    const char *host;
    int port;
    const char *job;
    const struct zt_secret *secret;
    const char *secret_of; /* what it comes from, for messages; NULL: its file */
    uint64_t generation;
    uint32_t index, count; /* which member this is; count 0: no member */
    const char *label;     /* how messages name it: "node04 pid 77"; NULL: made up */
    double timeout_s;      /* to connect and prove */
    double resolve_s;      /* of these, while the name does not resolve; 0: 60 */
};

zt_err zt_store_open(const struct zt_store_config *cfg, struct zt_store_client **out,
                     struct zt_fault *fault) ZT_MUST_CHECK;
void zt_store_close(struct zt_store_client *s); /* NULL is fine */

zt_err zt_store_set(struct zt_store_client *s, const char *key, const void *value,
                    size_t bytes, struct zt_fault *fault) ZT_MUST_CHECK;

/*
 * The value, allocated, with a NUL behind it that does not count. Waits for the key up to
 * timeout_s; with 0 a missing key is ZT_E_NOINPUT at once.
 */
zt_err zt_store_get(struct zt_store_client *s, const char *key, double timeout_s,
                    void **out, size_t *bytes, struct zt_fault *fault) ZT_MUST_CHECK;

/* A counter; *out: its value after. ZT_E_ARG: the key holds no number. */
zt_err zt_store_add(struct zt_store_client *s, const char *key, int64_t delta,
                    int64_t *out, struct zt_fault *fault) ZT_MUST_CHECK;

/*
 * Store `desired` if the value is `expected` (both text; expected "": if there is no
 * key). *now, allocated: the value that stands there after, "" when there is none.
 */
zt_err zt_store_compare_set(struct zt_store_client *s, const char *key,
                            const char *expected, const char *desired, bool *stored,
                            char **now, struct zt_fault *fault) ZT_MUST_CHECK;

zt_err zt_store_wait(struct zt_store_client *s, const char *const *keys,
                     uint32_t num_keys, double timeout_s,
                     struct zt_fault *fault) ZT_MUST_CHECK;
zt_err zt_store_delete(struct zt_store_client *s, const char *key, bool *was,
                       struct zt_fault *fault) ZT_MUST_CHECK;

/* Until all `count` members that were given at open have come. */
zt_err zt_store_barrier(struct zt_store_client *s, const char *name, double timeout_s,
                        struct zt_fault *fault) ZT_MUST_CHECK;

#endif
