/* event.c -- the sink that people read: the events "step" and "eval", rendered by zlaunch
 * as lines or as JSON. */
#include "common/message/event.h"
#include "worker/monitor/monitor.h"

extern const struct zt_sink zt_sink_event;
const struct zt_sink zt_sink_event = {
    .name = "event",
    .write = zt_event_metrics,
};
