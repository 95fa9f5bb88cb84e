#include "test/unit/kernels/ref.h"

#define IGNORE (-100)

struct ce {
    struct arr x, target, loss, lse, dloss, dx;
    int64_t rows, classes;
    float smoothing;
};

static struct ce ce_new(zt_dtype dtype, int64_t rows, int64_t classes)
{
    struct ce t = {.rows = rows, .classes = classes};

    t.x = arr_2(dtype, rows, classes, -6, 6);
    t.target = arr_1(ZT_I32, rows, 0, (double)classes);
    t.loss = arr_new(ZT_F32, 0, NULL, 9, 10);
    t.lse = arr_1(ZT_F32, rows, 9, 10);
    t.dloss = arr_new(ZT_F32, 0, NULL, 0.3, 0.7);
    t.dx = arr_2(dtype, rows, classes, -1, 1);
    if (rows > 2)
        ref_put(&t.target, 1, IGNORE);
    return t;
}

static void ce_free(struct ce *t)
{
    arr_free(&t->x);
    arr_free(&t->target);
    arr_free(&t->loss);
    arr_free(&t->lse);
    arr_free(&t->dloss);
    arr_free(&t->dx);
}

static void ce_run(struct zt_device *dev, struct ce *t, bool accumulate)
{
    struct zt_cross_entropy_args f = {.logits = t->x.v,
                                      .targets = t->target.v,
                                      .loss = t->loss.v,
                                      .lse = t->lse.v,
                                      .ignore = IGNORE,
                                      .smoothing = t->smoothing};
    struct zt_cross_entropy_bwd_args b = {.logits = t->x.v,
                                          .targets = t->target.v,
                                          .lse = t->lse.v,
                                          .dloss = t->dloss.v,
                                          .dlogits = t->dx.v,
                                          .ignore = IGNORE,
                                          .accumulate = accumulate,
                                          .smoothing = t->smoothing};

    REF_RUN(dev, cross_entropy, &f);
    REF_RUN(dev, cross_entropy_bwd, &b);
}

static double row_lse(const struct ce *t, int64_t row)
{
    double max = -INFINITY, sum = 0;

    for (int64_t c = 0; c < t->classes; c++)
        max = fmax(max, t->x.d[row * t->classes + c]);
    for (int64_t c = 0; c < t->classes; c++)
        sum += exp(t->x.d[row * t->classes + c] - max);
    return max + log(sum);
}

static double row_mean(const struct ce *t, int64_t row)
{
    double sum = 0;

    for (int64_t c = 0; c < t->classes; c++)
        sum += t->x.d[row * t->classes + c];
    return sum / (double)t->classes;
}

static double ce_loss(void *ctx)
{
    const struct ce *t = ctx;
    double loss = 0;

    for (int64_t r = 0; r < t->rows; r++)
        if ((int)t->target.d[r] != IGNORE)
            loss += row_lse(t, r) -
                    (1 - (double)t->smoothing) *
                        t->x.d[r * t->classes + (int64_t)t->target.d[r]] -
                    (double)t->smoothing * row_mean(t, r);
    return loss;
}

static void check_ce(struct zt_device *dev, struct ce *t, bool accumulate)
{
    arr_restore(&t->dx);
    ce_run(dev, t, accumulate);
    ref_close("loss", &t->loss.v, 0, ce_loss(t), 2e-6 * (double)t->rows);
    for (int64_t r = 0; r < t->rows; r++)
        ref_close("lse", &t->lse.v, r, (int)t->target.d[r] == IGNORE ? 0 : row_lse(t, r),
                  2e-6);
    for (int k = 0; k < REF_PROBES + (int)t->rows; k++) {
        int64_t i = ref_probe(k, t->x.n), r = k - REF_PROBES;

        if (r >= 0 && (int)t->target.d[r] != IGNORE) /* the entry of every target */
            i = r * t->classes + (int64_t)t->target.d[r];
        double slope = t->dloss.d[0] * ref_slope(ce_loss, t, &t->x.d[i]);
        ref_close("dx", &t->dx.v, i, slope + (accumulate ? t->dx.d[i] : 0), 2e-6);
    }
}

static void test_cross_entropy_and_its_slope(void **state)
{
    static const int64_t shape[][2] = {{1, 1}, {3, 7}, {4, 1025}, {5, 3001}};
    struct zt_device *dev = ref_open(2);

    (void)state;
    for (int d = 0; d < 3; d++)
        for (size_t i = 0; i < sizeof(shape) / sizeof(shape[0]); i++) {
            struct ce t = ce_new(ref_floats[d], shape[i][0], shape[i][1]);

            check_ce(dev, &t, false);
            check_ce(dev, &t, true);
            t.smoothing = 0.1f;
            check_ce(dev, &t, false);
            check_ce(dev, &t, true);
            ce_free(&t);
        }
    zt_cpu_backend.close(dev);
}

/* Rows with room between them: the numbers of rows without, and the room as it was. */
static void test_rows_may_lie_apart(void **state)
{
    enum { ROWS = 5, CLASSES = 1029, APART = 1088 };
    struct zt_device *dev = ref_open(2);

    (void)state;
    for (int d = 0; d < 3; d++) {
        struct ce t = ce_new(ref_floats[d], ROWS, CLASSES);
        struct arr x = arr_2(ref_floats[d], ROWS, APART, 7, 8);
        struct ce apart = t;
        size_t width = zt_dtype_bytes(ref_floats[d]);
        float loss;

        for (int64_t r = 0; r < ROWS; r++)
            for (int64_t c = 0; c < CLASSES; c++)
                ref_put(&x, r * APART + c, t.x.d[r * CLASSES + c]);
        apart.x = x;
        apart.x.v.shape[1] = CLASSES;
        apart.dx = apart.x;
        ce_run(dev, &t, false);
        loss = *(float *)t.loss.v.data;
        ce_run(dev, &apart, false);
        assert_memory_equal(&loss, apart.loss.v.data, sizeof(loss));
        for (int64_t r = 0; r < ROWS; r++) {
            assert_memory_equal((char *)t.dx.v.data + (size_t)(r * CLASSES) * width,
                                (char *)x.v.data + (size_t)(r * APART) * width,
                                CLASSES * width);
            for (int64_t c = CLASSES; c < APART; c++)
                assert_true(ref_get(&x.v, r * APART + c) == x.d[r * APART + c]);
        }
        arr_free(&x);
        ce_free(&t);
    }
    zt_cpu_backend.close(dev);
}

static void test_ignored_rows_have_no_gradient(void **state)
{
    struct zt_device *dev = ref_open(1);
    struct ce t = ce_new(ZT_F32, 3, 1500);

    (void)state;
    ce_run(dev, &t, false);
    for (int64_t c = 0; c < t.classes; c++)
        assert_true(ref_get(&t.dx.v, t.classes + c) == 0);
    for (int64_t r = 0; r < t.rows; r++)
        ref_put(&t.target, r, IGNORE);
    ce_run(dev, &t, false);
    assert_true(ref_get(&t.loss.v, 0) == 0);
    ce_free(&t);
    zt_cpu_backend.close(dev);
}

static void test_gradient_in_place_of_logits(void **state)
{
    struct zt_device *dev = ref_open(2);
    struct ce t = ce_new(ZT_BF16, 5, 2049);
    struct arr apart;

    (void)state;
    ce_run(dev, &t, false);
    apart = arr_copy(&t.dx);
    arr_free(&t.dx);
    t.dx.v = t.x.v;
    ce_run(dev, &t, false);
    assert_memory_equal(apart.v.data, t.x.v.data, arr_bytes(&apart));
    t.dx = apart;
    ce_free(&t);
    zt_cpu_backend.close(dev);
}

/* Loss and gradient at once, over the logits or beside them: the bits of two kernels. */
static void test_gradient_with_the_loss_has_the_same_bits(void **state)
{
    static const int64_t classes[] = {7, 1025, 5003};
    struct zt_device *dev = ref_open(2);

    (void)state;
    for (int i = 0; i < 12; i++) {
        struct ce t = ce_new(ref_floats[i % 3], 5, classes[i / 4]);
        struct zt_cross_entropy_args a;
        struct arr want, x = arr_copy(&t.x);
        float loss;

        t.smoothing = i & 1 ? 0.1f : 0;
        ce_run(dev, &t, false);
        want = arr_copy(&t.dx);
        loss = *(float *)t.loss.v.data;
        a = (struct zt_cross_entropy_args){.logits = x.v,
                                           .targets = t.target.v,
                                           .loss = t.loss.v,
                                           .lse = t.lse.v,
                                           .ignore = IGNORE,
                                           .smoothing = t.smoothing,
                                           .dlogits = i & 2 ? x.v : t.dx.v,
                                           .dloss = *(float *)t.dloss.v.data};
        arr_restore(&t.dx);
        REF_RUN(dev, cross_entropy, &a);
        assert_memory_equal(&loss, t.loss.v.data, sizeof(loss));
        assert_memory_equal(want.v.data, a.dlogits.data, arr_bytes(&want));
        arr_free(&want);
        arr_free(&x);
        ce_free(&t);
    }
    zt_cpu_backend.close(dev);
}

/* Padded products multiply what lies between rows: zeros then, by every way to write them. */
static void test_what_lies_between_rows_is_cleared_where_asked(void **state)
{
    enum { ROWS = 4, CLASSES = 1029, APART = 1088 };
    struct zt_device *dev = ref_open(2);

    (void)state;
    for (int i = 0; i < 9; i++) {
        struct ce t = ce_new(ref_floats[i % 3], ROWS, CLASSES);
        struct arr x = arr_2(ref_floats[i % 3], ROWS, APART, 7, 8);
        struct zt_cross_entropy_args a = {.targets = t.target.v,
                                          .loss = t.loss.v,
                                          .lse = t.lse.v,
                                          .ignore = IGNORE,
                                          .dloss = 1,
                                          .clear_between = true};
        struct zt_cross_entropy_bwd_args b = {.targets = t.target.v,
                                              .lse = t.lse.v,
                                              .dloss = t.dloss.v,
                                              .ignore = IGNORE,
                                              .made_for = i / 3 == 1 ? 1 : 0,
                                              .clear_between = true};

        a.logits = a.dlogits = b.logits = b.dlogits = x.v;
        a.logits.shape[1] = a.dlogits.shape[1] = CLASSES;
        b.logits.shape[1] = b.dlogits.shape[1] = CLASSES;
        if (i / 3 == 2)
            REF_RUN(dev, cross_entropy, &a);
        else
            REF_RUN(dev, cross_entropy_bwd, &b);
        for (int64_t r = 0; r < ROWS; r++)
            for (int64_t c = CLASSES; c < APART; c++)
                assert_true(ref_get(&x.v, r * APART + c) == 0);
        arr_free(&x);
        ce_free(&t);
    }
    zt_cpu_backend.close(dev);
}

/* What was made for another dloss is multiplied, or added so. */
static void test_a_gradient_that_was_made_is_rescaled(void **state)
{
    struct zt_device *dev = ref_open(2);

    (void)state;
    for (int i = 0; i < 6; i++) {
        struct ce t = ce_new(ref_floats[i % 3], 4, 1029);
        struct zt_cross_entropy_bwd_args b = {.logits = t.x.v,
                                              .targets = t.target.v,
                                              .lse = t.lse.v,
                                              .dloss = t.dloss.v,
                                              .dlogits = t.dx.v,
                                              .ignore = IGNORE,
                                              .accumulate = i / 3 > 0,
                                              .made_for = 4};

        REF_RUN(dev, cross_entropy_bwd, &b);
        for (int64_t k = 0; k < t.x.n; k++)
            if (i / 3 == 0 || k / t.classes != 1) /* the ignored row adds nothing */
                ref_close("dx", &t.dx.v, k,
                          t.x.d[k] * t.dloss.d[0] / 4 + (i / 3 ? t.dx.d[k] : 0), 1e-6);
        ce_free(&t);
    }
    zt_cpu_backend.close(dev);
}

static void test_huge_logits_do_not_overflow(void **state)
{
    struct zt_device *dev = ref_open(1);
    struct ce t = ce_new(ZT_F32, 1, 3000);

    (void)state;
    for (int64_t c = 0; c < t.classes; c++)
        ref_put(&t.x, c, c == 2500 ? 3e38 : c == 3 ? -INFINITY : -1e5);
    ref_put(&t.target, 0, 2500);
    ce_run(dev, &t, false);
    assert_true(ref_get(&t.loss.v, 0) == 0);
    for (int64_t c = 0; c < t.classes; c++)
        assert_true(ref_get(&t.dx.v, c) == 0);
    ce_free(&t);
    zt_cpu_backend.close(dev);
}

static void test_target_outside_the_classes_is_named(void **state)
{
    struct zt_device *dev = ref_open(1);
    struct ce t = ce_new(ZT_F32, 4, 10);
    struct zt_cross_entropy_args a = {.logits = t.x.v,
                                      .targets = t.target.v,
                                      .loss = t.loss.v,
                                      .lse = t.lse.v,
                                      .ignore = IGNORE};

    (void)state;
    ref_put(&t.target, 3, 10);
    REF_REFUSES(dev, cross_entropy, &a,
                "cross_entropy: target 10 in row 3 is outside [0, 10)");
    ref_put(&t.target, 3, -1);
    REF_REFUSES(dev, cross_entropy, &a,
                "cross_entropy: target -1 in row 3 is outside [0, 10)");
    ce_free(&t);
    zt_cpu_backend.close(dev);
}

static void test_cross_entropy_bits_do_not_depend_on_threads(void **state)
{
    struct ce t = ce_new(ZT_BF16, 37, 5000);
    float first = 0;
    struct arr dx = arr_copy(&t.dx);

    (void)state;
    for (int threads = 1; threads <= 3; threads++) {
        struct zt_device *dev = ref_open(threads);

        ce_run(dev, &t, false);
        if (threads == 1) {
            first = *(float *)t.loss.v.data;
            memcpy(dx.v.data, t.dx.v.data, arr_bytes(&dx));
        }
        assert_memory_equal(&first, t.loss.v.data, sizeof(first));
        assert_memory_equal(dx.v.data, t.dx.v.data, arr_bytes(&dx));
        zt_cpu_backend.close(dev);
    }
    arr_free(&dx);
    ce_free(&t);
}

/* ---- squared error ---- */

static void check_squared(struct zt_device *dev, zt_dtype dtype, int64_t n,
                          bool accumulate)
{
    struct arr x = arr_1(dtype, n, -1, 1), y = arr_1(dtype, n, -1, 1),
               dx = arr_1(dtype, n, -1, 1), dy = arr_1(dtype, n, -1, 1),
               loss = arr_1(ZT_F32, 1, 0, 1), dloss = arr_1(ZT_F32, 1, 0.2, 0.9);
    struct zt_squared_error_args f = {x.v, y.v, loss.v};
    struct zt_squared_error_bwd_args b = {x.v,  y.v,        dloss.v,   dx.v,
                                          dy.v, accumulate, accumulate};
    double sum = 0;

    REF_RUN(dev, squared_error, &f);
    REF_RUN(dev, squared_error_bwd, &b);
    for (int64_t i = 0; i < n; i++) {
        double slope = 2 * (x.d[i] - y.d[i]) * dloss.d[0];

        sum += (x.d[i] - y.d[i]) * (x.d[i] - y.d[i]);
        ref_close("dx", &dx.v, i, slope + (accumulate ? dx.d[i] : 0), 1e-6);
        ref_close("dy", &dy.v, i, -slope + (accumulate ? dy.d[i] : 0), 1e-6);
    }
    ref_close("loss", &loss.v, 0, sum, 1e-6 * sum);
    arr_free(&x);
    arr_free(&y);
    arr_free(&dx);
    arr_free(&dy);
    arr_free(&loss);
    arr_free(&dloss);
}

static void test_squared_error_and_its_slope(void **state)
{
    struct zt_device *dev = ref_open(2);

    (void)state;
    for (int d = 0; d < 3; d++)
        for (int acc = 0; acc < 2; acc++) {
            check_squared(dev, ref_floats[d], 1, acc);
            check_squared(dev, ref_floats[d], 1023, acc);
            check_squared(dev, ref_floats[d], 30001, acc);
        }
    zt_cpu_backend.close(dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cross_entropy_and_its_slope),
        cmocka_unit_test(test_rows_may_lie_apart),
        cmocka_unit_test(test_ignored_rows_have_no_gradient),
        cmocka_unit_test(test_gradient_in_place_of_logits),
        cmocka_unit_test(test_gradient_with_the_loss_has_the_same_bits),
        cmocka_unit_test(test_what_lies_between_rows_is_cleared_where_asked),
        cmocka_unit_test(test_a_gradient_that_was_made_is_rescaled),
        cmocka_unit_test(test_huge_logits_do_not_overflow),
        cmocka_unit_test(test_target_outside_the_classes_is_named),
        cmocka_unit_test(test_cross_entropy_bits_do_not_depend_on_threads),
        cmocka_unit_test(test_squared_error_and_its_slope),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
