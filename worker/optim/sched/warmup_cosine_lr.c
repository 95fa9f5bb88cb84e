/*
 * warmup_cosine_lr.c -- DeepSpeed's WarmupCosineLR: a warm-up, then half a cosine, both as
 * ratios of the optimizer's own rate.
 */
#include <math.h>

#include "worker/optim/sched/warmup.h"

enum { MIN_RATIO = WARMUP_MIN_LR, TOTAL_STEPS = WARMUP_END, COS_MIN_RATIO };

static double lr(const double *value, double base_lr, int64_t n)
{
    int64_t t = n - 2, steps = zt_warmup_length(value);
    double span = value[TOTAL_STEPS] - (double)steps, low = value[COS_MIN_RATIO], done;

    if (t < 0)
        return 0; /* before the first of its own steps, whatever warmup_min_ratio is */
    if (t < steps)
        return base_lr *
               (value[MIN_RATIO] + (1 - value[MIN_RATIO]) * zt_warmup_factor(value, t));
    done = fmin(1, (double)(t - steps + 1) / fmax(1, span));
    return base_lr * fmax(0, low + (1 - low) * (1 + cos(acos(-1.0) * done)) / 2);
}

static const struct zt_hyperparam params[] = {
    {.name = "warmup_min_ratio",
     .slot = MIN_RATIO,
     .def = "0.0",
     .range = "[0,inf)",
     .takes_auto = true},
    ZT_WARMUP_NUM_STEPS,
    {.name = "cos_min_ratio",
     .slot = COS_MIN_RATIO,
     .def = "0.0001",
     .range = "[0,inf)",
     .takes_auto = true},
    ZT_WARMUP_TYPE,
    {.name = "total_num_steps",
     .type = ZT_HYPER_INT,
     .slot = TOTAL_STEPS,
     .range = "[1,inf)",
     .takes_auto = true,
     .rule = ZT_RULE_RUN_STEPS},
    {.name = NULL},
};

extern const struct zt_schedule zt_sched_warmup_cosine_lr;
const struct zt_schedule zt_sched_warmup_cosine_lr = {
    .type = "WarmupCosineLR",
    .help = "warm-up from warmup_min_ratio to 1, then half a cosine to cos_min_ratio at "
            "total_num_steps, times the optimizer's rate",
    .params = params,
    .lr = lr,
};
