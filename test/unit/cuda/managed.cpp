/*
 * managed.cpp -- arrays of the kernel tests where the device and the tests both reach
 * them.
 */
#include <cuda_runtime.h>

extern "C" {
void *ref_cuda_alloc(size_t bytes);
void ref_cuda_free(void *ptr);
}

void *ref_cuda_alloc(size_t bytes)
{
    void *p = NULL;

    return cudaMallocManaged(&p, bytes) == cudaSuccess ? p : NULL;
}

void ref_cuda_free(void *ptr)
{
    cudaFree(ptr);
}
