/* Golden values of the schedules, from their closed forms. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "worker/optim/sched.h"

static void close_to(double got, double want)
{
    if (fabs(got - want) > 1e-9 + 1e-6 * fabs(want))
        fail_msg("got %.12g, want %.12g", got, want);
}

/* DeepSpeed's t belongs to optimizer step n = t + 2 */
static double at(const struct zt_sched_config *cfg, int64_t t)
{
    return zt_sched_lr(cfg, 123, t + 2);
}

static void test_warmup_log_matches_golden(void **state)
{
    struct zt_sched_config cfg = {ZT_SCHED_WARMUP, 0, 1e-3, 10, 0, true};
    const int t[] = {0, 1, 2, 5, 8};

    (void)state;
    for (int i = 0; i < 5; i++)
        close_to(at(&cfg, t[i]), 1e-3 * log(t[i] + 1) / log(10));
    close_to(at(&cfg, -1), 0);
    close_to(at(&cfg, 1), 3.010299957e-4);
    close_to(at(&cfg, 8), 9.542425094e-4);
    close_to(at(&cfg, 9), 1e-3);
    close_to(at(&cfg, 10), 1e-3);
}

static void test_warmup_decay_linear_matches_golden(void **state)
{
    struct zt_sched_config cfg = {ZT_SCHED_WARMUP_DECAY, 0, 1e-3, 10, 110, false};
    const int t[] = {0, 5, 9, 10, 11, 60, 109, 110, 500};
    const double want[] = {0, .0005, .0009, .001, .00099, .0005, .00001, 0, 0};

    (void)state;
    for (int i = 0; i < 9; i++)
        close_to(at(&cfg, t[i]), want[i]);
}

static void test_warmup_decays_to_min_lr(void **state)
{
    struct zt_sched_config cfg = {ZT_SCHED_WARMUP_DECAY, 1e-4, 1e-3, 10, 110, false};

    (void)state;
    close_to(at(&cfg, 110), 1e-4);
    close_to(at(&cfg, -1), 1e-4);
}

static void test_linear_and_cosine_follow_hugging_face(void **state)
{
    struct zt_sched_config cfg = {ZT_SCHED_LINEAR, 0, 0, 4, 12, false};

    (void)state;
    close_to(zt_sched_lr(&cfg, 8, 1), 0);  /* f(0) */
    close_to(zt_sched_lr(&cfg, 8, 3), 4);  /* f(2) = 2/4 */
    close_to(zt_sched_lr(&cfg, 8, 5), 8);  /* f(4): top */
    close_to(zt_sched_lr(&cfg, 8, 9), 4);  /* f(8): half way down */
    close_to(zt_sched_lr(&cfg, 8, 13), 0); /* f(12): the end */
    cfg.kind = ZT_SCHED_COSINE;
    close_to(zt_sched_lr(&cfg, 8, 5), 8);
    close_to(zt_sched_lr(&cfg, 8, 9), 4);
    close_to(zt_sched_lr(&cfg, 8, 7), 4 * (1 + cos(acos(-1.0) / 4)));
    close_to(zt_sched_lr(&cfg, 8, 13), 0);
    cfg.kind = ZT_SCHED_CONSTANT_WITH_WARMUP;
    close_to(zt_sched_lr(&cfg, 8, 2), 2);
    close_to(zt_sched_lr(&cfg, 8, 100), 8);
    cfg.kind = ZT_SCHED_CONSTANT;
    close_to(zt_sched_lr(&cfg, 8, 1), 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_warmup_log_matches_golden),
        cmocka_unit_test(test_warmup_decay_linear_matches_golden),
        cmocka_unit_test(test_warmup_decays_to_min_lr),
        cmocka_unit_test(test_linear_and_cosine_follow_hugging_face),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
