#include "worker/comm/shm/heap.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

bool zt_heap_reserve(struct zt_heap *h)
{
    size_t cap = h->cap ? h->cap * 2 : 16;
    struct zt_heap_region *more;

    if (h->num < h->cap)
        return true;
    more = realloc(h->by_off, cap * sizeof(*more));
    if (!more)
        return false;
    h->by_off = more;
    more = realloc(h->by_addr, cap * sizeof(*more));
    if (!more)
        return false;
    h->by_addr = more;
    h->cap = cap;
    return true;
}

/* How many regions begin at or before an offset, or an address. */
static size_t count_upto_off(const struct zt_heap *h, uint64_t file_off)
{
    size_t lo = 0, hi = h->num;

    while (lo < hi) {
        size_t mid = (lo + hi) / 2;

        if (h->by_off[mid].file_off <= file_off)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static size_t count_upto_addr(const struct zt_heap *h, uintptr_t at)
{
    size_t lo = 0, hi = h->num;

    while (lo < hi) {
        size_t mid = (lo + hi) / 2;

        if ((uintptr_t)h->by_addr[mid].at <= at)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static void insert(struct zt_heap_region *list, size_t num, size_t place,
                   struct zt_heap_region region)
{
    memmove(list + place + 1, list + place, (num - place) * sizeof(*list));
    list[place] = region;
}

void zt_heap_add(struct zt_heap *h, struct zt_heap_region region)
{
    insert(h->by_off, h->num, count_upto_off(h, region.file_off), region);
    insert(h->by_addr, h->num, count_upto_addr(h, (uintptr_t)region.at), region);
    h->num++;
}

void zt_heap_release(struct zt_heap *h)
{
    for (size_t i = 0; i < h->num; i++)
        munmap(h->by_off[i].at, h->by_off[i].bytes);
    free(h->by_off);
    free(h->by_addr);
    memset(h, 0, sizeof(*h));
}

uint64_t zt_heap_off(const struct zt_heap *h, const void *at, size_t bytes)
{
    for (; h; h = h->outer) {
        size_t n = count_upto_addr(h, (uintptr_t)at);
        const struct zt_heap_region *r = n ? &h->by_addr[n - 1] : NULL;
        size_t in = r ? (size_t)((uintptr_t)at - (uintptr_t)r->at) : 0;

        if (r && in <= r->bytes && bytes <= r->bytes - in)
            return r->file_off + in;
    }
    return ZT_HEAP_OUTSIDE;
}

char *zt_heap_at(const struct zt_heap *h, uint64_t file_off)
{
    for (; h; h = h->outer) {
        size_t n = count_upto_off(h, file_off);
        const struct zt_heap_region *r = n ? &h->by_off[n - 1] : NULL;

        if (r && file_off - r->file_off < r->bytes)
            return r->at + (file_off - r->file_off);
    }
    return NULL;
}
