#include "store/tcpstore/server.h"

#include <stdlib.h>

#include "store/core/listener.h"
#include "store/tcpstore/session.h"

#define OPENING_BYTES 5u /* VALIDATE and its number: all that a stranger may send */

struct zt_tcp_server {
    struct zt_listener *listener;
    struct zt_tcp_hub *hub;
    void (*closed)(void *ctx);
    void *ctx;
};

struct tcp_conn {
    struct zt_peer peer; /* first */
    struct zt_conn *conn;
    struct zt_tcp_session *session;
    size_t opening; /* bytes a stranger has sent */
};

static void peer_send(struct zt_peer *p, const void *data, size_t bytes)
{
    zt_conn_send(((struct tcp_conn *)p)->conn, data, bytes);
}

static void peer_drop(struct zt_peer *p)
{
    zt_conn_drop(((struct tcp_conn *)p)->conn);
}

static void *client_open(void *ctx, struct zt_conn *conn)
{
    struct zt_tcp_server *s = ctx;
    struct tcp_conn *c = calloc(1, sizeof(*c));

    if (!c)
        return NULL;
    c->peer = (struct zt_peer){peer_send, peer_drop};
    c->conn = conn;
    if (zt_tcp_session_open(s->hub, &c->peer, &c->session)) {
        free(c);
        return NULL;
    }
    return c;
}

static size_t client_stranger_bytes(const void *object)
{
    return OPENING_BYTES - ((const struct tcp_conn *)object)->opening;
}

static zt_conn_state client_bytes(void *object, const void *data, size_t bytes,
                                  double now)
{
    struct tcp_conn *c = object;
    uint64_t served = zt_tcp_session_num_requests(c->session);

    (void)now;
    c->opening += zt_tcp_session_is_valid(c->session) ? 0 : bytes;
    if (zt_tcp_session_feed(c->session, data, bytes))
        return ZT_CONN_DROP;
    if (!zt_tcp_session_is_valid(c->session))
        return c->opening < OPENING_BYTES ? ZT_CONN_STRANGER : ZT_CONN_DROP;
    if (!zt_tcp_session_is_partial(c->session))
        return ZT_CONN_IDLE;
    return served == zt_tcp_session_num_requests(c->session) ? ZT_CONN_PARTIAL
                                                             : ZT_CONN_PROGRESSED;
}

static void client_close(void *object)
{
    struct tcp_conn *c = object;

    zt_tcp_session_close(c->session);
    free(c);
}

static const struct zt_protocol protocol = {
    .open = client_open,
    .bytes = client_bytes,
    .stranger_bytes = client_stranger_bytes,
    .close = client_close,
};

static void listener_closed(void *ctx)
{
    struct zt_tcp_server *s = ctx;

    zt_tcp_hub_close(s->hub);
    if (s->closed)
        s->closed(s->ctx);
    free(s);
}

zt_err zt_tcp_server_open(uv_loop_t *loop, const struct zt_tcp_server_config *cfg,
                          struct zt_tcp_server **out, struct zt_fault *fault)
{
    struct zt_listener_config lc = {
        .address = cfg->address,
        .port = cfg->port,
        .max_conns = 16384,
        .max_strangers = 1024,
        .stranger_s = 5,
        .fair_s = 0.25,
        .stall_s = 60,
        .max_unsent = 64u << 20,
        .protocol = &protocol,
        .closed = listener_closed,
    };
    struct zt_tcp_server *s = calloc(1, sizeof(*s));
    zt_err rc;

    if (!s || zt_tcp_hub_open(&s->hub)) {
        free(s);
        return zt_fault_set(fault, ZT_E_NOMEM, "TCPStore: no memory");
    }
    lc.ctx = s;
    rc = zt_listener_open(loop, &lc, &s->listener, fault);
    if (rc) {
        zt_tcp_hub_close(s->hub);
        free(s);
        return zt_fault_context(fault, rc, "TCPStore");
    }
    s->closed = cfg->closed;
    s->ctx = cfg->ctx;
    *out = s;
    return ZT_OK;
}

void zt_tcp_server_close(struct zt_tcp_server *s)
{
    if (s)
        zt_listener_close(s->listener);
}

int zt_tcp_server_port(const struct zt_tcp_server *s)
{
    return zt_listener_port(s->listener);
}

void zt_tcp_server_clear(struct zt_tcp_server *s)
{
    zt_tcp_hub_clear(s->hub);
}
