/*
 * cuda.h -- what the files of the cuda backend share; CUDA C++ in the small part of the
 * language that C programmers read: templates over element types, and nothing else.
 *
 * The same sources are compiled by nvcc for devices, and by the host compiler against
 * test/shim, which runs them on the processor. So: no <<< >>> (zt_cuda_launch instead),
 * no inline assembly and no intrinsic that the shim does not have; static shared memory
 * only.
 *
 * Rules of every kernel here
 *  - it calls zt_check_<name>, launches on the stream it was given, and returns; sync()
 *    reports what fails later;
 *  - no atomics on floating point, no order that depends on timing: the same arguments
 *    give the same bits;
 *  - sums in fp32 (double where backend.h says so), the order from the shapes alone;
 *  - nothing is allocated: partial sums go to zt_cuda_scratch();
 *  - element indices are 64-bit.
 */
#ifndef KERNELS_CUDA_CUDA_H
#define KERNELS_CUDA_CUDA_H

#include <assert.h>

#include <cublasLt.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

extern "C" {
#include "kernels/backend.h"
#include "kernels/check.h"
}
#include "kernels/cuda/sizes.h"

#define ZT_WARP 32

/* ---------------------------------------------------------------- the device */

struct zt_cuda_gemms;        /* gemm/plan.cu: the plans that were found so far */
struct zt_gemm_choices;      /* gemm/choices.cu: what tuning has found */
struct zt_cuda_sdpa;         /* attention/sdpa.cu: attention by a library */
struct zt_gated_plans;       /* gemm/gated.cu: the same library's products */
struct zt_cuda_device_error; /* device_error.h: reported by sync() */

struct zt_stream {
    cudaStream_t cuda;
    void *scratch, *workspace; /* the main stream alone has them */
};

struct zt_device {
    int ordinal;
    int num_sm;
    int capability;        /* 80 for compute capability 8.0 */
    struct zt_stream main; /* what stream NULL means */
    size_t used, peak;     /* bytes of regions, scratch and workspace */
    cublasLtHandle_t blas;
    struct zt_cuda_gemms *gemms;     /* opened by the first product */
    struct zt_gemm_choices *choices; /* NULL: nothing is tuned */
    struct zt_gated_plans *gated;    /* opened by the first product of that kind */
    struct zt_cuda_sdpa *sdpa;       /* NULL: our own kernels do all attention */
    struct zt_cuda_device_error *error;
};

/* gemm/plan.cu, choices.cu, gated.cu; NULL is fine */
void zt_cuda_gemms_close(struct zt_cuda_gemms *g);
void zt_gemm_choices_close(struct zt_gemm_choices *c);
void zt_cuda_gated_close(struct zt_device *dev, struct zt_gated_plans *g);

/*
 * attention/sdpa.h: opens the attention library and its workspace for this thread's
 * device. NULL when there is none; NULL and a warning when it cannot be used.
 */
struct zt_cuda_sdpa *zt_cuda_sdpa_open(void);
void zt_cuda_sdpa_close(struct zt_cuda_sdpa *c); /* NULL is fine */

static inline struct zt_stream *zt_cuda_stream(struct zt_device *dev, struct zt_stream *s)
{
    return s ? s : &dev->main;
}

/* The main stream's scratch, ZT_CUDA_SCRATCH bytes: valid for kernels of one call. */
static inline void *zt_cuda_scratch(struct zt_device *dev, struct zt_stream *s)
{
    assert(zt_cuda_stream(dev, s)->scratch); /* backend.h: not on other streams */
    return zt_cuda_stream(dev, s)->scratch;
}

/* "cuda: layernorm: invalid configuration argument (9)" into fault. */
static inline zt_err zt_cuda_failed(const char *what, cudaError_t e,
                                    struct zt_fault *fault)
{
    zt_err rc = e == cudaErrorMemoryAllocation ? ZT_E_NOMEM : ZT_E_SYSTEM;

    return zt_fault_set(fault, rc, "cuda: %s: %s (%d)", what, cudaGetErrorString(e),
                        (int)e);
}

/* ---------------------------------------------------------------- launching */

/* Blocks of a launch over n work items. Kernels loop with a grid stride: for (i = zt_thread_index(); i < n; i += zt_thread_count()). */
static inline unsigned zt_cuda_blocks(const struct zt_device *dev, int64_t n,
                                      unsigned threads)
{
    int64_t want = (n + threads - 1) / threads, most = (int64_t)dev->num_sm * 16;

    return (unsigned)(want < 1 ? 1 : want < most ? want : most);
}

static __device__ __forceinline__ int64_t zt_thread_index(void)
{
    return (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
}

static __device__ __forceinline__ int64_t zt_thread_count(void)
{
    return (int64_t)gridDim.x * blockDim.x;
}

/* zt_cuda_launch("fill", fault, dev, s, blocks, threads, kernel<float>, args...). */
template <typename... Formal, typename... Actual>
static inline zt_err zt_cuda_launch(const char *what, struct zt_fault *fault,
                                    struct zt_device *dev, struct zt_stream *s,
                                    dim3 blocks, dim3 threads, void (*kernel)(Formal...),
                                    Actual... args)
{
    cudaLaunchConfig_t config = {};
    cudaError_t e;

    config.gridDim = blocks;
    config.blockDim = threads;
    config.stream = zt_cuda_stream(dev, s)->cuda;
    e = cudaLaunchKernelEx(&config, kernel, static_cast<Formal>(args)...);
    return e == cudaSuccess ? ZT_OK : zt_cuda_failed(what, e, fault);
}

/* ---------------------------------------------------------------- element types */

static __device__ __forceinline__ float zt_float(float x)
{
    return x;
}
static __device__ __forceinline__ float zt_float(__nv_bfloat16 x)
{
    return __bfloat162float(x);
}
static __device__ __forceinline__ float zt_float(__half x)
{
    return __half2float(x);
}

/* Rounded to nearest, ties to even. */
template <typename T> static __device__ __forceinline__ T zt_round(float x);
template <> __device__ __forceinline__ float zt_round<float>(float x)
{
    return x;
}
template <> __device__ __forceinline__ __nv_bfloat16 zt_round<__nv_bfloat16>(float x)
{
    return __float2bfloat16_rn(x);
}
template <> __device__ __forceinline__ __half zt_round<__half>(float x)
{
    return __float2half_rn(x);
}

/*
 * Calls f with a value of the C++ type of dtype t; only the type of the value matters:
 *      return zt_by_type(a->x.dtype, fault, [&](auto e) { using T = decltype(e); ... });
 */
template <typename F>
static inline zt_err zt_by_type(zt_dtype t, struct zt_fault *fault, F f)
{
    switch (t) {
    case ZT_F32:
        return f(float());
    case ZT_BF16:
        return f(__nv_bfloat16());
    case ZT_F16:
        return f(__half());
    default:
        return zt_fault_set(fault, ZT_E_ARG, "cuda: no kernel for %s", zt_dtype_name(t));
    }
}

/* ---------------------------------------------------------------- sums of a block */

/* The sum of x over a warp, the same in all lanes; a butterfly, so the order is fixed. */
static __device__ __forceinline__ float zt_warp_sum(float x)
{
    for (int d = ZT_WARP / 2; d; d /= 2)
        x += __shfl_xor_sync(0xFFFFFFFFu, x, d);
    return x;
}

static __device__ __forceinline__ double zt_warp_sum(double x)
{
    for (int d = ZT_WARP / 2; d; d /= 2)
        x += __shfl_xor_sync(0xFFFFFFFFu, x, d);
    return x;
}

static __device__ __forceinline__ float zt_warp_max(float x)
{
    for (int d = ZT_WARP / 2; d; d /= 2)
        x = fmaxf(x, __shfl_xor_sync(0xFFFFFFFFu, x, d));
    return x;
}

/*
 * The sum of x over a block of whole warps, the same in all threads. All threads call it.
 * `part` is __shared__ T[ZT_WARP] of the kernel and may be reused by the next call.
 */
template <typename T> static __device__ __forceinline__ T zt_block_sum(T x, T *part)
{
    unsigned lane = threadIdx.x % ZT_WARP, warp = threadIdx.x / ZT_WARP;
    T sum = 0;

    x = zt_warp_sum(x);
    if (lane == 0)
        part[warp] = x;
    __syncthreads();
    for (unsigned w = 0; w < blockDim.x / ZT_WARP; w++)
        sum += part[w];
    __syncthreads();
    return sum;
}

static __device__ __forceinline__ float zt_block_max(float x, float *part)
{
    unsigned lane = threadIdx.x % ZT_WARP, warp = threadIdx.x / ZT_WARP;

    x = zt_warp_max(x);
    if (lane == 0)
        part[warp] = x;
    __syncthreads();
    for (unsigned w = 0; w < blockDim.x / ZT_WARP; w++)
        x = fmaxf(x, part[w]);
    __syncthreads();
    return x;
}

/* ---------------------------------------------------------------- the table */
extern "C" {
#define ZT_CUDA_DECLARE(name, args)                                                      \
    zt_err zt_cuda_##name(struct zt_device *dev, struct zt_stream *s, const args *a,     \
                          struct zt_fault *fault);
ZT_KERNELS(ZT_CUDA_DECLARE)
#undef ZT_CUDA_DECLARE

/* stream.cu: members of the backend's table */
zt_err zt_cuda_stream_open(struct zt_device *dev, struct zt_stream **out,
                           struct zt_fault *fault);
void zt_cuda_stream_close(struct zt_device *dev, struct zt_stream *s);
void *zt_cuda_stream_native(struct zt_device *dev, struct zt_stream *s);
zt_err zt_cuda_event_open(struct zt_device *dev, struct zt_stream_event **out,
                          struct zt_fault *fault);
void zt_cuda_event_close(struct zt_device *dev, struct zt_stream_event *e);
zt_err zt_cuda_event_record(struct zt_device *dev, struct zt_stream_event *e,
                            struct zt_stream *s, struct zt_fault *fault);
zt_err zt_cuda_event_wait(struct zt_device *dev, struct zt_stream_event *e,
                          struct zt_stream *s, struct zt_fault *fault);
zt_err zt_cuda_event_passed(struct zt_device *dev, struct zt_stream_event *e, bool *out,
                            struct zt_fault *fault);

/* gemm/tune.cu: likewise */
zt_err zt_cuda_tune(struct zt_device *dev, const struct zt_gemm_args *products, int num,
                    const char *known, char **out, struct zt_fault *fault);
zt_err zt_cuda_use_tuning(struct zt_device *dev, const char *text,
                          struct zt_fault *fault);

extern const struct zt_backend zt_cuda_backend;
}

#endif
