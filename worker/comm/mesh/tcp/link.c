/*
 * link.c -- one connection: sending and receiving.
 *
 * A read puts the rest of the current message straight into its buffer and what follows
 * into a scratch buffer, which is then sorted: several short messages of a rank cost one
 * system call.
 */
#include "worker/comm/mesh/tcp/private.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#define UNEXPECTED_BYTES ((size_t)64 << 20)
#define EVENTS           32

/* ---------------------------------------------------------------- queues */
void zt_tcp_push(struct tcp_queue *q, struct tcp_op *op)
{
    op->next = NULL;
    *q->end = op;
    q->end = &op->next;
}

void zt_tcp_replace(struct tcp_queue *q, struct tcp_op **at, struct tcp_op *by)
{
    struct tcp_op *next = (*at)->next;

    if (by)
        by->next = next;
    *at = by ? by : next;
    if (!next)
        q->end = by ? &by->next : at;
}

struct tcp_op **zt_tcp_find(struct tcp_queue *q, const struct tcp_op *op)
{
    struct tcp_op **at = &q->first;

    while (*at && *at != op)
        at = &(*at)->next;
    return at;
}

void zt_tcp_finish(struct tcp_op *op)
{
    op->is_done = true;
    if (op->batch)
        op->batch->left--;
    else
        free(op);
}

/* ---------------------------------------------------------------- links */
/* What epoll says about a link, by what it waits for. */
static void watch_link(struct tcp_link *l, bool is_paused, bool wants_out)
{
    struct epoll_event e = {.events =
                                (is_paused ? 0 : EPOLLIN) | (wants_out ? EPOLLOUT : 0),
                            .data.u32 = (uint32_t)l->rank};

    if (l->is_gone || (l->is_paused == is_paused && l->wants_out == wants_out))
        return;
    l->is_paused = is_paused;
    l->wants_out = wants_out;
    epoll_ctl(l->tcp->work, EPOLL_CTL_MOD, l->fd, &e);
}

void zt_tcp_end_link(struct tcp_link *l, int error)
{
    if (l->is_gone)
        return;
    l->is_gone = true;
    l->error = error;
    l->tcp->num_gone++;
    epoll_ctl(l->tcp->work, EPOLL_CTL_DEL, l->fd, NULL);
}

/* ---------------------------------------------------------------- in */
struct tcp_unexpected **zt_tcp_find_unexpected(struct tcp_link *l, int tag)
{
    struct tcp_unexpected **at = &l->unexpected;

    while (*at && tag >= 0 && (*at)->tag != (uint32_t)tag)
        at = &(*at)->next;
    return at;
}

void zt_tcp_drop_unexpected(struct tcp_link *l, struct tcp_unexpected **at)
{
    struct tcp_unexpected *e = *at;

    *at = e->next;
    if (!e->next)
        l->unexpected_end = at;
    l->unexpected_bytes -= e->bytes;
    l->tcp->num_unexpected--;
    free(e);
    if (l->unexpected_bytes <= UNEXPECTED_BYTES)
        watch_link(l, false, l->wants_out);
}

static void store_unexpected(struct tcp_link *l)
{
    struct tcp_unexpected *e = malloc(sizeof(*e) + l->left);

    if (!e) {
        l->tcp->no_memory = TCP_ERROR(TCP_NO_MEMORY, 0, l->rank);
        return;
    }
    *e = (struct tcp_unexpected){.tag = l->frame.tag, .bytes = l->frame.bytes};
    *l->unexpected_end = e;
    l->unexpected_end = &e->next;
    l->unexpected_bytes += e->bytes;
    l->tcp->num_unexpected++;
    l->op_unexpected = e;
    l->at = e->data;
    if (l->unexpected_bytes > UNEXPECTED_BYTES)
        watch_link(l, true, l->wants_out);
}

/* The frame of a message is here: where does the message go? */
static void begin_message(struct tcp_link *l)
{
    struct tcp_op **at = &l->in.first;

    l->left = l->frame.bytes;
    l->at = NULL;
    if (l->frame.tag == ZT_TCP_GOODBYE) {
        epoll_ctl(l->tcp->watch, EPOLL_CTL_DEL, l->fd, NULL);
        return;
    }
    if (l->frame.bytes > INT_MAX) {
        zt_tcp_end_link(l, EPROTO);
        return;
    }
    while (*at && (*at)->frame.tag != l->frame.tag)
        at = &(*at)->next;
    if (!*at) {
        store_unexpected(l);
        return;
    }
    l->op = *at;
    zt_tcp_replace(&l->in, at, NULL);
    if (l->op->frame.bytes >= l->frame.bytes) {
        l->at = l->op->at;
        return;
    }
    l->op->batch->error = TCP_ERROR(TCP_TOO_LONG, 0, l->rank);
    l->op = NULL;
}

static void end_message(struct tcp_link *l)
{
    if (l->op)
        zt_tcp_finish(l->op);
    if (l->op_unexpected)
        l->op_unexpected->is_whole = true;
    l->op = NULL;
    l->op_unexpected = NULL;
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
    struct iovec v[2] = {{l->at, direct}, {l->tcp->scratch, ZT_TCP_SCRATCH}};
    ssize_t n = readv(l->fd, direct ? v : v + 1, direct ? 2 : 1);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (n <= 0) {
        zt_tcp_end_link(l, n ? errno : 0);
        return false;
    }
    if ((size_t)n < direct)
        direct = (size_t)n;
    if (direct)
        advance(l, direct);
    sort_bytes(l, l->tcp->scratch, (size_t)n - direct);
    return true;
}

/* ---------------------------------------------------------------- out */
/* What the other side said before it went still counts. */
static void send_failed(struct tcp_link *l, int error)
{
    while (!l->is_gone && read_link(l))
        ;
    zt_tcp_end_link(l, error);
}

void zt_tcp_write(struct tcp_link *l)
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
        zt_tcp_replace(&l->out, &l->out.first, NULL);
        zt_tcp_finish(op);
    }
    watch_link(l, l->is_paused, l->out.first != NULL);
}

void zt_tcp_progress(struct tcp *tcp)
{
    struct epoll_event e[EVENTS];
    int n = epoll_wait(tcp->work, e, EVENTS, 0);

    for (int i = 0; i < n; i++) {
        struct tcp_link *l = &tcp->link[e[i].data.u32];

        if (e[i].events & EPOLLOUT)
            zt_tcp_write(l);
        if (!l->is_gone && (e[i].events & ~(uint32_t)EPOLLOUT))
            read_link(l);
    }
}
