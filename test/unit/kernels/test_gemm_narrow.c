/* Products whose operands have fewer bits: TF32 and fp8. */
#include "test/unit/kernels/gemm_matrix.h"

/*
 * TF32: far from the products of fp32, near those of operands with 10 bits of fraction.
 * The cpu and the shim round to nearest, a device may cut.
 */
static void test_tf32_rounds_operands_and_nothing_else(void **state)
{
    (void)state;
    for (int layout = 0; layout < 4; layout++) {
        struct matrix a = make(ZT_F32, 0, 48, 80, (enum layout)layout);
        struct matrix b = make(ZT_F32, 0, 80, 64, (enum layout)(3 - layout));
        struct matrix c = make(ZT_F32, 0, 48, 64, ROWS_PADDED);
        struct zt_gemm_args g = args_of(&a, &b, &c);
        double furthest = 0;

        g.tf32 = true;
        assert_int_equal(zt_cpu_gemm(dev, NULL, &g, NULL), ZT_OK);
        for (int64_t i = 0; i < 48; i++)
            for (int64_t j = 0; j < 64; j++) {
                double sum = 0, size = 0, off;

                for (int64_t k = 0; k < 80; k++) {
                    sum += get(&g.a, 0, i, k) * get(&g.b, 0, k, j);
                    size += fabs(get(&g.a, 0, i, k) * get(&g.b, 0, k, j));
                }
                off = fabs(get(&g.c, 0, i, j) - sum) / size;
                assert_true(off <= 0x1.1p-9); /* two operands, a whole step each */
                furthest = off > furthest ? off : furthest;
            }
        assert_true(furthest > 0x1p-15);
        g.tf32 = false;
        run_and_compare(&g, &c);
        ref_free(a.mem);
        ref_free(b.mem);
        ref_free(c.mem);
    }
}

static void test_tf32_keeps_what_has_ten_bits(void **state)
{
    /* 1 + 3/2 steps of TF32; and what must come out as it is */
    static const float odd = 1 + 0x1.8p-10f, kept[] = {1 + 0x1p-10f, -0x1.ffcp100f, 0};
    struct matrix a = make(ZT_F32, 0, 16, 16, ROWS), b = make(ZT_F32, 0, 16, 16, COLS);
    struct matrix c = make(ZT_F32, 0, 16, 16, ROWS);
    struct zt_gemm_args g = args_of(&a, &b, &c);
    float *x = a.mem, *y = b.mem, *z = c.mem;

    (void)state;
    g.tf32 = true;
    memset(x, 0, a.bytes);
    memset(y, 0, b.bytes);
    for (int i = 0; i < 16; i++)
        y[17 * i] = 1;
    for (int i = 0; i < 3; i++)
        x[17 * i] = kept[i];
    x[17 * 3] = odd;
    x[17 * 4] = (float)INFINITY;
    x[17 * 5 + 2] = (float)NAN;
    assert_int_equal(zt_cpu_gemm(dev, NULL, &g, NULL), ZT_OK);
    for (int i = 0; i < 3; i++)
        assert_true(z[17 * i] == kept[i]);
    assert_true(z[17 * 3] == 1 + 0x1p-9f || z[17 * 3] == 1 + 0x1p-10f);
    assert_true(z[17 * 4] == (float)INFINITY && isnan(z[16 * 4]));
    assert_true(isnan(z[17 * 5]) && isnan(z[17 * 5 + 2]));
    memset(x, 0x3e, a.bytes);
    memset(y, 0x3f, b.bytes);
    g.a.dtype = g.b.dtype = ZT_BF16; /* no difference */
    g.a.stride[0] = g.b.stride[1] = 16;
    run_and_compare(&g, &c);
    ref_free(a.mem);
    ref_free(b.mem);
    ref_free(c.mem);
}

/* ---- fp8 ---- */

#ifdef zt_cpu_gemm       /* ref.h: it stands for that of a device */
#define FP8_SUMS 0x1p-11 /* of the sum of magnitudes: tensor cores add up fewer bits */
#else
#define FP8_SUMS 1e-6
#endif

/* Codes (rows, cols) without NaN and infinity; K, axis `k`, lies in neighbours. */
static struct matrix make_codes(zt_dtype dtype, int64_t rows, int64_t cols, int k)
{
    int64_t ld = (k ? cols : rows) + 16, lines = k ? rows : cols;
    struct matrix m = {.bytes = (size_t)(ld * lines)};
    uint8_t *code;

    code = m.mem = ref_alloc(m.bytes);
    assert_non_null(code);
    for (size_t i = 0; i < m.bytes; i++)
        code[i] = (uint8_t)(draw() % 0x78 | (draw() & 0x80));
    m.view = zt_view_of(code, dtype, 2, (int64_t[]){rows, cols});
    m.view.stride[k] = 1;
    m.view.stride[1 - k] = ld;
    return m;
}

/* By rows or columns, with or without room between the lines. */
static struct matrix make_result(zt_dtype dtype, int64_t m, int64_t n, int kind)
{
    int64_t room = kind / 2 * 16;
    struct matrix c =
        kind % 2 ? make(dtype, 0, m + room, n, COLS) : make(dtype, 0, m, n + room, ROWS);

    c.view.shape[0] = m;
    c.view.shape[1] = n;
    return c;
}

static void compare_fp8(const struct zt_gemm_args *g, const struct zt_view *old)
{
    double scale = (double)*g->a_scale * (double)*g->b_scale * (double)g->alpha;
    int64_t depth = g->a.shape[1];

    for (int64_t i = 0; i < g->c.shape[0]; i++)
        for (int64_t j = 0; j < g->c.shape[1]; j++) {
            double sum = 0, size = 0, want, got = get(&g->c, 0, i, j);

            for (int64_t k = 0; k < depth; k++) {
                double p = get(&g->a, 0, i, k) * get(&g->b, 0, k, j) * scale;

                sum += p;
                size += fabs(p);
            }
            want = sum + (g->accumulate ? get(old, 0, i, j) : 0);
            if (g->bias.data)
                want += ref_get(&g->bias, j);
            if (g->epilogue != ZT_EPI_NONE) {
                near(get(&g->pre, 0, i, j), want,
                     2 * rounding(g->pre.dtype) + FP8_SUMS * size, "pre");
                want = gelu(want, g->epilogue);
            }
            near(got, want, 2 * rounding(g->c.dtype) + FP8_SUMS * size, "c");
        }
}

static void test_products_of_fp8_are_those_of_what_the_codes_mean(void **state)
{
    static const zt_dtype ab[3][2] = {
        {ZT_F8E4M3, ZT_F8E4M3}, {ZT_F8E5M2, ZT_F8E4M3}, {ZT_F8E4M3, ZT_F8E5M2}};
    float *scale = ref_alloc(2 * sizeof(float));

    (void)state;
    for (int k = 0; k < 36; k++) {
        int64_t m = 16 * (1 + draw() % 5), n = 16 * (1 + draw() % 5);
        int64_t depth = 16 * (1 + draw() % 9);
        struct matrix a = make_codes(ab[k % 3][0], m, depth, 1);
        struct matrix b = make_codes(ab[k % 3][1], depth, n, 0);
        struct matrix c = make_result(ref_floats[k / 3 % 3], m, n, k / 9);
        struct matrix pre = make(c.view.dtype, 0, m, n, ROWS);
        struct matrix bias = make(k % 2 ? c.view.dtype : ZT_F32, 0, 1, n, ROWS);
        struct zt_gemm_args g = args_of(&a, &b, &c);
        void *before = malloc(c.bytes);
        struct zt_view old = c.view;
        struct zt_fault fault = {0};

        assert_non_null(before);
        memcpy(before, c.mem, c.bytes);
        old.data = before;
        scale[0] = ab[k % 3][0] == ZT_F8E4M3 ? 0x1.3p-9f : 0x1.3p-16f;
        scale[1] = ab[k % 3][1] == ZT_F8E4M3 ? 0x1.5p-9f : 0x1.5p-16f;
        g.a_scale = scale;
        g.b_scale = scale + 1;
        g.alpha = k % 4 ? 1 : 0.75f;
        g.accumulate = k % 5 == 4;
        if (!g.accumulate && k % 3) {
            g.bias = zt_view_of(bias.mem, bias.view.dtype, 1, &n);
            g.epilogue = (zt_epilogue)(k % 7 % 3);
            g.pre = pre.view;
        }
        if (zt_cpu_gemm(dev, NULL, &g, &fault))
            fail_msg("%s", fault.text);
        compare_fp8(&g, &old);
        expect_gaps_untouched(&c, before);
        free(before);
        ref_free(a.mem);
        ref_free(b.mem);
        ref_free(c.mem);
        ref_free(pre.mem);
        ref_free(bias.mem);
    }
    ref_free(scale);
}

static void test_a_nan_code_is_a_nan_of_its_row(void **state)
{
    struct matrix a = make_codes(ZT_F8E4M3, 16, 32, 1);
    struct matrix b = make_codes(ZT_F8E4M3, 32, 16, 0);
    struct matrix c = make(ZT_BF16, 0, 16, 16, ROWS);
    struct zt_gemm_args g = args_of(&a, &b, &c);
    float *one = ref_alloc(sizeof(float));

    (void)state;
    *one = 0x1p-9f;
    g.a_scale = g.b_scale = one;
    ((uint8_t *)a.mem)[3 * g.a.stride[0] + 7] = 0x7f;
    assert_int_equal(zt_cpu_gemm(dev, NULL, &g, NULL), ZT_OK);
    for (int64_t i = 0; i < 256; i++)
        assert_int_equal(isnan(get(&g.c, 0, i / 16, i % 16)) != 0, i / 16 == 3);
    ref_free(a.mem);
    ref_free(b.mem);
    ref_free(c.mem);
    ref_free(one);
}

static void test_fp8_operands_come_as_tensor_cores_take_them(void **state)
{
    struct matrix a = make_codes(ZT_F8E4M3, 32, 48, 1);
    struct matrix b = make_codes(ZT_F8E4M3, 48, 16, 0);
    struct matrix c = make(ZT_BF16, 0, 32, 32, ROWS);
    struct zt_gemm_args good = args_of(&a, &b, &c), g;
    float one = 1;

    (void)state;
    good.c.shape[1] = 16;
    good.a_scale = good.b_scale = &one;
    g = good;
    g.a.dtype = g.b.dtype = ZT_F8E5M2;
    REF_REFUSES(dev, gemm, &g, "gemm: of two fp8 operands one must be e4m3");
    g = good;
    g.b_scale = NULL;
    REF_REFUSES(dev, gemm, &g, "gemm: fp8 operands without their scales");
    g = good;
    g.b.dtype = ZT_BF16;
    REF_REFUSES(dev, gemm, &g, "gemm: a (32, 48) f8e4m3 but b (48, 16) bf16");
    g = good;
    g.c.dtype = ZT_F8E4M3;
    REF_REFUSES(dev, gemm, &g, "gemm: c (32, 16) f8e4m3: want f32, bf16 or f16");
    g = good;
    g.a.shape[0] = g.c.shape[0] = 24;
    REF_REFUSES(dev, gemm, &g, "gemm: a (24, 48) f8e4m3: want 2 axes that 16 divides");
    g = good;
    g.b.stride[0] = 16;
    g.b.stride[1] = 1;
    REF_REFUSES(dev, gemm, &g,
                "gemm: b (48, 16) f8e4m3: want lines of neighbours that begin at "
                "multiples of 16 bytes");
    g = good;
    g.a.data = (char *)g.a.data + 8;
    REF_REFUSES(dev, gemm, &g,
                "gemm: a (32, 48) f8e4m3: want lines of neighbours that begin at "
                "multiples of 16 bytes");
    g = good;
    g.c.stride[0] = 20;
    REF_REFUSES(dev, gemm, &g,
                "gemm: c (32, 16) bf16: want lines of neighbours that begin at "
                "multiples of 16 bytes");
    g = good;
    g.a.dtype = g.b.dtype = ZT_BF16;
    REF_REFUSES(dev, gemm, &g, "gemm: scales are for fp8 operands");
    ref_free(a.mem);
    ref_free(b.mem);
    ref_free(c.mem);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tf32_rounds_operands_and_nothing_else),
        cmocka_unit_test(test_tf32_keeps_what_has_ten_bits),
        cmocka_unit_test(test_products_of_fp8_are_those_of_what_the_codes_mean),
        cmocka_unit_test(test_a_nan_code_is_a_nan_of_its_row),
        cmocka_unit_test(test_fp8_operands_come_as_tensor_cores_take_them),
    };

    return cmocka_run_group_tests(tests, open_device, close_device);
}
