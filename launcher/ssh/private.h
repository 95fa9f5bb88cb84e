/*
 * private.h -- the ssh starter's own struct, shared by its files.
 *
 *      ssh.c       the starter: which way is taken, the first output of the remote shell,
 *                  the end
 *      exec.c      the way through libssh2: push, exec, the stream
 *      program.c   the way through the ssh program
 *
 * Both ways take from `out` what goes to the remote stdin, and hand up what comes.
 */
#ifndef LAUNCHER_SSH_PRIVATE_H
#define LAUNCHER_SSH_PRIVATE_H

#include "common/buf.h"
#include "launcher/ssh/ssh.h"
#include "launcher/ssh/jump.h"
#include "launcher/ssh/session.h"
#include "launcher/ssh/push.h"
#include "launcher/ssh/route.h"

#define ZT_SSH_NONCE      16
#define ZT_SSH_TAIL_LINES 3
#define ZT_SSH_LINE       512

struct zt_ssh_program;

struct zt_ssh {
    struct zt_channel channel;
    const struct zt_channel_events *ev;
    void *ctx;
    struct zt_start_request rq;
    struct zt_ssh_options opt;
    uv_loop_t *loop;
    uv_timer_t tick; /* keepalive; closed last */

    struct zt_ssh_route route, jump_route;
    char *jump_label, *here; /* here: zworker's path on this machine, or NULL */
    char *searched;          /* where zworker is looked for, for people */
    struct zt_ssh_session *link;
    struct zt_jump *jump;
    struct zt_push *push;
    struct zt_ssh_program *program;
    char *program_reason; /* set: the ssh program takes over when all else is closed */

    struct zt_buf out;              /* the script, then what is written */
    struct zt_buf head;             /* stdout before the marker */
    char marker[ZT_SSH_NONCE + 16]; /* "zlaunch-NONCE " */
    char line[ZT_SSH_LINE];         /* of stderr, not complete yet */
    size_t line_bytes;
    char tail[ZT_SSH_TAIL_LINES][ZT_SSH_LINE]; /* the last lines of stderr */
    unsigned num_lines;
    bool up, missing, paused, ending, failed, overflow;
    struct zt_fault fault;

    LIBSSH2_CHANNEL *exec;
    bool executed, eof;
    int unsent; /* stream whose read has to finish sending first; -1: none */
};

/* The remote stdout or stderr. The caller stops when s->ending is set. */
void zt_ssh_on_stdout(struct zt_ssh *s, const char *bytes, size_t n);
void zt_ssh_on_stderr(struct zt_ssh *s, const char *bytes, size_t n);
/* The remote command is over: its exit status, or the name of a signal ("TERM"). */
void zt_ssh_on_exit(struct zt_ssh *s, int status, const char *signal_name);
/* Close everything; why NULL: the remote side ended with 0. */
void zt_ssh_finish(struct zt_ssh *s, const struct zt_fault *why);
/* The link, the jump or the program is closed. */
void zt_ssh_part_closed(struct zt_ssh *s);
/* The last line of stderr, or else of stdout before the marker; or "". */
const char *zt_ssh_last_line(struct zt_ssh *s);

/* exec.c: on_work of the link to the node. */
void zt_ssh_exec_work(struct zt_ssh *s);

/* program.c. NULL: *fault is set. */
struct zt_ssh_program *zt_ssh_program_open(struct zt_ssh *s, struct zt_fault *fault);
void zt_ssh_program_close(struct zt_ssh_program *p); /* zt_ssh_part_closed() follows */
void zt_ssh_program_wake(struct zt_ssh_program *p);  /* `out` or `paused` changed */

#endif
