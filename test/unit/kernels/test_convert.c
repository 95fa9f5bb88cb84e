#include "kernels/cpu/gemm/gemm.h"
#include "test/unit/kernels/ref.h"

/* The value a 16-bit pattern stands for, from its fields. */
static double value_of(uint16_t h, int fraction_bits, int exponent_bits)
{
    int exponent = h >> fraction_bits & ((1 << exponent_bits) - 1);
    int fraction = h & ((1 << fraction_bits) - 1), bias = (1 << (exponent_bits - 1)) - 1;
    double sign = h & 0x8000 ? -1 : 1;

    if (exponent == (1 << exponent_bits) - 1)
        return fraction ? NAN : sign * INFINITY;
    if (exponent == 0)
        return sign * ldexp(fraction, 1 - bias - fraction_bits);
    return sign * ldexp((1 << fraction_bits) + fraction, exponent - bias - fraction_bits);
}

static void widens_all(float (*one)(uint16_t),
                       void (*many)(float *, const uint16_t *, int64_t), int fraction,
                       int exponent)
{
    uint16_t *h = malloc(65536 * sizeof(*h));
    float *f = malloc(65536 * sizeof(*f));

    assert_non_null(h);
    assert_non_null(f);
    for (int i = 0; i < 65536; i++)
        h[i] = (uint16_t)i;
    many(f, h, 65536);
    for (int i = 0; i < 65536; i++) {
        double want = value_of(h[i], fraction, exponent);

        if (isnan(want)) {
            assert_true(isnan(f[i]));
        } else {
            assert_true((double)f[i] == want);
            assert_int_equal(signbit(f[i]) != 0, h[i] >> 15);
        }
        /* (a signalling NaN may become quiet in one form and not pass through another) */
        if (!isnan(want) || exponent == 5)
            assert_int_equal(zt_float_bits(f[i]), zt_float_bits(one(h[i])));
    }
    free(h);
    free(f);
}

static void test_every_bf16_widens_to_its_value(void **state)
{
    (void)state;
    widens_all(zt_float_of_bf16, zt_floats_of_bf16, 7, 8);
}

static void test_every_f16_widens_to_its_value(void **state)
{
    (void)state;
    widens_all(zt_float_of_f16, zt_floats_of_f16, 10, 5);
}

struct format {
    int fraction, exponent;
    uint16_t inf;
    uint16_t (*narrow)(float);
    void (*narrow_many)(uint16_t *, const float *, int64_t);
    void (*widen_many)(float *, const uint16_t *, int64_t);
};

static const struct format formats[] = {
    {7, 8, 0x7f80, zt_bf16_of_float, zt_bf16_of_floats, zt_floats_of_bf16},
    {10, 5, 0x7c00, zt_f16_of_float, zt_f16_of_floats, zt_floats_of_f16},
};

/* h is the nearest pattern to f, the even one of two equally near. */
static void is_nearest(const struct format *m, float f, uint16_t h)
{
    uint16_t mag = h & 0x7fff;
    /* the pattern of infinity stands for the next step above the largest number */
    double top = ldexp(1, 1 << (m->exponent - 1));
    double x = fabs((double)f), at, other;

    if (isnan(f)) {
        assert_true(mag > m->inf);
        assert_true(mag & 1u << (m->fraction - 1)); /* quiet */
        return;
    }
    assert_int_equal(h >> 15, signbit(f) != 0);
    assert_true(mag <= m->inf);
    at = mag == m->inf ? top : value_of(mag, m->fraction, m->exponent);
    if (isinf(f) || x > at) {
        if (mag == m->inf)
            return;
        other = mag + 1 == m->inf
                    ? top
                    : value_of((uint16_t)(mag + 1), m->fraction, m->exponent);
    } else if (x < at) {
        other = value_of((uint16_t)(mag - 1), m->fraction, m->exponent);
    } else {
        return;
    }
    assert_true(fabs(x - at) < fabs(x - other) ||
                (fabs(x - at) == fabs(x - other) && mag % 2 == 0));
}

#define SOME 4099

static void check_narrowing(const struct format *m, const uint32_t *bits, int64_t n)
{
    static float f[SOME];
    static uint16_t h[SOME];

    for (int64_t i = 0; i < n; i++)
        f[i] = zt_float_of_bits(bits[i]);
    m->narrow_many(h, f, n);
    for (int64_t i = 0; i < n; i++) {
        is_nearest(m, f[i], h[i]);
        assert_int_equal(h[i], m->narrow(f[i]));
    }
}

static void test_narrowing_goes_to_nearest_even(void **state)
{
    static uint32_t bits[SOME];

    (void)state;
    for (int k = 0; k < 2; k++)
        for (int round = 0; round < 60; round++) {
            for (int64_t i = 0; i < SOME; i++)
                bits[i] = (uint32_t)(ref_bits() >> 32);
            check_narrowing(&formats[k], bits, SOME);
        }
}

/* Every 16-bit value, the midpoint to its neighbour, and one bit to either side. */
static void test_narrowing_is_right_around_every_midpoint(void **state)
{
    static uint32_t bits[SOME];
    int64_t n = 0;

    (void)state;
    for (int k = 0; k < 2; k++) {
        for (int h = 0; h < 65536; h++) {
            uint16_t pair[2] = {(uint16_t)h, (uint16_t)(h + 1)};
            float f[2];

            formats[k].widen_many(f, pair, 2);
            float middle = (float)(((double)f[0] + (double)f[1]) / 2);
            bits[n++] = zt_float_bits(f[0]);
            for (int d = -1; d <= 1; d++)
                bits[n++] = zt_float_bits(middle) + (uint32_t)d;
            if (n + 4 > SOME || h == 65535) {
                check_narrowing(&formats[k], bits, n);
                n = 0;
            }
        }
    }
}

static void test_narrowing_of_the_edges(void **state)
{
    uint32_t bits[] = {0,          0x80000000, 1,          0x80000001, 0x007fffff,
                       0x00800000, 0x33000000, 0x33000001, 0x32ffffff, 0x387fe000,
                       0x387ff000, 0x38800000, 0x477fe000, 0x477fefff, 0x477ff000,
                       0x477fffff, 0x7f7fffff, 0x7f7f8000, 0x7f7f7fff, 0x7f800000,
                       0xff800000, 0x7f800001, 0x7fffffff, 0x7fc00000, 0xff800001};

    (void)state;
    for (int k = 0; k < 2; k++)
        check_narrowing(&formats[k], bits, (int64_t)(sizeof(bits) / sizeof(bits[0])));
    assert_int_equal(zt_bf16_of_float(zt_float_of_bits(0x7f7fffff)), 0x7f80);
    assert_int_equal(zt_f16_of_float(65519.99f), 0x7bff);
    assert_int_equal(zt_f16_of_float(65520), 0x7c00);
    assert_int_equal(zt_f16_of_float(0x1p-25f), 0);
    assert_int_equal(zt_bf16_of_float(zt_float_of_bits(1)), 0);
    assert_int_equal(zt_bf16_of_float(zt_float_of_bits(0x00018000)), 2);
}

static void test_16_bits_survive_the_round_trip(void **state)
{
    (void)state;
    for (int h = 0; h < 65536; h++) {
        if ((h & 0x7fff) <= 0x7f80)
            assert_int_equal(zt_bf16_of_float(zt_float_of_bf16((uint16_t)h)), h);
        if ((h & 0x7fff) <= 0x7c00)
            assert_int_equal(zt_f16_of_float(zt_float_of_f16((uint16_t)h)), h);
    }
}

/* Wherever a row begins and ends within lines, and nothing around it is touched. */
static void test_rows_past_the_caches_have_the_bits_of_others(void **state)
{
    enum { MOST = 1300 };
    static const zt_dtype dtypes[] = {ZT_F32, ZT_BF16, ZT_F16};
    static const int64_t lengths[] = {0, 1, 7, 31, 32, 33, 511, 512, 513, 1234};
    float src[MOST];
    char want[MOST * sizeof(float)], got[MOST * sizeof(float)];

    (void)state;
    for (int i = 0; i < MOST; i++)
        src[i] = (float)(i * 977 % 4099 - 2000) * 33.3f;
    for (int d = 0; d < 3; d++)
        for (int i = 0; i < 10; i++)
            for (size_t at = 0; at < 40; at += 3) {
                size_t offset = at * zt_dtype_bytes(dtypes[d]);

                memset(want, 0x5a, sizeof(want));
                memset(got, 0x5a, sizeof(got));
                zt_store_row(want + offset, dtypes[d], 1, src, lengths[i]);
                zt_stream_row(got + offset, dtypes[d], src, lengths[i]);
                zt_store_fence();
                assert_memory_equal(want, got, sizeof(got));
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_bf16_widens_to_its_value),
        cmocka_unit_test(test_every_f16_widens_to_its_value),
        cmocka_unit_test(test_narrowing_goes_to_nearest_even),
        cmocka_unit_test(test_narrowing_is_right_around_every_midpoint),
        cmocka_unit_test(test_narrowing_of_the_edges),
        cmocka_unit_test(test_16_bits_survive_the_round_trip),
        cmocka_unit_test(test_rows_past_the_caches_have_the_bits_of_others),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
