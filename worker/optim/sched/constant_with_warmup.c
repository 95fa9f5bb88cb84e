/* constant_with_warmup.c -- Hugging Face's: linear warm-up, then constant. */
#include "worker/optim/sched/ramp.h"

static double lr(const double *value, double base_lr, int64_t n)
{
    return base_lr * zt_ramp_factor(value, n - 1);
}

static const struct zt_hyperparam params[] = {
    ZT_RAMP_WARMUP_STEPS,
    {.name = NULL},
};

extern const struct zt_schedule zt_sched_constant_with_warmup;
const struct zt_schedule zt_sched_constant_with_warmup = {
    .options = "constant_with_warmup",
    .help = "linear warm-up from 0, then constant",
    .params = params,
    .lr = lr,
};
