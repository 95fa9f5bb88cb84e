/*
 * supervise.h -- carry a plan out and watch it to the end.
 *
 * Starts the daemons, prints what they report, passes signals of the user on, and at the
 * end says why the job ended and with which exit code. Whatever happens, no process of
 * the job outlives zlaunch: it is a subreaper, so the ranks of a killed daemon become its
 * own children and are killed.
 * Threads: the caller's, which runs the loop.
 */
#ifndef LAUNCHER_SUPERVISE_SUPERVISE_H
#define LAUNCHER_SUPERVISE_SUPERVISE_H

#include "common/message/render.h"
#include "launcher/plan/plan.h"

/* Blocks until the job is over; *exit_code: of zlaunch, and everything has been said. An
 * error: nothing was started and nothing said. */
zt_err zt_supervise(const struct zt_job_plan *plan, const struct zt_render_config *screen,
                    bool verbose, int *exit_code, struct zt_fault *fault) ZT_MUST_CHECK;

/*
 * --summary. Begin: the file is there, and says nothing of a job before this one (path NULL:
 * no summary). Write: its one line, the last event of the job. ZT_E_CANTCREATE.
 */
zt_err zt_summary_begin(const char *path, struct zt_fault *fault) ZT_MUST_CHECK;
zt_err zt_summary_write(const char *path, const json_t *end, struct zt_fault *fault);

#endif
