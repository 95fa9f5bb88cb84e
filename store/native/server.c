/*
 * server.c -- a connection of the rendezvous store:
 *
 *      accept            76 bytes, proof is valid     end, error, time
 *      -----> STRANGER ---------------------> MEMBER ----------------> closed
 *                |  proof is invalid: closed without an answer
 *                |  proof of another generation: "stale", then closed
 */
#include "store/native/server.h"

#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "store/core/listener.h"

struct zt_store_server {
    uv_loop_t *loop;
    uv_timer_t timer; /* the next wait that ends */
    double timer_due; /* 0: not running */
    struct zt_listener *listener;
    struct zt_hub *hub;
    struct zt_secret secret;
    char job[ZT_JOB_ID_BYTES + 1];
    int handles;
    void (*closed)(void *ctx);
    void *ctx;
};

struct store_conn {
    struct zt_peer peer; /* first */
    struct zt_store_server *server;
    struct zt_conn *conn;
    struct zt_session *session; /* NULL: a stranger */
    struct zt_handshake handshake;
    uint8_t answer[ZT_HANDSHAKE_ANSWER];
    size_t answer_bytes;
};

/* ---------------------------------------------------------------- time */

static void on_timer(uv_timer_t *t);

/* The timer ends when the hub wants it to. */
static void set_timer(struct zt_store_server *s)
{
    double due = zt_hub_next(s->hub), ms;

    if (due == s->timer_due)
        return;
    s->timer_due = due;
    if (!due) {
        uv_timer_stop(&s->timer);
        return;
    }
    ms = (due - zt_now()) * 1e3;
    uv_update_time(s->loop);
    uv_timer_start(&s->timer, on_timer, ms > 0 ? (uint64_t)ms + 1 : 0, 0);
}

static void on_timer(uv_timer_t *t)
{
    struct zt_store_server *s = t->data;

    s->timer_due = 0;
    zt_hub_expire(s->hub, zt_now());
    set_timer(s);
}

/* ---------------------------------------------------------------- a connection */

static void peer_send(struct zt_peer *p, const void *data, size_t bytes)
{
    zt_conn_send(((struct store_conn *)p)->conn, data, bytes);
}

static void peer_drop(struct zt_peer *p)
{
    zt_conn_drop(((struct store_conn *)p)->conn);
}

static void *client_open(void *ctx, struct zt_conn *conn)
{
    struct store_conn *c = calloc(1, sizeof(*c));
    uint8_t challenge[ZT_HANDSHAKE_CHALLENGE];

    if (!c)
        return NULL;
    c->peer = (struct zt_peer){peer_send, peer_drop};
    c->server = ctx;
    c->conn = conn;
    zt_handshake_challenge(&c->handshake, challenge);
    zt_conn_send(conn, challenge, sizeof(challenge));
    return c;
}

static size_t client_stranger_bytes(const void *object)
{
    const struct store_conn *c = object;

    return sizeof(c->answer) - c->answer_bytes;
}

/* All 76 bytes of an answer are there. */
static zt_conn_state check_proof(struct store_conn *c)
{
    struct zt_store_server *s = c->server;
    struct zt_handshake_key key = {&s->secret, s->job};
    uint8_t verdict[ZT_HANDSHAKE_VERDICT];
    zt_handshake_result result = zt_handshake_verify(
        &c->handshake, &key, zt_hub_generation(s->hub), c->answer, verdict);

    if (result == ZT_HANDSHAKE_BAD)
        return ZT_CONN_DROP;
    if (result == ZT_HANDSHAKE_GOOD && zt_session_open(s->hub, &c->peer, &c->session))
        return ZT_CONN_DROP;
    zt_conn_send(c->conn, verdict, sizeof(verdict));
    return result == ZT_HANDSHAKE_GOOD ? ZT_CONN_IDLE : ZT_CONN_DROP;
}

static zt_conn_state client_bytes(void *object, const void *data, size_t bytes,
                                  double now)
{
    struct store_conn *c = object;

    if (!c->session) {
        memcpy(c->answer + c->answer_bytes, data, bytes); /* no more than was wanted */
        c->answer_bytes += bytes;
        return c->answer_bytes < sizeof(c->answer) ? ZT_CONN_STRANGER : check_proof(c);
    }
    if (zt_session_feed(c->session, data, bytes, now))
        return ZT_CONN_DROP;
    set_timer(c->server);
    return zt_session_is_partial(c->session) ? ZT_CONN_PARTIAL : ZT_CONN_IDLE;
}

static void client_close(void *object)
{
    struct store_conn *c = object;

    zt_session_close(c->session);
    free(c);
}

static const struct zt_protocol protocol = {
    .open = client_open,
    .bytes = client_bytes,
    .stranger_bytes = client_stranger_bytes,
    .close = client_close,
};

/* ---------------------------------------------------------------- the server */

static void part_closed(struct zt_store_server *s)
{
    if (--s->handles)
        return;
    zt_hub_close(s->hub);
    zt_secret_wipe(&s->secret);
    if (s->closed)
        s->closed(s->ctx);
    free(s);
}

static void listener_closed(void *ctx)
{
    part_closed(ctx);
}

static void timer_closed(uv_handle_t *h)
{
    part_closed(h->data);
}

zt_err zt_store_server_open(uv_loop_t *loop, const struct zt_store_server_config *cfg,
                            struct zt_store_server **out, struct zt_fault *fault)
{
    struct zt_listener_config lc = {
        .address = cfg->address,
        .port = cfg->port,
        .max_conns = cfg->max_clients ? cfg->max_clients : 16384,
        .max_strangers = 1024,
        .stranger_s = cfg->proof_s > 0 ? cfg->proof_s : 2,
        .fair_s = 0.25,
        .stall_s = 20,
        .max_unsent = 16u << 20,
        .protocol = &protocol,
        .closed = listener_closed,
    };
    struct zt_store_server *s = calloc(1, sizeof(*s));
    zt_err rc;

    if (!s)
        return zt_fault_set(fault, ZT_E_NOMEM, "store: no memory");
    s->loop = loop;
    s->secret = *cfg->secret;
    strncpy(s->job, cfg->job, sizeof(s->job) - 1);
    lc.ctx = s;
    rc = zt_hub_open(cfg->generation, cfg->noun ? cfg->noun : "rank", &s->hub);
    if (rc)
        zt_fault_set(fault, rc, "store: no memory");
    else
        rc = zt_listener_open(loop, &lc, &s->listener, fault);
    if (rc) {
        zt_hub_close(s->hub);
        zt_secret_wipe(&s->secret);
        free(s);
        return rc;
    }
    uv_timer_init(loop, &s->timer);
    s->timer.data = s;
    s->handles = 2;
    s->closed = cfg->closed;
    s->ctx = cfg->ctx;
    *out = s;
    return ZT_OK;
}

void zt_store_server_close(struct zt_store_server *s)
{
    if (!s)
        return;
    zt_listener_close(s->listener);
    uv_close((uv_handle_t *)&s->timer, timer_closed);
}

int zt_store_server_port(const struct zt_store_server *s)
{
    return zt_listener_port(s->listener);
}

int zt_store_server_num_members(const struct zt_store_server *s)
{
    return zt_hub_num_members(s->hub);
}

int zt_store_server_num_conns(const struct zt_store_server *s)
{
    return zt_listener_num_conns(s->listener);
}

void zt_store_server_advance(struct zt_store_server *s, uint64_t generation)
{
    zt_hub_advance(s->hub, generation);
    set_timer(s);
}

zt_err zt_store_server_set(struct zt_store_server *s, const char *key, const void *value,
                           size_t bytes)
{
    return zt_hub_set(s->hub, (struct zt_span){key, strlen(key)},
                      (struct zt_span){value, bytes});
}
