/* fp8: all codes against their definition in double, and matrices made of them. */
#include "test/unit/kernels/ref.h"

#include <float.h>

#include "kernels/fp8.h"

static struct zt_device *dev;

static int open_device(void **state)
{
    (void)state;
    dev = ref_open(2);
    return 0;
}

static int close_device(void **state)
{
    (void)state;
    zt_cpu_backend.close(dev);
    return 0;
}

/* ---- the definition ---- */

static const zt_dtype types[2] = {ZT_F8E4M3, ZT_F8E5M2};
static double values[2][256]; /* of all codes */

static int largest_code(int t)
{
    return t ? 0x7b : 0x7e;
}

static void make_table(void)
{
    for (int t = 0; t < 2; t++)
        for (int code = 0; code < 256; code++) {
            int fraction = t ? 2 : 3, bias = t ? 15 : 7;
            int e = (code & 0x7f) >> fraction, m = code & ((1 << fraction) - 1);
            double v = e ? ldexp(1 + ldexp(m, -fraction), e - bias)
                         : ldexp(m, 1 - bias - fraction);

            if ((code & 0x7f) > largest_code(t))
                v = t && m == 0 ? (double)INFINITY : (double)NAN;
            values[t][code] = code & 0x80 ? -v : v;
        }
}

/* The code nearest to x, of two the even one; by looking at all. */
static int nearest(double x, int t)
{
    int best = 0;

    if (!isfinite(x))
        return 0x7f;
    for (int code = 1; code <= largest_code(t); code++) {
        double d = fabs(values[t][code] - fabs(x)), b = fabs(values[t][best] - fabs(x));

        if (d < b || (d == b && code % 2 == 0))
            best = code;
    }
    return best | (signbit(x) ? 0x80 : 0);
}

static void test_codes_have_the_published_extremes(void **state)
{
    (void)state;
    assert_true(values[0][0x7e] == 448 && values[1][0x7b] == 57344);
    assert_true(values[0][0x08] == 0x1p-6 && values[1][0x04] == 0x1p-14);
    assert_true(values[0][0x01] == 0x1p-9 && values[1][0x01] == 0x1p-16);
    assert_true(values[0][0x38] == 1 && values[1][0x3c] == 1);
}

static void test_all_codes_go_there_and_back(void **state)
{
    (void)state;
    for (int t = 0; t < 2; t++)
        for (int code = 0; code < 256; code++) {
            float v = zt_float_of_f8((uint8_t)code, types[t]);

            if (isnan(values[t][code]))
                assert_true(isnan(v));
            else
                assert_true((double)v == values[t][code] &&
                            !signbit(v) == !(code & 0x80));
            assert_int_equal(zt_f8_of_float(v, types[t]), isfinite(v) ? code : 0x7f);
        }
}

/* ---- the kernel ---- */

struct made {
    uint8_t *y, *yt; /* NULL: not asked for */
    float *scale;
};

static struct made quantize(const struct zt_view *x, int t, bool with_y, bool with_yt)
{
    int64_t rows = x->shape[0], cols = x->shape[1];
    size_t n = (size_t)(rows * cols);
    struct made q = {.scale = ref_alloc(sizeof(float))};
    struct zt_quantize_args a = {.x = *x, .scale = q.scale};

    if (with_y) {
        q.y = ref_alloc(n);
        a.y = zt_view_of(q.y, types[t], 2, (int64_t[]){rows, cols});
    }
    if (with_yt) {
        q.yt = ref_alloc(n);
        a.yt = zt_view_of(q.yt, types[t], 2, (int64_t[]){cols, rows});
    }
    *q.scale = -1;
    REF_RUN(dev, quantize, &a);
    return q;
}

static void made_free(struct made *q)
{
    ref_free(q->y);
    ref_free(q->yt);
    ref_free(q->scale);
}

static double element(const struct zt_view *x, int64_t i, int64_t j)
{
    return ref_get(x, i * x->stride[0] + j * x->stride[1]);
}

/* Scale and every code, from amax as it is defined. */
static void check_codes(const struct zt_view *x, int t, const struct made *q)
{
    int64_t rows = x->shape[0], cols = x->shape[1];
    float amax = 0, factor;

    for (int64_t i = 0; i < rows * cols; i++) {
        float size = fabsf((float)element(x, i / cols, i % cols));

        amax = isfinite(size) && size > amax ? size : amax;
    }
    factor = amax > 0 ? (t ? 57344.0f : 448.0f) / amax : 1.0f;
    assert_true(*q->scale == 1.0f / factor);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++) {
            float v = (float)element(x, i, j) * factor;
            int want = nearest((double)v, t);

            if (q->y)
                assert_int_equal(q->y[i * cols + j], want);
            if (q->yt)
                assert_int_equal(q->yt[j * rows + i], want);
        }
}

/* All values of a type, what lies half-way between two and beside that, and the signs. */
static void test_every_value_rounds_to_the_nearest_code(void **state)
{
    (void)state;
    for (int t = 0; t < 2; t++) {
        int64_t n = 0;
        struct arr x = arr_2(ZT_F32, 2, 4 * 128, 0, 0);

        for (int code = 0; code < largest_code(t); code++) {
            double low = values[t][code], up = values[t][code + 1];
            float half = (float)((low + up) / 2);
            float four[] = {(float)low, half, nextafterf(half, 0),
                            nextafterf(half, 1e9f)};

            for (int k = 0; k < 4; k++, n++) {
                ref_put(&x, n, (double)four[k]);
                ref_put(&x, 512 + n, (double)-four[k]);
            }
        }
        ref_put(&x, 511, values[t][largest_code(t)]); /* amax: the factor is 1 */
        struct made q = quantize(&x.v, t, true, false);
        assert_true(*q.scale == 1);
        check_codes(&x.v, t, &q);
        made_free(&q);
        arr_free(&x);
    }
}

/* x with strides of its own: a window on a larger array, by rows, columns or neither. */
static void test_matrices_of_every_type_and_stride(void **state)
{
    static const int64_t sizes[] = {1, 7, 16, 63, 64, 65, 130, 192};

    (void)state;
    for (int k = 0; k < 96; k++) {
        int64_t rows = sizes[ref_below(8)], cols = sizes[ref_below(8)], one = k % 4 == 3;
        int64_t pad = k % 3 ? 0 : 5, t = k % 2;
        double size = ldexp(1, (int)ref_below(k % 5 == 4 ? 12 : 30) - 12);
        struct arr x = arr_2(ref_floats[k / 2 % 3], rows + pad, (cols + pad) * (1 + one),
                             -size, size);
        struct zt_view v = x.v;

        v.shape[0] = rows;
        v.shape[1] = cols;
        v.stride[1] = 1 + one;
        if (k % 4 == 2) { /* by columns */
            v.stride[1] = rows + pad;
            v.stride[0] = 1;
        }
        struct made q = quantize(&v, (int)t, k % 7 != 6, k % 7 != 5);
        check_codes(&v, (int)t, &q);
        made_free(&q);
        arr_free(&x);
    }
}

/* Larger than what the blocks of a grid do at once. */
static void test_a_large_matrix_and_its_transpose(void **state)
{
    struct arr x = arr_2(ZT_BF16, 700, 1040, -3, 3);

    (void)state;
    ref_put(&x, 699 * 1040 + 1039, 100); /* the last element is the largest */
    for (int t = 0; t < 2; t++) {
        struct made q = quantize(&x.v, t, true, true);

        check_codes(&x.v, t, &q);
        assert_int_equal(q.y[700 * 1040 - 1], largest_code(t));
        made_free(&q);
    }
    arr_free(&x);
}

static void test_what_is_not_finite_is_nan_and_no_amax(void **state)
{
    struct arr x = arr_2(ZT_F32, 16, 48, -1, 1);

    (void)state;
    ((float *)x.v.data)[3] = (float)INFINITY;
    ((float *)x.v.data)[100] = (float)-INFINITY;
    ((float *)x.v.data)[767] = (float)-NAN;
    for (int t = 0; t < 2; t++) {
        struct made q = quantize(&x.v, t, true, true);

        check_codes(&x.v, t, &q);
        assert_true(q.y[3] == 0x7f && q.y[100] == 0x7f && q.y[767] == 0x7f);
        assert_int_equal(q.yt[3 * 16], 0x7f);
        made_free(&q);
    }
    arr_free(&x);
}

static void test_zeros_and_the_smallest_numbers(void **state)
{
    struct arr x = arr_2(ZT_F32, 16, 16, 0, 0);
    struct made q = quantize(&x.v, 0, true, false);

    (void)state;
    assert_true(*q.scale == 1 && q.y[0] == 0 && q.y[255] == 0);
    made_free(&q);
    ref_put(&x, 9, 0x1p-149); /* its factor would be infinite */
    ref_put(&x, 10, -0x1p-120);
    q = quantize(&x.v, 0, true, false);
    assert_true(*q.scale == 0x1p-126f);
    assert_true(values[0][q.y[10]] == -0x1p6 && q.y[9] == 0 && q.y[8] == 0);
    made_free(&q);
    arr_free(&x);
}

static void test_bad_arguments_are_refused(void **state)
{
    struct arr x = arr_2(ZT_F32, 4, 6, -1, 1);
    uint8_t codes[24];
    float scale;
    struct zt_quantize_args good = {.x = x.v, .scale = &scale}, a;

    (void)state;
    good.y = zt_view_of(codes, ZT_F8E4M3, 2, (int64_t[]){4, 6});
    good.yt = zt_view_of(codes, ZT_F8E4M3, 2, (int64_t[]){6, 4});
    a = good;
    a.scale = NULL;
    REF_REFUSES(dev, quantize, &a, "quantize: scale is missing");
    a = good;
    a.y.dtype = ZT_U8;
    REF_REFUSES(dev, quantize, &a, "quantize: y (4, 6) u8: want one type of fp8");
    a = good;
    a.yt.dtype = ZT_F8E5M2;
    REF_REFUSES(dev, quantize, &a, "quantize: yt (6, 4) f8e5m2: want one type of fp8");
    a = good;
    a.yt.shape[0] = 4;
    REF_REFUSES(dev, quantize, &a,
                "quantize: yt (4, 4) f8e4m3: want the shape of x, or of its transpose");
    a = good;
    a.y.stride[0] = 8;
    REF_REFUSES(dev, quantize, &a, "quantize: y (4, 6) f8e4m3: want contiguous memory");
    a = good;
    a.y.data = a.yt.data = NULL;
    REF_REFUSES(dev, quantize, &a, "quantize: neither y nor yt is given");
    a = good;
    a.x.dtype = ZT_F8E4M3;
    REF_REFUSES(dev, quantize, &a, "quantize: x (4, 6) f8e4m3: want f32, bf16 or f16");
    arr_free(&x);
}

/* fp8 is for products alone. */
static void test_other_kernels_do_not_take_fp8(void **state)
{
    uint8_t *codes = ref_alloc(16);
    struct zt_fill_args fill = {.y = zt_view_of(codes, ZT_F8E4M3, 1, (int64_t[]){16}),
                                .value = 1};
    struct zt_unary_args unary = {ZT_U_RELU, fill.y, fill.y};

    (void)state;
    REF_REFUSES(dev, fill, &fill, "fill: unknown type");
    REF_REFUSES(dev, unary, &unary, "unary: x (16) f8e4m3: want f32, bf16 or f16");
    ref_free(codes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_codes_have_the_published_extremes),
        cmocka_unit_test(test_all_codes_go_there_and_back),
        cmocka_unit_test(test_every_value_rounds_to_the_nearest_code),
        cmocka_unit_test(test_matrices_of_every_type_and_stride),
        cmocka_unit_test(test_a_large_matrix_and_its_transpose),
        cmocka_unit_test(test_what_is_not_finite_is_nan_and_no_amax),
        cmocka_unit_test(test_zeros_and_the_smallest_numbers),
        cmocka_unit_test(test_bad_arguments_are_refused),
        cmocka_unit_test(test_other_kernels_do_not_take_fp8),
    };

    make_table();
    return cmocka_run_group_tests(tests, open_device, close_device);
}
