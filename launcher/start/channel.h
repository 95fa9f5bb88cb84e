/*
 * channel.h -- the byte stream between zlaunch and the daemon of a node.
 *
 * A starter (local, ssh, slurm) starts a daemon on a node and returns a channel: a stream
 * of bytes to the daemon's stdin and from its stdout. docs/PROTOCOL.md describes the
 * frames on it; a starter does not parse them.
 *
 *      start() --on_up--> bytes, notes both ways --on_down--> freed by the starter
 *         |                                           ^
 *         +------------- cannot be reached -----------+
 *
 * Threads: all on the loop's thread. No callback comes from inside start() or close();
 * a callback may call write(), pause() and close().
 */
#ifndef LAUNCHER_START_CHANNEL_H
#define LAUNCHER_START_CHANNEL_H

#include "common/fault.h"

#include <uv.h>

struct zt_channel_ops;

/* A starter's own struct begins with it. */
struct zt_channel {
    const struct zt_channel_ops *ops;
    /* Set before on_down if the starter knows the daemon's exit status: the exit code of
     * zlaunch. 0: the code of on_down's fault decides. */
    int exit_code;
    pid_t
        pid; /* the process of this host that it hangs on: the daemon, ssh, srun; 0: none */
};

struct zt_channel_ops {
    /* Copied and queued; lost after on_down. What cannot be queued or sent ends the
     * connection, as close() does: half a conversation is none. */
    void (*write)(struct zt_channel *c, const void *data, size_t n);
    /* Stop or go on reading. on_down may wait while paused. */
    void (*pause)(struct zt_channel *c, bool pause);
    /* Close the connection by force; on_down follows, then the starter frees c. */
    void (*close)(struct zt_channel *c);
    /* optional: the daemon's process is seen to live, and is not stopped: if it says nothing
     * it has not been given the processor. NULL: it cannot be seen from here. */
    bool (*lives)(struct zt_channel *c);
};

struct zt_channel_events {
    void (*on_up)(void *ctx); /* connected, the daemon has been executed */
    void (*on_bytes)(void *ctx, const void *data, size_t n); /* the daemon's stdout */
    void (*on_note)(void *ctx, const char *line);            /* one line for the user */
    /* The last event, exactly once. why NULL: the remote side closed in order; its text
     * does not name the host, the caller does. */
    void (*on_down)(void *ctx, const struct zt_fault *why);
};

struct zt_ssh_options {
    int port;             /* 0: the default */
    const char *identity; /* key file; NULL: agent and the usual files */
    const char *known_hosts;
    bool check_host_key;
    const char *jump; /* user@host:port; NULL: none */
    bool push;        /* copy push_files to push_dir on the node first */
    char *const *push_files;
    const char *push_dir;
    const char *program; /* use this ssh program; NULL: the library where it can */
};

/* All strings live until on_down. */
struct zt_start_request {
    const char *host, *user; /* user NULL: the caller's */
    int port;                /* 0: the starter's default */
    int node_rank;
    const char *zworker; /* path or name of the daemon there; NULL: look for it */
    const char *cwd;     /* NULL: where the starter comes out */
    /* NAME=VALUE, NULL-terminated, on top of the daemon's environment; a value may hold
     * any byte but NUL and newline */
    char *const *env;
    const struct zt_ssh_options *ssh; /* NULL for starters that need none */
    double timeout_s;                 /* of each phase of getting there */
};

struct zt_starter {
    const char *name; /* "local": what messages and --dry_run call it */
    /* A failure found later comes as on_down. As there, the fault does not name the host. */
    zt_err (*start)(const struct zt_start_request *rq, uv_loop_t *loop,
                    const struct zt_channel_events *ev, void *ctx,
                    struct zt_channel **out, struct zt_fault *fault);
};

extern const struct zt_starter zt_starter_local;

#endif
