/*
 * gemm.h -- what a product is made of, and the pass over rows after it.
 */
#ifndef KERNELS_CUDA_GEMM_H
#define KERNELS_CUDA_GEMM_H

#include "kernels/cuda/cuda.h"

/* A matrix, or a stack of them: (batch, rows, cols); of the last two strides one is 1. */
struct zt_mat {
    void *data; /* NULL: absent */
    zt_dtype dtype;
    int64_t batch, rows, cols;
    int64_t stride[3]; /* a batch stride of 0 repeats the matrix */
};

static inline struct zt_mat zt_mat_transposed(struct zt_mat m)
{
    int64_t t = m.rows;

    m.rows = m.cols;
    m.cols = t;
    t = m.stride[1];
    m.stride[1] = m.stride[2];
    m.stride[2] = t;
    return m;
}

/*
 * c = activation(from + bias), and pre what the activation got, rounded as it is stored.
 * All are shaped as c; `from` may be c or pre, or absent: zeros. The rest may be absent.
 */
struct zt_gemm_pass {
    struct zt_mat from, bias, pre, c;
    zt_epilogue epilogue;
};
zt_err zt_gemm_finish(struct zt_device *dev, struct zt_stream *s,
                      const struct zt_gemm_pass *p, struct zt_fault *fault);

#endif
