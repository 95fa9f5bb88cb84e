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
    /* The n values that this step has; they are valid during the call. */
    void (*write_step)(const struct zt_metric_value *values, int n);
};

/* Report a step, on rank 0. */
void zt_monitor_step(const struct zt_step_stats *stats);

#endif
