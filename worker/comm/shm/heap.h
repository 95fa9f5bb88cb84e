/*
 * heap.h -- the pieces of the shared file that a rank has mapped for zt_comm_alloc().
 *
 * A place in the file means the same on every rank; where it is mapped differs. So ranks
 * exchange offsets in the file, and look up addresses.
 *
 * H1  regions do not overlap, neither in the file nor in memory.
 * H2  a region is in a rank's heap only when it is in that of every rank of the group.
 * A group's heap continues in that of the communicator it was split from (`outer`): its
 * members have all of that mapped.
 *
 * Ownership: the heap owns the mappings, not the descriptor.
 * Threads:   unlocked; calls of a communicator and its groups run one at a time.
 */
#ifndef WORKER_COMM_SHM_HEAP_H
#define WORKER_COMM_SHM_HEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ZT_HEAP_OUTSIDE UINT64_MAX

struct zt_heap_region {
    char *at;
    uint64_t file_off; /* bytes */
    size_t bytes;
};

struct zt_heap {
    const struct zt_heap *outer;    /* NULL: none */
    struct zt_heap_region *by_off;  /* (num) in the order of file_off */
    struct zt_heap_region *by_addr; /* (num) the same in the order of `at` */
    size_t num, cap;
};

/* Room for one region more, so that zt_heap_add() cannot fail. */
bool zt_heap_reserve(struct zt_heap *h);
void zt_heap_add(struct zt_heap *h, struct zt_heap_region region);

/* Unmaps all regions of this heap, not those of `outer`. A zeroed heap is fine. */
void zt_heap_release(struct zt_heap *h);

/* The offset in the file of [at, at + bytes), or ZT_HEAP_OUTSIDE. */
uint64_t zt_heap_off(const struct zt_heap *h, const void *at, size_t bytes);

/* Where an offset that a peer's zt_heap_off() gave for some bytes is mapped here. */
char *zt_heap_at(const struct zt_heap *h, uint64_t file_off);

#endif
