/*
 * detach.h -- `zlaunch --detach`: the job goes on in a process of its own, in its own
 * session, with its output in a file; the one that the user started waits until all ranks
 * are started, says how to reach the job, and returns.
 * Threads: none may run yet.
 */
#ifndef LAUNCHER_CTL_DETACH_H
#define LAUNCHER_CTL_DETACH_H

#include "common/fault.h"
#include "common/message/render.h"

/*
 * Returns in both processes. In the job: *is_job is true. In the caller: *exit_code is
 * what to exit with; the message has been printed, as `screen` says: in JSON as "detached",
 * or what the job that did not start has printed, and "end". log_file NULL: JOB.log in the
 * folder of ctl.h.
 */
zt_err zt_detach(const char *job_id, const char *log_file,
                 const struct zt_render_config *screen, bool *is_job, int *exit_code,
                 struct zt_fault *fault) ZT_MUST_CHECK;

/* In the job: all ranks have been started. */
void zt_detach_ready(void);
bool zt_detach_is_pending(void);
/* In the job: the file that its output goes to. NULL: it is no detached one. */
const char *zt_detach_log(void);

#endif
