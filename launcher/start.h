/*
 * start.h -- bring a daemon to life on a node and get a channel to it.
 *
 * A starter is one row of a table; this version has the local one. Its daemon runs in a
 * session of its own, so that a Ctrl-C in the terminal reaches zlaunch alone, and speaks
 * frames on stdin and stdout.
 */
#ifndef LAUNCHER_START_H
#define LAUNCHER_START_H

#include "common/fault.h"

#include <sys/types.h>

struct zt_started {
    pid_t pid;
    int fd; /* the control channel, a socket; close-on-exec, the caller's to close */
};

struct zt_starter {
    const char *name; /* "local": what messages and --dry_run call it */
    zt_err (*start)(const char *host, const char *zworker, struct zt_started *out,
                    struct zt_fault *fault);
};

extern const struct zt_starter zt_starter_local;

/*
 * The zworker to run: ZLAUNCH_ZWORKER, or the one beside this binary, or the one in PATH.
 * Allocated. ZT_E_NOINPUT: there is none.
 */
zt_err zt_find_zworker(char **out, struct zt_fault *fault) ZT_MUST_CHECK;

/* Where `name` would be found when executed; allocated. ZT_E_NOINPUT: nowhere. */
zt_err zt_find_program(const char *name, char **out,
                       struct zt_fault *fault) ZT_MUST_CHECK;

#endif
