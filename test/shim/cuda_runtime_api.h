/*
 * cuda_runtime_api.h -- what plain C needs to name a stream.
 */
#ifndef SHIM_CUDA_RUNTIME_API_H
#define SHIM_CUDA_RUNTIME_API_H

typedef struct CUstream_st *cudaStream_t;

#endif
