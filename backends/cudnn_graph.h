/*
 * cudnn_graph.h -- scaled dot product attention as cuDNN operation graphs.
 *
 * cuDNN takes a graph of operations on tensors, and has fused kernels for the graphs that
 * it recognizes. The two graphs here have the operations, order and types of those that
 * NVIDIA's front end (cudnn-frontend, MIT) builds for attention, as cuDNN looks its
 * kernels up by them. Its axes are (B, H, T, D).
 *
 * Intermediate tensors are virtual: they have no memory. The exception is
 * delta = rowsum(dO O), which the kernels of a backward pass on in the workspace. dQ has
 * the type of q, which selects the deterministic kernels: with an fp32 dQ, all blocks that
 * contribute would add to it in any order.
 */
#ifndef BACKENDS_CUDNN_GRAPH_H
#define BACKENDS_CUDNN_GRAPH_H

#include "kernels/cuda/attention/sdpa.h"

#include <cudnn.h>

/* Tensors with memory or a value; ids of virtual ones start at ZT_NUM_REAL. */
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
    ZT_HIDDEN, /* -inf: a masked score */
    ZT_ONE,
    ZT_NUM_REAL
};

#define ZT_CUDNN_OPS  32
#define ZT_CUDNN_MADE 160

/*
 * A graph under construction. It owns every descriptor that was made for it. The first
 * error stays in `e`, and later calls do nothing.
 */
struct zt_cudnn_graph {
    const struct zt_sdpa_problem *p;
    cudnnDataType_t type; /* of q */
    cudnnStatus_t e;
    int num_made, num_ops;
    int64_t next_id;
    cudnnBackendDescriptor_t made[ZT_CUDNN_MADE], op[ZT_CUDNN_OPS];
};

/* Builds the graph of the problem in g. Call release() after a failure, too. */
void zt_cudnn_graph_init(struct zt_cudnn_graph *g, const struct zt_sdpa_problem *p);
void zt_cudnn_graph_release(struct zt_cudnn_graph *g);

/* Makes a descriptor that the graph owns; NULL after an error. */
cudnnBackendDescriptor_t zt_cudnn_make(struct zt_cudnn_graph *g,
                                       cudnnBackendDescriptorType_t type);
void zt_cudnn_set(struct zt_cudnn_graph *g, cudnnBackendDescriptor_t d,
                  cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                  int64_t count, const void *value);
void zt_cudnn_set_desc(struct zt_cudnn_graph *g, cudnnBackendDescriptor_t d,
                       cudnnBackendAttributeName_t name, cudnnBackendDescriptor_t value);
void zt_cudnn_finalize(struct zt_cudnn_graph *g, cudnnBackendDescriptor_t d);

#endif
