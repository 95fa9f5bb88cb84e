/* cuda.c -- the symbol that zworker looks up in backends/cuda.so (kernels/backend.h). */
#include "kernels/backend.h"

extern const struct zt_backend zt_cuda_backend;

/* declared, so that it is no surprise */
extern const struct zt_backend *const zt_loaded_backend;
__attribute__((visibility("default"))) const struct zt_backend *const zt_loaded_backend =
    &zt_cuda_backend;
