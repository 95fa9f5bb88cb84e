#include "worker/monitor/monitor.h"

/* A sink is one file, and its name in these two lines. */
extern const struct zt_sink zt_sink_event;
static const struct zt_sink *const sinks[] = {&zt_sink_event, NULL};

static void write_all(zt_metric_event event, const struct zt_metric_value *values, int n)
{
    for (int i = 0; sinks[i]; i++)
        sinks[i]->write(event, values, n);
}

void zt_monitor_step(const struct zt_step_stats *stats)
{
    struct zt_metric_value values[ZT_MAX_METRICS];

    write_all(ZT_METRIC_STEP, values, zt_step_metrics_measure(stats, values));
}

void zt_monitor_eval(const struct zt_eval_stats *stats)
{
    struct zt_metric_value values[ZT_MAX_METRICS];

    write_all(ZT_METRIC_EVAL, values, zt_eval_metrics_measure(stats, values));
}
