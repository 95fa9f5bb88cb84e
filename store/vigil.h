/*
 * vigil.h -- ranks of one machine that have no daemon notice each other's end.
 *
 * Rank 0 has a connection to every other rank of its machine, and each of them one to it
 * (local.h). Whoever ends in order says so first; a connection that closes without it
 * means that the process at its end is gone, and a thread here tells at once.
 *
 * Ownership: takes the descriptors. Threads: open, leave and close from one; `gone` is
 * called from the vigil's own thread, which has all signals blocked.
 */
#ifndef STORE_VIGIL_H
#define STORE_VIGIL_H

#include "common/fault.h"

struct zt_vigil;

struct zt_vigil_config {
    const int *fd;   /* (num) taken, also when opening fails */
    const int *rank; /* (num) who is at the other end */
    int num;
    void (*gone)(void *ctx, int rank);
    void *ctx;
};

zt_err zt_vigil_open(const struct zt_vigil_config *cfg, struct zt_vigil **out,
                     struct zt_fault *fault) ZT_MUST_CHECK;
/* This rank ends in order: what follows is no death. NULL is fine. */
void zt_vigil_leave(struct zt_vigil *v);
/* Without zt_vigil_leave() before it, the others take this rank for dead. NULL is fine.
 */
void zt_vigil_close(struct zt_vigil *v);

#endif
