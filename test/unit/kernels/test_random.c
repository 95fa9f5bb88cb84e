#include "test/unit/kernels/ref.h"

#include "kernels/philox.h"

static const struct zt_philox key = {1234567890123u, 0x77, 5};

static void random_run(struct zt_device *dev, struct arr *y, struct zt_philox rng,
                       bool normal, float a, float b)
{
    struct zt_random_args args = {y->v, rng, normal, a, b};

    REF_RUN(dev, random, &args);
}

static void test_uniform_is_philox_element_by_element(void **state)
{
    struct zt_device *dev = ref_open(2);

    (void)state;
    for (int d = 0; d < 3; d++) {
        struct arr y = arr_1(ref_floats[d], 20011, 9, 10);

        random_run(dev, &y, key, false, -2, 3);
        for (int64_t i = 0; i < y.n; i++) {
            double u = (zt_philox_u32(key, (uint64_t)i) >> 8) * 0x1p-24;

            ref_close("y", &y.v, i, 5 * u - 2, 3e-7);
        }
        arr_free(&y);
    }
    zt_cpu_backend.close(dev);
}

static void test_normal_is_box_muller_of_neighbouring_words(void **state)
{
    struct zt_device *dev = ref_open(2);
    struct arr y = arr_1(ZT_F32, 20011, 9, 10);

    (void)state;
    random_run(dev, &y, key, true, 0.5f, 2);
    for (int64_t i = 0; i < y.n; i++) {
        uint64_t at = key.offset + (uint64_t)i;
        struct zt_philox abs_key = {key.seed, key.stream, 0};
        double u = ((zt_philox_u32(abs_key, at & ~1ull) >> 8) + 1) * 0x1p-24;
        double v = (zt_philox_u32(abs_key, at | 1) >> 8) * 0x1p-24;
        double turn = 2 * acos(-1) * v, radius = 2 * sqrt(-2 * log(u));

        ref_close("y", &y.v, i, 0.5 + radius * (at & 1 ? sin(turn) : cos(turn)), 4e-6);
    }
    arr_free(&y);
    zt_cpu_backend.close(dev);
}

static void test_normal_has_its_moments(void **state)
{
    struct zt_device *dev = ref_open(2);
    struct arr y = arr_1(ZT_F32, 400000, 9, 10);
    double m[5] = {0};

    (void)state;
    random_run(dev, &y, key, true, 0, 1);
    for (int64_t i = 0; i < y.n; i++)
        for (int k = 1; k <= 4; k++)
            m[k] += pow(ref_get(&y.v, i), k) / (double)y.n;
    assert_true(fabs(m[1]) < 0.01 && fabs(m[2] - 1) < 0.01);
    assert_true(fabs(m[3]) < 0.03 && fabs(m[4] - 3) < 0.08);
    arr_free(&y);
    zt_cpu_backend.close(dev);
}

/* Any piece, by any number of threads, has the values of the whole. */
static void test_a_piece_has_the_values_of_the_whole(void **state)
{
    struct arr whole = arr_1(ZT_F32, 30000, 0, 1), piece = arr_1(ZT_F32, 30000, 0, 1);

    (void)state;
    for (int normal = 0; normal < 2; normal++) {
        struct zt_device *dev = ref_open(1);

        random_run(dev, &whole, key, normal, 0, 1);
        zt_cpu_backend.close(dev);
        dev = ref_open(3);
        for (int64_t at = 0; at < whole.n;) {
            int64_t n = 1 + ref_below(9001);
            struct zt_philox rng = key;

            n = n < whole.n - at ? n : whole.n - at;
            struct arr part = {.v =
                                   zt_view_of((float *)piece.v.data + at, ZT_F32, 1, &n)};
            rng.offset += (uint64_t)at;
            random_run(dev, &part, rng, normal, 0, 1);
            at += n;
        }
        assert_memory_equal(whole.v.data, piece.v.data, arr_bytes(&whole));
        zt_cpu_backend.close(dev);
    }
    arr_free(&whole);
    arr_free(&piece);
}

static void check_dropout(struct zt_device *dev, zt_dtype dtype, float p, bool accumulate)
{
    struct arr x = arr_1(dtype, 20011, -2, 2), y = arr_1(dtype, 20011, -2, 2);
    struct zt_dropout_args a = {x.v, y.v, p, key, accumulate};
    int64_t kept = 0;

    REF_RUN(dev, dropout, &a);
    for (int64_t i = 0; i < x.n; i++) {
        bool keep = zt_philox_u32(key, (uint64_t)i) >= zt_philox_drop_below(p);
        double v = keep ? x.d[i] / (1 - (double)p) : 0;

        kept += keep;
        ref_close("y", &y.v, i, v + (accumulate ? y.d[i] : 0), 1e-6);
    }
    assert_true(fabs((double)kept / (double)x.n - (1 - (double)p)) < 0.02);
    a.y = x.v; /* in place */
    a.accumulate = false;
    REF_RUN(dev, dropout, &a);
    for (int64_t i = 0; i < x.n; i++)
        if (zt_philox_u32(key, (uint64_t)i) < zt_philox_drop_below(p))
            assert_true(ref_get(&x.v, i) == 0);
    arr_free(&x);
    arr_free(&y);
}

static void test_dropout_keeps_what_philox_says(void **state)
{
    struct zt_device *dev = ref_open(2);

    (void)state;
    for (int d = 0; d < 3; d++)
        for (int acc = 0; acc < 2; acc++) {
            check_dropout(dev, ref_floats[d], 0.1f, acc);
            check_dropout(dev, ref_floats[d], 0.75f, acc);
            check_dropout(dev, ref_floats[d], 0, acc);
        }
    zt_cpu_backend.close(dev);
}

static void test_dropout_drops_infinities_too(void **state)
{
    struct zt_device *dev = ref_open(1);
    struct arr x = arr_1(ZT_F32, 100, 0, 1), y = arr_1(ZT_F32, 100, 0, 1);
    struct zt_dropout_args a = {x.v, y.v, 0.5f, key, false};

    (void)state;
    for (int64_t i = 0; i < x.n; i++)
        ref_put(&x, i, INFINITY);
    REF_RUN(dev, dropout, &a);
    for (int64_t i = 0; i < x.n; i++)
        assert_false(isnan(ref_get(&y.v, i)));
    a.p = 1;
    REF_REFUSES(dev, dropout, &a, "dropout: p must be in [0, 1)");
    arr_free(&x);
    arr_free(&y);
    zt_cpu_backend.close(dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_uniform_is_philox_element_by_element),
        cmocka_unit_test(test_normal_is_box_muller_of_neighbouring_words),
        cmocka_unit_test(test_normal_has_its_moments),
        cmocka_unit_test(test_a_piece_has_the_values_of_the_whole),
        cmocka_unit_test(test_dropout_keeps_what_philox_says),
        cmocka_unit_test(test_dropout_drops_infinities_too),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
