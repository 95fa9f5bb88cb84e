/*
 * monitor.h -- where metrics of a run go: sinks, each one file that fills one table row.
 *
 * Values are computed once from what the engine measured, by the rows of
 * common/message/metrics.c, and handed to every sink.
 * Threads: one thread of the rank.
 * Failure: metrics are best effort; they never fail a run.
 */
#ifndef WORKER_MONITOR_MONITOR_H
#define WORKER_MONITOR_MONITOR_H

#include "common/message/metrics.h"

struct zt_sink {
    const char *name;
    /* The n values that this step or evaluation has; they are valid during the call. */
    void (*write)(zt_metric_event event, const struct zt_metric_value *values, int n);
};

/* Report a step, or an evaluation, on rank 0. */
void zt_monitor_step(const struct zt_step_stats *stats);
void zt_monitor_eval(const struct zt_eval_stats *stats);

#endif
