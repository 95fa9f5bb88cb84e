/*
 * onednn_common.h -- what onednn2.c and onednn3.c have in common, for those two alone.
 *
 * They describe operands and make the primitive, each by its release's calls. The
 * attributes around it and the arguments of a call are the same but for what is declared
 * here.
 */
#ifndef KERNELS_CPU_GEMM_ONEDNN_COMMON_H
#define KERNELS_CPU_GEMM_ONEDNN_COMMON_H

#include "kernels/cpu/gemm/onednn.h"

#if DNNL_VERSION_MAJOR < 3
typedef const dnnl_memory_desc_t *zt_onednn_desc;
#else
typedef const_dnnl_memory_desc_t zt_onednn_desc;
#endif

/* An argument of a call. One without a descriptor is left out. */
struct zt_onednn_argument {
    int name; /* DNNL_ARG_... */
    zt_onednn_desc desc;
    const void *data; /* written to if it is the destination or scratch */
};

#define ZT_ONEDNN_MAX_ARGUMENTS 6

/* *attr is the caller's to destroy, also after an error. */
dnnl_status_t zt_onednn_make_attr(dnnl_primitive_attr_t *attr,
                                  const struct zt_onednn_matmul *matmul);

dnnl_status_t zt_onednn_execute(dnnl_engine_t engine, const_dnnl_primitive_t primitive,
                                dnnl_stream_t stream,
                                const struct zt_onednn_argument *arguments,
                                int num_arguments);

/* Of the release: how a product is scaled by alpha, and how it is added to c. */
dnnl_status_t zt_onednn_attr_alpha(dnnl_primitive_attr_t attr, const float *alpha);
dnnl_status_t zt_onednn_append_sum(dnnl_post_ops_t ops);

#endif
