/*
 * gated.h -- a product and the backward of the SwiGLU behind it in one kernel, by the library
 * of attention/sdpa.h: by the engine that tuning has chosen (gemm.h), or none if apart was
 * faster; without a choice by the one that the library names, after it has given the right
 * numbers for a small product. Both follow from device, library and problem alone. Computed
 * apart are
 *      fp32, types that differ, a's or b's rows at no multiple of 16 bytes,
 *      streams other than the main one, every device without the library.
 */
#ifndef KERNELS_CUDA_GEMM_GATED_H
#define KERNELS_CUDA_GEMM_GATED_H

#include "kernels/cuda/gemm/gemm.h"

/* As choices name the library: "cuDNN 91900". dev->sdpa is there. */
const char *zt_cuda_gated_library(const struct zt_device *dev);

/* Computes it apart. */
typedef zt_err (*zt_gated_apart)(struct zt_device *dev, struct zt_stream *s,
                                 const struct zt_gemm_args *g, struct zt_fault *fault);

/* *done: it is queued; else it is to be computed apart. g: of ZT_EPI_SWIGLU_BWD, checked. */
zt_err zt_cuda_gated(struct zt_device *dev, struct zt_stream *s,
                     const struct zt_gemm_args *g, zt_gated_apart run_apart, bool *done,
                     struct zt_fault *fault);

/*
 * While tuning: chooses between run_apart(), which computes it apart, and the library's
 * engines. One that is faster but gives other numbers, beyond rounding, is passed over with
 * a warning.
 */
zt_err zt_cuda_gated_tune(struct zt_device *dev, const struct zt_gemm_args *g,
                          zt_gated_apart run_apart, struct zt_fault *fault);

#endif
