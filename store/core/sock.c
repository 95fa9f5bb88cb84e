#include "store/core/sock.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "common/log.h"

#define FIRST_PAUSE_S 0.005
#define LAST_PAUSE_S  1.0
#define ATTEMPT_S     10.0 /* for one address that does not answer at all */
#define NOTICE_S      10.0 /* after that much waiting, a line for the user */

int zt_sock_wait_ms(double deadline)
{
    double left = deadline - zt_now();

    return left <= 0 ? 0 : left > 1e6 ? 1000000000 : (int)(left * 1e3) + 1;
}

void zt_sock_pause(double seconds, double deadline)
{
    double left = deadline - zt_now();
    struct timespec ts;

    seconds = seconds < left ? seconds : left;
    if (seconds <= 0)
        return;
    ts = (struct timespec){(time_t)seconds,
                           (long)((seconds - (double)(time_t)seconds) * 1e9)};
    nanosleep(&ts, NULL);
}

/* 1: ready; 0: the deadline passed. */
static int wait_for(int fd, short events, double deadline)
{
    struct pollfd p = {.fd = fd, .events = events};

    for (;;) {
        int n = poll(&p, 1, zt_sock_wait_ms(deadline));

        if (n > 0)
            return 1;
        if (n == 0 && zt_now() >= deadline)
            return 0;
    }
}

/* ---------------------------------------------------------------- connecting */

/* A connected descriptor, or -1 with the reason in errno. */
static int connect_one(const struct addrinfo *ai, double deadline)
{
    int fd = socket(ai->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int one = 1, e = 0;
    socklen_t len = sizeof(e);

    if (fd < 0)
        return -1;
    if (connect(fd, ai->ai_addr, ai->ai_addrlen) < 0) {
        e = errno;
        if (e == EINPROGRESS) {
            if (!wait_for(fd, POLLOUT, deadline))
                e = ETIMEDOUT;
            else if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &e, &len) < 0)
                e = errno;
        }
    }
    if (e) {
        close(fd);
        errno = e;
        return -1;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
    return fd;
}

static int connect_any(const struct addrinfo *list, double deadline)
{
    int fd = -1;

    for (const struct addrinfo *ai = list; ai && fd < 0; ai = ai->ai_next) {
        double until = zt_now() + ATTEMPT_S;

        fd = connect_one(ai, until < deadline ? until : deadline);
    }
    return fd;
}

static bool may_come_yet(int e)
{
    return e == ECONNREFUSED || e == ECONNRESET || e == ETIMEDOUT || e == EHOSTUNREACH ||
           e == ENETUNREACH || e == EAGAIN || e == EADDRNOTAVAIL || e == EINTR;
}

/* What stopped the last attempt. */
struct attempt {
    int resolver; /* of getaddrinfo */
    int e;        /* errno */
};

static int try_once(const char *host, const char *port, double deadline,
                    struct attempt *why)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_family = AF_UNSPEC}, *list;
    int fd;

    *why = (struct attempt){0};
    why->resolver = getaddrinfo(host, port, &hints, &list);
    if (why->resolver)
        return -1;
    fd = connect_any(list, deadline);
    why->e = fd < 0 ? errno : 0;
    freeaddrinfo(list);
    return fd;
}

static zt_err give_up(const char *host, int port, const struct attempt *why,
                      double waited, struct zt_fault *fault)
{
    if (why->resolver)
        return zt_fault_set(fault, why->resolver == EAI_MEMORY ? ZT_E_NOMEM : ZT_E_HOST,
                            "host '%s' does not resolve (%s, tried for %.0f s): check "
                            "MASTER_ADDR or the name service",
                            host, gai_strerror(why->resolver), waited);
    if (why->e == EMFILE || why->e == ENFILE || why->e == ENOMEM || why->e == ENOBUFS)
        return zt_fault_set(fault, ZT_E_SYSTEM, "a socket to %s port %d: %s", host, port,
                            strerror(why->e));
    return zt_fault_set(fault, ZT_E_LOST,
                        "nobody answers at %s port %d (%s, tried for %.0f s): is rank 0 "
                        "or its launcher running, and is the port open?",
                        host, port, strerror(why->e), waited);
}

static bool is_over(const struct attempt *why, double start, double resolve_s,
                    double deadline)
{
    double now = zt_now();

    if (why->resolver)
        return (why->resolver != EAI_AGAIN && why->resolver != EAI_NONAME &&
                why->resolver != EAI_NODATA) ||
               now - start >= resolve_s || now >= deadline;
    return !may_come_yet(why->e) || now >= deadline;
}

zt_err zt_sock_connect(const char *host, int port, double deadline, double resolve_s,
                       int *out, struct zt_fault *fault)
{
    double start = zt_now(), pause = FIRST_PAUSE_S;
    struct attempt why;
    bool told = false;
    char service[16];

    snprintf(service, sizeof(service), "%d", port);
    for (;;) {
        int fd = try_once(host, service, deadline, &why);

        if (fd >= 0) {
            *out = fd;
            return ZT_OK;
        }
        if (is_over(&why, start, resolve_s, deadline))
            return give_up(host, port, &why, zt_now() - start, fault);
        if (!told && zt_now() - start > NOTICE_S) {
            told = true;
            zt_info("store", "still trying %s port %d: %s", host, port,
                    why.resolver ? gai_strerror(why.resolver) : strerror(why.e));
        }
        /* not in step with the other ranks: half of it by chance */
        zt_sock_pause(pause * (0.5 + 0.5 * (double)(random() % 1024) / 1024), deadline);
        pause = pause * 1.6 < LAST_PAUSE_S ? pause * 1.6 : LAST_PAUSE_S;
    }
}

/* ---------------------------------------------------------------- bytes */

static zt_err too_late(const char *where, struct zt_fault *fault)
{
    return zt_fault_set(fault, ZT_E_LOST, "%s: no answer in time", where);
}

static zt_err broken(const char *where, const char *how, struct zt_fault *fault)
{
    return zt_fault_set(fault, ZT_E_LOST, "%s: connection lost (%s)", where, how);
}

zt_err zt_sock_write(int fd, const void *data, size_t bytes, double deadline,
                     const char *where, struct zt_fault *fault)
{
    const char *p = data;

    while (bytes) {
        ssize_t n = send(fd, p, bytes, MSG_NOSIGNAL);

        if (n >= 0) {
            p += n;
            bytes -= (size_t)n;
        } else if (errno == EAGAIN) {
            if (!wait_for(fd, POLLOUT, deadline))
                return too_late(where, fault);
        } else if (errno != EINTR) {
            return broken(where, strerror(errno), fault);
        }
    }
    return ZT_OK;
}

zt_err zt_sock_read(int fd, void *data, size_t bytes, double deadline, const char *where,
                    struct zt_fault *fault)
{
    char *p = data;

    while (bytes) {
        ssize_t n = recv(fd, p, bytes, 0);

        if (n > 0) {
            p += n;
            bytes -= (size_t)n;
        } else if (n == 0) {
            return broken(where, "closed by the other side", fault);
        } else if (errno == EAGAIN) {
            if (!wait_for(fd, POLLIN, deadline))
                return too_late(where, fault);
        } else if (errno != EINTR) {
            return broken(where, strerror(errno), fault);
        }
    }
    return ZT_OK;
}
