/*
 * sched.h -- the learning rate as a pure function of the optimizer step.
 *
 * DeepSpeed's schedules count t from -1 and advance after each step that was not skipped,
 * so step n (from 1) uses f(n - 2), and f(-1) is the initial value. Hugging Face's use
 * f(n - 1). Skipped steps do not advance either.
 * Threads: any. Failure: none.
 */
#ifndef WORKER_OPTIM_SCHED_H
#define WORKER_OPTIM_SCHED_H

#include "common/run.h"

/* The rate of optimizer step n = 1, 2, ...; base_lr is the optimizer's own rate. */
double zt_sched_lr(const struct zt_sched_config *cfg, double base_lr, int64_t n);

#endif
