/*
 * sched.h -- the learning rate as a pure function of the optimizer step; each schedule is
 * one file that fills one table row.
 *
 * DeepSpeed's schedules count t from -1 and advance after each step that was not skipped,
 * so step n (from 1) uses f(n - 2), and f(-1) is the initial value. Hugging Face's use
 * f(n - 1). Skipped steps do not advance either.
 * Threads:   any.
 * Failure:   none.
 */
#ifndef WORKER_OPTIM_SCHED_SCHED_H
#define WORKER_OPTIM_SCHED_SCHED_H

#include "common/fault.h"
#include "worker/optim/hyperparam.h"

/* A schedule and the values of its parameters. */
struct zt_sched_config {
    const struct zt_schedule *schedule;
    double value[ZT_HYPER_VALUES]; /* by the slots of its rows */
};

struct zt_schedule {
    const char *type;    /* "WarmupLR": scheduler.type of a config; NULL: none */
    const char *options; /* "linear": values of --lr_scheduler_type; NULL: none */
    const char *help;    /* a few words */
    const struct zt_hyperparam *params;

    /* optional: values that do not go together. ZT_E_CONFIG */
    zt_err (*check)(const double *value, struct zt_fault *fault);

    /* The rate of optimizer step n = 1, 2, ...; base_lr is the optimizer's own rate. */
    double (*lr)(const double *value, double base_lr, int64_t n);
};

/* All that are built. NULL behind the last. */
extern const struct zt_schedule *const zt_schedules[];

/* By scheduler.type, and by a value of --lr_scheduler_type. NULL: not built. */
const struct zt_schedule *zt_schedule_find(const char *type);
const struct zt_schedule *zt_schedule_of_option(const char *value);

/* The rate of optimizer step n = 1, 2, ... */
double zt_sched_lr(const struct zt_sched_config *cfg, double base_lr, int64_t n);

#endif
