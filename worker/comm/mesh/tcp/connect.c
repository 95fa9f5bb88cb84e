/*
 * connect.c -- making the connections of a world.
 *
 *      listen     on a port that the kernel chooses
 *      bootstrap  every rank learns where the others listen, and a random token of each
 *      connect    to all lower ranks, one after the other, with a hello: the token of
 *                 the rank that is called, and the caller's rank
 *      accept     all higher ranks; each hello is answered with the caller's own token
 *
 * A rank accepts after it has connected, so rank 0 answers first and no ranks wait for
 * each other in a circle. A connection without the token is closed without an answer.
 * Only a limited number of connections may be unidentified, and only for a short time; a
 * rank that was closed to make room for another connects again.
 */
#include "worker/comm/mesh/tcp/private.h"
#include "common/log.h"
#include "common/sysfile.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define HELLO       0x7a745450u /* "ztTP" */
#define STRANGERS   64
#define STRANGER_S  5.0
#define REACH_S     30.0 /* for a rank, which listens already, to be reached */
#define TRY_AGAIN_S 0.05
#define BOOT_ID     "/proc/sys/kernel/random/boot_id"
#define NEAR_BYTES  (512 << 10) /* what a core's own caches hold */
#define IDLE_S      15          /* until the first of three keepalive probes, 5 s apart */

struct hello {
    uint32_t magic;
    int32_t from, to;
    uint8_t token[ZT_TCP_TOKEN];
};

/* A connection that has not identified itself yet. */
struct stranger {
    int fd;
    double until;
    size_t got;
    struct hello hello;
};

struct join {
    struct tcp *t;
    int listen_fd;
    double deadline;
    struct tcp_route route;
    struct stranger stranger[STRANGERS];
    int num_strangers;
};

static void sleep_s(double s)
{
    struct timespec t = {0, (long)(s * 1e9)};

    nanosleep(&t, NULL);
}

static int wait_ms(double until)
{
    double left = (until - zt_now()) * 1e3;

    return left <= 0 ? 0 : left > 1e6 ? 1000000 : (int)left + 1;
}

/* In constant time, so that it does not reveal where they differ. */
static bool same_token(const uint8_t *a, const uint8_t *b)
{
    uint8_t differ = 0;

    for (int i = 0; i < ZT_TCP_TOKEN; i++)
        differ |= a[i] ^ b[i];
    return !differ;
}

/* Listen, and describe that to the others. */
static zt_err make_endpoint(struct join *j, const char *host, struct tcp_endpoint *c,
                            struct zt_fault *fault)
{
    struct tcp_address bound = {.bytes = sizeof(bound.at)};

    j->listen_fd = zt_tcp_listen(&j->route, host);
    if (j->listen_fd < 0 || getsockname(j->listen_fd, (void *)&bound.at, &bound.bytes))
        return zt_fault_set(fault, ZT_E_SYSTEM, "comm: tcp: cannot listen: %s",
                            strerror(errno));
    c->port = ntohs(((const struct sockaddr_in *)(const void *)&bound.at)->sin_port);
    zt_tcp_address_text(&j->route.own, c->address);
    gethostname(c->host, sizeof(c->host) - 1);
    zt_sysfile_line(BOOT_ID, c->machine, sizeof(c->machine));
    if (getrandom(c->token, sizeof(c->token), 0) != (ssize_t)sizeof(c->token))
        return zt_fault_set(fault, ZT_E_SYSTEM, "comm: tcp: no random numbers here");
    return ZT_OK;
}

/* ---------------------------------------------------------------- connected */
static struct hello hello_to(const struct join *j, int rank)
{
    struct hello h = {.magic = HELLO, .from = j->t->rank, .to = rank};

    memcpy(h.token, j->t->endpoint[rank].token, sizeof(h.token));
    return h;
}

/* Does it come from a rank of this job? */
static bool is_valid_hello(const struct join *j, const struct hello *h)
{
    const struct tcp *t = j->t;

    return same_token(h->token, t->endpoint[t->rank].token) && h->magic == HELLO &&
           h->to == t->rank && h->from >= 0 && h->from < t->world && h->from != t->rank;
}

/* Does one kernel run that rank and this one, in networks of their own? */
static bool is_near(const struct tcp *t, int rank)
{
    const char *mine = t->endpoint[t->rank].machine;

    return *mine &&
           !strncmp(mine, t->endpoint[rank].machine, sizeof(t->endpoint->machine));
}

/*
 * What is sent within a machine waits in the receiver's queue, and no wire holds any of it.
 * A congestion control that paces (BBR) lets timers hold it up: Reno, which every kernel
 * has, was 1.5 to 3 times as fast. And a send buffer that grows to megabytes, as they do,
 * is copied out when it has left the caches. Both only help: errors do not matter.
 */
static void tune_near(int fd)
{
    static const char reno[] = "reno";
    int bytes = NEAR_BYTES;

    setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, reno, sizeof(reno) - 1);
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
}

static zt_err adopt_connection(struct join *j, int rank, int fd, struct zt_fault *fault)
{
    struct epoll_event e = {.events = EPOLLRDHUP, .data.u32 = (uint32_t)rank};
    int yes = 1, idle = IDLE_S, each = 5, num = 3;

    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof(yes));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &each, sizeof(each));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &num, sizeof(num));
    if (is_near(j->t, rank))
        tune_near(fd);
    j->t->link[rank].fd = fd;
    if (!epoll_ctl(j->t->watch, EPOLL_CTL_ADD, fd, &e))
        return ZT_OK;
    return zt_fault_set(fault, ZT_E_SYSTEM, "comm: tcp: epoll: %s", strerror(errno));
}

/* Fails if a connected rank has ended since: others would wait for it until the deadline.
 */
static zt_err check_links(const struct join *j, struct zt_fault *fault)
{
    struct epoll_event e;

    if (epoll_wait(j->t->watch, &e, 1, 0) != 1)
        return ZT_OK;
    return zt_fault_set(fault, ZT_E_LOST,
                        "comm: tcp: rank %u on %s ended while the ranks connected",
                        e.data.u32, j->t->endpoint[e.data.u32].host);
}

/* Wait until one of p[0..num) is ready, a connected rank has ended, or `until`. p has
 * space for one more. */
static zt_err wait_for(const struct join *j, struct pollfd *p, int num, double until,
                       struct zt_fault *fault)
{
    p[num] = (struct pollfd){j->t->watch, POLLIN, 0};
    if (poll(p, (nfds_t)num + 1, wait_ms(until)) > 0 && p[num].revents)
        return check_links(j, fault);
    return ZT_OK;
}

/* ---------------------------------------------------------------- connecting */
/* *fd: connected; or -1 and *error is an errno that may pass. */
static zt_err try_connect(const struct join *j, const struct tcp_address *a, double until,
                          int *fd, int *error, struct zt_fault *fault)
{
    socklen_t n = sizeof(*error);
    struct pollfd p[2];
    zt_err rc = ZT_OK;

    *error = 0;
    *fd = socket(a->at.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (*fd < 0)
        return zt_fault_set(fault, ZT_E_SYSTEM,
                            "comm: tcp: no socket for each of %d ranks: %s: raise "
                            "ulimit -n",
                            j->t->world, strerror(errno));
    if (connect(*fd, (const void *)&a->at, a->bytes) && errno != EINPROGRESS)
        *error = errno;
    p[0] = (struct pollfd){*fd, POLLOUT, 0};
    if (!*error)
        rc = wait_for(j, p, 1, until, fault);
    if (!rc && !*error && !p[0].revents)
        *error = ETIMEDOUT;
    if (!rc && !*error && getsockopt(*fd, SOL_SOCKET, SO_ERROR, error, &n))
        *error = errno;
    if (rc || *error) {
        close(*fd);
        *fd = -1;
    }
    return rc;
}

/* Send a hello and read the answer. Not *accepted, and no error: connect again. */
static zt_err exchange_hellos(const struct join *j, int rank, int fd, bool *accepted,
                              struct zt_fault *fault)
{
    struct hello mine = hello_to(j, rank), theirs;
    size_t got = 0;
    zt_err rc = ZT_OK;

    *accepted = false;
    if (send(fd, &mine, sizeof(mine), MSG_NOSIGNAL) != (ssize_t)sizeof(mine))
        return ZT_OK;
    while (!rc && got < sizeof(theirs) && zt_now() < j->deadline) {
        struct pollfd p[2] = {{fd, POLLIN, 0}};
        ssize_t n;

        rc = wait_for(j, p, 1, j->deadline, fault);
        n = recv(fd, (char *)&theirs + got, sizeof(theirs) - got, 0);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
            return rc;
        got += n > 0 ? (size_t)n : 0;
    }
    if (rc || got < sizeof(theirs))
        return rc;
    *accepted = is_valid_hello(j, &theirs) && theirs.from == rank;
    return *accepted
               ? ZT_OK
               : zt_fault_set(fault, ZT_E_PEER,
                              "comm: tcp: who answers at %s port %d is not rank %d of "
                              "this job",
                              j->t->endpoint[rank].address, j->t->endpoint[rank].port,
                              rank);
}

static zt_err cannot_reach(const struct join *j, int rank, const struct tcp_address *a,
                           int error, struct zt_fault *fault)
{
    char text[INET6_ADDRSTRLEN] = "?";

    zt_tcp_address_text(a, text);
    return zt_fault_set(fault, ZT_E_LOST,
                        "comm: tcp: rank %d cannot reach rank %d on %s (%s port %d): %s: "
                        "ranks connect to each other at ports that the kernel chooses; "
                        "is there a firewall, or should MASTER_ADDR be of another "
                        "network?",
                        j->t->rank, rank, j->t->endpoint[rank].host, text,
                        j->t->endpoint[rank].port,
                        error ? strerror(error) : "it does not answer");
}

static zt_err connect_to_rank(struct join *j, int rank, struct zt_fault *fault)
{
    double give_up = zt_now() + REACH_S;
    struct tcp_address a;
    int error = 0;

    if (!zt_tcp_address_of(&j->route, &j->t->endpoint[rank], &a))
        return zt_fault_set(fault, ZT_E_PEER, "comm: tcp: rank %d gave no address", rank);
    /* all listen already: a rank that refuses is gone */
    while (zt_now() < j->deadline && error != ECONNREFUSED &&
           (!error || zt_now() < give_up)) {
        bool accepted = false;
        int fd;
        zt_err rc = try_connect(j, &a, zt_now() + REACH_S, &fd, &error, fault);

        if (!rc && fd >= 0)
            rc = exchange_hellos(j, rank, fd, &accepted, fault);
        if (accepted)
            return adopt_connection(j, rank, fd, fault);
        if (fd >= 0)
            close(fd);
        if (rc)
            return rc;
        sleep_s(TRY_AGAIN_S);
    }
    return cannot_reach(j, rank, &a, error, fault);
}

/* ---------------------------------------------------------------- accepting */
static void drop_stranger(struct join *j, int i)
{
    if (j->stranger[i].fd >= 0)
        close(j->stranger[i].fd);
    j->stranger[i] = j->stranger[--j->num_strangers];
}

/* The one whose time ends first; others may need its place. */
static int oldest(const struct join *j)
{
    int at = 0;

    for (int i = 1; i < j->num_strangers; i++)
        if (j->stranger[i].until < j->stranger[at].until)
            at = i;
    return at;
}

static void accept_strangers(struct join *j)
{
    for (int k = 0; k < STRANGERS; k++) {
        int fd = accept4(j->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

        if (fd < 0)
            return;
        if (j->num_strangers == STRANGERS)
            drop_stranger(j, oldest(j));
        j->stranger[j->num_strangers++] =
            (struct stranger){.fd = fd, .until = zt_now() + STRANGER_S};
    }
}

/* *is_done: it is to be dropped, or identified now. */
static zt_err read_hello(struct join *j, struct stranger *s, bool *is_done,
                         struct zt_fault *fault)
{
    ssize_t n =
        recv(s->fd, (char *)&s->hello + s->got, sizeof(s->hello) - s->got, MSG_DONTWAIT);
    struct hello answer;
    int from;

    *is_done = n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
    s->got += n > 0 ? (size_t)n : 0;
    if (s->got < sizeof(s->hello))
        return ZT_OK;
    *is_done = true;
    from = s->hello.from;
    if (!is_valid_hello(j, &s->hello) || j->t->link[from].fd >= 0)
        return ZT_OK;
    answer = hello_to(j, from);
    if (send(s->fd, &answer, sizeof(answer), MSG_NOSIGNAL) != (ssize_t)sizeof(answer))
        return ZT_OK;
    n = s->fd;
    s->fd = -1; /* a link now: dropping the stranger does not close it */
    return adopt_connection(j, from, (int)n, fault);
}

/* Read from those that have sent something, and drop those whose time is over. */
static zt_err read_hellos(struct join *j, const struct pollfd *p, struct zt_fault *fault)
{
    zt_err rc = ZT_OK;

    for (int i = j->num_strangers - 1; !rc && i >= 0; i--) {
        bool is_done = false;

        if (p[i].revents)
            rc = read_hello(j, &j->stranger[i], &is_done, fault);
        if (is_done || zt_now() >= j->stranger[i].until)
            drop_stranger(j, i);
    }
    return rc;
}

static zt_err did_not_come(const struct join *j, struct zt_fault *fault)
{
    const struct tcp *t = j->t;
    int first = t->world, num = 0;

    for (int r = t->world - 1; r > t->rank; r--)
        if (t->link[r].fd < 0) {
            first = r;
            num++;
        }
    return zt_fault_set(fault, ZT_E_LOST,
                        "comm: tcp: %d rank%s did not connect to rank %d in time; the "
                        "first is rank %d on %s (%s): is there a firewall?",
                        num, num > 1 ? "s" : "", t->rank, first, t->endpoint[first].host,
                        t->endpoint[first].address);
}

static int num_connected(const struct tcp *t)
{
    int num = 0;

    for (int r = 0; r < t->world; r++)
        num += t->link[r].fd >= 0;
    return num;
}

static zt_err accept_ranks(struct join *j, struct zt_fault *fault)
{
    zt_err rc = ZT_OK;

    while (!rc && num_connected(j->t) < j->t->world - 1) {
        struct pollfd p[STRANGERS + 2]; /* them, the listener, and room for another */
        int n = j->num_strangers;
        double until = j->deadline;

        for (int i = 0; i < n; i++)
            p[i] = (struct pollfd){j->stranger[i].fd, POLLIN, 0};
        if (n && j->stranger[oldest(j)].until < until)
            until = j->stranger[oldest(j)].until;
        p[n] = (struct pollfd){j->listen_fd, POLLIN, 0};
        if (zt_now() >= j->deadline)
            return did_not_come(j, fault);
        rc = wait_for(j, p, n + 1, until, fault);
        if (!rc)
            rc = read_hellos(j, p, fault);
        if (!rc && p[n].revents)
            accept_strangers(j);
    }
    return rc;
}

/* ---------------------------------------------------------------- the whole */
static zt_err exchange_endpoints(struct join *j,
                                 const struct zt_comm_bootstrap *bootstrap,
                                 struct zt_fault *fault)
{
    struct tcp_endpoint mine = {0};
    zt_err rc = zt_tcp_find_route(&j->route, bootstrap->host, fault);

    if (!rc)
        rc = make_endpoint(j, bootstrap->host, &mine, fault);
    if (!rc)
        rc = bootstrap->all_gather(bootstrap->ctx, &mine, sizeof(mine), j->t->endpoint,
                                   fault);
    for (int r = 0; !rc && r < j->t->world; r++)
        j->t->endpoint[r].host[sizeof(mine.host) - 1] = 0;
    return rc;
}

zt_err zt_tcp_connect_ranks(struct tcp *t, const struct zt_comm_config *cfg,
                            struct zt_fault *fault)
{
    struct join *j;
    zt_err rc;

    if (!cfg->bootstrap)
        return zt_fault_set(
            fault, ZT_E_UNSUPPORTED,
            "comm: ranks cannot find each other for tcp: start them with zlaunch, "
            "or set MASTER_ADDR (the host of rank 0) and MASTER_PORT (a "
            "free port there)");
    j = calloc(1, sizeof(*j));
    if (!j)
        return zt_fault_set(fault, ZT_E_NOMEM, "comm: tcp: no memory");
    j->t = t;
    j->listen_fd = -1;
    rc = exchange_endpoints(j, cfg->bootstrap, fault);
    j->deadline = zt_now() + cfg->timeout_s;
    for (int r = 0; !rc && r < t->rank; r++)
        rc = connect_to_rank(j, r, fault);
    if (!rc)
        rc = accept_ranks(j, fault);
    while (j->num_strangers)
        drop_stranger(j, 0);
    if (j->listen_fd >= 0)
        close(j->listen_fd);
    free(j);
    return rc;
}
