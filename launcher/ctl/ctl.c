/*
 * The server. A client is a uv_pipe_t with a bounded queue. Its request goes up to the
 * job by on_request(); answers come down by the client's number.
 *
 * NEW --REQUEST--> REQUESTED --follow--> FOLLOWING --END--> ENDED --flushed--> closed
 *                      |                                      ^
 *                      +-----------------END------------------+
 */
#include "launcher/ctl/ctl.h"

#include "common/message/frame.h"
#include "common/json/line.h"
#include "common/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define ASK_BYTES 16384 /* of what a client may send: a path, escaped */
#define REQUEST_S 5.0   /* to say what it wants */
#define END_S     10.0  /* to take the last words */
#define TICK_MS   500
#define BACKLOG   128
#define QUEUE_LOW (ZT_CTL_QUEUE / 4)

typedef enum client_state { NEW, REQUESTED, FOLLOWING, ENDED } client_state;

struct ctl_client {
    uv_pipe_t pipe;
    struct zt_ctl *ctl;
    uint32_t id;
    client_state state;
    zt_ctl_streams streams; /* of a follower: bits of 1 << (stream - 1) */
    bool closing;
    struct zt_buf in;
    double since_s;    /* when its state began */
    uint64_t left_out; /* lines it was too slow for, since the last one it got */
    struct ctl_client *next;
};

struct zt_ctl {
    uv_loop_t *loop;
    struct zt_ctl_config cfg;
    char path[ZT_CTL_PATH]; /* empty: gone */
    uv_pipe_t listener;
    uv_timer_t tick;
    bool closing, listening;
    int num_handles; /* that the loop still has; 0 and closing: the end */
    struct ctl_client *clients;
    int num_clients;
    uint32_t last_id;
    struct zt_buf ring; /* LINE frames */
    int ring_lines;
};

/* ------------------------------------------------------------------ handles */

static void drop_handle(struct zt_ctl *ctl)
{
    if (--ctl->num_handles || !ctl->closing)
        return;
    zt_buf_release(&ctl->ring);
    free(ctl);
}

static void on_own_closed(uv_handle_t *handle)
{
    drop_handle(handle->data);
}

static void on_client_closed(uv_handle_t *handle)
{
    struct ctl_client *c = handle->data, **at;
    struct zt_ctl *ctl = c->ctl;

    for (at = &ctl->clients; *at != c; at = &(*at)->next)
        continue;
    *at = c->next;
    ctl->num_clients--;
    zt_buf_release(&c->in);
    free(c);
    drop_handle(ctl);
}

static void client_close(struct ctl_client *c)
{
    if (c->closing)
        return;
    c->closing = true;
    uv_close((uv_handle_t *)&c->pipe, on_client_closed);
}

static struct ctl_client *client_of(const struct zt_ctl *ctl, uint32_t id)
{
    struct ctl_client *c = ctl ? ctl->clients : NULL;

    while (c && (c->id != id || c->closing || c->state == ENDED))
        c = c->next;
    return c;
}

/* ------------------------------------------------------------------ to a client */

struct ctl_write {
    uv_write_t req;
    struct ctl_client *client;
    char bytes[];
};

static size_t waiting(const struct ctl_client *c)
{
    return uv_stream_get_write_queue_size((const uv_stream_t *)&c->pipe);
}

static void tell_left_out(struct ctl_client *c);

static void on_sent(uv_write_t *req, int status)
{
    struct ctl_write *s = (struct ctl_write *)req;
    struct ctl_client *c = s->client;

    free(s);
    if (c->closing)
        return;
    if (status < 0 || (c->state == ENDED && !waiting(c)))
        client_close(c);
    else if (c->left_out && waiting(c) < QUEUE_LOW)
        tell_left_out(c);
}

static void client_send(struct ctl_client *c, const void *bytes, size_t n)
{
    struct ctl_write *s;
    uv_buf_t buf;

    if (c->closing || !n)
        return;
    s = malloc(sizeof(*s) + n);
    if (!s) {
        client_close(c);
        return;
    }
    s->client = c;
    memcpy(s->bytes, bytes, n);
    buf = uv_buf_init(s->bytes, (unsigned)n);
    if (uv_write(&s->req, (uv_stream_t *)&c->pipe, &buf, 1, on_sent)) {
        free(s);
        client_close(c);
    }
}

/* false: there is no memory, and nothing was sent. */
static bool client_send_json(struct ctl_client *c, zt_frame_type type, const json_t *o)
{
    bool whole = !zt_json_is_short_of_memory() && o;
    struct zt_buf body, frame;

    zt_buf_init(&body, ZT_FRAME_MAX - 1);
    zt_buf_init(&frame, ZT_FRAME_MAX + ZT_FRAME_HEADER);
    whole = whole && zt_json_put(&body, o) == ZT_OK &&
            zt_frame_put(&frame, type, zt_buf_head(&body), zt_buf_used(&body)) == ZT_OK;
    if (whole)
        client_send(c, zt_buf_head(&frame), zt_buf_used(&frame));
    zt_buf_release(&body);
    zt_buf_release(&frame);
    return whole;
}

/* A LINE frame; `frame` is filled. */
static zt_err make_line(struct zt_buf *frame, int stream, const char *tag,
                        const char *text, size_t n)
{
    size_t k = strlen(tag);
    zt_err rc;

    if (n > ZT_CTL_LINE_BYTES)
        n = ZT_CTL_LINE_BYTES;
    if (k > ZT_CTL_LINE_BYTES)
        k = 0;
    rc = zt_buf_put_u32(frame, (uint32_t)(2 + k + n));
    if (!rc)
        rc = zt_buf_put_u8(frame, ZT_FRAME_CTL_LINE);
    if (!rc)
        rc = zt_buf_put_u8(frame, (uint8_t)stream);
    if (!rc)
        rc = zt_buf_put(frame, tag, k);
    return rc ? rc : zt_buf_put(frame, text, n);
}

static void client_say(struct ctl_client *c, int stream, const char *text)
{
    struct zt_buf frame;

    zt_buf_init(&frame, 4 * ZT_CTL_LINE_BYTES);
    if (make_line(&frame, stream, "", text, strlen(text)) == ZT_OK)
        client_send(c, zt_buf_head(&frame), zt_buf_used(&frame));
    else
        client_close(c); /* better than an answer with a part missing */
    zt_buf_release(&frame);
}

static void tell_left_out(struct ctl_client *c)
{
    char text[128];

    snprintf(text, sizeof(text),
             "zlaunch: warning: %llu lines are left out here: this reader is too slow",
             (unsigned long long)c->left_out);
    c->left_out = 0;
    client_say(c, 2, text);
}

static void client_end(struct ctl_client *c, int exit_code, const char *text)
{
    json_t *o = json_object();

    if (c->left_out)
        tell_left_out(c);
    c->state = ENDED;
    c->since_s = zt_now();
    json_object_set_new(o, "exit_code", json_integer(exit_code));
    if (text)
        json_object_set_new(o, "text", zt_json_text(text, strlen(text)));
    if (!client_send_json(c, ZT_FRAME_CTL_END, o))
        client_close(c);
    json_decref(o);
}

void zt_ctl_answer(struct zt_ctl *ctl, uint32_t client, const json_t *object)
{
    struct ctl_client *c = client_of(ctl, client);

    if (c && !client_send_json(c, ZT_FRAME_CTL_ANSWER, object))
        client_end(c, zt_err_exit_code(ZT_E_NOMEM),
                   "zlaunch of the job has no memory for its answer");
}

void zt_ctl_print(struct zt_ctl *ctl, uint32_t client, const char *fmt, ...)
{
    struct ctl_client *c = client_of(ctl, client);
    char text[8192];
    va_list ap;

    if (!c)
        return;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    client_say(c, 1, text);
}

void zt_ctl_end(struct zt_ctl *ctl, uint32_t client, int exit_code, const char *text)
{
    struct ctl_client *c = client_of(ctl, client);

    if (c)
        client_end(c, exit_code, text);
}

bool zt_ctl_is_connected(const struct zt_ctl *ctl, uint32_t client)
{
    return client_of(ctl, client) != NULL;
}

/* ------------------------------------------------------------------ lines */

void zt_ctl_follow(struct zt_ctl *ctl, uint32_t client, zt_ctl_streams streams,
                   bool recent)
{
    struct ctl_client *c = client_of(ctl, client);

    if (!c)
        return;
    c->state = FOLLOWING;
    c->streams = streams;
    if (recent)
        client_send(c, zt_buf_head(&ctl->ring), zt_buf_used(&ctl->ring));
}

/* Drop the oldest lines until the newest fits. */
static void remember(struct zt_ctl *ctl, const struct zt_buf *frame)
{
    while (ctl->ring_lines == ZT_CTL_RING_LINES ||
           zt_buf_used(&ctl->ring) + zt_buf_used(frame) > ZT_CTL_RING_BYTES) {
        if (!ctl->ring_lines)
            return;
        zt_buf_drop(&ctl->ring, ZT_FRAME_HEADER + zt_get_u32(zt_buf_head(&ctl->ring)));
        ctl->ring_lines--;
    }
    if (zt_buf_put(&ctl->ring, zt_buf_head(frame), zt_buf_used(frame)) == ZT_OK)
        ctl->ring_lines++;
}

void zt_ctl_publish_line(struct zt_ctl *ctl, int stream, const char *tag,
                         const char *text, size_t n)
{
    struct zt_buf frame;

    if (!ctl)
        return;
    zt_buf_init(&frame, 4 * ZT_CTL_LINE_BYTES);
    if (make_line(&frame, stream, tag, text, n) == ZT_OK) {
        remember(ctl, &frame);
        for (struct ctl_client *c = ctl->clients; c; c = c->next) {
            if (c->state != FOLLOWING || c->closing || !(c->streams >> (stream - 1) & 1))
                continue;
            if (c->left_out || waiting(c) > ZT_CTL_QUEUE)
                c->left_out++;
            else
                client_send(c, zt_buf_head(&frame), zt_buf_used(&frame));
        }
    }
    zt_buf_release(&frame);
}

/* ------------------------------------------------------------------ from a client */

static void on_frame(struct ctl_client *c, const struct zt_frame *f)
{
    json_t *o =
        f->type == ZT_FRAME_CTL_REQUEST ? zt_json_object(f->body, f->body_bytes) : NULL;
    const char *request = zt_json_get_text(o, "request", NULL);

    if (c->state != NEW || !request) {
        client_close(c);
    } else {
        c->state = REQUESTED;
        c->ctl->cfg.on_request(c->ctl->cfg.ctx, c->id, request);
    }
    json_decref(o);
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    static char block[ASK_BYTES]; /* the loop's own: one read at a time */

    (void)handle;
    (void)suggested;
    *buf = uv_buf_init(block, sizeof(block));
}

static void on_read(uv_stream_t *stream, ssize_t k, const uv_buf_t *buf)
{
    struct ctl_client *c = stream->data;
    struct zt_frame f;
    zt_err rc;

    if (k == 0 || c->closing)
        return;
    rc = k < 0 ? ZT_E_SHORT : zt_buf_put(&c->in, buf->base, (size_t)k);
    if (k < 0 || rc) {
        client_close(c); /* it has gone, or says more than there is to say */
        return;
    }
    rc = zt_frame_peek(&c->in, &f, NULL);
    if (rc == ZT_OK) {
        on_frame(c, &f);
        zt_frame_drop(&c->in, &f);
    } else if (rc != ZT_E_SHORT) {
        client_close(c);
    }
}

/* Only clients of this user, whatever the permissions of the folder. */
static bool is_owner(const struct ctl_client *c)
{
    struct ucred who;
    socklen_t n = sizeof(who);
    uv_os_fd_t fd;

    return uv_fileno((const uv_handle_t *)&c->pipe, &fd) == 0 &&
           getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &n) == 0 && who.uid == geteuid();
}

static void on_connection(uv_stream_t *listener, int status)
{
    struct zt_ctl *ctl = listener->data;
    struct ctl_client *c;

    if (status < 0)
        return;
    c = calloc(1, sizeof(*c));
    if (!c)
        return;
    if (uv_pipe_init(ctl->loop, &c->pipe, 0)) {
        free(c);
        return;
    }
    c->pipe.data = c;
    c->ctl = ctl;
    c->id = ++ctl->last_id;
    c->since_s = zt_now();
    zt_buf_init(&c->in, ASK_BYTES);
    c->next = ctl->clients;
    ctl->clients = c;
    ctl->num_clients++;
    ctl->num_handles++;
    if (uv_accept(listener, (uv_stream_t *)&c->pipe) || !is_owner(c))
        client_close(c);
    else if (ctl->num_clients > ZT_CTL_CLIENTS)
        client_end(c, 1, "the job talks to as many as it can already; try again later");
    else if (uv_read_start((uv_stream_t *)&c->pipe, on_alloc, on_read))
        client_close(c);
}

/* Close clients that send no request in time, or no longer read. */
static void on_tick(uv_timer_t *timer)
{
    struct zt_ctl *ctl = timer->data;
    double now = zt_now();

    for (struct ctl_client *c = ctl->clients; c; c = c->next)
        if ((c->state == NEW && now - c->since_s > REQUEST_S) ||
            (c->state == ENDED && now - c->since_s > END_S))
            client_close(c);
}

/* ------------------------------------------------------------------ the socket */

/*
 * Bind under a temporary name, listen, rename. Only then comes libuv, which ends the process
 * when it has no memory: what is left has the name of a job by then, and goes with the next
 * zlaunch.
 */
static zt_err listen_at(struct zt_ctl *ctl, const char *dir, struct zt_fault *fault)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    const char *made = NULL; /* its name; one that was there may be another's */
    char hidden[64], path[ZT_CTL_PATH];
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int e = 0;
    zt_err rc;

    if (fd < 0)
        return zt_fault_set(fault, ZT_E_SYSTEM, "control socket: %s", strerror(errno));
    snprintf(hidden, sizeof(hidden), ".%s", ctl->cfg.job_id);
    rc = zt_ctl_path(dir, hidden, "", addr.sun_path, fault);
    if (!rc)
        rc = zt_ctl_path(dir, ctl->cfg.job_id, ".sock", path, fault);
    if (rc) {
        close(fd);
        return rc;
    }
    if (bind(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0)
        e = -errno;
    else
        made = addr.sun_path;
    if (!e && (listen(fd, BACKLOG) < 0 || rename(made, path) < 0))
        e = -errno;
    else if (!e)
        made = path;
    if (!e)
        e = uv_pipe_open(&ctl->listener, fd);
    if (e)
        close(fd);
    if (!e)
        e = uv_listen((uv_stream_t *)&ctl->listener, BACKLOG, on_connection);
    if (!e) {
        memcpy(ctl->path, path, sizeof(path));
        return ZT_OK;
    }
    if (made)
        unlink(made);
    return zt_fault_set(fault, ZT_E_SYSTEM, "control socket %s: %s", path,
                        uv_strerror(e));
}

zt_err zt_ctl_open(const struct zt_ctl_config *cfg, struct zt_ctl **out,
                   struct zt_fault *fault)
{
    struct zt_ctl *ctl;
    char dir[ZT_CTL_PATH];
    zt_err rc = zt_ctl_dir(dir, fault);

    if (rc)
        return rc;
    ctl = calloc(1, sizeof(*ctl));
    if (!ctl)
        return zt_fault_set(fault, ZT_E_NOMEM, "control socket: no memory");
    ctl->cfg = *cfg;
    ctl->loop = cfg->loop;
    zt_buf_init(&ctl->ring, ZT_CTL_RING_BYTES);
    uv_pipe_init(ctl->loop, &ctl->listener, 0);
    uv_timer_init(ctl->loop, &ctl->tick);
    ctl->listener.data = ctl->tick.data = ctl;
    ctl->num_handles = 2;
    ctl->listening = true;
    rc = listen_at(ctl, dir, fault);
    if (!rc && uv_timer_start(&ctl->tick, on_tick, TICK_MS, TICK_MS))
        rc = zt_fault_set(fault, ZT_E_SYSTEM, "control socket: no timer");
    if (rc) {
        zt_ctl_close(ctl);
        return rc;
    }
    *out = ctl;
    return ZT_OK;
}

static void stop_listening(struct zt_ctl *ctl)
{
    if (ctl->path[0])
        unlink(ctl->path);
    ctl->path[0] = 0;
    if (ctl->listening)
        uv_close((uv_handle_t *)&ctl->listener, on_own_closed);
    ctl->listening = false;
}

void zt_ctl_close(struct zt_ctl *ctl)
{
    if (!ctl)
        return;
    ctl->closing = true;
    stop_listening(ctl);
    for (struct ctl_client *c = ctl->clients; c; c = c->next)
        client_close(c);
    uv_close((uv_handle_t *)&ctl->tick, on_own_closed);
}

void zt_ctl_finish(struct zt_ctl *ctl, int exit_code)
{
    if (!ctl)
        return;
    stop_listening(ctl);
    for (struct ctl_client *c = ctl->clients; c; c = c->next) {
        if (c->closing || c->state == ENDED)
            continue;
        if (c->state == FOLLOWING)
            client_end(c, exit_code, NULL);
        else
            client_end(c, 1, "the job has ended");
    }
}

bool zt_ctl_flushed(const struct zt_ctl *ctl)
{
    for (const struct ctl_client *c = ctl ? ctl->clients : NULL; c; c = c->next)
        if (!c->closing && waiting(c))
            return false;
    return true;
}
