/* Products against a plain float64 reference, over shapes, strides and types. */
#include "test/unit/kernels/gemm_large.h"
#include "test/unit/sample.h"

#include "kernels/cpu/features.h"
#include "kernels/cpu/gemm/panels.h"
#include "kernels/cpu/parallel.h"

/* ---- types ---- */

static const struct {
    zt_dtype ab, c;
} pairs[] = {{ZT_F32, ZT_F32},
             {ZT_BF16, ZT_BF16},
             {ZT_BF16, ZT_F32},
             {ZT_F16, ZT_F16},
             {ZT_F16, ZT_F32}};
#define NUM_PAIRS (sizeof(pairs) / sizeof(pairs[0]))

static int64_t odd_size(void)
{
    static const int64_t sizes[] = {1, 2, 3, 5, 8, 16, 17, 31, 33, 64, 65};

    return sizes[draw() % (sizeof(sizes) / sizeof(sizes[0]))];
}

static void test_every_layout_and_type_matches_the_reference(void **state)
{
    (void)state;
    for (size_t t = 0; t < NUM_PAIRS; t++)
        for (int lay = 0; lay < NUM_LAYOUT * NUM_LAYOUT * NUM_LAYOUT; lay++) {
            int64_t m = odd_size(), n = odd_size(), k = odd_size();
            struct matrix a = make(pairs[t].ab, 0, m, k, (enum layout)(lay % 4));
            struct matrix b = make(pairs[t].ab, 0, k, n, (enum layout)(lay / 4 % 4));
            struct matrix c = make(pairs[t].c, 0, m, n, (enum layout)(lay / 16));
            struct zt_gemm_args g = args_of(&a, &b, &c);

            g.accumulate = draw() % 2;
            g.alpha = draw() % 2 ? 1 : 0.375f;
            run_and_compare(&g, &c);
            ref_free(a.mem);
            ref_free(b.mem);
            ref_free(c.mem);
        }
}

/* oneDNN 3.7 takes the elements of a lone row of a, or column of c, for neighbours. */
static void test_lone_rows_and_columns_match_in_every_layout(void **state)
{
    static const int64_t sizes[][3] = {{1, 33, 65}, {65, 1, 33}, {1, 1, 64}, {1, 64, 1}};

    (void)state;
    for (size_t t = 0; t < NUM_PAIRS; t++)
        for (int i = 0; i < 4 * NUM_LAYOUT * NUM_LAYOUT * NUM_LAYOUT; i++) {
            const int64_t *size = sizes[i % 4];
            int lay = i / 4;
            int64_t batch = draw() % 3; /* 0: two axes */
            struct matrix a =
                make(pairs[t].ab, batch, size[0], size[2], (enum layout)(lay % 4));
            struct matrix b =
                make(pairs[t].ab, batch, size[2], size[1], (enum layout)(lay / 4 % 4));
            struct matrix c =
                make(pairs[t].c, batch, size[0], size[1], (enum layout)(lay / 16));
            struct zt_gemm_args g = args_of(&a, &b, &c);

            g.accumulate = draw() % 2;
            g.alpha = draw() % 2 ? 1 : 0.375f;
            run_and_compare(&g, &c);
            ref_free(a.mem);
            ref_free(b.mem);
            ref_free(c.mem);
        }
}

static void test_batches_with_strides_and_repeats_match(void **state)
{
    (void)state;
    for (size_t t = 0; t < NUM_PAIRS; t++)
        for (int i = 0; i < 16; i++) {
            int64_t batch = 1 + draw() % 4, m = odd_size(), n = odd_size(),
                    k = odd_size();
            bool repeat = i % 4 == 3;
            struct matrix a = make(pairs[t].ab, batch, m, k, (enum layout)(draw() % 4));
            struct matrix b =
                make(pairs[t].ab, repeat ? 1 : batch, k, n, (enum layout)(draw() % 4));
            struct matrix c = make(pairs[t].c, batch, m, n, (enum layout)(draw() % 4));
            struct zt_gemm_args g = args_of(&a, &b, &c);

            g.accumulate = i % 2;
            run_and_compare(&g, &c);
            ref_free(a.mem);
            ref_free(b.mem);
            ref_free(c.mem);
        }
}

static void test_heads_inside_packed_rows_are_batches(void **state)
{
    /* q and k of (T, H, D): batch stride D, row stride H * D */
    const int64_t t = 19, h = 3, d = 8, shape[3] = {h, t, d};
    struct matrix q = make(ZT_F32, 0, t, h * d, ROWS),
                  k = make(ZT_F32, 0, t, h * d, ROWS);
    struct matrix s = make(ZT_F32, h, t, t, ROWS);
    struct zt_gemm_args g = {.c = s.view, .alpha = 0.5f};

    (void)state;
    g.a = zt_view_of(q.mem, ZT_F32, 3, shape);
    g.a.stride[0] = d;
    g.a.stride[1] = h * d;
    g.b = zt_view_of(k.mem, ZT_F32, 3, (int64_t[]){h, d, t});
    g.b.stride[0] = d;
    g.b.stride[1] = 1;
    g.b.stride[2] = h * d;
    run_and_compare(&g, &s);
    ref_free(q.mem);
    ref_free(k.mem);
    ref_free(s.mem);
}

static void test_bias_and_gelu_match_the_reference(void **state)
{
    (void)state;
    for (size_t t = 0; t < NUM_PAIRS; t++)
        for (int i = 0; i < 24; i++) {
            int64_t m = odd_size(), n = odd_size(), k = odd_size();
            struct matrix a = make(pairs[t].ab, 0, m, k, ROWS);
            struct matrix b = make(pairs[t].ab, 0, k, n, (enum layout)(draw() % 4));
            struct matrix c = make(pairs[t].c, 0, m, n, (enum layout)(draw() % 4));
            struct matrix pre = make(pairs[t].c, 0, m, n, (enum layout)(draw() % 4));
            struct matrix bias = make(i % 2 ? pairs[t].ab : ZT_F32, 0, 1, n, ROWS);
            struct zt_gemm_args g = args_of(&a, &b, &c);

            g.bias = zt_view_of(bias.mem, bias.view.dtype, 1, &n);
            g.alpha = i % 5 ? 1 : -0.5f;
            g.epilogue = (zt_epilogue)(i % 3);
            if (i % 4 < 3 && g.epilogue != ZT_EPI_NONE)
                g.pre = pre.view;
            run_and_compare(&g, &c);
            ref_free(a.mem);
            ref_free(b.mem);
            ref_free(c.mem);
            ref_free(pre.mem);
            ref_free(bias.mem);
        }
}

static double gelu_slope(double x, zt_epilogue e)
{
    double step = 1e-4;
    zt_epilogue f = e == ZT_EPI_GELU_TANH_BWD ? ZT_EPI_GELU_TANH : ZT_EPI_GELU_ERF;

    return (gelu(x + step, f) - gelu(x - step, f)) / (2 * step);
}

static void test_the_slope_of_a_gelu_matches_the_reference(void **state)
{
    (void)state;
    for (size_t t = 0; t < NUM_PAIRS; t++)
        for (int i = 0; i < 8; i++) {
            int64_t m = odd_size(), n = i & 4 ? 40 : odd_size(), k = odd_size();
            struct matrix a = make(pairs[t].ab, 0, m, k, ROWS);
            struct matrix b = make(pairs[t].ab, 0, k, n, i & 2 ? COLS : ROWS);
            struct matrix c = make(pairs[t].c, 0, m, n, ROWS);
            struct matrix pre = make(pairs[t].c, 0, m, n, ROWS);
            struct zt_gemm_args g = args_of(&a, &b, &c);
            double tol = 3 * rounding(pairs[t].c) + 1e-5;
            struct zt_fault fault = {0};

            g.epilogue = i & 1 ? ZT_EPI_GELU_ERF_BWD : ZT_EPI_GELU_TANH_BWD;
            g.pre = pre.view;
            if (zt_cpu_gemm(dev, NULL, &g, &fault) != ZT_OK)
                fail_msg("%s", fault.text);
            for (int64_t at = 0; at < m * n; at++) {
                double sum = 0;

                for (int64_t j = 0; j < k; j++)
                    sum += get(&g.a, 0, at / n, j) * get(&g.b, 0, j, at % n);
                near(get(&g.c, 0, at / n, at % n),
                     sum * gelu_slope(get(&g.pre, 0, at / n, at % n), g.epilogue), tol,
                     "c");
            }
            ref_free(a.mem);
            ref_free(b.mem);
            ref_free(c.mem);
            ref_free(pre.mem);
        }
}

/* The gradients of a linear map's weights and bias; i: which operand has the bias'. */
static void test_the_backward_of_a_swiglu_has_the_bits_of_two_steps(void **state)
{
    (void)state;
    for (size_t t = 0; t < NUM_PAIRS; t++)
        for (int i = 0; i < 4; i++) {
            int64_t m = odd_size(), n = i & 1 ? 40 : odd_size(), k = odd_size();
            struct matrix a = make(pairs[t].ab, 0, m, k, ROWS);
            struct matrix b = make(pairs[t].ab, 0, k, n, i & 2 ? COLS : ROWS);
            struct matrix c = make(pairs[t].c, 0, m, n, ROWS);
            struct matrix gate = make(pairs[t].c, 0, m, n, ROWS);
            struct matrix up = make(pairs[t].c, 0, m, n, ROWS);
            struct matrix dgate = make(pairs[t].c, 0, m, n, ROWS);
            struct matrix dy = make(pairs[t].c, 0, m, n, ROWS);
            struct matrix want_gate = make(pairs[t].c, 0, m, n, ROWS);
            struct matrix want_up = make(pairs[t].c, 0, m, n, ROWS);
            struct zt_gemm_args g = args_of(&a, &b, &c), alone = args_of(&a, &b, &dy);
            struct zt_glu_bwd_args apart = {.kind = ZT_U_SILU,
                                            .dy = dy.view,
                                            .gate = gate.view,
                                            .up = up.view,
                                            .dgate = want_gate.view,
                                            .dup = want_up.view};
            struct zt_fault fault = {0};

            g.epilogue = ZT_EPI_SWIGLU_BWD;
            g.gate = gate.view;
            g.up = up.view;
            g.dgate = dgate.view;
            if (zt_cpu_gemm(dev, NULL, &g, &fault) != ZT_OK ||
                zt_cpu_gemm(dev, NULL, &alone, &fault) != ZT_OK ||
                REF_KERNELS.glu_bwd(dev, NULL, &apart, &fault) != ZT_OK)
                fail_msg("%s", fault.text);
            for (int64_t at = 0; at < m * n; at++) {
                assert_true(get(&g.c, 0, at / n, at % n) ==
                            get(&apart.dup, 0, at / n, at % n));
                assert_true(get(&g.dgate, 0, at / n, at % n) ==
                            get(&apart.dgate, 0, at / n, at % n));
            }
            for (int j = 0; j < 9; j++)
                ref_free(
                    (struct matrix[]){a, b, c, gate, up, dgate, dy, want_gate, want_up}[j]
                        .mem);
        }
}

static void test_sums_of_an_operand_match_the_reference(void **state)
{
    (void)state;
    for (size_t t = 0; t < NUM_PAIRS; t++)
        for (int i = 0; i < 8; i++) {
            int64_t m = odd_size(), n = odd_size(), k = i & 4 ? 0 : 3 * odd_size();
            int64_t num = i & 1 ? m : n;
            struct matrix a = make(pairs[t].ab, 0, m, k, COLS);
            struct matrix b = make(pairs[t].ab, 0, k, n, ROWS);
            struct matrix c = make(pairs[t].c, 0, m, n, ROWS);
            float *sum = ref_alloc((size_t)num * sizeof(float));
            struct zt_gemm_args g = args_of(&a, &b, &c);

            g.accumulate = g.accumulate_sums = i & 2;
            *(i & 1 ? &g.a_sum : &g.b_sum) = zt_view_of(sum, ZT_F32, 1, &num);
            for (int64_t at = 0; at < num; at++)
                sum[at] = (float)at;
            run_and_compare(&g, &c);
            for (int64_t at = 0; at < num; at++) {
                double want = i & 2 ? (double)at : 0;

                for (int64_t j = 0; j < k; j++)
                    want += i & 1 ? get(&g.a, 0, at, j) : get(&g.b, 0, j, at);
                near((double)sum[at], want, 1e-5, "the sum");
            }
            ref_free(a.mem);
            ref_free(b.mem);
            ref_free(c.mem);
            ref_free(sum);
        }
}

static void test_pieces_of_widened_products_join(void **state)
{
    /* larger than a piece in every direction, with little work: f16 goes by pieces */
    static const int64_t mnk[][3] = {
        {1030, 3, 2}, {2, 2055, 5}, {3, 2, 4100}, {1027, 2050, 1}};

    (void)state;
    for (size_t i = 0; i < 4; i++)
        for (int layout = 0; layout < 2; layout++) {
            struct matrix a = make(ZT_F16, 0, mnk[i][0], mnk[i][2], (enum layout)layout);
            struct matrix b = make(ZT_F16, 0, mnk[i][2], mnk[i][1], (enum layout)layout);
            struct matrix c = make(ZT_F32, 0, mnk[i][0], mnk[i][1], ROWS_PADDED);
            struct zt_gemm_args g = args_of(&a, &b, &c);

            g.accumulate = layout;
            run_and_compare(&g, &c);
            ref_free(a.mem);
            ref_free(b.mem);
            ref_free(c.mem);
        }
}

static void test_an_empty_sum_is_the_bias(void **state)
{
    float *c = ref_alloc(6 * sizeof(*c)), *bias = ref_alloc(3 * sizeof(*bias));
    float *none = ref_alloc(sizeof(*none));
    struct zt_gemm_args g = {.alpha = 1};

    (void)state;
    assert_true(c && bias && none);
    for (int i = 0; i < 6; i++)
        c[i] = 9;
    for (int i = 0; i < 3; i++)
        bias[i] = (float)(i + 1);
    g.a = zt_view_of(none, ZT_F32, 2, (int64_t[]){2, 0});
    g.b = zt_view_of(none, ZT_F32, 2, (int64_t[]){0, 3});
    g.c = zt_view_of(c, ZT_F32, 2, (int64_t[]){2, 3});
    g.bias = zt_view_of(bias, ZT_F32, 1, (int64_t[]){3});
    assert_int_equal(zt_cpu_gemm(dev, NULL, &g, NULL), ZT_OK);
    for (int i = 0; i < 6; i++)
        assert_true(c[i] == bias[i % 3]);
    g.bias.data = NULL;
    g.accumulate = true;
    assert_int_equal(zt_cpu_gemm(dev, NULL, &g, NULL), ZT_OK);
    assert_true(c[5] == 3);
    ref_free(c);
    ref_free(bias);
    ref_free(none);
}

static void test_bad_arguments_are_refused(void **state)
{
    float *mem = ref_alloc(64 * sizeof(*mem));
    struct zt_gemm_args good = {.alpha = 1}, g;
    struct zt_fault fault;

    (void)state;
    assert_non_null(mem);
    memset(mem, 0, 64 * sizeof(*mem));
    good.a = zt_view_of(mem, ZT_F32, 2, (int64_t[]){2, 4});
    good.b = zt_view_of(mem + 16, ZT_F32, 2, (int64_t[]){4, 3});
    good.c = zt_view_of(mem + 32, ZT_F32, 2, (int64_t[]){2, 3});
    assert_int_equal(zt_cpu_gemm(dev, NULL, &good, &fault), ZT_OK);
    g = good;
    g.b.shape[0] = 5;
    assert_int_equal(zt_cpu_gemm(dev, NULL, &g, &fault), ZT_E_ARG);
    assert_non_null(strstr(fault.text, "gemm: a (2, 4)"));
    g = good;
    g.a.dtype = ZT_I32;
    assert_int_equal(zt_cpu_gemm(dev, NULL, &g, &fault), ZT_E_ARG);
    g = good;
    g.a.dtype = g.b.dtype = ZT_BF16;
    g.c.dtype = ZT_F16;
    assert_int_equal(zt_cpu_gemm(dev, NULL, &g, &fault), ZT_E_ARG);
    g = good;
    g.a.stride[1] = 2;
    assert_int_equal(zt_cpu_gemm(dev, NULL, &g, &fault), ZT_E_ARG);
    g = good;
    g.bias = zt_view_of(mem, ZT_F32, 1, (int64_t[]){3});
    g.accumulate = true;
    assert_int_equal(zt_cpu_gemm(dev, NULL, &g, &fault), ZT_E_ARG);
    g = good;
    g.epilogue = ZT_EPI_GELU_TANH_BWD; /* of what? */
    assert_int_equal(zt_cpu_gemm(dev, NULL, &g, &fault), ZT_E_ARG);
    g = good;
    g.a_sum = zt_view_of(mem, ZT_F32, 1, (int64_t[]){3}); /* a has 2 lines */
    assert_int_equal(zt_cpu_gemm(dev, NULL, &g, &fault), ZT_E_ARG);
    g = good;
    g.c.data = NULL;
    assert_int_equal(zt_cpu_gemm(dev, NULL, &g, &fault), ZT_E_ARG);
    ref_free(mem);
}

static void test_two_runs_give_the_same_bits(void **state)
{
    struct matrix a = make(ZT_F32, 0, 70, 300, ROWS), b = make(ZT_F32, 0, 300, 90, COLS);
    struct matrix c = make(ZT_F32, 0, 70, 90, ROWS);
    struct zt_gemm_args g = args_of(&a, &b, &c);
    void *first = malloc(c.bytes);

    (void)state;
    assert_non_null(first);
    assert_int_equal(zt_cpu_gemm(dev, NULL, &g, NULL), ZT_OK);
    memcpy(first, c.mem, c.bytes);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(zt_cpu_gemm(dev, NULL, &g, NULL), ZT_OK);
        assert_memory_equal(first, c.mem, c.bytes);
    }
    free(first);
    ref_free(a.mem);
    ref_free(b.mem);
    ref_free(c.mem);
}

/* c += a^T b in bf16 */
static void check_weight_gradient(int64_t m, int64_t n, int64_t k, bool accumulate)
{
    check_large(make(ZT_BF16, 0, m, k, COLS_PADDED), make(ZT_BF16, 0, k, n, ROWS_PADDED),
                make(ZT_F32, 0, m, n, ROWS_PADDED), accumulate);
}

/* Of an fp32 b with such rows, columns are copied; of an a with such columns, rows. */
static void test_rows_a_multiple_of_2048_bytes_apart(void **state)
{
    (void)state;
    check_large(make(ZT_F32, 0, 150, 70, ROWS), make(ZT_F32, 0, 70, 1024, ROWS),
                make(ZT_F32, 0, 150, 1024, ROWS_PADDED), false);
    check_large(make(ZT_F32, 0, 66, 4200, COLS), make(ZT_F32, 0, 4200, 1024, ROWS),
                make(ZT_F32, 0, 66, 1024, ROWS), true); /* 192 columns at a time */
    check_large(make(ZT_F32, 0, 1024, 200, COLS), make(ZT_F32, 0, 200, 75, ROWS),
                make(ZT_F32, 0, 1024, 75, COLS), true); /* as b of the transposed one */
    check_large(make(ZT_F32, 0, 1024, 70, COLS), make(ZT_F32, 0, 70, 150, ROWS_PADDED),
                make(ZT_F32, 0, 1024, 150, ROWS_PADDED), true);
    check_large(make(ZT_F32, 0, 512, 4200, COLS), make(ZT_F32, 0, 4200, 1024, ROWS),
                make(ZT_F32, 0, 512, 1024, ROWS), false); /* both, some at a time */
}

/* In bf16 they are added up in parts, in fp32. */
static void test_long_sums_of_bf16(void **state)
{
    (void)state;
    check_large(make(ZT_BF16, 0, 70, 8200, ROWS_PADDED),
                make(ZT_BF16, 0, 8200, 130, ROWS), make(ZT_BF16, 0, 70, 130, ROWS_PADDED),
                false);
    check_large(make(ZT_BF16, 0, 600, 8192, COLS), make(ZT_BF16, 0, 8192, 50, COLS),
                make(ZT_BF16, 0, 600, 50, COLS), false);
}

static void test_weight_gradients_of_bf16_in_every_block(void **state)
{
    (void)state;
    check_weight_gradient(32, 32, 16, true);
    check_weight_gradient(101, 67, 99, true);
    check_weight_gradient(200, 700, 255, false);
    check_weight_gradient(49, 65, 2049, true);  /* blocks of a sum */
    check_weight_gradient(33, 40, 9001, false); /* passes over c */
    check_weight_gradient(34, 530, 8193, true); /* ... and over columns */
}

/* c = a b as_added has the bits of c += a b onto zeros, whoever sums. */
static void test_what_counts_as_added_has_the_bits_of_sums_onto_zeros(void **state)
{
    static const int64_t sizes[][3] = {{1, 40, 300},   {40, 1, 300},   {17, 33, 65},
                                       {64, 64, 1},    {130, 70, 200}, {300, 320, 515},
                                       {64, 48, 9001}, {16, 16, 4100}};

    (void)state;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]) * NUM_PAIRS; i++) {
        const int64_t *n = sizes[i / NUM_PAIRS];
        size_t t = i % NUM_PAIRS;
        struct matrix a = make(pairs[t].ab, 0, n[0], n[2], COLS);
        struct matrix b = make(pairs[t].ab, 0, n[2], n[1], ROWS);
        struct matrix c = make(pairs[t].c, 0, n[0], n[1], ROWS);
        struct zt_gemm_args g = args_of(&a, &b, &c);
        void *added = malloc(c.bytes);

        assert_non_null(added);
        memset(c.mem, 0, c.bytes);
        g.alpha = 1;
        g.accumulate = true;
        assert_int_equal(zt_cpu_gemm(dev, NULL, &g, NULL), ZT_OK);
        memcpy(added, c.mem, c.bytes);
        memset(c.mem, 0xff, c.bytes); /* not numbers */
        g.accumulate = false;
        g.as_added = true;
        assert_int_equal(zt_cpu_gemm(dev, NULL, &g, NULL), ZT_OK);
        assert_memory_equal(added, c.mem, c.bytes);
        free(added);
        ref_free(a.mem);
        ref_free(b.mem);
        ref_free(c.mem);
    }
}

/* ---- on matrix tiles, or their emulation ---- */

static unsigned features; /* of this processor */

static int open_with_tiles(void **state)
{
    const unsigned tiles = ZT_CPU_AMX_BF16 | ZT_CPU_FAST_BF16;

    features = zt_cpu_features();
    zt_cpu_set_features(features | tiles);
    return open_device(state);
}

static int close_with_tiles(void **state)
{
    zt_cpu_set_features(features);
    return close_device(state);
}

/* Blocks of several strips and parts of k, odd at every end; with what follows a product. */
static void check_blocks(zt_dtype ab, zt_dtype other)
{
    static const struct {
        int64_t m, n, k;
    } sizes[] = {{300, 77, 65}, {145, 270, 33}, {33, 600, 17}, {150, 40, 1101}};

    for (int i = 0; i < 64; i++) {
        int64_t m = sizes[i % 4].m, n = sizes[i % 4].n, k = sizes[i % 4].k;
        zt_dtype type = i / 4 % 2 ? ZT_F32 : ab;
        struct matrix a = make(ab, 0, m, k, (enum layout)(draw() % 4));
        struct matrix b = make(ab, 0, k, n, (enum layout)(draw() % 4));
        struct matrix c = make(type, 0, m, n, i % 3 ? ROWS_PADDED : COLS_PADDED);
        struct matrix pre = make(type, 0, m, n, ROWS);
        struct matrix bias = make(i % 2 ? other : ZT_F32, 0, 1, n, ROWS);
        struct zt_gemm_args g = args_of(&a, &b, &c);

        g.accumulate = i % 5 == 0;
        g.alpha = i % 7 ? 1 : -0.5f;
        if (!g.accumulate && i % 5 < 4)
            g.bias = zt_view_of(bias.mem, bias.view.dtype, 1, &n);
        if (!g.accumulate && i % 5 > 1) {
            g.epilogue = ZT_EPI_GELU_TANH;
            g.pre = pre.view;
        }
        if (in_sample())
            run_and_compare(&g, &c);
        ref_free(a.mem);
        ref_free(b.mem);
        ref_free(c.mem);
        ref_free(pre.mem);
        ref_free(bias.mem);
    }
}

static void test_blocks_of_tiles(void **state)
{
    (void)state;
    check_blocks(ZT_BF16, ZT_BF16);
    check_large(make(ZT_BF16, 0, 390, 1101, COLS), make(ZT_BF16, 0, 1101, 70, ROWS),
                make(ZT_F32, 0, 390, 70, ROWS),
                true); /* b is packed for all, in parts of k */
    check_large(make(ZT_BF16, 0, 390, 20, COLS), make(ZT_BF16, 0, 20, 4170, ROWS_PADDED),
                make(ZT_F32, 0, 390, 4170, ROWS_PADDED), false); /* and of columns */
    check_large(make(ZT_BF16, 0, 700, 9, ROWS), make(ZT_BF16, 0, 9, 3011, COLS),
                make(ZT_BF16, 0, 700, 3011, ROWS_PADDED),
                false); /* c larger than caches */
}

/* ---- in panels, of shapes that do not gain by it too ---- */

static int open_with_panels(void **state)
{
    features = zt_cpu_features();
    zt_cpu_set_features(features & (ZT_CPU_AVX2 | ZT_CPU_AVX512));
    zt_gemm_use_panels(ZT_PANELS_ALWAYS);
    return open_device(state);
}

static int open_with_panels_by_avx2(void **state)
{
    int rc = open_with_panels(state);

    zt_cpu_set_features(ZT_CPU_AVX2);
    return rc;
}

static int close_with_panels(void **state)
{
    zt_gemm_use_panels(ZT_PANELS_THAT_GAIN);
    zt_cpu_set_features(features);
    return close_device(state);
}

static void test_blocks_of_panels(void **state)
{
    if (!(zt_cpu_features() & ZT_CPU_AVX2))
        skip();
    (void)state;
    check_blocks(ZT_F32, ZT_F32);
    check_large(make(ZT_F32, 0, 520, 1100, COLS), make(ZT_F32, 0, 1100, 2010, ROWS),
                make(ZT_F32, 0, 520, 2010, ROWS), true); /* passes over columns and k */
    check_large(make(ZT_F32, 0, 520, 1000, ROWS), make(ZT_F32, 0, 1000, 1101, COLS),
                make(ZT_F32, 0, 520, 1101, ROWS), false); /* rows stay packed */
    check_large(make(ZT_F32, 0, 20, 1100, COLS), make(ZT_F32, 0, 1100, 2010, ROWS),
                make(ZT_F32, 0, 20, 2010, ROWS), true); /* few rows */
    check_large(make(ZT_F32, 0, 250, 2100, ROWS), make(ZT_F32, 0, 2100, 330, COLS_PADDED),
                make(ZT_F32, 0, 250, 330, ROWS_PADDED), false);
    check_large(make(ZT_F32, 0, 500, 130, ROWS), make(ZT_F32, 0, 130, 300, COLS),
                make(ZT_F32, 0, 500, 300, ROWS_PADDED),
                false); /* small tasks at the end */
}

/* Few rows are multiplied in another order than many are. */
static void test_rows_of_panels_have_the_bits_of_more_rows(void **state)
{
    struct matrix a = make(ZT_F32, 0, 600, 1100, ROWS);
    struct matrix b = make(ZT_F32, 0, 1100, 700, COLS);
    struct matrix c = make(ZT_F32, 0, 600, 700, ROWS),
                  few = make(ZT_F32, 0, 70, 700, ROWS);
    struct zt_gemm_args g = args_of(&a, &b, &c);

    (void)state;
    assert_int_equal(zt_cpu_gemm(dev, NULL, &g, NULL), ZT_OK);
    g.a.shape[0] = 70;
    g.c = few.view;
    assert_int_equal(zt_cpu_gemm(dev, NULL, &g, NULL), ZT_OK);
    assert_memory_equal(few.mem, c.mem, few.bytes);
    ref_free(a.mem);
    ref_free(b.mem);
    ref_free(c.mem);
    ref_free(few.mem);
}

/* ---- in panels of pairs ---- */

static int open_with_pairs(void **state)
{
    features = zt_cpu_features();
    zt_cpu_set_features(features & ~(unsigned)ZT_CPU_AMX_BF16);
    zt_gemm_use_panels(ZT_PANELS_ALWAYS);
    return open_device(state);
}

static void test_blocks_of_pairs(void **state)
{
    if (!zt_panel_kernels_of_pairs())
        skip();
    (void)state;
    check_blocks(ZT_BF16, ZT_BF16);
    check_large(make(ZT_BF16, 0, 250, 2500, ROWS), make(ZT_BF16, 0, 2500, 330, COLS),
                make(ZT_BF16, 0, 250, 330, ROWS_PADDED), false); /* two blocks of k */
    check_large(make(ZT_BF16, 0, 77, 2300, ROWS), make(ZT_BF16, 0, 2300, 1101, ROWS),
                make(ZT_BF16, 0, 77, 1101, ROWS), false);
    check_large(make(ZT_BF16, 0, 500, 130, ROWS), make(ZT_BF16, 0, 130, 300, ROWS),
                make(ZT_BF16, 0, 500, 300, ROWS_PADDED), false); /* one */
    check_large(make(ZT_BF16, 0, 300, 1300, COLS), make(ZT_BF16, 0, 1300, 330, ROWS),
                make(ZT_F32, 0, 300, 330, ROWS), true);
}

/* Their rows begin with any element, and the last value of k has no partner. */
static void test_pairs_of_an_odd_k(void **state)
{
    if (!zt_panel_kernels_of_pairs())
        skip();
    (void)state;
    check_large(make(ZT_BF16, 0, 77, 2301, ROWS), make(ZT_BF16, 0, 2301, 330, ROWS),
                make(ZT_BF16, 0, 77, 330, ROWS_PADDED), false);
    check_large(make(ZT_BF16, 0, 64, 129, ROWS), make(ZT_BF16, 0, 129, 50, ROWS_PADDED),
                make(ZT_BF16, 0, 64, 50, ROWS), false);
    check_large(make(ZT_BF16, 0, 150, 401, ROWS), make(ZT_BF16, 0, 401, 130, COLS_PADDED),
                make(ZT_BF16, 0, 150, 130, ROWS), false); /* columns of even length */
    check_large(make(ZT_BF16, 0, 9, 3, ROWS), make(ZT_BF16, 0, 3, 7, ROWS),
                make(ZT_BF16, 0, 9, 7, ROWS), false);
    check_large(make(ZT_BF16, 0, 90, 256, ROWS_PADDED), make(ZT_BF16, 0, 256, 50, ROWS),
                make(ZT_BF16, 0, 90, 50, ROWS), false); /* rows alone are odd */
}

static void test_pairs_of_an_odd_k_do_not_see_the_next_row(void **state)
{
    struct matrix a = make(ZT_BF16, 0, 9, 129, ROWS_PADDED);
    struct matrix b = make(ZT_BF16, 0, 129, 50, ROWS);
    struct matrix c = make(ZT_BF16, 0, 9, 50, ROWS);
    struct zt_gemm_args g = args_of(&a, &b, &c);
    const float nan = NAN;

    (void)state;
    for (int64_t i = 0; i < 9; i++) /* what is between rows */
        zt_store_row((uint16_t *)a.mem + i * (129 + 5) + 129, ZT_BF16, 1, &nan, 1);
    assert_int_equal(zt_cpu_gemm(dev, NULL, &g, NULL), ZT_OK);
    for (int64_t i = 0; i < 9; i++)
        for (int64_t j = 0; j < 50; j++)
            assert_false(isnan(get(&g.c, 0, i, j)));
    ref_free(a.mem);
    ref_free(b.mem);
    ref_free(c.mem);
}

static void test_gradients_of_pairs_have_the_bits_of_others(void **state)
{
    struct matrix a = make(ZT_BF16, 0, 301, 2500, COLS);
    struct matrix b = make(ZT_BF16, 0, 2500, 410, ROWS);
    struct matrix c = make(ZT_F32, 0, 301, 410, ROWS),
                  other = make(ZT_F32, 0, 301, 410, ROWS);
    struct zt_gemm_args g = args_of(&a, &b, &c);

    (void)state;
    memcpy(other.mem, c.mem, c.bytes);
    g.accumulate = true;
    zt_gemm_use_panels(zt_panel_kernels_of_pairs() ? ZT_PANELS_ALWAYS : ZT_PANELS_NEVER);
    assert_int_equal(zt_cpu_gemm(dev, NULL, &g, NULL), ZT_OK);
    g.c = other.view;
    zt_gemm_use_panels(ZT_PANELS_NEVER);
    assert_int_equal(zt_cpu_gemm(dev, NULL, &g, NULL), ZT_OK);
    zt_gemm_use_panels(ZT_PANELS_ALWAYS);
    assert_memory_equal(other.mem, c.mem, c.bytes);
    ref_free(a.mem);
    ref_free(b.mem);
    ref_free(c.mem);
    ref_free(other.mem);
}

int main(void)
{
    const struct CMUnitTest with_pairs[] = {
        cmocka_unit_test(test_blocks_of_pairs),
        cmocka_unit_test(test_pairs_of_an_odd_k),
        cmocka_unit_test(test_pairs_of_an_odd_k_do_not_see_the_next_row),
        cmocka_unit_test(test_bias_and_gelu_match_the_reference),
        cmocka_unit_test(test_gradients_of_pairs_have_the_bits_of_others),
        cmocka_unit_test(test_what_counts_as_added_has_the_bits_of_sums_onto_zeros),
    };
    const struct CMUnitTest with_tiles[] = {
        cmocka_unit_test(test_every_layout_and_type_matches_the_reference),
        cmocka_unit_test(test_batches_with_strides_and_repeats_match),
        cmocka_unit_test(test_bias_and_gelu_match_the_reference),
        cmocka_unit_test(test_blocks_of_tiles),
        cmocka_unit_test(test_long_sums_of_bf16),
        cmocka_unit_test(test_sums_of_an_operand_match_the_reference),
        cmocka_unit_test(test_what_counts_as_added_has_the_bits_of_sums_onto_zeros),
        cmocka_unit_test(test_two_runs_give_the_same_bits),
    };
    const struct CMUnitTest skipped[] = {cmocka_unit_test(test_blocks_of_panels)};
    const struct CMUnitTest with_panels[] = {
        cmocka_unit_test(test_blocks_of_panels),
        cmocka_unit_test(test_rows_of_panels_have_the_bits_of_more_rows),
        cmocka_unit_test(test_every_layout_and_type_matches_the_reference),
        cmocka_unit_test(test_batches_with_strides_and_repeats_match),
        cmocka_unit_test(test_bias_and_gelu_match_the_reference),
        cmocka_unit_test(test_sums_of_an_operand_match_the_reference),
        cmocka_unit_test(test_pieces_of_widened_products_join),
        cmocka_unit_test(test_what_counts_as_added_has_the_bits_of_sums_onto_zeros),
        cmocka_unit_test(test_two_runs_give_the_same_bits),
    };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_layout_and_type_matches_the_reference),
        cmocka_unit_test(test_lone_rows_and_columns_match_in_every_layout),
        cmocka_unit_test(test_batches_with_strides_and_repeats_match),
        cmocka_unit_test(test_heads_inside_packed_rows_are_batches),
        cmocka_unit_test(test_bias_and_gelu_match_the_reference),
        cmocka_unit_test(test_weight_gradients_of_bf16_in_every_block),
        cmocka_unit_test(test_rows_a_multiple_of_2048_bytes_apart),
        cmocka_unit_test(test_long_sums_of_bf16),
        cmocka_unit_test(test_the_slope_of_a_gelu_matches_the_reference),
        cmocka_unit_test(test_the_backward_of_a_swiglu_has_the_bits_of_two_steps),
        cmocka_unit_test(test_sums_of_an_operand_match_the_reference),
        cmocka_unit_test(test_pieces_of_widened_products_join),
        cmocka_unit_test(test_an_empty_sum_is_the_bias),
        cmocka_unit_test(test_bad_arguments_are_refused),
        cmocka_unit_test(test_what_counts_as_added_has_the_bits_of_sums_onto_zeros),
        cmocka_unit_test(test_two_runs_give_the_same_bits),
    };

    int failed = cmocka_run_group_tests(tests, open_device, close_device);

    if (zt_cpu_features() & ZT_CPU_AVX512_BF16) /* what packs for tiles is there */
        failed += cmocka_run_group_tests(with_tiles, open_with_tiles, close_with_tiles);
    failed += cmocka_run_group_tests(with_pairs, open_with_pairs, close_with_panels);
    if (zt_cpu_features() & ZT_CPU_AVX512)
        failed +=
            cmocka_run_group_tests(with_panels, open_with_panels, close_with_panels);
    if (zt_cpu_features() & ZT_CPU_AVX2)
        failed +=
            cmocka_run_group_tests_name("with_panels by AVX2", with_panels,
                                        open_with_panels_by_avx2, close_with_panels);
    else /* which says that it is skipped */
        failed +=
            cmocka_run_group_tests_name("with_panels without AVX2", skipped, NULL, NULL);
    return failed;
}
