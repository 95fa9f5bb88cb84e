/*
 * device_error.h -- how a kernel reports a wrong value that it was given.
 *
 * No kernel waits for the device, so only the device can see an id that lies outside its
 * table. The kernel writes the first such id into pinned host memory. The next sync()
 * returns it as the error that the cpu backend returns at once, and clears the record.
 * The record holds the first error in stream order; later ones before the same sync()
 * are dropped.
 */
#ifndef KERNELS_CUDA_DEVICE_ERROR_H
#define KERNELS_CUDA_DEVICE_ERROR_H

#include "kernels/cuda/cuda.h"

/* device.cu has the text of each. */
enum zt_cuda_error_kind {
    ZT_CUDA_ERROR_NONE = 0,
    ZT_CUDA_ERROR_EMBEDDING,
    ZT_CUDA_ERROR_EMBEDDING_BWD,
    ZT_CUDA_ERROR_ROPE,
    ZT_CUDA_ERROR_CROSS_ENTROPY,
    ZT_CUDA_ERROR_CROSS_ENTROPY_BWD
};

struct zt_cuda_device_error {
    int32_t kind;  /* enum zt_cuda_error_kind */
    int32_t value; /* the value that is outside [0, limit) */
    int64_t at;    /* its index: position or row */
    int64_t limit;
};

/* Records an error unless there is one already. One thread of the grid calls it. */
static __device__ __forceinline__ void zt_cuda_report_error(
    struct zt_cuda_device_error *t, enum zt_cuda_error_kind kind, int32_t value,
    int64_t at, int64_t limit)
{
    if (t->kind != ZT_CUDA_ERROR_NONE)
        return;
    t->value = value;
    t->at = at;
    t->limit = limit;
    t->kind = kind;
}

#define ZT_NO_IGNORE INT64_MIN /* equals no id */

/*
 * Index of the first of n ids that is outside [0, limit) and not `ignore`, or n. All
 * threads of the block call it and get the same result. `first` is __shared__.
 */
static __device__ __forceinline__ int64_t zt_find_out_of_range(const int32_t *id,
                                                               int64_t n, int64_t limit,
                                                               int64_t ignore,
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
