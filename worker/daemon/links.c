/*
 * The sockets: ports that answer visitors, and tries to reach the ports of others.
 *
 * At most MAX_TRYING tries are in flight. The result is reported when every try has
 * ended; or a while (`settle_ms`) after every node was reached by one of its addresses:
 * what has not answered by then is slower, or packets to it are dropped on the way.
 */
#include "worker/daemon/links.h"

#include "common/message/frame.h"
#include "common/json/line.h"
#include "common/log.h"
#include "worker/daemon/links_private.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define MAX_TRYING   64
#define MAX_VISITORS 512
#define VISIT_S      5.0 /* a visitor that says nothing is closed after so long */
#define TICK_MS      20
#define BACKLOG      512

static void start_tries(struct zt_links *l);

/* ------------------------------------------------------------------ ends */

static void free_when_closed(struct zt_links *l)
{
    if (!l->closing || l->num_handles)
        return;
    json_decref(l->request);
    json_decref(l->found);
    free(l->targets);
    free(l->reached);
    free(l);
}

static void on_conn_closed(uv_handle_t *handle)
{
    struct zt_link_conn *e = handle->data;
    struct zt_links *l = e->links;

    free(e);
    l->num_handles--;
    free_when_closed(l);
}

static void close_conn(struct zt_link_conn *e)
{
    struct zt_links *l = e->links;

    if (uv_is_closing((uv_handle_t *)&e->tcp))
        return;
    if (e->prev)
        e->prev->next = e->next;
    else
        l->conns = e->next;
    if (e->next)
        e->next->prev = e->prev;
    l->num_visitors -= e->node == -1;
    l->num_trying -= e->node >= 0;
    uv_close((uv_handle_t *)&e->tcp, on_conn_closed);
}

static struct zt_link_conn *open_conn(struct zt_links *l, int node, int at)
{
    struct zt_link_conn *e = calloc(1, sizeof(*e));

    if (!e || uv_tcp_init(l->loop, &e->tcp)) {
        free(e);
        return NULL;
    }
    e->tcp.data = e->connect.data = e->write.data = e;
    e->links = l;
    e->node = node;
    e->at = at;
    e->since_s = zt_now();
    e->next = l->conns;
    if (l->conns)
        l->conns->prev = e;
    l->conns = e;
    l->num_handles++;
    l->num_visitors += node == -1;
    l->num_trying += node >= 0;
    return e;
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    static char spill[1]; /* anything after the word is discarded */
    struct zt_link_conn *e = handle->data;

    (void)suggested;
    *buf = e->got_bytes < ZT_LINKS_WORD
               ? uv_buf_init(e->got + e->got_bytes, ZT_LINKS_WORD - e->got_bytes)
               : uv_buf_init(spill, 1);
}

static void on_written(uv_write_t *req, int status)
{
    if (status && status != UV_ECANCELED)
        close_conn(req->data);
}

static bool send_word(struct zt_link_conn *e, const char *word)
{
    uv_buf_t buf = uv_buf_init((char *)word, ZT_LINKS_WORD);

    return uv_write(&e->write, (uv_stream_t *)&e->tcp, &buf, 1, on_written) == 0;
}

/* ------------------------------------------------------------------ visitors */

static void on_visitor_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    struct zt_link_conn *e = stream->data;

    (void)buf;
    if (n == 0)
        return;
    if (n < 0 || e->answered) {
        close_conn(e);
        return;
    }
    e->got_bytes += (unsigned)n;
    if (e->got_bytes < ZT_LINKS_WORD)
        return;
    e->answered = true; /* and the visitor closes */
    if (memcmp(e->got, e->links->ask, ZT_LINKS_WORD) != 0 ||
        !send_word(e, e->links->answer))
        close_conn(e);
}

static void on_visitor(uv_stream_t *stream, int status)
{
    struct zt_link_conn *port = stream->data, *e;
    struct zt_links *l = port->links;

    if (status)
        return;
    e = open_conn(l, -1, 0);
    if (!e)
        return;
    if (uv_accept(stream, (uv_stream_t *)&e->tcp) || l->num_visitors > MAX_VISITORS ||
        uv_read_start((uv_stream_t *)&e->tcp, on_alloc, on_visitor_read))
        close_conn(e);
}

bool zt_links_listen(struct zt_links *l, const struct sockaddr *on,
                     struct sockaddr_storage *bound, int *bound_bytes)
{
    struct zt_link_conn *e = open_conn(l, -2, 0);
    struct sockaddr_storage a = {0};

    if (!e)
        return false;
    if (on->sa_family == AF_INET6) {
        memcpy(&a, on, sizeof(struct sockaddr_in6));
        ((struct sockaddr_in6 *)&a)->sin6_port = 0;
    } else {
        memcpy(&a, on, sizeof(struct sockaddr_in));
        ((struct sockaddr_in *)&a)->sin_port = 0;
    }
    if (uv_tcp_bind(&e->tcp, (struct sockaddr *)&a,
                    on->sa_family == AF_INET6 ? UV_TCP_IPV6ONLY : 0) == 0 &&
        uv_listen((uv_stream_t *)&e->tcp, BACKLOG, on_visitor) == 0 &&
        uv_tcp_getsockname(&e->tcp, (struct sockaddr *)bound, bound_bytes) == 0)
        return true;
    close_conn(e);
    return false;
}

/* ------------------------------------------------------------------ tries */

static void report(struct zt_links *l)
{
    zt_links_found on_found = l->on_found;
    json_t *found = l->found;
    struct zt_link_conn *next;

    if (!on_found)
        return;
    l->on_found = NULL;
    l->found = NULL;
    for (struct zt_link_conn *e = l->conns; e; e = next) {
        next = e->next;
        if (e->node >= 0)
            close_conn(e);
    }
    on_found(l->ctx, found);
}

static void end_try(struct zt_link_conn *e)
{
    struct zt_links *l = e->links;

    close_conn(e);
    start_tries(l);
}

/* Round trip as the kernel measured it on this connection. */
static int64_t rtt_us(const struct zt_link_conn *e)
{
    struct tcp_info info = {0};
    socklen_t n = sizeof(info);
    int fd;

    if (uv_fileno((const uv_handle_t *)&e->tcp, &fd) ||
        getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &n) || !info.tcpi_rtt)
        return (int64_t)((zt_now() - e->since_s) * 1e6);
    return info.tcpi_rtt;
}

static void on_reached(struct zt_link_conn *e)
{
    struct zt_links *l = e->links;

    json_array_append_new(json_object_get(l->found, "reached"),
                          json_pack("[i,i,I]", e->node, e->at, (json_int_t)rtt_us(e)));
    if (!l->reached[e->node]) {
        l->reached[e->node] = true;
        if (--l->num_missing == 0)
            l->settled_s = zt_now();
    }
}

static const char *word_of(const struct zt_links *l, int node, const char *key)
{
    const json_t *nodes = json_object_get(l->request, "nodes");

    return json_string_value(json_object_get(json_array_get(nodes, (size_t)node), key));
}

static void on_answer(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    struct zt_link_conn *e = stream->data;

    (void)buf;
    if (n == 0)
        return;
    if (n > 0)
        e->got_bytes += (unsigned)n;
    if (n > 0 && e->got_bytes < ZT_LINKS_WORD)
        return;
    if (n > 0 && memcmp(e->got, word_of(e->links, e->node, "answer"), ZT_LINKS_WORD) == 0)
        on_reached(e);
    end_try(e);
}

static void on_connected(uv_connect_t *req, int status)
{
    struct zt_link_conn *e = req->data;

    if (status == UV_ECANCELED) /* it is being closed */
        return;
    if (status || !send_word(e, word_of(e->links, e->node, "ask")) ||
        uv_read_start((uv_stream_t *)&e->tcp, on_alloc, on_answer))
        end_try(e);
}

static void start_tries(struct zt_links *l)
{
    while (l->on_found && l->num_trying < MAX_TRYING && l->next_target < l->num_targets) {
        const struct zt_link_target *g = &l->targets[l->next_target++];
        struct zt_link_conn *e = open_conn(l, g->node, g->at);

        if (e && uv_tcp_connect(&e->connect, &e->tcp, (const struct sockaddr *)&g->to,
                                on_connected))
            close_conn(e);
    }
    if (!l->num_trying && l->next_target == l->num_targets)
        report(l);
}

static void on_tick(uv_timer_t *timer)
{
    struct zt_links *l = timer->data;
    struct zt_link_conn *next;
    double now = zt_now();

    for (struct zt_link_conn *e = l->conns; e; e = next) {
        next = e->next;
        if (e->node >= -1 && now - e->since_s > (e->node < 0 ? VISIT_S : l->timeout_s))
            close_conn(e);
    }
    if (l->on_found && l->settled_s > 0 && now - l->settled_s > l->settle_s)
        report(l);
    else
        start_tries(l);
}

/* ------------------------------------------------------------------ an order */

static zt_err bad_request(struct zt_fault *fault)
{
    return zt_fault_set(fault, ZT_E_FORMAT, "LINKS_TRY frame: malformed");
}

static bool is_word(const json_t *node, const char *key)
{
    const json_t *v = json_object_get(node, key);

    return json_is_string(v) && json_string_length(v) == ZT_LINKS_WORD;
}

static bool read_target(const json_t *at, struct zt_link_target *g)
{
    const char *text = json_string_value(json_array_get(at, 0));
    json_int_t port = json_integer_value(json_array_get(at, 1));

    if (!text || port < 1 || port > 65535)
        return false;
    return strchr(text, ':')
               ? uv_ip6_addr(text, (int)port, (struct sockaddr_in6 *)&g->to) == 0
               : uv_ip4_addr(text, (int)port, (struct sockaddr_in *)&g->to) == 0;
}

/* First addresses first, and of those the next nodes first, so that not all nodes visit
 * one of them at once. */
static zt_err read_targets(struct zt_links *l, int self, struct zt_fault *fault)
{
    const json_t *nodes = json_object_get(l->request, "nodes"), *at;
    size_t num = json_array_size(nodes), total = 0, i;
    const json_t *node;

    json_array_foreach(nodes, i, node)
    {
        if (!is_word(node, "ask") || !is_word(node, "answer"))
            return bad_request(fault);
        total += json_array_size(json_object_get(node, "at"));
    }
    l->num_nodes = (int)num;
    l->num_missing = (int)num - 1;
    l->targets = calloc(total + 1, sizeof(*l->targets));
    l->reached = calloc(num + 1, sizeof(*l->reached));
    if (!l->targets || !l->reached)
        return zt_fault_set(fault, ZT_E_NOMEM, "links: no memory");
    for (int a = 0; a < ZT_LINKS_ADDRESSES; a++)
        for (size_t k = 1; k < num; k++) {
            struct zt_link_target *g = &l->targets[l->num_targets];

            g->node = (int)(((size_t)self + k) % num);
            g->at = a;
            node = json_array_get(nodes, (size_t)g->node);
            at = json_array_get(json_object_get(node, "at"), (size_t)a);
            if (at && !read_target(at, g))
                return bad_request(fault);
            l->num_targets += at != NULL;
        }
    return ZT_OK;
}

static void drop_request(struct zt_links *l)
{
    l->on_found = NULL;
    for (struct zt_link_conn *e = l->conns, *next; e; e = next) {
        next = e->next;
        if (e->node >= 0)
            close_conn(e);
    }
    json_decref(l->found);
    json_decref(l->request);
    free(l->targets);
    free(l->reached);
    l->found = l->request = NULL;
    l->targets = NULL;
    l->reached = NULL;
    l->num_targets = l->next_target = 0;
    l->settled_s = 0;
}

zt_err zt_links_try(struct zt_links *l, const void *body, size_t bytes,
                    zt_links_found on_found, void *ctx, struct zt_fault *fault)
{
    const uint8_t *p = body;
    size_t num;
    uint32_t self;
    zt_err rc;

    drop_request(l);
    l->request = bytes > 4 ? zt_json_object(p + 4, bytes - 4) : NULL;
    num = json_array_size(json_object_get(l->request, "nodes"));
    self = bytes > 4 ? zt_get_u32(p) : 0;
    if (self >= num)
        return bad_request(fault);
    rc = read_targets(l, (int)self, fault);
    if (rc)
        return rc;
    l->timeout_s = (double)zt_json_get_int(l->request, "timeout_ms", 2000) / 1000;
    l->settle_s = (double)zt_json_get_int(l->request, "settle_ms", 2000) / 1000;
    l->found = json_pack("{s:I,s:[]}", "round",
                         (json_int_t)zt_json_get_int(l->request, "round", 0), "reached");
    if (!l->found)
        return zt_fault_set(fault, ZT_E_NOMEM, "links: no memory");
    l->on_found = on_found;
    l->ctx = ctx;
    uv_timer_start(&l->timer, on_tick, 0, TICK_MS); /* on_found never comes from here */
    return ZT_OK;
}

/* ------------------------------------------------------------------ open and close */

static bool make_words(struct zt_links *l)
{
    uint8_t raw[ZT_LINKS_WORD];
    char hex[2 * sizeof(raw) + 1];

    if (getrandom(raw, sizeof(raw), 0) != sizeof(raw))
        return false;
    for (size_t i = 0; i < sizeof(raw); i++)
        snprintf(hex + 2 * i, 3, "%02x", raw[i]);
    memcpy(l->ask, hex, ZT_LINKS_WORD);
    memcpy(l->answer, hex + ZT_LINKS_WORD, ZT_LINKS_WORD);
    return true;
}

zt_err zt_links_open(uv_loop_t *loop, struct zt_links **out, struct zt_fault *fault)
{
    struct zt_links *l = calloc(1, sizeof(*l));
    zt_err rc;

    if (!l)
        return zt_fault_set(fault, ZT_E_NOMEM, "links: no memory");
    l->loop = loop;
    l->timeout_s = VISIT_S;
    uv_timer_init(loop, &l->timer);
    l->timer.data = l;
    l->num_handles = 1;
    rc = make_words(l)
             ? zt_links_listen_all(l, fault)
             : zt_fault_set(fault, ZT_E_SYSTEM, "random numbers: %s", strerror(errno));
    if (rc) {
        zt_links_close(l);
        return rc;
    }
    uv_timer_start(&l->timer, on_tick, 0, TICK_MS);
    *out = l;
    return ZT_OK;
}

static void on_timer_closed(uv_handle_t *handle)
{
    struct zt_links *l = handle->data;

    l->num_handles--;
    free_when_closed(l);
}

void zt_links_close(struct zt_links *l)
{
    if (!l)
        return;
    l->closing = true;
    l->on_found = NULL;
    while (l->conns)
        close_conn(l->conns);
    uv_close((uv_handle_t *)&l->timer, on_timer_closed);
}
