#include "test/unit/kernels/ref.h"

/* One case of layer norm or RMS norm, and the arrays of both directions. */
struct norm {
    bool layer, add_one;
    int64_t rows, cols;
    struct arr x, w, b, y, mean, rstd, dy, dx, dw, db;
    struct zt_view add, sum; /* of forward, absent unless a test gives them */
    double eps;
};

static struct norm norm_new(bool layer, bool add_one, zt_dtype dtype, int64_t rows,
                            int64_t cols)
{
    struct norm t = {.layer = layer, .add_one = add_one, .rows = rows, .cols = cols};

    t.eps = 1e-5;
    t.x = arr_2(dtype, rows, cols, -2, 3);
    t.w = arr_1(dtype, cols, -1, 2);
    t.b = arr_1(dtype, cols, -1, 1);
    t.y = arr_2(dtype, rows, cols, 9, 10);
    t.mean = arr_1(ZT_F32, rows, 9, 10);
    t.rstd = arr_1(ZT_F32, rows, 9, 10);
    t.dy = arr_2(dtype, rows, cols, -1, 1);
    t.dx = arr_2(dtype, rows, cols, -1, 1);
    t.dw = arr_1(ZT_F32, cols, -1, 1);
    t.db = arr_1(ZT_F32, cols, -1, 1);
    return t;
}

static void norm_free(struct norm *t)
{
    struct arr *all[] = {&t->x,    &t->w,  &t->b,  &t->y,  &t->mean,
                         &t->rstd, &t->dy, &t->dx, &t->dw, &t->db};

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        arr_free(all[i]);
}

static void run_forward(struct zt_device *dev, struct norm *t, bool bias)
{
    struct zt_layernorm_args ln = {t->x.v,    t->w.v,        t->b.v, t->y.v, t->mean.v,
                                   t->rstd.v, (float)t->eps, t->add, t->sum};
    struct zt_rmsnorm_args rms = {t->x.v,        t->w.v,     t->y.v, t->rstd.v,
                                  (float)t->eps, t->add_one, t->add, t->sum};

    if (!bias)
        ln.b.data = NULL;
    if (t->layer)
        REF_RUN(dev, layernorm, &ln);
    else
        REF_RUN(dev, rmsnorm, &rms);
}

static void run_backward(struct zt_device *dev, struct norm *t, bool accumulate)
{
    struct zt_layernorm_bwd_args ln = {t->dy.v,    t->x.v,     t->w.v,    t->mean.v,
                                       t->rstd.v,  t->dx.v,    t->dw.v,   t->db.v,
                                       accumulate, accumulate, accumulate};
    struct zt_rmsnorm_bwd_args rms = {t->dy.v, t->x.v,     t->w.v,     t->rstd.v, t->dx.v,
                                      t->dw.v, t->add_one, accumulate, accumulate};

    if (t->layer)
        REF_RUN(dev, layernorm_bwd, &ln);
    else
        REF_RUN(dev, rmsnorm_bwd, &rms);
}

static void statistics(const struct norm *t, int64_t row, double *mean, double *rstd)
{
    const double *x = t->x.d + row * t->cols;
    double sq = 0;

    *mean = 0;
    for (int64_t c = 0; t->layer && c < t->cols; c++)
        *mean += x[c] / (double)t->cols;
    for (int64_t c = 0; c < t->cols; c++)
        sq += (x[c] - *mean) * (x[c] - *mean);
    *rstd = 1 / sqrt(sq / (double)t->cols + t->eps);
}

static double weight(const struct norm *t, int64_t c)
{
    return t->w.d[c] + (t->add_one ? 1 : 0);
}

/* sum dy * y in double: its slopes are the gradients */
static double objective(void *ctx)
{
    const struct norm *t = ctx;
    double total = 0, mean, rstd;

    for (int64_t r = 0; r < t->rows; r++) {
        statistics(t, r, &mean, &rstd);
        for (int64_t c = 0; c < t->cols; c++) {
            int64_t i = r * t->cols + c;
            double y = (t->x.d[i] - mean) * rstd * weight(t, c);

            total += t->dy.d[i] * (y + (t->layer ? t->b.d[c] : 0));
        }
    }
    return total;
}

static void check_forward(struct zt_device *dev, struct norm *t, bool bias)
{
    double mean, rstd;

    run_forward(dev, t, bias);
    for (int64_t r = 0; r < t->rows; r++) {
        statistics(t, r, &mean, &rstd);
        if (t->layer)
            ref_close("mean", &t->mean.v, r, mean, 1e-6);
        ref_close("rstd", &t->rstd.v, r, rstd, 2e-6 * rstd);
        for (int64_t c = 0; c < t->cols; c++) {
            double y = (t->x.d[r * t->cols + c] - mean) * rstd * weight(t, c);

            if (t->layer && bias)
                y += t->b.d[c];
            ref_close("y", &t->y.v, r * t->cols + c, y, 4e-6);
        }
    }
}

static void check_backward(struct zt_device *dev, struct norm *t, bool accumulate)
{
    arr_restore(&t->dx);
    arr_restore(&t->dw);
    arr_restore(&t->db);
    run_backward(dev, t, accumulate);
    for (int k = 0; k < REF_PROBES; k++) {
        int64_t i = ref_probe(k, t->x.n), c = ref_probe(k, t->cols);
        double old = accumulate ? 1 : 0;

        ref_close("dx", &t->dx.v, i,
                  old * t->dx.d[i] + ref_slope(objective, t, &t->x.d[i]), 2e-5);
        ref_close("dw", &t->dw.v, c,
                  old * t->dw.d[c] + ref_slope(objective, t, &t->w.d[c]), 1e-4);
        if (t->layer)
            ref_close("db", &t->db.v, c,
                      old * t->db.d[c] + ref_slope(objective, t, &t->b.d[c]), 1e-4);
    }
}

static void each_case(void (*fn)(struct zt_device *, struct norm *))
{
    static const int64_t shape[][2] = {{1, 1}, {3, 7}, {70, 33}, {5, 1025}, {2, 2500}};
    struct zt_device *dev = ref_open(2);

    for (int kind = 0; kind < 3; kind++)
        for (int d = 0; d < 3; d++)
            for (size_t i = 0; i < sizeof(shape) / sizeof(shape[0]); i++) {
                struct norm t = norm_new(kind == 0, kind == 2, ref_floats[d], shape[i][0],
                                         shape[i][1]);

                fn(dev, &t);
                norm_free(&t);
            }
    zt_cpu_backend.close(dev);
}

static void forward_case(struct zt_device *dev, struct norm *t)
{
    check_forward(dev, t, true);
    check_forward(dev, t, false);
}

static void test_forward_is_the_reference_in_double(void **state)
{
    (void)state;
    each_case(forward_case);
}

static void same_bits(const struct arr *got, const struct arr *want)
{
    assert_memory_equal(got->v.data, want->v.data, arr_bytes(want));
}

/* Where the sum goes: memory of its own, or over one of its terms. */
enum { OWN, OVER_X, OVER_ADD, NUM_PLACES };

/* t->dy serves as what is added, t->dx as the sum of two kernels. */
static void sum_case(struct zt_device *dev, struct norm *t)
{
    struct zt_binary_args add = {
        .kind = ZT_B_ADD, .a = t->x.v, .b = t->dy.v, .y = t->dx.v};
    struct arr x = arr_copy(&t->x), y, mean, rstd;

    REF_RUN(dev, binary, &add);
    memcpy(t->x.v.data, t->dx.v.data, arr_bytes(&t->dx));
    run_forward(dev, t, true);
    y = arr_copy(&t->y);
    mean = arr_copy(&t->mean);
    rstd = arr_copy(&t->rstd);
    for (int place = 0; place < NUM_PLACES; place++) {
        struct arr term = arr_copy(&t->dy), own = arr_copy(&t->y);
        struct arr *sum = place == OWN ? &own : place == OVER_X ? &t->x : &term;

        memcpy(t->x.v.data, x.v.data, arr_bytes(&x));
        arr_restore(&t->y);
        arr_restore(&t->mean);
        arr_restore(&t->rstd);
        t->add = term.v;
        t->sum = sum->v;
        run_forward(dev, t, true);
        same_bits(sum, &t->dx);
        same_bits(&t->y, &y);
        same_bits(&t->rstd, &rstd);
        same_bits(&t->mean, &mean); /* RMS norm: untouched in both */
        if (place != OVER_X)
            same_bits(&t->x, &x);
        if (place != OVER_ADD)
            same_bits(&term, &t->dy);
        arr_free(&own);
        arr_free(&term);
    }
    arr_free(&rstd);
    arr_free(&mean);
    arr_free(&y);
    arr_free(&x);
}

static void test_a_sum_has_the_bits_of_addition_then_norm(void **state)
{
    struct zt_device *dev = ref_open(3);

    (void)state;
    each_case(sum_case);
    for (int layer = 0; layer < 2; layer++) /* more than a block of a GPU holds at once */
        for (int d = 0; d < 3; d++) {
            struct norm t = norm_new(layer, false, ref_floats[d], 5, 20005 - 5 * d);

            sum_case(dev, &t);
            norm_free(&t);
        }
    zt_cpu_backend.close(dev);
}

static void backward_case(struct zt_device *dev, struct norm *t)
{
    if (t->cols == 1)
        return; /* the slope of a constant, through a rounding of 1/sqrt(eps) */
    run_forward(dev, t, true);
    check_backward(dev, t, false);
    check_backward(dev, t, true);
}

static void test_backward_is_the_slope_of_the_reference(void **state)
{
    (void)state;
    each_case(backward_case);
}

static void test_absent_gradients_are_not_needed(void **state)
{
    struct zt_device *dev = ref_open(1);
    struct norm t = norm_new(true, false, ZT_BF16, 4, 9);
    struct zt_layernorm_bwd_args a = {.dy = t.dy.v,
                                      .x = t.x.v,
                                      .w = t.w.v,
                                      .mean = t.mean.v,
                                      .rstd = t.rstd.v,
                                      .dx = t.dx.v};
    struct arr alone;

    (void)state;
    run_forward(dev, &t, true);
    REF_RUN(dev, layernorm_bwd, &a);
    alone = arr_copy(&t.dx);
    run_backward(dev, &t, false);
    assert_memory_equal(alone.v.data, t.dx.v.data, arr_bytes(&alone));
    arr_free(&alone);
    norm_free(&t);
    zt_cpu_backend.close(dev);
}

static void test_bits_do_not_depend_on_threads(void **state)
{
    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        struct norm t = norm_new(kind == 0, false, ZT_BF16, 331, 770);
        struct arr y = arr_copy(&t.y), dx = arr_copy(&t.dx), dw = arr_copy(&t.dw);

        for (int threads = 1; threads <= 3; threads++) {
            struct zt_device *dev = ref_open(threads);

            arr_restore(&t.dx);
            arr_restore(&t.dw);
            run_forward(dev, &t, true);
            run_backward(dev, &t, true);
            if (threads == 1) {
                memcpy(y.v.data, t.y.v.data, arr_bytes(&y));
                memcpy(dx.v.data, t.dx.v.data, arr_bytes(&dx));
                memcpy(dw.v.data, t.dw.v.data, arr_bytes(&dw));
            }
            assert_memory_equal(y.v.data, t.y.v.data, arr_bytes(&y));
            assert_memory_equal(dx.v.data, t.dx.v.data, arr_bytes(&dx));
            assert_memory_equal(dw.v.data, t.dw.v.data, arr_bytes(&dw));
            zt_cpu_backend.close(dev);
        }
        arr_free(&y);
        arr_free(&dx);
        arr_free(&dw);
        norm_free(&t);
    }
}

static void test_wrong_shapes_are_named(void **state)
{
    struct zt_device *dev = ref_open(1);
    struct norm t = norm_new(true, false, ZT_F32, 8, 768);
    struct arr w = arr_1(ZT_F32, 512, 0, 1);
    struct arr half = arr_2(ZT_BF16, 8, 768, 0, 1);
    struct zt_layernorm_args a = {.x = t.x.v,
                                  .w = w.v,
                                  .b = t.b.v,
                                  .y = t.y.v,
                                  .mean = t.mean.v,
                                  .rstd = t.rstd.v,
                                  .eps = 1e-5f};
    struct zt_rmsnorm_args rms = {
        .x = t.x.v, .w = t.w.v, .y = t.y.v, .rstd = t.rstd.v, .eps = 1e-5f};

    (void)state;
    REF_REFUSES(dev, layernorm, &a, "layernorm: x (8, 768) f32 but w (512) f32");
    a.w = t.w.v;
    a.add = t.dy.v;
    REF_REFUSES(dev, layernorm, &a, "layernorm: sum is missing");
    a.sum = half.v;
    REF_REFUSES(dev, layernorm, &a, "layernorm: sum (8, 768) bf16: want type f32");
    rms.add = w.v;
    rms.sum = t.dx.v;
    REF_REFUSES(dev, rmsnorm, &rms, "rmsnorm: x (8, 768) f32 but add (512) f32");
    rms.add = (struct zt_view){.data = NULL};
    REF_REFUSES(dev, rmsnorm, &rms, "rmsnorm: sum without add");
    a.y.data = NULL;
    REF_REFUSES(dev, layernorm, &a, "layernorm: y is missing");
    arr_free(&half);
    arr_free(&w);
    norm_free(&t);
    zt_cpu_backend.close(dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forward_is_the_reference_in_double),
        cmocka_unit_test(test_a_sum_has_the_bits_of_addition_then_norm),
        cmocka_unit_test(test_backward_is_the_slope_of_the_reference),
        cmocka_unit_test(test_absent_gradients_are_not_needed),
        cmocka_unit_test(test_bits_do_not_depend_on_threads),
        cmocka_unit_test(test_wrong_shapes_are_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
