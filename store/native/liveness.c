#include "store/native/liveness.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define FAREWELL 'B'

struct zt_liveness {
    struct pollfd *p; /* (num + 1) the last wakes the thread to end */
    int *rank;        /* (num) */
    int num;
    void (*gone)(void *ctx, int rank);
    void *ctx;
    pthread_t thread;
    bool running;
};

/* Connection i is readable: it has ended, after a farewell or without. The thread stops
 * polling it; zt_liveness_close() closes the descriptor. */
static void on_peer_event(struct zt_liveness *v, int i)
{
    char byte;
    ssize_t n = recv(v->p[i].fd, &byte, 1, MSG_DONTWAIT);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    v->p[i].events = 0;
    v->p[i].fd = -1 - v->p[i].fd; /* poll() passes over it */
    if (n != 1 || byte != FAREWELL)
        v->gone(v->ctx, v->rank[i]);
}

static void *run(void *arg)
{
    struct zt_liveness *v = arg;

    for (;;) {
        if (poll(v->p, (nfds_t)v->num + 1, -1) < 0)
            continue;
        if (v->p[v->num].revents)
            return NULL;
        for (int i = 0; i < v->num; i++)
            if (v->p[i].fd >= 0 && v->p[i].revents)
                on_peer_event(v, i);
    }
}

static zt_err start(struct zt_liveness *v, struct zt_fault *fault)
{
    sigset_t all, before;
    int wake = eventfd(0, EFD_CLOEXEC), e;

    if (wake < 0)
        return zt_fault_set(fault, ZT_E_SYSTEM, "watching the other ranks: eventfd");
    v->p[v->num] = (struct pollfd){.fd = wake, .events = POLLIN};
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    e = pthread_create(&v->thread, NULL, run, v);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    v->running = e == 0;
    return e ? zt_fault_set(fault, ZT_E_SYSTEM, "watching the other ranks: no thread")
             : ZT_OK;
}

static void close_all(const int *fd, int num)
{
    for (int i = 0; i < num; i++)
        if (fd[i] >= 0)
            close(fd[i]);
}

zt_err zt_liveness_open(const struct zt_liveness_config *cfg, struct zt_liveness **out,
                        struct zt_fault *fault)
{
    struct zt_liveness *v = calloc(1, sizeof(*v));
    zt_err rc;

    if (v) {
        v->p = calloc((size_t)cfg->num + 1, sizeof(*v->p));
        v->rank = calloc((size_t)cfg->num + 1, sizeof(*v->rank));
    }
    if (!v || !v->p || !v->rank) {
        close_all(cfg->fd, cfg->num);
        zt_liveness_close(v);
        return zt_fault_set(fault, ZT_E_NOMEM, "watching the other ranks: no memory");
    }
    v->num = cfg->num;
    v->gone = cfg->gone;
    v->ctx = cfg->ctx;
    for (int i = 0; i < v->num; i++) {
        v->p[i] = (struct pollfd){.fd = cfg->fd[i], .events = POLLIN};
        v->rank[i] = cfg->rank[i];
    }
    v->p[v->num].fd = -1;
    rc = start(v, fault);
    if (rc) {
        zt_liveness_close(v);
        return rc;
    }
    *out = v;
    return ZT_OK;
}

/* The thread is gone: the descriptors are this one's, whatever became of them. */
static void stop_thread(struct zt_liveness *v)
{
    uint64_t one = 1;

    if (!v->running)
        return;
    while (write(v->p[v->num].fd, &one, sizeof(one)) < 0 && errno == EINTR)
        ;
    pthread_join(v->thread, NULL);
    v->running = false;
}

static int fd_of(const struct pollfd *p)
{
    return p->fd >= 0 ? p->fd : -1 - p->fd;
}

void zt_liveness_leave(struct zt_liveness *v)
{
    static const char farewell = FAREWELL;

    if (!v)
        return;
    stop_thread(v);
    for (int i = 0; i < v->num; i++)
        (void)!send(fd_of(&v->p[i]), &farewell, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

void zt_liveness_close(struct zt_liveness *v)
{
    if (!v)
        return;
    stop_thread(v);
    for (int i = 0; v->p && i < v->num; i++)
        close(fd_of(&v->p[i]));
    if (v->p && v->p[v->num].fd >= 0)
        close(v->p[v->num].fd);
    free(v->p);
    free(v->rank);
    free(v);
}
