/*
 * liveness.h -- ranks of one machine that have no daemon notice each other's end.
 *
 * Rank 0 has a connection to every other rank of its machine, and each of them one to it
 * (store/fd_passing.h). A rank that exits in order says so first; a connection that
 * closes without that means that the process behind it is gone; a thread here reports it
 * at once.
 *
 * Ownership: takes the descriptors.
 * Threads:   open, leave and close from one; `gone` is called from the monitor's own
 *            thread, which has all signals blocked.
 */
#ifndef STORE_NATIVE_LIVENESS_H
#define STORE_NATIVE_LIVENESS_H

#include "common/fault.h"

struct zt_liveness;

struct zt_liveness_config {
    const int *fd;   /* (num) taken, also when opening fails */
    const int *rank; /* (num) who is at the other end */
    int num;
    void (*gone)(void *ctx, int rank);
    void *ctx;
};

zt_err zt_liveness_open(const struct zt_liveness_config *cfg, struct zt_liveness **out,
                        struct zt_fault *fault) ZT_MUST_CHECK;
/* This rank exits in order: the others do not report it. NULL is fine. */
void zt_liveness_leave(struct zt_liveness *v);
/* Without zt_liveness_leave() first, the others take this rank for dead. NULL is fine. */
void zt_liveness_close(struct zt_liveness *v);

#endif
