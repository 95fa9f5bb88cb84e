/*
 * kv.h -- keys, values, queues, and who waits for them: what both stores keep.
 *
 * No input or output: callers feed it requests and are called back when a wait is over.
 * Keys and values are any bytes. A key that is only waited for takes a place like one
 * that exists.
 * Bounds:    everything that a peer makes larger has a limit; past it ZT_E_LIMIT and
 *            nothing changed.
 * Ownership: the store copies what it is given. A wait's struct is the caller's and must
 *            be taken back (zt_kv_unwait) before it goes.
 * Threads:   unlocked; one thread at a time.
 */
#ifndef STORE_CORE_KV_H
#define STORE_CORE_KV_H

#include "common/fault.h"

struct zt_kv;

struct zt_span {
    const void *data;
    size_t bytes;
};

struct zt_kv_limits {
    size_t key_bytes, value_bytes; /* of one */
    size_t num_keys;
    size_t total_bytes; /* of all keys and values and what they are kept in */
    size_t wait_keys;   /* of one wait */
};

/* One wait for several keys. Zero it, set `done`, hand it to zt_kv_wait(). */
struct zt_kv_wait {
    /* All keys are there; the wait is no longer known to the store. It may be re-used. */
    void (*done)(struct zt_kv_wait *w);
    size_t missing;           /* 0: nobody is waiting */
    struct zt_kv_link *links; /* (num_links) owned by the store */
    size_t num_links;
};

zt_err zt_kv_open(const struct zt_kv_limits *limits, struct zt_kv **out) ZT_MUST_CHECK;
void zt_kv_close(struct zt_kv *kv); /* nobody may be waiting; NULL is fine */
/* Drop every key and queue; waits stay, for keys that are missing now. */
void zt_kv_clear(struct zt_kv *kv);

/* *out lies in the store until the key changes. ZT_E_NOINPUT: no such key. */
zt_err zt_kv_get(const struct zt_kv *kv, struct zt_span key,
                 struct zt_span *out) ZT_MUST_CHECK;
zt_err zt_kv_set(struct zt_kv *kv, struct zt_span key,
                 struct zt_span value) ZT_MUST_CHECK;
zt_err zt_kv_append(struct zt_kv *kv, struct zt_span key,
                    struct zt_span value) ZT_MUST_CHECK;

/* A counter kept as decimal text; missing counts as 0. ZT_E_FORMAT: it is no number, or
 * would leave the range of 64 bits. */
zt_err zt_kv_add(struct zt_kv *kv, struct zt_span key, int64_t delta,
                 int64_t *out) ZT_MUST_CHECK;

/*
 * Store `desired` if the value is `expected`, or if there is no key and `expected` is
 * empty. *stored: it was. *now: the value that stands there; empty when there is none.
 */
zt_err zt_kv_compare_set(struct zt_kv *kv, struct zt_span key, struct zt_span expected,
                         struct zt_span desired, bool *stored,
                         struct zt_span *now) ZT_MUST_CHECK;

/* Every key that has a value, in no order; `see` may not change the store. */
void zt_kv_each(const struct zt_kv *kv, void (*see)(void *ctx, struct zt_span key),
                void *ctx);

bool zt_kv_delete(struct zt_kv *kv, struct zt_span key); /* was there one? */
size_t zt_kv_count(const struct zt_kv *kv);
/* A key with a value, or a queue that is not empty? */
bool zt_kv_has(const struct zt_kv *kv, struct zt_span key);

/* Queues share names with keys but nothing else; a push lets one waiter go. */
zt_err zt_kv_push(struct zt_kv *kv, struct zt_span key,
                  struct zt_span value) ZT_MUST_CHECK;
size_t zt_kv_queue_len(const struct zt_kv *kv, struct zt_span key);
/* The oldest, allocated (even when it is empty), for the caller to free; NULL: none. */
void *zt_kv_pop(struct zt_kv *kv, struct zt_span key, size_t *bytes);

/*
 * Wait until every key exists. w->missing == 0 afterwards: they do already, and `done` is
 * not called. A key named twice counts once. ZT_E_LIMIT: too many, or no room.
 */
zt_err zt_kv_wait(struct zt_kv *kv, struct zt_kv_wait *w, const struct zt_span *keys,
                  size_t num_keys) ZT_MUST_CHECK;
void zt_kv_unwait(struct zt_kv *kv, struct zt_kv_wait *w);
/* The first key that a wait still misses. */
struct zt_span zt_kv_missing(const struct zt_kv_wait *w);

#endif
