/*
 * private.h -- finding a job and talking to it, for the client (client.c).
 * Threads: one; calls block.
 */
#ifndef LAUNCHER_CTL_PRIVATE_H
#define LAUNCHER_CTL_PRIVATE_H

#include "common/message/frame.h"
#include "launcher/ctl/ctl.h"

#include <limits.h>
#include <time.h>

#define ZT_CTL_JOB_NAME 64

struct zt_ctl_job {
    char name[ZT_CTL_JOB_NAME];
    char dir[ZT_CTL_PATH];
    char folder[PATH_MAX]; /* that it was started from; "": not known. Of a chosen one */
    struct timespec born;
};

struct zt_ctl_jobs {
    struct zt_ctl_job *list; /* newest first; allocated */
    int num;
};

struct zt_ctl_talk {
    int fd;
    struct zt_buf in;
    struct zt_frame frame; /* the last one that came */
    bool has_frame;
};

/* ------------------------------------------------------------------ jobs.c */

/* Every job that has a socket; `jobs->list` is the caller's to free, also after an error.
 * ZT_E_SYSTEM: there is no folder that can be trusted. */
zt_err zt_ctl_find_jobs(struct zt_ctl_jobs *jobs, struct zt_fault *fault) ZT_MUST_CHECK;
/* Was it started from the folder that this process is in? */
bool zt_ctl_is_from_here(const struct zt_ctl_job *j);
/* Connect to the one job that is meant by an id, its beginning, or "last", which
 * *chosen names. ZT_E_NOINPUT: there is none; ZT_E_USAGE: there are several. */
zt_err zt_ctl_talk_to(const char *name, struct zt_ctl_talk *t, struct zt_ctl_job *chosen,
                      struct zt_fault *fault) ZT_MUST_CHECK;

/* ------------------------------------------------------------------ ended.c */

/* A sentence about the last job of this folder ("last"), or the one whose name begins so,
 * of which no socket is left. False: nothing is known. */
bool zt_ctl_find_ended(const char *name, char *out, size_t bytes);

/* ------------------------------------------------------------------ client.c */

/* A line of a job that prints JSON, passed on as it is. True: it is the job's last event. */
bool zt_ctl_pass_event(struct zt_render *r, const char *line, size_t n);

/* ------------------------------------------------------------------ talk.c */

/* ZT_E_NOINPUT: nobody listens there any more; the socket is removed. After an error, too,
 * zt_ctl_talk_close() is due. */
zt_err zt_ctl_talk_open(struct zt_ctl_talk *t, const struct zt_ctl_job *j,
                        struct zt_fault *fault) ZT_MUST_CHECK;
void zt_ctl_talk_close(struct zt_ctl_talk *t);
/* How long a frame may take; 0: for ever. */
void zt_ctl_talk_set_patience(int fd, int seconds);
zt_err zt_ctl_talk_request(struct zt_ctl_talk *t, const char *request,
                           struct zt_fault *fault) ZT_MUST_CHECK;
/* The next frame, in t->frame until the next call. ZT_E_CANCELLED: a signal came;
 * ZT_E_HOST: nothing came, or the job is gone. */
zt_err zt_ctl_talk_next(struct zt_ctl_talk *t, struct zt_fault *fault) ZT_MUST_CHECK;

#endif
