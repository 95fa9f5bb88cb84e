#include "launcher/ssh/jump.h"

#include "common/buf.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define CHUNK        32768
#define MAX_HELD     (256u << 10) /* bytes on the way in one direction */
#define KEEPALIVE_S  5
#define KEEPALIVE_MS 5000

struct zt_jump {
    struct zt_ssh_session *link;
    const struct zt_ssh_session_config *cfg;
    const struct zt_jump_events *ev;
    void *ctx;
    const char *target;
    int port;
    LIBSSH2_CHANNEL *channel;
    int fd;     /* our end of the pair; -1: not yet, or over */
    int events; /* that its poll waits for */
    uv_poll_t poll;
    uv_timer_t alive;
    bool poll_open, alive_open, closing, link_gone;
    struct zt_buf down, up;         /* to the target's session, to the target */
    bool read_unsent, write_unsent; /* see zt_ssh_session_sending() */
};

static void maybe_gone(struct zt_jump *j)
{
    const struct zt_jump_events *ev = j->ev;
    void *ctx = j->ctx;

    if (!j->link_gone || j->poll_open || j->alive_open)
        return;
    zt_buf_release(&j->down);
    zt_buf_release(&j->up);
    free(j);
    ev->on_closed(ctx);
}

static void on_poll_closed(uv_handle_t *handle)
{
    struct zt_jump *j = handle->data;

    j->poll_open = false;
    maybe_gone(j);
}

static void on_alive_closed(uv_handle_t *handle)
{
    struct zt_jump *j = handle->data;

    j->alive_open = false;
    maybe_gone(j);
}

/* The target's session sees the end of its connection. */
static void hang_up(struct zt_jump *j)
{
    if (j->fd < 0)
        return;
    uv_poll_stop(&j->poll);
    uv_close((uv_handle_t *)&j->poll, on_poll_closed);
    close(j->fd);
    j->fd = -1;
}

void zt_jump_close(struct zt_jump *j)
{
    if (!j || j->closing)
        return;
    j->closing = true;
    hang_up(j);
    uv_close((uv_handle_t *)&j->alive, on_alive_closed);
    zt_ssh_session_close(j->link);
}

/* ------------------------------------------------------------------ the pump */

static void on_poll(uv_poll_t *poll, int status, int events);

/* Bytes of the channel into the pair. */
static bool pump_down(struct zt_jump *j)
{
    ssize_t k = 1;

    while (k > 0 && j->fd >= 0) {
        uint8_t *room;

        k = 0;
        if (zt_buf_used(&j->down) < MAX_HELD - CHUNK &&
            zt_buf_reserve(&j->down, CHUNK, &room) == ZT_OK)
            k = libssh2_channel_read(j->channel, (char *)room, CHUNK);
        if (k < 0 && k != LIBSSH2_ERROR_EAGAIN)
            return false;
        j->read_unsent = k < 0 && zt_ssh_session_sending(j->link);
        if (k > 0)
            zt_buf_commit(&j->down, (size_t)k);
        if (zt_buf_used(&j->down)) {
            ssize_t w = send(j->fd, zt_buf_head(&j->down), zt_buf_used(&j->down),
                             MSG_NOSIGNAL | MSG_DONTWAIT);

            if (w < 0 && errno != EAGAIN && errno != EINTR)
                return false;
            if (w > 0)
                zt_buf_drop(&j->down, (size_t)w);
        }
    }
    return zt_buf_used(&j->down) || !libssh2_channel_eof(j->channel);
}

/* Bytes of the pair into the channel. */
static bool pump_up(struct zt_jump *j)
{
    ssize_t k = 1;

    while (k > 0 && j->fd >= 0) {
        uint8_t *room;

        k = 0;
        if (zt_buf_used(&j->up) < MAX_HELD - CHUNK &&
            zt_buf_reserve(&j->up, CHUNK, &room) == ZT_OK) {
            k = recv(j->fd, room, CHUNK, MSG_DONTWAIT);
            if (k == 0 || (k < 0 && errno != EAGAIN && errno != EINTR))
                return false;
            if (k > 0)
                zt_buf_commit(&j->up, (size_t)k);
        }
        j->link->want_write = false;
        while (zt_buf_used(&j->up)) {
            ssize_t w = libssh2_channel_write(
                j->channel, (const char *)zt_buf_head(&j->up), zt_buf_used(&j->up));

            if (w == LIBSSH2_ERROR_EAGAIN) {
                j->link->want_write = true;
                j->write_unsent = zt_ssh_session_sending(j->link);
                break;
            }
            j->write_unsent = false;
            if (w < 0)
                return false;
            zt_buf_drop(&j->up, (size_t)w);
        }
    }
    return true;
}

static void pump(struct zt_jump *j)
{
    int events;

    if (j->closing || j->fd < 0)
        return;
    /* a call that has not sent all of its packet comes first, and alone */
    if ((!j->write_unsent && !pump_down(j)) || (!j->read_unsent && !pump_up(j)) ||
        (!j->write_unsent && !j->read_unsent && !pump_down(j))) {
        hang_up(j);
        return;
    }
    if (j->read_unsent)
        j->link->want_write = true;
    events = (zt_buf_used(&j->up) < MAX_HELD - CHUNK ? UV_READABLE : 0) |
             (zt_buf_used(&j->down) ? UV_WRITABLE : 0);
    if (events != j->events)
        uv_poll_start(&j->poll, events, on_poll); /* of none: it stops */
    j->events = events;
    j->link->want_read = zt_buf_used(&j->down) < MAX_HELD - CHUNK;
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
    struct zt_jump *j = poll->data;

    (void)status;
    (void)events;
    pump(j);
    if (!j->closing)
        zt_ssh_session_wake(
            j->link); /* it watches its socket by what libssh2 waits for now */
}

static void on_alive(uv_timer_t *timer)
{
    struct zt_jump *j = timer->data;
    int next;

    if (j->channel && !zt_ssh_session_sending(j->link) &&
        libssh2_keepalive_send(j->link->session, &next) == 0)
        zt_ssh_session_wake(j->link);
}

/* ------------------------------------------------------------------ the session */

static void give_fd(struct zt_jump *j)
{
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0) {
        zt_ssh_session_fail(j->link, false, ZT_E_HOST, "socket pair: %s",
                            strerror(errno));
        return;
    }
    if (uv_poll_init(j->link->loop, &j->poll, pair[0]) < 0) {
        close(pair[0]);
        close(pair[1]);
        zt_ssh_session_fail(j->link, false, ZT_E_HOST, "a socket pair cannot be watched");
        return;
    }
    j->fd = pair[0];
    j->poll.data = j;
    j->poll_open = true;
    libssh2_keepalive_config(j->link->session, 1, KEEPALIVE_S);
    uv_timer_start(&j->alive, on_alive, KEEPALIVE_MS, KEEPALIVE_MS);
    j->ev->on_fd(j->ctx, pair[1]);
}

static void on_ready(void *ctx)
{
    struct zt_jump *j = ctx;

    zt_ssh_session_phase(j->link, "the connection onwards", j->cfg->timeout_s);
}

static void on_work(void *ctx)
{
    struct zt_jump *j = ctx;

    if (!j->channel) {
        j->channel = libssh2_channel_direct_tcpip(j->link->session, j->target, j->port);
        if (!j->channel) {
            if (libssh2_session_last_errno(j->link->session) == LIBSSH2_ERROR_EAGAIN)
                return;
            zt_ssh_session_fail(
                j->link, false, ZT_E_HOST,
                "it does not reach %s port %d (%s): is the machine up, and does "
                "the jump host allow TCP forwarding?",
                j->target, j->port, zt_ssh_session_error(j->link));
            return;
        }
        zt_ssh_session_phase(j->link, NULL, 0);
        give_fd(j);
    }
    pump(j);
}

static void on_fail(void *ctx, const struct zt_fault *why, bool program)
{
    struct zt_jump *j = ctx;

    j->ev->on_fail(j->ctx, why, program);
}

static void on_link_closed(void *ctx)
{
    struct zt_jump *j = ctx;

    j->link_gone = true;
    maybe_gone(j);
}

static const struct zt_ssh_session_events link_events = {on_ready, on_work, on_fail,
                                                         on_link_closed};

struct zt_jump *zt_jump_open(uv_loop_t *loop, const struct zt_ssh_session_config *cfg,
                             const char *target, int port,
                             const struct zt_jump_events *ev, void *ctx)
{
    struct zt_jump *j = calloc(1, sizeof(*j));

    if (!j)
        return NULL;
    *j = (struct zt_jump){
        .cfg = cfg, .ev = ev, .ctx = ctx, .target = target, .port = port, .fd = -1};
    zt_buf_init(&j->down, MAX_HELD);
    zt_buf_init(&j->up, MAX_HELD);
    j->link = zt_ssh_session_open(loop, cfg, &link_events, j);
    if (!j->link) {
        free(j);
        return NULL;
    }
    uv_timer_init(loop, &j->alive);
    j->alive.data = j;
    j->alive_open = true;
    return j;
}
