/*
 * route.h -- how to reach one host by ssh: the options of zlaunch, then ssh_config,
 * then the defaults, made into one set of facts.
 *
 * Ownership: the caller owns the struct, the struct its strings; `link` points into it,
 *            so it must not move.
 * Threads:   one; reads files and the environment.
 */
#ifndef LAUNCHER_SSH_ROUTE_H
#define LAUNCHER_SSH_ROUTE_H

#include "launcher/start/channel.h"
#include "launcher/ssh/config.h"
#include "launcher/ssh/session.h"

struct zt_ssh_route {
    struct zt_ssh_session_config link;
    struct zt_ssh_config config;
    char *label, *host, *user;
    char *named[ZT_SSH_MAX_FILES + 2], *usual[4], *known[ZT_SSH_MAX_FILES + 4];
    char *jump;          /* [user@]host[:port]; NULL: straight */
    char *needs_program; /* why only the ssh program can do it; NULL: the library can */
    char *
        program_config; /* -F FILE for the program when HOME is not the user's; or NULL */
};

struct zt_ssh_target {
    const char *name;  /* as the user wrote it */
    const char *label; /* "jump host NAME", for messages; NULL: the node itself */
    const char *user;  /* NULL: ssh_config's, or the caller */
    int port;          /* 0: ssh_config's, or 22 */
    double timeout_s;
};

/* ZT_E_NOINPUT: a file that cannot be read; ZT_E_NOMEM. Release it in any case. */
zt_err zt_ssh_route_init(struct zt_ssh_route *r, const struct zt_ssh_target *t,
                         const struct zt_ssh_options *opt,
                         struct zt_fault *fault) ZT_MUST_CHECK;
void zt_ssh_route_release(struct zt_ssh_route *r);

/*
 * Take [user@]host[:port] or [user@][v6]:port apart; an ssh:// in front is dropped. The
 * strings are allocated; *user may come out NULL and *port 0. ZT_E_USAGE, ZT_E_NOMEM.
 */
zt_err zt_ssh_split(const char *text, char **user, char **host, int *port,
                    struct zt_fault *fault) ZT_MUST_CHECK;

#endif
