/* warmup_decay_lr.c -- DeepSpeed's WarmupDecayLR: a warm-up, then linear decay. */
#include <math.h>

#include "worker/optim/sched/warmup.h"

enum { TOTAL_STEPS = WARMUP_END };

static double lr(const double *value, double base_lr, int64_t n)
{
    int64_t t = n - 2, steps = zt_warmup_length(value);
    int64_t total = (int64_t)value[TOTAL_STEPS];
    double left = (double)(total - t), span = (double)(total - steps);
    double min_lr = value[WARMUP_MIN_LR];

    (void)base_lr;
    if (t < steps)
        return zt_warmup_rate(value, t);
    return min_lr + (value[WARMUP_MAX_LR] - min_lr) * fmax(0, left / fmax(1, span));
}

static const struct zt_hyperparam params[] = {
    ZT_WARMUP_MIN_LR,
    {.name = "warmup_max_lr",
     .slot = WARMUP_MAX_LR,
     .def = "0.001",
     .range = "[0,inf)",
     .options = {"learning_rate"},
     .takes_auto = true},
    ZT_WARMUP_NUM_STEPS,
    ZT_WARMUP_TYPE,
    {.name = "total_num_steps",
     .type = ZT_HYPER_INT,
     .slot = TOTAL_STEPS,
     .range = "[1,inf)",
     .takes_auto = true,
     .rule = ZT_RULE_RUN_STEPS},
    {.name = NULL},
};

extern const struct zt_schedule zt_sched_warmup_decay_lr;
const struct zt_schedule zt_sched_warmup_decay_lr = {
    .type = "WarmupDecayLR",
    .help = "the same, then linear decay to warmup_min_lr at total_num_steps",
    .params = params,
    .check = zt_warmup_check,
    .lr = lr,
};
