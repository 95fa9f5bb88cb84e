#include "backends/cudnn_graph.h"

#include <string.h>

#define ALIGNED 16 /* bytes, of all memory */

/* ------------------------------------------------------------------ descriptors */

cudnnBackendDescriptor_t zt_cudnn_make(struct zt_cudnn_graph *g,
                                       cudnnBackendDescriptorType_t type)
{
    cudnnBackendDescriptor_t d = NULL;

    if (!g->e && g->num_made == ZT_CUDNN_MADE)
        g->e = CUDNN_STATUS_INTERNAL_ERROR;
    if (!g->e)
        g->e = cudnnBackendCreateDescriptor(type, &d);
    if (!g->e)
        g->made[g->num_made++] = d;
    return d;
}

void zt_cudnn_set(struct zt_cudnn_graph *g, cudnnBackendDescriptor_t d,
                  cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                  int64_t count, const void *value)
{
    if (!g->e)
        g->e = cudnnBackendSetAttribute(d, name, type, count, value);
}

void zt_cudnn_set_desc(struct zt_cudnn_graph *g, cudnnBackendDescriptor_t d,
                       cudnnBackendAttributeName_t name, cudnnBackendDescriptor_t value)
{
    zt_cudnn_set(g, d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

static void set_type(struct zt_cudnn_graph *g, cudnnBackendDescriptor_t d,
                     cudnnBackendAttributeName_t name, cudnnDataType_t type)
{
    zt_cudnn_set(g, d, name, CUDNN_TYPE_DATA_TYPE, 1, &type);
}

void zt_cudnn_finalize(struct zt_cudnn_graph *g, cudnnBackendDescriptor_t d)
{
    if (!g->e)
        g->e = cudnnBackendFinalize(d);
}

void zt_cudnn_graph_release(struct zt_cudnn_graph *g)
{
    while (g->num_made > 0)
        (void)cudnnBackendDestroyDescriptor(g->made[--g->num_made]);
}

/* ------------------------------------------------------------------ tensors */

struct zt_cudnn_node zt_cudnn_tensor(struct zt_cudnn_graph *g, enum zt_cudnn_tensor which,
                                     cudnnDataType_t type, int num, const int64_t *dim,
                                     const int64_t *stride)
{
    bool is_virtual = which == ZT_VIRTUAL;
    bool is_value = which == ZT_SCALE || which == ZT_HIDDEN || which == ZT_ONE;
    int64_t id = is_virtual ? g->next_id++ : which, aligned = ALIGNED;
    struct zt_cudnn_node t = {.num = num,
                              .desc = zt_cudnn_make(g, CUDNN_BACKEND_TENSOR_DESCRIPTOR)};

    memcpy(t.dim, dim, (size_t)num * sizeof(*dim));
    memcpy(t.stride, stride, (size_t)num * sizeof(*stride));
    zt_cudnn_set(g, t.desc, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id);
    set_type(g, t.desc, CUDNN_ATTR_TENSOR_DATA_TYPE, type);
    zt_cudnn_set(g, t.desc, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, num, dim);
    zt_cudnn_set(g, t.desc, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, num, stride);
    zt_cudnn_set(g, t.desc, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1,
                 &aligned);
    zt_cudnn_set(g, t.desc, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1,
                 &is_virtual);
    zt_cudnn_set(g, t.desc, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1,
                 &is_value);
    zt_cudnn_finalize(g, t.desc);
    return t;
}

static struct zt_cudnn_node dense(struct zt_cudnn_graph *g, enum zt_cudnn_tensor which,
                                  cudnnDataType_t type, int64_t rows, int64_t cols)
{
    const int64_t b = g->p->batch, h = g->p->heads;

    return zt_cudnn_tensor(g, which, type, 4, (int64_t[]){b, h, rows, cols},
                           (int64_t[]){h * rows * cols, rows * cols, cols, 1});
}

static struct zt_cudnn_node value(struct zt_cudnn_graph *g, enum zt_cudnn_tensor which)
{
    static const int64_t one[4] = {1, 1, 1, 1};

    return zt_cudnn_tensor(g, which, CUDNN_DATA_FLOAT, 4, one, one);
}

/* (B, H, T, D) */
static struct zt_cudnn_node rows_of(struct zt_cudnn_graph *g, enum zt_cudnn_tensor which,
                                    const struct zt_sdpa_strides *s, int64_t heads,
                                    int64_t t)
{
    return zt_cudnn_tensor(g, which, g->type, 4,
                           (int64_t[]){g->p->batch, heads, t, g->p->dim},
                           (int64_t[]){s->batch, s->head, s->row, 1});
}

/* The same memory as (B, H, D, T). */
static struct zt_cudnn_node columns_of(struct zt_cudnn_graph *g,
                                       enum zt_cudnn_tensor which,
                                       const struct zt_sdpa_strides *s, int64_t heads,
                                       int64_t t)
{
    return zt_cudnn_tensor(g, which, g->type, 4,
                           (int64_t[]){g->p->batch, heads, g->p->dim, t},
                           (int64_t[]){s->batch, s->head, 1, s->row});
}

/* ------------------------------------------------------------------ operations */

static void add_op(struct zt_cudnn_graph *g, cudnnBackendDescriptor_t op)
{
    zt_cudnn_finalize(g, op);
    if (!g->e && g->num_ops == ZT_CUDNN_OPS)
        g->e = CUDNN_STATUS_INTERNAL_ERROR;
    if (!g->e)
        g->op[g->num_ops++] = op;
}

/* c = a b, summed in fp32 */
void zt_cudnn_matmul(struct zt_cudnn_graph *g, const struct zt_cudnn_node *a,
                     const struct zt_cudnn_node *b, const struct zt_cudnn_node *c)
{
    cudnnBackendDescriptor_t how = zt_cudnn_make(g, CUDNN_BACKEND_MATMUL_DESCRIPTOR), op;

    set_type(g, how, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT);
    zt_cudnn_finalize(g, how);
    op = zt_cudnn_make(g, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    zt_cudnn_set_desc(g, op, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a->desc);
    zt_cudnn_set_desc(g, op, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b->desc);
    zt_cudnn_set_desc(g, op, CUDNN_ATTR_OPERATION_MATMUL_CDESC, c->desc);
    zt_cudnn_set_desc(g, op, CUDNN_ATTR_OPERATION_MATMUL_DESC, how);
    add_op(g, op);
}

/* y = the sum or the maximum of x over the axes that have size 1 in y */
static void reduce(struct zt_cudnn_graph *g, cudnnReduceTensorOp_t kind,
                   const struct zt_cudnn_node *x, const struct zt_cudnn_node *y)
{
    cudnnBackendDescriptor_t how = zt_cudnn_make(g, CUDNN_BACKEND_REDUCTION_DESCRIPTOR),
                             op;

    set_type(g, how, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT);
    zt_cudnn_set(g, how, CUDNN_ATTR_REDUCTION_OPERATOR,
                 CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &kind);
    zt_cudnn_finalize(g, how);
    op = zt_cudnn_make(g, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    zt_cudnn_set_desc(g, op, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x->desc);
    zt_cudnn_set_desc(g, op, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y->desc);
    zt_cudnn_set_desc(g, op, CUDNN_ATTR_OPERATION_REDUCTION_DESC, how);
    add_op(g, op);
}

static void reshape(struct zt_cudnn_graph *g, const struct zt_cudnn_node *x,
                    const struct zt_cudnn_node *y)
{
    cudnnBackendDescriptor_t op =
        zt_cudnn_make(g, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);

    zt_cudnn_set_desc(g, op, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x->desc);
    zt_cudnn_set_desc(g, op, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y->desc);
    add_op(g, op);
}

/* y = x kind b; for BINARY_SELECT t ? x : b; for GEN_INDEX the index along `axis`. */
struct pointwise {
    cudnnPointwiseMode_t kind;
    cudnnDataType_t in; /* that the arithmetic is done in */
    const struct zt_cudnn_node *x, *b, *t;
    int64_t axis;
};

static void pointwise(struct zt_cudnn_graph *g, const struct pointwise *w,
                      const struct zt_cudnn_node *y)
{
    cudnnBackendDescriptor_t how = zt_cudnn_make(g, CUDNN_BACKEND_POINTWISE_DESCRIPTOR),
                             op;

    zt_cudnn_set(g, how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1,
                 &w->kind);
    set_type(g, how, CUDNN_ATTR_POINTWISE_MATH_PREC, w->in);
    if (w->kind == CUDNN_POINTWISE_GEN_INDEX)
        zt_cudnn_set(g, how, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &w->axis);
    zt_cudnn_finalize(g, how);
    op = zt_cudnn_make(g, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    zt_cudnn_set_desc(g, op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how);
    zt_cudnn_set_desc(g, op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, w->x->desc);
    if (w->b)
        zt_cudnn_set_desc(g, op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, w->b->desc);
    if (w->t)
        zt_cudnn_set_desc(g, op, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, w->t->desc);
    zt_cudnn_set_desc(g, op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y->desc);
    add_op(g, op);
}

/* y = x kind b, or kind(x) for b NULL, in fp32 */
void zt_cudnn_compute(struct zt_cudnn_graph *g, cudnnPointwiseMode_t kind,
                      const struct zt_cudnn_node *x, const struct zt_cudnn_node *b,
                      const struct zt_cudnn_node *y)
{
    struct pointwise w = {.kind = kind, .in = CUDNN_DATA_FLOAT, .x = x, .b = b};

    pointwise(g, &w, y);
}

void zt_cudnn_slope(struct zt_cudnn_graph *g, cudnnPointwiseMode_t kind,
                    const struct zt_cudnn_node *dy, const struct zt_cudnn_node *x,
                    const struct zt_cudnn_node *dx)
{
    cudnnBackendDescriptor_t how = zt_cudnn_make(g, CUDNN_BACKEND_POINTWISE_DESCRIPTOR),
                             op;

    zt_cudnn_set(g, how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &kind);
    set_type(g, how, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_DATA_FLOAT);
    zt_cudnn_finalize(g, how);
    op = zt_cudnn_make(g, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    zt_cudnn_set_desc(g, op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how);
    zt_cudnn_set_desc(g, op, CUDNN_ATTR_OPERATION_POINTWISE_DYDESC, dy->desc);
    zt_cudnn_set_desc(g, op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x->desc);
    zt_cudnn_set_desc(g, op, CUDNN_ATTR_OPERATION_POINTWISE_DXDESC, dx->desc);
    add_op(g, op);
}

cudnnBackendDescriptor_t zt_cudnn_whole(struct zt_cudnn_graph *g, cudnnHandle_t cudnn)
{
    cudnnBackendDescriptor_t ops =
        zt_cudnn_make(g, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);

    zt_cudnn_set(g, ops, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &cudnn);
    zt_cudnn_set(g, ops, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                 g->num_ops, g->op);
    zt_cudnn_finalize(g, ops);
    return ops;
}

/* The same into a new fp32 tensor with the shape of x. */
static struct zt_cudnn_node apply(struct zt_cudnn_graph *g, cudnnPointwiseMode_t kind,
                                  const struct zt_cudnn_node *x,
                                  const struct zt_cudnn_node *b)
{
    struct zt_cudnn_node y =
        zt_cudnn_tensor(g, ZT_VIRTUAL, CUDNN_DATA_FLOAT, 4, x->dim, x->stride);

    zt_cudnn_compute(g, kind, x, b, &y);
    return y;
}

/* The index of each element along an axis, with the shape of x. */
static struct zt_cudnn_node index_along(struct zt_cudnn_graph *g,
                                        const struct zt_cudnn_node *x, int64_t axis)
{
    struct zt_cudnn_node y =
        zt_cudnn_tensor(g, ZT_VIRTUAL, CUDNN_DATA_INT32, 4, x->dim, x->stride);
    struct pointwise w = {
        .kind = CUDNN_POINTWISE_GEN_INDEX, .in = CUDNN_DATA_FLOAT, .x = x, .axis = axis};

    pointwise(g, &w, &y);
    return y;
}

/* ------------------------------------------------------------------ the two graphs */

/* scores where the query's index is at least the key's, -inf elsewhere */
static struct zt_cudnn_node hide(struct zt_cudnn_graph *g, const struct zt_cudnn_node *s)
{
    struct zt_cudnn_node i = index_along(g, s, 2), j = index_along(g, s, 3);
    struct zt_cudnn_node seen =
        zt_cudnn_tensor(g, ZT_VIRTUAL, CUDNN_DATA_BOOLEAN, 4, s->dim, s->stride);
    struct zt_cudnn_node y =
        zt_cudnn_tensor(g, ZT_VIRTUAL, CUDNN_DATA_FLOAT, 4, s->dim, s->stride);
    struct zt_cudnn_node hidden = value(g, ZT_HIDDEN);
    struct pointwise compare = {
        .kind = CUDNN_POINTWISE_CMP_GE, .in = CUDNN_DATA_BOOLEAN, .x = &i, .b = &j};
    struct pointwise select = {.kind = CUDNN_POINTWISE_BINARY_SELECT,
                               .in = CUDNN_DATA_FLOAT,
                               .x = s,
                               .b = &hidden,
                               .t = &seen};

    pointwise(g, &compare, &seen);
    pointwise(g, &select, &y);
    return y;
}

/* scale q k^T */
static struct zt_cudnn_node scores(struct zt_cudnn_graph *g,
                                   const struct zt_cudnn_node *q,
                                   const struct zt_cudnn_node *kt,
                                   const struct zt_cudnn_node *scale)
{
    struct zt_cudnn_node s = dense(g, ZT_VIRTUAL, CUDNN_DATA_FLOAT, g->p->tq, g->p->tk);

    zt_cudnn_matmul(g, q, kt, &s);
    return apply(g, CUDNN_POINTWISE_MUL, &s, scale);
}

static void forward(struct zt_cudnn_graph *g)
{
    const struct zt_sdpa_problem *p = g->p;
    struct zt_cudnn_node q = rows_of(g, ZT_Q, &p->q, p->heads, p->tq);
    struct zt_cudnn_node kt = columns_of(g, ZT_K, &p->k, p->kv_heads, p->tk);
    struct zt_cudnn_node v = rows_of(g, ZT_V, &p->v, p->kv_heads, p->tk);
    struct zt_cudnn_node out = rows_of(g, ZT_OUT, &p->out, p->heads, p->tq);
    struct zt_cudnn_node lse = dense(g, ZT_LSE, CUDNN_DATA_FLOAT, p->tq, 1);
    struct zt_cudnn_node scale = value(g, ZT_SCALE);
    struct zt_cudnn_node s = scores(g, &q, &kt, &scale), e, log_sum;
    struct zt_cudnn_node max = dense(g, ZT_VIRTUAL, CUDNN_DATA_FLOAT, p->tq, 1);
    struct zt_cudnn_node sum = dense(g, ZT_VIRTUAL, CUDNN_DATA_FLOAT, p->tq, 1);
    struct zt_cudnn_node prob = dense(g, ZT_VIRTUAL, g->type, p->tq, p->tk);

    if (p->causal)
        s = hide(g, &s);
    reduce(g, CUDNN_REDUCE_TENSOR_MAX, &s, &max);
    e = apply(g, CUDNN_POINTWISE_SUB, &s, &max);
    e = apply(g, CUDNN_POINTWISE_EXP, &e, NULL);
    reduce(g, CUDNN_REDUCE_TENSOR_ADD, &e, &sum);
    log_sum = apply(g, CUDNN_POINTWISE_LOG, &sum, NULL);
    zt_cudnn_compute(g, CUDNN_POINTWISE_ADD, &max, &log_sum, &lse);
    zt_cudnn_compute(g, CUDNN_POINTWISE_DIV, &e, &sum, &prob);
    zt_cudnn_matmul(g, &prob, &v, &out);
}

/* a (B, H, Tk, Tq) times x (B, H, Tq, D) into dx (B, K, Tk, D), groups of heads added */
static void into_keys(struct zt_cudnn_graph *g, const struct zt_cudnn_node *a,
                      const struct zt_cudnn_node *x, const struct zt_cudnn_node *dx)
{
    struct zt_cudnn_node all;

    if (g->p->heads == g->p->kv_heads) {
        zt_cudnn_matmul(g, a, x, dx);
        return;
    }
    all = dense(g, ZT_VIRTUAL, g->type, g->p->tk, g->p->dim);
    zt_cudnn_matmul(g, a, x, &all);
    reduce(g, CUDNN_REDUCE_TENSOR_ADD, &all, dx);
}

/* x (B, H, Tq, Tk) as (B, H, Tk, Tq), rounded to the type of q */
static struct zt_cudnn_node transposed(struct zt_cudnn_graph *g,
                                       const struct zt_cudnn_node *x)
{
    const int64_t tq = g->p->tq, tk = g->p->tk;
    struct zt_cudnn_node y = zt_cudnn_tensor(
        g, ZT_VIRTUAL, g->type, 4, (int64_t[]){x->dim[0], x->dim[1], tk, tq},
        (int64_t[]){x->stride[0], x->stride[1], 1, tk});

    reshape(g, x, &y);
    return y;
}

/* delta = rowsum(dO O); the product with 1 is where dropout would be */
static struct zt_cudnn_node find_delta(struct zt_cudnn_graph *g,
                                       const struct zt_cudnn_node *dout)
{
    const struct zt_sdpa_problem *p = g->p;
    const int64_t stride[4] = {p->heads * p->tq * p->dim, p->tq * p->dim,
                               p->heads * p->dim, 1};
    struct zt_cudnn_node out = rows_of(g, ZT_OUT, &p->out, p->heads, p->tq);
    struct zt_cudnn_node product =
        zt_cudnn_tensor(g, ZT_VIRTUAL, CUDNN_DATA_FLOAT, 4, out.dim, stride);
    struct zt_cudnn_node sum = dense(g, ZT_VIRTUAL, CUDNN_DATA_FLOAT, p->tq, 1);
    struct zt_cudnn_node delta = dense(g, ZT_DELTA, CUDNN_DATA_FLOAT, p->tq, 1);
    struct zt_cudnn_node one = value(g, ZT_ONE);

    zt_cudnn_compute(g, CUDNN_POINTWISE_MUL, dout, &out, &product);
    reduce(g, CUDNN_REDUCE_TENSOR_ADD, &product, &sum);
    zt_cudnn_compute(g, CUDNN_POINTWISE_MUL, &sum, &one, &delta);
    return delta;
}

static void backward(struct zt_cudnn_graph *g)
{
    const struct zt_sdpa_problem *p = g->p;
    struct zt_cudnn_node q = rows_of(g, ZT_Q, &p->q, p->heads, p->tq);
    struct zt_cudnn_node kt = columns_of(g, ZT_K, &p->k, p->kv_heads, p->tk);
    struct zt_cudnn_node vt = columns_of(g, ZT_V, &p->v, p->kv_heads, p->tk);
    struct zt_cudnn_node lse = dense(g, ZT_LSE, CUDNN_DATA_FLOAT, p->tq, 1);
    struct zt_cudnn_node dout = rows_of(g, ZT_DOUT, &p->dout, p->heads, p->tq);
    struct zt_cudnn_node dq = rows_of(g, ZT_DQ, &p->dq, p->heads, p->tq);
    struct zt_cudnn_node dk = rows_of(g, ZT_DK, &p->dk, p->kv_heads, p->tk);
    struct zt_cudnn_node dv = rows_of(g, ZT_DV, &p->dv, p->kv_heads, p->tk);
    struct zt_cudnn_node scale = value(g, ZT_SCALE);
    struct zt_cudnn_node delta = find_delta(g, &dout), prob, ds, t, k;

    /* dV = P^T dO */
    prob = scores(g, &q, &kt, &scale);
    prob = apply(g, CUDNN_POINTWISE_SUB, &prob, &lse);
    if (p->causal)
        prob = hide(g, &prob);
    prob = apply(g, CUDNN_POINTWISE_EXP, &prob, NULL);
    t = transposed(g, &prob);
    into_keys(g, &t, &dout, &dv);

    /* dK = dS^T Q, dS = scale P (dO V^T - delta) */
    ds = dense(g, ZT_VIRTUAL, CUDNN_DATA_FLOAT, p->tq, p->tk);
    zt_cudnn_matmul(g, &dout, &vt, &ds);
    ds = apply(g, CUDNN_POINTWISE_SUB, &ds, &delta);
    ds = apply(g, CUDNN_POINTWISE_MUL, &ds, &prob);
    ds = apply(g, CUDNN_POINTWISE_MUL, &ds, &scale);
    t = transposed(g, &ds);
    into_keys(g, &t, &q, &dk);

    /* dQ = dS K */
    k = zt_cudnn_tensor(g, ZT_VIRTUAL, CUDNN_DATA_FLOAT, 4,
                        (int64_t[]){p->batch, p->kv_heads, p->tk, p->dim},
                        (int64_t[]){p->k.batch, p->k.head, p->k.row, 1});
    reshape(g, &kt, &k);
    if (p->sums == ZT_SDPA_STORED) {
        zt_cudnn_matmul(g, &ds, &k, &dq);
        return;
    }
    t = dense(g, ZT_DQ_SUM, CUDNN_DATA_FLOAT, p->tq, p->dim);
    zt_cudnn_matmul(g, &ds, &k, &t);
    zt_cudnn_compute(g, CUDNN_POINTWISE_IDENTITY, &t, NULL, &dq);
}

void zt_cudnn_graph_init(struct zt_cudnn_graph *g, const struct zt_sdpa_problem *p)
{
    memset(g, 0, sizeof(*g));
    g->p = p;
    g->type = p->dtype == ZT_BF16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_HALF;
    g->next_id = ZT_NUM_REAL;
    if (p->backward)
        backward(g);
    else
        forward(g);
}
