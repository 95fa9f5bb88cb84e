/* integers.h -- arithmetic of sizes and indices, for code that cuts tensors into parts. */
#ifndef KERNELS_INTEGERS_H
#define KERNELS_INTEGERS_H

#include <stdint.h>

static inline int64_t zt_min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t zt_max(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Parts of at most `each` that n makes: n / each, rounded up. n >= 0, each > 0. */
static inline int64_t zt_num_parts(int64_t n, int64_t each)
{
    return (n + each - 1) / each;
}

#endif
