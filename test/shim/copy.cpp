/*
 * copy.cpp -- copies and memsets, checked when they are queued: both ends inside their
 * allocations, on the side that the kind of copy says.
 */
#include <string.h>

#include "shim.h"

static bool fits(const void *p, size_t bytes, bool device)
{
    size_t rest;
    shim_side side = shim_side_of(p, &rest);

    return p && bytes <= rest && (side == SHIM_BOTH || (side == SHIM_DEVICE) == device);
}

static bool allowed(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind)
{
    size_t rest;

    switch (kind) {
    case cudaMemcpyHostToHost:
        return fits(dst, bytes, false) && fits(src, bytes, false);
    case cudaMemcpyHostToDevice:
        return fits(dst, bytes, true) && fits(src, bytes, false);
    case cudaMemcpyDeviceToHost:
        return fits(dst, bytes, false) && fits(src, bytes, true);
    case cudaMemcpyDeviceToDevice:
        return fits(dst, bytes, true) && fits(src, bytes, true);
    default:
        shim_side_of(dst, &rest);
        if (bytes > rest)
            return false;
        shim_side_of(src, &rest);
        return bytes <= rest;
    }
}

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes,
                            enum cudaMemcpyKind kind, cudaStream_t stream)
{
    if (bytes > 0 && !allowed(dst, src, bytes, kind))
        return shim_error(cudaErrorInvalidValue);
    return shim_enqueue_launch(stream, {NULL, "a copy", [dst, src, bytes] {
                                            if (bytes > 0)
                                                memmove(dst, src, bytes);
                                        }});
}

cudaError_t cudaMemsetAsync(void *ptr, int value, size_t bytes, cudaStream_t stream)
{
    if (bytes > 0 && !fits(ptr, bytes, true))
        return shim_error(cudaErrorInvalidValue);
    return shim_enqueue_launch(stream, {NULL, "a memset", [ptr, value, bytes] {
                                            if (bytes > 0)
                                                memset(ptr, value, bytes);
                                        }});
}

cudaError_t cudaMemcpy(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind)
{
    cudaError_t e = cudaMemcpyAsync(dst, src, bytes, kind, 0);

    return e == cudaSuccess ? cudaStreamSynchronize(0) : e;
}

cudaError_t cudaMemset(void *ptr, int value, size_t bytes)
{
    return cudaMemsetAsync(ptr, value, bytes, 0);
}
