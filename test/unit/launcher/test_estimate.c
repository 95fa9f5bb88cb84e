/* DeepSpeed's estimates: its documented tables, row by row. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "launcher/plan/estimate.h"

static struct zt_fault fault;

static void near(double bytes, double gb)
{
    char got[32], want[32];

    snprintf(got, sizeof(got), "%.2f", bytes / (1 << 30));
    snprintf(want, sizeof(want), "%.2f", gb);
    assert_string_equal(got, want);
}

/* T5-3B v1.1, which the tables print as 2783M and 65M. */
static void test_one_gpu_and_a_model_of_three_billion(void **state)
{
    static const struct {
        bool params, optimizer, init;
        double host, gpu;
    } rows[] = {
        {true, true, true, 70.00, 0.25},   {true, true, false, 70.00, 0.25},
        {false, true, true, 62.23, 5.43},  {false, true, false, 62.23, 5.43},
        {false, false, true, 0.37, 46.91}, {false, false, false, 15.56, 46.91},
    };
    struct zt_estimate e = {.gpus = 1, .nodes = 1};

    (void)state;
    assert_int_equal(zt_estimate_parse("2783959040:65798144", &e, &fault), ZT_OK);
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct zt_estimate_need n =
            zt_estimate_stage3(&e, rows[i].params, rows[i].optimizer, rows[i].init);

        near(n.host, rows[i].host);
        near(n.gpu, rows[i].gpu);
    }
}

static void test_eight_gpus_at_stage_2(void **state)
{
    struct zt_estimate e = {.gpus = 8, .nodes = 1};

    (void)state;
    assert_int_equal(zt_estimate_parse("2851.9M", &e, &fault), ZT_OK);
    near(zt_estimate_stage2(&e, true).host, 127.49);
    near(zt_estimate_stage2(&e, true).gpu, 5.31);
    near(zt_estimate_stage2(&e, false).host, 127.49);
    near(zt_estimate_stage2(&e, false).gpu, 11.29);
}

static void test_counts_in_their_spellings(void **state)
{
    static const char *const bad[] = {"", "x", "0", "-5M", "5M:", "5M:6M", "5Mx", "5Q"};
    struct zt_estimate e = {.gpus = 1, .nodes = 1};

    (void)state;
    assert_int_equal(zt_estimate_parse("1.5B:82m", &e, &fault), ZT_OK);
    assert_true(e.parameters == 1.5e9 && e.largest_layer == 82e6);
    assert_int_equal(zt_estimate_parse("350k", &e, &fault), ZT_OK);
    assert_true(e.parameters == 350e3 && e.largest_layer == 0);
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        assert_int_equal(zt_estimate_parse(bad[i], &e, &fault), ZT_E_USAGE);
        assert_non_null(strstr(fault.text, "2783M:65M"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_gpu_and_a_model_of_three_billion),
        cmocka_unit_test(test_eight_gpus_at_stage_2),
        cmocka_unit_test(test_counts_in_their_spellings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
