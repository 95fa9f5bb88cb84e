/*
 * supervise.h -- carry a plan out and watch it to the end.
 *
 * Starts the daemon, passes on what it tells, turns signals of the user into orders, and
 * when all is over says why and with which exit code. Whatever happens, no process of the
 * job outlives it: zlaunch is a subreaper too, so what a killed daemon leaves becomes its
 * own child and is killed.
 * Threads: the caller's, which runs the loop.
 */
#ifndef LAUNCHER_SUPERVISE_H
#define LAUNCHER_SUPERVISE_H

#include "common/render.h"
#include "launcher/plan.h"

/* Blocks until the job is over; returns the exit code of zlaunch. */
int zt_supervise(const struct zt_plan *plan, const struct zt_render_config *screen,
                 bool verbose);

#endif
