/*
 * warmup.h -- the warm-up of DeepSpeed's schedules, and the rows they have in common.
 */
#ifndef WORKER_OPTIM_SCHED_WARMUP_H
#define WORKER_OPTIM_SCHED_WARMUP_H

#include "worker/optim/sched/sched.h"

enum { WARMUP_MIN_LR, WARMUP_MAX_LR, WARMUP_STEPS, WARMUP_TYPE, WARMUP_END };

#define ZT_WARMUP_MIN_LR                                                                 \
    {                                                                                    \
        .name = "warmup_min_lr", .slot = WARMUP_MIN_LR, .def = "0.0",                    \
        .range = "[0,inf)", .takes_auto = true                                           \
    }
#define ZT_WARMUP_NUM_STEPS                                                              \
    {                                                                                    \
        .name = "warmup_num_steps", .type = ZT_HYPER_INT, .slot = WARMUP_STEPS,          \
        .def = "1000", .range = "[0,inf)", .options = {"warmup_steps"},                  \
        .takes_auto = true, .rule = ZT_RULE_WARMUP_STEPS                                 \
    }
#define ZT_WARMUP_TYPE                                                                   \
    {                                                                                    \
        .name = "warmup_type", .type = ZT_HYPER_CHOICE, .slot = WARMUP_TYPE,             \
        .def = "\"log\"", .choices = "log|linear"                                        \
    }

/* The warm-up is over after this many steps; never fewer than 2. */
int64_t zt_warmup_length(const double *value);
/* 0 at t <= 0, 1 from about the end of the warm-up on. */
double zt_warmup_factor(const double *value, int64_t t);
/* The rate at DeepSpeed's t. */
double zt_warmup_rate(const double *value, int64_t t);
/* The lower rate must not be the higher one. */
zt_err zt_warmup_check(const double *value, struct zt_fault *fault);

#endif
