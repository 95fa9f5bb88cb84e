/*
 * ramp.h -- what Hugging Face's schedules have in common: a linear warm-up from 0, and
 * what is left of the run after it.
 *
 * k = n - 1 counts steps from 0.
 */
#ifndef WORKER_OPTIM_SCHED_RAMP_H
#define WORKER_OPTIM_SCHED_RAMP_H

#include <math.h>

#include "worker/optim/sched/sched.h"

enum { RAMP_WARMUP_STEPS, RAMP_TOTAL_STEPS, RAMP_END };

#define ZT_RAMP_WARMUP_STEPS                                                             \
    {                                                                                    \
        .name = "warmup_num_steps", .type = ZT_HYPER_INT, .slot = RAMP_WARMUP_STEPS,     \
        .def = "0", .range = "[0,inf)", .options = {"warmup_steps"}, .takes_auto = true, \
        .rule = ZT_RULE_WARMUP_STEPS                                                     \
    }
#define ZT_RAMP_TOTAL_STEPS                                                              \
    {                                                                                    \
        .name = "total_num_steps", .type = ZT_HYPER_INT, .slot = RAMP_TOTAL_STEPS,       \
        .range = "[1,inf)", .takes_auto = true, .rule = ZT_RULE_RUN_STEPS                \
    }

static inline bool zt_ramp_is_warmup(const double *value, int64_t k)
{
    return (double)k < value[RAMP_WARMUP_STEPS];
}

/* 0 .. 1 in the warm-up, 1 after it. */
static inline double zt_ramp_factor(const double *value, int64_t k)
{
    return zt_ramp_is_warmup(value, k) ? (double)k / fmax(1, value[RAMP_WARMUP_STEPS])
                                       : 1;
}

/* 1 .. 0 between the end of the warm-up and the last step. */
static inline double zt_ramp_remaining(const double *value, int64_t k)
{
    double span = value[RAMP_TOTAL_STEPS] - value[RAMP_WARMUP_STEPS];

    return fmax(0, (value[RAMP_TOTAL_STEPS] - (double)k) / fmax(1, span));
}

#endif
