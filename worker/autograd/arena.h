/*
 * arena.h -- memory for the many small structs of a step: taken one by one, let go at
 * once.
 *
 * Ownership: the arena owns its chunks and keeps them over a reset, so that from the
 *            second step on nothing comes from the system.
 * Threads:   unlocked.
 * Failure:   NULL when the heap is out.
 */
#ifndef WORKER_AUTOGRAD_ARENA_H
#define WORKER_AUTOGRAD_ARENA_H

#include <stddef.h>

struct zt_arena;

struct zt_arena *zt_arena_open(void);
void zt_arena_close(struct zt_arena *a); /* NULL is fine */

/* Zeroed, aligned for any type. */
void *zt_arena_take(struct zt_arena *a, size_t bytes);
/* Everything taken is gone; the memory stays. */
void zt_arena_reset(struct zt_arena *a);

#endif
