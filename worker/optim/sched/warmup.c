/* warmup.c -- DeepSpeed's warm-up: logarithmic or linear, between two rates. */
#include "worker/optim/sched/warmup.h"

#include <math.h>

int64_t zt_warmup_length(const double *value)
{
    return value[WARMUP_STEPS] > 2 ? (int64_t)value[WARMUP_STEPS] : 2;
}

double zt_warmup_factor(const double *value, int64_t t)
{
    int64_t steps = zt_warmup_length(value);
    bool logarithmic = value[WARMUP_TYPE] == 0;

    if (t < 0)
        return 0;
    if (t >= steps)
        return 1;
    return logarithmic ? log((double)t + 1) / log((double)steps)
                       : (double)t / (double)steps;
}

double zt_warmup_rate(const double *value, int64_t t)
{
    double min_lr = value[WARMUP_MIN_LR];

    return min_lr + (value[WARMUP_MAX_LR] - min_lr) * zt_warmup_factor(value, t);
}

zt_err zt_warmup_check(const double *value, struct zt_fault *fault)
{
    if (value[WARMUP_MIN_LR] <= value[WARMUP_MAX_LR])
        return ZT_OK;
    return zt_fault_set(fault, ZT_E_CONFIG, "warmup_min_lr %g is above warmup_max_lr %g",
                        value[WARMUP_MIN_LR], value[WARMUP_MAX_LR]);
}
