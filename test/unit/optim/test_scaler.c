/* The loss-scale state machine against traces worked out by hand from its rules. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "worker/optim/scaler.h"

static const struct zt_scaler_config base = {.initial_scale_power = 16,
                                             .loss_scale_window = 2,
                                             .hysteresis = 2,
                                             .min_loss_scale = 1};

/* steps: '1' overflow, '0' none; want: the scale after each, as powers of two */
static void follow(struct zt_scaler_config cfg, const char *steps, const int *want)
{
    struct zt_scaler s;

    zt_scaler_init(&s, &cfg);
    for (size_t i = 0; steps[i]; i++) {
        assert_int_equal(zt_scaler_update(&s, steps[i] == '1', NULL), ZT_OK);
        assert_true(s.scale == (double)(1 << want[i]));
    }
}

static void test_overflows_spend_hysteresis_then_halve(void **state)
{
    (void)state;
    follow(base, "1110000011", (const int[]){16, 15, 14, 14, 14, 15, 15, 16, 16, 15});
}

static void test_growth_comes_one_after_each_window(void **state)
{
    (void)state;
    follow(base, "0000000", (const int[]){16, 16, 17, 17, 18, 18, 19});
}

static void test_hysteresis_refills_only_on_growth_unless_consecutive(void **state)
{
    struct zt_scaler_config cfg = base;

    (void)state;
    cfg.loss_scale_window = 1000;
    follow(cfg, "10101", (const int[]){16, 16, 15, 15, 14});
    cfg.consecutive_hysteresis = true;
    follow(cfg, "10101", (const int[]){16, 16, 16, 16, 16});
}

static void test_overflow_at_the_floor_ends_the_run(void **state)
{
    struct zt_scaler_config cfg = base;
    struct zt_fault fault = {0};
    struct zt_scaler s;

    (void)state;
    cfg.initial_scale_power = 1;
    cfg.hysteresis = 1;
    zt_scaler_init(&s, &cfg);
    assert_int_equal(zt_scaler_update(&s, true, &fault), ZT_OK);
    assert_true(s.scale == 1);
    assert_int_equal(zt_scaler_update(&s, true, &fault), ZT_E_NUMERIC);
    assert_non_null(strstr(fault.text, "min_loss_scale"));
}

static void test_static_scale_never_moves(void **state)
{
    struct zt_scaler_config cfg = base;
    struct zt_scaler s;

    (void)state;
    cfg.loss_scale = 128;
    zt_scaler_init(&s, &cfg);
    for (int i = 0; i < 9; i++)
        assert_int_equal(zt_scaler_update(&s, i % 2, NULL), ZT_OK);
    assert_true(s.scale == 128);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_overflows_spend_hysteresis_then_halve),
        cmocka_unit_test(test_growth_comes_one_after_each_window),
        cmocka_unit_test(test_hysteresis_refills_only_on_growth_unless_consecutive),
        cmocka_unit_test(test_overflow_at_the_floor_ends_the_run),
        cmocka_unit_test(test_static_scale_never_moves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
