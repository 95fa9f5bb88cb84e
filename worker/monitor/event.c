/* event.c -- the sink that people read: the event "step", rendered by zlaunch as the
 * progress line or as JSON. */
#include "common/message/event.h"
#include "worker/monitor/monitor.h"

extern const struct zt_sink zt_sink_event;
const struct zt_sink zt_sink_event = {
    .name = "event",
    .write_step = zt_event_step,
};
