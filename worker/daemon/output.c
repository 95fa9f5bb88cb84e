#include "worker/daemon/node.h"

#include "common/log.h"
#include "common/json/line.h"
#include "common/message/render.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define READ_BYTES 65536
#define DRAIN_BYTES                                                                      \
    (4u << 20) /* a stray that keeps writing must not hold up the report */

static void tail_add(struct zt_tail *t, const char *line, size_t n)
{
    char **slot = &t->line[t->next % ZT_TAIL_LINES];

    free(*slot);
    *slot = strndup(line, n < ZT_TAIL_BYTES ? n : ZT_TAIL_BYTES);
    t->next++;
}

/* Remember the last lines of a block; earlier ones would be pushed out anyway. */
static void tail_feed(struct zt_tail *t, const char *lines, size_t n)
{
    size_t from = n;

    for (int k = 0; from && k <= ZT_TAIL_LINES; from--)
        k += lines[from - 1] == '\n';
    if (from) /* stopped at the end of a line that is left out */
        from++;
    while (from < n) {
        const char *nl = memchr(lines + from, '\n', n - from);
        size_t len = nl ? (size_t)(nl - lines) - from : n - from;

        tail_add(t, lines + from, len);
        from += len + 1;
    }
}

/* zlaunch shows from now on what the rank prints and does, and ends with 73. */
static void lose_log(struct zt_local_rank *r, int error)
{
    uint8_t body[4];

    zt_error("log", "log file of rank %d: %s; the rest goes to the screen", r->rank,
             strerror(error));
    close(r->log_fd);
    r->log_fd = -1;
    zt_set_u32(body, (uint32_t)r->rank);
    zt_node_send(r->node, ZT_FRAME_LOG_LOST, body, sizeof(body), NULL, 0);
}

/* Bytes at the end that the file did not take: then it is lost. */
static size_t write_log(struct zt_local_rank *r, const char *p, size_t n)
{
    while (n) {
        ssize_t k = write(r->log_fd, p, n);

        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0) {
            lose_log(r, k < 0 ? errno : EIO);
            return n;
        }
        p += k;
        n -= (size_t)k;
    }
    return 0;
}

/* zt_lines_fn: whole lines of one stream go out in frames. */
static void forward(void *arg, const char *lines, size_t n)
{
    struct zt_source *s = arg;
    struct zt_local_rank *r = s->rank;
    uint8_t head[5];

    tail_feed(&s->tail, lines, n);
    if (r->log_fd >= 0) {
        size_t left = write_log(r, lines, n);

        if (!left)
            return;
        lines += n - left;
        n = left;
    }
    zt_set_u32(head, (uint32_t)r->rank);
    head[4] = (uint8_t)s->stream;
    zt_node_send(r->node, ZT_FRAME_OUTPUT, head, sizeof(head), lines, n);
}

static void source_close(struct zt_source *s)
{
    if (s->fd < 0)
        return;
    uv_poll_stop(&s->poll);
    uv_close((uv_handle_t *)&s->poll, NULL);
    close(s->fd);
    s->fd = -1;
    if (s->stream)
        zt_lines_finish(&s->lines, forward, s);
}

/* To zlaunch, behind the rank's number. */
static void relay(struct zt_local_rank *r, zt_frame_type type, const struct zt_frame *f)
{
    uint8_t head[4];

    zt_set_u32(head, (uint32_t)r->rank);
    zt_node_send(r->node, type, head, sizeof(head), f->body, f->body_bytes);
}

/* A line of the rank's log belongs to its stderr: to the log file, and to its last lines.
 */
static void take_log(struct zt_local_rank *r, const struct zt_frame *f)
{
    tail_feed(&r->source[2].tail, (const char *)f->body, f->body_bytes);
    if (r->log_fd >= 0 && !write_log(r, (const char *)f->body, f->body_bytes))
        (void)write_log(r, "\n", 1);
    else
        relay(r, ZT_FRAME_LOGGED, f);
}

/* What zlaunch has given the ranks in a variable; "": nothing. */
static const char *given(const struct zt_job *job, const char *name)
{
    size_t n = strlen(name);

    for (char **e = job->env; *e; e++)
        if (strncmp(*e, name, n) == 0 && (*e)[n] == '=')
            return *e + n + 1;
    return "";
}

/* Not what zlaunch alone reads. As text neither the pieces of one that comes whole behind
 * them, with other lines between. */
static bool is_for_log(const char *name, bool json)
{
    static const char *const inner[] = {"answer", "saves", "kept"};

    for (size_t i = 0; i < sizeof(inner) / sizeof(*inner); i++)
        if (strcmp(name, inner[i]) == 0)
            return false;
    return json || !strstr(name, "_part");
}

/* An event is read by zlaunch in any case; a rank with a log file has there what zlaunch
 * would show of it. */
static void log_event(struct zt_local_rank *r, const struct zt_frame *f)
{
    const struct zt_job *job = r->node->job;
    const char *level = given(job, "ZLAUNCH_LOG_LEVEL");
    bool few = strcmp(level, "warning") == 0 || strcmp(level, "error") == 0 ||
               strcmp(level, "critical") == 0;
    struct zt_render_config cfg = {
        .level = few ? ZT_LOG_WARN : ZT_LOG_INFO,
        .json = strcmp(given(job, "ZLAUNCH_LOG_FORMAT"), "json") == 0,
        .who = "zworker",
        .out_fd = r->log_fd,
        .err_fd = r->log_fd,
        .one_file = true};
    struct zt_render *render = NULL;
    json_t *event;

    if (r->log_fd < 0)
        return;
    event = zt_json_object((const char *)f->body, f->body_bytes);
    if (event && is_for_log(zt_json_get_text(event, "event", ""), cfg.json) &&
        zt_render_open(&cfg, &render, NULL) == ZT_OK) {
        zt_render_event(render, r->rank, event);
        zt_render_drain(render);
        if (zt_render_lost(render))
            lose_log(r, zt_render_lost(render));
    }
    zt_render_close(render);
    json_decref(event);
}

/* Pass on what the rank has sent. False: it is malformed, and the rank is not heard any
 * more. */
static bool take_frames(struct zt_source *s)
{
    struct zt_local_rank *r = s->rank;
    struct zt_fault fault = {0};
    struct zt_frame f;
    zt_err rc;

    while ((rc = zt_frame_peek(&s->frames, &f, &fault)) == ZT_OK) {
        bool fits = f.body_bytes <= ZT_FRAME_MAX - 1 - sizeof(uint32_t);

        if (f.type == ZT_FRAME_EVENT && fits) {
            log_event(r, &f); /* first: where the file is lost zlaunch shows it */
            relay(r, ZT_FRAME_RELAY, &f);
        } else if (f.type == ZT_FRAME_LOG && fits) {
            take_log(r, &f);
        } else {
            rc = zt_fault_set(&fault, ZT_E_FORMAT, "a frame of type %d", f.type);
            break;
        }
        zt_frame_drop(&s->frames, &f);
    }
    if (rc == ZT_E_SHORT)
        return true;
    zt_warn("daemon", "rank %d sends no events any more: %s", r->rank, fault.text);
    return false;
}

/* Read once. The number of bytes; 0: nothing there now, or the source is closed. */
static size_t source_read(struct zt_source *s)
{
    static char block[READ_BYTES]; /* the loop's own: one read at a time */
    ssize_t k;
    bool ok;

    if (s->fd < 0)
        return 0;
    do
        k = read(s->fd, block, sizeof(block));
    while (k < 0 && errno == EINTR);
    if (k < 0 && errno == EAGAIN)
        return 0;
    ok = k > 0;
    if (ok && s->stream)
        s->rank->node->printed_bytes += (uint64_t)k;
    if (ok && s->stream && zt_lines_feed(&s->lines, block, (size_t)k, forward, s))
        zt_warn("daemon", "no memory: %zd bytes of the output of rank %d are lost", k,
                s->rank->rank); /* closed, they would end it by SIGPIPE */
    else if (ok && !s->stream)
        ok = zt_buf_put(&s->frames, block, (size_t)k) == ZT_OK && take_frames(s);
    if (!ok) {
        source_close(s);
        return 0;
    }
    return (size_t)k;
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
    (void)status; /* an error shows in the read */
    (void)events;
    source_read(poll->data);
}

zt_err zt_output_start(struct zt_local_rank *r, const int fds[3], struct zt_fault *fault)
{
    for (int i = 0; i < 3; i++) {
        struct zt_source *s = &r->source[i];
        int e;

        s->rank = r;
        s->stream = i;
        zt_lines_init(&s->lines);
        zt_buf_init(&s->frames, 2 * ZT_FRAME_MAX);
        e = uv_poll_init(&r->node->loop, &s->poll, fds[i]);
        if (e)
            return zt_fault_set(fault, ZT_E_SYSTEM, "watching rank %d: %s", r->rank,
                                uv_strerror(e));
        s->fd = fds[i];
        s->poll.data = s;
        if (!r->node->paused)
            uv_poll_start(&s->poll, UV_READABLE, on_readable);
    }
    return ZT_OK;
}

void zt_output_drain(struct zt_local_rank *r)
{
    for (int i = 0; i < 3; i++) {
        struct zt_source *s = &r->source[i];
        size_t total = 0, k;

        while (total < DRAIN_BYTES && (k = source_read(s)) > 0)
            total += k;
        if (s->fd >= 0 && s->stream) /* a child of it holds the pipe; the line is over */
            zt_lines_finish(&s->lines, forward, s);
    }
}

void zt_output_pause(struct zt_daemon_node *n, bool pause)
{
    n->paused = pause;
    for (int i = 0; i < n->num_started; i++)
        for (int k = 0; k < 3; k++) {
            struct zt_source *s = &n->ranks[i].source[k];

            if (s->fd >= 0 && pause)
                uv_poll_stop(&s->poll);
            else if (s->fd >= 0)
                uv_poll_start(&s->poll, UV_READABLE, on_readable);
        }
}

bool zt_output_send(struct zt_local_rank *r, zt_frame_type type, const void *body,
                    size_t n)
{
    int fd = r->source[0].fd;
    struct zt_buf frame;
    ssize_t k = -1;

    zt_buf_init(&frame, ZT_FRAME_MAX + ZT_FRAME_HEADER);
    if (fd >= 0 && zt_frame_put(&frame, type, body, n) == ZT_OK)
        k = send(fd, zt_buf_head(&frame), zt_buf_used(&frame),
                 MSG_NOSIGNAL | MSG_DONTWAIT);
    if (k > 0 && k < (ssize_t)zt_buf_used(&frame))
        shutdown(fd, SHUT_WR); /* half a frame would garble all that follow */
    n = zt_buf_used(&frame);
    zt_buf_release(&frame);
    return k == (ssize_t)n && n;
}

void zt_output_close(struct zt_local_rank *r)
{
    for (int i = 0; i < 3; i++) {
        struct zt_source *s = &r->source[i];

        source_close(s);
        zt_lines_release(&s->lines);
        zt_buf_release(&s->frames);
        for (int k = 0; k < ZT_TAIL_LINES; k++) {
            free(s->tail.line[k]);
            s->tail.line[k] = NULL;
        }
    }
    if (r->log_fd >= 0)
        close(r->log_fd);
    r->log_fd = -1;
}
