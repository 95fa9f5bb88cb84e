/*
 * ctl.h -- ask a running job for things, over a unix socket that only its owner can open.
 *
 *      zlaunch --ctl JOB ASK  --frames-->  DIR/JOB.sock of the zlaunch that runs the job
 *
 * DIR is $XDG_RUNTIME_DIR/zlaunch, or /tmp/zlaunch-UID where the first cannot be used: a
 * folder of mode 0700 that belongs to this user, checked before use; the server also
 * looks at who is on the other end. A conversation is one ASK and what follows until END,
 * see docs/PROTOCOL.md. The socket appears under its name when it is listened to, so one
 * that refuses a connection belongs to a job that was killed: whoever finds it removes
 * it.
 *
 * Nothing a client does holds up the job: a client that says nothing is closed after
 * seconds, one that reads too slowly loses lines and is told how many, and there are at
 * most 64 at a time.
 * Threads: the loop's, for the server; the client part blocks and has no loop.
 */
#ifndef LAUNCHER_CTL_H
#define LAUNCHER_CTL_H

#include "common/fault.h"
#include "common/options.h"

#include <jansson.h>
#include <uv.h>

#define ZT_CTL_PATH       108 /* as long as the name of a unix socket may be */
#define ZT_CTL_CLIENTS    64
#define ZT_CTL_RING_LINES 100
#define ZT_CTL_RING_BYTES (256u << 10)
#define ZT_CTL_LINE_BYTES (64u << 10) /* what is longer is cut */
#define ZT_CTL_QUEUE      (1u << 20)  /* bytes that wait for one client */

/* ------------------------------------------------------------------ where (ctl_dir.c) */

/* The i-th place, 0 or 1; made if it is not there and `create`. ZT_E_NOINPUT: not there,
 * or no such place; ZT_E_SYSTEM: not ours, or open to others. */
zt_err zt_ctl_dir_at(int i, bool create, char out[ZT_CTL_PATH],
                     struct zt_fault *fault) ZT_MUST_CHECK;
/* The first place that can be used; made if need be. */
zt_err zt_ctl_dir(char out[ZT_CTL_PATH], struct zt_fault *fault) ZT_MUST_CHECK;
/* DIR/JOB + suffix, as in ".sock". ZT_E_LIMIT: too long. */
zt_err zt_ctl_path(const char *dir, const char *job, const char *suffix,
                   char out[ZT_CTL_PATH], struct zt_fault *fault) ZT_MUST_CHECK;

/* ------------------------------------------------------------------ server (ctl.c) */

struct zt_ctl;

struct zt_ctl_config {
    uv_loop_t *loop;
    const char *job_id;
    /* A client asks; answered now or later, by its number. */
    void (*on_ask)(void *ctx, uint32_t client, const char *ask);
    void *ctx;
};

zt_err zt_ctl_open(const struct zt_ctl_config *cfg, struct zt_ctl **out,
                   struct zt_fault *fault) ZT_MUST_CHECK;
/* No more clients and no socket; memory goes when the loop has closed the handles. NULL
 * is fine. */
void zt_ctl_close(struct zt_ctl *ctl);

/* Numbers of clients that are gone are ignored. */
void zt_ctl_answer(struct zt_ctl *ctl, uint32_t client, const json_t *object);
void zt_ctl_say(struct zt_ctl *ctl, uint32_t client, const char *fmt, ...)
    ZT_PRINTF(3, 4);
/* The last word; `text` is the reason of a code that is not 0, or NULL. */
void zt_ctl_end(struct zt_ctl *ctl, uint32_t client, int exit_code, const char *text);
bool zt_ctl_has(const struct zt_ctl *ctl, uint32_t client);

/* From now on this client gets every line of these streams; `recent`: the last ones
 * first. */
typedef enum zt_ctl_streams { ZT_CTL_BOTH = 3, ZT_CTL_STDERR = 2 } zt_ctl_streams;
void zt_ctl_follow(struct zt_ctl *ctl, uint32_t client, zt_ctl_streams streams,
                   bool recent);
/* The screen got a line (stream 1 or 2), without its newline. */
void zt_ctl_line(struct zt_ctl *ctl, int stream, const char *tag, const char *text,
                 size_t n);

/* The job is over: no new clients, END to all, and the socket goes. */
void zt_ctl_finish(struct zt_ctl *ctl, int exit_code);
bool zt_ctl_flushed(const struct zt_ctl *ctl); /* nobody waits for bytes any more */

/* ------------------------------------------------------------------ client
 * (ctl_client.c)
 */

/* `zlaunch --ctl JOB ASK`, `--ctl list`: the exit code; the fault is for the caller to
 * show. job: id, a prefix that only one has, or "last". */
int zt_ctl_main(const char *job, const char *ask, bool json, struct zt_fault *fault);
/* `zlaunch --attach JOB`: the job's exit code; 130 when the user goes away. */
int zt_ctl_attach(const char *job, struct zt_fault *fault);

#endif
