/*
 * The way through the ssh program: the same bytes, over a socket pair on its stdin and
 * stdout. It leads a session of its own, away from the terminal's signals, and dies with
 * zlaunch.
 */
#include "launcher/ssh/private.h"

#include "launcher/ssh/quote.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAX_ARGS  48
#define CHUNK     65536
#define MAX_WRITE (1u << 20) /* in one go, so that progress can be seen */
#define LOOK_MS   10
#define MAX_LOOKS 20 /* for last words while somebody else holds its stderr open */

struct zt_ssh_program {
    struct zt_ssh *s;
    uv_pipe_t io, err;
    uv_timer_t deadline, poll; /* poll: for the end of the process */
    uv_write_t write_req;
    char *writing;
    int num_handles;
    pid_t pid;
    int status; /* of waitpid */
    int looks;  /* since it was reaped */
    bool reaped, reading, io_eof, err_eof, closing, told, handles_closed;
};

/* ------------------------------------------------------------------ the command */

struct args {
    char *word[MAX_ARGS];
    int num;
    bool failed;
};

static void add(struct args *a, const char *fmt, const char *text)
{
    if (a->num == MAX_ARGS - 1 || asprintf(&a->word[a->num], fmt, text) < 0) {
        a->failed = true;
        return;
    }
    a->num++;
}

static void add_option(struct args *a, const char *fmt, const char *text)
{
    add(a, "%s", "-o");
    add(a, fmt, text);
}

static void build(struct args *a, const struct zt_ssh *s)
{
    const struct zt_ssh_route *r = &s->route;
    char number[16];

    add(a, "%s", s->opt.program ? s->opt.program : "ssh");
    add(a, "%s", "-T");
    add_option(a, "%s", "BatchMode=yes");
    snprintf(number, sizeof(number), "%d", (int)(s->rq.timeout_s + 0.999));
    add_option(a, "ConnectTimeout=%s", number);
    add_option(a, "%s", "ServerAliveInterval=5");
    add_option(a, "%s", "ServerAliveCountMax=3");
    add_option(a, "%s", "ControlMaster=no"); /* else a master keeps our stderr open */
    if (!s->opt.check_host_key) {
        add_option(a, "%s", "StrictHostKeyChecking=no");
        add_option(a, "%s", "UserKnownHostsFile=/dev/null");
        add_option(a, "%s", "LogLevel=ERROR");
    } else if (s->opt.known_hosts || r->config.strict != 0) {
        add_option(a, "%s", "StrictHostKeyChecking=yes");
    }
    if (s->opt.check_host_key && (s->opt.known_hosts || r->program_config))
        add_option(a, "UserKnownHostsFile=\"%s\"", r->known[0] ? r->known[0] : "none");
    if (r->program_config) {
        add(a, "%s", "-F");
        add(a, "%s", r->program_config);
    }
    for (int i = 0; r->named[i] && (s->opt.identity || r->program_config); i++) {
        add(a, "%s", "-i");
        add(a, "%s", r->named[i]);
    }
    for (int i = 0; i < 3 && r->program_config && !r->named[0]; i++) {
        add(a, "%s", "-i");
        add(a, "%s", r->usual[i]);
    }
    snprintf(number, sizeof(number), "%d", s->rq.port ? s->rq.port : s->opt.port);
    if (s->rq.port || s->opt.port) {
        add(a, "%s", "-p");
        add(a, "%s", number);
    }
    if (s->rq.user) {
        add(a, "%s", "-l");
        add(a, "%s", s->rq.user);
    }
    if (s->opt.jump) {
        add(a, "%s", "-J");
        add(a, "%s", s->opt.jump);
    }
    add(a, "%s", "--");
    add(a, "%s", s->rq.host);
    add(a, "%s", zt_shell_bootstrap);
    a->word[a->num] = NULL;
}

/* ------------------------------------------------------------------ the end */

static void on_closed(uv_handle_t *handle)
{
    struct zt_ssh_program *p = handle->data;
    struct zt_ssh *s = p->s;

    if (--p->num_handles)
        return;
    free(p->writing);
    free(p);
    s->program = NULL;
    zt_ssh_part_closed(s);
}

static void close_handles(struct zt_ssh_program *p)
{
    if (p->handles_closed)
        return;
    p->handles_closed = true;
    uv_close((uv_handle_t *)&p->io, on_closed);
    uv_close((uv_handle_t *)&p->err, on_closed);
    uv_close((uv_handle_t *)&p->deadline, on_closed);
    uv_close((uv_handle_t *)&p->poll, on_closed);
}

static void reap(struct zt_ssh_program *p)
{
    siginfo_t info = {0};
    pid_t got;

    if (p->reaped)
        return;
    /* what it has started (a ProxyCommand) goes with it, while its number is still taken
     */
    if (waitid(P_PID, (id_t)p->pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
        info.si_pid == p->pid)
        kill(-p->pid, SIGKILL);
    got = waitpid(p->pid, &p->status, WNOHANG);
    if (got == p->pid || (got < 0 && errno == ECHILD))
        p->reaped = true;
    if (got < 0)
        p->status = 0; /* somebody else took it: what it said must do */
}

static void tell(struct zt_ssh_program *p)
{
    struct zt_ssh *s = p->s;
    int code = WIFEXITED(p->status) ? WEXITSTATUS(p->status) : 255;
    struct zt_fault why;

    p->told = true;
    if (code != 255) {
        zt_ssh_on_exit(s, code, NULL);
        return;
    }
    zt_fault_set(&why, ZT_E_HOST, "the ssh program (%s): %s",
                 s->up ? "the connection was lost" : "no connection",
                 *zt_ssh_last_line(s) ? zt_ssh_last_line(s) : "it does not say why");
    zt_ssh_finish(s, &why);
}

/* Over when both its streams have ended and it is reaped. */
static void maybe_over(struct zt_ssh_program *p)
{
    reap(p);
    if (p->closing) {
        if (p->reaped)
            close_handles(p);
    } else if (p->reaped && p->io_eof && !p->told &&
               (p->err_eof || ++p->looks > MAX_LOOKS)) {
        tell(p);
    }
}

static void on_look(uv_timer_t *timer)
{
    maybe_over(timer->data);
}

/* The end of its streams announces the end of the process; then it is waited for. */
static void look_for_end(struct zt_ssh_program *p)
{
    if (!uv_is_active((uv_handle_t *)&p->poll))
        uv_timer_start(&p->poll, on_look, 1, LOOK_MS);
}

void zt_ssh_program_close(struct zt_ssh_program *p)
{
    if (!p || p->closing)
        return;
    p->closing = true;
    if (!p->reaped && kill(-p->pid, SIGKILL) < 0)
        kill(p->pid, SIGKILL); /* it has not come to its own session yet */
    uv_timer_stop(&p->deadline);
    look_for_end(p);
}

static void on_deadline(uv_timer_t *timer)
{
    struct zt_ssh_program *p = timer->data;
    struct zt_ssh *s = p->s;
    struct zt_fault why;

    if (s->up || s->ending)
        return;
    zt_fault_set(&why, ZT_E_HOST, "the ssh program did not get there in %.3g s: %s",
                 2 * s->rq.timeout_s,
                 *zt_ssh_last_line(s) ? zt_ssh_last_line(s) : "it says nothing");
    zt_ssh_finish(s, &why);
}

/* ------------------------------------------------------------------ bytes */

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    static char block[CHUNK]; /* the loop's own: one read at a time */

    (void)handle;
    (void)suggested;
    *buf = uv_buf_init(block, sizeof(block));
}

static void on_read(uv_stream_t *stream, ssize_t k, const uv_buf_t *buf)
{
    struct zt_ssh_program *p = stream->data;
    bool is_err = stream == (uv_stream_t *)&p->err;

    if (p->closing || k == 0)
        return;
    if (k > 0) {
        if (is_err)
            zt_ssh_on_stderr(p->s, buf->base, (size_t)k);
        else
            zt_ssh_on_stdout(p->s, buf->base, (size_t)k);
        return;
    }
    uv_read_stop(stream);
    if (is_err)
        p->err_eof = true;
    else
        p->io_eof = true;
    look_for_end(p);
}

static void write_next(struct zt_ssh_program *p);

static void on_written(uv_write_t *req, int status)
{
    struct zt_ssh_program *p = req->data;

    free(p->writing);
    p->writing = NULL;
    if (status != 0 || p->closing)
        return;
    if (!p->s->up) /* it moves: the clock starts again */
        uv_timer_again(&p->deadline);
    write_next(p);
}

static void write_next(struct zt_ssh_program *p)
{
    struct zt_buf *out = &p->s->out;
    size_t n = zt_buf_used(out);
    uv_buf_t buf;

    if (p->writing || !n || p->io_eof || p->closing)
        return;
    n = n < MAX_WRITE ? n : MAX_WRITE;
    p->writing = malloc(n);
    if (!p->writing)
        return; /* tried again with the next write */
    memcpy(p->writing, zt_buf_head(out), n);
    zt_buf_drop(out, n);
    buf = uv_buf_init(p->writing, (unsigned)n);
    if (uv_write(&p->write_req, (uv_stream_t *)&p->io, &buf, 1, on_written)) {
        free(p->writing);
        p->writing = NULL;
    }
}

void zt_ssh_program_wake(struct zt_ssh_program *p)
{
    if (p->closing)
        return;
    write_next(p);
    if (p->reading == !p->s->paused || p->io_eof)
        return;
    p->reading = !p->s->paused;
    if (p->reading)
        uv_read_start((uv_stream_t *)&p->io, on_alloc, on_read);
    else
        uv_read_stop((uv_stream_t *)&p->io);
}

/* ------------------------------------------------------------------ starting */

static void child(char **argv, int io, int err)
{
    sigset_t none;

    setsid();
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (int sig = 1; sig < NSIG; sig++)
        if (sig != SIGKILL && sig != SIGSTOP)
            signal(sig, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (dup2(io, STDIN_FILENO) >= 0 && dup2(io, STDOUT_FILENO) >= 0 &&
        dup2(err, STDERR_FILENO) >= 0)
        execvp(argv[0], argv);
    dprintf(err, "cannot run %s: %s; %s\n", argv[0], strerror(errno),
            strcmp(argv[0], "ssh") == 0 ? "install openssh-client"
                                        : "--ssh_program names it");
    _exit(255);
}

static pid_t spawn(char **argv, int io, int err)
{
    sigset_t all, before;
    pid_t pid;
    int e;

    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before); /* no handler of ours may run in the child */
    pid = fork();
    e = errno;
    if (pid == 0)
        child(argv, io, err);
    sigprocmask(SIG_SETMASK, &before, NULL);
    errno = e;
    return pid;
}

static void watch(struct zt_ssh_program *p, int io, int err)
{
    uv_loop_t *loop = p->s->loop;
    uint64_t limit_ms;

    uv_pipe_init(loop, &p->io, 0);
    uv_pipe_init(loop, &p->err, 0);
    uv_timer_init(loop, &p->deadline);
    uv_timer_init(loop, &p->poll);
    p->io.data = p->err.data = p->deadline.data = p->poll.data = p->write_req.data = p;
    p->num_handles = 4;
    p->reading = !p->s->paused;
    if (uv_pipe_open(&p->io, io) || uv_pipe_open(&p->err, err) ||
        uv_read_start((uv_stream_t *)&p->err, on_alloc, on_read) ||
        (p->reading && uv_read_start((uv_stream_t *)&p->io, on_alloc, on_read))) {
        p->io_eof = p->err_eof = true; /* told as an end without words */
        kill(p->pid, SIGKILL);
        look_for_end(p);
    }
    limit_ms = (uint64_t)(2e3 * p->s->rq.timeout_s);
    uv_timer_start(&p->deadline, on_deadline, limit_ms, limit_ms);
    write_next(p);
}

struct zt_ssh_program *zt_ssh_program_open(struct zt_ssh *s, struct zt_fault *fault)
{
    struct zt_ssh_program *p = calloc(1, sizeof(*p));
    int io[2] = {-1, -1}, err[2] = {-1, -1};
    struct args args = {0};

    build(&args, s);
    if (!p || args.failed) {
        zt_fault_set(fault, ZT_E_NOMEM, "no memory for the ssh program");
    } else if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, io) < 0 ||
               pipe2(err, O_CLOEXEC) < 0 ||
               (p->pid = spawn(args.word, io[1], err[1])) < 0) {
        zt_fault_set(fault, ZT_E_HOST, "cannot start the ssh program: %s",
                     strerror(errno));
    } else {
        p->s = s;
        s->channel.pid = p->pid;
        watch(p, io[0], err[0]);
        io[0] = err[0] = -1;
    }
    for (int i = 0; i < args.num; i++)
        free(args.word[i]);
    for (int i = 0; i < 2; i++) {
        if (io[i] >= 0)
            close(io[i]);
        if (err[i] >= 0)
            close(err[i]);
    }
    if (p && !p->s) {
        free(p);
        p = NULL;
    }
    return p;
}
