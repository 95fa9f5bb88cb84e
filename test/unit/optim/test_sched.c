/* Golden values of the schedules, from their closed forms. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "worker/optim/sched/sched.h"

static void close_to(double got, double want)
{
    if (fabs(got - want) > 1e-9 + 1e-6 * fabs(want))
        fail_msg("got %.12g, want %.12g", got, want);
}

/* A schedule with values for the parameters that it has; NULL ends the names. */
struct setting {
    const char *name;
    double value;
};

static struct zt_sched_config with(const struct zt_schedule *schedule,
                                   const struct setting *settings)
{
    struct zt_sched_config cfg = {.schedule = schedule};

    for (; settings->name; settings++) {
        const struct zt_hyperparam *p = zt_hyper_find(schedule->params, settings->name);

        if (p)
            cfg.value[p->slot] = settings->value;
    }
    return cfg;
}

/* DeepSpeed's, with a warm-up of 10 steps to 1e-3 and 110 steps in all. */
static struct zt_sched_config warmup(const char *type, double min_lr, int kind)
{
    return with(zt_schedule_find(type),
                (const struct setting[]){{"warmup_min_lr", min_lr},
                                         {"warmup_max_lr", 1e-3},
                                         {"warmup_num_steps", 10},
                                         {"warmup_type", kind},
                                         {"total_num_steps", 110},
                                         {NULL, 0}});
}

/* Hugging Face's, with 12 steps, 4 of them warm-up. */
static struct zt_sched_config ramp(const char *option)
{
    return with(zt_schedule_of_option(option),
                (const struct setting[]){
                    {"warmup_num_steps", 4}, {"total_num_steps", 12}, {NULL, 0}});
}

enum { LOG, LINEAR };

/* DeepSpeed's t belongs to optimizer step n = t + 2 */
static double at(const struct zt_sched_config *cfg, int64_t t)
{
    return zt_sched_lr(cfg, 123, t + 2);
}

static void test_warmup_log_matches_golden(void **state)
{
    struct zt_sched_config cfg = warmup("WarmupLR", 0, LOG);
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
    struct zt_sched_config cfg = warmup("WarmupDecayLR", 0, LINEAR);
    const int t[] = {0, 5, 9, 10, 11, 60, 109, 110, 500};
    const double want[] = {0, .0005, .0009, .001, .00099, .0005, .00001, 0, 0};

    (void)state;
    for (int i = 0; i < 9; i++)
        close_to(at(&cfg, t[i]), want[i]);
}

static void test_warmup_decays_to_min_lr(void **state)
{
    struct zt_sched_config cfg = warmup("WarmupDecayLR", 1e-4, LINEAR);

    (void)state;
    close_to(at(&cfg, 110), 1e-4);
    close_to(at(&cfg, -1), 1e-4);
}

static void test_warmup_cosine_matches_golden(void **state)
{
    struct zt_sched_config cfg = with(zt_schedule_find("WarmupCosineLR"),
                                      (const struct setting[]){{"warmup_min_ratio", 0},
                                                               {"warmup_num_steps", 10},
                                                               {"warmup_type", LOG},
                                                               {"cos_min_ratio", 1e-4},
                                                               {"total_num_steps", 110},
                                                               {NULL, 0}});
    const int t[] = {-1, 0, 1, 5, 9, 10, 59, 60, 109, 500};
    const double want[] = {0,
                           0,
                           .000301029996,
                           .00077815125,
                           .001,
                           .000999753305,
                           .00050005,
                           .000484346191,
                           1e-7,
                           1e-7};

    (void)state;
    for (int i = 0; i < 10; i++)
        close_to(zt_sched_lr(&cfg, 1e-3, t[i] + 2), want[i]);
    cfg.value[zt_hyper_find(cfg.schedule->params, "warmup_min_ratio")->slot] = 0.5;
    close_to(zt_sched_lr(&cfg, 1e-3, 1), 0); /* not the minimum */
    close_to(zt_sched_lr(&cfg, 1e-3, 2), .0005);
}

static void test_linear_and_cosine_follow_hugging_face(void **state)
{
    struct zt_sched_config cfg = ramp("linear");

    (void)state;
    close_to(zt_sched_lr(&cfg, 8, 1), 0);  /* f(0) */
    close_to(zt_sched_lr(&cfg, 8, 3), 4);  /* f(2) = 2/4 */
    close_to(zt_sched_lr(&cfg, 8, 5), 8);  /* f(4): top */
    close_to(zt_sched_lr(&cfg, 8, 9), 4);  /* f(8): half way down */
    close_to(zt_sched_lr(&cfg, 8, 13), 0); /* f(12): the end */
    cfg = ramp("cosine");
    close_to(zt_sched_lr(&cfg, 8, 5), 8);
    close_to(zt_sched_lr(&cfg, 8, 9), 4);
    close_to(zt_sched_lr(&cfg, 8, 7), 4 * (1 + cos(acos(-1.0) / 4)));
    close_to(zt_sched_lr(&cfg, 8, 13), 0);
    cfg = ramp("constant_with_warmup");
    close_to(zt_sched_lr(&cfg, 8, 2), 2);
    close_to(zt_sched_lr(&cfg, 8, 100), 8);
    cfg = ramp("constant");
    close_to(zt_sched_lr(&cfg, 8, 1), 8);
}

/* What the config and the docs rely on. */
static void test_rows_are_whole(void **state)
{
    (void)state;
    for (int i = 0; zt_schedules[i]; i++) {
        const struct zt_schedule *s = zt_schedules[i];

        assert_true((s->type || s->options) && s->help && s->params && s->lr);
        if (s->type)
            assert_ptr_equal(zt_schedule_find(s->type), s);
        for (const struct zt_hyperparam *p = s->params; p->name; p++) {
            assert_true(p->slot >= 0 && p->slot < ZT_HYPER_VALUES);
            assert_ptr_equal(zt_hyper_find(s->params, p->name), p); /* once */
        }
    }
    assert_null(zt_schedule_find("linear")); /* a word for the option alone */
    assert_null(zt_schedule_of_option("lin"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_warmup_log_matches_golden),
        cmocka_unit_test(test_warmup_decay_linear_matches_golden),
        cmocka_unit_test(test_warmup_decays_to_min_lr),
        cmocka_unit_test(test_warmup_cosine_matches_golden),
        cmocka_unit_test(test_linear_and_cosine_follow_hugging_face),
        cmocka_unit_test(test_rows_are_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
