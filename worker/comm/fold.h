/*
 * fold.h -- the sum (or maximum) over ranks, and copies of any length.
 *
 * F1  element i of the result depends on element i of the sources alone, taken in the
 *     order src[0], src[1], ... in fp32 (integers: in their own type, wrapping), then
 *     multiplied by `scale`, then rounded once. So any cutting gives the same bits.
 * F2  a destination may be one of the sources, and is written after all were read.
 * F3  max is NaN if any source is; the sign of a zero is that of the first source.
 * The bits of a NaN's payload are not specified. Threads: any; no state.
 */
#ifndef WORKER_COMM_FOLD_H
#define WORKER_COMM_FOLD_H

#include "worker/comm/comm.h"

struct zt_fold {
    zt_dtype dtype;
    zt_reduce_op op;
    float scale;
    bool stream; /* the result is large and no source: write it past the caches */
};

/* Each dst[] (num_dst of `count` elements) becomes the fold of src[] (num_src >= 1). */
void zt_fold_ranks(const struct zt_fold *how, void *const *dst, int num_dst,
                   const void *const *src, int num_src, size_t count);

/* Copy; dst == src does nothing, other overlap is not allowed. */
void zt_comm_copy(void *dst, const void *src, size_t bytes, bool stream);

/*
 * The instruction set fold uses: 0 portable, 1 AVX2 and F16C, 2 AVX-512; at most what
 * the processor has. For tests that compare them; not while another thread folds.
 */
int zt_fold_level(void);
void zt_fold_set_level(int level);

#endif
