/*
 * philox_words.h -- Philox words in bulk, with the widest vectors of the processor.
 */
#ifndef KERNELS_CPU_PHILOX_WORDS_H
#define KERNELS_CPU_PHILOX_WORDS_H

#include "kernels/philox.h"

#define ZT_PHILOX_WORDS_BATCH (4 * ZT_PHILOX_BATCH) /* 64 */

/*
 * out[i] = word of the absolute position first + i (rng.offset is ignored), i < n.
 * first is a multiple of 4, n of ZT_PHILOX_WORDS_BATCH. Any number of threads.
 */
void zt_philox_words(struct zt_philox rng, uint64_t first, int64_t n, uint32_t *out);

#endif
