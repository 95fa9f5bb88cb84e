#include "test/unit/kernels/ref.h"

#include "kernels/cpu/vmath.h"

/* Every STEPth float: all exponents, both signs. */
#define STEP 2003

/* Distance in units of the last place of fp32 at `want`. */
static double ulps(float got, double want)
{
    int e;

    if (isnan(want) || isinf((float)want))
        return (isnan(want) && isnan(got)) || got == (float)want ? 0 : 1e9;
    frexp(want, &e);
    return fabs((double)got - want) / ldexp(1, e - 24 < -149 ? -149 : e - 24);
}

static double worst(float (*f)(float), double (*ref)(double), float lo, float hi)
{
    double most = 0;

    for (uint64_t u = 0; u < 1ull << 32; u += STEP) {
        float x = zt_float_of_bits((uint32_t)u);

        if (x >= lo && x <= hi) {
            double e = ulps(f(x), ref((double)x));

            most = e > most ? e : most;
        }
    }
    return most;
}

static float exp_f(float x)
{
    return zt_exp(x);
}
static float exp_nonpositive_f(float x)
{
    return zt_exp_nonpositive(x);
}
static float sigmoid_f(float x)
{
    return zt_sigmoid(x);
}
static double sigmoid_d(double x)
{
    return 1 / (1 + exp(-x));
}
static float tanh_f(float x)
{
    return zt_tanh(x);
}
static float log_f(float x)
{
    return zt_log(x);
}
static float cdf_f(float x)
{
    float density;

    return zt_normal_cdf(x, &density);
}
static double cdf_d(double x)
{
    return 0.5 * erfc(-x / sqrt(2));
}
static float density_f(float x)
{
    float density;

    (void)zt_normal_cdf(x, &density);
    return density;
}
static double density_d(double x)
{
    return exp(-x * x / 2) / sqrt(2 * acos(-1));
}

static void within(const char *what, double got, double limit)
{
    if (!(got <= limit))
        fail_msg("%s: %.3f ulp, want at most %.3f", what, got, limit);
}

static void test_exp_is_within_its_error(void **state)
{
    (void)state;
    within("exp", worst(exp_f, exp, -INFINITY, INFINITY), 1.1);
    within("exp of x <= 0", worst(exp_nonpositive_f, exp, -87, 0), 1.1);
}

static void test_sigmoid_and_tanh_are_within_their_error(void **state)
{
    (void)state;
    within("sigmoid", worst(sigmoid_f, sigmoid_d, -86, INFINITY), 2.5);
    within("tanh", worst(tanh_f, tanh, -INFINITY, INFINITY), 2);
}

static void test_sums_of_one_and_a_power_are_those_of_exp(void **state)
{
    (void)state;
    for (uint64_t u = 0; u < 1ull << 32; u += STEP) {
        float x = zt_float_of_bits((uint32_t)u);

        if (x == x)
            assert_true(zt_one_plus_exp_minus(x) == 1.0f + zt_exp(-x));
    }
}

static void test_normal_distribution_is_within_its_error(void **state)
{
    (void)state;
    within("cdf", worst(cdf_f, cdf_d, -1, INFINITY), 8);
    within("cdf tail", worst(cdf_f, cdf_d, -5, -1), 8 + 25.0 / 4);
    within("density", worst(density_f, density_d, -3, 3), 6);
}

static void test_log_is_within_its_error(void **state)
{
    (void)state;
    within("log", worst(log_f, log, 0x1p-126f, 0x1.fffffep127f), 1);
}

static void test_sin_and_cos_of_turns(void **state)
{
    const double pi = acos(-1);

    (void)state;
    for (int i = 0; i < 1 << 24; i += 17) {
        float u = (float)i * 0x1p-24f, s, c;

        zt_sincos_turn(u, &s, &c);
        assert_true(fabs((double)s - sin(2 * pi * (double)u)) < 1.2e-7);
        assert_true(fabs((double)c - cos(2 * pi * (double)u)) < 1.2e-7);
    }
}

static void test_ends_and_nan(void **state)
{
    float density;

    (void)state;
    assert_true(zt_exp(-INFINITY) == 0 && zt_exp(INFINITY) == INFINITY);
    assert_true(zt_exp(0) == 1 && zt_exp_nonpositive(0) == 1);
    assert_true(zt_exp_nonpositive(-INFINITY) == 0 && zt_exp_nonpositive(-88) == 0);
    assert_true(zt_tanh(INFINITY) == 1 && zt_tanh(-INFINITY) == -1 && zt_tanh(0) == 0);
    assert_true(signbit(zt_tanh(-0.0f)));
    assert_true(zt_log(1) == 0);
    for (int i = 0; i < 2; i++) {
        float nan = i ? -NAN : NAN;

        assert_true(isnan(zt_exp(nan)) && isnan(zt_tanh(nan)) && isnan(zt_sigmoid(nan)));
        assert_true(isnan(zt_exp_nonpositive(nan)));
        assert_true(isnan(zt_normal_cdf(nan, &density)));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exp_is_within_its_error),
        cmocka_unit_test(test_sigmoid_and_tanh_are_within_their_error),
        cmocka_unit_test(test_sums_of_one_and_a_power_are_those_of_exp),
        cmocka_unit_test(test_normal_distribution_is_within_its_error),
        cmocka_unit_test(test_log_is_within_its_error),
        cmocka_unit_test(test_sin_and_cos_of_turns),
        cmocka_unit_test(test_ends_and_nan),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
