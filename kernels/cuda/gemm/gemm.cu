/*
 * Products on cuBLASLt, which is column-major: a row-major c is c^T in column-major order,
 * so its first operand is our b and its second our a. A column-major c is computed as the
 * transposed product.
 *
 * Sums are fp32, and so are products of fp32 unless TF32 is allowed. Split-K sums are
 * added in fp32 in the workspace, in order; else K is not split. Bias and tanh GELU are
 * fused where cuBLASLt has an epilogue for them; the rest is zt_gemm_run_epilogue. The GELU of cuBLASLt sees sums
 * before they are rounded to what `pre` keeps of them. The slope of tanh GELU, and the sum
 * of one operand over K, are fused likewise, else kernels of their own. The backward of a
 * SwiGLU is gated.cu's where tuning has found that faster.
 */
#include "kernels/cuda/gemm/gated.h"

#include <string.h>

/* ---- arguments ---- */

/* A call after its arguments have been checked. */
struct call {
    struct zt_mat a, b, c, pre, bias; /* bias: as c, its row stride 0 */
    struct zt_mat slope_at;           /* `pre` of the backward of a gelu */
    const struct zt_gemm_args *args;
    const float *a_scale, *b_scale;
    float alpha;
    bool accumulate, tf32;
    zt_epilogue epilogue;
};

/* Axes of length 1 get a stride that fits: the last one 1, the other a whole row. */
static struct zt_mat fitted(struct zt_mat m)
{
    if (m.cols == 1)
        m.stride[2] = 1;
    if (m.rows == 1)
        m.stride[1] = m.stride[2] == 1 ? m.cols : 1;
    return m;
}

/* The matrix of a view that zt_check_gemm has accepted. */
static struct zt_mat mat_of(const struct zt_view *v)
{
    int at = v->ndim - 2;
    struct zt_mat m;

    m.data = v->data;
    m.dtype = v->dtype;
    m.batch = at ? v->shape[0] : 1;
    m.rows = v->shape[at];
    m.cols = v->shape[at + 1];
    m.stride[0] = m.batch > 1 ? v->stride[0] : 0;
    m.stride[1] = v->stride[at];
    m.stride[2] = v->stride[at + 1];
    return fitted(m);
}

static void read_args(struct call *k, const struct zt_gemm_args *g)
{
    memset(k, 0, sizeof(*k));
    k->a = mat_of(&g->a);
    k->b = mat_of(&g->b);
    k->c = mat_of(&g->c);
    k->a_scale = g->a_scale;
    k->b_scale = g->b_scale;
    k->alpha = g->alpha;
    k->accumulate = g->accumulate;
    k->tf32 = g->tf32 && g->a.dtype == ZT_F32;
    k->args = g;
    if (zt_is_gelu_bwd(g->epilogue)) {
        k->slope_at = mat_of(&g->pre);
    } else if (g->epilogue != ZT_EPI_SWIGLU_BWD) {
        k->epilogue = g->epilogue;
        if (g->epilogue != ZT_EPI_NONE && g->pre.data)
            k->pre = mat_of(&g->pre);
    }
    if (g->bias.data) {
        k->bias = k->c;
        k->bias.data = g->bias.data;
        k->bias.dtype = g->bias.dtype;
        k->bias.stride[0] = k->bias.stride[1] = 0;
        k->bias.stride[2] = k->c.cols == 1 ? 1 : g->bias.stride[0];
    }
}

/* ---- what rides along ---- */

enum { FUSE_BIAS = 1, FUSE_GELU = 2, FUSE_SLOPE = 4, FUSE_SUM = 8 };

/* The condition of cuBLASLt for what its GELU keeps. */
static bool fits_aux(const struct zt_mat *pre)
{
    return pre->stride[2] == 1 && pre->stride[1] % 8 == 0 &&
           (uintptr_t)pre->data % ZT_GEMM_ALIGNED == 0;
}

static bool slope_fuses(const struct call *k)
{
    return k->args->epilogue == ZT_EPI_GELU_TANH_BWD && k->c.dtype != ZT_F32 &&
           !k->a_scale && k->c.batch == 1 && k->c.stride[2] == 1 &&
           fits_aux(&k->slope_at);
}

/* Of 16-bit operands into fp32; the sum itself goes through scratch. */
static bool sum_fuses(const struct call *k)
{
    const struct zt_view *a = &k->args->a_sum, *b = &k->args->b_sum;
    int64_t n = a->data ? a->shape[0] : b->data ? b->shape[0] : 0;

    return !a->data != !b->data && k->args->epilogue == ZT_EPI_NONE && !k->bias.data &&
           k->c.batch == 1 && k->c.dtype == ZT_F32 && k->a.dtype != ZT_F32 &&
           !k->a_scale && n * (int64_t)sizeof(float) <= (int64_t)ZT_CUDA_SCRATCH;
}

static int what_fuses(const struct call *k)
{
    const struct zt_mat *first = k->pre.data ? &k->pre : &k->c;
    bool bias = k->bias.data && k->bias.dtype == k->c.dtype && k->bias.stride[2] == 1 &&
                first->stride[2] == 1 && k->c.batch == 1 &&
                (!k->a_scale || k->c.dtype != ZT_F32); /* there it would want bf16 */
    bool gelu = k->epilogue == ZT_EPI_GELU_TANH && (bias || !k->bias.data) &&
                k->c.dtype != ZT_F32 && k->c.stride[2] == 1 && k->c.batch == 1 &&
                (!k->pre.data || fits_aux(&k->pre));

    return (bias ? FUSE_BIAS : 0) | (gelu ? FUSE_GELU : 0) |
           (slope_fuses(k) ? FUSE_SLOPE : 0) | (sum_fuses(k) ? FUSE_SUM : 0);
}

/* `flip`: the operands are exchanged. */
static cublasLtEpilogue_t epilogue_of(const struct call *k, int fuse, bool flip)
{
    bool bias = fuse & FUSE_BIAS;

    if (fuse & FUSE_SLOPE)
        return CUBLASLT_EPILOGUE_DGELU;
    if (fuse & FUSE_SUM) /* A of cuBLASLt is our b */
        return !k->args->a_sum.data == flip ? CUBLASLT_EPILOGUE_BGRADB
                                            : CUBLASLT_EPILOGUE_BGRADA;
    if (!(fuse & FUSE_GELU))
        return bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
    if (k->pre.data)
        return bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
    return bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
}

static int32_t lt_type(zt_dtype t)
{
    switch (t) {
    case ZT_F32:
        return CUDA_R_32F;
    case ZT_BF16:
        return CUDA_R_16BF;
    case ZT_F8E4M3:
        return CUDA_R_8F_E4M3;
    case ZT_F8E5M2:
        return CUDA_R_8F_E5M2;
    default:
        return CUDA_R_16F;
    }
}

static int32_t alignment(const void *p)
{
    int32_t n = ZT_GEMM_ALIGNED;

    while ((uintptr_t)p % (unsigned)n)
        n /= 2;
    return n;
}

/* The product into `to`, which is c or pre. */
static struct zt_gemm_product product_of(const struct call *k, const struct zt_mat *to,
                                         int fuse)
{
    bool flip = to->stride[2] != 1;
    struct zt_mat a = flip ? fitted(zt_mat_transposed(k->a)) : k->b;
    struct zt_mat b = flip ? fitted(zt_mat_transposed(k->b)) : k->a;
    struct zt_mat d = flip ? fitted(zt_mat_transposed(*to)) : *to;
    struct zt_gemm_product x;

    memset(&x, 0, sizeof(x));
    x.key.m = d.cols;
    x.key.n = d.rows;
    x.key.k = k->a.cols;
    x.key.batch = d.batch;
    x.key.trans_a = a.stride[2] == 1 ? CUBLAS_OP_N : CUBLAS_OP_T;
    x.key.trans_b = b.stride[2] == 1 ? CUBLAS_OP_N : CUBLAS_OP_T;
    x.key.ld_a = a.stride[2] == 1 ? a.stride[1] : a.stride[2];
    x.key.ld_b = b.stride[2] == 1 ? b.stride[1] : b.stride[2];
    x.key.ld_d = d.stride[1];
    x.key.step_a = a.stride[0];
    x.key.step_b = b.stride[0];
    x.key.step_d = d.stride[0];
    x.key.type_a = lt_type(a.dtype);
    x.key.type_b = lt_type(b.dtype);
    x.key.type_d = lt_type(d.dtype);
    x.key.epilogue = (int32_t)epilogue_of(k, fuse, flip);
    x.key.compute = k->tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    x.key.align_a = alignment(a.data);
    x.key.align_b = alignment(b.data);
    x.key.align_d = alignment(d.data);
    x.a = a.data;
    x.b = b.data;
    x.a_scale = flip ? k->a_scale : k->b_scale;
    x.b_scale = flip ? k->b_scale : k->a_scale;
    x.d = d.data;
    x.alpha = k->alpha;
    x.beta = k->accumulate ? 1.0f : 0.0f;
    if (zt_gemm_has_bias(&x.key)) {
        x.bias = fuse & FUSE_SUM ? nullptr : k->bias.data; /* scratch is well aligned */
        x.key.align_bias = alignment(x.bias);
    }
    if (zt_gemm_has_aux(&x.key)) {
        const struct zt_mat *aux = fuse & FUSE_SLOPE ? &k->slope_at : &k->pre;

        x.aux = aux->data;
        x.key.align_aux = alignment(x.aux);
        x.key.ld_aux = aux->stride[1];
    }
    return x;
}

/* ---- what is left to kernels of their own ---- */

static zt_err add_sum(struct zt_device *dev, struct zt_stream *s, const struct zt_view *x,
                      const struct zt_view *sum, bool accumulate, struct zt_fault *fault)
{
    struct zt_colsum_args a = {};

    a.x = *x;
    a.y = *sum;
    a.accumulate = accumulate;
    return sum->data ? zt_cuda_colsum(dev, s, &a, fault) : ZT_OK;
}

/* The sum that a product has left in scratch, into its place. */
static zt_err move_sum(struct zt_device *dev, struct zt_stream *s,
                       const struct zt_gemm_args *g, struct zt_fault *fault)
{
    struct zt_axpby_args a = {};

    a.y = g->a_sum.data ? g->a_sum : g->b_sum;
    a.x = a.y;
    a.x.data = zt_cuda_scratch(dev, s);
    a.alpha = 1;
    a.beta = g->accumulate_sums ? 1.0f : 0.0f;
    return zt_cuda_axpby(dev, s, &a, fault);
}

static zt_err run_slope(struct zt_device *dev, struct zt_stream *s,
                        const struct zt_gemm_args *g, struct zt_fault *fault)
{
    struct zt_unary_bwd_args a = {};

    a.kind = g->epilogue == ZT_EPI_GELU_TANH_BWD ? ZT_U_GELU_TANH : ZT_U_GELU_ERF;
    a.dy = a.dx = g->c;
    a.x = g->pre;
    return zt_cuda_unary_bwd(dev, s, &a, fault);
}

/* c, which is the gradient of the result, becomes that of `up`. */
static zt_err run_swiglu_bwd(struct zt_device *dev, struct zt_stream *s,
                             const struct zt_gemm_args *g, struct zt_fault *fault)
{
    struct zt_glu_bwd_args a = {};

    a.kind = ZT_U_SILU;
    a.dy = a.dup = g->c;
    a.gate = g->gate;
    a.up = g->up;
    a.dgate = g->dgate;
    return zt_cuda_glu_bwd(dev, s, &a, fault);
}

static zt_err run_rest(struct zt_device *dev, struct zt_stream *s, const struct call *k,
                       int fuse, struct zt_fault *fault)
{
    const struct zt_gemm_args *g = k->args;
    struct zt_view at = zt_view_transposed(&g->a);
    zt_err rc = ZT_OK;

    if (zt_is_gelu_bwd(g->epilogue) && !(fuse & FUSE_SLOPE))
        rc = run_slope(dev, s, g, fault);
    if (g->epilogue == ZT_EPI_SWIGLU_BWD)
        rc = run_swiglu_bwd(dev, s, g, fault);
    if (rc || fuse & FUSE_SUM)
        return rc ? rc : move_sum(dev, s, g, fault);
    rc = add_sum(dev, s, &at, &g->a_sum, g->accumulate_sums, fault);
    return rc ? rc : add_sum(dev, s, &g->b, &g->b_sum, g->accumulate_sums, fault);
}

/* The product with the epilogue that cuBLASLt fuses, then the rest of the epilogue. */
static zt_err run_call(struct zt_device *dev, struct zt_stream *s, const struct call *k,
                       int fuse, struct zt_fault *fault)
{
    bool whole = fuse & FUSE_GELU;
    const struct zt_mat *to = k->pre.data && !whole ? &k->pre : &k->c;
    struct zt_gemm_product x = product_of(k, to, fuse);
    struct zt_gemm_epilogue_args pass;
    bool bias_left = k->bias.data && !(fuse & FUSE_BIAS);
    zt_err rc;

    if (fuse & FUSE_SUM)
        x.bias = zt_cuda_scratch(dev, s);
    rc = zt_gemm_multiply(dev, s, &x, fault);
    if (!rc)
        rc = run_rest(dev, s, k, fuse, fault);
    if (rc || whole || (!bias_left && k->epilogue == ZT_EPI_NONE))
        return rc;
    memset(&pass, 0, sizeof(pass));
    pass.from = *to;
    if (bias_left) {
        pass.bias = k->bias;
        pass.pre = k->pre;
    }
    pass.c = k->c;
    pass.epilogue = k->epilogue;
    return zt_gemm_run_epilogue(dev, s, &pass, fault);
}

/* With as much of the epilogue fused as cuBLASLt takes. A refusal is a fault of the call
 * only when nothing is left to leave out. */
static zt_err run_fused(struct zt_device *dev, struct zt_stream *s, const struct call *k,
                        struct zt_fault *fault)
{
    int fuse = what_fuses(k);
    struct zt_fault tried = {};
    zt_err rc;

    while (fuse) {
        rc = run_call(dev, s, k, fuse, &tried);
        if (!rc)
            return rc;
        if (rc != ZT_E_UNSUPPORTED)
            return zt_fault_set(fault, rc, "%s", tried.text);
        fuse = fuse & FUSE_GELU ? fuse & ~FUSE_GELU : 0;
    }
    return run_call(dev, s, k, 0, fault);
}

/* An empty sum. */
static zt_err run_empty(struct zt_device *dev, struct zt_stream *s, const struct call *k,
                        struct zt_fault *fault)
{
    struct zt_gemm_epilogue_args pass;

    if (k->accumulate)
        return ZT_OK;
    memset(&pass, 0, sizeof(pass));
    pass.bias = k->bias;
    pass.pre = k->pre;
    pass.c = k->c;
    pass.epilogue = k->epilogue;
    return zt_gemm_run_epilogue(dev, s, &pass, fault);
}

/* g has been checked. */
static zt_err run_checked(struct zt_device *dev, struct zt_stream *s,
                          const struct zt_gemm_args *g, struct zt_fault *fault)
{
    struct call k;
    zt_err rc;

    read_args(&k, g);
    if (k.c.batch * k.c.rows * k.c.cols == 0)
        return run_rest(dev, s, &k, 0, fault);
    if (k.a.cols == 0) {
        rc = run_empty(dev, s, &k, fault);
        return rc ? rc : run_rest(dev, s, &k, 0, fault);
    }
    return run_fused(dev, s, &k, fault);
}

#define FP8_CAPABILITY 89

zt_err zt_cuda_gemm(struct zt_device *dev, struct zt_stream *s,
                    const struct zt_gemm_args *g, struct zt_fault *fault)
{
    zt_err rc = zt_check_gemm(g, fault);
    bool done = false;

    if (rc)
        return rc;
    if (g->a_scale && dev->capability < FP8_CAPABILITY)
        return zt_fault_set(fault, ZT_E_UNSUPPORTED,
                            "cuda device %d has compute capability %d.%d; fp8 products "
                            "need 8.9 (Ada, Hopper) or newer: leave out --fp8",
                            dev->ordinal, dev->capability / 10, dev->capability % 10);
    if (g->epilogue == ZT_EPI_SWIGLU_BWD) {
        if (zt_gemm_is_tuning(dev))
            rc = zt_cuda_gated_tune(dev, g, run_checked, fault);
        if (!rc)
            rc = zt_cuda_gated(dev, s, g, run_checked, &done, fault);
    }
    return rc || done ? rc : run_checked(dev, s, g, fault);
}
