/*
 * One loop, one daemon. The job is over when the daemon has said DONE, or has died and
 * everything below zlaunch is gone.
 */
#include "launcher/supervise.h"

#include "common/frame.h"
#include "common/jsonline.h"
#include "common/proc.h"
#include "launcher/start.h"
#include "launcher/verdict.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <uv.h>

#define SCREEN_HIGH                                                                      \
    (1u << 20) /* bytes waiting for the screen before the job has to wait */
#define TICK_MS     100
#define FLUSH_MS    2
#define DEADLINE_MS 400 /* over the grace, then zlaunch kills by itself */
#define SWEEP_TRIES 200
#define SWEEP_US    5000
#define LAST_WORDS_S                                                                     \
    1.0 /* a screen that takes nothing holds up a stopped job this long */

struct sup {
    const struct zt_plan *plan;
    struct zt_render *render;
    bool verbose;
    uv_loop_t loop;
    uv_pipe_t channel;
    uv_signal_t signals[6];
    uv_timer_t tick, flush, deadline, timeout;
    struct zt_buf in;
    struct zt_notes notes;
    pid_t daemon;
    bool daemon_reaped, done, channel_open, reading;
    int daemon_status;
    int stops; /* how often the user asked */
};

static void maybe_end(struct sup *s);

/* ------------------------------------------------------------------ to the daemon */

struct send_req {
    uv_write_t req;
    struct zt_buf frame;
};

static void on_sent(uv_write_t *req, int status)
{
    struct send_req *r = (struct send_req *)req;

    (void)status; /* a dead channel shows when it is read */
    zt_buf_release(&r->frame);
    free(r);
}

/* Takes the reference. */
static void send_json(struct sup *s, zt_frame_type type, json_t *o)
{
    struct send_req *r = calloc(1, sizeof(*r));
    struct zt_buf body;
    uv_buf_t buf;

    zt_buf_init(&body, ZT_FRAME_MAX - 1);
    if (r && s->channel_open && o && zt_json_put(&body, o) == ZT_OK) {
        zt_buf_init(&r->frame, ZT_FRAME_MAX + ZT_FRAME_HEADER);
        if (zt_frame_put(&r->frame, type, zt_buf_head(&body), zt_buf_used(&body)) ==
            ZT_OK) {
            buf = uv_buf_init((char *)r->frame.data, (unsigned)zt_buf_used(&r->frame));
            if (uv_write(&r->req, (uv_stream_t *)&s->channel, &buf, 1, on_sent) == 0)
                r = NULL;
        }
        if (r)
            zt_buf_release(&r->frame);
    }
    free(r);
    zt_buf_release(&body);
    json_decref(o);
}

/* The daemon did not manage: everything below this process goes. */
static void on_deadline(uv_timer_t *timer)
{
    struct sup *s = timer->data;

    zt_proc_signal_descendants(SIGKILL);
    uv_timer_start(timer, on_deadline, 50, 0);
    maybe_end(s);
}

static void order_stop(struct sup *s, int sig, int grace_ms)
{
    json_t *o = json_object();

    json_object_set_new(o, "signal", json_integer(sig));
    json_object_set_new(o, "grace_ms", json_integer(grace_ms));
    send_json(s, ZT_FRAME_STOP, o);
    uv_timer_start(&s->deadline, on_deadline, (uint64_t)grace_ms + DEADLINE_MS, 0);
}

/* ------------------------------------------------------------------ the screen */

/* A slow reader of our output slows the job down instead of filling memory. */
static void pump(struct sup *s);

static void on_flush(uv_timer_t *timer)
{
    pump(timer->data);
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf);
static void on_read(uv_stream_t *stream, ssize_t k, const uv_buf_t *buf);

static void pump(struct sup *s)
{
    bool empty = zt_render_flush(s->render);
    bool full = zt_render_pending_bytes(s->render) > SCREEN_HIGH;

    if (empty)
        uv_timer_stop(&s->flush);
    else if (!uv_is_active((uv_handle_t *)&s->flush))
        uv_timer_start(&s->flush, on_flush, FLUSH_MS, FLUSH_MS);
    /* a stopping job is heard in any case: its output is small, its end matters */
    if (!s->channel_open || s->reading == (!full || s->stops))
        return;
    s->reading = !s->reading;
    if (s->reading)
        uv_read_start((uv_stream_t *)&s->channel, on_alloc, on_read);
    else
        uv_read_stop((uv_stream_t *)&s->channel);
}

static void on_tick(uv_timer_t *timer)
{
    struct sup *s = timer->data;

    zt_render_tick(s->render);
    pump(s);
}

/* ------------------------------------------------------------------ from the daemon */

static struct zt_rank_note *note_of(struct sup *s, int64_t rank)
{
    return rank >= 0 && rank < s->notes.num_ranks ? &s->notes.ranks[rank] : NULL;
}

static void on_hello(struct sup *s, const struct zt_frame *f)
{
    json_t *o = zt_json_object(f->body, f->body_bytes);
    int64_t protocol = zt_json_get_int(o, "protocol", 0);

    if (protocol != ZT_PROTOCOL) {
        zt_render_message(
            s->render, ZT_LOG_ERROR,
            "%s speaks protocol %lld, this zlaunch %d: they come from different "
            "versions",
            s->plan->zworker, (long long)protocol, ZT_PROTOCOL);
        order_stop(s, SIGTERM, 0);
    }
    json_decref(o);
}

static void on_started(struct sup *s, const struct zt_frame *f)
{
    json_t *o = zt_json_object(f->body, f->body_bytes);
    struct zt_rank_note *note = note_of(s, zt_json_get_int(o, "rank", -1));

    if (note) {
        note->started = true;
        note->pid = (pid_t)zt_json_get_int(o, "pid", 0);
        if (s->verbose)
            zt_render_message(s->render, ZT_LOG_INFO, "rank %d runs as pid %d",
                              note->rank, (int)note->pid);
        json_object_set_new(o, "event", json_string("started"));
        zt_render_record(s->render, o);
    }
    json_decref(o);
}

static void on_output(struct sup *s, const struct zt_frame *f)
{
    if (f->body_bytes < 5)
        return;
    if (s->stops && zt_render_pending_bytes(s->render) > SCREEN_HIGH)
        return; /* nobody reads, and the job must end: see pump() */
    zt_render_output(s->render, (int)zt_get_u32(f->body), f->body[4],
                     (const char *)f->body + 5, f->body_bytes - 5);
}

static void on_relay(struct sup *s, const struct zt_frame *f)
{
    struct zt_rank_note *note;
    json_t *o;

    if (f->body_bytes < 4)
        return;
    o = zt_json_object(f->body + 4, f->body_bytes - 4);
    note = note_of(s, zt_get_u32(f->body));
    if (o && note) {
        if (strcmp(zt_json_get_text(o, "event", ""), "fail") == 0 && !note->fail)
            note->fail = json_incref(o);
        zt_render_event(s->render, note->rank, o);
    }
    json_decref(o);
}

static void on_exited(struct sup *s, const struct zt_frame *f)
{
    json_t *o = zt_json_object(f->body, f->body_bytes);
    struct zt_rank_note *note = note_of(s, zt_json_get_int(o, "rank", -1));

    if (note && !note->exited) {
        note->exited = true;
        note->order = s->notes.num_exited++;
        note->signal = (int)zt_json_get_int(o, "signal", 0);
        note->code = (int)zt_json_get_int(o, "code", 0);
        note->asked = json_is_true(json_object_get(o, "asked"));
        note->oom = json_is_true(json_object_get(o, "oom"));
        note->phase = json_incref(json_object_get(o, "phase"));
        note->tail = json_incref(json_object_get(o, "tail"));
        json_object_set_new(o, "event", json_string("exited"));
        zt_render_record(s->render, o);
    }
    json_decref(o);
}

static void on_fault(struct sup *s, const struct zt_frame *f)
{
    json_t *o = zt_json_object(f->body, f->body_bytes);

    if (!s->notes.daemon_fault) {
        s->notes.daemon_fault =
            strdup(zt_json_get_text(o, "text", "the node daemon failed"));
        s->notes.daemon_fault_code = (int)zt_json_get_int(o, "exit_code", 71);
    }
    json_decref(o);
}

static void on_done(struct sup *s, const struct zt_frame *f)
{
    (void)f;
    s->done = true;
    maybe_end(s);
}

static const struct {
    zt_frame_type type;
    void (*handle)(struct sup *s, const struct zt_frame *f);
} handlers[] = {
    {ZT_FRAME_HELLO, on_hello},   {ZT_FRAME_STARTED, on_started},
    {ZT_FRAME_OUTPUT, on_output}, {ZT_FRAME_RELAY, on_relay},
    {ZT_FRAME_EXITED, on_exited}, {ZT_FRAME_FAULT, on_fault},
    {ZT_FRAME_DONE, on_done},
};

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    static char block[65536]; /* the loop's own: one read at a time */

    (void)handle;
    (void)suggested;
    *buf = uv_buf_init(block, sizeof(block));
}

static void close_channel(struct sup *s)
{
    if (!s->channel_open)
        return;
    s->channel_open = s->reading = false;
    uv_close((uv_handle_t *)&s->channel, NULL);
    maybe_end(s);
}

static void on_read(uv_stream_t *stream, ssize_t k, const uv_buf_t *buf)
{
    struct sup *s = stream->data;
    struct zt_fault fault = {0};
    struct zt_frame f;
    zt_err rc;

    if (k == 0)
        return;
    if (k < 0) {
        close_channel(s);
        return;
    }
    rc = zt_buf_put(&s->in, buf->base, (size_t)k);
    while (!rc && (rc = zt_frame_peek(&s->in, &f, &fault)) == ZT_OK) {
        for (size_t i = 0; i < sizeof(handlers) / sizeof(*handlers); i++)
            if (handlers[i].type == f.type)
                handlers[i].handle(s, &f);
        zt_frame_drop(&s->in, &f);
    }
    if (rc != ZT_E_SHORT) {
        zt_render_message(s->render, ZT_LOG_ERROR, "%s", fault.text);
        close_channel(s); /* the daemon sees it and cleans up */
    }
    pump(s);
}

/* ------------------------------------------------------------------ signals and limits
 */

static bool any_failed(const struct sup *s)
{
    for (int i = 0; i < s->notes.num_ranks; i++)
        if (s->notes.ranks[i].exited &&
            (s->notes.ranks[i].code || s->notes.ranks[i].signal))
            return true;
    return s->notes.daemon_fault || s->notes.daemon_lost;
}

static void note_stop(struct sup *s, zt_stop_reason reason, int sig)
{
    if (s->notes.stop != ZT_STOP_NONE)
        return;
    s->notes.stop = reason;
    s->notes.stop_signal = sig;
    s->notes.stop_was_first = !any_failed(s);
}

/* Once: stop in good order. Twice: now. */
static void on_user_signal(uv_signal_t *handle, int sig)
{
    struct sup *s = handle->data;

    note_stop(s, ZT_STOP_SIGNAL, sig);
    if (s->stops++ == 0) {
        zt_render_message(s->render, ZT_LOG_INFO, "%s: stopping the ranks%s",
                          sig == SIGINT ? "interrupted" : zt_signal_text(sig),
                          sig == SIGINT ? "; once more to kill them at once" : "");
        order_stop(s, SIGTERM, s->plan->grace_ms);
    } else {
        order_stop(s, SIGKILL, 0);
    }
    pump(s);
}

static void on_forwarded_signal(uv_signal_t *handle, int sig)
{
    struct sup *s = handle->data;
    json_t *o = json_object();

    json_object_set_new(o, "signal", json_integer(sig));
    send_json(s, ZT_FRAME_SIGNAL, o);
}

static void on_timeout(uv_timer_t *timer)
{
    struct sup *s = timer->data;

    note_stop(s, ZT_STOP_TIMEOUT, 0);
    s->stops++;
    order_stop(s, SIGTERM, s->plan->grace_ms);
    pump(s);
}

static void on_sigchld(uv_signal_t *handle, int sig)
{
    struct sup *s = handle->data;
    int status;
    pid_t pid;

    (void)sig;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
        if (pid == s->daemon) {
            s->daemon_reaped = true;
            s->daemon_status = status;
        }
    maybe_end(s);
}

/* ------------------------------------------------------------------ the end */

/* Kill what a dead daemon left: its ranks are adopted children of this process now. */
static void sweep(void)
{
    int status;

    for (int i = 0; i < SWEEP_TRIES; i++) {
        if (zt_proc_signal_descendants(SIGKILL) == 0)
            return;
        while (waitpid(-1, &status, WNOHANG) > 0)
            continue;
        usleep(SWEEP_US); /* nothing announces the death of somebody else's child */
    }
}

/* Over when the daemon is reaped and all it said is read. */
static void maybe_end(struct sup *s)
{
    if (!s->daemon_reaped || (s->channel_open && !s->done))
        return;
    if (!s->done && !s->notes.daemon_lost) {
        s->notes.daemon_lost = true;
        s->notes.daemon_pid = s->daemon;
        s->notes.daemon_signal =
            WIFSIGNALED(s->daemon_status) ? WTERMSIG(s->daemon_status) : 0;
        s->notes.daemon_code =
            WIFEXITED(s->daemon_status) ? WEXITSTATUS(s->daemon_status) : 0;
    }
    uv_stop(&s->loop);
}

static zt_err write_report(const char *path, const json_t *end, struct zt_fault *fault)
{
    struct zt_buf line;
    FILE *f = fopen(path, "we");
    bool ok = f != NULL;

    zt_buf_init(&line, ZT_FRAME_MAX);
    ok = ok && zt_json_put(&line, end) == ZT_OK &&
         fprintf(f, "%.*s\n", (int)zt_buf_used(&line), (const char *)zt_buf_head(&line)) >
             0;
    if (f && fclose(f) != 0)
        ok = false;
    zt_buf_release(&line);
    if (!ok)
        return zt_fault_set(fault, ZT_E_CANTCREATE, "report file %s: %s", path,
                            strerror(errno));
    return ZT_OK;
}

static int conclude(struct sup *s)
{
    struct zt_fault fault = {0};
    struct zt_verdict v;
    char *sentence, *evidence;
    json_t *end;

    zt_notes_judge(&s->notes, &v);
    zt_verdict_text(&s->notes, &v, &sentence, &evidence);
    end = zt_verdict_json(&s->notes, &v);
    if (zt_render_is_json(s->render)) {
        zt_render_record(s->render, end);
    } else if (sentence) {
        zt_render_message(s->render, v.exit_code ? ZT_LOG_ERROR : ZT_LOG_INFO, "%s",
                          sentence);
        zt_render_block(s->render, evidence ? evidence : "");
    }
    if (s->verbose)
        zt_render_message(s->render, ZT_LOG_INFO, "exit code %d", v.exit_code);
    if (s->plan->report && write_report(s->plan->report, end, &fault))
        zt_render_message(s->render, ZT_LOG_ERROR, "%s", fault.text);
    free(sentence);
    free(evidence);
    json_decref(end);
    return v.exit_code;
}

/* After a stop, a reader that takes nothing more must not keep zlaunch alive. */
static void last_words(struct sup *s)
{
    double until = zt_now() + LAST_WORDS_S;

    while (s->stops && !zt_render_flush(s->render)) {
        if (zt_now() > until)
            zt_render_discard(s->render); /* the next round writes what others can take */
        usleep(1000);
    }
}

static void on_walk_close(uv_handle_t *handle, void *arg)
{
    (void)arg;
    if (!uv_is_closing(handle))
        uv_close(handle, NULL);
}

static void watch_signals(struct sup *s)
{
    const struct {
        int sig;
        uv_signal_cb fn;
    } rows[] = {
        {SIGCHLD, on_sigchld},          {SIGINT, on_user_signal},
        {SIGTERM, on_user_signal},      {SIGHUP, on_user_signal},
        {SIGUSR1, on_forwarded_signal}, {SIGUSR2, on_forwarded_signal},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        uv_signal_init(&s->loop, &s->signals[i]);
        s->signals[i].data = s;
        uv_signal_start(&s->signals[i], rows[i].fn, rows[i].sig);
    }
}

static void init_timers(struct sup *s)
{
    uv_timer_t *timers[] = {&s->tick, &s->flush, &s->deadline, &s->timeout};

    for (size_t i = 0; i < sizeof(timers) / sizeof(*timers); i++) {
        uv_timer_init(&s->loop, timers[i]);
        timers[i]->data = s;
    }
    uv_timer_start(&s->tick, on_tick, TICK_MS, TICK_MS);
    if (s->plan->timeout_s > 0)
        uv_timer_start(&s->timeout, on_timeout, (uint64_t)(s->plan->timeout_s * 1000), 0);
}

static zt_err start(struct sup *s, struct zt_fault *fault)
{
    struct zt_started got;
    zt_err rc;
    int e;

    prctl(PR_SET_CHILD_SUBREAPER, 1);
    rc = zt_starter_local.start(s->plan->host, s->plan->zworker, &got, fault);
    if (rc)
        return rc;
    s->daemon = got.pid;
    uv_pipe_init(&s->loop, &s->channel, 0);
    s->channel.data = s;
    e = uv_pipe_open(&s->channel, got.fd);
    if (e) {
        close(got.fd);
        return zt_fault_set(fault, ZT_E_SYSTEM, "control channel: %s", uv_strerror(e));
    }
    s->channel_open = s->reading = true;
    uv_read_start((uv_stream_t *)&s->channel, on_alloc, on_read);
    send_json(s, ZT_FRAME_JOB, zt_plan_job(s->plan));
    return ZT_OK;
}

int zt_supervise(const struct zt_plan *plan, const struct zt_render_config *screen,
                 bool verbose)
{
    struct sup s = {.plan = plan, .verbose = verbose};
    struct zt_fault fault = {0};
    int code;

    signal(SIGPIPE, SIG_IGN);
    if (zt_render_open(screen, &s.render, &fault) ||
        zt_notes_init(&s.notes, plan->world, &fault)) {
        fprintf(stderr, "zlaunch: error: %s\n", fault.text);
        zt_render_close(s.render);
        return zt_err_exit_code(fault.code);
    }
    zt_buf_init(&s.in, 2 * ZT_FRAME_MAX);
    uv_loop_init(&s.loop);
    watch_signals(&s);
    init_timers(&s);
    if (start(&s, &fault)) {
        zt_render_message(s.render, ZT_LOG_ERROR, "%s", fault.text);
        code = zt_err_exit_code(fault.code);
    } else {
        uv_run(&s.loop, UV_RUN_DEFAULT);
        if (!s.done)
            sweep();
        code = conclude(&s);
    }
    last_words(&s);
    uv_walk(&s.loop, on_walk_close, NULL);
    uv_run(&s.loop, UV_RUN_DEFAULT);
    uv_loop_close(&s.loop);
    zt_render_close(s.render);
    zt_buf_release(&s.in);
    zt_notes_release(&s.notes);
    return code;
}
