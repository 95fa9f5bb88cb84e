#include "test/unit/kernels/ref.h"

static void check_colsum(struct zt_device *dev, zt_dtype dtype, int64_t rows,
                         int64_t cols, bool weighted, bool accumulate)
{
    struct arr x = arr_2(dtype, rows, cols, -1, 1), z = arr_2(dtype, rows, cols, -1, 1),
               y = arr_1(ZT_F32, cols, -1, 1);
    struct zt_colsum_args a = {x.v, z.v, y.v, accumulate};

    if (!weighted)
        a.z.data = NULL;
    REF_RUN(dev, colsum, &a);
    for (int64_t c = 0; c < cols; c++) {
        double sum = accumulate ? y.d[c] : 0;

        for (int64_t r = 0; r < rows; r++)
            sum += x.d[r * cols + c] * (weighted ? z.d[r * cols + c] : 1);
        ref_close("y", &y.v, c, sum, 1e-6 * (double)rows);
    }
    arr_free(&x);
    arr_free(&z);
    arr_free(&y);
}

static void test_colsum_is_the_reference(void **state)
{
    static const int64_t shape[][2] = {{1, 1}, {31, 5}, {33, 1025}, {2100, 130}};
    struct zt_device *dev = ref_open(2);

    (void)state;
    for (int d = 0; d < 3; d++)
        for (int i = 0; i < 4; i++)
            for (int k = 0; k < 4; k++)
                check_colsum(dev, ref_floats[d], shape[i][0], shape[i][1], k & 1, k & 2);
    zt_cpu_backend.close(dev);
}

static void test_colsum_of_no_rows_is_zero(void **state)
{
    struct zt_device *dev = ref_open(1);
    struct arr x = arr_2(ZT_F32, 0, 70, 0, 1), y = arr_1(ZT_F32, 70, 1, 2);
    struct zt_colsum_args a = {.x = x.v, .y = y.v};

    (void)state;
    REF_RUN(dev, colsum, &a);
    for (int64_t i = 0; i < 70; i++)
        assert_true(ref_get(&y.v, i) == 0);
    arr_free(&x);
    arr_free(&y);
    zt_cpu_backend.close(dev);
}

static void test_colsum_bits_do_not_depend_on_threads(void **state)
{
    struct arr x = arr_2(ZT_BF16, 5000, 200, -1, 1), y = arr_1(ZT_F32, 200, 0, 1),
               first = arr_1(ZT_F32, 200, 0, 1);

    (void)state;
    for (int threads = 1; threads <= 3; threads++) {
        struct zt_device *dev = ref_open(threads);
        struct zt_colsum_args a = {.x = x.v, .y = threads == 1 ? first.v : y.v};

        REF_RUN(dev, colsum, &a);
        if (threads > 1)
            assert_memory_equal(first.v.data, y.v.data, arr_bytes(&y));
        zt_cpu_backend.close(dev);
    }
    arr_free(&x);
    arr_free(&y);
    arr_free(&first);
}

static double *new_lanes(void)
{
    double *lanes = ref_alloc(ZT_NORM_LANES * sizeof(*lanes));

    assert_non_null(lanes);
    for (int i = 0; i < ZT_NORM_LANES; i++)
        lanes[i] = -1;
    return lanes;
}

static double added(const double *lanes)
{
    double sum = 0;

    for (int i = 0; i < ZT_NORM_LANES; i++)
        sum += lanes[i];
    return sum;
}

static double sumsq(struct zt_device *dev, float *x, int64_t n)
{
    double *lanes = new_lanes(), got;
    struct zt_sumsq_args a = {.x = zt_view_of(x, ZT_F32, 1, &n), .sums = lanes};

    REF_RUN(dev, sumsq, &a);
    got = added(lanes);
    ref_free(lanes);
    return got;
}

static void test_sumsq_is_the_sum_in_double(void **state)
{
    static const int64_t sizes[] = {0, 1, 31, 4096, 4097, 100003};
    struct zt_device *dev = ref_open(2);

    (void)state;
    for (int i = 0; i < 6; i++) {
        struct arr x = arr_1(ZT_F32, sizes[i], -3, 3);
        double want = 0;

        for (int64_t k = 0; k < x.n; k++)
            want += x.d[k] * x.d[k];
        assert_true(fabs(sumsq(dev, x.v.data, x.n) - want) <= 1e-13 * want);
        arr_free(&x);
    }
    zt_cpu_backend.close(dev);
}

enum { MANY_CHUNKS = ZT_NORM_LANES + 50 }; /* some lanes have two */

/* The rule that lets pieces be summed: a chunk by itself, in its lane, in order. */
static void test_sumsq_is_its_chunks_in_lanes(void **state)
{
    struct arr x = arr_1(ZT_F32, (MANY_CHUNKS - 1) * (int64_t)ZT_NORM_CHUNK + 17, -3, 3);
    double *want = calloc(ZT_NORM_LANES, sizeof(*want)), *got = new_lanes();
    struct zt_device *dev = ref_open(1);

    (void)state;
    assert_non_null(want);
    for (int64_t k = 0; k < MANY_CHUNKS; k++) {
        int64_t at = k * ZT_NORM_CHUNK,
                n = x.n - at < ZT_NORM_CHUNK ? x.n - at : ZT_NORM_CHUNK;

        want[(k + 7) % ZT_NORM_LANES] += sumsq(dev, (float *)x.v.data + at, n);
    }
    zt_cpu_backend.close(dev);
    for (int threads = 1; threads <= 3; threads++) {
        struct zt_sumsq_args a = {.x = x.v, .sums = got, .first = 7};

        dev = ref_open(threads);
        REF_RUN(dev, sumsq, &a);
        assert_memory_equal(want, got, ZT_NORM_LANES * sizeof(*want));
        zt_cpu_backend.close(dev);
    }
    free(want);
    ref_free(got);
    arr_free(&x);
}

/* Pieces of whole chunks, each added to the lanes of those before. */
static void test_sumsq_of_pieces_has_the_bits_of_the_whole(void **state)
{
    static const int64_t chunks[] = {3, 49, ZT_NORM_LANES - 1, ZT_NORM_LANES};
    struct arr x = arr_1(ZT_F32, (MANY_CHUNKS - 1) * (int64_t)ZT_NORM_CHUNK + 17, -3, 3);
    double *whole = new_lanes(), *lanes = new_lanes();
    struct zt_device *dev = ref_open(2);
    struct zt_sumsq_args all = {.x = x.v, .sums = whole};

    (void)state;
    REF_RUN(dev, sumsq, &all);
    for (int i = 0; i < 4; i++) {
        int64_t most = chunks[i] * ZT_NORM_CHUNK, n;

        for (int64_t at = 0; at < x.n; at += n) {
            struct zt_sumsq_args a = {
                .sums = lanes, .first = at / ZT_NORM_CHUNK, .accumulate = at > 0};

            n = x.n - at < most ? x.n - at : most;
            a.x = zt_view_of((float *)x.v.data + at, ZT_F32, 1, &n);
            REF_RUN(dev, sumsq, &a);
        }
        assert_memory_equal(whole, lanes, ZT_NORM_LANES * sizeof(*whole));
    }
    zt_cpu_backend.close(dev);
    ref_free(whole);
    ref_free(lanes);
    arr_free(&x);
}

static void test_sumsq_shows_what_is_not_finite(void **state)
{
    struct zt_device *dev = ref_open(2);
    struct arr x = arr_1(ZT_F32, 20000, -1, 1);
    float *f = x.v.data;

    (void)state;
    f[12345] = INFINITY;
    assert_true(isinf(sumsq(dev, f, x.n)));
    f[19999] = NAN;
    assert_true(isnan(sumsq(dev, f, x.n)));
    f[12345] = f[19999] = 3e38f; /* fp32 squares would overflow */
    assert_true(isfinite(sumsq(dev, f, x.n)));
    arr_free(&x);
    zt_cpu_backend.close(dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_colsum_is_the_reference),
        cmocka_unit_test(test_colsum_of_no_rows_is_zero),
        cmocka_unit_test(test_colsum_bits_do_not_depend_on_threads),
        cmocka_unit_test(test_sumsq_is_the_sum_in_double),
        cmocka_unit_test(test_sumsq_is_its_chunks_in_lanes),
        cmocka_unit_test(test_sumsq_of_pieces_has_the_bits_of_the_whole),
        cmocka_unit_test(test_sumsq_shows_what_is_not_finite),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
