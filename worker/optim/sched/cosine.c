/* cosine.c -- Hugging Face's cosine: linear warm-up, then half a cosine to 0. */
#include "worker/optim/sched/ramp.h"

static double lr(const double *value, double base_lr, int64_t n)
{
    int64_t k = n - 1;

    if (zt_ramp_is_warmup(value, k))
        return base_lr * zt_ramp_factor(value, k);
    /* what remains falls from 1 to 0: cos(pi (1 - r)) */
    return base_lr * (0.5 * (1 + cos(acos(-1.0) * (1 - zt_ramp_remaining(value, k)))));
}

static const struct zt_hyperparam params[] = {
    ZT_RAMP_WARMUP_STEPS,
    ZT_RAMP_TOTAL_STEPS,
    {.name = NULL},
};

extern const struct zt_schedule zt_sched_cosine;
const struct zt_schedule zt_sched_cosine = {
    .options = "cosine",
    .help = "linear warm-up from 0, then half a cosine to 0",
    .params = params,
    .lr = lr,
};
