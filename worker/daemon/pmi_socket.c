/* pmi_socket.c -- a rank's socket to the PMI server, on the daemon's loop. */
#include "worker/daemon/node.h"

#include "common/log.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PAIRS_BYTES (256u << 10) /* of one frame */

/* The rank has closed its end, or is dead: no failure of this socket. */
static bool has_hung_up(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};

    return poll(&p, 1, 0) > 0 && (p.revents & (POLLHUP | POLLERR));
}

static bool send_line(void *arg, int rank, const char *line, size_t n)
{
    struct zt_daemon_node *node = arg;
    struct zt_pmi_socket *l = &node->ranks[rank - node->job->first_rank].pmi;
    ssize_t k;

    if (l->fd < 0)
        return false;
    do /* a client has one question open, so an answer always fits */
        k = send(l->fd, line, n, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (k < 0 && errno == EINTR);
    if (k < 0) {
        int e = errno;

        l->error = has_hung_up(l->fd) ? 0 : e;
    }
    return k == (ssize_t)n;
}

/* zt_pmi_fence_fn: the pairs in frames of whole lines, then the frame that ends them. */
static void send_fence(void *arg, const char *pairs, size_t n)
{
    struct zt_daemon_node *node = arg;

    while (n) {
        size_t len = n < PAIRS_BYTES ? n : PAIRS_BYTES;

        while (len < n && pairs[len - 1] != '\n')
            len--; /* a line is far shorter */
        zt_node_send(node, ZT_FRAME_PMI_PAIRS, pairs, len, NULL, 0);
        pairs += len;
        n -= len;
    }
    zt_node_send(node, ZT_FRAME_PMI_FENCE, NULL, 0, NULL, 0);
}

zt_err zt_pmi_open_server(struct zt_daemon_node *n, struct zt_fault *fault)
{
    const struct zt_job *job = n->job;
    struct zt_pmi_config cfg = {
        .first = job->first_rank,
        .local = job->local_world,
        .world = job->world,
        .name = job->id,
        .mapping = job->pmi_mapping,
        .send = send_line,
        .fence = send_fence,
        .arg = n,
    };

    /* of several nodes without a word of which ranks share one: nobody is between them */
    if (job->local_world < job->world && !job->pmi_mapping)
        return ZT_OK;
    return zt_pmi_open(&cfg, &n->pmi, fault);
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
    struct zt_pmi_socket *l = poll->data;

    (void)status; /* an error shows in the read */
    (void)events;
    zt_pmi_socket_drain(l->rank);
}

zt_err zt_pmi_socket_open(struct zt_local_rank *r, int *rank_fd, struct zt_fault *fault)
{
    struct zt_pmi_socket *l = &r->pmi;
    int fds[2], e;

    l->rank = r;
    l->fd = *rank_fd = -1;
    if (!r->node->pmi)
        return ZT_OK;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0)
        return zt_fault_set(fault, ZT_E_SYSTEM, "PMI socket of rank %d: %s", r->rank,
                            strerror(errno));
    e = uv_poll_init(&r->node->loop, &l->poll, fds[0]); /* makes it non-blocking */
    if (e) {
        close(fds[0]);
        close(fds[1]);
        return zt_fault_set(fault, ZT_E_SYSTEM, "PMI socket of rank %d: %s", r->rank,
                            uv_strerror(e));
    }
    l->fd = fds[0];
    l->poll.data = l;
    uv_poll_start(&l->poll, UV_READABLE, on_readable);
    *rank_fd = fds[1];
    return ZT_OK;
}

/* The rank would wait for an answer, or die of a socket that is closed, without a word of why. */
static void give_up(struct zt_local_rank *r, const char *what, int error)
{
    struct zt_daemon_node *n = r->node;
    struct zt_fault fault = {0};

    if (n->state != ZT_NODE_RUNNING || !r->alive)
        return;
    n->exit_code = zt_err_exit_code(zt_fault_set(
        &fault, error == ENOMEM ? ZT_E_NOMEM : ZT_E_SYSTEM,
        "what rank %d asks for by PMI, for its MPI to start or to end, cannot "
        "be %s: %s; the ranks are stopped",
        r->rank, what, strerror(error)));
    zt_node_send_fault(n, &fault);
    zt_node_stop(n, SIGTERM, n->job->grace_ms);
}

void zt_pmi_socket_drain(struct zt_local_rank *r)
{
    struct zt_pmi_socket *l = &r->pmi;
    char block[ZT_PMI_LINE];
    ssize_t k;

    while (l->fd >= 0) {
        zt_pmi_state state;

        k = read(l->fd, block, sizeof(block));
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0 && errno == EAGAIN)
            return;
        if (k < 0) {
            int e = errno;

            if (!has_hung_up(l->fd)) {
                give_up(r, "read", e);
                return;
            }
        }
        l->error = 0;
        state =
            k > 0 ? zt_pmi_feed(r->node->pmi, r->rank, block, (size_t)k) : ZT_PMI_FINE;
        if (state == ZT_PMI_FAILED || l->error) {
            give_up(r, l->error ? "answered" : "kept", l->error ? l->error : ENOMEM);
            return;
        }
        if (state == ZT_PMI_BAD)
            zt_warn("daemon", "rank %d speaks no PMI-1; its socket is closed", r->rank);
        if (state == ZT_PMI_ABORT && r->alive) /* the others follow when it is reaped */
            kill(-r->pid, SIGKILL);
        if (k <= 0 || state == ZT_PMI_BAD)
            zt_pmi_socket_close(r);
    }
}

void zt_pmi_socket_close(struct zt_local_rank *r)
{
    struct zt_pmi_socket *l = &r->pmi;

    if (l->fd < 0)
        return;
    uv_poll_stop(&l->poll);
    uv_close((uv_handle_t *)&l->poll, NULL);
    close(l->fd);
    l->fd = -1;
}
