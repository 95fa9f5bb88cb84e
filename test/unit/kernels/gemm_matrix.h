/*
 * gemm_matrix.h -- what the tests of products share: matrices of any layout with room around
 * them, and a product in double to compare with.
 */
#ifndef TEST_UNIT_KERNELS_GEMM_MATRIX_H
#define TEST_UNIT_KERNELS_GEMM_MATRIX_H

#include "test/unit/kernels/ref.h"

#include "kernels/cpu/gemm/gemm.h"

static struct zt_device *dev;

static int open_device(void **state)
{
    (void)state;
    return zt_cpu_backend.open(0, 2, &dev, NULL) == ZT_OK ? 0 : -1;
}

static int close_device(void **state)
{
    (void)state;
    zt_cpu_backend.close(dev);
    return 0;
}

/* ---- numbers ---- */

static uint64_t seed = 1;

static uint32_t draw(void)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 33);
}

static double uniform(void)
{
    return draw() / (double)(1u << 30) - 1.0; /* [-1, 1) */
}

/* A matrix (batch, rows, cols) with room around it that must stay untouched. */
struct matrix {
    struct zt_view view;
    void *mem;
    size_t bytes;
};

enum layout { ROWS, COLS, ROWS_PADDED, COLS_PADDED, NUM_LAYOUT };

static struct matrix make(zt_dtype dtype, int64_t batch, int64_t rows, int64_t cols,
                          enum layout layout)
{
    int64_t pad = layout >= ROWS_PADDED ? 5 : 0;
    bool by_cols = layout == COLS || layout == COLS_PADDED;
    int64_t ld = (by_cols ? rows : cols) + pad;
    int64_t each = ld * (by_cols ? cols : rows) + pad;
    int nd = batch ? 3 : 2;
    struct matrix m = {.view = {.dtype = dtype, .ndim = nd}};

    m.bytes = (size_t)(each * (batch ? batch : 1)) * zt_dtype_bytes(dtype);
    m.mem = ref_alloc(m.bytes ? m.bytes : 1);
    assert_non_null(m.mem);
    m.view.data = m.mem;
    if (batch) {
        m.view.shape[0] = batch;
        m.view.stride[0] = each;
    }
    m.view.shape[nd - 2] = rows;
    m.view.shape[nd - 1] = cols;
    m.view.stride[nd - 2] = by_cols ? 1 : ld;
    m.view.stride[nd - 1] = by_cols ? ld : 1;
    for (size_t i = 0; i < m.bytes / zt_dtype_bytes(dtype); i++) {
        float x = (float)uniform();
        zt_store_row((char *)m.mem + i * zt_dtype_bytes(dtype), dtype, 1, &x, 1);
    }
    return m;
}

static double get(const struct zt_view *v, int64_t b, int64_t i, int64_t j)
{
    int nd = v->ndim;
    int64_t at = (nd == 3 && v->shape[0] > 1 ? b * v->stride[0] : 0) +
                 i * v->stride[nd - 2] + j * v->stride[nd - 1];
    float x;

    zt_load_row(&x, (const char *)v->data + at * (int64_t)zt_dtype_bytes(v->dtype),
                v->dtype, 1, 1);
    return x;
}

static double rounding(zt_dtype dtype)
{
    return dtype == ZT_BF16 ? 0x1p-8 : dtype == ZT_F16 ? 0x1p-11 : 0x1p-22;
}

/*
 * Units of the last place by which a result may be off. A GPU rounds a product before it adds the
 * bias, and the sum before its activation, whose slope is at most 1.13, and what comes of it.
 */
#ifdef REF_BACKEND
#define ROUNDINGS (1 + 2 * 1.13)
#else
#define ROUNDINGS 2
#endif

static double gelu(double x, zt_epilogue e)
{
    if (e == ZT_EPI_GELU_TANH)
        return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    return 0.5 * x * (1 + erf(x / sqrt(2)));
}

static void near(double got, double want, double tolerance, const char *what)
{
    if (!(fabs(got - want) <= tolerance * (1 + fabs(want))))
        fail_msg("%s: got %.9g, want %.9g", what, got, want);
}

/* The bytes between and around the elements of c are as they were. */
static void expect_gaps_untouched(const struct matrix *c, const void *before)
{
    const struct zt_view *v = &c->view;
    size_t width = zt_dtype_bytes(v->dtype);
    char *used = calloc(c->bytes + 1, 1);
    int nd = v->ndim;

    assert_non_null(used);
    for (int64_t b = 0; b < (nd == 3 ? v->shape[0] : 1); b++)
        for (int64_t i = 0; i < v->shape[nd - 2]; i++)
            for (int64_t j = 0; j < v->shape[nd - 1]; j++)
                memset(used + (size_t)((nd == 3 ? b * v->stride[0] : 0) +
                                       i * v->stride[nd - 2] + j * v->stride[nd - 1]) *
                                  width,
                       1, width);
    for (size_t i = 0; i < c->bytes; i++)
        if (!used[i] && ((char *)c->mem)[i] != ((const char *)before)[i])
            fail_msg("a byte outside c was written");
    free(used);
}

static struct zt_gemm_args args_of(const struct matrix *a, const struct matrix *b,
                                   const struct matrix *c)
{
    return (struct zt_gemm_args){.a = a->view, .b = b->view, .c = c->view, .alpha = 1};
}

/* Runs g and compares every element of c (and pre) with sums in double. */
static inline void run_and_compare(const struct zt_gemm_args *g, const struct matrix *c)
{
    int nd = g->c.ndim;
    int64_t batch = nd == 3 ? g->c.shape[0] : 1;
    int64_t m = g->c.shape[nd - 2], n = g->c.shape[nd - 1], depth = g->a.shape[nd - 1];
    void *before = malloc(c->bytes + 1);
    struct zt_view old = g->c;
    struct zt_fault fault = {0};
    double tol = ROUNDINGS * rounding(g->c.dtype) + 2e-6 * sqrt((double)depth);

    assert_non_null(before);
    memcpy(before, c->mem, c->bytes);
    old.data = before;
    if (zt_cpu_gemm(dev, NULL, g, &fault) != ZT_OK)
        fail_msg("%s", fault.text);
    for (int64_t b = 0; b < batch; b++)
        for (int64_t i = 0; i < m; i++)
            for (int64_t j = 0; j < n; j++) {
                double sum = 0;

                for (int64_t k = 0; k < depth; k++)
                    sum += get(&g->a, b, i, k) * get(&g->b, b, k, j);
                sum *= g->alpha;
                if (g->bias.data) {
                    struct zt_view bias = {.data = g->bias.data,
                                           .dtype = g->bias.dtype,
                                           .ndim = 2,
                                           .shape = {1, n},
                                           .stride = {0, g->bias.stride[0]}};
                    sum += get(&bias, 0, 0, j);
                }
                if (g->accumulate)
                    sum += get(&old, b, i, j);
                if (g->epilogue != ZT_EPI_NONE) {
                    if (g->pre.data)
                        near(get(&g->pre, b, i, j), sum, tol, "pre");
                    sum = gelu(sum, g->epilogue);
                }
                near(get(&g->c, b, i, j), sum, tol, "c");
            }
    expect_gaps_untouched(c, before);
    free(before);
}

#endif
