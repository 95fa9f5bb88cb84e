/*
 * session.h -- one ssh session, from a name to "authenticated", on the loop.
 *
 *      resolve -> connect -> handshake -> host key -> authentication -> ready
 *         each step is a function that is called again until it no longer waits;
 *         each phase has a time limit; a server that hangs up before it has said
 *         anything (MaxStartups) is tried again a few times
 *
 * When ready the owner works with `session` in on_work, which comes whenever the socket
 * may have something to do; it calls libssh2 until EAGAIN.
 *
 * Ownership: zt_ssh_session_open() allocates; zt_ssh_session_close() ends everything, on_closed comes
 *            from the loop, then the link is freed.
 * Threads:   the loop's. No event comes from inside zt_ssh_session_open() or zt_ssh_session_close().
 */
#ifndef LAUNCHER_SSH_SESSION_H
#define LAUNCHER_SSH_SESSION_H

#include "common/fault.h"

#include <libssh2.h>
#include <netdb.h>
#include <uv.h>

struct zt_ssh_session_config { /* everything lives as long as the link */
    const char *label;         /* stands in front of faults; NULL: nothing does */
    const char *host;          /* to connect to, and to look up in known_hosts */
    int port;
    const char *user;
    char *const *identities;    /* key files named by the user, NULL-terminated: first */
    char *const *default_files; /* key files tried last, NULL-terminated */
    const char *agent;          /* socket of the agent; NULL: none */
    char *const *known_files;   /* NULL-terminated; the first is where keys get added */
    bool check_host_key;
    double timeout_s;
    int fd; /* a connected socket, which becomes the link's; -1: dial */
};

struct zt_ssh_session_events {
    void (*on_ready)(void *ctx);
    void (*on_work)(void *ctx);
    /* program: the ssh program may manage what the library cannot; `why` says what */
    void (*on_fail)(void *ctx, const struct zt_fault *why, bool program);
    void (*on_closed)(void *ctx); /* the link is gone */
};

/* The step functions' answers. */
typedef enum zt_ssh_session_step {
    ZT_STEP_NEXT,
    ZT_STEP_WAIT,
    ZT_STEP_FAILED
} zt_ssh_session_step;

struct zt_auth;

struct zt_ssh_session {
    const struct zt_ssh_session_config *cfg;
    const struct zt_ssh_session_events *ev;
    void *ctx;
    uv_loop_t *loop;
    LIBSSH2_SESSION *session;
    struct zt_auth *auth;
    bool want_read;  /* when ready: wake for anything that arrives */
    bool want_write; /* when ready: libssh2 has something it could not write */

    /* the rest is the link's own */
    int phase, tries, fd;
    int early;  /* sockets that this address has not answered and that were given up */
    int events; /* that the poll waits for; 0: none */
    bool closing, failed, waking, parked, deadline_extended;
    uv_poll_t *poll;
    uv_timer_t deadline, soon;
    int num_handles;
    struct resolving *resolving;
    struct addrinfo *addrs, *addr;
    const char *phase_name;
    double phase_s;
    struct zt_fault fault;
    bool program;
};

/* NULL: no memory, or no timers. */
struct zt_ssh_session *zt_ssh_session_open(uv_loop_t *loop,
                                           const struct zt_ssh_session_config *cfg,
                                           const struct zt_ssh_session_events *ev,
                                           void *ctx);
void zt_ssh_session_close(struct zt_ssh_session *l); /* NULL is fine */

/* Call the current step (or on_work) soon, from the loop. */
void zt_ssh_session_wake(struct zt_ssh_session *l);

/* A phase of the owner's: on_fail names it when `seconds` pass; NULL ends it. */
void zt_ssh_session_phase(struct zt_ssh_session *l, const char *name, double seconds);

/* Set the fault, and fail: on_fail follows from the loop. */
zt_ssh_session_step zt_ssh_session_fail(struct zt_ssh_session *l, bool program,
                                        zt_err code, const char *fmt, ...)
    ZT_PRINTF(4, 5);

/*
 * When ready: a call has left with a part of its packet not sent. That call has to be
 * repeated before any other that may send, or libssh2 gives up (LIBSSH2_ERROR_BAD_USE).
 */
bool zt_ssh_session_sending(const struct zt_ssh_session *l);

/* What libssh2 says was wrong, in words. */
const char *zt_ssh_session_error(const struct zt_ssh_session *l);

/* auth.c. Steps of authentication; NEXT when the server is content. */
zt_ssh_session_step zt_auth_step(struct zt_ssh_session *l);
void zt_auth_release(struct zt_ssh_session *l);

/* The step of the host key's check. */
zt_ssh_session_step zt_ssh_session_check_host(struct zt_ssh_session *l);
/* Choose the order of host key algorithms before the handshake. */
zt_ssh_session_step zt_ssh_session_prefer_known(struct zt_ssh_session *l);

#endif
