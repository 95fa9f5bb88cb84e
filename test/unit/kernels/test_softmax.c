#include "test/unit/kernels/ref.h"

struct sm {
    struct arr x, y, dy, dx;
    int64_t rows, cols;
};

static double prob(const struct sm *t, int64_t row, int64_t col)
{
    const double *x = t->x.d + row * t->cols;
    double max = -INFINITY, sum = 0;

    for (int64_t c = 0; c < t->cols; c++)
        max = fmax(max, x[c]);
    for (int64_t c = 0; c < t->cols; c++)
        sum += exp(x[c] - max);
    return exp(x[col] - max) / sum;
}

static void check(struct zt_device *dev, zt_dtype dtype, int64_t rows, int64_t cols)
{
    struct sm t = {.rows = rows, .cols = cols};

    t.x = arr_2(dtype, rows, cols, -8, 8);
    t.y = arr_2(dtype, rows, cols, 0, 1);
    t.dy = arr_2(dtype, rows, cols, -1, 1);
    t.dx = arr_2(dtype, rows, cols, -1, 1);
    struct zt_softmax_args f = {t.x.v, t.y.v};
    REF_RUN(dev, softmax, &f);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c += 1 + cols / 50)
            ref_close("y", &t.y.v, r * cols + c, prob(&t, r, c), 1e-6);
    for (int acc = 0; acc < 2; acc++) {
        struct zt_softmax_bwd_args b = {t.dy.v, t.y.v, t.dx.v, acc};

        arr_restore(&t.dx);
        REF_RUN(dev, softmax_bwd, &b);
        for (int k = 0; k < REF_PROBES; k++) {
            int64_t i = ref_probe(k, t.x.n), row = i / cols;
            double dot = 0, y = ref_get(&t.y.v, i);

            for (int64_t c = row * cols; c < (row + 1) * cols; c++)
                dot += ref_get(&t.y.v, c) * t.dy.d[c];
            ref_close("dx", &t.dx.v, i, y * (t.dy.d[i] - dot) + (acc ? t.dx.d[i] : 0),
                      2e-6);
        }
    }
    arr_free(&t.x);
    arr_free(&t.y);
    arr_free(&t.dy);
    arr_free(&t.dx);
}

static void test_softmax_and_backward_are_the_reference(void **state)
{
    static const int64_t shape[][2] = {{1, 1}, {5, 3}, {70, 17}, {3, 1025}, {2, 4000}};
    struct zt_device *dev = ref_open(2);

    (void)state;
    for (int d = 0; d < 3; d++)
        for (int i = 0; i < 5; i++)
            check(dev, ref_floats[d], shape[i][0], shape[i][1]);
    zt_cpu_backend.close(dev);
}

/* dy . softmax(x), whose slope the backward kernel must give */
static double objective(void *ctx)
{
    const struct sm *t = ctx;
    double sum = 0;

    for (int64_t r = 0; r < t->rows; r++)
        for (int64_t c = 0; c < t->cols; c++)
            sum += t->dy.d[r * t->cols + c] * prob(t, r, c);
    return sum;
}

static void test_backward_is_the_slope_of_the_reference(void **state)
{
    struct zt_device *dev = ref_open(1);
    struct sm t = {.rows = 3, .cols = 19};

    (void)state;
    t.x = arr_2(ZT_F32, 3, 19, -2, 2);
    t.y = arr_2(ZT_F32, 3, 19, 0, 1);
    t.dy = arr_2(ZT_F32, 3, 19, -1, 1);
    t.dx = arr_2(ZT_F32, 3, 19, 0, 1);
    struct zt_softmax_args f = {t.x.v, t.y.v};
    struct zt_softmax_bwd_args b = {t.dy.v, t.y.v, t.dx.v, false};
    REF_RUN(dev, softmax, &f);
    REF_RUN(dev, softmax_bwd, &b);
    for (int64_t i = 0; i < t.x.n; i++)
        ref_close("dx", &t.dx.v, i, ref_slope(objective, &t, &t.x.d[i]), 1e-6);
    arr_free(&t.x);
    arr_free(&t.y);
    arr_free(&t.dy);
    arr_free(&t.dx);
    zt_cpu_backend.close(dev);
}

static void test_masked_entries_are_zero_and_nan_shows(void **state)
{
    struct zt_device *dev = ref_open(1);
    struct arr x = arr_2(ZT_F32, 1, 1100, -1, 1), y = arr_2(ZT_F32, 1, 1100, 0, 1);
    struct zt_softmax_args f = {x.v, y.v};

    (void)state;
    for (int64_t i = 0; i < 1099; i++)
        ref_put(&x, i, -INFINITY);
    REF_RUN(dev, softmax, &f);
    for (int64_t i = 0; i < 1099; i++)
        assert_true(ref_get(&y.v, i) == 0);
    assert_true(ref_get(&y.v, 1099) == 1);
    for (int64_t i = 0; i < 1099; i++)
        ref_put(&x, i, NAN);
    REF_RUN(dev, softmax, &f);
    assert_true(isnan(ref_get(&y.v, 1099))); /* a NaN is not hidden */
    arr_free(&x);
    arr_free(&y);
    zt_cpu_backend.close(dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_softmax_and_backward_are_the_reference),
        cmocka_unit_test(test_backward_is_the_slope_of_the_reference),
        cmocka_unit_test(test_masked_entries_are_zero_and_nan_shows),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
