/* Choosing tokens: greedy, temperature, top-k and top-p, by frequencies and by bounds. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>

#include "worker/generate/sample.h"

#define N 6
static const float logits[N] = {0.5f, 2.0f, -1.0f, 2.0f, 1.0f, -3.0f};

/* How often each token comes when u walks evenly over [0, 1). */
static void frequencies(const struct zt_sampling *how, double out[N])
{
    struct zt_choice scratch[N];
    const int draws = 20000;

    for (int i = 0; i < N; i++)
        out[i] = 0;
    for (int i = 0; i < draws; i++) {
        int32_t id = zt_sample_token(logits, N, how, (i + 0.5) / draws, scratch);

        assert_in_range(id, 0, N - 1);
        out[id] += 1.0 / draws;
    }
}

static double softmax(int i, double temperature)
{
    double sum = 0;

    for (int k = 0; k < N; k++)
        sum += exp(logits[k] / temperature);
    return exp(logits[i] / temperature) / sum;
}

static void test_greedy_takes_the_first_of_the_largest(void **state)
{
    struct zt_sampling how = {.temperature = 0, .top_p = 1};
    struct zt_choice scratch[N];

    (void)state;
    assert_int_equal(zt_sample_token(logits, N, &how, 0.99, scratch), 1);
}

static void test_frequencies_follow_softmax_with_temperature(void **state)
{
    const double temperatures[] = {0.5, 1, 3};
    double f[N];

    (void)state;
    for (int t = 0; t < 3; t++) {
        struct zt_sampling how = {.temperature = temperatures[t], .top_p = 1};

        frequencies(&how, f);
        for (int i = 0; i < N; i++)
            assert_true(fabs(f[i] - softmax(i, temperatures[t])) < 1e-3);
    }
}

static void test_top_k_keeps_exactly_k(void **state)
{
    struct zt_sampling how = {.temperature = 1, .top_p = 1, .top_k = 3};
    double f[N];

    (void)state;
    frequencies(&how, f);
    assert_true(f[1] > 0 && f[3] > 0 && f[4] > 0);
    assert_true(f[0] == 0 && f[2] == 0 && f[5] == 0);
    assert_true(fabs(f[1] - f[3]) < 1e-3);
}

/* As a warper of transformers, which removes what is below the k-th. */
static void test_what_equals_the_last_of_top_k_stays(void **state)
{
    struct zt_sampling how = {.temperature = 1, .top_p = 1, .top_k = 1};
    struct zt_choice scratch[N];

    (void)state;
    assert_int_equal(zt_sample_candidates(logits, N, &how, scratch), 2);
    assert_int_equal(scratch[0].id, 1);
    assert_int_equal(scratch[1].id, 3);
}

static void test_cuts_keep_as_many_as_are_wanted(void **state)
{
    struct zt_sampling how = {.temperature = 1, .top_p = 0, .top_k = 1, .min_kept = 4};
    struct zt_choice scratch[N];

    (void)state;
    assert_int_equal(zt_sample_candidates(logits, N, &how, scratch), 4);
    assert_int_equal(scratch[3].id, 0);
    how.top_p = 1;
    assert_int_equal(zt_sample_candidates(logits, N, &how, scratch), 4);
}

/* Whatever the order that quickselect finds them in. */
static void test_top_k_is_that_of_a_sorted_list(void **state)
{
    enum { MANY = 200 };
    float x[MANY];
    struct zt_choice scratch[MANY], all[MANY];
    uint64_t seed = 3;

    (void)state;
    for (int round = 0; round < 300; round++) {
        struct zt_sampling how = {.temperature = 1, .top_p = 1};
        int64_t n = 1 + round % MANY, k = 1 + round * 7 % n, kept;

        for (int64_t i = 0; i < n; i++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            x[i] = (float)((seed >> 33) % 50) / 10; /* many are equal */
        }
        assert_int_equal(zt_sample_candidates(x, n, &how, all), n);
        how.top_k = k;
        kept = zt_sample_candidates(x, n, &how, scratch);
        assert_true(kept >= k);
        for (int64_t i = 0; i < n; i++) {
            if (i < kept)
                assert_int_equal(scratch[i].id, all[i].id);
            assert_true((all[i].p >= all[k - 1].p) == (i < kept));
        }
    }
}

static void test_top_p_keeps_the_fewest_that_reach_it(void **state)
{
    double two = softmax(1, 1) + softmax(3, 1), f[N];
    struct zt_sampling how = {.temperature = 1, .top_p = two - 0.01};

    (void)state;
    frequencies(&how, f);
    assert_true(f[1] > 0 && f[3] > 0 && f[4] == 0);
    how.top_p = two + 0.01;
    frequencies(&how, f);
    assert_true(f[4] > 0 && f[0] == 0);
    how.top_p = 0; /* never empty: the most likely stays */
    frequencies(&how, f);
    assert_true(f[1] == 1 || fabs(f[1] - 1) < 1e-9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_greedy_takes_the_first_of_the_largest),
        cmocka_unit_test(test_frequencies_follow_softmax_with_temperature),
        cmocka_unit_test(test_top_k_keeps_exactly_k),
        cmocka_unit_test(test_what_equals_the_last_of_top_k_stays),
        cmocka_unit_test(test_cuts_keep_as_many_as_are_wanted),
        cmocka_unit_test(test_top_k_is_that_of_a_sorted_list),
        cmocka_unit_test(test_top_p_keeps_the_fewest_that_reach_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
