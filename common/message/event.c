#include "common/message/event.h"

#include "common/env.h"
#include "common/message/frame.h"
#include "common/json/line.h"
#include "common/message/phase.h"
#include "common/message/render.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

/* of frames that were received and not read yet: requests, and a line */
#define RECEIVED_BYTES (8192 + ZT_INPUT_MAX)

/* One per process, like the log: a rank has one supervisor, or one terminal. */
static struct {
    int rank;
    _Atomic int fd;               /* control socket; -1: none, render here */
    struct zt_phase_slot *phases; /* mapped, NULL: nobody reads them */
    size_t phases_bytes;
    struct zt_phase_slot *phase; /* ours */
    void (*on_phase)(const char *phase);
    struct zt_render *render;
    struct zt_buf in;            /* received on the control socket: requests, a line */
    struct zt_line_reader input; /* standard input, without a control socket */
    bool requests_ended;         /* the socket is shut, or something else was received */
} st = {.fd = -1};

static pthread_mutex_t sending = PTHREAD_MUTEX_INITIALIZER; /* a frame at a time */

/* The descriptor number in an environment variable, if it is open; closed on exec. */
static int inherited_fd(const char *name)
{
    int64_t fd = -1;

    if (zt_env_int(name, 0, 1 << 20, &fd, NULL) || fd < 0)
        return -1;
    if (fcntl((int)fd, F_SETFD, FD_CLOEXEC) < 0)
        return -1;
    return (int)fd;
}

static void open_phases(void)
{
    int fd = inherited_fd("ZLAUNCH_STATE_FD");
    int64_t slot = 0;
    struct stat sb;
    void *p;

    if (fd < 0 || zt_env_int("LOCAL_RANK", 0, 1 << 20, &slot, NULL) ||
        fstat(fd, &sb) < 0 ||
        (size_t)sb.st_size < (size_t)(slot + 1) * sizeof(struct zt_phase_slot))
        return;
    p = mmap(NULL, (size_t)sb.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED)
        return;
    st.phases = p;
    st.phases_bytes = (size_t)sb.st_size;
    st.phase = st.phases + slot;
}

static void open_render(int world)
{
    const char *format = getenv("ZLAUNCH_LOG_FORMAT");
    const char *color = getenv("ZLAUNCH_COLOR");
    zt_when when = !color                         ? ZT_WHEN_AUTO
                   : strcmp(color, "always") == 0 ? ZT_WHEN_ALWAYS
                   : strcmp(color, "never") == 0  ? ZT_WHEN_NEVER
                                                  : ZT_WHEN_AUTO;
    struct zt_render_config cfg = {
        .out_fd = STDOUT_FILENO,
        .err_fd = STDERR_FILENO,
        .json = format && strcmp(format, "json") == 0,
        .color = zt_env_color(STDERR_FILENO, when),
        .tag = world > 1,
        .level = zt_log_get_level(),
        .who = "zworker",
    };

    cfg.live = !cfg.json && zt_env_live(STDERR_FILENO);
    if (zt_render_open(&cfg, &st.render, NULL))
        st.render = NULL;
}

/* The whole frame, or the channel is given up: half a frame would garble all that follow.
 */
static bool write_frame(const uint8_t *p, size_t n)
{
    while (n) {
        ssize_t k = send(st.fd, p, n, MSG_NOSIGNAL);

        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0) {
            st.fd = -1;
            return false;
        }
        p += k;
        n -= (size_t)k;
    }
    return true;
}

static bool send_frame(zt_frame_type type, const void *body, size_t n)
{
    struct zt_buf frame;
    bool sent = false;

    zt_buf_init(&frame, ZT_FRAME_MAX + ZT_FRAME_HEADER);
    pthread_mutex_lock(&sending);
    if (st.fd >= 0 && zt_frame_put(&frame, type, body, n) == ZT_OK)
        sent = write_frame(zt_buf_head(&frame), zt_buf_used(&frame));
    pthread_mutex_unlock(&sending);
    zt_buf_release(&frame);
    return sent;
}

/* The sink of zt_log(). */
static bool send_log(const char *line, size_t n)
{
    return send_frame(ZT_FRAME_LOG, line, n);
}

/* The sink of a program that prints JSON by itself: a line more, whole, of its events. */
static bool print_log(const char *line, size_t n)
{
    char text[4096];
    size_t at = n < sizeof(text) - 1 ? n : 0;
    ssize_t k;

    if (!at)
        return false;
    memcpy(text, line, n);
    text[at++] = '\n';
    k = write(STDOUT_FILENO, text, at);
    return k == (ssize_t)at;
}

static void set_fd(int fd)
{
    pthread_mutex_lock(&sending);
    st.fd = fd;
    pthread_mutex_unlock(&sending);
}

void zt_event_open(int rank, int world)
{
    struct stat sb;
    int fd;

    zt_event_close();
    st.rank = rank;
    zt_log_set_rank(rank, world);
    fd = inherited_fd("ZLAUNCH_CONTROL_FD");
    if (fd >= 0 && (fstat(fd, &sb) < 0 || !S_ISSOCK(sb.st_mode)))
        fd = -1;
    set_fd(fd);
    zt_buf_init(&st.in, RECEIVED_BYTES);
    zt_line_reader_init(&st.input);
    st.requests_ended = fd < 0;
    open_phases();
    if (fd < 0)
        open_render(world);
    zt_log_set_sink(fd >= 0                                     ? send_log
                    : st.render && zt_render_is_json(st.render) ? print_log
                                                                : NULL);
}

void zt_event_done(void)
{
    if (st.phase)
        zt_phase_set_done(st.phase);
}

int zt_event_close(void)
{
    int lost = st.render ? zt_render_lost(st.render) : 0;

    zt_render_close(st.render);
    st.render = NULL;
    zt_buf_release(&st.in);
    zt_line_reader_release(&st.input);
    st.requests_ended = true;
    if (st.phases)
        munmap(st.phases, st.phases_bytes);
    st.phases = st.phase = NULL;
    set_fd(-1); /* the descriptor stays: whoever set the variable owns it */
    return lost;
}

/* Takes the reference. */
static void emit(json_t *ev)
{
    struct zt_buf body;

    if (!ev)
        return;
    if (st.render) {
        zt_render_event(st.render, st.rank, ev);
        zt_render_drain(st.render);
    } else {
        zt_buf_init(&body, ZT_FRAME_MAX - 1);
        if (zt_json_put(&body, ev) == ZT_OK)
            send_frame(ZT_FRAME_EVENT, zt_buf_head(&body), zt_buf_used(&body));
        zt_buf_release(&body);
    }
    json_decref(ev);
}

static json_t *make(const char *name)
{
    json_t *ev = json_object();

    json_object_set_new(ev, "event", zt_json_text(name, strlen(name)));
    return ev;
}

static void set_int(json_t *ev, const char *key, int64_t value)
{
    json_object_set_new(ev, key, json_integer(value));
}

static void set_real(json_t *ev, const char *key, double value)
{
    json_object_set_new(ev, key, zt_json_real(value));
}

void zt_event_phase(const char *phase)
{
    if (st.phase)
        zt_phase_write(st.phase, phase);
    if (st.on_phase)
        st.on_phase(phase);
}

void zt_event_watch_phases(void (*on_phase)(const char *phase))
{
    st.on_phase = on_phase;
}

void zt_event_collective(unsigned op, bool begins)
{
    if (st.phase)
        zt_phase_set_collective(st.phase, op, begins);
}

static void set_metric(json_t *ev, const struct zt_metric_value *v)
{
    const char *name = v->metric->name;

    switch (v->metric->type) {
    case ZT_METRIC_INT:
        set_int(ev, name, v->integer);
        break;
    case ZT_METRIC_REAL:
        set_real(ev, name, v->real);
        break;
    case ZT_METRIC_TEXT:
        json_object_set_new(ev, name, json_string(v->text));
        break;
    }
}

void zt_event_metrics(zt_metric_event event, const struct zt_metric_value *values, int n)
{
    json_t *ev;

    if (st.rank != 0)
        return;
    ev = make(zt_metric_event_name(event));
    for (int i = 0; i < n; i++)
        set_metric(ev, &values[i]);
    emit(ev);
}

void zt_event_begin(const char *text, const char *run_name, bool trains)
{
    json_t *ev = make("note");

    json_object_set_new(ev, "text", zt_json_text(text, strlen(text)));
    json_object_set_new(ev, "trains", json_boolean(trains));
    if (run_name)
        json_object_set_new(ev, "run_name", zt_json_text(run_name, strlen(run_name)));
    emit(ev);
}

void zt_event_bytes(const char *kind, const char *text, size_t n)
{
    json_t *ev = make(kind);

    json_object_set_new(ev, "text", zt_json_text(text, n));
    emit(ev);
}

void zt_event_text(const char *kind, const char *text)
{
    zt_event_bytes(kind, text, strlen(text));
}

void zt_event_weights(const char *dir)
{
    json_t *ev = make("saved");

    json_object_set_new(ev, "text", zt_json_text(dir, strlen(dir)));
    json_object_set_new(ev, "weights", json_true());
    emit(ev);
}

void zt_event_checkpoint(const char *kind, const char *dir, int64_t step)
{
    json_t *ev = make(kind);

    json_object_set_new(ev, "text", zt_json_text(dir, strlen(dir)));
    set_int(ev, "step", step);
    emit(ev);
}

void zt_event_saves(int64_t grace_s, const int64_t *newest_step)
{
    json_t *ev;

    if (st.fd < 0)
        return;
    ev = make("saves");
    set_int(ev, "grace_s", grace_s);
    if (newest_step)
        set_int(ev, "newest_step", *newest_step);
    emit(ev);
}

/* Take the first frame that was received. False: there is no complete request. */
static bool take_request(struct zt_control_request *out)
{
    struct zt_frame f;
    zt_err rc = zt_frame_peek(&st.in, &f, NULL);
    json_t *o;

    if (rc) {
        st.requests_ended = rc != ZT_E_SHORT;
        return false;
    }
    o = f.type == ZT_FRAME_REQUEST ? zt_json_object(f.body, f.body_bytes) : NULL;
    out->id = zt_json_get_int(o, "id", 0);
    snprintf(out->name, sizeof(out->name), "%s", zt_json_get_text(o, "request", "?"));
    snprintf(out->dir, sizeof(out->dir), "%s", zt_json_get_text(o, "dir", ""));
    st.requests_ended = !o;
    json_decref(o);
    zt_frame_drop(&st.in, &f);
    return !st.requests_ended;
}

/* What the control socket has, without waiting. False: nothing. */
static bool receive(void)
{
    uint8_t block[4096];
    ssize_t k = recv(st.fd, block, sizeof(block), MSG_DONTWAIT);

    if (k <= 0)
        st.requests_ended = k == 0 || (errno != EAGAIN && errno != EINTR);
    else if (zt_buf_put(&st.in, block, (size_t)k))
        st.requests_ended = true;
    return k > 0 && !st.requests_ended;
}

bool zt_event_next_request(struct zt_control_request *out)
{
    if (st.requests_ended || st.fd < 0)
        return false;
    return take_request(out) || (!st.requests_ended && receive() && take_request(out));
}

/* ---- a dialogue ---- */

void zt_event_ask(void)
{
    if (st.fd >= 0)
        emit(make("ask"));
}

static void turn_down_request(void)
{
    struct zt_control_request request;

    if (take_request(&request))
        zt_event_answer(&request, 1, "the run is in a dialogue");
}

/* The first frames that were received, up to one of what is typed. */
static zt_input_kind take_input(struct zt_buf *line)
{
    zt_input_kind kind;
    struct zt_frame f;
    zt_err rc;

    while ((rc = zt_frame_peek(&st.in, &f, NULL)) == ZT_OK) {
        if (f.type == ZT_FRAME_REQUEST) {
            turn_down_request();
            continue;
        }
        kind = f.type == ZT_FRAME_INPUT && f.body_bytes ? (zt_input_kind)f.body[0]
                                                        : ZT_INPUT_END;
        if (kind == ZT_INPUT_LINE && line &&
            zt_buf_put(line, f.body + 1, f.body_bytes - 1))
            kind = ZT_INPUT_END;
        zt_frame_drop(&st.in, &f);
        return kind;
    }
    st.requests_ended |= rc != ZT_E_SHORT;
    return st.requests_ended ? ZT_INPUT_END : ZT_INPUT_NONE;
}

static bool can_read(int fd, int ms)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};

    return poll(&p, 1, ms) > 0;
}

static zt_input_kind read_standard_input(struct zt_buf *line, int ms)
{
    zt_input_kind kind = zt_line_reader_take(&st.input, line);

    while (kind == ZT_INPUT_NONE && can_read(STDIN_FILENO, ms)) {
        zt_line_reader_fill(&st.input, STDIN_FILENO);
        kind = zt_line_reader_take(&st.input, line);
    }
    return kind;
}

zt_input_kind zt_event_wait_input(struct zt_buf *line, int ms)
{
    zt_input_kind kind;

    if (st.fd < 0)
        return read_standard_input(line, ms);
    do /* a Ctrl-C that came when the text had ended is for none */
        kind = take_input(line);
    while (kind == ZT_INPUT_INTERRUPT ||
           (kind == ZT_INPUT_NONE && can_read(st.fd, ms) && receive()));
    return kind;
}

bool zt_event_interrupted(void)
{
    zt_input_kind kind;

    if (st.fd < 0)
        return false;
    do
        kind = take_input(NULL);
    while (kind == ZT_INPUT_NONE && receive());
    return kind == ZT_INPUT_INTERRUPT || st.requests_ended;
}

void zt_event_answer(const struct zt_control_request *request, int exit_code,
                     const char *text)
{
    json_t *ev = make("answer");

    set_int(ev, "id", request->id);
    json_object_set_new(ev, "ok", json_boolean(!exit_code));
    if (exit_code)
        set_int(ev, "exit_code", exit_code);
    json_object_set_new(ev, "text", zt_json_text(text, strlen(text)));
    emit(ev);
}

void zt_event_fail(const struct zt_fault *fault)
{
    json_t *ev = make("fail");

    json_object_set_new(ev, "code", json_string(zt_err_name(fault->code)));
    set_int(ev, "exit_code", zt_err_exit_code(fault->code));
    json_object_set_new(ev, "peer", json_boolean(zt_err_is_about_peer(fault->code)));
    json_object_set_new(ev, "text", zt_json_text(fault->text, strlen(fault->text)));
    for (const char *p = fault->text;
         st.render && !zt_render_is_json(st.render) && *p;) { /* a problem a line */
        int n = (int)strcspn(p, "\n");

        zt_render_message(st.render, ZT_LOG_ERROR, "%.*s", n, p);
        p += n + (p[n] == '\n');
    }
    emit(ev); /* as text this one is silent: the line above, or zlaunch's report, tells it
               */
}
