/* A TCPStore of ours in a thread, for tests. */
#ifndef TEST_UNIT_STORE_TCP_HOST_H
#define TEST_UNIT_STORE_TCP_HOST_H

#include <pthread.h>

#include "store/tcpstore/server.h"

struct tcp_host {
    uv_loop_t loop;
    uv_async_t stop;
    struct zt_tcp_server *server;
    pthread_t thread;
    int port;
};

static inline void tcp_host_on_stop(uv_async_t *a)
{
    struct tcp_host *h = a->data;

    zt_tcp_server_close(h->server);
    uv_close((uv_handle_t *)a, NULL);
}

static inline void *tcp_host_run(void *arg)
{
    uv_run(&((struct tcp_host *)arg)->loop, UV_RUN_DEFAULT);
    return NULL;
}

static inline int tcp_host_open(struct tcp_host *h)
{
    struct zt_tcp_server_config cfg = {.address = "127.0.0.1"};
    struct zt_fault fault;

    if (uv_loop_init(&h->loop) || zt_tcp_server_open(&h->loop, &cfg, &h->server, &fault))
        return 1;
    h->port = zt_tcp_server_port(h->server);
    uv_async_init(&h->loop, &h->stop, tcp_host_on_stop);
    h->stop.data = h;
    return pthread_create(&h->thread, NULL, tcp_host_run, h);
}

static inline void tcp_host_close(struct tcp_host *h)
{
    uv_async_send(&h->stop);
    pthread_join(h->thread, NULL);
    uv_loop_close(&h->loop);
}

#endif
