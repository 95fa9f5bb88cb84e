/* A backend in small: kernels, launches, and a table of functions. */
#include <cuda_runtime.h>

#include "test/unit/cuda/loaded.h"

static __global__ void add_one_kernel(int *x, int n)
{
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);

    if (i < n)
        x[i]++;
}

static __global__ void write_at_kernel(int *x, long at)
{
    x[at] = 1;
}

static int alloc(void **out, size_t bytes)
{
    return cudaMalloc(out, bytes);
}

static int release(void *p)
{
    return cudaFree(p);
}

static int copy(void *dst, const void *src, size_t bytes)
{
    return cudaMemcpy(dst, src, bytes, cudaMemcpyDefault);
}

static int add_one(int *x, int n)
{
    cudaLaunchConfig_t config = {};

    config.gridDim = dim3((unsigned)(n + 63) / 64);
    config.blockDim = dim3(64);
    return cudaLaunchKernelEx(&config, add_one_kernel, x, n);
}

static int write_at(int *x, long at)
{
    cudaLaunchConfig_t config = {};

    return cudaLaunchKernelEx(&config, write_at_kernel, x, at);
}

static int sync(void)
{
    return cudaDeviceSynchronize();
}

extern "C" const struct loaded_cuda loaded_cuda;
const struct loaded_cuda loaded_cuda = {alloc, release, copy, add_one, write_at, sync};
