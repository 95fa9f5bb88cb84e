/*
 * A plan is what cuBLASLt needs for one combination of shapes, strides, types, epilogue
 * and alignment (16 bytes at most, so that results do not depend on addresses).
 * Plans are found once and kept in a table of the device; a full table is emptied.
 * The algorithm is the one that tuning has chosen, else the first that cuBLASLt proposes.
 */
#include "kernels/cuda/gemm/gemm.h"

#include <stdlib.h>
#include <string.h>

#define SLOTS     1024 /* a power of two */
#define MOST_USED (SLOTS / 4 * 3)
#define PROPOSALS 16 /* that tuning times */

struct plan {
    struct zt_gemm_key key;
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

void zt_gemm_forget_plans(struct zt_device *dev)
{
    if (dev->gemms)
        forget_all(dev->gemms);
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
    const struct zt_gemm_key *k = &p->key;
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

/* What differs from call to call. */
static cublasStatus_t set_pointers(struct plan *p, const struct zt_gemm_product *x)
{
    cublasStatus_t e = CUBLAS_STATUS_SUCCESS;

    if (x->a_scale)
        e = describe(p, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &x->a_scale,
                     sizeof(x->a_scale));
    if (!e && x->b_scale)
        e = describe(p, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &x->b_scale,
                     sizeof(x->b_scale));
    if (!e && zt_gemm_has_bias(&p->key))
        e = describe(p, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &x->bias, sizeof(x->bias));
    if (!e && zt_gemm_has_aux(&p->key))
        e = describe(p, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &x->aux,
                     sizeof(x->aux));
    return e;
}

static cublasStatus_t set_operation(struct plan *p)
{
    const struct zt_gemm_key *k = &p->key;
    const uint32_t epilogue = (uint32_t)k->epilogue;
    cublasStatus_t e =
        cublasLtMatmulDescCreate(&p->op, (cublasComputeType_t)k->compute, CUDA_R_32F);

    if (!e)
        e = describe(p, CUBLASLT_MATMUL_DESC_TRANSA, &k->trans_a, sizeof(k->trans_a));
    if (!e)
        e = describe(p, CUBLASLT_MATMUL_DESC_TRANSB, &k->trans_b, sizeof(k->trans_b));
    if (!e)
        e = describe(p, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof(epilogue));
    if (!e && zt_gemm_has_aux(k))
        e = describe(p, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &k->ld_aux,
                     sizeof(k->ld_aux));
    return e;
}

static cublasStatus_t set_alignment(struct zt_cuda_gemms *g, const struct zt_gemm_key *k)
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

static cublasStatus_t call(struct zt_device *dev, const struct plan *p,
                           const struct zt_gemm_product *x, struct zt_stream *on,
                           const cublasLtMatmulAlgo_t *algo)
{
    return cublasLtMatmul(dev->blas, p->op, &x->alpha, x->a, p->a, x->b, p->b, &x->beta,
                          x->d, p->d, x->d, p->d, algo, on->workspace, ZT_CUDA_WORKSPACE,
                          on->cuda);
}

/* ---- which algorithm ---- */

/* *works: it is not refused after all, and takes *ms */
static zt_err time_algorithm(struct zt_device *dev, const struct plan *p,
                             const struct zt_gemm_product *x,
                             const cublasLtMatmulAlgo_t *algo, float *ms, bool *works,
                             struct zt_fault *fault)
{
    zt_err rc = zt_gemm_time(
        dev,
        [&] {
            cublasStatus_t e = call(dev, p, x, &dev->main, algo);

            return e == CUBLAS_STATUS_NOT_SUPPORTED ? ZT_E_UNSUPPORTED
                   : e                              ? lt_failed(e, fault)
                                                    : ZT_OK;
        },
        ms, fault);

    *works = rc == ZT_OK;
    return rc == ZT_E_UNSUPPORTED ? ZT_OK : rc;
}

/* The fastest of several proposals becomes the plan's, and a choice of the device. */
static zt_err choose_fastest(struct zt_device *dev, struct plan *p,
                             const struct zt_gemm_product *x,
                             const cublasLtMatmulHeuristicResult_t *proposed, int num,
                             struct zt_fault *fault)
{
    struct zt_gemm_choice choice = {};
    float best = 0, ms = 0;
    bool works = false;

    p->works = false;
    for (int i = 0; i < num; i++) {
        zt_err rc;

        if (proposed[i].state != CUBLAS_STATUS_SUCCESS)
            continue;
        rc = time_algorithm(dev, p, x, &proposed[i].algo, &ms, &works, fault);
        if (rc)
            return rc;
        if (!works || (p->works && ms > ZT_FASTER * best))
            continue;
        best = ms;
        p->works = true;
        p->algo = proposed[i].algo;
    }
    if (!p->works)
        return ZT_OK;
    choice.key = x->key;
    memcpy(choice.algo, &p->algo, sizeof(choice.algo));
    return zt_gemm_choice_add(dev, &choice, fault);
}

/* What tuning has chosen; cuBLASLt says whether it can still do so. */
static zt_err take_choice(struct zt_device *dev, struct plan *p,
                          const struct zt_gemm_choice *choice, struct zt_fault *fault)
{
    cublasLtMatmulHeuristicResult_t result = {};
    cublasStatus_t e;

    static_assert(sizeof(p->algo) == sizeof(choice->algo), "of eight words");
    memcpy(&p->algo, choice->algo, sizeof(p->algo));
    e = cublasLtMatmulAlgoCheck(dev->blas, p->op, p->a, p->b, p->d, p->d, &p->algo,
                                &result);
    p->works = !e && result.workspaceSize <= ZT_CUDA_WORKSPACE;
    return p->works ? ZT_OK
                    : zt_fault_set(fault, ZT_E_PLAN,
                                   "cuda: gemm: the algorithm that tuning has chosen for "
                                   "a product of %lld x %lld x %lld is refused (cuBLASLt "
                                   "status %d): tune anew, with another --product_tuning",
                                   (long long)p->key.n, (long long)p->key.m,
                                   (long long)p->key.k, (int)e);
}

static zt_err choose(struct zt_device *dev, struct plan *p,
                     const struct zt_gemm_product *x, struct zt_fault *fault)
{
    const struct zt_gemm_choice *known = zt_gemm_choice_of(dev, &x->key);
    cublasLtMatmulHeuristicResult_t proposed[PROPOSALS] = {};
    bool tuning = zt_gemm_is_tuning(dev);
    int found = 0;
    cublasStatus_t e;

    if (known)
        return take_choice(dev, p, known, fault);
    e = cublasLtMatmulAlgoGetHeuristic(dev->blas, p->op, p->a, p->b, p->d, p->d,
                                       dev->gemms->preference, tuning ? PROPOSALS : 1,
                                       proposed, &found);
    if (e && e != CUBLAS_STATUS_NOT_SUPPORTED && e != CUBLAS_STATUS_INVALID_VALUE)
        return lt_failed(e, fault);
    if (!e && tuning)
        return choose_fastest(dev, p, x, proposed, found, fault);
    p->works = !e && found && proposed[0].state == CUBLAS_STATUS_SUCCESS;
    p->algo = proposed[0].algo;
    return ZT_OK;
}

/* Fills an empty slot. A combination that cuBLASLt does not support gets a plan, too. */
static zt_err make_plan(struct zt_device *dev, struct plan *p,
                        const struct zt_gemm_product *x, struct zt_fault *fault)
{
    cublasStatus_t e;
    zt_err rc;

    p->key = x->key;
    e = set_operation(p);
    if (!e)
        e = set_layouts(p);
    if (!e)
        e = set_pointers(p, x);
    if (!e)
        e = set_alignment(dev->gemms, &x->key);
    rc = e ? lt_failed(e, fault) : choose(dev, p, x, fault);
    if (rc) {
        forget(p);
        return rc;
    }
    p->used = true;
    dev->gemms->num_used++;
    return ZT_OK;
}

static uint64_t hash(const struct zt_gemm_key *k)
{
    const unsigned char *byte = reinterpret_cast<const unsigned char *>(k);
    uint64_t h = 0xCBF29CE484222325u;

    for (size_t i = 0; i < sizeof(*k); i++)
        h = (h ^ byte[i]) * 0x100000001B3u;
    return h ^ h >> 32;
}

static zt_err find_plan(struct zt_device *dev, const struct zt_gemm_product *x,
                        struct plan **out, struct zt_fault *fault)
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

static zt_err refused(const struct zt_gemm_key *k, struct zt_fault *fault)
{
    return zt_fault_set(fault, ZT_E_UNSUPPORTED,
                        "cuda: gemm: cuBLASLt has no product of %lld x %lld x %lld with "
                        "these types and strides",
                        (long long)k->n, (long long)k->m, (long long)k->k);
}

zt_err zt_gemm_multiply(struct zt_device *dev, struct zt_stream *s,
                        const struct zt_gemm_product *x, struct zt_fault *fault)
{
    struct zt_stream *on = zt_cuda_stream(dev, s);
    const struct zt_gemm_key *k = &x->key;
    struct plan *p;
    cublasStatus_t e;
    zt_err rc = find_plan(dev, x, &p, fault);

    if (rc)
        return rc;
    if (!p->works)
        return refused(k, fault);
    e = set_pointers(p, x);
    if (!e)
        e = call(dev, p, x, on, &p->algo);
    if (e != CUBLAS_STATUS_NOT_SUPPORTED)
        return e ? lt_failed(e, fault) : ZT_OK;
    p->works = false; /* it was proposed, and is refused all the same */
    return refused(k, fault);
}
