/* The row kernels of attention at the level of instructions in use. */
#include "test/unit/kernels/ref.h"

#include "kernels/convert.h"
#include "kernels/cpu/attention/attention.h"

#define COLUMNS 400

struct rows {
    float s[COLUMNS], dp[COLUMNS], bias[COLUMNS], keep[COLUMNS];
};

/* Scores far below the largest, and one of -inf, among common ones. */
static void fill(struct rows *x)
{
    for (int i = 0; i < COLUMNS; i++) {
        x->s[i] = (float)(i * 37 % 101) - 50.0f - (i % 13 == 0 ? 600.0f : 0.0f);
        x->dp[i] = (float)(i * 29 % 83) / 83.0f - 0.5f;
        x->bias[i] = (float)(i * 17 % 11) / 11.0f;
        x->keep[i] = i % 9 == 0 ? 0.0f : 1.0f / 0.9f;
    }
    x->s[100] = -INFINITY;
}

static struct zt_score_row row_of(struct rows *x, int64_t lo, int64_t hi, bool to_bf16)
{
    return (struct zt_score_row){.s = x->s,
                                 .dp = x->dp,
                                 .scale = 0.25f,
                                 .bias = x->bias,
                                 .keep = x->keep,
                                 .n = COLUMNS,
                                 .lo = lo,
                                 .hi = hi,
                                 .to_bf16 = to_bf16};
}

static void check_rounded(const float *row, const float *exact)
{
    const uint16_t *got = (const uint16_t *)(const void *)row;

    uint16_t want[COLUMNS];

    zt_bf16_of_floats(want, exact, COLUMNS);
    assert_memory_equal(got, want, sizeof(want));
}

static void test_rows_of_bf16_are_those_of_fp32_rounded(void **state)
{
    static const int64_t seen[][2] = {{0, 400}, {0, 1}, {5, 383}, {130, 131}, {16, 32}};
    const struct zt_row_kernels *k = zt_row_kernels();

    (void)state;
    for (size_t i = 0; i < sizeof(seen) / sizeof(seen[0]); i++) {
        struct rows exact, half;
        struct zt_score_row r = row_of(&exact, seen[i][0], seen[i][1], false);
        struct zt_score_row h = row_of(&half, seen[i][0], seen[i][1], true);
        float max[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0};

        fill(&exact);
        fill(&half);
        k->softmax(&r, &max[0], &sum[0]);
        k->softmax(&h, &max[1], &sum[1]);
        assert_true(max[0] == max[1] && sum[0] == sum[1] && sum[0] > 0);
        check_rounded(half.s, exact.s);
        fill(&exact);
        fill(&half);
        k->grad(&r, 14.0f, 0.125f);
        k->grad(&h, 14.0f, 0.125f);
        check_rounded(half.s, exact.s);
        check_rounded(half.dp, exact.dp);
    }
}

static void test_softmax_and_its_gradient_match_double(void **state)
{
    const struct zt_row_kernels *k = zt_row_kernels();
    struct rows x, from;
    struct zt_score_row r = row_of(&x, 5, 383, false);
    float max = -INFINITY, sum = 0;

    (void)state;
    fill(&x);
    fill(&from);
    assert_true(k->softmax(&r, &max, &sum) == 0);
    for (int i = 0; i < COLUMNS; i++) {
        double y = 0.25 * (double)from.s[i] + (double)from.bias[i] - (double)max;
        double e = i < 5 || i >= 383 || y < -87 ? 0 : exp(y) * (double)from.keep[i];

        assert_true(fabs((double)x.s[i] - e) <= 2e-6 * e);
    }
    x = from;
    k->grad(&r, max, 0.125f);
    for (int i = 0; i < COLUMNS; i++) {
        double y = 0.25 * (double)from.s[i] + (double)from.bias[i] - (double)max;
        double p = i < 5 || i >= 383 || y < -87 ? 0 : exp(y);
        double g = p * ((double)from.dp[i] * (double)from.keep[i] - 0.125);

        assert_true(fabs((double)x.dp[i] - g) <= 4e-6 * p);
    }
}

static void test_extreme_scores_give_0_or_nan(void **state)
{
    const struct zt_row_kernels *k = zt_row_kernels();
    struct rows x;
    struct zt_score_row r = row_of(&x, 0, COLUMNS, false);
    float max = -INFINITY, sum = 0;

    (void)state;
    fill(&x);
    r.bias = NULL;
    x.s[1] = -3e38f;
    k->softmax(&r, &max, &sum);
    assert_true(x.s[1] == 0 && x.s[13] == 0 && x.s[100] == 0 && sum > 0);
    fill(&x);
    x.s[7] = NAN;
    max = -INFINITY;
    sum = 0;
    k->softmax(&r, &max, &sum);
    assert_true(isnan(x.s[7]) && isnan(sum) && max == 12.5f);
    for (int i = 0; i < COLUMNS; i++)
        x.s[i] = -INFINITY;
    max = -INFINITY;
    sum = 0;
    k->softmax(&r, &max, &sum);
    assert_true(max == -INFINITY && sum == 0 && x.s[0] == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_of_bf16_are_those_of_fp32_rounded),
        cmocka_unit_test(test_softmax_and_its_gradient_match_double),
        cmocka_unit_test(test_extreme_scores_give_0_or_nan),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
