/*
 * cudnn_graph.h -- scaled dot product attention, and a product with the backward of a SwiGLU,
 * as cuDNN operation graphs.
 *
 * cuDNN takes a graph of operations on tensors, and has fused kernels for the graphs that
 * it recognizes. The two of attention have the operations, order and types of those that
 * NVIDIA's front end (cudnn-frontend, MIT) builds for attention, as cuDNN looks its
 * kernels up by them. Its axes are (B, H, T, D).
 *
 * Intermediate tensors are virtual: they have no memory. Exceptions are
 * delta = rowsum(dO O), which the kernels of a backward pass on in the workspace, and the sum
 * of dQ in fp32, where the problem does not ask for dS to be stored: to that all blocks of
 * keys add what they have, as they come or, by an engine that can, in order. A dQ in the type
 * of q selects the kernels that store dS, which are deterministic.
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
    ZT_DQ_SUM, /* (B, H, Tq, D) fp32 */
    ZT_A,      /* of a product */
    ZT_B,
    ZT_GATE,
    ZT_UP,
    ZT_DGATE,
    ZT_DUP,
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

/* ---- tensors and operations ---- */

struct zt_cudnn_node {
    cudnnBackendDescriptor_t desc;
    int num; /* axes */
    int64_t dim[4], stride[4];
};

/* Of three or four axes: attention has four, and engines for products take three alone. */
struct zt_cudnn_node zt_cudnn_tensor(struct zt_cudnn_graph *g, enum zt_cudnn_tensor which,
                                     cudnnDataType_t type, int num, const int64_t *dim,
                                     const int64_t *stride);
/* c = a b, summed in fp32 */
void zt_cudnn_matmul(struct zt_cudnn_graph *g, const struct zt_cudnn_node *a,
                     const struct zt_cudnn_node *b, const struct zt_cudnn_node *c);
/* y = x kind b, or kind(x) for b NULL, in fp32 */
void zt_cudnn_compute(struct zt_cudnn_graph *g, cudnnPointwiseMode_t kind,
                      const struct zt_cudnn_node *x, const struct zt_cudnn_node *b,
                      const struct zt_cudnn_node *y);
/* dx = dy times the slope of an activation at x: kind is one of cuDNN's ..._BWD */
void zt_cudnn_slope(struct zt_cudnn_graph *g, cudnnPointwiseMode_t kind,
                    const struct zt_cudnn_node *dy, const struct zt_cudnn_node *x,
                    const struct zt_cudnn_node *dx);
/* The operations so far as one descriptor. */
cudnnBackendDescriptor_t zt_cudnn_whole(struct zt_cudnn_graph *g, cudnnHandle_t cudnn);

/* ---- cudnn_plan.c: engines, plans, and running them ---- */

struct zt_sdpa_lib {
    cudnnHandle_t cudnn;
};

/* The operands of a run: device pointers, and scalars of the host. */
struct zt_cudnn_pack {
    int64_t id[ZT_NUM_REAL];
    void *at[ZT_NUM_REAL];
    int num;
};

/* Whether an engine gives the same bits in every run. */
bool zt_cudnn_is_deterministic(struct zt_cudnn_graph *g, cudnnBackendDescriptor_t engine);
/* A plan for a configuration of an engine; NULL: it does not work here, and why in *e. */
cudnnBackendDescriptor_t zt_cudnn_try_plan(struct zt_sdpa_lib *lib,
                                           cudnnBackendDescriptor_t config,
                                           cudnnStatus_t *e);
void zt_cudnn_put(struct zt_cudnn_pack *pack, int id, const void *at);
cudnnStatus_t zt_cudnn_execute(struct zt_sdpa_lib *lib, cudnnBackendDescriptor_t plan,
                               const struct zt_cudnn_pack *pack, void *workspace);
/* What cuDNN says of its last error, as `why`; the code for it. */
zt_err zt_cudnn_failed(cudnnStatus_t e, const char *what, char *why, size_t why_bytes);

/* ---- cudnn_gated.c: members of the table ---- */

int zt_cudnn_gated_engine(struct zt_sdpa_lib *lib, const struct zt_sdpa_gated *p);
zt_err zt_cudnn_gated_plan(struct zt_sdpa_lib *lib, const struct zt_sdpa_gated *p,
                           int engine, struct zt_sdpa_gated_plan **out,
                           size_t *workspace_bytes, char *why, size_t why_bytes);
void zt_cudnn_gated_plan_close(struct zt_sdpa_gated_plan *plan);
zt_err zt_cudnn_gated_run(struct zt_sdpa_lib *lib, const struct zt_sdpa_gated_plan *plan,
                          void *stream, const struct zt_sdpa_gated_data *d,
                          void *workspace, char *why, size_t why_bytes);

#endif
