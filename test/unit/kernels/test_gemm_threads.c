/* Products and attention give the same bits for any number of threads, on the path of
 * every kind of processor. */
#include "test/unit/kernels/ref.h"
#include "test/unit/sample.h"

#include "kernels/cpu/features.h"
#include "kernels/cpu/gemm/gemm.h"
#include "kernels/cpu/gemm/panel_pass.h"
#include "kernels/cpu/parallel.h"

#define MOST_THREADS 4

static struct zt_device *dev;
static unsigned features; /* of this processor */

static int open_device(void **state)
{
    (void)state;
    features = zt_cpu_features();
    return zt_cpu_backend.open(0, 1, &dev, NULL) == ZT_OK ? 0 : -1;
}

static int close_device(void **state)
{
    (void)state;
    zt_cpu_set_features(features);
    zt_cpu_backend.close(dev);
    return 0;
}

/*
 * What decides about the path of a product in bf16: as it is here; with tiles (or their
 * model); without them; and without fast bf16, where operands are made fp32 first.
 */
static unsigned path(int i)
{
    return i == 0   ? features
           : i == 1 ? features | ZT_CPU_AMX_BF16
           : i == 2 ? features & ~(unsigned)ZT_CPU_AMX_BF16
                    : features & ~(unsigned)ZT_CPU_FAST_BF16;
}
#define NUM_PATHS 4

static uint64_t seed = 1;

static uint32_t draw(void)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 33);
}

/* n values in [-1, 1). */
static void *values(zt_dtype dtype, int64_t n)
{
    size_t width = zt_dtype_bytes(dtype);
    char *p = malloc((size_t)n * width);

    assert_non_null(p);
    for (int64_t i = 0; i < n; i++) {
        float x = (float)draw() / (float)(1u << 30) - 1;

        zt_store_row(p + (size_t)i * width, dtype, 1, &x, 1);
    }
    return p;
}

/* ---- products ---- */

struct product {
    int64_t batch, m, n, k; /* batch 0: two axes */
};

/* (batch, rows, cols), stored by rows or by columns. */
static struct zt_view matrix(zt_dtype dtype, int64_t batch, int64_t rows, int64_t cols,
                             bool by_cols)
{
    void *data = values(dtype, (batch ? batch : 1) * rows * cols);
    int64_t shape[3] = {batch, by_cols ? cols : rows, by_cols ? rows : cols};
    struct zt_view v = zt_view_of(data, dtype, batch ? 3 : 2, shape + (batch ? 0 : 1));

    if (by_cols) {
        int64_t *n = v.shape + v.ndim - 2, *s = v.stride + v.ndim - 2;

        n[0] = rows, n[1] = cols;
        s[0] = 1, s[1] = rows;
    }
    return v;
}

/* Numbers of threads, rising, up to 0. */
static const int few[] = {1, 2, 3, MOST_THREADS, 0};
static const int many[] = {1, 3, 8, 24, 0};

/* Runs g with each of these numbers of threads, always on the same c; all must agree. */
static void expect_same_bits(const struct zt_gemm_args *g, size_t bytes,
                             const int *numbers)
{
    void *before = malloc(bytes), *first = malloc(bytes);
    struct zt_fault fault = {0};

    assert_true(before && first);
    memcpy(before, g->c.data, bytes);
    for (int i = 0; numbers[i]; i++) {
        int threads = numbers[i];

        zt_set_num_threads(threads);
        memcpy(g->c.data, before, bytes);
        if (zt_cpu_gemm(dev, NULL, g, &fault) != ZT_OK)
            fail_msg("%s", fault.text);
        if (threads == 1)
            memcpy(first, g->c.data, bytes);
        else if (memcmp(first, g->c.data, bytes) != 0)
            fail_msg("%d threads: other bits for (%lld, %lld) (%lld, %lld) in %s",
                     threads, (long long)g->c.shape[g->c.ndim - 2],
                     (long long)g->a.shape[g->a.ndim - 1],
                     (long long)g->a.shape[g->a.ndim - 1],
                     (long long)g->c.shape[g->c.ndim - 1], zt_dtype_name(g->a.dtype));
    }
    memcpy(g->c.data, before, bytes);
    free(before);
    free(first);
}

/* The same in panels, whatever suits the shape; each level of instructions has the same bits. */
static void check_panels(const struct zt_gemm_args *g, size_t bytes, const int *numbers)
{
    static const unsigned levels[] = {ZT_CPU_AVX2, ZT_CPU_AVX2 | ZT_CPU_AVX512};
    void *before = malloc(bytes), *first = malloc(bytes);

    assert_true(before && first);
    memcpy(before, g->c.data, bytes);
    if (!in_sample() || !(features & ZT_CPU_AVX2))
        goto out;
    zt_gemm_use_panels(ZT_PANELS_ALWAYS);
    for (int i = 0; i < 2 && (features & levels[i]) == levels[i]; i++) {
        zt_cpu_set_features(levels[i]);
        expect_same_bits(g, bytes, numbers);
        assert_int_equal(zt_cpu_gemm(dev, NULL, g, NULL), ZT_OK);
        if (i == 0)
            memcpy(first, g->c.data, bytes);
        assert_memory_equal(first, g->c.data, bytes);
        memcpy(g->c.data, before, bytes);
    }
    zt_gemm_use_panels(ZT_PANELS_THAT_GAIN);
    zt_cpu_set_features(features);
out:
    free(before);
    free(first);
}

static void check_product(const struct product *p, zt_dtype ab, zt_dtype c)
{
    size_t bytes = (size_t)((p->batch ? p->batch : 1) * p->m * p->n) * zt_dtype_bytes(c);
    void *bias = values(ZT_F32, p->n);

    for (int layout = 0; layout < 4; layout++) {
        struct zt_gemm_args g = {.a = matrix(ab, p->batch, p->m, p->k, layout & 1),
                                 .b = matrix(ab, p->batch, p->k, p->n, layout & 2),
                                 .c = matrix(c, p->batch, p->m, p->n, layout == 1),
                                 .alpha = 1};

        g.accumulate = layout % 3 == 1;
        g.alpha = layout % 3 == 1 ? 0.75f : 1;
        if (layout % 3 == 2)
            g.bias = zt_view_of(bias, ZT_F32, 1, &p->n);
        for (int i = 0; i < (ab == ZT_BF16 ? NUM_PATHS : 1); i++) {
            if (!in_sample())
                continue;
            zt_cpu_set_features(path(i));
            expect_same_bits(&g, bytes, few);
        }
        if (ab == ZT_F32)
            check_panels(&g, bytes, few);
        free(g.a.data);
        free(g.b.data);
        free(g.c.data);
    }
    free(bias);
}

static void test_threads_do_not_change_the_bits_of_products(void **state)
{
    static const struct product products[] = {
        {0, 1, 300, 700},    {0, 300, 1, 700},   /* vectors */
        {0, 2, 28, 4764},    {0, 22, 12, 6572},  /* long sums, few of them */
        {0, 244, 5, 4592},   {0, 5, 244, 2049},  /* */
        {0, 70, 60, 50},     {0, 130, 260, 300}, /* one block, and a few */
        {0, 513, 770, 33},   {0, 200, 700, 255}, /* with shorter ones at both ends */
        {9, 17, 33, 20},     {40, 16, 16, 64},   /* batches: several to a block */
        {3, 150, 200, 130},                      /* and blocks of each */
        {0, 77, 1101, 1000},                     /* in panels: rows stay packed */
        {0, 40, 1000, 1100},                     /* few rows, two blocks of k */
    };
    static const zt_dtype types[][2] = {
        {ZT_F32, ZT_F32}, {ZT_BF16, ZT_F32}, {ZT_BF16, ZT_BF16}, {ZT_F16, ZT_F16}};

    (void)state;
    for (size_t i = 0; i < sizeof(products) / sizeof(products[0]); i++)
        for (size_t t = 0; t < sizeof(types) / sizeof(types[0]); t++)
            check_product(&products[i], types[t][0], types[t][1]);
    /* rows packed in parts, four blocks of k */
    check_product(&(struct product){0, 300, 400, 3600}, ZT_F32, ZT_F32);
}

/* ---- products of panels on more threads than they have columns for ---- */

/* Of bf16 by the instructions in use, of fp32 by each level; with an activation where c is bf16. */
static void check_few_columns(const struct product *p, zt_dtype ab, zt_dtype c,
                              bool a_by_cols, bool b_by_cols)
{
    size_t bytes = (size_t)(p->m * p->n) * zt_dtype_bytes(c);
    struct zt_gemm_args g = {.a = matrix(ab, 0, p->m, p->k, a_by_cols),
                             .b = matrix(ab, 0, p->k, p->n, b_by_cols),
                             .c = matrix(c, 0, p->m, p->n, false),
                             .alpha = 1,
                             .accumulate = c == ZT_F32};

    if (c == ZT_BF16) {
        g.pre = matrix(c, 0, p->m, p->n, false);
        g.epilogue = ZT_EPI_GELU_TANH;
    }
    if (ab == ZT_F32) {
        check_panels(&g, bytes, many);
    } else {
        zt_gemm_use_panels(ZT_PANELS_ALWAYS);
        expect_same_bits(&g, bytes, many);
        zt_gemm_use_panels(ZT_PANELS_THAT_GAIN);
    }
    free(g.a.data);
    free(g.b.data);
    free(g.c.data);
    free(g.pre.data);
}

static void test_more_threads_than_columns_do_not_change_the_bits(void **state)
{
    static const struct product products[] = {
        {0, 300, 96, 700}, {0, 300, 200, 2304}, {0, 31, 40, 130}};

    (void)state;
    zt_cpu_set_features(features);
    for (size_t i = 0; i < sizeof(products) / sizeof(products[0]); i++)
        for (int by_cols = 0; by_cols < 4; by_cols++) {
            bool a = by_cols & 1, b = by_cols & 2;

            check_few_columns(&products[i], ZT_F32, ZT_F32, a, b);
            check_few_columns(&products[i], ZT_BF16, a ? ZT_F32 : ZT_BF16, a, b);
        }
    /* a gradient of weights, whose rows are not more than its columns */
    check_few_columns(&(struct product){0, 190, 200, 1200}, ZT_BF16, ZT_F32, true, false);
}

/* 48 columns a panel, about 64 rows a strip. */
static void test_rows_are_cut_where_columns_are_too_few(void **state)
{
    (void)state;
    assert_int_equal(zt_panel_row_parts(16, 1024, 16, 1), 1);
    assert_int_equal(zt_panel_row_parts(16, 1024, 16, 2), 1);
    assert_int_equal(zt_panel_row_parts(16, 1024, 16, 16), 1); /* one for each */
    assert_int_equal(zt_panel_row_parts(16, 1024, 32, 32), 2);
    assert_int_equal(zt_panel_row_parts(16, 1024, 32, 64), 4);
    assert_int_equal(zt_panel_row_parts(16, 4096, 72, 24), 3); /* 48 tasks, not 32 */
    assert_int_equal(zt_panel_row_parts(1, 300, 5, 128), 5);   /* strips are not cut */
    assert_int_equal(zt_panel_row_parts(96, 4096, 64, 24), 1); /* columns are enough */
}

/* ---- attention ---- */

static struct zt_view tensor(zt_dtype dtype, int64_t b, int64_t t, int64_t h, int64_t d)
{
    return zt_view_of(values(dtype, b * t * h * d), dtype, 4, (int64_t[]){b, t, h, d});
}

#define NUM_RESULTS 6
struct results {
    struct zt_view *view[NUM_RESULTS]; /* those without data count for nothing */
    void *first[NUM_RESULTS];
};

static void compare_results(struct results *r, int threads)
{
    for (int i = 0; i < NUM_RESULTS; i++) {
        size_t bytes =
            (size_t)zt_view_numel(r->view[i]) * zt_dtype_bytes(r->view[i]->dtype);

        if (!r->view[i]->data)
            continue;
        if (threads == 1) {
            r->first[i] = malloc(bytes);
            assert_non_null(r->first[i]);
            memcpy(r->first[i], r->view[i]->data, bytes);
        }
        assert_memory_equal(r->first[i], r->view[i]->data, bytes);
    }
}

/* bias_batch: sequences that have a bias of their own; 0: there is none. */
static void check_attention(zt_dtype dtype, int64_t tq, int64_t tk, bool causal,
                            int64_t bias_batch)
{
    const int64_t b = 2, h = 3, d = 16;
    struct zt_attention_bwd_args a = {
        .fwd = {.q = tensor(dtype, b, tq, h, d),
                .k = tensor(dtype, b, tk, h, d),
                .v = tensor(dtype, b, tk, h, d),
                .out = tensor(dtype, b, tq, h, d),
                .lse = zt_view_of(values(ZT_F32, b * h * tq), ZT_F32, 3,
                                  (int64_t[]){b, h, tq}),
                .scale = 0.25f,
                .causal = causal},
        .dout = tensor(dtype, b, tq, h, d),
        .dq = tensor(dtype, b, tq, h, d),
        .dk = tensor(dtype, b, tk, h, d),
        .dv = tensor(dtype, b, tk, h, d)};
    struct zt_view *all[] = {&a.fwd.q,   &a.fwd.k,    &a.fwd.v, &a.fwd.out,
                             &a.fwd.lse, &a.dout,     &a.dq,    &a.dk,
                             &a.dv,      &a.fwd.bias, &a.dbias};

    if (bias_batch) {
        a.fwd.bias = tensor(ZT_F32, bias_batch, h, tq, tk);
        a.dbias = tensor(ZT_F32, bias_batch, h, tq, tk);
    }
    for (int i = 0; i < (dtype == ZT_BF16 ? NUM_PATHS : 1); i++) {
        struct results r = {
            .view = {&a.fwd.out, &a.fwd.lse, &a.dq, &a.dk, &a.dv, &a.dbias}};

        zt_cpu_set_features(path(i));
        for (int threads = 1; threads <= MOST_THREADS; threads++) {
            zt_set_num_threads(threads);
            assert_int_equal(zt_cpu_attention(dev, NULL, &a.fwd, NULL), ZT_OK);
            assert_int_equal(zt_cpu_attention_bwd(dev, NULL, &a, NULL), ZT_OK);
            compare_results(&r, threads);
        }
        for (int j = 0; j < NUM_RESULTS; j++)
            free(r.first[j]);
    }
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        free(all[i]->data);
}

static void test_threads_do_not_change_the_bits_of_attention(void **state)
{
    static const zt_dtype types[] = {ZT_F32, ZT_BF16, ZT_F16};

    (void)state;
    for (int t = 0; t < 3; t++) {
        check_attention(types[t], 300, 300, true, 0);
        check_attention(types[t], 130, 257, false, 0);
        check_attention(types[t], 140, 1, false, 0);
        check_attention(types[t], 70, 40, false, 1);
        check_attention(types[t], 40, 70, true, 2);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threads_do_not_change_the_bits_of_products),
        cmocka_unit_test(test_more_threads_than_columns_do_not_change_the_bits),
        cmocka_unit_test(test_rows_are_cut_where_columns_are_too_few),
        cmocka_unit_test(test_threads_do_not_change_the_bits_of_attention),
    };

    return cmocka_run_group_tests(tests, open_device, close_device);
}
