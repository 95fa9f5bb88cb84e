/* address.c -- which addresses ranks use for each other. */
#include "worker/comm/mesh/tcp/private.h"
#include "common/log.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define RESOLVE_S 60

static bool is_loopback(const struct tcp_address *a)
{
    const struct sockaddr_in *v4 = (const void *)&a->at;
    const struct sockaddr_in6 *v6 = (const void *)&a->at;

    if (a->at.ss_family == AF_INET)
        return ntohl(v4->sin_addr.s_addr) >> 24 == 127;
    return IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
}

static void set_port(struct tcp_address *a, uint16_t port)
{
    /* the port is at the same place in both families */
    ((struct sockaddr_in *)(void *)&a->at)->sin_port = htons(port);
}

void zt_tcp_address_text(const struct tcp_address *a, char out[INET6_ADDRSTRLEN])
{
    const struct sockaddr_in *v4 = (const void *)&a->at;
    const struct sockaddr_in6 *v6 = (const void *)&a->at;

    inet_ntop(a->at.ss_family,
              a->at.ss_family == AF_INET ? (const void *)&v4->sin_addr
                                         : (const void *)&v6->sin6_addr,
              out, INET6_ADDRSTRLEN);
}

static bool parse_address(const char *text, struct tcp_address *out)
{
    struct sockaddr_in *v4 = (void *)&out->at;
    struct sockaddr_in6 *v6 = (void *)&out->at;

    *out = (struct tcp_address){.bytes = sizeof(*v4)};
    v4->sin_family = AF_INET;
    if (inet_pton(AF_INET, text, &v4->sin_addr) == 1)
        return true;
    *out = (struct tcp_address){.bytes = sizeof(*v6)};
    v6->sin6_family = AF_INET6;
    return inet_pton(AF_INET6, text, &v6->sin6_addr) == 1;
}

/* The local address that the kernel would use towards `to`. No packet is sent for that.
 */
static bool own_address(const struct tcp_address *to, struct tcp_address *own)
{
    int fd = socket(to->at.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool fine;

    if (fd < 0)
        return false;
    own->bytes = sizeof(own->at);
    fine = !connect(fd, (const void *)&to->at, to->bytes) &&
           !getsockname(fd, (void *)&own->at, &own->bytes);
    close(fd);
    return fine;
}

/* Names may take a moment to be known where hosts come and go. */
zt_err zt_tcp_find_route(struct tcp_route *w, const char *host, struct zt_fault *fault)
{
    struct addrinfo want = {.ai_socktype = SOCK_DGRAM}, *list = NULL;
    struct timespec pause = {0, 50000000};
    double until = zt_now() + RESOLVE_S;
    bool found = false;
    int e;

    while ((e = getaddrinfo(host, "9", &want, &list)) == EAI_AGAIN && zt_now() < until)
        nanosleep(&pause, NULL);
    if (e)
        return zt_fault_set(fault, e == EAI_MEMORY ? ZT_E_NOMEM : ZT_E_USAGE,
                            "comm: tcp: the host of rank 0, %s: %s: check MASTER_ADDR",
                            host, gai_strerror(e));
    for (struct addrinfo *a = list; a && !found; a = a->ai_next) {
        w->master.bytes = a->ai_addrlen;
        memcpy(&w->master.at, a->ai_addr, a->ai_addrlen);
        found = own_address(&w->master, &w->own);
        e = errno;
    }
    freeaddrinfo(list);
    if (found)
        return ZT_OK;
    if (e == EMFILE || e == ENFILE || e == ENOMEM || e == ENOBUFS)
        return zt_fault_set(fault, ZT_E_SYSTEM, "comm: tcp: a socket: %s", strerror(e));
    return zt_fault_set(fault, ZT_E_HOST,
                        "comm: tcp: no network leads to the host of rank 0, %s: %s", host,
                        strerror(e));
}

/*
 * Where to reach a rank. Some hosts know their own name as a loopback address: only those
 * on the host of rank 0 take it for theirs, and others know that host better.
 */
bool zt_tcp_address_of(const struct tcp_route *w, const struct tcp_endpoint *c,
                       struct tcp_address *out)
{
    if (!memchr(c->address, 0, sizeof(c->address)) || !parse_address(c->address, out))
        return false;
    if (is_loopback(out) && !is_loopback(&w->own))
        *out = w->master;
    set_port(out, c->port);
    return true;
}

/* ---------------------------------------------------------------- listening */
static bool says_loopback(const char *host)
{
    return !strncmp(host, "127.", 4) || !strcmp(host, "localhost") ||
           !strcmp(host, "::1");
}

int zt_tcp_listen(const struct tcp_route *w, const char *host)
{
    bool loopback = says_loopback(host);
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
    struct sockaddr_in v4 = {.sin_family = AF_INET};
    struct tcp_address any = {.bytes = sizeof(v6)};
    int no = 0, fd = -1;

    memcpy(&any.at, &v6, sizeof(v6));
    if (loopback) {
        any = w->own;
        set_port(&any, 0);
    }
    fd = socket(any.at.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0 && !loopback) {
        any.bytes = sizeof(v4);
        memcpy(&any.at, &v4, sizeof(v4));
        fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    }
    if (fd < 0)
        return -1;
    if (any.at.ss_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof(no));
    if (!bind(fd, (const void *)&any.at, any.bytes) && !listen(fd, SOMAXCONN))
        return fd;
    close(fd);
    return -1;
}
