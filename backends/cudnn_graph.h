/*
 * cudnn_graph.h -- scaled dot product attention as graphs of cuDNN's operations.
 *
 * cuDNN is given operations on tensors, and has fused kernels for the graphs that it
 * knows. These two say, operation by operation, what NVIDIA's own front end
 * (cudnn-frontend, MIT) says for attention, in the same order and with the same types:
 * that is what the kernels are looked up by. In tensors cuDNN counts axes as (B, H, T,
 * D).
 *
 * Intermediate values are virtual: no memory stands behind them. The exception is
 * delta = rowsum(dO O), which the kernels of a backward hand over in the workspace. That
 * dQ has the type of q, instead of being added up in fp32 by all that contribute to it,
 * is what asks for the deterministic kernels.
 */
#ifndef BACKENDS_CUDNN_GRAPH_H
#define BACKENDS_CUDNN_GRAPH_H

#include "kernels/cuda/sdpa.h"

#include <cudnn.h>

/* Tensors with memory or a value; the ids of others count on from ZT_NUM_REAL. */
enum zt_cudnn_tensor {
    ZT_VIRTUAL,
    ZT_Q,
    ZT_K,
    ZT_V,
    ZT_OUT,
    ZT_LSE,
    ZT_DOUT,
    ZT_DQ,
    ZT_DK,
    ZT_DV,
    ZT_DELTA,  /* (B, H, Tq) fp32 */
    ZT_SCALE,  /* from here on values of the host, fp32 */
    ZT_HIDDEN, /* -inf: what a score is that the mask hides */
    ZT_ONE,
    ZT_NUM_REAL
};

#define ZT_CUDNN_OPS  32
#define ZT_CUDNN_MADE 160

/*
 * A graph that is being written down. It owns every descriptor that was made for it. The
 * first error stays in `e`, and what is called after it does nothing.
 */
struct zt_cudnn_graph {
    const struct zt_sdpa_problem *p;
    cudnnDataType_t type; /* of q */
    cudnnStatus_t e;
    int num_made, num_ops;
    int64_t next_id;
    cudnnBackendDescriptor_t made[ZT_CUDNN_MADE], op[ZT_CUDNN_OPS];
};

/* The operations of the problem into g; release() whatever came of it. */
void zt_cudnn_graph_init(struct zt_cudnn_graph *g, const struct zt_sdpa_problem *p);
void zt_cudnn_graph_release(struct zt_cudnn_graph *g);

/* A descriptor of the graph's; NULL once there was an error. */
cudnnBackendDescriptor_t zt_cudnn_make(struct zt_cudnn_graph *g,
                                       cudnnBackendDescriptorType_t type);
void zt_cudnn_set(struct zt_cudnn_graph *g, cudnnBackendDescriptor_t d,
                  cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                  int64_t count, const void *value);
void zt_cudnn_set_desc(struct zt_cudnn_graph *g, cudnnBackendDescriptor_t d,
                       cudnnBackendAttributeName_t name, cudnnBackendDescriptor_t value);
void zt_cudnn_finalize(struct zt_cudnn_graph *g, cudnnBackendDescriptor_t d);

#endif
