/*
 * transport.c -- messages on connected sockets.
 *
 * Nothing here waits. A send goes out at once as far as the socket takes it; the rest of
 * it, and all that comes in, is moved by zt_tcp_progress(tcp), which asks one epoll what
 * can be done. A read takes the rest of the message that is coming in straight to its
 * place, and what follows it into a scratch buffer, from which it is sorted: several
 * short messages of a rank cost one system call.
 */
#include "worker/comm/mesh/tcp/private.h"
#include "common/log.h"

#include <errno.h>
#include <limits.h>
#include <linux/sockios.h>
#include <netinet/tcp.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define KEEP_BYTES ((size_t)64 << 10) /* of a message whose batch is closed */
#define LAST_S     5.0                /* for what is in flight when the process exits */
#define SILENT_MS  40000 /* longer than the keepalive of an idle connection */

/* One for the process, like the library of another transport. */
static struct tcp *tcp;

/* A copy of a message that belongs to no batch; NULL: no memory. */
static struct tcp_op *own_op(const struct tcp_op *like)
{
    struct tcp_op *op = malloc(sizeof(*op) + like->frame.bytes);

    if (!op)
        return NULL;
    *op = *like;
    op->batch = NULL;
    op->at = (char *)(op + 1);
    if (like->frame.bytes)
        memcpy(op->at, like->at, like->frame.bytes);
    return op;
}

/* ---------------------------------------------------------------- batches */
static struct zt_transport_batch *batch_open(int max)
{
    size_t n = (size_t)(max > 0 ? max : 1);
    struct zt_transport_batch *b = calloc(1, sizeof(*b) + n * sizeof(b->op[0]));

    if (b)
        b->max = max;
    return b;
}

/*
 * A message that is being sent must not change and must not be cut. A short one is
 * copied and sent all the same; a long one, which only a communicator that failed
 * cancels, ends the connection.
 */
static void cancel_send(struct tcp_link *l, struct tcp_op *op)
{
    bool is_short = !l->is_gone && op->frame.bytes <= KEEP_BYTES;
    struct tcp_op *own = is_short ? own_op(op) : NULL;

    zt_tcp_replace(&l->out, zt_tcp_find(&l->out, op), own);
    if (own || l->is_gone)
        return;
    shutdown(l->fd, SHUT_RDWR);
    zt_tcp_end_link(l, ECANCELED);
}

static void cancel_recv(struct tcp_link *l, struct tcp_op *op)
{
    struct tcp_op **at = zt_tcp_find(&l->in, op);

    if (*at)
        zt_tcp_replace(&l->in, at, NULL);
    if (l->op == op) { /* the rest of it is discarded */
        l->op = NULL;
        l->at = NULL;
    }
}

static void batch_close(struct zt_transport_batch *b)
{
    if (!b)
        return;
    for (int i = 0; i < b->num; i++) {
        struct tcp_op *op = &b->op[i];

        if (op->is_done)
            continue;
        if (op->is_recv)
            cancel_recv(&tcp->link[op->peer], op);
        else
            cancel_send(&tcp->link[op->peer], op);
    }
    free(b);
}

static struct tcp_op *new_op(struct zt_transport_batch *b, const void *at, size_t bytes,
                             int peer, int tag, bool is_recv)
{
    struct tcp_op *op = &b->op[b->num];

    if (b->num >= b->max)
        return NULL;
    b->num++;
    b->left++;
    *op = (struct tcp_op){.batch = b,
                          .at = (char *)at,
                          .frame = {(uint32_t)tag, (uint32_t)bytes},
                          .peer = peer,
                          .is_recv = is_recv};
    return op;
}

static int send_bytes(struct zt_transport_batch *b, const void *at, size_t bytes, int to,
                      int tag)
{
    struct tcp_op *op = new_op(b, at, bytes, to, tag, false);
    struct tcp_link *l = &tcp->link[to];

    if (!op)
        return TCP_ERROR(TCP_TOO_MANY, 0, to);
    zt_tcp_push(&l->out, op);
    if (!l->wants_out)
        zt_tcp_write(l);
    return 0;
}

/* Receive an unexpected message: all of it, or as much as has come. */
static int take_unexpected(struct tcp_link *l, struct tcp_unexpected **at,
                           struct tcp_op *op)
{
    struct tcp_unexpected *e = *at;
    size_t got = e->bytes - (e->is_whole ? 0 : l->left);

    if (e->bytes > op->frame.bytes)
        return TCP_ERROR(TCP_TOO_LONG, 0, l->rank);
    if (got)
        memcpy(op->at, e->data, got);
    if (e->is_whole) {
        zt_tcp_finish(op);
    } else {
        l->op = op;
        l->op_unexpected = NULL;
        l->at = op->at + got;
    }
    zt_tcp_drop_unexpected(l, at);
    return 0;
}

static int recv_bytes(struct zt_transport_batch *b, void *at, size_t bytes, int from,
                      int tag)
{
    struct tcp_op *op = new_op(b, at, bytes, from, tag, true);
    struct tcp_link *l = &tcp->link[from];
    struct tcp_unexpected **unexpected;

    if (!op)
        return TCP_ERROR(TCP_TOO_MANY, 0, from);
    unexpected = zt_tcp_find_unexpected(l, tag);
    if (*unexpected)
        return take_unexpected(l, unexpected, op);
    zt_tcp_push(&l->in, op);
    return 0;
}

/* ---------------------------------------------------------------- looking */
static int poll_batch(struct zt_transport_batch *b, bool *done)
{
    if (b->left)
        zt_tcp_progress(tcp);
    *done = !b->left;
    if (b->error)
        return b->error;
    if (*done)
        b->num = 0;
    if (*done || (!tcp->num_gone && !tcp->no_memory))
        return 0;
    if (tcp->no_memory)
        return tcp->no_memory;
    for (int i = 0; i < b->num; i++) {
        const struct tcp_link *l = &tcp->link[b->op[i].peer];

        if (!b->op[i].is_done && l->is_gone)
            return TCP_ERROR(TCP_GONE, l->error, l->rank);
    }
    return 0;
}

static int pending_ranks(const struct zt_transport_batch *b, int *ranks, int max_ranks)
{
    int num = 0;

    /* senders that are late, else receivers */
    for (int pass = 0; pass < 2 && !num; pass++)
        for (int i = 0; i < b->num && num < max_ranks; i++)
            if (!b->op[i].is_done && b->op[i].is_recv == !pass)
                ranks[num++] = b->op[i].peer;
    return num;
}

static int try_recv(void *at, size_t bytes, int tag, bool *got)
{
    *got = false;
    zt_tcp_progress(tcp);
    for (int r = 0; tcp->num_unexpected && r < tcp->world; r++) {
        struct tcp_unexpected **unexpected = zt_tcp_find_unexpected(&tcp->link[r], tag),
                              *e = *unexpected;

        if (!e || !e->is_whole)
            continue;
        if (e->bytes > bytes)
            return TCP_ERROR(TCP_TOO_LONG, 0, r);
        memcpy(at, e->data, e->bytes);
        *got = true;
        zt_tcp_drop_unexpected(&tcp->link[r], unexpected);
        break;
    }
    return *got ? 0 : tcp->no_memory; /* what was dropped will not come */
}

/* Data was sent and its host has not acknowledged it for long: the host vanished. Idle
 * connections have keepalives, which the kernel answers even for a suspended rank. */
static bool is_silent(const struct tcp_link *l)
{
    struct tcp_info info = {0};
    socklen_t n = sizeof(info);

    return l->fd >= 0 && !getsockopt(l->fd, IPPROTO_TCP, TCP_INFO, &info, &n) &&
           info.tcpi_unacked > 0 && info.tcpi_last_ack_recv > SILENT_MS;
}

static int find_lost(void)
{
    static _Atomic int64_t looked_s; /* when, of the clock */
    static _Atomic int found;
    struct epoll_event e;
    int64_t now_s = (int64_t)zt_now(), before_s = atomic_load(&looked_s);

    if (epoll_wait(tcp->watch, &e, 1, 0) == 1)
        return TCP_ERROR(TCP_GONE, 0, (int)e.data.u32);
    if (now_s == before_s || !atomic_compare_exchange_strong(&looked_s, &before_s, now_s))
        return atomic_load(&found);
    for (int r = 0; r < tcp->world; r++)
        if (is_silent(&tcp->link[r])) {
            atomic_store(&found, TCP_ERROR(TCP_GONE, ETIMEDOUT, r));
            break;
        }
    return atomic_load(&found);
}

static int lost_ranks(int *ranks, int max)
{
    struct epoll_event e[16];
    int room = max < 16 ? max : 16, num = epoll_wait(tcp->watch, e, room, 0);

    for (int i = 0; i < num; i++) { /* they come in the order in which they were lost */
        int rank = (int)e[i].data.u32, at = i;

        for (; at > 0 && ranks[at - 1] > rank; at--)
            ranks[at] = ranks[at - 1];
        ranks[at] = rank;
    }
    return num > 0 ? num : 0;
}

static int error_rank(int error)
{
    return TCP_WHAT(error) == TCP_GONE ? TCP_RANK(error) : -1;
}

static void error_text(int error, char *out, size_t out_bytes)
{
    static const char *const words[] = {
        [TCP_TOO_LONG] = "sent more than was asked for",
        [TCP_TOO_MANY] = "takes part in more messages than was said",
        [TCP_NO_MEMORY] = "sends what this rank has no memory for",
    };
    const struct tcp_endpoint *c = &tcp->endpoint[TCP_RANK(error)];

    if (TCP_WHAT(error) == TCP_GONE)
        snprintf(out, out_bytes, "rank %d on %s is gone: its connection %s%s",
                 TCP_RANK(error), c->host, TCP_NUMBER(error) ? "broke: " : "has ended",
                 TCP_NUMBER(error) ? strerror(TCP_NUMBER(error)) : "");
    else
        snprintf(out, out_bytes, "rank %d on %s %s", TCP_RANK(error), c->host,
                 words[TCP_WHAT(error)]);
}

static zt_err error_code(int error)
{
    if (TCP_WHAT(error) == TCP_GONE)
        return ZT_E_LOST;
    return TCP_WHAT(error) == TCP_NO_MEMORY ? ZT_E_NOMEM : ZT_E_PEER;
}

/* ---------------------------------------------------------------- start, stop */
static int start(int *rank, int *world, int *max_tag, char *out, size_t out_bytes)
{
    (void)out;
    (void)out_bytes;
    *rank = tcp->rank;
    *world = tcp->world;
    *max_tag = INT_MAX;
    return 0;
}

/* Have the other hosts acknowledged all that was sent? */
static bool all_arrived(void)
{
    for (int r = 0; r < tcp->world; r++) {
        const struct tcp_link *l = &tcp->link[r];
        int under_way = 0;

        if (l->fd < 0 || l->is_gone)
            continue;
        if (l->out.first || (!ioctl(l->fd, SIOCOUTQ, &under_way) && under_way > 0))
            return false;
    }
    return true;
}

/* The sockets close when the process exits; what has arrived by then is not lost. */
static void stop(void)
{
    struct tcp_op goodbye = {.frame = {ZT_TCP_GOODBYE, 0}};
    struct timespec pause = {0, 200000};

    for (int r = 0; r < tcp->world; r++) {
        struct tcp_link *l = &tcp->link[r];
        struct tcp_op *op = l->fd < 0 || l->is_gone ? NULL : own_op(&goodbye);

        if (!op)
            continue;
        zt_tcp_push(&l->out, op);
        zt_tcp_write(l);
    }
    for (int i = 0; i < (int)(LAST_S * 1e9 / 200000) && !all_arrived(); i++) {
        zt_tcp_progress(tcp);
        nanosleep(&pause, NULL);
    }
}

static const struct zt_transport transport = {
    .abi = ZT_TRANSPORT_ABI,
    .struct_bytes = sizeof(struct zt_transport),
    .name = "tcp",
    .sends_outlive_batch = false, /* cancel_send() copies it, or ends the link */
    .start = start,
    .stop = stop,
    .batch_open = batch_open,
    .batch_close = batch_close,
    .send = send_bytes,
    .recv = recv_bytes,
    .poll = poll_batch,
    .pending_ranks = pending_ranks,
    .try_recv = try_recv,
    .find_lost = find_lost,
    .error_rank = error_rank,
    .lost_ranks = lost_ranks,
    .error_text = error_text,
    .error_code = error_code,
};

static void release(struct tcp *t)
{
    for (int r = 0; t->link && r < t->world; r++)
        if (t->link[r].fd >= 0)
            close(t->link[r].fd);
    if (t->work >= 0)
        close(t->work);
    if (t->watch >= 0)
        close(t->watch);
    free(t->link);
    free(t->endpoint);
    free(t->scratch);
    free(t);
}

/* NULL: no memory, or no descriptors. */
static struct tcp *allocate(int rank, int world)
{
    struct tcp *t = calloc(1, sizeof(*t));

    if (!t)
        return NULL;
    t->rank = rank;
    t->world = world;
    t->link = calloc((size_t)world, sizeof(*t->link));
    t->endpoint = calloc((size_t)world, sizeof(*t->endpoint));
    t->scratch = malloc(ZT_TCP_SCRATCH);
    t->work = epoll_create1(EPOLL_CLOEXEC);
    t->watch = epoll_create1(EPOLL_CLOEXEC);
    for (int r = 0; t->link && r < world; r++) {
        struct tcp_link *l = &t->link[r];

        l->tcp = t;
        l->fd = -1;
        l->rank = r;
        l->out.end = &l->out.first;
        l->in.end = &l->in.first;
        l->unexpected_end = &l->unexpected;
    }
    if (t->link && t->endpoint && t->scratch && t->work >= 0 && t->watch >= 0)
        return t;
    release(t);
    return NULL;
}

static zt_err connect_all(struct tcp *t, const struct zt_comm_config *cfg,
                          struct zt_fault *fault)
{
    zt_err rc = cfg->world > 1 ? zt_tcp_connect_ranks(t, cfg, fault) : ZT_OK;

    for (int r = 0; !rc && r < t->world; r++) {
        struct epoll_event e = {.events = EPOLLIN, .data.u32 = (uint32_t)r};

        if (r != t->rank && epoll_ctl(t->work, EPOLL_CTL_ADD, t->link[r].fd, &e))
            rc =
                zt_fault_set(fault, ZT_E_SYSTEM, "comm: tcp: epoll: %s", strerror(errno));
    }
    return rc;
}

zt_err zt_tcp_transport(const struct zt_comm_config *cfg, const struct zt_transport **out,
                        struct zt_fault *fault)
{
    struct tcp *t;
    zt_err rc;

    if (!tcp) {
        t = allocate(cfg->rank, cfg->world);
        if (!t)
            return zt_fault_set(fault, ZT_E_NOMEM,
                                "comm: tcp: no memory, or no descriptors");
        rc = connect_all(t, cfg, fault);
        if (rc) {
            release(t);
            return rc;
        }
        tcp = t;
    }
    *out = &transport;
    return ZT_OK;
}
