/*
 * packing.h -- which samples share a row: best fit decreasing (Johnson, 1973).
 *
 * Samples come by size, the largest first and those of one size in their order. Each goes into
 * the row that it leaves the least room in (of several, in the one that was filled last), or
 * begins a new one. So rows follow from sizes
 * and capacity alone, and are at most 11/9 of the fewest possible and one more. Memory:
 * 8 bytes for each sample and row, while they are made 24.
 */
#ifndef WORKER_DATA_PACKING_H
#define WORKER_DATA_PACKING_H

#include "common/fault.h"

struct zt_packing {
    int64_t *samples; /* by rows; in a row the largest first */
    int64_t *first;   /* (num_rows + 1): where in `samples` each row begins */
    int64_t num_rows; /* 0: nothing is packed */
};

/* Pack `num` samples of 1 to `capacity` tokens into rows of `capacity`. ZT_E_NOMEM; *p is
 * written only on success. */
zt_err zt_packing_make(struct zt_packing *p, const uint32_t *sizes, int64_t num,
                       int64_t capacity, struct zt_fault *fault) ZT_MUST_CHECK;
void zt_packing_release(struct zt_packing *p); /* zeroed: fine */

#endif
