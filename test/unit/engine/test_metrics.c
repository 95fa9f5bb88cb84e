/* Metrics of predictions: the numbers of scikit-learn and scipy on 1,000 random ones
 * (test/golden/make_metrics.py), counted in one piece or in several, and at their edges. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "worker/tasks/metrics.h"

enum { NUM = 1000 };

static struct zt_fault fault;
static uint64_t seed;

static int64_t next_random(void)
{
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (int64_t)(seed >> 33);
}

static void near(double got, double want)
{
    if (!(fabs(got - want) < 1e-12))
        fail_msg("%.15g, not %.15g", got, want);
}

static void count_random(struct zt_class_counts *c, int64_t num)
{
    static int64_t meant[NUM];

    seed = (uint64_t)num;
    assert_int_equal(zt_class_counts_open(c, num, &fault), ZT_OK);
    for (int i = 0; i < NUM; i++)
        meant[i] = next_random() % num;
    for (int i = 0; i < NUM; i++)
        zt_class_counts_add(c, next_random() % 3 ? meant[i] : next_random() % num,
                            meant[i]);
}

static void test_classes_have_the_scores_of_scikit_learn(void **state)
{
    static const struct {
        int64_t num;
        double accuracy, f1, macro, matthews;
    } want[] = {
        {2, 0.827, 0.823289070480082, 0.826923673339943, 0.65398142505002},
        {5, 0.745, 0.733850129198966, 0.744820206936495, 0.681358362281414},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(want) / sizeof(*want); i++) {
        struct zt_class_counts c;

        count_random(&c, want[i].num);
        near(zt_accuracy(&c), want[i].accuracy);
        near(zt_f1_of(&c, 1), want[i].f1);
        near(zt_f1_macro(&c), want[i].macro);
        near(zt_matthews(&c), want[i].matthews);
        zt_class_counts_close(&c);
    }
}

static void test_numbers_have_the_correlations_of_scipy(void **state)
{
    static double x[NUM], y[NUM];
    double r = 0;

    (void)state;
    seed = 9;
    for (int i = 0; i < NUM; i++)
        x[i] = (double)(next_random() % 50) / 10;
    for (int i = 0; i < NUM; i++)
        y[i] = x[i] + (double)(next_random() % 1000) / 100;
    near(zt_pearson(x, y, NUM), 0.453360041386067);
    assert_int_equal(zt_spearman(x, y, NUM, &r, &fault), ZT_OK);
    near(r, 0.434204578004711);
}

static void test_what_has_nothing_to_divide_by_is_0_or_no_number(void **state)
{
    const double flat[] = {2, 2, 2}, rising[] = {1, 2, 3}, falling[] = {9, 4, 1};
    const double lost[] = {1, NAN, 2};
    struct zt_class_counts c;
    double r = 0;

    (void)state;
    assert_int_equal(zt_class_counts_open(&c, 3, &fault), ZT_OK);
    assert_true(isnan(zt_accuracy(&c)));
    near(zt_f1_macro(&c), 0);
    near(zt_matthews(&c), 0);
    zt_class_counts_add(&c, 1, 1); /* classes 0 and 2 count for no mean */
    near(zt_accuracy(&c), 1);
    near(zt_f1_macro(&c), 1);
    near(zt_f1_of(&c, 2), 0);
    near(zt_matthews(&c), 0);
    zt_class_counts_close(&c);

    assert_true(isnan(zt_pearson(flat, rising, 3)));
    assert_true(isnan(zt_pearson(rising, falling, 1)));
    near(zt_pearson(rising, rising, 3), 1);
    assert_int_equal(zt_spearman(rising, falling, 3, &r, &fault), ZT_OK);
    near(r, -1);
    assert_int_equal(zt_spearman(rising, lost, 3, &r, &fault), ZT_OK);
    assert_true(isnan(r) && isnan(zt_pearson(rising, lost, 3)));
}

static void test_the_first_of_the_largest_is_taken_and_no_nan(void **state)
{
    const float x[] = {NAN, 1, 3, 3, NAN}, none[] = {NAN, NAN};

    (void)state;
    assert_int_equal(zt_largest(x, 5), 2);
    assert_int_equal(zt_largest(x + 1, 1), 0);
    assert_int_equal(zt_largest(none, 2), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_classes_have_the_scores_of_scikit_learn),
        cmocka_unit_test(test_numbers_have_the_correlations_of_scipy),
        cmocka_unit_test(test_what_has_nothing_to_divide_by_is_0_or_no_number),
        cmocka_unit_test(test_the_first_of_the_largest_is_taken_and_no_nan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
