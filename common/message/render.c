#include "common/message/render.h"

#include "common/buf.h"
#include "common/env.h"
#include "common/json/line.h"
#include "common/message/metrics.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define QUEUE_MAX   (64u << 20)
#define PIPE_CHUNK  4096 /* POLLOUT on a pipe promises this much; see pipe(7) */
#define REDRAW_S    0.1
#define LIVE_MAX    512
#define MESSAGE_MAX 8192

/* A run of queued bytes for one descriptor. */
struct segment {
    int fd;
    size_t bytes;
};

struct zt_render {
    struct zt_render_config cfg;
    struct zt_buf queue;
    struct segment *segs; /* segs[first..num): what `queue` holds, in order */
    size_t first, num, cap;
    bool out_is_tty;
    int gone[2];         /* out_fd, err_fd: the reader went away, by this errno */
    char live[LIVE_MAX]; /* the step line as it should stand; empty: none */
    int live_columns;    /* columns it covers on the terminal now; 0: not drawn */
    bool live_dirty;
    double drawn_at;
    int64_t step; /* of the live line */
    bool in_text; /* pieces of a text stand on standard output, and its end is to come */
    struct zt_buf scratch;
};

zt_err zt_render_open(const struct zt_render_config *cfg, struct zt_render **out,
                      struct zt_fault *fault)
{
    struct zt_render *r = calloc(1, sizeof(*r));

    if (!r)
        return zt_fault_set(fault, ZT_E_NOMEM, "output: no memory");
    r->cfg = *cfg;
    zt_buf_init(&r->queue, QUEUE_MAX);
    zt_buf_init(&r->scratch, QUEUE_MAX);
    r->out_is_tty = isatty(cfg->out_fd);
    *out = r;
    return ZT_OK;
}

bool zt_render_is_json(const struct zt_render *r)
{
    return r->cfg.json;
}

/* ------------------------------------------------------------------ the queue */

static void enqueue(struct zt_render *r, int fd, const void *bytes, size_t n)
{
    struct segment *last = r->num > r->first ? &r->segs[r->num - 1] : NULL;

    if (!n || r->gone[fd == r->cfg.err_fd])
        return;
    if (!last || last->fd != fd) {
        if (r->num == r->cap) {
            size_t cap = r->cap ? 2 * r->cap : 16;
            struct segment *grown;

            if (r->segs && r->first > r->cap / 2) { /* room in front: move down instead */
                memmove(r->segs, r->segs + r->first,
                        (r->num - r->first) * sizeof(*grown));
                r->num -= r->first;
                r->first = 0;
            } else {
                grown = realloc(r->segs, cap * sizeof(*grown));
                if (!grown)
                    return;
                r->segs = grown;
                r->cap = cap;
            }
        }
        if (!r->segs) /* not possible; analysers cannot know */
            return;
        r->segs[r->num] = (struct segment){fd, 0};
        last = &r->segs[r->num++];
    }
    if (zt_buf_put(&r->queue, bytes, n) == ZT_OK)
        last->bytes += n;
    else if (!last->bytes)
        r->num--;
}

/* Write once; the number of bytes that left the queue, 0: would block. */
static size_t write_some(struct zt_render *r, const struct segment *seg, bool block)
{
    struct pollfd p = {.fd = seg->fd, .events = POLLOUT};
    int *gone = &r->gone[seg->fd == r->cfg.err_fd];
    size_t n = seg->bytes;
    struct stat st;
    ssize_t k;

    if (*gone)
        return n;
    if (fstat(seg->fd, &st) < 0 || !S_ISREG(st.st_mode)) {
        if (!block && poll(&p, 1, 0) <= 0)
            return 0;
        if (!block && n > PIPE_CHUNK)
            n = PIPE_CHUNK;
    }
    k = write(seg->fd, zt_buf_head(&r->queue), n);
    if (k > 0)
        return (size_t)k;
    if (k < 0 && errno == EAGAIN && block)
        (void)!poll(&p, 1, 1000);
    if (k < 0 && (errno == EINTR || errno == EAGAIN))
        return 0;
    *gone =
        k < 0 ? errno : EIO; /* EPIPE, EIO, ENOSPC: this reader is lost, the run is not */
    return seg->bytes;
}

static bool drain(struct zt_render *r, bool block)
{
    while (r->first < r->num) {
        struct segment *seg = &r->segs[r->first];
        size_t k = write_some(r, seg, block);

        if (!k && !block)
            return false;
        zt_buf_drop(&r->queue, k);
        seg->bytes -= k;
        if (!seg->bytes)
            r->first++;
    }
    r->first = r->num = 0;
    return true;
}

bool zt_render_flush(struct zt_render *r)
{
    return drain(r, false);
}

void zt_render_drain(struct zt_render *r)
{
    drain(r, true);
}

size_t zt_render_pending_bytes(const struct zt_render *r)
{
    return zt_buf_used(&r->queue);
}

int zt_render_lost(const struct zt_render *r)
{
    int e = !r->gone[0] && r->cfg.one_file ? r->gone[1] : r->gone[0];

    return e == EPIPE ? 0 : e;
}

bool zt_render_is_read(const struct zt_render *r)
{
    return !r->gone[0];
}

void zt_render_unread(struct zt_render *r)
{
    r->gone[0] = EPIPE;
}

void zt_render_discard(struct zt_render *r)
{
    if (r->first < r->num)
        r->gone[r->segs[r->first].fd == r->cfg.err_fd] = EPIPE; /* nobody reads it */
}

/* ------------------------------------------------------------------ the live line */

/* Take it off the terminal: blanks instead of an escape sequence, so any terminal will
 * do. */
static void live_clear(struct zt_render *r)
{
    char blanks[LIVE_MAX + 2];

    if (!r->live_columns)
        return;
    memset(blanks, ' ', sizeof(blanks));
    blanks[0] = '\r';
    blanks[r->live_columns + 1] = '\r';
    enqueue(r, r->cfg.err_fd, blanks, (size_t)r->live_columns + 2);
    r->live_columns = 0;
    r->live_dirty = r->live[0] != 0;
}

static void live_draw(struct zt_render *r)
{
    int columns = zt_env_columns(r->cfg.err_fd) - 1, n = (int)strlen(r->live);
    char line[2 * LIVE_MAX];
    int len, pad;

    if (n > columns)
        n = columns > 0 ? columns : 0;
    pad = r->live_columns > n ? r->live_columns - n : 0;
    len = snprintf(line, sizeof(line), "\r%.*s%*s", n, r->live, pad, "");
    enqueue(r, r->cfg.err_fd, line, (size_t)len);
    r->live_columns = n;
    r->live_dirty = false;
    r->drawn_at = zt_now();
}

void zt_render_prompt(struct zt_render *r, const char *text)
{
    if (r->cfg.json)
        return;
    live_clear(r);
    enqueue(r, r->cfg.err_fd, text, strlen(text));
}

void zt_render_tick(struct zt_render *r)
{
    if (r->live_dirty && zt_now() - r->drawn_at >= REDRAW_S)
        live_draw(r);
}

/* The last state of the line stays on the screen as an ordinary line. */
void zt_render_finish_live(struct zt_render *r)
{
    if (!r->live[0])
        return;
    live_draw(r);
    enqueue(r, r->cfg.err_fd, "\n", 1);
    r->live[0] = 0;
    r->live_columns = 0;
    r->live_dirty = false;
}

void zt_render_close(struct zt_render *r)
{
    if (!r)
        return;
    zt_render_finish_live(r);
    drain(r, true);
    zt_buf_release(&r->queue);
    zt_buf_release(&r->scratch);
    free(r->segs);
    free(r);
}

/* ------------------------------------------------------------------ lines */

static const char *paint(const struct zt_render *r, const char *code)
{
    return r->cfg.color ? code : "";
}

static void tell_listener(const struct zt_render *r, int fd, const char *tag,
                          const char *text, size_t n)
{
    if (r->cfg.on_line)
        r->cfg.on_line(r->cfg.on_line_ctx, fd == r->cfg.err_fd ? 2 : 1, tag, text, n);
}

static void put_line(struct zt_render *r, int fd, const char *text, size_t n)
{
    tell_listener(r, fd, "", text, n);
    if (fd == r->cfg.err_fd || r->out_is_tty)
        live_clear(r);
    enqueue(r, fd, text, n);
    enqueue(r, fd, "\n", 1);
}

static void put_tagged(struct zt_render *r, int rank, int fd, const char *text, size_t n)
{
    char tag[64] = "";
    int k;

    if (fd == r->cfg.err_fd || r->out_is_tty)
        live_clear(r);
    if (r->cfg.tag && rank >= 0) {
        bool color = r->cfg.color && isatty(fd);

        k = snprintf(tag, sizeof(tag), "%s[rank %d]%s ", color ? "\033[36m" : "", rank,
                     color ? "\033[0m" : "");
        enqueue(r, fd, tag, (size_t)k);
    }
    tell_listener(r, fd, tag, text, n);
    enqueue(r, fd, text, n);
    enqueue(r, fd, "\n", 1);
}

/* {"ts": now, "event": name, "rank": rank, then the rest of `fields`} as one line. */
static void put_record(struct zt_render *r, const char *name, int rank,
                       const json_t *fields)
{
    char when[ZT_TIMESTAMP_BYTES];
    json_t *line = json_object(), *v;
    const char *key;

    if (!line)
        return;
    zt_timestamp(when);
    json_object_set_new(line, "ts", json_string(when));
    json_object_set_new(line, "event", zt_json_text(name, strlen(name)));
    if (rank >= 0)
        json_object_set_new(line, "rank", json_integer(rank));
    json_object_foreach((json_t *)fields, key, v) if (strcmp(key, "event") != 0)
        json_object_set(line, key, v);
    zt_buf_drop(&r->scratch, zt_buf_used(&r->scratch));
    if (zt_json_put(&r->scratch, line) == ZT_OK)
        put_line(r, r->cfg.out_fd, (const char *)zt_buf_head(&r->scratch),
                 zt_buf_used(&r->scratch));
    json_decref(line);
}

void zt_render_record(struct zt_render *r, const json_t *event)
{
    if (r->cfg.json)
        put_record(r, zt_json_get_text(event, "event", "event"), -1, event);
}

static void output_json(struct zt_render *r, int rank, int stream, const char *line,
                        size_t n)
{
    json_t *o = json_object();

    json_object_set_new(o, "stream", json_string(stream == 1 ? "stdout" : "stderr"));
    json_object_set_new(o, "text", zt_json_text(line, n));
    put_record(r, "output", rank, o);
    json_decref(o);
}

void zt_render_output(struct zt_render *r, int rank, int stream, const char *lines,
                      size_t n)
{
    while (n) {
        const char *nl = memchr(lines, '\n', n);
        size_t line = nl ? (size_t)(nl - lines) : n;

        if (r->cfg.json)
            output_json(r, rank, stream, lines, line);
        else
            put_tagged(r, rank, stream == 1 ? r->cfg.out_fd : r->cfg.err_fd, lines, line);
        if (!nl)
            break;
        lines += line + 1;
        n -= line + 1;
    }
}

void zt_render_log(struct zt_render *r, int rank, const char *line, size_t n)
{
    json_t *o = r->cfg.json && !memchr(line, '\n', n) ? zt_json_object(line, n) : NULL;

    if (o)
        put_line(r, r->cfg.out_fd, line, n);
    else
        zt_render_output(r, rank, 2, line, n);
    json_decref(o);
}

static void put_message(struct zt_render *r, zt_log_level level, const char *fmt,
                        va_list ap)
{
    static const char *const words[] = {"error", "warning", "info", "debug"};
    static const char *const colors[] = {"\033[1;31m", "\033[33m", "", ""};
    char text[MESSAGE_MAX], line[MESSAGE_MAX + 128];
    int n;

    vsnprintf(text, sizeof(text), fmt, ap);
    if (r->cfg.json && r->gone[0] != EPIPE) {
        json_t *o = json_object();

        json_object_set_new(o, "level", json_string(words[level]));
        json_object_set_new(o, "who", json_string(r->cfg.who));
        json_object_set_new(o, "msg", zt_json_text(text, strlen(text)));
        put_record(r, "log", -1, o);
        json_decref(o);
        return;
    }
    if (level <= ZT_LOG_WARN)
        n = snprintf(line, sizeof(line), "%s: %s%s:%s %s", r->cfg.who,
                     paint(r, colors[level]), words[level], paint(r, "\033[0m"), text);
    else
        n = snprintf(line, sizeof(line), "%s: %s", r->cfg.who, text);
    put_line(r, r->cfg.err_fd, line, (size_t)n);
}

void zt_render_message(struct zt_render *r, zt_log_level level, const char *fmt, ...)
{
    va_list ap;

    if (level > r->cfg.level)
        return;
    va_start(ap, fmt);
    put_message(r, level, fmt, ap);
    va_end(ap);
}

void zt_render_answer(struct zt_render *r, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    put_message(r, ZT_LOG_INFO, fmt, ap);
    va_end(ap);
}

void zt_render_block(struct zt_render *r, const char *text)
{
    size_t n = strlen(text);

    if (r->cfg.json || !n)
        return;
    put_line(r, r->cfg.err_fd, text, text[n - 1] == '\n' ? n - 1 : n);
}

/* ------------------------------------------------------------------ events as text */

/* Steps whose line stays above the live one: each tenth of the run. */
static bool is_milestone(const json_t *ev, int64_t *before)
{
    int64_t step = zt_json_get_int(ev, "step", 0);
    int64_t tenth = zt_json_get_int(ev, "total_steps", 0) / 10;
    bool is = step >= zt_json_get_int(ev, "total_steps", INT64_MAX) ||
              (tenth > 0 && step / tenth > *before / tenth);

    *before = step;
    return is;
}

static void step_event(struct zt_render *r, int rank, const json_t *ev)
{
    char line[LIVE_MAX];

    if (r->cfg.level < ZT_LOG_INFO)
        return;
    zt_metrics_line(ev, 0, line, sizeof(line));
    if (!r->cfg.live) {
        put_tagged(r, r->cfg.tag && rank > 0 ? rank : -1, r->cfg.err_fd, line,
                   strlen(line));
        return;
    }
    tell_listener(r, r->cfg.err_fd, "", line, strlen(line));
    zt_metrics_line(ev, zt_env_columns(r->cfg.err_fd) - 1, line, sizeof(line));
    memcpy(r->live, line, sizeof(line));
    r->live_dirty = true;
    if (is_milestone(ev, &r->step))
        zt_render_finish_live(r);
    else
        zt_render_tick(r);
}

static void eval_event(struct zt_render *r, int rank, const json_t *ev)
{
    char line[LIVE_MAX];

    zt_metrics_line(ev, 0, line, sizeof(line));
    put_tagged(r, r->cfg.tag && rank > 0 ? rank : -1, r->cfg.out_fd, line, strlen(line));
}

/* A text that is written: pieces of it, or all. It is a result: stdout, as it is. */
static void sample_event(struct zt_render *r, const char *kind, const char *text,
                         size_t n)
{
    bool whole = !strstr(kind, "_part"), is_reply = strncmp(kind, "reply", 5) == 0;
    size_t line = n && text[n - 1] == '\n' ? n - 1 : n;

    if (!is_reply && !r->in_text && r->cfg.level >= ZT_LOG_INFO)
        put_line(r, r->cfg.err_fd, "sample:", 7);
    if (whole && !r->in_text) {
        put_line(r, r->cfg.out_fd, text, line);
    } else if (whole) {
        tell_listener(r, r->cfg.out_fd, "", text, line);
        enqueue(r, r->cfg.out_fd, "\n", line == n);
    } else {
        if (r->out_is_tty)
            live_clear(r);
        enqueue(r, r->cfg.out_fd, text, n);
    }
    r->in_text = !whole;
}

static void text_event(struct zt_render *r, int rank, const char *kind, const json_t *ev)
{
    const char *text = zt_json_get_text(ev, "text", "");
    char line[MESSAGE_MAX];
    int k;

    if (strcmp(kind, "sample") == 0 || strcmp(kind, "sample_part") == 0 ||
        strcmp(kind, "reply") == 0 || strcmp(kind, "reply_part") == 0) {
        sample_event(r, kind, text, json_string_length(json_object_get(ev, "text")));
        return;
    }
    if (strcmp(kind, "ask") == 0)
        return;
    if (r->cfg.level < ZT_LOG_INFO)
        return;
    k = snprintf(line, sizeof(line), "%s%s%s", strcmp(kind, "note") ? kind : "",
                 strcmp(kind, "note") ? ": " : "", text);
    put_tagged(r, r->cfg.tag && rank > 0 ? rank : -1, r->cfg.err_fd, line,
               k < (int)sizeof(line) ? (size_t)k : sizeof(line) - 1);
}

void zt_render_event(struct zt_render *r, int rank, const json_t *event)
{
    const char *kind = zt_json_get_text(event, "event", "event");

    if (r->cfg.json)
        put_record(r, kind, rank, event);
    else if (strcmp(kind, "step") == 0)
        step_event(r, rank, event);
    else if (strcmp(kind, "eval") == 0)
        eval_event(r, rank, event);
    else if (strcmp(kind, "fail") != 0) /* the supervisor tells failures, once for all */
        text_event(r, rank, kind, event);
}
