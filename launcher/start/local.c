/*
 * The starter of this host: fork, and a socket pair as the channel. The daemon runs in a
 * session of its own, so that a Ctrl-C in the terminal reaches zlaunch alone.
 *
 * The channel is down when the daemon's end is closed and the daemon is reaped, so that
 * on_down can say how it ended.
 */
#include "launcher/start/channel.h"

#include "common/proc.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

struct local {
    struct zt_channel channel;
    const struct zt_channel_events *ev;
    void *ctx;
    uv_pipe_t pipe;
    uv_signal_t sigchld;
    uv_async_t up;
    int status;
    const char *lost; /* why this side gave the daemon up; NULL: it did not */
    int num_handles;  /* not yet closed; the struct goes with the last */
    bool up_told, reaped, eof, down;
};

struct local_write {
    uv_write_t req;
    char bytes[];
};

/* ------------------------------------------------------------------ the end */

static void on_closed(uv_handle_t *handle)
{
    struct local *l = handle->data;

    if (--l->num_handles == 0)
        free(l);
}

static void close_handle(uv_handle_t *handle)
{
    if (!uv_is_closing(handle))
        uv_close(handle, on_closed);
}

/* How the daemon ended, if it did not exit with 0. */
static bool describe_exit(struct local *l, struct zt_fault *why)
{
    if (l->lost) {
        l->channel.exit_code = zt_err_exit_code(ZT_E_SYSTEM);
        zt_fault_set(why, ZT_E_SYSTEM,
                     "what the node daemon has to know cannot be sent: %s", l->lost);
        return true;
    }
    if (WIFSIGNALED(l->status)) {
        l->channel.exit_code = 128 + WTERMSIG(l->status);
        zt_fault_set(why, ZT_E_SYSTEM, "the node daemon (pid %d) was killed by %s",
                     (int)l->channel.pid, zt_signal_text(WTERMSIG(l->status)));
        return true;
    }
    if (WEXITSTATUS(l->status) == 0)
        return false;
    l->channel.exit_code = WEXITSTATUS(l->status);
    zt_fault_set(why, ZT_E_SYSTEM,
                 "the node daemon (pid %d) ended early with exit code %d",
                 (int)l->channel.pid, WEXITSTATUS(l->status));
    return true;
}

static void report_down(struct local *l)
{
    struct zt_fault why = {0};
    bool bad;

    if (l->down || !l->reaped || !l->eof)
        return;
    l->down = true;
    bad = describe_exit(l, &why);
    l->ev->on_down(l->ctx, bad ? &why : NULL);
    close_handle((uv_handle_t *)&l->sigchld);
    close_handle((uv_handle_t *)&l->up);
}

static void end_of_file(struct local *l)
{
    if (l->eof)
        return;
    l->eof = true;
    close_handle((uv_handle_t *)&l->pipe);
    report_down(l);
}

static void on_sigchld(uv_signal_t *handle, int sig)
{
    struct local *l = handle->data;

    (void)sig;
    if (!l->reaped && waitpid(l->channel.pid, &l->status, WNOHANG) == l->channel.pid) {
        l->reaped = true;
        report_down(l);
    }
}

/* ------------------------------------------------------------------ bytes */

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    static char block[65536]; /* the loop's own: one read at a time */

    (void)handle;
    (void)suggested;
    *buf = uv_buf_init(block, sizeof(block));
}

static void on_read(uv_stream_t *stream, ssize_t k, const uv_buf_t *buf)
{
    struct local *l = stream->data;

    if (k < 0)
        end_of_file(l);
    else if (k > 0)
        l->ev->on_bytes(l->ctx, buf->base, (size_t)k);
}

/* End the connection; on_down follows. */
static void cut_off(struct local *l)
{
    if (!l->reaped)
        kill(l->channel.pid, SIGKILL);
    if (!l->eof) {
        l->eof = true;
        close_handle((uv_handle_t *)&l->pipe);
        uv_async_send(&l->up);
    }
}

static void give_up(struct local *l, const char *why)
{
    if (!l->eof)
        l->lost = why;
    cut_off(l);
}

static void on_written(uv_write_t *req, int status)
{
    struct local *l = req->handle->data;

    if (status == UV_ENOMEM || status == UV_ENOBUFS) /* others: its end shows in a read */
        give_up(l, uv_strerror(status));
    free(req);
}

static void local_write(struct zt_channel *c, const void *data, size_t n)
{
    struct local *l = (struct local *)c;
    struct local_write *r = l->eof ? NULL : malloc(sizeof(*r) + n);
    uv_buf_t buf;

    if (!r) {
        give_up(l, "no memory");
        return;
    }
    memcpy(r->bytes, data, n);
    buf = uv_buf_init(r->bytes, (unsigned)n);
    if (uv_write(&r->req, (uv_stream_t *)&l->pipe, &buf, 1, on_written)) {
        free(r);
        give_up(l, "no memory");
    }
}

static void local_pause(struct zt_channel *c, bool pause)
{
    struct local *l = (struct local *)c;

    if (l->eof)
        return;
    if (pause)
        uv_read_stop((uv_stream_t *)&l->pipe);
    else
        uv_read_start((uv_stream_t *)&l->pipe, on_alloc, on_read);
}

/* Events of start() and close(), which must not come from inside these calls. */
static void on_up(uv_async_t *async)
{
    struct local *l = async->data;

    if (l->down)
        return;
    if (!l->up_told) {
        l->up_told = true;
        l->ev->on_up(l->ctx);
    }
    on_sigchld(&l->sigchld, SIGCHLD); /* it may have died before the watch began */
    report_down(l);
}

static void local_close(struct zt_channel *c)
{
    cut_off((struct local *)c);
}

/* Not yet reaped, so the process is the one that was started. */
static bool local_lives(struct zt_channel *c)
{
    const struct local *l = (struct local *)c;
    char state = l->reaped ? 0 : zt_proc_state(l->channel.pid);

    return state && !strchr("TtZX", state);
}

/* ------------------------------------------------------------------ starting */

static void put_env(char *const *env)
{
    for (; env && *env; env++)
        putenv(*env); /* the child's copy; it is about to become another program */
}

static void daemon_child(const struct zt_start_request *rq, int fd)
{
    sigset_t none;

    setsid();
    for (int sig = 1; sig < NSIG; sig++)
        if (sig != SIGKILL && sig != SIGSTOP)
            signal(sig, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    put_env(rq->env);
    if (rq->cwd && chdir(rq->cwd) < 0) {
        fprintf(stderr, "zlaunch: error: cannot enter folder %s: %s\n", rq->cwd,
                strerror(errno));
    } else {
        if (dup2(fd, STDIN_FILENO) >= 0 && dup2(fd, STDOUT_FILENO) >= 0)
            execl(rq->zworker, "zworker", "--daemon", (char *)NULL);
        fprintf(stderr, "zlaunch: error: cannot run %s: %s\n", rq->zworker,
                strerror(errno));
    }
    fflush(stderr);
    _exit(71);
}

static zt_err fork_daemon(const struct zt_start_request *rq, pid_t *pid, int *fd,
                          struct zt_fault *fault)
{
    sigset_t all, before;
    int pair[2], e;

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return zt_fault_set(fault, ZT_E_SYSTEM, "control channel: %s", strerror(errno));
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before); /* no handler of ours may run in the child */
    *pid = fork();
    e = errno;
    if (*pid == 0)
        daemon_child(rq, pair[1]);
    sigprocmask(SIG_SETMASK, &before, NULL);
    close(pair[1]);
    if (*pid < 0) {
        close(pair[0]);
        return zt_fault_set(fault, ZT_E_SYSTEM, "cannot start the node daemon: fork: %s",
                            strerror(e));
    }
    *fd = pair[0];
    return ZT_OK;
}

static const struct zt_channel_ops ops = {
    .write = local_write,
    .pause = local_pause,
    .close = local_close,
    .lives = local_lives,
};

static zt_err start_local(const struct zt_start_request *rq, uv_loop_t *loop,
                          const struct zt_channel_events *ev, void *ctx,
                          struct zt_channel **out, struct zt_fault *fault)
{
    struct local *l = calloc(1, sizeof(*l));
    zt_err rc;
    int fd = -1;

    if (!l)
        return zt_fault_set(fault, ZT_E_NOMEM, "no memory for a channel");
    rc = fork_daemon(rq, &l->channel.pid, &fd, fault);
    if (rc) {
        free(l);
        return rc;
    }
    l->channel.ops = &ops;
    l->ev = ev;
    l->ctx = ctx;
    uv_pipe_init(loop, &l->pipe, 0);
    uv_signal_init(loop, &l->sigchld);
    uv_async_init(loop, &l->up, on_up);
    l->pipe.data = l->sigchld.data = l->up.data = l;
    l->num_handles = 3;
    uv_signal_start(&l->sigchld, on_sigchld, SIGCHLD);
    /* a socket this process has just made can be opened */
    if (uv_pipe_open(&l->pipe, fd) == 0)
        uv_read_start((uv_stream_t *)&l->pipe, on_alloc, on_read);
    else
        local_close(&l->channel);
    uv_async_send(&l->up);
    *out = &l->channel;
    return ZT_OK;
}

const struct zt_starter zt_starter_local = {.name = "local", .start = start_local};
