/*
 * reduce.h -- the sum (or maximum) over ranks, and copies of any length.
 *
 * R1  element i of the result depends on element i of the sources alone, taken in the
 *     order src[0], src[1], ... in fp32 (integers: in their own type, wrapping), then
 *     multiplied by `scale`, then rounded once. So cutting it into pieces anywhere gives the same bits.
 * R2  a destination may be one of the sources, and is written after all were read.
 * R3  max is NaN if any source is; the sign of a zero is that of the first source.
 * The bits of a NaN's payload are not specified.
 * Threads:   any; no state.
 */
#ifndef WORKER_COMM_REDUCE_H
#define WORKER_COMM_REDUCE_H

#include "worker/comm/comm.h"

struct zt_rank_reduction {
    zt_dtype dtype;
    zt_reduce_op op;
    float scale;
    bool stream;   /* the result is large and no source: write it past the caches */
    bool backward; /* two sources from the end on, as zt_comm_copy_span() */
};

/* Each dst[] (num_dst of `count` elements) becomes the reduction of src[] (num_src >= 1). */
void zt_reduce_ranks(const struct zt_rank_reduction *how, void *const *dst, int num_dst,
                     const void *const *src, int num_src, size_t count);

/* Copy; dst == src does nothing, other overlap is not allowed. */
void zt_comm_copy(void *dst, const void *src, size_t bytes, bool stream);

/*
 * A copy beside what peers write at the same time: bytes next to dst and src are theirs.
 * For what is short enough to stay in the caches, else zt_comm_copy():
 * - `backward`, from the end on. Who goes over the same memory to and fro finds in the
 *   first level what it touched last, where always going forward finds nothing that is
 *   longer than that.
 * - No loop runs towards a border: the part before it is done last, from the border
 *   inwards. Processors fetch ahead of a loop, and would take from a peer's cache the
 *   first lines that it has written, to be taken back at its next write.
 */
void zt_comm_copy_span(void *dst, const void *src, size_t bytes, bool backward);

/*
 * The instruction set in use: 0 portable, 1 AVX2 and F16C, 2 AVX-512; at most what
 * the processor has. For tests that compare them; not while another thread reduces.
 */
int zt_reduce_level(void);
void zt_reduce_set_level(int level);

#endif
