/*
 * trouble.h -- what a kernel finds wrong in the values it is given, said by the next
 * sync().
 *
 * No kernel waits for the device, so that an id outside its table can be seen there only.
 * One block looks for the first one and writes it into host memory; sync() turns it into
 * the sentence that the cpu backend gives at once, and forgets it.
 * Of several troubles before one sync() the first in the stream stays.
 */
#ifndef KERNELS_CUDA_TROUBLE_H
#define KERNELS_CUDA_TROUBLE_H

#include "kernels/cuda/cuda.h"

/* Each is a sentence in device.cu. */
enum zt_trouble {
    ZT_TROUBLE_NONE = 0,
    ZT_TROUBLE_EMBEDDING,
    ZT_TROUBLE_EMBEDDING_BWD,
    ZT_TROUBLE_ROPE,
    ZT_TROUBLE_CROSS_ENTROPY,
    ZT_TROUBLE_CROSS_ENTROPY_BWD
};

struct zt_cuda_trouble {
    int32_t kind;  /* enum zt_trouble */
    int32_t value; /* the number that is outside [0, limit) ... */
    int64_t at;    /* ... and which one it is */
    int64_t limit;
};

/* By one thread of the grid. */
static __device__ __forceinline__ void zt_report(struct zt_cuda_trouble *t,
                                                 enum zt_trouble kind, int32_t value,
                                                 int64_t at, int64_t limit)
{
    if (t->kind != ZT_TROUBLE_NONE)
        return;
    t->value = value;
    t->at = at;
    t->limit = limit;
    t->kind = kind;
}

#define ZT_NO_IGNORE INT64_MIN /* no id is this */

/*
 * The first of n ids that is outside [0, limit) and not `ignore`, or n; the same in all
 * threads of the block, and all call it. `first` is __shared__.
 */
static __device__ __forceinline__ int64_t zt_first_outside(const int32_t *id, int64_t n,
                                                           int64_t limit, int64_t ignore,
                                                           unsigned long long *first)
{
    int64_t at = threadIdx.x;

    if (threadIdx.x == 0)
        *first = (unsigned long long)n;
    __syncthreads();
    while (at < n && ((id[at] >= 0 && id[at] < limit) || id[at] == ignore))
        at += blockDim.x;
    if (at < n)
        atomicMin(first, (unsigned long long)at);
    __syncthreads();
    return (int64_t)*first;
}

#endif
