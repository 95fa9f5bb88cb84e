/*
 * Products on cuBLASLt, which is column-major: a row-major c is c^T in column-major order,
 * so its first operand is our b and its second our a. A column-major c is computed as the
 * transposed product.
 *
 * Sums are fp32, and so are products of fp32 unless TF32 is allowed. Split-K sums are
 * added in fp32 in the workspace, in order; else K is not split. Bias and tanh GELU are
 * fused where cuBLASLt has an epilogue for them; the rest is zt_gemm_run_epilogue. The GELU of cuBLASLt sees sums
 * before they are rounded to what `pre` keeps of them.
 */
#include "kernels/cuda/gemm/gemm.h"

#include <string.h>

/* ---- arguments ---- */

/* A call after its arguments have been checked. */
struct call {
    struct zt_mat a, b, c, pre, bias; /* bias: as c, its row stride 0 */
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
    k->epilogue = g->epilogue;
    if (g->epilogue != ZT_EPI_NONE && g->pre.data)
        k->pre = mat_of(&g->pre);
    if (g->bias.data) {
        k->bias = k->c;
        k->bias.data = g->bias.data;
        k->bias.dtype = g->bias.dtype;
        k->bias.stride[0] = k->bias.stride[1] = 0;
        k->bias.stride[2] = k->c.cols == 1 ? 1 : g->bias.stride[0];
    }
}

/* ---- what rides along ---- */

enum { FUSE_BIAS = 1, FUSE_GELU = 2 };

/* The condition of cuBLASLt for what its GELU keeps. */
static bool fits_aux(const struct zt_mat *pre)
{
    return pre->stride[2] == 1 && pre->stride[1] % 8 == 0 &&
           (uintptr_t)pre->data % ZT_GEMM_ALIGNED == 0;
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

    return (bias ? FUSE_BIAS : 0) | (gelu ? FUSE_GELU : 0);
}

static cublasLtEpilogue_t epilogue_of(const struct call *k, int fuse)
{
    bool bias = fuse & FUSE_BIAS;

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
    x.key.epilogue = (int32_t)epilogue_of(k, fuse);
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
        x.bias = k->bias.data;
        x.key.align_bias = alignment(x.bias);
    }
    if (zt_gemm_has_aux(&x.key)) {
        x.aux = k->pre.data;
        x.key.align_aux = alignment(x.aux);
        x.key.ld_aux = k->pre.stride[1];
    }
    return x;
}

/* The product with the epilogue that cuBLASLt fuses, then the rest of the epilogue. */
static zt_err run_call(struct zt_device *dev, struct zt_stream *s, const struct call *k,
                       int fuse, struct zt_fault *fault)
{
    bool whole = fuse & FUSE_GELU;
    const struct zt_mat *to = k->pre.data && !whole ? &k->pre : &k->c;
    struct zt_gemm_product x = product_of(k, to, fuse);
    struct zt_gemm_epilogue_args pass;
    zt_err rc = zt_gemm_multiply(dev, s, &x, fault);
    bool bias_left = k->bias.data && !(fuse & FUSE_BIAS);

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

#define FP8_CAPABILITY 89

zt_err zt_cuda_gemm(struct zt_device *dev, struct zt_stream *s,
                    const struct zt_gemm_args *g, struct zt_fault *fault)
{
    struct call k;
    zt_err rc = zt_check_gemm(g, fault);
    int fuse;

    if (rc)
        return rc;
    if (g->a_scale && dev->capability < FP8_CAPABILITY)
        return zt_fault_set(fault, ZT_E_UNSUPPORTED,
                            "cuda device %d has compute capability %d.%d; fp8 products "
                            "need 8.9 (Ada, Hopper) or newer: leave out --fp8",
                            dev->ordinal, dev->capability / 10, dev->capability % 10);
    read_args(&k, g);
    if (k.c.batch * k.c.rows * k.c.cols == 0)
        return ZT_OK;
    if (k.a.cols == 0)
        return run_empty(dev, s, &k, fault);
    fuse = what_fuses(&k);
    rc = run_call(dev, s, &k, fuse, fault);
    if (rc == ZT_E_UNSUPPORTED && (fuse & FUSE_GELU))
        rc = run_call(dev, s, &k, fuse &= ~FUSE_GELU, fault);
    if (rc == ZT_E_UNSUPPORTED && fuse)
        rc = run_call(dev, s, &k, 0, fault);
    return rc;
}
