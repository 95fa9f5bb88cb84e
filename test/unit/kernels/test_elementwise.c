#include "test/unit/kernels/ref.h"

#include "kernels/cpu/elementwise/activation.h"

static const int64_t sizes[] = {1, 15, 1024, 1025, 20011};
#define NUM_SIZES 5

/* ---- activations ---- */

static double act(zt_unary kind, double x)
{
    switch (kind) {
    case ZT_U_GELU_TANH:
        return x / 2 * (1 + tanh(sqrt(2 / acos(-1)) * (x + 0.044715 * x * x * x)));
    case ZT_U_GELU_ERF:
        return x / 2 * erfc(-x / sqrt(2));
    case ZT_U_SILU:
        return x / (1 + exp(-x));
    case ZT_U_RELU:
        return x > 0 ? x : 0;
    default:
        return tanh(x);
    }
}

struct point {
    zt_unary kind;
    double x;
};

static double act_at(void *ctx)
{
    const struct point *p = ctx;

    return act(p->kind, p->x);
}

static double act_slope(zt_unary kind, double x)
{
    struct point p = {kind, x};

    if (kind == ZT_U_RELU)
        return x > 0; /* a difference across 0 would see the corner */
    return ref_slope(act_at, &p, &p.x);
}

static void check_unary(struct zt_device *dev, zt_unary kind, zt_dtype dtype, int64_t n)
{
    struct arr x = arr_1(dtype, n, -6, 6), y = arr_1(dtype, n, 0, 1),
               dy = arr_1(dtype, n, -1, 1), dx = arr_1(dtype, n, -1, 1);
    struct zt_unary_args f = {kind, x.v, y.v};
    struct zt_unary_bwd_args b = {kind, dy.v, x.v, dx.v, false};

    REF_RUN(dev, unary, &f);
    for (int64_t i = 0; i < n; i++)
        ref_close("y", &y.v, i, act(kind, x.d[i]), 1e-6);
    for (int acc = 0; acc < 2; acc++) {
        b.accumulate = acc;
        arr_restore(&dx);
        REF_RUN(dev, unary_bwd, &b);
        for (int64_t i = 0; i < n; i++)
            ref_close("dx", &dx.v, i,
                      dy.d[i] * act_slope(kind, x.d[i]) + (acc ? dx.d[i] : 0), 2e-6);
    }
    arr_free(&x);
    arr_free(&y);
    arr_free(&dy);
    arr_free(&dx);
}

static void test_activations_and_their_slopes(void **state)
{
    struct zt_device *dev = ref_open(2);

    (void)state;
    for (int kind = ZT_U_GELU_TANH; kind <= ZT_U_TANH; kind++)
        for (int d = 0; d < 3; d++)
            for (int i = 0; i < NUM_SIZES; i++)
                check_unary(dev, (zt_unary)kind, ref_floats[d], sizes[i]);
    zt_cpu_backend.close(dev);
}

static void test_activations_far_out_are_finite(void **state)
{
    struct zt_device *dev = ref_open(1);
    const double far[] = {-3e38, -1e20, -200, -90, 90, 200, 1e20, 3e38};
    struct arr x = arr_1(ZT_F32, 8, 0, 1), y = arr_1(ZT_F32, 8, 0, 1),
               dy = arr_1(ZT_F32, 8, 1, 1);

    (void)state;
    for (int64_t i = 0; i < 8; i++)
        ref_put(&x, i, far[i]);
    for (int kind = ZT_U_GELU_TANH; kind <= ZT_U_TANH; kind++) {
        struct zt_unary_args f = {(zt_unary)kind, x.v, y.v};
        struct zt_unary_bwd_args b = {(zt_unary)kind, dy.v, x.v, y.v, false};

        REF_RUN(dev, unary, &f);
        for (int64_t i = 0; i < 8; i++)
            ref_close("y", &y.v, i,
                      kind == ZT_U_TANH ? (i < 4 ? -1 : 1)
                      : i < 4           ? 0
                                        : far[i],
                      1e-30);
        REF_RUN(dev, unary_bwd, &b);
        for (int64_t i = 0; i < 8; i++)
            ref_close("slope", &y.v, i, kind != ZT_U_TANH && i >= 4, 1e-30);
    }
    arr_free(&x);
    arr_free(&y);
    arr_free(&dy);
    zt_cpu_backend.close(dev);
}

static void test_activations_of_nan_and_their_slopes_are_nan(void **state)
{
    const float x[2] = {NAN, -NAN};
    float y[2], slope[2];

    (void)state;
    for (int kind = ZT_U_GELU_TANH; kind <= ZT_U_TANH; kind++) {
        zt_tile_activate((zt_unary)kind, y, x, 2);
        assert_true(isnan(y[0]) && isnan(y[1]));
        zt_tile_activate_slope((zt_unary)kind, y, slope, x, 2);
        assert_true(isnan(y[0]) && isnan(y[1]));
        if (kind != ZT_U_RELU)
            assert_true(isnan(slope[0]) && isnan(slope[1]));
    }
}

/* ---- gated units: gate and up are halves of one matrix ---- */

static void check_glu(struct zt_device *dev, zt_unary kind, zt_dtype dtype, int64_t rows,
                      int64_t cols, bool accumulate)
{
    struct arr both = arr_2(dtype, rows, 2 * cols, -4, 4),
               y = arr_2(dtype, rows, cols, 0, 1), dy = arr_2(dtype, rows, cols, -1, 1),
               dboth = arr_2(dtype, rows, 2 * cols, -1, 1);
    struct zt_view half[2] = {both.v, both.v}, dhalf[2] = {dboth.v, dboth.v};
    size_t bytes = zt_dtype_bytes(dtype);

    for (int k = 0; k < 2; k++) {
        half[k].shape[1] = dhalf[k].shape[1] = cols;
        half[k].data = (char *)both.v.data + (size_t)(k * cols) * bytes;
        dhalf[k].data = (char *)dboth.v.data + (size_t)(k * cols) * bytes;
    }
    struct zt_glu_args f = {kind, half[0], half[1], y.v};
    struct zt_glu_bwd_args b = {kind,     dy.v,     half[0],    half[1],
                                dhalf[0], dhalf[1], accumulate, accumulate};
    REF_RUN(dev, glu, &f);
    REF_RUN(dev, glu_bwd, &b);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++) {
            int64_t g = r * 2 * cols + c, u = g + cols, i = r * cols + c;
            double dgate = dy.d[i] * both.d[u] * act_slope(kind, both.d[g]);
            double dup = dy.d[i] * act(kind, both.d[g]);

            ref_close("y", &y.v, i, act(kind, both.d[g]) * both.d[u], 4e-6);
            ref_close("dgate", &dboth.v, g, dgate + (accumulate ? dboth.d[g] : 0), 4e-6);
            ref_close("dup", &dboth.v, u, dup + (accumulate ? dboth.d[u] : 0), 4e-6);
        }
    arr_free(&both);
    arr_free(&y);
    arr_free(&dy);
    arr_free(&dboth);
}

static void test_gated_units_and_their_slopes(void **state)
{
    struct zt_device *dev = ref_open(2);

    (void)state;
    for (int d = 0; d < 3; d++)
        for (int acc = 0; acc < 2; acc++) {
            check_glu(dev, ZT_U_SILU, ref_floats[d], 3, 1100, acc);
            check_glu(dev, ZT_U_GELU_TANH, ref_floats[d], 7, 5, acc);
        }
    zt_cpu_backend.close(dev);
}

/* ---- a op b ---- */

static void check_binary(struct zt_device *dev, zt_binary kind, zt_dtype dtype,
                         int64_t rows, int64_t cols, bool accumulate)
{
    struct arr a = arr_2(dtype, rows, cols, -2, 2), b = arr_1(ZT_F32, cols, -2, 2),
               y = arr_2(dtype, rows, cols, -2, 2);
    struct zt_binary_args args = {kind, a.v, b.v, y.v, accumulate};

    REF_RUN(dev, binary, &args);
    for (int64_t i = 0; i < a.n; i++) {
        double v = kind == ZT_B_ADD ? a.d[i] + b.d[i % cols] : a.d[i] * b.d[i % cols];

        ref_close("y", &y.v, i, v + (accumulate ? y.d[i] : 0), 1e-6);
    }
    args.y = a.v; /* in place */
    args.accumulate = false;
    REF_RUN(dev, binary, &args);
    for (int64_t i = 0; i < a.n; i++)
        ref_close("a", &a.v, i,
                  kind == ZT_B_ADD ? a.d[i] + b.d[i % cols] : a.d[i] * b.d[i % cols],
                  1e-6);
    arr_free(&a);
    arr_free(&b);
    arr_free(&y);
}

static void test_binary_repeats_the_suffix(void **state)
{
    static const int64_t shape[][2] = {{1, 1},   {5000, 1}, {700, 3},
                                       {9, 512}, {9, 513},  {17, 2049}};
    struct zt_device *dev = ref_open(2);

    (void)state;
    for (int kind = 0; kind < 2; kind++)
        for (int d = 0; d < 3; d++)
            for (int i = 0; i < 6; i++)
                check_binary(dev, (zt_binary)kind, ref_floats[d], shape[i][0],
                             shape[i][1], i % 2);
    zt_cpu_backend.close(dev);
}

static void test_binary_refuses_what_is_no_suffix(void **state)
{
    struct zt_device *dev = ref_open(1);
    struct arr a = arr_2(ZT_F32, 4, 6, 0, 1), b = arr_1(ZT_F32, 4, 0, 1);
    struct zt_binary_args args = {ZT_B_ADD, a.v, b.v, a.v, false};

    (void)state;
    REF_REFUSES(dev, binary, &args, "binary: a (4, 6) f32 but b (4) f32");
    arr_free(&a);
    arr_free(&b);
    zt_cpu_backend.close(dev);
}

/* ---- alpha x + beta y ---- */

/* A view of `a` with its axes in another order: axis i of the view is order[i]. */
static struct zt_view permuted(const struct arr *a, const int order[3])
{
    struct zt_view v = a->v;

    for (int i = 0; i < 3; i++) {
        v.shape[i] = a->v.shape[order[i]];
        v.stride[i] = a->v.stride[order[i]];
    }
    return v;
}

static void check_axpby(struct zt_device *dev, zt_dtype xt, zt_dtype yt,
                        const int order[3], float alpha, float beta)
{
    const int64_t shape[3] = {3, 37, 1030};
    struct arr x = arr_new(xt, 3, shape, -2, 2);
    struct zt_view xv = permuted(&x, order);
    struct arr y = arr_new(yt, 3, xv.shape, -2, 2);
    struct zt_axpby_args args = {xv, y.v, alpha, beta};
    int64_t i = 0;

    if (beta == 0)
        for (int64_t k = 0; k < y.n; k++)
            ref_put(&y, k, NAN); /* must not be read */
    REF_RUN(dev, axpby, &args);
    for (int64_t a = 0; a < xv.shape[0]; a++)
        for (int64_t b = 0; b < xv.shape[1]; b++)
            for (int64_t c = 0; c < xv.shape[2]; c++, i++) {
                double from = x.d[a * xv.stride[0] + b * xv.stride[1] + c * xv.stride[2]];
                double old = beta != 0 ? (double)beta * y.d[i] : 0;

                ref_close("y", &y.v, i, (double)alpha * from + old, 1e-6);
            }
    arr_free(&x);
    arr_free(&y);
}

static void test_axpby_between_layouts_and_types(void **state)
{
    static const int order[][3] = {{0, 1, 2}, {1, 0, 2}, {0, 2, 1}, {2, 1, 0}};
    struct zt_device *dev = ref_open(2);

    (void)state;
    for (int x = 0; x < 3; x++)
        for (int y = 0; y < 3; y++)
            for (int i = 0; i < 4; i++)
                check_axpby(dev, ref_floats[x], ref_floats[y], order[i],
                            i == 1 ? 1.0f : 0.5f, i == 2 ? -1.5f : 0.0f);
    zt_cpu_backend.close(dev);
}

static void test_axpby_in_place_and_empty(void **state)
{
    struct zt_device *dev = ref_open(2);
    struct arr x = arr_1(ZT_BF16, 30001, -1, 1);
    struct zt_axpby_args args = {x.v, x.v, 0.25f, 0.5f};
    struct zt_view none = x.v;

    (void)state;
    REF_RUN(dev, axpby, &args);
    for (int64_t i = 0; i < x.n; i++)
        ref_close("x", &x.v, i, 0.75 * x.d[i], 1e-7);
    none.shape[0] = 0;
    args.x = args.y = none;
    REF_RUN(dev, axpby, &args);
    arr_free(&x);
    zt_cpu_backend.close(dev);
}

/* ---- fill ---- */

static void test_fill_sets_every_type(void **state)
{
    struct zt_device *dev = ref_open(2);

    (void)state;
    for (int dtype = 0; dtype < ZT_NUM_DTYPE; dtype++)
        for (int k = 0; k < 2; k++) {
            int64_t n = 70001;
            size_t bytes = zt_dtype_bytes((zt_dtype)dtype);
            char *mem = ref_alloc((size_t)n * bytes);
            struct zt_fill_args args = {zt_view_of(mem, (zt_dtype)dtype, 1, &n),
                                        k ? 3.0f : 0.0f};
            union {
                float f;
                uint16_t h;
                int32_t i;
                int64_t l;
                uint8_t b;
            } want = {.l = 0};

            assert_non_null(mem);
            if (k && dtype == ZT_F32)
                want.f = 3;
            else if (k && dtype == ZT_BF16)
                want.h = 0x4040;
            else if (k && dtype == ZT_F16)
                want.h = 0x4200;
            else if (k && dtype == ZT_I32)
                want.i = 3;
            else if (k && dtype == ZT_I64)
                want.l = 3;
            else if (k)
                want.b = 3;
            REF_RUN(dev, fill, &args);
            for (int64_t i = 0; i < n; i++)
                assert_memory_equal(mem + (size_t)i * bytes, &want, bytes);
            ref_free(mem);
        }
    zt_cpu_backend.close(dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_activations_and_their_slopes),
        cmocka_unit_test(test_activations_far_out_are_finite),
        cmocka_unit_test(test_activations_of_nan_and_their_slopes_are_nan),
        cmocka_unit_test(test_gated_units_and_their_slopes),
        cmocka_unit_test(test_binary_repeats_the_suffix),
        cmocka_unit_test(test_binary_refuses_what_is_no_suffix),
        cmocka_unit_test(test_axpby_between_layouts_and_types),
        cmocka_unit_test(test_axpby_in_place_and_empty),
        cmocka_unit_test(test_fill_sets_every_type),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
