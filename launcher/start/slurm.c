/*
 * The starter for a Slurm allocation: one srun for each node, whose stdin and stdout are
 * the channel. srun runs in a session of its own, so that a Ctrl-C reaches zlaunch alone;
 * when zlaunch is gone the daemon's stdin ends, and with it the daemon and srun.
 *
 *      SPAWNED --first bytes--> UP --exit, end of stdout and stderr--> down
 *         |  nothing in time: close()        ^
 *         +----------------------------------+
 *
 * close() ends stdin, which a daemon that lives obeys; srun gets SIGTERM and SIGKILL when
 * that did not help.
 */
#include "launcher/start/slurm.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/env.h"
#include "common/hostlist.h"
#include "common/proc.h"
#include "launcher/start/program.h"

#define LINE_BYTES 1024 /* of stderr, as one note */
#define TERM_MS    2000 /* after close() */
#define KILL_MS    4000

extern char **environ;

struct slurm {
    struct zt_channel channel;
    const struct zt_channel_events *ev;
    void *ctx;
    double timeout_s;
    uv_process_t process;
    uv_pipe_t in, out, err;
    uv_timer_t timer; /* to come up; then to end */
    int handles;      /* not yet closed */
    int streams;      /* out and err that have not ended */
    bool exited, up, closing, killed, down;
    int64_t status;
    int signal;
    struct zt_fault why;                     /* code ZT_OK: nothing was wrong yet */
    char line[LINE_BYTES], last[LINE_BYTES]; /* of stderr */
    size_t line_bytes;
};

struct srun_write {
    uv_write_t req;
    char bytes[];
};

/* ------------------------------------------------------------------ the end */

static void on_closed(uv_handle_t *h)
{
    struct slurm *s = h->data;

    if (--s->handles)
        return;
    free(s);
}

static void close_handle(uv_handle_t *h)
{
    if (!uv_is_closing(h))
        uv_close(h, on_closed);
}

/* srun's own code is that of the daemon, or 1 when srun itself failed. */
static bool explain(struct slurm *s)
{
    if (s->why.code)
        return true;
    if (s->signal) {
        s->channel.exit_code = 128 + s->signal;
        zt_fault_set(&s->why, ZT_E_SYSTEM, "srun was killed by %s",
                     zt_signal_text(s->signal));
        return true;
    }
    if (!s->status)
        return false;
    s->channel.exit_code = s->up ? (int)s->status : 69;
    zt_fault_set(&s->why, ZT_E_SYSTEM, "%s (srun ended with code %lld%s%s)",
                 s->up ? "the node daemon ended early"
                       : "srun could not start the node daemon",
                 (long long)s->status, *s->last ? "; it said: " : "", s->last);
    return true;
}

static void maybe_down(struct slurm *s)
{
    bool bad;

    if (s->down || !s->exited || s->streams)
        return;
    s->down = true;
    bad = explain(s);
    s->ev->on_down(s->ctx, bad ? &s->why : NULL);
    uv_timer_stop(&s->timer);
    close_handle((uv_handle_t *)&s->timer);
    close_handle((uv_handle_t *)&s->in);
    close_handle((uv_handle_t *)&s->process);
}

static void end_stream(struct slurm *s, uv_pipe_t *pipe)
{
    if (uv_is_closing((uv_handle_t *)pipe))
        return;
    close_handle((uv_handle_t *)pipe);
    s->streams--;
    maybe_down(s);
}

static void on_exit_of_srun(uv_process_t *p, int64_t status, int sig)
{
    struct slurm *s = p->data;

    s->exited = true;
    s->status = status;
    s->signal = sig;
    maybe_down(s);
}

static void on_time_over(uv_timer_t *t);

static void slurm_close(struct zt_channel *c)
{
    struct slurm *s = (struct slurm *)c;

    if (s->closing || s->down)
        return;
    s->closing = true;
    close_handle((uv_handle_t *)&s->in);
    uv_timer_start(&s->timer, on_time_over, TERM_MS, 0);
}

/* srun did not come up in time, or did not react to close(), or not even to SIGTERM. */
static void on_time_over(uv_timer_t *t)
{
    struct slurm *s = t->data;

    if (!s->closing) {
        zt_fault_set(&s->why, ZT_E_SYSTEM,
                     "Slurm did not start the node daemon within %.0f s%s%s",
                     s->timeout_s, *s->last ? "; srun said: " : "", s->last);
        s->channel.exit_code = 69;
        slurm_close(&s->channel);
        return;
    }
    if (!s->exited)
        uv_process_kill(&s->process, s->killed ? SIGKILL : SIGTERM);
    s->killed = true;
    uv_timer_start(&s->timer, on_time_over, KILL_MS - TERM_MS, 0);
    if (s->exited) { /* somebody else holds its pipes */
        end_stream(s, &s->out);
        end_stream(s, &s->err);
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

static void on_out(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    struct slurm *s = stream->data;

    if (n < 0) {
        end_stream(s, &s->out);
        return;
    }
    if (n == 0)
        return;
    if (!s->up) { /* the daemon speaks first */
        s->up = true;
        if (!s->closing)
            uv_timer_stop(&s->timer);
        s->ev->on_up(s->ctx);
    }
    s->ev->on_bytes(s->ctx, buf->base, (size_t)n);
}

static void end_line(struct slurm *s)
{
    static const char noise[] =
        "srun: cluster configuration lacks support for cpu binding";

    s->line[s->line_bytes] = 0;
    if (s->line_bytes && strcmp(s->line, noise) != 0) {
        memcpy(s->last, s->line, s->line_bytes + 1);
        s->ev->on_note(s->ctx, s->line);
    }
    s->line_bytes = 0;
}

static void on_err(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    struct slurm *s = stream->data;

    for (ssize_t i = 0; i < n; i++) {
        if (buf->base[i] == '\n' || s->line_bytes == sizeof(s->line) - 1)
            end_line(s);
        if (buf->base[i] != '\n')
            s->line[s->line_bytes++] = buf->base[i];
    }
    if (n < 0) {
        end_line(s);
        end_stream(s, &s->err);
    }
}

static void on_written(uv_write_t *req, int status)
{
    (void)status; /* a dead channel shows when it is read */
    free(req);
}

static void slurm_write(struct zt_channel *c, const void *data, size_t n)
{
    struct slurm *s = (struct slurm *)c;
    struct srun_write *r;
    uv_buf_t buf;

    if (s->down || uv_is_closing((uv_handle_t *)&s->in))
        return;
    r = malloc(sizeof(*r) + n);
    if (!r) {
        slurm_close(c);
        return;
    }
    memcpy(r->bytes, data, n);
    buf = uv_buf_init(r->bytes, (unsigned)n);
    if (uv_write(&r->req, (uv_stream_t *)&s->in, &buf, 1, on_written)) {
        free(r);
        slurm_close(c);
    }
}

static void slurm_pause(struct zt_channel *c, bool pause)
{
    struct slurm *s = (struct slurm *)c;

    if (uv_is_closing((uv_handle_t *)&s->out))
        return;
    if (pause)
        uv_read_stop((uv_stream_t *)&s->out);
    else
        uv_read_start((uv_stream_t *)&s->out, on_alloc, on_out);
}

static const struct zt_channel_ops ops = {
    .write = slurm_write, .pause = slurm_pause, .close = slurm_close};

/* ------------------------------------------------------------------ starting */

/* Variables about the tasks of the batch script itself; they would mislead our srun. */
static bool is_dropped(const char *item)
{
    static const char *const names[] = {
        "SLURM_NTASKS=",         "SLURM_NPROCS=",          "SLURM_NTASKS_PER_NODE=",
        "SLURM_TASKS_PER_NODE=", "SLURM_NTASKS_PER_CORE=", "SLURM_NTASKS_PER_SOCKET=",
        "SLURM_NTASKS_PER_GPU=", "SLURM_GPUS_PER_TASK=",   "SLURM_TRES_PER_TASK=",
        "SLURM_NNODES=",         "SLURM_DISTRIBUTION=",    "SLURM_CPU_BIND="};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strncmp(item, names[i], strlen(names[i])) == 0)
            return true;
    return false;
}

static bool is_replaced(const char *item, char *const *by)
{
    size_t n = strcspn(item, "=") + 1;

    for (; by && *by; by++)
        if (strncmp(item, *by, n) == 0)
            return true;
    return false;
}

/* Borrowed strings in an allocated list. */
static char **build_env(char *const *more)
{
    size_t n = 0, k = 0;
    char **env;

    while (environ[n])
        n++;
    for (char *const *m = more; m && *m; m++)
        n++;
    env = calloc(n + 1, sizeof(*env));
    for (char **e = environ; env && *e; e++)
        if (!is_dropped(*e) && !is_replaced(*e, more))
            env[k++] = *e;
    for (char *const *m = more; env && m && *m; m++)
        env[k++] = *m;
    return env;
}

static int spawn(struct slurm *s, const struct zt_start_request *rq, const char *zworker,
                 uv_loop_t *loop)
{
    char nodelist[300], chdir_to[4200];
    char *argv[] = {
        "srun",
        "--nodes=1",
        "--ntasks=1",
        nodelist,
        "--overlap",
        "--cpu-bind=none",
        "--mpi=none",
        "--kill-on-bad-exit=0",
        "--export=ALL",
        rq->cwd ? chdir_to : "--input=all",
        "--unbuffered", /* else a frame waits at the other end for a newline */
        (char *)zworker,
        "--daemon",
        "--guard", /* nobody of ours is above it there */
        NULL};
    uv_stdio_container_t stdio[3] = {
        {.flags = UV_CREATE_PIPE | UV_READABLE_PIPE,
         .data.stream = (uv_stream_t *)&s->in},
        {.flags = UV_CREATE_PIPE | UV_WRITABLE_PIPE,
         .data.stream = (uv_stream_t *)&s->out},
        {.flags = UV_CREATE_PIPE | UV_WRITABLE_PIPE,
         .data.stream = (uv_stream_t *)&s->err},
    };
    uv_process_options_t o = {
        .exit_cb = on_exit_of_srun,
        .file = "srun",
        .args = argv,
        .env = build_env(rq->env),
        .flags = UV_PROCESS_DETACHED,
        .stdio_count = 3,
        .stdio = stdio,
    };
    int e = o.env ? 0 : UV_ENOMEM;

    snprintf(nodelist, sizeof(nodelist), "--nodelist=%.255s", rq->host);
    snprintf(chdir_to, sizeof(chdir_to), "--chdir=%.4096s", rq->cwd ? rq->cwd : "");
    if (!e)
        e = uv_spawn(loop, &s->process, &o);
    s->channel.pid = e ? 0 : s->process.pid;
    free(o.env);
    return e;
}

static void init_handles(struct slurm *s, uv_loop_t *loop)
{
    uv_pipe_init(loop, &s->in, 0);
    uv_pipe_init(loop, &s->out, 0);
    uv_pipe_init(loop, &s->err, 0);
    uv_timer_init(loop, &s->timer);
    s->in.data = s->out.data = s->err.data = s->timer.data = s->process.data = s;
    s->handles = 5;
    s->streams = 2;
}

/* start() has not returned yet: no on_down. */
static void abandon(struct slurm *s)
{
    s->down = true;
    close_handle((uv_handle_t *)&s->in);
    close_handle((uv_handle_t *)&s->out);
    close_handle((uv_handle_t *)&s->err);
    close_handle((uv_handle_t *)&s->timer);
    close_handle((uv_handle_t *)&s->process);
}

static zt_err start_slurm(const struct zt_start_request *rq, uv_loop_t *loop,
                          const struct zt_channel_events *ev, void *ctx,
                          struct zt_channel **out, struct zt_fault *fault)
{
    struct slurm *s = calloc(1, sizeof(*s));
    char *zworker = NULL;
    zt_err rc = ZT_OK;
    int e;

    if (!s)
        return zt_fault_set(fault, ZT_E_NOMEM, "no memory for a channel");
    s->channel.ops = &ops;
    s->ev = ev;
    s->ctx = ctx;
    s->timeout_s = rq->timeout_s > 0 ? rq->timeout_s : 30;
    if (!rq->zworker)
        rc = zt_find_zworker(&zworker, fault);
    if (rc) {
        free(s);
        return rc;
    }
    init_handles(s, loop);
    e = spawn(s, rq, rq->zworker ? rq->zworker : zworker, loop);
    free(zworker);
    if (e) {
        rc = zt_fault_set(fault, ZT_E_SYSTEM, "cannot run srun: %s%s", uv_strerror(e),
                          e == UV_ENOENT ? "; is Slurm's client in PATH?" : "");
        abandon(s);
        return rc;
    }
    uv_read_start((uv_stream_t *)&s->out, on_alloc, on_out);
    uv_read_start((uv_stream_t *)&s->err, on_alloc, on_err);
    uv_timer_start(&s->timer, on_time_over, (uint64_t)(s->timeout_s * 1e3), 0);
    *out = &s->channel;
    return ZT_OK;
}

const struct zt_starter zt_starter_slurm = {.name = "slurm", .start = start_slurm};

/* ------------------------------------------------------------------ the allocation */

bool zt_slurm_is_allocation(void)
{
    const char *job = getenv("SLURM_JOB_ID"), *step = getenv("SLURM_STEP_ID");
    int64_t tasks = 1;

    if (!job || !*job)
        return false;
    if (!step || !*step)
        return true;
    return !zt_env_int("SLURM_STEP_NUM_TASKS", 1, 1 << 24, &tasks, NULL) && tasks == 1;
}

/* Entries of a comma-separated list. */
static int count_list(const char *list)
{
    int n = list && *list;

    for (; list && *list; list++)
        n += *list == ',';
    return n;
}

/* GPUs of a node: what CUDA_VISIBLE_DEVICES leaves of this one stands for all. */
static zt_err gpus_of_a_node(int64_t *out, struct zt_fault *fault)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    zt_err rc = zt_env_int("SLURM_GPUS_ON_NODE", 0, ZT_MAX_SLOTS, out, fault);

    if (!rc && *out && visible && *visible && count_list(visible) < *out)
        *out = count_list(visible);
    return rc;
}

static zt_err fill_hosts(const struct zt_hostlist *names, const int *tasks, int gpus,
                         struct zt_hosts *out, struct zt_fault *fault)
{
    struct zt_hosts all = {0};
    zt_err rc = ZT_OK;

    all.host = calloc((size_t)names->num, sizeof(*all.host));
    if (!all.host)
        return zt_fault_set(fault, ZT_E_NOMEM, "hosts: no memory");
    for (int i = 0; !rc && i < names->num; i++) {
        int slots = tasks && tasks[i] > gpus ? tasks[i] : gpus ? gpus : 1;
        struct zt_hosts one;

        if (slots > ZT_MAX_SLOTS)
            rc = zt_fault_set(fault, ZT_E_USAGE, "Slurm's node %s: %d tasks; %d at most",
                              names->name[i], slots, ZT_MAX_SLOTS);
        if (!rc)
            rc = zt_hosts_one(names->name[i], slots, &one, fault);
        if (rc)
            break;
        all.host[all.num++] = one.host[0];
        free(one.host);
    }
    if (rc)
        zt_hosts_release(&all);
    else
        *out = all;
    return rc;
}

zt_err zt_slurm_hosts(struct zt_hosts *out, struct zt_fault *fault)
{
    const char *list = getenv("SLURM_JOB_NODELIST"), *counts;
    struct zt_hostlist names = {0};
    int64_t gpus = 0;
    int *tasks = NULL;
    zt_err rc;

    if (!list || !*list)
        return zt_fault_set(fault, ZT_E_USAGE,
                            "SLURM_JOB_ID is set, but SLURM_JOB_NODELIST is not: this is "
                            "no Slurm allocation; use --hostfile or --launcher local");
    rc = zt_hostlist_expand(list, &names, fault);
    if (rc)
        return zt_fault_context(fault, rc, "SLURM_JOB_NODELIST");
    counts = getenv("SLURM_TASKS_PER_NODE");
    if (!names.num)
        rc = zt_fault_set(fault, ZT_E_USAGE, "SLURM_JOB_NODELIST names no host");
    else if (counts && *counts) {
        rc = zt_counts_expand(counts, names.num, &tasks, fault);
        if (rc)
            zt_fault_context(fault, rc, "SLURM_TASKS_PER_NODE");
    }
    if (!rc)
        rc = gpus_of_a_node(&gpus, fault);
    if (!rc)
        rc = fill_hosts(&names, tasks, (int)gpus, out, fault);
    zt_hostlist_release(&names);
    free(tasks);
    return rc;
}
