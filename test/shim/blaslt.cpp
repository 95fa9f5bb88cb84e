/*
 * blaslt.cpp -- products by three loops, sums in double in the order of k. With TF32
 * operands are rounded to its 10 bits of fraction first.
 *
 * Refused as by the real library: pairs of types that it does not take, leading dimensions too short,
 * epilogues with a row-major D, an AUX_LD that 8 does not divide, fp8 other than
 * Hopper's (A transposed, B not, all in steps of 16 bytes). Refused by the shim
 * alone: whatever its header does not declare; and, to see what is done then, epilogues
 * with a bit of SHIM_REFUSE_EPILOGUES, when an algorithm is looked for, or with
 * SHIM_REFUSE_LATE=1 not before it is used. SHIM_LIBRARY_MB: see has_loaded(); SHIM_REFUSE_ALIKE:
 * expect_different().
 *
 * There are ALGORITHMS of them, which add in other orders: the n-th, from 0, adds n + 1 parts
 * of k, each rounded to fp32. Which is the fastest depends on SHIM_TIMES and the shape, and
 * with SHIM_TIMES_RANKS=1 on the rank.
 */
#include <math.h>
#include <string.h>

#include <vector>

#include "cublasLt.h"
#include "cuda_bf16.h"
#include "cuda_fp16.h"
#include "cuda_fp8.h"
#include "shim.h"

#define ALGORITHMS 4

struct cublasLtContext {
    int unused;
};

struct shim_blas_desc {
    int32_t compute, scale, pointer_mode, transa, transb, transc;
    uint32_t epilogue;
    const void *bias;
    void *aux;
    const float *scale_a, *scale_b; /* NULL: 1 */
    int64_t bias_stride, aux_ld, aux_stride;
    int32_t bias_type, aux_type; /* -1: as D */
};

struct shim_blas_layout {
    uint32_t type;
    int32_t order, batch_count;
    uint64_t rows, cols;
    int64_t ld, stride;
};

struct shim_blas_pref {
    uint64_t workspace;
    uint32_t align[4] = {256, 256, 256, 256}; /* of A, B, C, D */
};

/* ---------------------------------------------------------------- names */

const char *cublasLtGetStatusName(cublasStatus_t status)
{
    switch (status) {
    case CUBLAS_STATUS_SUCCESS:
        return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED:
        return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_ALLOC_FAILED:
        return "CUBLAS_STATUS_ALLOC_FAILED";
    case CUBLAS_STATUS_INVALID_VALUE:
        return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_EXECUTION_FAILED:
        return "CUBLAS_STATUS_EXECUTION_FAILED";
    case CUBLAS_STATUS_NOT_SUPPORTED:
        return "CUBLAS_STATUS_NOT_SUPPORTED";
    default:
        return "CUBLAS_STATUS_INTERNAL_ERROR";
    }
}

const char *cublasLtGetStatusString(cublasStatus_t status)
{
    return cublasLtGetStatusName(status);
}

size_t cublasLtGetVersion(void)
{
    return 130000;
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *out)
{
    *out = new cublasLtContext();
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    delete handle;
    return CUBLAS_STATUS_SUCCESS;
}

/* ---------------------------------------------------------------- attributes */

template <typename T> static cublasStatus_t store(T *to, const void *value, size_t bytes)
{
    if (!value || bytes != sizeof(*to))
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(to, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *out,
                                        cublasComputeType_t compute, cudaDataType_t scale)
{
    if (compute < CUBLAS_COMPUTE_32F || scale != CUDA_R_32F)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    *out = new shim_blas_desc();
    (*out)->compute = compute;
    (*out)->scale = scale;
    (*out)->epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    (*out)->bias_type = (*out)->aux_type = -1;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc)
{
    delete desc;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t d,
                                              cublasLtMatmulDescAttributes_t attr,
                                              const void *value, size_t bytes)
{
    switch (attr) {
    case CUBLASLT_MATMUL_DESC_COMPUTE_TYPE:
        return store(&d->compute, value, bytes);
    case CUBLASLT_MATMUL_DESC_SCALE_TYPE:
        return store(&d->scale, value, bytes);
    case CUBLASLT_MATMUL_DESC_POINTER_MODE:
        return store(&d->pointer_mode, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSA:
        return store(&d->transa, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
        return store(&d->transb, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSC:
        return store(&d->transc, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
        return store(&d->epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
        return store(&d->bias, value, bytes);
    case CUBLASLT_MATMUL_DESC_A_SCALE_POINTER:
        return store(&d->scale_a, value, bytes);
    case CUBLASLT_MATMUL_DESC_B_SCALE_POINTER:
        return store(&d->scale_b, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE:
        return store(&d->bias_stride, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
        return store(&d->aux, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
        return store(&d->aux_ld, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE:
        return store(&d->aux_stride, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE:
        return store(&d->aux_type, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
        return store(&d->bias_type, value, bytes);
    }
    return CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *out, cudaDataType type,
                                          uint64_t rows, uint64_t cols, int64_t ld)
{
    *out = new shim_blas_layout{(uint32_t)type, CUBLASLT_ORDER_COL, 1, rows, cols, ld, 0};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout)
{
    delete layout;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t l,
                                                cublasLtMatrixLayoutAttribute_t attr,
                                                const void *value, size_t bytes)
{
    switch (attr) {
    case CUBLASLT_MATRIX_LAYOUT_TYPE:
        return store(&l->type, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_ORDER:
        return store(&l->order, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_ROWS:
        return store(&l->rows, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_COLS:
        return store(&l->cols, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_LD:
        return store(&l->ld, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
        return store(&l->batch_count, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
        return store(&l->stride, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_PLANE_OFFSET:
        break;
    }
    return CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *out)
{
    *out = new shim_blas_pref();
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t pref)
{
    delete pref;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(
    cublasLtMatmulPreference_t pref, cublasLtMatmulPreferenceAttributes_t attr,
    const void *value, size_t bytes)
{
    uint32_t word;
    uint64_t wide;

    switch (attr) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
        return store(&pref->workspace, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
        return store(&pref->align[attr - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES],
                     value, bytes);
    case CUBLASLT_MATMUL_PREF_IMPL_MASK:
        return store(&wide, value, bytes);
    default:
        return store(&word, value, bytes);
    }
}

/* ---------------------------------------------------------------- what is refused */

static bool is_fp8(uint32_t t)
{
    return t == CUDA_R_8F_E4M3 || t == CUDA_R_8F_E5M2;
}

static bool known_type(uint32_t t)
{
    return t == CUDA_R_32F || t == CUDA_R_16F || t == CUDA_R_16BF || is_fp8(t);
}

static bool good_layout(const shim_blas_layout *l)
{
    uint64_t shortest = l->order == CUBLASLT_ORDER_COL ? l->rows : l->cols;

    return known_type(l->type) &&
           (l->order == CUBLASLT_ORDER_COL || l->order == CUBLASLT_ORDER_ROW) &&
           l->rows > 0 && l->cols > 0 && l->batch_count > 0 && l->ld >= (int64_t)shortest;
}

static uint64_t rows_of(const shim_blas_layout *l, int32_t trans)
{
    return trans == CUBLAS_OP_N ? l->rows : l->cols;
}

static uint64_t cols_of(const shim_blas_layout *l, int32_t trans)
{
    return trans == CUBLAS_OP_N ? l->cols : l->rows;
}

static bool has_aux(const shim_blas_desc *s)
{
    return s->epilogue & 128;
}

/* One that is written: the sum of an operand over k. */
static bool has_bgrad(const shim_blas_desc *s)
{
    return s->epilogue == CUBLASLT_EPILOGUE_BGRADA ||
           s->epilogue == CUBLASLT_EPILOGUE_BGRADB;
}

static bool has_bias(const shim_blas_desc *s)
{
    return s->epilogue & CUBLASLT_EPILOGUE_BIAS;
}

static bool is_refused(const shim_blas_desc *s, bool late)
{
    return s->epilogue != CUBLASLT_EPILOGUE_DEFAULT &&
           (s->epilogue & (uint32_t)shim_option("SHIM_REFUSE_EPILOGUES", 0)) &&
           shim_option("SHIM_REFUSE_LATE", 0) == late;
}

static bool good_epilogue(const shim_blas_desc *s, const shim_blas_layout *d, bool fp8)
{
    switch (s->epilogue) {
    case CUBLASLT_EPILOGUE_DEFAULT:
        return true;
    case CUBLASLT_EPILOGUE_BIAS:
    case CUBLASLT_EPILOGUE_GELU:
    case CUBLASLT_EPILOGUE_GELU_BIAS:
    case CUBLASLT_EPILOGUE_GELU_AUX:
    case CUBLASLT_EPILOGUE_GELU_AUX_BIAS:
        break;
    case CUBLASLT_EPILOGUE_DGELU:
    case CUBLASLT_EPILOGUE_BGRADA:
    case CUBLASLT_EPILOGUE_BGRADB:
        if (fp8 || d->batch_count != 1)
            return false;
        break;
    default:
        return false;
    }
    if (d->order != CUBLASLT_ORDER_COL)
        return false;
    if (has_bias(s) && s->bias_type >= 0 && s->bias_type != (int32_t)d->type)
        return false;
    if (fp8 && (has_bias(s) || has_aux(s)) && d->type == CUDA_R_32F)
        return false;
    return !has_aux(s) || (s->aux_ld % 8 == 0 && s->aux_ld >= (int64_t)d->rows &&
                           s->aux_stride % 8 == 0 &&
                           (s->aux_type < 0 || s->aux_type == (int32_t)d->type));
}

/* Operands of one type into that or fp32; fp8 of one or both types, into any float. */
static bool good_types(const shim_blas_desc *s, const shim_blas_layout *a,
                       const shim_blas_layout *b, const shim_blas_layout *d)
{
    if (!is_fp8(a->type) && !is_fp8(b->type))
        return a->type == b->type && (d->type == a->type || d->type == CUDA_R_32F) &&
               !is_fp8(d->type) && !s->scale_a && !s->scale_b;
    return is_fp8(a->type) && is_fp8(b->type) && !is_fp8(d->type) &&
           (a->type == CUDA_R_8F_E4M3 || b->type == CUDA_R_8F_E4M3) &&
           s->transa == CUBLAS_OP_T && s->transb == CUBLAS_OP_N &&
           s->compute == CUBLAS_COMPUTE_32F && a->ld % 16 == 0 && b->ld % 16 == 0 &&
           a->rows % 16 == 0 && a->cols % 16 == 0 && a->batch_count == 1 &&
           d->ld * (d->type == CUDA_R_32F ? 4 : 2) % 16 == 0;
}

static bool good_problem(const shim_blas_desc *s, const shim_blas_layout *a,
                         const shim_blas_layout *b, const shim_blas_layout *c,
                         const shim_blas_layout *d)
{
    if (!good_layout(a) || !good_layout(b) || !good_layout(c) || !good_layout(d))
        return false;
    if (!good_types(s, a, b, d) || c->type != d->type)
        return false;
    if (s->transc != CUBLAS_OP_N || c->order != d->order || c->rows != d->rows ||
        c->cols != d->cols)
        return false;
    if (rows_of(a, s->transa) != d->rows || cols_of(b, s->transb) != d->cols ||
        cols_of(a, s->transa) != rows_of(b, s->transb))
        return false;
    if (a->batch_count != d->batch_count || b->batch_count != d->batch_count ||
        c->batch_count != d->batch_count)
        return false;
    return s->pointer_mode == CUBLASLT_POINTER_MODE_HOST &&
           good_epilogue(s, d, is_fp8(a->type));
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
    cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
    cublasLtMatmulPreference_t pref, int wanted, cublasLtMatmulHeuristicResult_t *results,
    int *num_results)
{
    if (!handle || !desc || !pref || wanted <= 0 || !results || !num_results)
        return CUBLAS_STATUS_INVALID_VALUE;
    *num_results = 0;
    if (!good_problem(desc, a, b, c, d) || is_refused(desc, false))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    for (int n = 0; n < wanted && n < ALGORITHMS; n++) {
        memset(&results[n], 0, sizeof(results[n]));
        results[n].state = CUBLAS_STATUS_SUCCESS;
        results[n].workspaceSize = (size_t)pref->workspace;
        results[n].wavesCount = 1;
        for (int i = 0; i < 4; i++)
            results[n].algo.data[i] = pref->align[i];
        results[n].algo.data[4] = pref->workspace;
        results[n].algo.data[5] = (uint64_t)n;
        *num_results = n + 1;
    }
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                       cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t *algo,
                                       cublasLtMatmulHeuristicResult_t *result)
{
    if (!handle || !desc || !algo || !result)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (!good_problem(desc, a, b, c, d) || is_refused(desc, false) ||
        algo->data[5] >= ALGORITHMS)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    memset(result, 0, sizeof(*result));
    result->algo = *algo;
    result->workspaceSize = (size_t)algo->data[4];
    return CUBLAS_STATUS_SUCCESS;
}

/* ---------------------------------------------------------------- the product */

static double get_fp8(int code, __nv_fp8_interpretation_t kind)
{
    int rest = code & 0x7f;
    double size = shim_fp8_value(rest, kind);

    if (kind == __NV_E4M3 ? rest == 0x7f : rest > 0x7c)
        return NAN;
    if (kind == __NV_E5M2 && rest == 0x7c)
        size = INFINITY;
    return code & 0x80 ? -size : size;
}

static double get(const void *p, uint32_t type, int64_t at)
{
    if (type == CUDA_R_16F)
        return (double)__half2float(((const __half *)p)[at]);
    if (type == CUDA_R_16BF)
        return (double)__bfloat162float(((const __nv_bfloat16 *)p)[at]);
    if (is_fp8(type))
        return get_fp8(((const unsigned char *)p)[at],
                       type == CUDA_R_8F_E4M3 ? __NV_E4M3 : __NV_E5M2);
    return (double)((const float *)p)[at];
}

static void put(void *p, uint32_t type, int64_t at, float value)
{
    if (type == CUDA_R_16F)
        ((__half *)p)[at] = __float2half_rn(value);
    else if (type == CUDA_R_16BF)
        ((__nv_bfloat16 *)p)[at] = __float2bfloat16_rn(value);
    else
        ((float *)p)[at] = value;
}

static int64_t place(const shim_blas_layout *l, int64_t batch, int64_t i, int64_t j)
{
    return batch * l->stride +
           (l->order == CUBLASLT_ORDER_COL ? j * l->ld + i : i * l->ld + j);
}

static double gelu(double x)
{
    return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

static double gelu_slope(double x)
{
    double c = sqrt(2 / M_PI), t = tanh(c * (x + 0.044715 * x * x * x));

    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * c * (1 + 3 * 0.044715 * x * x);
}

/* A call with all it needs copied: descriptors may be gone when it runs. */
struct product {
    shim_blas_desc desc;
    shim_blas_layout la, lb, lc, ld;
    float alpha, beta;
    const void *a, *b, *c;
    void *d, *workspace;
    size_t workspace_bytes;
    uint64_t algorithm;
};

static float finish(const product &p, int64_t batch, int64_t i, int64_t j, double sum)
{
    const shim_blas_desc &s = p.desc;
    double x = (double)p.alpha * sum;

    if (s.scale_a)
        x *= (double)*s.scale_a;
    if (s.scale_b)
        x *= (double)*s.scale_b;
    if (p.beta != 0)
        x += (double)p.beta * get(p.c, p.lc.type, place(&p.lc, batch, i, j));
    if (has_bias(&s))
        x += get(s.bias, s.bias_type < 0 ? p.ld.type : (uint32_t)s.bias_type,
                 batch * s.bias_stride + i);
    if (s.epilogue == CUBLASLT_EPILOGUE_DGELU)
        return (float)(x * gelu_slope(get(s.aux, p.ld.type, j * s.aux_ld + i)));
    if (has_aux(&s))
        put(s.aux, p.ld.type, batch * s.aux_stride + j * s.aux_ld + i, (float)x);
    return (float)(s.epilogue & CUBLASLT_EPILOGUE_GELU ? gelu(x) : x);
}

/* To nearest. */
static float as_multiplied(float x, int32_t compute)
{
    int exponent;

    if (compute != CUBLAS_COMPUTE_32F_FAST_TF32 || !isfinite(x) || x == 0)
        return x;
    frexpf(x, &exponent); /* |x| in [1/2, 1) x 2^exponent: 11 bits with the leading one */
    return ldexpf(nearbyintf(ldexpf(x, 11 - exponent)), exponent - 11);
}

/* Matrix `batch` of l as fp32 rows: of the matrix, or of its transpose. */
static std::vector<float> rows_in_fp32(const void *p, const shim_blas_layout &l,
                                       int64_t batch, bool transposed, int32_t compute)
{
    int64_t rows = (int64_t)(transposed ? l.cols : l.rows);
    int64_t cols = (int64_t)(transposed ? l.rows : l.cols);
    std::vector<float> out((size_t)(rows * cols));

    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++)
            out[(size_t)(i * cols + j)] = as_multiplied(
                (float)get(p, l.type,
                           place(&l, batch, transposed ? j : i, transposed ? i : j)),
                compute);
    return out;
}

/* Sums of `lines` lines of an operand, of `depth` each. */
static void sum_lines(const product &p, const std::vector<float> &x, uint64_t lines,
                      size_t depth)
{
    uint32_t type = p.desc.bias_type < 0 ? p.ld.type : (uint32_t)p.desc.bias_type;

    for (uint64_t i = 0; i < lines; i++) {
        double sum = 0;

        for (size_t k = 0; k < depth; k++)
            sum += (double)x[i * depth + k];
        put((void *)(uintptr_t)p.desc.bias, type, (int64_t)i, (float)sum);
    }
}

static double sum_part(const float *x, const float *y, size_t begin, size_t end,
                       bool exact)
{
    double sum = 0;

    for (size_t k = begin; k < end; k++)
        sum += (double)x[k] * (double)y[k];
    return exact ? sum : (double)(float)sum;
}

/* Of an algorithm, in launches of other kernels; from 0 to 1. */
static double planted_time(const product &p)
{
    bool each = shim_option("SHIM_TIMES_RANKS", 0); /* rank has a clock of its own */
    uint64_t h =
        (uint64_t)(shim_option("SHIM_TIMES", 0) + (each ? shim_option("RANK", 0) : 0));

    for (uint64_t x : {p.algorithm, (uint64_t)p.ld.rows, (uint64_t)p.ld.cols,
                       (uint64_t)p.la.rows, (uint64_t)p.lb.rows}) {
        h = (h ^ x) * 0x9E3779B97F4A7C15u;
        h ^= h >> 29;
    }
    return (double)(h % 1000) / 1000;
}

/* SHIM_REFUSE_ALIKE=1: a product of one number is no measure of a device, so it ends the process. */
static void expect_different(const std::vector<float> &x, const char *name)
{
    static const bool wanted = shim_option("SHIM_REFUSE_ALIKE", 0);

    if (!wanted || x.size() < 2)
        return;
    for (const float &each : x)
        if (memcmp(&each, &x[0], sizeof(each)) != 0)
            return;
    shim_die("all %zu values of %s are %g", x.size(), name, (double)x[0]);
}

static void multiply_one(const product &p, int64_t batch)
{
    std::vector<float> a =
        rows_in_fp32(p.a, p.la, batch, p.desc.transa != CUBLAS_OP_N, p.desc.compute);
    std::vector<float> b =
        rows_in_fp32(p.b, p.lb, batch, p.desc.transb == CUBLAS_OP_N, p.desc.compute);
    size_t depth = (size_t)cols_of(&p.la, p.desc.transa);

    expect_different(a, "A");
    expect_different(b, "B");
    if (has_bgrad(&p.desc))
        sum_lines(p, p.desc.epilogue == CUBLASLT_EPILOGUE_BGRADA ? a : b,
                  p.desc.epilogue == CUBLASLT_EPILOGUE_BGRADA ? p.ld.rows : p.ld.cols,
                  depth);
    for (int64_t j = 0; j < (int64_t)p.ld.cols; j++)
        for (int64_t i = 0; i < (int64_t)p.ld.rows; i++) {
            const float *x = &a[(size_t)i * depth], *y = &b[(size_t)j * depth];
            size_t parts = (size_t)p.algorithm + 1;
            double sum = 0;

            for (size_t part = 0; part < parts; part++)
                sum += sum_part(x, y, depth * part / parts, depth * (part + 1) / parts,
                                parts == 1);
            put(p.d, p.ld.type, place(&p.ld, batch, i, j), finish(p, batch, i, j, sum));
        }
}

static void multiply(const product &p)
{
    if (p.workspace_bytes > 0) /* the real one writes there */
        memset(p.workspace, 0xFF, p.workspace_bytes < 4096 ? p.workspace_bytes : 4096);
    for (int64_t batch = 0; batch < p.ld.batch_count; batch++)
        multiply_one(p, batch);
    shim_take_time(planted_time(p));
}

/* What the algorithm was asked for is what it may count on. */
static bool keeps_promise(const cublasLtMatmulAlgo_t *algo, const void *const at[4],
                          size_t workspace_bytes)
{
    for (int i = 0; i < 4; i++)
        if (algo->data[i] && (uintptr_t)at[i] % algo->data[i] != 0)
            return false;
    return workspace_bytes >= algo->data[4];
}

/* The first product takes SHIM_LIBRARY_MB of the device's memory for its code, for good. */
static bool has_loaded(void)
{
    static void *code;
    size_t bytes = (size_t)shim_option("SHIM_LIBRARY_MB", 0) << 20;

    return bytes == 0 || code || cudaMalloc(&code, bytes) == cudaSuccess;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                              const void *alpha, const void *A, cublasLtMatrixLayout_t a,
                              const void *B, cublasLtMatrixLayout_t b, const void *beta,
                              const void *C, cublasLtMatrixLayout_t c, void *D,
                              cublasLtMatrixLayout_t d, const cublasLtMatmulAlgo_t *algo,
                              void *workspace, size_t workspace_bytes,
                              cudaStream_t stream)
{
    const void *const at[4] = {A, B, C, D};

    if (!handle || !desc || !alpha || !beta || !A || !B || !D ||
        (workspace_bytes > 0 && !workspace) ||
        (algo && !keeps_promise(algo, at, workspace_bytes)))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (!good_problem(desc, a, b, c, d) || is_refused(desc, true))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (is_fp8(a->type) && ((uintptr_t)A % 16 || (uintptr_t)B % 16 || (uintptr_t)D % 16))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (!has_loaded())
        return CUBLAS_STATUS_ALLOC_FAILED;
    if (((has_bias(desc) || has_bgrad(desc)) && !desc->bias) ||
        (has_aux(desc) && !desc->aux))
        return CUBLAS_STATUS_INVALID_VALUE;
    product p = {
        *desc, *a, *b, *c, *d,        *(const float *)alpha, *(const float *)beta,
        A,     B,  C,  D,  workspace, workspace_bytes,       algo ? algo->data[5] : 0};
    if (p.beta != 0 && !C)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (shim_enqueue_launch(stream, {NULL, "cublasLtMatmul", [p] { multiply(p); }}) !=
        cudaSuccess)
        return CUBLAS_STATUS_EXECUTION_FAILED;
    return CUBLAS_STATUS_SUCCESS;
}
