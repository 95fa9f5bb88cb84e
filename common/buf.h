/*
 * buf.h -- growable byte queue with a hard cap; frames and output lines wait in one.
 *
 *      0        off             len            max
 *      |consumed| ready to read |  may grow to  |
 *
 * Invariant: off <= len <= cap <= max + consumed, and max never changes after init.
 * Ownership: the caller owns the struct, the struct owns `data`.
 * Threads:   unlocked; one thread at a time.
 * Failure:   a failed call leaves the readable bytes exactly as they were.
 */
#ifndef COMMON_BUF_H
#define COMMON_BUF_H

#include "include/zlaunch/types.h"

struct zt_buf {
    uint8_t *data;
    size_t off, len, cap, max; /* bytes */
};

/* Cannot fail and allocates nothing. Pair with zt_buf_release(). */
void zt_buf_init(struct zt_buf *b, size_t max);
void zt_buf_release(struct zt_buf *b);

/* The bytes that are ready to read; valid until the next put or room. */
static inline const uint8_t *zt_buf_head(const struct zt_buf *b)
{
    return b->data + b->off;
}
static inline size_t zt_buf_used(const struct zt_buf *b)
{
    return b->len - b->off;
}

/* Append n bytes. ZT_E_LIMIT past `max` readable bytes, ZT_E_NOMEM when the heap is out.
 */
zt_err zt_buf_put(struct zt_buf *b, const void *src, size_t n) ZT_MUST_CHECK;
zt_err zt_buf_put_u32(struct zt_buf *b, uint32_t value) ZT_MUST_CHECK; /* big-endian */
zt_err zt_buf_put_u8(struct zt_buf *b, uint8_t value) ZT_MUST_CHECK;

/* Make room for n more bytes and return where they go; zt_buf_commit() says how many came.
 */
zt_err zt_buf_reserve(struct zt_buf *b, size_t n, uint8_t **out) ZT_MUST_CHECK;
void zt_buf_commit(struct zt_buf *b, size_t n);

/* Drop n bytes (at most what is used) from the front. */
void zt_buf_drop(struct zt_buf *b, size_t n);

#endif
