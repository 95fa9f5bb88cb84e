/*
 * onednn.h -- one matrix product as a oneDNN primitive, for oneDNN 2 and 3.
 *
 * The two releases differ in how a product is described: descriptors are structs or
 * handles, alpha is an attribute or an argument of each call. onednn2.c and onednn3.c
 * implement these functions; the version of the installed header decides which of them
 * is compiled, so nothing else depends on it.
 *
 * Ownership: who makes a product frees it. The engine and the stream stay the caller's
 *            and outlive it.
 * Threads:   any number may run one product at once, each with its own scratch and c.
 */
#ifndef KERNELS_CPU_GEMM_ONEDNN_H
#define KERNELS_CPU_GEMM_ONEDNN_H

#include <dnnl.h>
#include <stdbool.h>
#include <stddef.h>

/* A matrix, or a stack of them with the batch as the first axis. Strides in elements. */
struct zt_onednn_matrix {
    int num_axes; /* 2 or 3 */
    dnnl_data_type_t type;
    dnnl_dims_t dims, strides;
};

/* c = alpha a b + bias or, with accumulate, c += alpha a b. bias only with alpha 1. */
struct zt_onednn_matmul {
    struct zt_onednn_matrix a, b, c, bias;
    bool has_bias, accumulate;
    float alpha;
};

struct zt_onednn_product;

/* *out is written only on success. */
dnnl_status_t zt_onednn_make(dnnl_engine_t engine, const struct zt_onednn_matmul *matmul,
                             struct zt_onednn_product **out);
void zt_onednn_free(struct zt_onednn_product *p); /* NULL is fine */

/* Bytes of scratch that a call needs, aligned to 64. */
size_t zt_onednn_scratch_bytes(const struct zt_onednn_product *p);

/* bias is not read without has_bias. */
dnnl_status_t zt_onednn_run(const struct zt_onednn_product *p, dnnl_stream_t stream,
                            const void *a, const void *b, const void *bias, void *c,
                            void *scratch);

#endif
