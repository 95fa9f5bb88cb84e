/* The products of the shim's cuBLASLt: layouts, epilogues, and what is refused. */
#include "test/unit/cuda/shim_test.h"

#define FINE(call) assert_int_equal(call, CUBLAS_STATUS_SUCCESS)

enum { M = 16, N = 3, K = 5 };

static float value(int64_t i)
{
    return (float)((i * 37 + 11) % 17) / 8 - 1;
}

struct problem {
    cublasLtHandle_t handle;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, d;
    float *A, *B, *D, *bias, *aux;
};

static void set(struct problem *p, cublasLtMatmulDescAttributes_t attr, int32_t v)
{
    FINE(cublasLtMatmulDescSetAttribute(p->desc, attr, &v, sizeof(v)));
}

/* D (M, N) = A (M, K) B (K, N), columns of D; A given as its transpose. */
static struct problem problem_new(void)
{
    struct problem p = {};
    int32_t row = CUBLASLT_ORDER_ROW;

    FINE(cublasLtCreate(&p.handle));
    FINE(cublasLtMatmulDescCreate(&p.desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    FINE(cublasLtMatrixLayoutCreate(&p.a, CUDA_R_32F, K, M, K));
    FINE(cublasLtMatrixLayoutCreate(&p.b, CUDA_R_32F, K, N, N));
    FINE(cublasLtMatrixLayoutCreate(&p.d, CUDA_R_32F, M, N, M));
    FINE(cublasLtMatrixLayoutSetAttribute(p.b, CUBLASLT_MATRIX_LAYOUT_ORDER, &row,
                                          sizeof(row)));
    set(&p, CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
    p.A = managed(M * K, 0.0f);
    p.B = managed(K * N, 0.0f);
    p.D = managed(M * N, 0.5f);
    p.bias = managed(M, 0.0f);
    p.aux = managed(M * N, 0.0f);
    for (int i = 0; i < M * K; i++)
        p.A[i] = value(i);
    for (int i = 0; i < K * N; i++)
        p.B[i] = value(1000 + i);
    for (int i = 0; i < M; i++)
        p.bias[i] = value(2000 + i);
    return p;
}

static void problem_free(struct problem *p)
{
    FINE(cublasLtMatmulDescDestroy(p->desc));
    FINE(cublasLtMatrixLayoutDestroy(p->a));
    FINE(cublasLtMatrixLayoutDestroy(p->b));
    FINE(cublasLtMatrixLayoutDestroy(p->d));
    FINE(cublasLtDestroy(p->handle));
    for (float *x : {p->A, p->B, p->D, p->bias, p->aux})
        cudaFree(x);
}

static double sum(const struct problem *p, int i, int j)
{
    double s = 0;

    for (int k = 0; k < K; k++)
        s += (double)p->A[i * K + k] * (double)p->B[k * N + j];
    return s;
}

static cublasStatus_t run(struct problem *p, float alpha, float beta)
{
    return cublasLtMatmul(p->handle, p->desc, &alpha, p->A, p->a, p->B, p->b, &beta, p->D,
                          p->d, p->D, p->d, NULL, NULL, 0, 0);
}

static void test_products_scale_and_add(void **)
{
    struct problem p = problem_new();

    FINE(run(&p, 2, 3));
    OK(cudaDeviceSynchronize());
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++)
            assert_true(fabs((double)p.D[j * M + i] - (2 * sum(&p, i, j) + 1.5)) < 1e-6);
    problem_free(&p);
}

static void test_epilogues_add_a_bias_per_row_and_keep_what_gelu_reads(void **)
{
    struct problem p = problem_new();
    int64_t ld = M;

    set(&p, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_GELU_AUX_BIAS);
    FINE(cublasLtMatmulDescSetAttribute(p.desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                                        &p.bias, sizeof(p.bias)));
    FINE(cublasLtMatmulDescSetAttribute(p.desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER,
                                        &p.aux, sizeof(p.aux)));
    FINE(cublasLtMatmulDescSetAttribute(p.desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &ld,
                                        sizeof(ld)));
    FINE(run(&p, 1, 0));
    OK(cudaDeviceSynchronize());
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++) {
            double x = sum(&p, i, j) + (double)p.bias[i];
            double y =
                x / 2 * (1 + tanh(sqrt(2 / acos(-1)) * (x + 0.044715 * x * x * x)));

            assert_true(fabs((double)p.aux[j * M + i] - x) < 1e-6);
            assert_true(fabs((double)p.D[j * M + i] - y) < 1e-6);
        }
    problem_free(&p);
}

static void test_what_the_library_refuses_is_refused(void **)
{
    struct problem p = problem_new();
    cublasLtMatmulPreference_t pref;
    cublasLtMatmulHeuristicResult_t best;
    uint32_t align = 16;
    int found = 0;
    float one = 1, zero = 0;

    FINE(cublasLtMatmulPreferenceCreate(&pref));
    FINE(cublasLtMatmulPreferenceSetAttribute(
        pref, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &align, sizeof(align)));
    FINE(cublasLtMatmulAlgoGetHeuristic(p.handle, p.desc, p.a, p.b, p.d, p.d, pref, 1,
                                        &best, &found));
    assert_int_equal(found, 1);
    /* A is promised to be aligned to 16 */
    assert_int_equal(cublasLtMatmul(p.handle, p.desc, &one, p.A + 1, p.a, p.B, p.b, &zero,
                                    p.D, p.d, p.D, p.d, &best.algo, NULL, 0, 0),
                     CUBLAS_STATUS_INVALID_VALUE);
    set(&p, CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_N); /* shapes do not fit now */
    assert_int_equal(run(&p, 1, 0), CUBLAS_STATUS_NOT_SUPPORTED);
    set(&p, CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
    set(&p, CUBLASLT_MATMUL_DESC_EPILOGUE,
        CUBLASLT_EPILOGUE_GELU_AUX); /* without its LD */
    assert_int_equal(run(&p, 1, 0), CUBLAS_STATUS_NOT_SUPPORTED);
    assert_int_equal(
        cublasLtMatmulDescSetAttribute(p.desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &found, 2),
        CUBLAS_STATUS_INVALID_VALUE);
    FINE(cublasLtMatmulPreferenceDestroy(pref));
    problem_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_products_scale_and_add),
        cmocka_unit_test(test_epilogues_add_a_bias_per_row_and_keep_what_gelu_reads),
        cmocka_unit_test(test_what_the_library_refuses_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
