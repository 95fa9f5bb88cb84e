#include "store/core/listener.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "common/log.h"

#define READ_BYTES 65536u
#define BURST      64  /* connections taken in one turn of the loop */
#define TICK_MS    100 /* how exact the limits of time are */
#define BACKLOG    4096
#define PARTING_S  2.0 /* a dropped client's time to read the last reply */

struct zt_conn {
    uv_tcp_t tcp; /* first: the handle is the connection */
    struct zt_listener *l;
    struct zt_conn *prev, *next; /* in `strangers` (oldest first) or `others` */
    void *object;
    zt_conn_state state;
    double since; /* stranger: accepted; partial: begun; dropped: since then */
    size_t unsent;
    bool closing;
};

struct list {
    struct zt_conn *first, *last;
    int num;
};

struct zt_listener {
    uv_tcp_t tcp;
    uv_timer_t tick;
    uv_idle_t more; /* runs for a turn when somebody who waits may be let in */
    struct zt_listener_config cfg;
    struct list strangers, others;
    int port, handles;
    int watched; /* of `others`: partial, or on their way out */
    int taken;   /* connections in this turn of the loop */
    uint64_t turn;
    bool pending; /* somebody knocks and was not let in yet */
    bool stopped, closing;
    char buf[READ_BYTES];
};

struct write {
    uv_write_t req;
    struct zt_conn *conn;
    size_t bytes;
    char data[];
};

static void on_more(uv_idle_t *h);
static void on_tick(uv_timer_t *h);

/* ---------------------------------------------------------------- lists */

static void list_add(struct list *list, struct zt_conn *c)
{
    c->prev = list->last;
    c->next = NULL;
    *(list->last ? &list->last->next : &list->first) = c;
    list->last = c;
    list->num++;
}

static void list_remove(struct list *list, struct zt_conn *c)
{
    *(c->prev ? &c->prev->next : &list->first) = c->next;
    *(c->next ? &c->next->prev : &list->last) = c->prev;
    list->num--;
}

static bool is_watched(zt_conn_state state)
{
    return state == ZT_CONN_PARTIAL || state == ZT_CONN_DROP;
}

static void leave_list(struct zt_conn *c)
{
    struct zt_listener *l = c->l;

    list_remove(c->state == ZT_CONN_STRANGER ? &l->strangers : &l->others, c);
    l->watched -= is_watched(c->state);
}

static void enter_list(struct zt_conn *c, zt_conn_state state)
{
    struct zt_listener *l = c->l;

    c->state = state;
    list_add(state == ZT_CONN_STRANGER ? &l->strangers : &l->others, c);
    l->watched += is_watched(state);
    if ((state == ZT_CONN_STRANGER || is_watched(state)) &&
        !uv_is_active((uv_handle_t *)&l->tick))
        uv_timer_start(&l->tick, on_tick, TICK_MS, TICK_MS);
}

/* ---------------------------------------------------------------- closing */

static void handle_closed(struct zt_listener *l)
{
    if (--l->handles)
        return;
    if (l->cfg.closed)
        l->cfg.closed(l->cfg.ctx);
    free(l);
}

static void on_conn_closed(uv_handle_t *h)
{
    struct zt_conn *c = (struct zt_conn *)h;
    struct zt_listener *l = c->l;

    if (c->object)
        l->cfg.protocol->close(c->object);
    free(c);
    handle_closed(l);
}

static void close_conn(struct zt_conn *c)
{
    struct zt_listener *l = c->l;

    if (c->closing)
        return;
    c->closing = true;
    leave_list(c);
    uv_close((uv_handle_t *)&c->tcp, on_conn_closed);
    if (l->pending && !l->closing)
        uv_idle_start(&l->more, on_more); /* there is room again */
}

static void on_handle_closed(uv_handle_t *h)
{
    handle_closed(h->data);
}

void zt_listener_stop(struct zt_listener *l)
{
    if (l->stopped)
        return;
    l->stopped = true;
    l->pending = false;
    uv_idle_stop(&l->more);
    uv_close((uv_handle_t *)&l->tcp, on_handle_closed);
}

void zt_listener_close(struct zt_listener *l)
{
    if (!l || l->closing)
        return;
    l->closing = true;
    while (l->strangers.first)
        close_conn(l->strangers.first);
    while (l->others.first)
        close_conn(l->others.first);
    zt_listener_stop(l);
    uv_close((uv_handle_t *)&l->tick, on_handle_closed);
    uv_close((uv_handle_t *)&l->more, on_handle_closed);
}

/* ---------------------------------------------------------------- sending */

void zt_conn_drop(struct zt_conn *c)
{
    if (c->closing || c->state == ZT_CONN_DROP)
        return;
    leave_list(c);
    enter_list(c, ZT_CONN_DROP);
    c->since = zt_now();
    uv_read_stop((uv_stream_t *)&c->tcp);
    if (!c->unsent)
        close_conn(c);
}

static void on_written(uv_write_t *req, int status)
{
    struct write *w = (struct write *)req;
    struct zt_conn *c = w->conn;

    c->unsent -= w->bytes;
    free(w);
    if (status < 0 || (c->state == ZT_CONN_DROP && !c->unsent))
        close_conn(c);
}

void zt_conn_send(struct zt_conn *c, const void *data, size_t bytes)
{
    uv_stream_t *s = (uv_stream_t *)&c->tcp;
    uv_buf_t buf = uv_buf_init((char *)data, (unsigned)bytes);
    struct write *w;
    int n = 0;

    if (c->closing || c->state == ZT_CONN_DROP)
        return;
    if (!c->unsent)
        n = uv_try_write(s, &buf, 1);
    if (n == (int)bytes)
        return;
    if (n < 0 && n != UV_EAGAIN) {
        close_conn(c);
        return;
    }
    n = n < 0 ? 0 : n;
    bytes -= (size_t)n;
    w = bytes <= c->l->cfg.max_unsent - c->unsent ? malloc(sizeof(*w) + bytes) : NULL;
    if (!w) { /* it does not read what it asked for */
        close_conn(c);
        return;
    }
    w->conn = c;
    w->bytes = bytes;
    memcpy(w->data, (const char *)data + n, bytes);
    buf = uv_buf_init(w->data, (unsigned)bytes);
    c->unsent += bytes;
    if (uv_write(&w->req, s, &buf, 1, on_written)) {
        c->unsent -= bytes;
        free(w);
        close_conn(c);
    }
}

/* ---------------------------------------------------------------- reading */

static void on_alloc(uv_handle_t *h, size_t suggested, uv_buf_t *buf)
{
    struct zt_conn *c = (struct zt_conn *)h;
    size_t n = READ_BYTES;

    (void)suggested;
    if (c->state == ZT_CONN_STRANGER)
        n = c->l->cfg.protocol->stranger_bytes(c->object);
    *buf = uv_buf_init(c->l->buf, (unsigned)(n < READ_BYTES ? n : READ_BYTES));
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    struct zt_conn *c = (struct zt_conn *)stream;
    struct zt_listener *l = c->l;
    double now = zt_now();
    zt_conn_state state;

    if (n == 0)
        return;
    if (n < 0) {
        close_conn(c);
        return;
    }
    state = l->cfg.protocol->bytes(c->object, buf->base, (size_t)n, now);
    if (c->closing || c->state == ZT_CONN_DROP)
        return;
    if (state == ZT_CONN_DROP) {
        zt_conn_drop(c);
        return;
    }
    if (state == ZT_CONN_PROGRESSED || (state == ZT_CONN_PARTIAL && c->state != state))
        c->since = now;
    state = state == ZT_CONN_PROGRESSED ? ZT_CONN_PARTIAL : state;
    if (state == c->state)
        return;
    if (c->state == ZT_CONN_STRANGER) {
        uv_tcp_keepalive(&c->tcp, 1, 30);
        if (l->pending)
            uv_idle_start(&l->more, on_more);
    }
    leave_list(c);
    enter_list(c, state);
}

static void on_tick(uv_timer_t *h)
{
    struct zt_listener *l = h->data;
    const struct zt_listener_config *cfg = &l->cfg;
    double now = zt_now();

    while (l->strangers.first && now - l->strangers.first->since > cfg->stranger_s)
        close_conn(l->strangers.first);
    for (struct zt_conn *c = l->watched ? l->others.first : NULL, *next; c; c = next) {
        next = c->next;
        if ((c->state == ZT_CONN_PARTIAL && now - c->since > cfg->stall_s) ||
            (c->state == ZT_CONN_DROP && now - c->since > PARTING_S))
            close_conn(c);
    }
    if (l->pending)
        uv_idle_start(&l->more, on_more);
    else if (!l->strangers.num && !l->watched)
        uv_timer_stop(&l->tick);
}

/* ---------------------------------------------------------------- letting in */

/* May somebody come in now? Throws out a stranger who had his time, to make room. */
static bool has_room(struct zt_listener *l)
{
    struct zt_conn *oldest = l->strangers.first;

    if (uv_now(l->tcp.loop) != l->turn) {
        l->turn = uv_now(l->tcp.loop);
        l->taken = 0;
    }
    if (l->taken >= BURST) {
        uv_idle_start(&l->more, on_more);
        return false;
    }
    if (l->strangers.num < l->cfg.max_strangers &&
        l->strangers.num + l->others.num < l->cfg.max_conns)
        return true;
    if (!oldest || zt_now() - oldest->since < l->cfg.fair_s)
        return false; /* the tick, or the end of somebody, asks again */
    close_conn(oldest);
    return true;
}

static void let_in(struct zt_listener *l)
{
    struct zt_conn *c;

    if (!l->pending || !has_room(l))
        return;
    c = calloc(1, sizeof(*c));
    if (!c)
        return; /* he waits for the next tick */
    l->pending = false;
    l->taken++;
    c->l = l;
    c->since = zt_now();
    uv_tcp_init(l->tcp.loop, &c->tcp);
    l->handles++;
    enter_list(c, ZT_CONN_STRANGER);
    if (uv_accept((uv_stream_t *)&l->tcp, (uv_stream_t *)&c->tcp)) {
        close_conn(c);
        return;
    }
    uv_tcp_nodelay(&c->tcp, 1);
    c->object = l->cfg.protocol->open(l->cfg.ctx, c);
    if (!c->object || uv_read_start((uv_stream_t *)&c->tcp, on_alloc, on_read))
        close_conn(c);
}

static void on_more(uv_idle_t *h)
{
    struct zt_listener *l = h->data;

    uv_idle_stop(h);
    l->taken = 0;
    let_in(l);
}

static void on_knock(uv_stream_t *server, int status)
{
    struct zt_listener *l = server->data;

    if (status < 0)
        return; /* out of descriptors, or he gave up: the kernel says it again */
    l->pending = true;
    let_in(l);
    if (l->pending && !uv_is_active((uv_handle_t *)&l->tick))
        uv_timer_start(&l->tick, on_tick, TICK_MS, TICK_MS);
}

/* ---------------------------------------------------------------- opening */

static int bind_to(struct zt_listener *l, const char *address)
{
    struct sockaddr_storage sa;
    int len = sizeof(sa), rc;

    rc = uv_ip6_addr(address, l->cfg.port, (struct sockaddr_in6 *)&sa);
    if (rc)
        rc = uv_ip4_addr(address, l->cfg.port, (struct sockaddr_in *)&sa);
    if (!rc)
        rc = uv_tcp_bind(&l->tcp, (struct sockaddr *)&sa, 0);
    if (!rc)
        rc = uv_listen((uv_stream_t *)&l->tcp, BACKLOG, on_knock);
    if (!rc)
        rc = uv_tcp_getsockname(&l->tcp, (struct sockaddr *)&sa, &len);
    if (!rc)
        l->port =
            ntohs(((struct sockaddr_in *)&sa)->sin_port); /* the same place in both */
    return rc;
}

static int start(struct zt_listener *l, uv_loop_t *loop, const char *address)
{
    int rc = uv_tcp_init(loop, &l->tcp);

    if (rc)
        return rc;
    l->tcp.data = l;
    rc = bind_to(l, address);
    if (!rc)
        rc = uv_timer_init(loop, &l->tick);
    if (!rc)
        rc = uv_idle_init(loop, &l->more);
    l->tick.data = l->more.data = l;
    l->handles = 3;
    return rc;
}

static void free_listener(uv_handle_t *h)
{
    free(h->data);
}

static int try_open(uv_loop_t *loop, const struct zt_listener_config *cfg,
                    const char *address, struct zt_listener **out)
{
    struct zt_listener *l = calloc(1, sizeof(*l));
    int rc;

    if (!l)
        return UV_ENOMEM;
    l->cfg = *cfg;
    rc = start(l, loop, address);
    if (!rc)
        *out = l;
    else if (l->tcp.loop)
        uv_close((uv_handle_t *)&l->tcp, free_listener);
    else
        free(l);
    return rc;
}

zt_err zt_listener_open(uv_loop_t *loop, const struct zt_listener_config *cfg,
                        struct zt_listener **out, struct zt_fault *fault)
{
    const char *address = cfg->address ? cfg->address : "::";
    int rc = try_open(loop, cfg, address, out);

    if (rc && !cfg->address && rc != UV_EADDRINUSE && rc != UV_EACCES)
        rc = try_open(loop, cfg, address = "0.0.0.0", out); /* a machine without IPv6 */
    if (!rc)
        return ZT_OK;
    return zt_fault_set(fault, ZT_E_SYSTEM, "cannot listen on %s port %d: %s%s", address,
                        cfg->port, uv_strerror(rc),
                        rc == UV_EADDRINUSE
                            ? "; another job may use it: choose another MASTER_PORT"
                            : "");
}

int zt_listener_port(const struct zt_listener *l)
{
    return l->port;
}

int zt_listener_num_conns(const struct zt_listener *l)
{
    return l->strangers.num + l->others.num;
}
