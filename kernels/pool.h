/*
 * pool.h -- a deterministic allocator over one region, for the values of a step.
 *
 * Best fit over an address-ordered free list, adjacent blocks merged; the free block at
 * the end of the region is used last. The same sequence of calls gives the same offsets in any
 * region that is large enough, so a run on the meta backend yields the exact peak that
 * the real one will have. The pool never touches the memory it hands out.
 *
 * Ownership: the caller owns the region; the pool owns its list.
 * Threads:   unlocked.
 * Failure:   ZT_E_NOMEM; its text has the request, the bytes in use and the size.
 */
#ifndef KERNELS_POOL_H
#define KERNELS_POOL_H

#include "common/fault.h"

#define ZT_POOL_ALIGN 64

struct zt_pool;

/* base is aligned to ZT_POOL_ALIGN (any non-NULL fake address on meta). */
zt_err zt_pool_open(void *base, size_t bytes, struct zt_pool **out,
                    struct zt_fault *fault) ZT_MUST_CHECK;
void zt_pool_close(struct zt_pool *p); /* NULL is fine */

/*
 * The memory is used in stream order: the host may free a block while queued work still
 * reads it, so AddressSanitizer does not watch the region. Call it before the first
 * allocation.
 */
void zt_pool_set_stream_ordered(struct zt_pool *p);

zt_err zt_pool_alloc(struct zt_pool *p, size_t bytes, void **out,
                     struct zt_fault *fault) ZT_MUST_CHECK;
void zt_pool_free(struct zt_pool *p, void *ptr); /* NULL is fine */

size_t zt_pool_used(const struct zt_pool *p); /* bytes now, rounded up to the alignment */
size_t zt_pool_peak(
    const struct zt_pool *p); /* highest end address ever used, from base */
void zt_pool_reset_peak(struct zt_pool *p);

#endif
