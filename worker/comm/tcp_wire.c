/*
 * tcp_wire.c -- messages on connected sockets.
 *
 * Nothing here waits. A send goes out at once as far as the socket takes it; the rest of
 * it, and all that comes in, is moved by progress(), which asks one epoll what can be
 * done. A read takes the rest of the message that is coming in straight to its place, and
 * what follows it into a scratch buffer, from which it is sorted: short messages of a
 * rank cost one call together.
 */
#include "worker/comm/tcp_private.h"

#include <errno.h>
#include <limits.h>
#include <linux/sockios.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define EARLY_BYTES   ((size_t)64 << 20)
#define SCRATCH_BYTES ((size_t)64 << 10)
#define KEEP_BYTES    ((size_t)64 << 10) /* of a message whose batch is closed */
#define EVENTS        32
#define GOODBYE       UINT32_MAX /* a tag: the connection ends in order */
#define LAST_S        5.0        /* for what is under way at the end */

/* Error numbers: what, errno, rank. */
enum { GONE = 1, TOO_LONG = 2, TOO_MANY = 3, NO_MEMORY = 4 };
#define ERROR(what, number, rank) ((what) << 28 | ((number)&0xff) << 20 | (rank))
#define WHAT(error)               ((error) >> 28)
#define NUMBER(error)             ((error) >> 20 & 0xff)
#define RANK(error)               ((error)&0xfffff)

struct zt_wire_batch {
    int num, max, left; /* left: not yet done */
    int error;
    struct tcp_op op[]; /* (max) */
};

/* Connections are the process's, as the library of another wire would be. */
static struct tcp *tcp;

/* ---------------------------------------------------------------- queues */
static void push(struct tcp_queue *q, struct tcp_op *op)
{
    op->next = NULL;
    *q->end = op;
    q->end = &op->next;
}

/* Put `by` (NULL: nothing) in the place of *at. */
static void replace(struct tcp_queue *q, struct tcp_op **at, struct tcp_op *by)
{
    struct tcp_op *next = (*at)->next;

    if (by)
        by->next = next;
    *at = by ? by : next;
    if (!next)
        q->end = by ? &by->next : at;
}

static struct tcp_op **find(struct tcp_queue *q, const struct tcp_op *op)
{
    struct tcp_op **at = &q->first;

    while (*at && *at != op)
        at = &(*at)->next;
    return at;
}

static void finish(struct tcp_op *op)
{
    op->is_done = true;
    if (op->batch)
        op->batch->left--;
    else
        free(op);
}

/* ---------------------------------------------------------------- links */
/* What epoll says about a link, by what it waits for. */
static void watch_link(struct tcp_link *l, bool is_full, bool wants_out)
{
    struct epoll_event e = {.events =
                                (is_full ? 0 : EPOLLIN) | (wants_out ? EPOLLOUT : 0),
                            .data.u32 = (uint32_t)l->rank};

    if (l->is_gone || (l->is_full == is_full && l->wants_out == wants_out))
        return;
    l->is_full = is_full;
    l->wants_out = wants_out;
    epoll_ctl(tcp->work, EPOLL_CTL_MOD, l->fd, &e);
}

/* It is over; what came before stays. The socket stays open, for tcp->watch. */
static void end_link(struct tcp_link *l, int error)
{
    if (l->is_gone)
        return;
    l->is_gone = true;
    l->error = error;
    tcp->num_gone++;
    epoll_ctl(tcp->work, EPOLL_CTL_DEL, l->fd, NULL);
}

/* ---------------------------------------------------------------- in */
static struct tcp_early **find_early(struct tcp_link *l, int tag)
{
    struct tcp_early **at = &l->early;

    while (*at && tag >= 0 && (*at)->tag != (uint32_t)tag)
        at = &(*at)->next;
    return at;
}

static void drop_early(struct tcp_link *l, struct tcp_early **at)
{
    struct tcp_early *e = *at;

    *at = e->next;
    if (!e->next)
        l->early_end = at;
    l->early_bytes -= e->bytes;
    tcp->num_early--;
    free(e);
    if (l->early_bytes <= EARLY_BYTES)
        watch_link(l, false, l->wants_out);
}

static void keep_early(struct tcp_link *l)
{
    struct tcp_early *e = malloc(sizeof(*e) + l->left);

    if (!e) {
        tcp->no_memory = true;
        return;
    }
    *e = (struct tcp_early){.tag = l->frame.tag, .bytes = l->frame.bytes};
    *l->early_end = e;
    l->early_end = &e->next;
    l->early_bytes += e->bytes;
    tcp->num_early++;
    l->op_early = e;
    l->at = e->data;
    if (l->early_bytes > EARLY_BYTES)
        watch_link(l, true, l->wants_out);
}

/* The frame of a message is here: where does the message go? */
static void begin_message(struct tcp_link *l)
{
    struct tcp_op **at = &l->in.first;

    l->left = l->frame.bytes;
    l->at = NULL;
    if (l->frame.tag == GOODBYE) {
        epoll_ctl(tcp->watch, EPOLL_CTL_DEL, l->fd, NULL);
        return;
    }
    if (l->frame.bytes > INT_MAX) {
        end_link(l, EPROTO);
        return;
    }
    while (*at && (*at)->frame.tag != l->frame.tag)
        at = &(*at)->next;
    if (!*at) {
        keep_early(l);
        return;
    }
    l->op = *at;
    replace(&l->in, at, NULL);
    if (l->op->frame.bytes >= l->frame.bytes) {
        l->at = l->op->at;
        return;
    }
    l->op->batch->error = ERROR(TOO_LONG, 0, l->rank);
    l->op = NULL;
}

static void end_message(struct tcp_link *l)
{
    if (l->op)
        finish(l->op);
    if (l->op_early)
        l->op_early->is_whole = true;
    l->op = NULL;
    l->op_early = NULL;
    l->at = NULL;
    l->frame_got = 0;
}

/* `n` bytes of the message are in their place. */
static void advance(struct tcp_link *l, size_t n)
{
    l->left -= n;
    if (l->at)
        l->at += n;
    if (!l->left)
        end_message(l);
}

/* What was read behind the message that was coming in. */
static void sort_bytes(struct tcp_link *l, const char *from, size_t n)
{
    while (n && !l->is_gone) {
        size_t k = sizeof(l->frame) - l->frame_got;

        if (k) {
            k = k < n ? k : n;
            memcpy((char *)&l->frame + l->frame_got, from, k);
            l->frame_got += k;
            if (l->frame_got == sizeof(l->frame)) {
                begin_message(l);
                advance(l, 0);
            }
        } else {
            k = l->left < n ? l->left : n;
            if (l->at)
                memcpy(l->at, from, k);
            advance(l, k);
        }
        from += k;
        n -= k;
    }
}

/* false: nothing more now, or ever. */
static bool read_link(struct tcp_link *l)
{
    size_t direct = l->at ? l->left : 0;
    struct iovec v[2] = {{l->at, direct}, {tcp->scratch, SCRATCH_BYTES}};
    ssize_t n = readv(l->fd, direct ? v : v + 1, direct ? 2 : 1);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (n <= 0) {
        end_link(l, n ? errno : 0);
        return false;
    }
    if ((size_t)n < direct)
        direct = (size_t)n;
    if (direct)
        advance(l, direct);
    sort_bytes(l, tcp->scratch, (size_t)n - direct);
    return true;
}

/* ---------------------------------------------------------------- out */
/* What the other side said before it went still counts. */
static void send_failed(struct tcp_link *l, int error)
{
    while (!l->is_gone && read_link(l))
        ;
    end_link(l, error);
}

/* What the socket takes now. */
static void write_link(struct tcp_link *l)
{
    struct tcp_op *op;

    while (!l->is_gone && (op = l->out.first)) {
        size_t head = sizeof(op->frame), sent = l->sent;
        size_t ahead = sent < head ? sent : head; /* of the frame, sent */
        struct iovec v[2] = {{(char *)&op->frame + ahead, head - ahead},
                             {op->at, op->frame.bytes}};
        struct msghdr m = {.msg_iov = v, .msg_iovlen = 2};
        ssize_t n;

        if (sent >= head) {
            v[1].iov_base = op->at + (sent - head);
            v[1].iov_len -= sent - head;
            m.msg_iov = v + 1;
            m.msg_iovlen = 1;
        }
        n = sendmsg(l->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            break;
        if (n < 0) {
            send_failed(l, errno);
            return;
        }
        l->sent += (size_t)n;
        if (l->sent < head + op->frame.bytes)
            continue;
        l->sent = 0;
        replace(&l->out, &l->out.first, NULL);
        finish(op);
    }
    watch_link(l, l->is_full, l->out.first != NULL);
}

static void progress(void)
{
    struct epoll_event e[EVENTS];
    int n = epoll_wait(tcp->work, e, EVENTS, 0);

    for (int i = 0; i < n; i++) {
        struct tcp_link *l = &tcp->link[e[i].data.u32];

        if (e[i].events & EPOLLOUT)
            write_link(l);
        if (!l->is_gone && (e[i].events & ~(uint32_t)EPOLLOUT))
            read_link(l);
    }
}

/* A message of its own, to be sent whoever waits; NULL: no memory. */
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
static struct zt_wire_batch *batch_open(int max)
{
    size_t n = (size_t)(max > 0 ? max : 1);
    struct zt_wire_batch *b = calloc(1, sizeof(*b) + n * sizeof(b->op[0]));

    if (b)
        b->max = max;
    return b;
}

/*
 * A message that is to be sent must not change and must not be cut. A short one is
 * copied and goes; with a long one, which only a communicator that failed gives up, the
 * connection ends.
 */
static void give_up_send(struct tcp_link *l, struct tcp_op *op)
{
    bool is_short = !l->is_gone && op->frame.bytes <= KEEP_BYTES;
    struct tcp_op *own = is_short ? own_op(op) : NULL;

    replace(&l->out, find(&l->out, op), own);
    if (own || l->is_gone)
        return;
    shutdown(l->fd, SHUT_RDWR);
    end_link(l, ECANCELED);
}

static void give_up_recv(struct tcp_link *l, struct tcp_op *op)
{
    struct tcp_op **at = find(&l->in, op);

    if (*at)
        replace(&l->in, at, NULL);
    if (l->op == op) { /* the rest of it goes nowhere */
        l->op = NULL;
        l->at = NULL;
    }
}

static void batch_close(struct zt_wire_batch *b)
{
    if (!b)
        return;
    for (int i = 0; i < b->num; i++) {
        struct tcp_op *op = &b->op[i];

        if (op->is_done)
            continue;
        if (op->is_recv)
            give_up_recv(&tcp->link[op->peer], op);
        else
            give_up_send(&tcp->link[op->peer], op);
    }
    free(b);
}

static struct tcp_op *new_op(struct zt_wire_batch *b, const void *at, size_t bytes,
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

static int send_bytes(struct zt_wire_batch *b, const void *at, size_t bytes, int to,
                      int tag)
{
    struct tcp_op *op = new_op(b, at, bytes, to, tag, false);
    struct tcp_link *l = &tcp->link[to];

    if (!op)
        return ERROR(TOO_MANY, 0, to);
    push(&l->out, op);
    if (!l->wants_out)
        write_link(l);
    return 0;
}

/* It came before: all of it, or as much as is here. */
static int take_early(struct tcp_link *l, struct tcp_early **at, struct tcp_op *op)
{
    struct tcp_early *e = *at;
    size_t got = e->bytes - (e->is_whole ? 0 : l->left);

    if (e->bytes > op->frame.bytes)
        return ERROR(TOO_LONG, 0, l->rank);
    if (got)
        memcpy(op->at, e->data, got);
    if (e->is_whole) {
        finish(op);
    } else {
        l->op = op;
        l->op_early = NULL;
        l->at = op->at + got;
    }
    drop_early(l, at);
    return 0;
}

static int recv_bytes(struct zt_wire_batch *b, void *at, size_t bytes, int from, int tag)
{
    struct tcp_op *op = new_op(b, at, bytes, from, tag, true);
    struct tcp_link *l = &tcp->link[from];
    struct tcp_early **early;

    if (!op)
        return ERROR(TOO_MANY, 0, from);
    early = find_early(l, tag);
    if (*early)
        return take_early(l, early, op);
    push(&l->in, op);
    return 0;
}

/* ---------------------------------------------------------------- looking */
static int poll_batch(struct zt_wire_batch *b, bool *done)
{
    if (b->left)
        progress();
    *done = !b->left;
    if (b->error)
        return b->error;
    if (*done)
        b->num = 0;
    if (*done || (!tcp->num_gone && !tcp->no_memory))
        return 0;
    if (tcp->no_memory)
        return ERROR(NO_MEMORY, 0, 0);
    for (int i = 0; i < b->num; i++) {
        const struct tcp_link *l = &tcp->link[b->op[i].peer];

        if (!b->op[i].is_done && l->is_gone)
            return ERROR(GONE, l->error, l->rank);
    }
    return 0;
}

static int missing(const struct zt_wire_batch *b, int *ranks, int max_ranks)
{
    int num = 0;

    for (int pass = 0; pass < 2 && !num; pass++) /* who is silent, else who is deaf */
        for (int i = 0; i < b->num && num < max_ranks; i++)
            if (!b->op[i].is_done && b->op[i].is_recv == !pass)
                ranks[num++] = b->op[i].peer;
    return num;
}

static int heard(void *at, size_t bytes, int tag, bool *got)
{
    *got = false;
    progress();
    for (int r = 0; tcp->num_early && r < tcp->world; r++) {
        struct tcp_early **early = find_early(&tcp->link[r], tag), *e = *early;

        if (!e || !e->is_whole)
            continue;
        if (e->bytes > bytes)
            return ERROR(TOO_LONG, 0, r);
        memcpy(at, e->data, e->bytes);
        *got = true;
        drop_early(&tcp->link[r], early);
        break;
    }
    return 0;
}

static int lost(void)
{
    struct epoll_event e;

    return epoll_wait(tcp->watch, &e, 1, 0) == 1 ? ERROR(GONE, 0, (int)e.data.u32) : 0;
}

static int who(int error)
{
    return WHAT(error) == GONE ? RANK(error) : -1;
}

static void why(int error, char *out, size_t out_bytes)
{
    static const char *const words[] = {
        [TOO_LONG] = "sent more than was asked for",
        [TOO_MANY] = "takes part in more messages than was said",
        [NO_MEMORY] = "or another one sends more than there is memory for",
    };
    const struct tcp_card *c = &tcp->card[RANK(error)];

    if (WHAT(error) == GONE)
        snprintf(out, out_bytes, "rank %d on %s is gone: its connection %s%s",
                 RANK(error), c->host, NUMBER(error) ? "broke: " : "has closed",
                 NUMBER(error) ? strerror(NUMBER(error)) : "");
    else
        snprintf(out, out_bytes, "rank %d on %s %s", RANK(error), c->host,
                 words[WHAT(error)]);
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

/* Has the other host got all that was sent? */
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

/* The end of the process closes the sockets; what has arrived by then is not lost. */
static void stop(void)
{
    struct tcp_op goodbye = {.frame = {GOODBYE, 0}};
    struct timespec pause = {0, 200000};

    for (int r = 0; r < tcp->world; r++) {
        struct tcp_link *l = &tcp->link[r];
        struct tcp_op *op = l->fd < 0 || l->is_gone ? NULL : own_op(&goodbye);

        if (!op)
            continue;
        push(&l->out, op);
        write_link(l);
    }
    for (int i = 0; i < (int)(LAST_S * 1e9 / 200000) && !all_arrived(); i++) {
        progress();
        nanosleep(&pause, NULL);
    }
}

static const struct zt_wire wire = {
    .abi = ZT_WIRE_ABI,
    .struct_bytes = sizeof(struct zt_wire),
    .name = "tcp",
    .start = start,
    .stop = stop,
    .batch_open = batch_open,
    .batch_close = batch_close,
    .send = send_bytes,
    .recv = recv_bytes,
    .poll = poll_batch,
    .missing = missing,
    .heard = heard,
    .lost = lost,
    .who = who,
    .why = why,
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
    free(t->card);
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
    t->card = calloc((size_t)world, sizeof(*t->card));
    t->scratch = malloc(SCRATCH_BYTES);
    t->work = epoll_create1(EPOLL_CLOEXEC);
    t->watch = epoll_create1(EPOLL_CLOEXEC);
    for (int r = 0; t->link && r < world; r++) {
        struct tcp_link *l = &t->link[r];

        l->fd = -1;
        l->rank = r;
        l->out.end = &l->out.first;
        l->in.end = &l->in.first;
        l->early_end = &l->early;
    }
    if (t->link && t->card && t->scratch && t->work >= 0 && t->watch >= 0)
        return t;
    release(t);
    return NULL;
}

static zt_err connect_all(struct tcp *t, const struct zt_comm_config *cfg,
                          struct zt_fault *fault)
{
    zt_err rc = cfg->world > 1 ? zt_tcp_join(t, cfg, fault) : ZT_OK;

    for (int r = 0; !rc && r < t->world; r++) {
        struct epoll_event e = {.events = EPOLLIN, .data.u32 = (uint32_t)r};

        if (r != t->rank && epoll_ctl(t->work, EPOLL_CTL_ADD, t->link[r].fd, &e))
            rc =
                zt_fault_set(fault, ZT_E_SYSTEM, "comm: tcp: epoll: %s", strerror(errno));
    }
    return rc;
}

zt_err zt_tcp_wire(const struct zt_comm_config *cfg, const struct zt_wire **out,
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
    *out = &wire;
    return ZT_OK;
}
