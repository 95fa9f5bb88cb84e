/* sizes.h -- what a cuda device takes for itself; plans know it without the device. */
#ifndef KERNELS_CUDA_SIZES_H
#define KERNELS_CUDA_SIZES_H

#include <stddef.h>

#define ZT_CUDA_SCRATCH   ((size_t)32 << 20) /* bytes for partial sums of a kernel */
#define ZT_CUDA_WORKSPACE ((size_t)32 << 20) /* bytes for cuBLASLt */
/* bytes for attention by a library, where one is loaded (sdpa.h); all but dS in 32 MiB */
#define ZT_SDPA_WORKSPACE (((size_t)512 + 32) << 20)

/* bytes that cuBLASLt and cuDNN take by themselves when they load the kernels of the first
 * step: left free by the plan */
#define ZT_CUDA_RESERVE ((size_t)256 << 20)

#define ZT_SDPA_ENVIRONMENT "ZLAUNCH_CUDNN_BACKEND"
#define ZT_SDPA_FILE        "backends/cudnn.so"

#endif
