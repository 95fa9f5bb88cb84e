/*
 * wire.h -- the messages of the rendezvous store, after the handshake (handshake.h).
 *
 *      request   | u32 length of what follows | u8 op     | body |
 *      reply     | u32 length of what follows | u8 status | body |
 *
 * Big-endian; docs/PROTOCOL.md lists the bodies. A connection has one request under way
 * at a time. Everything is bounded: a length past ZT_STORE_MESSAGE is refused unread.
 * Threads: unlocked; one thread at a time.
 */
#ifndef STORE_NATIVE_WIRE_H
#define STORE_NATIVE_WIRE_H

#include "common/buf.h"
#include "store/core/kv.h"

#define ZT_STORE_KEY       1024u      /* bytes of a key, a barrier's name, a label */
#define ZT_STORE_VALUE     (1u << 20) /* bytes of a value */
#define ZT_STORE_MESSAGE   ((1u << 21) + 8192u) /* bytes after the length */
#define ZT_STORE_WAIT_KEYS 256u                 /* keys of one wait */
#define ZT_STORE_MEMBERS   (1u << 20)           /* members of a barrier, or of a job */

typedef enum zt_store_op {
    ZT_STORE_JOIN = 1,    /* u32 index, u32 count, label: which member this is */
    ZT_STORE_SET = 2,     /* key, value -> nothing */
    ZT_STORE_GET = 3,     /* u32 timeout_ms, key -> value */
    ZT_STORE_ADD = 4,     /* key, i64 -> i64 */
    ZT_STORE_CAS = 5,     /* key, expected, desired -> u8 stored, value */
    ZT_STORE_WAIT = 6,    /* u32 timeout_ms, u32 n, n keys -> nothing */
    ZT_STORE_DELETE = 7,  /* key -> u8 was there */
    ZT_STORE_BARRIER = 8, /* u32 timeout_ms, u32 index, u32 count, name -> nothing */
} zt_store_op;

typedef enum zt_store_status {
    ZT_STORE_OK = 0,
    ZT_STORE_TIMEOUT = 1, /* text: who or what is missing */
    ZT_STORE_ABSENT = 2,  /* text: no such key, and the request did not wait */
    ZT_STORE_REFUSED = 3, /* text: the request contradicts another one */
    ZT_STORE_FULL = 4,    /* text: a limit */
    ZT_STORE_STALE = 5,   /* text: the job went on to another generation; closes */
} zt_store_status;

struct zt_store_request {
    zt_store_op op;
    uint32_t timeout_ms;   /* 0: do not wait */
    uint32_t index, count; /* JOIN, BARRIER */
    struct zt_span key;    /* or the barrier's name, or the label */
    struct zt_span value, expected;
    int64_t delta;
    uint32_t num_keys;
    struct zt_span keys[ZT_STORE_WAIT_KEYS];
};

/* Append a request, whole or not at all. ZT_E_LIMIT: longer than the protocol allows. */
zt_err zt_store_put_request(struct zt_buf *out,
                            const struct zt_store_request *r) ZT_MUST_CHECK;
zt_err zt_store_put_reply(struct zt_buf *out, zt_store_status status, const void *body,
                          size_t bytes) ZT_MUST_CHECK;

/*
 * The first message of `in`, a request or a reply: its op or status, and its body inside
 * the buffer; zt_buf_drop() of *bytes removes it. ZT_E_SHORT: not all there; ZT_E_FORMAT:
 * no length that a message can have.
 */
zt_err zt_store_peek(const struct zt_buf *in, uint8_t *kind, struct zt_span *body,
                     size_t *bytes) ZT_MUST_CHECK;

/* The body of a request; spans point into it. ZT_E_FORMAT: anything out of order. */
zt_err zt_store_parse(uint8_t op, struct zt_span body,
                      struct zt_store_request *out) ZT_MUST_CHECK;

/* Bodies of replies. */
void zt_store_put_i64(uint8_t out[8], int64_t v);
int64_t zt_store_get_i64(const uint8_t in[8]);

#endif
