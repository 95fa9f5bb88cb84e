/*
 * Products on cuBLASLt, which knows matrices by columns: c by rows is c^T by columns, so
 * its first operand is our b and its second our a; a c that is stored by columns is the
 * transposed product.
 *
 * A plan is what cuBLASLt needs for one combination of shapes, strides, types, epilogue
 * and alignment (16 bytes at most, so that results do not follow where memory begins).
 * Plans are found once and kept in a table of the device; a full table starts again.
 *
 * Sums are fp32, and so are products of fp32 unless TF32 is asked for. Split sums are
 * added in fp32 in the workspace, in order, or not split. Bias and tanh GELU ride along
 * where cuBLASLt has them; the rest is zt_gemm_finish. The GELU of cuBLASLt sees sums
 * before they are rounded to what `pre` keeps of them.
 */
#include "kernels/cuda/gemm.h"

#include <stdlib.h>
#include <string.h>

/* ---- plans ---- */

#define SLOTS     1024 /* a power of two */
#define MOST_USED (SLOTS / 4 * 3)
#define ALIGNED   16

/* As cuBLASLt sees it: d (m, n) = op(a) op(b), all by columns. No holes: hashed whole. */
struct key {
    int64_t m, n, k, batch;
    int64_t ld_a, ld_b, ld_d, ld_aux;
    int64_t step_a, step_b, step_d; /* from one of the batch to the next */
    int32_t type_a, type_b, type_d, trans_a, trans_b;
    int32_t epilogue, compute;
    int32_t align_a, align_b, align_d, align_bias, align_aux;
};

struct plan {
    struct key key;
    bool used, works;
    cublasLtMatmulDesc_t op;
    cublasLtMatrixLayout_t a, b, d;
    cublasLtMatmulAlgo_t algo;
};

struct zt_cuda_gemms {
    cublasLtMatmulPreference_t preference;
    int num_used;
    struct plan slot[SLOTS];
};

/* One product; the key says how these are read. */
struct product {
    struct key key;
    const void *a, *b, *bias;
    void *d, *aux;
    float alpha, beta;
};

static zt_err lt_failed(cublasStatus_t e, struct zt_fault *fault)
{
    return zt_fault_set(fault, e == CUBLAS_STATUS_ALLOC_FAILED ? ZT_E_NOMEM : ZT_E_SYSTEM,
                        "cuda: gemm: cuBLASLt status %d", (int)e);
}

static void forget(struct plan *p)
{
    if (p->op)
        cublasLtMatmulDescDestroy(p->op);
    if (p->a)
        cublasLtMatrixLayoutDestroy(p->a);
    if (p->b)
        cublasLtMatrixLayoutDestroy(p->b);
    if (p->d)
        cublasLtMatrixLayoutDestroy(p->d);
    memset(p, 0, sizeof(*p));
}

static void forget_all(struct zt_cuda_gemms *g)
{
    for (int i = 0; i < SLOTS; i++)
        forget(&g->slot[i]);
    g->num_used = 0;
}

void zt_cuda_gemms_close(struct zt_cuda_gemms *g)
{
    if (!g)
        return;
    forget_all(g);
    if (g->preference)
        cublasLtMatmulPreferenceDestroy(g->preference);
    free(g);
}

static cublasStatus_t prefer(struct zt_cuda_gemms *g,
                             cublasLtMatmulPreferenceAttributes_t a, const void *value,
                             size_t bytes)
{
    return cublasLtMatmulPreferenceSetAttribute(g->preference, a, value, bytes);
}

static zt_err open_gemms(struct zt_device *dev, struct zt_fault *fault)
{
    const uint64_t workspace = ZT_CUDA_WORKSPACE;
    const uint32_t scheme = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    struct zt_cuda_gemms *g;
    cublasStatus_t e;

    if (dev->gemms)
        return ZT_OK;
    g = static_cast<struct zt_cuda_gemms *>(calloc(1, sizeof(*g)));
    if (!g)
        return zt_fault_set(fault, ZT_E_NOMEM, "cuda: gemm: no host memory for plans");
    e = cublasLtMatmulPreferenceCreate(&g->preference);
    if (!e)
        e = prefer(g, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                   sizeof(workspace));
    if (!e)
        e = prefer(g, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &scheme,
                   sizeof(scheme));
    if (e) {
        zt_cuda_gemms_close(g);
        return lt_failed(e, fault);
    }
    dev->gemms = g;
    return ZT_OK;
}

static cublasStatus_t describe(struct plan *p, cublasLtMatmulDescAttributes_t a,
                               const void *value, size_t bytes)
{
    return cublasLtMatmulDescSetAttribute(p->op, a, value, bytes);
}

static cublasStatus_t set_layout(cublasLtMatrixLayout_t *out, int32_t type, int64_t rows,
                                 int64_t cols, int64_t ld, int64_t batch, int64_t step)
{
    const int32_t count = (int32_t)batch;
    cublasStatus_t e = cublasLtMatrixLayoutCreate(out, (cudaDataType)type, (uint64_t)rows,
                                                  (uint64_t)cols, ld);

    if (e || batch == 1)
        return e;
    e = cublasLtMatrixLayoutSetAttribute(*out, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count,
                                         sizeof(count));
    if (!e)
        e = cublasLtMatrixLayoutSetAttribute(
            *out, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &step, sizeof(step));
    return e;
}

static cublasStatus_t set_layouts(struct plan *p)
{
    const struct key *k = &p->key;
    bool ta = k->trans_a == CUBLAS_OP_T, tb = k->trans_b == CUBLAS_OP_T;
    cublasStatus_t e = set_layout(&p->a, k->type_a, ta ? k->k : k->m, ta ? k->m : k->k,
                                  k->ld_a, k->batch, k->step_a);

    if (!e)
        e = set_layout(&p->b, k->type_b, tb ? k->n : k->k, tb ? k->k : k->n, k->ld_b,
                       k->batch, k->step_b);
    if (!e)
        e = set_layout(&p->d, k->type_d, k->m, k->n, k->ld_d, k->batch, k->step_d);
    return e;
}

static bool has_bias(const struct key *k)
{
    return k->epilogue == CUBLASLT_EPILOGUE_BIAS ||
           k->epilogue == CUBLASLT_EPILOGUE_GELU_BIAS ||
           k->epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
}

static bool has_aux(const struct key *k)
{
    return k->epilogue == CUBLASLT_EPILOGUE_GELU_AUX ||
           k->epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
}

/* What differs from call to call. */
static cublasStatus_t set_pointers(struct plan *p, const struct product *x)
{
    cublasStatus_t e = CUBLAS_STATUS_SUCCESS;

    if (has_bias(&p->key))
        e = describe(p, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &x->bias, sizeof(x->bias));
    if (!e && has_aux(&p->key))
        e = describe(p, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &x->aux,
                     sizeof(x->aux));
    return e;
}

static cublasStatus_t set_operation(struct plan *p)
{
    const struct key *k = &p->key;
    const uint32_t epilogue = (uint32_t)k->epilogue;
    cublasStatus_t e =
        cublasLtMatmulDescCreate(&p->op, (cublasComputeType_t)k->compute, CUDA_R_32F);

    if (!e)
        e = describe(p, CUBLASLT_MATMUL_DESC_TRANSA, &k->trans_a, sizeof(k->trans_a));
    if (!e)
        e = describe(p, CUBLASLT_MATMUL_DESC_TRANSB, &k->trans_b, sizeof(k->trans_b));
    if (!e)
        e = describe(p, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof(epilogue));
    if (!e && has_aux(k))
        e = describe(p, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &k->ld_aux,
                     sizeof(k->ld_aux));
    return e;
}

static cublasStatus_t set_alignment(struct zt_cuda_gemms *g, const struct key *k)
{
    const uint32_t align[] = {(uint32_t)k->align_a, (uint32_t)k->align_b,
                              (uint32_t)k->align_d, (uint32_t)k->align_d};
    const cublasLtMatmulPreferenceAttributes_t of[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    cublasStatus_t e = CUBLAS_STATUS_SUCCESS;

    for (int i = 0; !e && i < 4; i++)
        e = prefer(g, of[i], &align[i], sizeof(align[i]));
    return e;
}

/* Fills an empty slot. A combination that cuBLASLt does not have is a plan, too. */
static zt_err make_plan(struct zt_device *dev, struct plan *p, const struct product *x,
                        struct zt_fault *fault)
{
    cublasLtMatmulHeuristicResult_t best;
    int found = 0;
    cublasStatus_t e;

    memset(&best, 0, sizeof(best));
    p->key = x->key;
    e = set_operation(p);
    if (!e)
        e = set_layouts(p);
    if (!e)
        e = set_pointers(p, x);
    if (!e)
        e = set_alignment(dev->gemms, &x->key);
    if (!e) {
        e = cublasLtMatmulAlgoGetHeuristic(dev->blas, p->op, p->a, p->b, p->d, p->d,
                                           dev->gemms->preference, 1, &best, &found);
        p->works = !e && found && best.state == CUBLAS_STATUS_SUCCESS;
        if (e == CUBLAS_STATUS_NOT_SUPPORTED || e == CUBLAS_STATUS_INVALID_VALUE)
            e = CUBLAS_STATUS_SUCCESS;
    }
    if (e) {
        forget(p);
        return lt_failed(e, fault);
    }
    p->algo = best.algo;
    p->used = true;
    dev->gemms->num_used++;
    return ZT_OK;
}

static uint64_t hash(const struct key *k)
{
    const unsigned char *byte = reinterpret_cast<const unsigned char *>(k);
    uint64_t h = 0xCBF29CE484222325u;

    for (size_t i = 0; i < sizeof(*k); i++)
        h = (h ^ byte[i]) * 0x100000001B3u;
    return h ^ h >> 32;
}

static zt_err find_plan(struct zt_device *dev, const struct product *x, struct plan **out,
                        struct zt_fault *fault)
{
    zt_err rc = open_gemms(dev, fault);
    uint64_t at = hash(&x->key) % SLOTS;
    struct zt_cuda_gemms *g = dev->gemms;

    if (rc)
        return rc;
    while (g->slot[at].used) {
        if (memcmp(&g->slot[at].key, &x->key, sizeof(x->key)) == 0) {
            *out = &g->slot[at];
            return ZT_OK;
        }
        at = (at + 1) % SLOTS;
    }
    if (g->num_used >= MOST_USED) {
        forget_all(g);
        at = hash(&x->key) % SLOTS;
    }
    *out = &g->slot[at];
    return make_plan(dev, *out, x, fault);
}

/* ZT_E_UNSUPPORTED: not with this epilogue, or not at all. */
static zt_err run_product(struct zt_device *dev, struct zt_stream *s,
                          const struct product *x, struct zt_fault *fault)
{
    struct zt_stream *on = zt_cuda_stream(dev, s);
    const struct key *k = &x->key;
    struct plan *p;
    cublasStatus_t e;
    zt_err rc = find_plan(dev, x, &p, fault);

    if (rc)
        return rc;
    if (!p->works)
        return zt_fault_set(fault, ZT_E_UNSUPPORTED,
                            "cuda: gemm: cuBLASLt has no product of %lld x %lld x %lld "
                            "with these types and strides",
                            (long long)k->n, (long long)k->m, (long long)k->k);
    e = set_pointers(p, x);
    if (!e)
        e = cublasLtMatmul(dev->blas, p->op, &x->alpha, x->a, p->a, x->b, p->b, &x->beta,
                           x->d, p->d, x->d, p->d, &p->algo, on->workspace,
                           ZT_CUDA_WORKSPACE, on->cuda);
    return e ? lt_failed(e, fault) : ZT_OK;
}

/* ---- arguments ---- */

/* What is left of a call once its arguments are checked. */
struct call {
    struct zt_mat a, b, c, pre, bias; /* bias: as c, its row stride 0 */
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

/* The view as zt_check_gemm lets it through. */
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
           (uintptr_t)pre->data % ALIGNED == 0;
}

static int what_fuses(const struct call *k)
{
    const struct zt_mat *first = k->pre.data ? &k->pre : &k->c;
    bool bias = k->bias.data && k->bias.dtype == k->c.dtype && k->bias.stride[2] == 1 &&
                first->stride[2] == 1 && k->c.batch == 1;
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
    return t == ZT_F32 ? CUDA_R_32F : t == ZT_BF16 ? CUDA_R_16BF : CUDA_R_16F;
}

static int32_t alignment(const void *p)
{
    int32_t n = ALIGNED;

    while ((uintptr_t)p % (unsigned)n)
        n /= 2;
    return n;
}

/* The product into `to`, which is c or pre. */
static struct product product_of(const struct call *k, const struct zt_mat *to, int fuse)
{
    bool flip = to->stride[2] != 1;
    struct zt_mat a = flip ? fitted(zt_mat_transposed(k->a)) : k->b;
    struct zt_mat b = flip ? fitted(zt_mat_transposed(k->b)) : k->a;
    struct zt_mat d = flip ? fitted(zt_mat_transposed(*to)) : *to;
    struct product x;

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
    x.d = d.data;
    x.alpha = k->alpha;
    x.beta = k->accumulate ? 1.0f : 0.0f;
    if (has_bias(&x.key)) {
        x.bias = k->bias.data;
        x.key.align_bias = alignment(x.bias);
    }
    if (has_aux(&x.key)) {
        x.aux = k->pre.data;
        x.key.align_aux = alignment(x.aux);
        x.key.ld_aux = k->pre.stride[1];
    }
    return x;
}

/* The product with what rides along, then what is left to do. */
static zt_err run_call(struct zt_device *dev, struct zt_stream *s, const struct call *k,
                       int fuse, struct zt_fault *fault)
{
    bool whole = fuse & FUSE_GELU;
    const struct zt_mat *to = k->pre.data && !whole ? &k->pre : &k->c;
    struct product x = product_of(k, to, fuse);
    struct zt_gemm_pass pass;
    zt_err rc = run_product(dev, s, &x, fault);
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
    return zt_gemm_finish(dev, s, &pass, fault);
}

/* An empty sum. */
static zt_err run_empty(struct zt_device *dev, struct zt_stream *s, const struct call *k,
                        struct zt_fault *fault)
{
    struct zt_gemm_pass pass;

    if (k->accumulate)
        return ZT_OK;
    memset(&pass, 0, sizeof(pass));
    pass.bias = k->bias;
    pass.pre = k->pre;
    pass.c = k->c;
    pass.epilogue = k->epilogue;
    return zt_gemm_finish(dev, s, &pass, fault);
}

zt_err zt_cuda_gemm(struct zt_device *dev, struct zt_stream *s,
                    const struct zt_gemm_args *g, struct zt_fault *fault)
{
    struct call k;
    zt_err rc = zt_check_gemm(g, fault);
    int fuse;

    if (rc)
        return rc;
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
