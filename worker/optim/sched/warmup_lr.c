/* warmup_lr.c -- DeepSpeed's WarmupLR: a warm-up, then constant. */
#include "worker/optim/sched/warmup.h"

static double lr(const double *value, double base_lr, int64_t n)
{
    (void)base_lr;
    return zt_warmup_rate(value, n - 2);
}

static const struct zt_hyperparam params[] = {
    ZT_WARMUP_MIN_LR,
    {.name = "warmup_max_lr",
     .slot = WARMUP_MAX_LR,
     .range = "[0,inf)",
     .options = {"learning_rate"},
     .takes_auto = true,
     .rule = ZT_RULE_LR,
     .remark =
         "WarmupLR: by default the optimizer's lr, which auto is, too, where its section "
         "has one"},
    ZT_WARMUP_NUM_STEPS,
    ZT_WARMUP_TYPE,
    {.name = NULL},
};

extern const struct zt_schedule zt_sched_warmup_lr;
const struct zt_schedule zt_sched_warmup_lr = {
    .type = "WarmupLR",
    .help = "warm-up from warmup_min_lr to warmup_max_lr, then constant",
    .params = params,
    .check = zt_warmup_check,
    .lr = lr,
};
