/*
 * ctl.h -- control requests to a running job, over a unix socket that only its owner can
 * open.
 *
 *      zlaunch --ctl JOB REQUEST  --frames-->  DIR/JOB.sock of the job's zlaunch
 *
 * DIR is $XDG_RUNTIME_DIR/zlaunch, or /tmp/zlaunch-UID where the first cannot be used
 * (who looks for a job without that variable looks where sessions have it): a
 * folder of mode 0700 that belongs to this user, checked before use; the server also
 * checks the user of each client (SO_PEERCRED). A connection carries one request and the
 * answers up to END, see docs/PROTOCOL.md. The socket gets its name after listen(), so a
 * socket that refuses connections belongs to a job that was killed: the next zlaunch of the
 * user removes it, whatever that is for.
 *
 * No client can delay the job: a client that sends no request is closed after seconds,
 * one that reads too slowly loses lines and is told how many, and there are at most 64 at
 * a time.
 * Threads: the loop's, for the server; the client part blocks and has no loop.
 */
#ifndef LAUNCHER_CTL_CTL_H
#define LAUNCHER_CTL_CTL_H

#include "common/fault.h"
#include "common/message/render.h"
#include "common/options/options.h"

#include <jansson.h>
#include <uv.h>

#define ZT_CTL_PATH       108 /* as long as the name of a unix socket may be */
#define ZT_CTL_CLIENTS    64
#define ZT_CTL_RING_LINES 100
#define ZT_CTL_RING_BYTES (256u << 10)
#define ZT_CTL_LINE_BYTES (64u << 10) /* what is longer is cut */
#define ZT_CTL_QUEUE      (1u << 20)  /* bytes that wait for one client */

/* ------------------------------------------------------------------ folder (dir.c) */

/* Candidate folder i, 0 or 1; created if missing and `create` is set. ZT_E_NOINPUT: it
 * is missing, or there is no candidate i; ZT_E_SYSTEM: of another user, or open to
 * others. */
zt_err zt_ctl_dir_at(int i, bool create, char out[ZT_CTL_PATH],
                     struct zt_fault *fault) ZT_MUST_CHECK;
/* The first folder that can be used; created if need be. */
zt_err zt_ctl_dir(char out[ZT_CTL_PATH], struct zt_fault *fault) ZT_MUST_CHECK;
/* Remove what jobs left in either folder: sockets that nobody listens at, files of
 * --save_pid whose process is gone, notes of how a job of a month ago ended. Best effort. */
void zt_ctl_remove_dead(void);
/* DIR/JOB + suffix, as in ".sock". ZT_E_LIMIT: too long. */
zt_err zt_ctl_path(const char *dir, const char *job, const char *suffix,
                   char out[ZT_CTL_PATH], struct zt_fault *fault) ZT_MUST_CHECK;

/* What the ids of a run of this name begin with, as its socket and log can have it: letters,
 * digits, '_' and '.', '-' for all else, and no more than that many of them. */
#define ZT_CTL_RUN 23
void zt_ctl_run_id(const char *run_name, char out[ZT_CTL_RUN]);

/* ------------------------------------------------------------------ server (ctl.c) */

struct zt_ctl;

struct zt_ctl_config {
    uv_loop_t *loop;
    const char *job_id;
    /* A request of a client, to be answered now or later by the client's number. */
    void (*on_request)(void *ctx, uint32_t client, const char *request);
    void *ctx;
};

zt_err zt_ctl_open(const struct zt_ctl_config *cfg, struct zt_ctl **out,
                   struct zt_fault *fault) ZT_MUST_CHECK;
/* No more clients and no socket; memory goes when the loop has closed the handles. NULL
 * is fine. */
void zt_ctl_close(struct zt_ctl *ctl);

/* Calls for clients that have disconnected do nothing. An answer that there is no memory for is the
 * end of that client, with that as its reason. */
void zt_ctl_answer(struct zt_ctl *ctl, uint32_t client, const json_t *object);
void zt_ctl_print(struct zt_ctl *ctl, uint32_t client, const char *fmt, ...)
    ZT_PRINTF(3, 4);
/* The last frame; `text`: why exit_code is not 0, or NULL. */
void zt_ctl_end(struct zt_ctl *ctl, uint32_t client, int exit_code, const char *text);
bool zt_ctl_is_connected(const struct zt_ctl *ctl, uint32_t client);

/* From now on this client gets every line of these streams; `recent`: after the last
 * lines that were printed before. */
typedef enum zt_ctl_streams { ZT_CTL_ALL = 7, ZT_CTL_ALL_BUT_STDOUT = 6 } zt_ctl_streams;
void zt_ctl_follow(struct zt_ctl *ctl, uint32_t client, zt_ctl_streams streams,
                   bool recent);
/* A line was printed (stream 1, 2 or ZT_CTL_EVENT): pass it to the followers. Without its
 * newline. */
#define ZT_CTL_EVENT 3 /* a JSON object, of a job that prints nothing else */
void zt_ctl_publish_line(struct zt_ctl *ctl, int stream, const char *tag,
                         const char *text, size_t n);

/* The job is over: no new clients, END to all, the socket is removed. */
void zt_ctl_finish(struct zt_ctl *ctl, int exit_code);
bool zt_ctl_flushed(const struct zt_ctl *ctl); /* all clients have all their bytes */

/* ------------------------------------------------------------------ its end (ended.c) */

/* The last job of this folder is `job`, which prints to file `log` (NULL: to where it was
 * started) and is over if exit_code is not NULL; one that has begun since stays the last.
 * lost: errno of what the log did not take, 0: it has all. Best effort. */
void zt_ctl_note_job(const char *job, const char *log, const int *exit_code, int lost);

/* ------------------------------------------------------------------ client (client.c) */

/* What a job can be asked for: the name in C, the request, and how messages show it. */
#define ZT_CTL_REQUESTS(X)                                                               \
    X(status, "status", "status")                                                        \
    X(stop, "stop", "stop")                                                              \
    X(save, "save", "save")                                                              \
    X(save_weights, "save weights", "save weights [DIR]")                                \
    X(trace, "trace", "trace")                                                           \
    X(stacks, "stacks", "stacks")
/* "status, stop, save, save weights [DIR], trace or stacks" */
const char *zt_ctl_requests_text(char out[128]);

/* `zlaunch --ctl JOB ASK`, `--ctl list`: the exit code; the fault is for the caller to
 * show. job: id, a prefix that only one has, or "last"; words: one, or save weights [DIR].
 * As text the answers go to stdout by stdio; in JSON they are events "status", "answer" and
 * "output" of `r`, as all remarks are.
 */
int zt_ctl_main(const char *job, int argc, char *const *words, struct zt_render *r,
                struct zt_fault *fault);
/* `zlaunch --attach JOB`: the job's exit code; 130 when the user goes away. *ended: the
 * job's own event "end" has been shown. */
int zt_ctl_attach(const char *job, struct zt_render *r, bool *ended,
                  struct zt_fault *fault);

#endif
