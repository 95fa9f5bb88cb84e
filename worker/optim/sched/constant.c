/* constant.c -- the optimizer's own rate at every step. */
#include "worker/optim/sched/sched.h"

static double lr(const double *value, double base_lr, int64_t n)
{
    (void)value;
    (void)n;
    return base_lr;
}

static const struct zt_hyperparam params[] = {{.name = NULL}};

extern const struct zt_schedule zt_sched_constant;
const struct zt_schedule zt_sched_constant = {
    .options = "constant",
    .help = "the optimizer's rate throughout",
    .params = params,
    .lr = lr,
};
