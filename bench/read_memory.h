/*
 * read_memory.h -- reading memory and nothing else: the limit of what reads every weight once.
 */
#ifndef BENCH_READ_MEMORY_H
#define BENCH_READ_MEMORY_H

#include <stdint.h>

/* Sums n floats from p, n a multiple of 64: so many chains that additions do not wait. */
static inline float zt_read_floats(const float *p, int64_t n)
{
    typedef float quad __attribute__((vector_size(16)));
    quad sum[8] = {{0}}, total = {0};

    for (int64_t i = 0; i < n; i += 32)
        for (int k = 0; k < 8; k++)
            sum[k] += *(const quad *)(const void *)(p + i + 4 * k);
    for (int k = 0; k < 8; k++)
        total += sum[k];
    return total[0] + total[1] + total[2] + total[3];
}

#endif
