#include "launcher/ssh/session.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MAX_TRIES      5
#define RETRY_MS       150
#define DEAD_PEER_MS   15000 /* unanswered data for so long: the connection is dead */
#define MAX_FREE_CALLS 1000
#define EXTENSION_MS   50
/* A SYN that is lost is sent again after a second: so often a new socket sends one sooner. */
#define EARLY_TRIES 4
#define EARLY_S     0.3

enum { RESOLVE, CONNECT, HANDSHAKE, HOST_KEY, AUTHENTICATE, READY };

static const char *const phase_names[] = {"resolving the name", "connecting",
                                          "the ssh handshake", "checking the host key",
                                          "authentication"};

struct resolving { /* outlives the link when it is closed meanwhile */
    uv_getaddrinfo_t req;
    struct zt_ssh_session *link; /* NULL: nobody waits any more */
};

static void wake(struct zt_ssh_session *l);
static void unpoll(struct zt_ssh_session *l);

/* ------------------------------------------------------------------ failing */

zt_ssh_session_step zt_ssh_session_fail(struct zt_ssh_session *l, bool program,
                                        zt_err code, const char *fmt, ...)
{
    char text[ZT_FAULT_TEXT];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    if (l->failed || l->closing)
        return ZT_STEP_FAILED;
    zt_fault_set(&l->fault, code, "%s%s%s", l->cfg->label ? l->cfg->label : "",
                 l->cfg->label ? ": " : "", text);
    l->failed = true;
    l->program = program;
    unpoll(l);
    uv_timer_stop(&l->deadline);
    zt_ssh_session_wake(l);
    return ZT_STEP_FAILED;
}

const char *zt_ssh_session_error(const struct zt_ssh_session *l)
{
    char *text = NULL;

    libssh2_session_last_error(l->session, &text, NULL, 0);
    return text && *text ? text : "unknown error";
}

/* ------------------------------------------------------------------ time limits */

static bool try_early(struct zt_ssh_session *l);
static bool next_address(struct zt_ssh_session *l);

static void on_deadline(uv_timer_t *timer)
{
    struct zt_ssh_session *l = timer->data;

    /* a busy loop comes to its timers first: what has arrived meanwhile counts */
    if (!l->deadline_extended) {
        l->deadline_extended = true;
        uv_timer_start(timer, on_deadline, EXTENSION_MS, 0);
        return;
    }
    if (l->phase == CONNECT && (try_early(l) || next_address(l)))
        return;
    if (l->phase == CONNECT)
        zt_ssh_session_fail(
            l, false, ZT_E_HOST,
            "no answer from %s port %d in %.3g s (connecting): is the machine "
            "up, and does a firewall let port %d through?",
            l->cfg->host, l->cfg->port, l->phase_s, l->cfg->port);
    else
        zt_ssh_session_fail(
            l, false, ZT_E_HOST, "no answer in %.3g s (%s)%s", l->phase_s, l->phase_name,
            l->phase == AUTHENTICATE
                ? ": the server looks up users or names slowly, or the agent "
                  "waits for somebody"
            : l->phase == HANDSHAKE ? ": is that port an ssh server's?"
                                    : "");
}

void zt_ssh_session_phase(struct zt_ssh_session *l, const char *name, double seconds)
{
    l->phase_name = name;
    l->phase_s = seconds;
    l->deadline_extended = false;
    if (name)
        uv_timer_start(&l->deadline, on_deadline, (uint64_t)(seconds * 1e3), 0);
    else
        uv_timer_stop(&l->deadline);
}

static void enter(struct zt_ssh_session *l, int phase)
{
    l->phase = phase;
    if (phase < READY)
        zt_ssh_session_phase(l, phase_names[phase], l->cfg->timeout_s);
    else
        zt_ssh_session_phase(l, NULL, 0);
}

/* ------------------------------------------------------------------ the socket */

static void on_poll_closed(uv_handle_t *handle)
{
    free(handle);
}

static void unpoll(struct zt_ssh_session *l)
{
    if (!l->poll)
        return;
    uv_poll_stop(l->poll);
    uv_close((uv_handle_t *)l->poll, on_poll_closed);
    l->poll = NULL;
    l->events = 0;
}

static void drop_socket(struct zt_ssh_session *l)
{
    unpoll(l);
    if (l->session) {
        /* nothing more can be sent: freeing does not wait */
        if (l->fd >= 0)
            shutdown(l->fd, SHUT_RDWR);
        for (int i = 0; i < MAX_FREE_CALLS; i++)
            if (libssh2_session_free(l->session) != LIBSSH2_ERROR_EAGAIN)
                break;
        l->session = NULL;
    }
    if (l->fd >= 0)
        close(l->fd);
    l->fd = -1;
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
    (void)status; /* an error shows in the call that is made now */
    (void)events;
    wake(poll->data);
}

static void arm(struct zt_ssh_session *l, int events)
{
    if (events == l->events)
        return; /* as it is: starting again costs two system calls */
    l->events = events;
    if (!events) {
        uv_poll_stop(l->poll);
        return;
    }
    if (!l->poll) {
        l->poll = calloc(1, sizeof(*l->poll));
        if (!l->poll || uv_poll_init(l->loop, l->poll, l->fd) < 0) {
            free(l->poll);
            l->poll = NULL;
            l->events = 0;
            zt_ssh_session_fail(l, false, ZT_E_HOST, "the connection cannot be watched");
            return;
        }
        l->poll->data = l;
    }
    uv_poll_start(l->poll, events, on_poll);
}

static int session_events(const struct zt_ssh_session *l)
{
    int dirs = libssh2_session_block_directions(l->session);

    return (dirs & LIBSSH2_SESSION_BLOCK_INBOUND ? UV_READABLE : 0) |
           (dirs & LIBSSH2_SESSION_BLOCK_OUTBOUND ? UV_WRITABLE : 0);
}

bool zt_ssh_session_sending(const struct zt_ssh_session *l)
{
    return libssh2_session_block_directions(l->session) & LIBSSH2_SESSION_BLOCK_OUTBOUND;
}

static void tune(int fd)
{
    int one = 1, dead_ms = DEAD_PEER_MS;

    /* wishes: the connection works without them */
    (void)!setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    (void)!setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
    (void)!setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &dead_ms, sizeof(dead_ms));
}

/* ------------------------------------------------------------------ resolve, connect */

static void on_resolved(uv_getaddrinfo_t *req, int status, struct addrinfo *found)
{
    struct resolving *r = (struct resolving *)req;
    struct zt_ssh_session *l = r->link;

    free(r);
    if (!l) {
        uv_freeaddrinfo(found);
        return;
    }
    l->resolving = NULL;
    if (status < 0) {
        /* with a label it is the jump host */
        zt_ssh_session_fail(l, false, ZT_E_HOST,
                            "the name %s does not resolve (%s): correct it in %s, or "
                            "add HostName to ~/.ssh/config or a line to /etc/hosts",
                            l->cfg->host, uv_strerror(status),
                            l->cfg->label ? "--ssh_jump, or ProxyJump of ~/.ssh/config"
                                          : "the hostfile");
        return;
    }
    l->addrs = found;
    wake(l);
}

static zt_ssh_session_step resolve(struct zt_ssh_session *l)
{
    struct addrinfo hints = {
        .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST};
    char port[16];

    if (l->cfg->fd >= 0) {
        l->fd = l->cfg->fd;
        return ZT_STEP_NEXT;
    }
    if (l->addrs) {
        l->addr = l->addrs;
        return ZT_STEP_NEXT;
    }
    if (l->resolving)
        return ZT_STEP_WAIT;
    snprintf(port, sizeof(port), "%d", l->cfg->port);
    if (getaddrinfo(l->cfg->host, port, &hints, &l->addrs) == 0) {
        l->addr = l->addrs; /* a number: nobody has to be asked */
        return ZT_STEP_NEXT;
    }
    l->addrs = NULL;
    hints.ai_flags = 0;
    l->resolving = calloc(1, sizeof(*l->resolving));
    if (!l->resolving)
        return zt_ssh_session_fail(l, false, ZT_E_NOMEM, "no memory");
    l->resolving->link = l;
    if (uv_getaddrinfo(l->loop, &l->resolving->req, on_resolved, l->cfg->host, port,
                       &hints) < 0) {
        free(l->resolving);
        l->resolving = NULL;
        return zt_ssh_session_fail(l, false, ZT_E_HOST, "the name %s cannot be looked up",
                                   l->cfg->host);
    }
    return ZT_STEP_WAIT;
}

/* The seconds of an address: the time limit divided among those that are left. */
static double share_of_address(const struct zt_ssh_session *l)
{
    int left = 0;

    for (const struct addrinfo *a = l->addr; a; a = a->ai_next)
        left++;
    return l->cfg->timeout_s / (left ? left : 1);
}

/* Half of its time belongs to the last socket. */
static int num_early_tries(double share)
{
    double fit = share / (2 * EARLY_S);

    return fit < EARLY_TRIES ? (int)fit : EARLY_TRIES;
}

static void limit_address(struct zt_ssh_session *l)
{
    double share = share_of_address(l);
    int tries = num_early_tries(share);

    zt_ssh_session_phase(l, phase_names[CONNECT],
                         l->early < tries ? EARLY_S : share - tries * EARLY_S);
    l->phase_s = share; /* for people */
}

/* The address once more, with a socket of its own. */
static bool try_early(struct zt_ssh_session *l)
{
    if (l->early >= num_early_tries(share_of_address(l)))
        return false;
    l->early++;
    drop_socket(l);
    zt_ssh_session_wake(l);
    return true;
}

static bool next_address(struct zt_ssh_session *l)
{
    if (!l->addr || !l->addr->ai_next)
        return false;
    drop_socket(l);
    l->addr = l->addr->ai_next;
    l->early = 0;
    limit_address(l);
    zt_ssh_session_wake(l);
    return true;
}

static zt_ssh_session_step not_connected(struct zt_ssh_session *l, int e)
{
    if (next_address(l))
        return ZT_STEP_WAIT;
    return zt_ssh_session_fail(
        l, false, ZT_E_HOST, "cannot connect to %s port %d: %s%s", l->cfg->host,
        l->cfg->port, strerror(e),
        e == ECONNREFUSED && l->cfg->label
            ? ": no sshd listens there; start it, or give --ssh_jump HOST:PORT"
        : e == ECONNREFUSED
            ? ": no sshd listens there; start it, or say its port: HOST:PORT in the "
              "hostfile, or --ssh_port"
        : e == EHOSTUNREACH || e == ENETUNREACH || e == ETIMEDOUT
            ? ": is the machine up and on this network?"
            : "");
}

static zt_ssh_session_step connect_step(struct zt_ssh_session *l)
{
    socklen_t n = sizeof(int);
    int e = 0;

    if (l->cfg->fd >= 0)
        return ZT_STEP_NEXT;
    if (l->fd < 0) {
        limit_address(l);
        l->fd = socket(l->addr->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        if (l->fd < 0)
            return not_connected(l, errno);
        tune(l->fd);
        if (connect(l->fd, l->addr->ai_addr, l->addr->ai_addrlen) == 0)
            return ZT_STEP_NEXT;
        if (errno != EINPROGRESS)
            return not_connected(l, errno);
        arm(l, UV_WRITABLE);
        return ZT_STEP_WAIT;
    }
    if (getsockopt(l->fd, SOL_SOCKET, SO_ERROR, &e, &n) < 0)
        e = errno;
    if (e)
        return not_connected(l, e);
    n = sizeof(struct sockaddr_storage);
    if (getpeername(l->fd, (struct sockaddr *)&(struct sockaddr_storage){0}, &n) < 0) {
        arm(l, UV_WRITABLE); /* woken by something else */
        return ZT_STEP_WAIT;
    }
    return ZT_STEP_NEXT;
}

/* ------------------------------------------------------------------ handshake */

static bool hung_up(int rc)
{
    return rc == LIBSSH2_ERROR_SOCKET_DISCONNECT || rc == LIBSSH2_ERROR_SOCKET_RECV ||
           rc == LIBSSH2_ERROR_SOCKET_SEND || rc == LIBSSH2_ERROR_BANNER_RECV;
}

static void on_soon(uv_timer_t *timer)
{
    struct zt_ssh_session *l = timer->data;

    l->parked = false;
    wake(l);
}

/* sshd drops unauthenticated connections if there are many (MaxStartups): retry. */
static zt_ssh_session_step again_later(struct zt_ssh_session *l, int rc)
{
    if (l->cfg->fd < 0 && ++l->tries < MAX_TRIES) {
        drop_socket(l);
        l->phase = CONNECT;
        l->parked = true;
        uv_timer_start(&l->soon, on_soon,
                       (uint64_t)(RETRY_MS * l->tries) + uv_hrtime() % RETRY_MS, 0);
        return ZT_STEP_WAIT;
    }
    return zt_ssh_session_fail(
        l, false, ZT_E_HOST,
        "the server closed the connection during the ssh handshake (%s): "
        "is port %d an ssh server's, and does it let this machine in "
        "(MaxStartups, hosts.deny)?",
        rc == LIBSSH2_ERROR_BANNER_RECV ? "no banner came" : zt_ssh_session_error(l),
        l->cfg->port);
}

static zt_ssh_session_step handshake(struct zt_ssh_session *l)
{
    int rc;

    if (!l->session) {
        l->session = libssh2_session_init();
        if (!l->session)
            return zt_ssh_session_fail(l, false, ZT_E_NOMEM,
                                       "no memory for an ssh session");
        libssh2_session_set_blocking(l->session, 0);
        if (zt_ssh_session_prefer_known(l) == ZT_STEP_FAILED)
            return ZT_STEP_FAILED;
    }
    rc = libssh2_session_handshake(l->session, l->fd);
    if (rc == LIBSSH2_ERROR_EAGAIN) {
        arm(l, session_events(l));
        return ZT_STEP_WAIT;
    }
    if (rc == LIBSSH2_ERROR_KEX_FAILURE || rc == LIBSSH2_ERROR_METHOD_NONE)
        return zt_ssh_session_fail(
            l, true, ZT_E_HOST,
            "the server offers no key exchange or host key that the ssh "
            "library knows (an RSA host key, for one)");
    if (hung_up(rc))
        return again_later(l, rc);
    if (rc)
        return zt_ssh_session_fail(l, false, ZT_E_HOST, "ssh handshake: %s",
                                   zt_ssh_session_error(l));
    return ZT_STEP_NEXT;
}

/* ------------------------------------------------------------------ the engine */

static zt_ssh_session_step authenticate(struct zt_ssh_session *l)
{
    zt_ssh_session_step step = zt_auth_step(l);

    if (step == ZT_STEP_WAIT && !l->failed)
        arm(l, l->parked ? 0 : session_events(l));
    return step;
}

static zt_ssh_session_step (*const steps[])(struct zt_ssh_session *l) = {
    resolve, connect_step, handshake, zt_ssh_session_check_host, authenticate,
};

static void work(struct zt_ssh_session *l)
{
    int events;

    l->ev->on_work(l->ctx);
    if (l->closing || l->failed)
        return;
    events = l->want_read ? UV_READABLE : 0;
    if (l->want_read || l->want_write)
        events |= session_events(l);
    arm(l, events);
}

static void wake(struct zt_ssh_session *l)
{
    zt_ssh_session_step step = ZT_STEP_NEXT;

    if (l->closing)
        return;
    if (l->waking) {
        zt_ssh_session_wake(l);
        return;
    }
    if (l->failed) {
        l->ev->on_fail(l->ctx, &l->fault, l->program);
        return;
    }
    l->waking = true;
    while (step == ZT_STEP_NEXT && l->phase < READY && !l->closing) {
        step = steps[l->phase](l);
        if (step == ZT_STEP_NEXT) {
            enter(l, l->phase + 1);
            if (l->phase == READY) {
                l->want_read = true;
                l->ev->on_ready(l->ctx);
            }
        }
    }
    if (step == ZT_STEP_NEXT && l->phase == READY && !l->closing && !l->failed)
        work(l);
    l->waking = false;
}

void zt_ssh_session_wake(struct zt_ssh_session *l)
{
    if (!l->closing && !(l->parked && l->phase == CONNECT))
        uv_timer_start(&l->soon, on_soon, 0, 0);
}

static void on_timer_closed(uv_handle_t *handle)
{
    struct zt_ssh_session *l = handle->data;
    const struct zt_ssh_session_events *ev = l->ev;
    void *ctx = l->ctx;

    if (--l->num_handles)
        return;
    if (l->addrs)
        uv_freeaddrinfo(l->addrs);
    free(l);
    libssh2_exit();
    ev->on_closed(ctx);
}

struct zt_ssh_session *zt_ssh_session_open(uv_loop_t *loop,
                                           const struct zt_ssh_session_config *cfg,
                                           const struct zt_ssh_session_events *ev,
                                           void *ctx)
{
    struct zt_ssh_session *l = calloc(1, sizeof(*l));

    if (!l || libssh2_init(0)) {
        free(l);
        return NULL;
    }
    l->cfg = cfg;
    l->ev = ev;
    l->ctx = ctx;
    l->loop = loop;
    l->fd = -1;
    uv_timer_init(loop, &l->deadline);
    uv_timer_init(loop, &l->soon);
    l->deadline.data = l->soon.data = l;
    l->num_handles = 2;
    enter(l, RESOLVE);
    zt_ssh_session_wake(l);
    return l;
}

void zt_ssh_session_close(struct zt_ssh_session *l)
{
    if (!l || l->closing)
        return;
    l->closing = true;
    if (l->fd < 0 && l->cfg->fd >= 0)
        l->fd = l->cfg->fd; /* it was the link's from the beginning */
    if (l->resolving)
        l->resolving->link = NULL;
    zt_auth_release(l);
    if (l->session && l->phase == READY)
        (void)!libssh2_session_disconnect(l->session, "done");
    drop_socket(l);
    uv_close((uv_handle_t *)&l->deadline, on_timer_closed);
    uv_close((uv_handle_t *)&l->soon, on_timer_closed);
}
