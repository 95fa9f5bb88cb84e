/* An object as sdpa.h wants it, with nothing in it: test_sdpa.cpp fills in the table. */
#include "kernels/cuda/attention/sdpa.h"

__attribute__((visibility("default"))) extern struct zt_sdpa zt_sdpa_cudnn;
struct zt_sdpa zt_sdpa_cudnn;
