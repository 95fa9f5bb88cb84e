/*
 * Two tables, both in units of ZT_POOL_ALIGN bytes:
 *
 *   holes   free runs in order of address, no two of them touching; best fit is a scan
 *           (a step has tens of holes, not thousands), ties go to the lowest address
 *   live    first unit -> length of each allocation: a hash with linear probing
 *
 * There are at most live + 1 holes, so room for the hole a free may make is reserved by
 * the alloc before it, and free cannot fail.
 */
#include "kernels/pool.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sys/mman.h>
#endif

struct hole {
    uint64_t at, len;
};

struct live {
    uint64_t at, len; /* len 0: an empty slot */
};

struct zt_pool {
    char *base;
    uint64_t total, used, peak;
    struct hole *holes;
    size_t num_holes, cap_holes;
    struct live *live;
    size_t num_live, cap_live; /* cap is a power of two, at most half full */
    bool guarded;              /* what is free is poisoned for AddressSanitizer */
};

#define FIRST_CAP 64

/* ---- what AddressSanitizer is told ---- */

#if defined(__SANITIZE_ADDRESS__)
/*
 * The fake region of a meta device gets no shadow memory: 32 TiB of it would take 4 TiB.
 * At least one end of such a region is not mapped.
 */
static bool is_mapped(const char *at)
{
    unsigned char resident;

    return mincore((void *)((uintptr_t)at & ~(uintptr_t)4095), 1, &resident) == 0;
}
static bool is_memory(const char *base, size_t bytes)
{
    return is_mapped(base) && is_mapped(base + bytes - 1);
}
static void forbid(const struct zt_pool *p, const void *at, size_t bytes)
{
    if (p->guarded)
        ASAN_POISON_MEMORY_REGION(at, bytes);
}
static void permit(const struct zt_pool *p, const void *at, size_t bytes)
{
    if (p->guarded)
        ASAN_UNPOISON_MEMORY_REGION(at, bytes);
}
#else
static bool is_memory(const char *base, size_t bytes)
{
    (void)base;
    (void)bytes;
    return false;
}
static void forbid(const struct zt_pool *p, const void *at, size_t bytes)
{
    (void)p;
    (void)at;
    (void)bytes;
}
static void permit(const struct zt_pool *p, const void *at, size_t bytes)
{
    (void)p;
    (void)at;
    (void)bytes;
}
#endif

/* ---- live: where each allocation starts, and its length ---- */

static size_t slot_of(const struct zt_pool *p, uint64_t at)
{
    uint64_t h = at * 0x9E3779B97F4A7C15u;

    return (size_t)(h >> 32) & (p->cap_live - 1);
}

static void live_put(struct zt_pool *p, uint64_t at, uint64_t len)
{
    size_t i = slot_of(p, at);

    while (p->live[i].len)
        i = (i + 1) & (p->cap_live - 1);
    p->live[i] = (struct live){at, len};
    p->num_live++;
}

/* Length of the allocation at `at`, now forgotten; 0: there is none. */
static uint64_t live_take(struct zt_pool *p, uint64_t at)
{
    size_t mask = p->cap_live - 1, i = slot_of(p, at);
    uint64_t len;

    while (p->live[i].len && p->live[i].at != at)
        i = (i + 1) & mask;
    len = p->live[i].len;
    if (!len)
        return 0;
    p->num_live--;
    /* close the gap: move back what a probe could no longer reach across it */
    for (size_t j = (i + 1) & mask; p->live[j].len; j = (j + 1) & mask) {
        size_t home = slot_of(p, p->live[j].at);

        if (((j - home) & mask) >= ((j - i) & mask)) {
            p->live[i] = p->live[j];
            i = j;
        }
    }
    p->live[i].len = 0;
    return len;
}

/* Room for one more allocation and for the hole that its end may leave. */
static bool reserve(struct zt_pool *p)
{
    if (p->num_live + 2 > p->cap_holes) {
        struct hole *h = realloc(p->holes, 2 * p->cap_holes * sizeof(*h));

        if (!h)
            return false;
        p->holes = h;
        p->cap_holes *= 2;
    }
    if (2 * (p->num_live + 1) > p->cap_live) {
        struct live *old = p->live, *grown = calloc(2 * p->cap_live, sizeof(*grown));
        size_t n = p->cap_live;

        if (!grown)
            return false;
        p->live = grown;
        p->cap_live = 2 * n;
        p->num_live = 0;
        for (size_t i = 0; i < n; i++)
            if (old[i].len)
                live_put(p, old[i].at, old[i].len);
        free(old);
    }
    return true;
}

/* ---- holes ---- */

static void hole_remove(struct zt_pool *p, size_t i)
{
    p->num_holes--;
    memmove(&p->holes[i], &p->holes[i + 1], (p->num_holes - i) * sizeof(*p->holes));
}

/* The hole at the end counts as endless, so that the choice does not depend on the size
 * of the region. */
static uint64_t hole_size(const struct zt_pool *p, size_t i)
{
    bool last = p->holes[i].at + p->holes[i].len == p->total;

    return last ? UINT64_MAX : p->holes[i].len;
}

static size_t hole_best(const struct zt_pool *p, uint64_t len)
{
    size_t best = p->num_holes;

    for (size_t i = 0; i < p->num_holes; i++)
        if (p->holes[i].len >= len &&
            (best == p->num_holes || hole_size(p, i) < hole_size(p, best)))
            best = i;
    return best;
}

/* The first hole behind `at`. */
static size_t hole_after(const struct zt_pool *p, uint64_t at)
{
    size_t lo = 0, hi = p->num_holes;

    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;

        if (p->holes[mid].at < at)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static void hole_add(struct zt_pool *p, uint64_t at, uint64_t len)
{
    size_t i = hole_after(p, at);
    struct hole *h = p->holes;
    bool joins_left = i > 0 && h[i - 1].at + h[i - 1].len == at;
    bool joins_right = i < p->num_holes && at + len == h[i].at;

    if (joins_left) {
        h[i - 1].len += len;
        if (joins_right) {
            h[i - 1].len += h[i].len;
            hole_remove(p, i);
        }
    } else if (joins_right) {
        h[i].at = at;
        h[i].len += len;
    } else {
        assert(p->num_holes < p->cap_holes);
        memmove(&h[i + 1], &h[i], (p->num_holes - i) * sizeof(*h));
        h[i] = (struct hole){at, len};
        p->num_holes++;
    }
}

/* ---- the interface ---- */

zt_err zt_pool_open(void *base, size_t bytes, struct zt_pool **out,
                    struct zt_fault *fault)
{
    struct zt_pool *p;

    *out = NULL;
    if (!base || (uintptr_t)base % ZT_POOL_ALIGN)
        return zt_fault_set(fault, ZT_E_ARG,
                            "pool: its region starts at %p, which is "
                            "not a multiple of %d",
                            base, ZT_POOL_ALIGN);
    p = calloc(1, sizeof(*p));
    if (!p)
        goto nomem;
    p->base = base;
    p->total = bytes / ZT_POOL_ALIGN;
    p->cap_holes = p->cap_live = FIRST_CAP;
    p->holes = malloc(FIRST_CAP * sizeof(*p->holes));
    p->live = calloc(FIRST_CAP, sizeof(*p->live));
    if (!p->holes || !p->live)
        goto nomem;
    if (p->total)
        hole_add(p, 0, p->total);
    p->guarded = p->total && is_memory(base, p->total * ZT_POOL_ALIGN);
    forbid(p, base, p->total * ZT_POOL_ALIGN);
    *out = p;
    return ZT_OK;
nomem:
    zt_pool_close(p);
    return zt_fault_set(fault, ZT_E_NOMEM, "pool: no memory for its list");
}

void zt_pool_set_stream_ordered(struct zt_pool *p)
{
    permit(p, p->base, (size_t)p->total * ZT_POOL_ALIGN);
    p->guarded = false;
}

void zt_pool_close(struct zt_pool *p)
{
    if (!p)
        return;
    permit(p, p->base, p->total * ZT_POOL_ALIGN);
    free(p->holes);
    free(p->live);
    free(p);
}

zt_err zt_pool_alloc(struct zt_pool *p, size_t bytes, void **out, struct zt_fault *fault)
{
    uint64_t len = bytes / ZT_POOL_ALIGN + (bytes % ZT_POOL_ALIGN != 0), at;
    size_t i;

    *out = NULL;
    if (!len)
        len = 1; /* so that every allocation has an address of its own */
    if (!reserve(p))
        return zt_fault_set(fault, ZT_E_NOMEM, "pool: no memory for its list");
    i = hole_best(p, len);
    if (i == p->num_holes)
        return zt_fault_set(fault, ZT_E_NOMEM,
                            "pool: %zu bytes do not fit: %zu of %zu are in use", bytes,
                            zt_pool_used(p), (size_t)p->total * ZT_POOL_ALIGN);
    at = p->holes[i].at;
    p->holes[i].at += len;
    p->holes[i].len -= len;
    if (!p->holes[i].len)
        hole_remove(p, i);
    live_put(p, at, len);
    p->used += len;
    if (at + len > p->peak)
        p->peak = at + len;
    *out = p->base + at * ZT_POOL_ALIGN;
    permit(p, *out, bytes);
    return ZT_OK;
}

void zt_pool_free(struct zt_pool *p, void *ptr)
{
    uint64_t at, len;

    if (!ptr)
        return;
    at = ((uintptr_t)ptr - (uintptr_t)p->base) / ZT_POOL_ALIGN;
    len = live_take(p, at);
    assert(len && "not from this pool, or freed twice");
    p->used -= len;
    hole_add(p, at, len);
    forbid(p, ptr, len * ZT_POOL_ALIGN);
}

size_t zt_pool_used(const struct zt_pool *p)
{
    return (size_t)p->used * ZT_POOL_ALIGN;
}

size_t zt_pool_peak(const struct zt_pool *p)
{
    return (size_t)p->peak * ZT_POOL_ALIGN;
}

void zt_pool_reset_peak(struct zt_pool *p)
{
    const struct hole *last = p->num_holes ? &p->holes[p->num_holes - 1] : NULL;

    p->peak = last && last->at + last->len == p->total ? last->at : p->total;
}
