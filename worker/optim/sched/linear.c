/* linear.c -- Hugging Face's linear: linear warm-up, then linear decay to 0. */
#include "worker/optim/sched/ramp.h"

static double lr(const double *value, double base_lr, int64_t n)
{
    int64_t k = n - 1;

    return base_lr * (zt_ramp_is_warmup(value, k) ? zt_ramp_factor(value, k)
                                                  : zt_ramp_remaining(value, k));
}

static const struct zt_hyperparam params[] = {
    ZT_RAMP_WARMUP_STEPS,
    ZT_RAMP_TOTAL_STEPS,
    {.name = NULL},
};

extern const struct zt_schedule zt_sched_linear;
const struct zt_schedule zt_sched_linear = {
    .options = "linear",
    .help = "linear warm-up from 0, then linear decay to 0",
    .params = params,
    .lr = lr,
};
