#include "store/server_thread.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

#include "common/log.h"

#define LOOK_MS 5

struct zt_store_thread {
    uv_loop_t loop;
    uv_async_t wake;
    uv_timer_t look; /* while it lingers */
    struct zt_store_server *server;
    pthread_t thread;
    int port;

    pthread_mutex_t lock; /* what follows; the loop's thread reads it when woken */
    pthread_cond_t changed;
    bool stop;
    double stop_at;
    uint64_t wanted, reached; /* generations */
};

static void on_look(uv_timer_t *t)
{
    struct zt_store_thread *h = t->data;

    if (zt_store_server_num_members(h->server) && zt_now() < h->stop_at)
        return;
    zt_store_server_close(h->server);
    uv_close((uv_handle_t *)&h->look, NULL);
    uv_close((uv_handle_t *)&h->wake, NULL);
}

static void on_wake(uv_async_t *a)
{
    struct zt_store_thread *h = a->data;

    pthread_mutex_lock(&h->lock);
    if (h->wanted != h->reached) {
        zt_store_server_advance(h->server, h->wanted);
        h->reached = h->wanted;
        pthread_cond_broadcast(&h->changed);
    }
    if (h->stop)
        uv_timer_start(&h->look, on_look, 0, LOOK_MS);
    pthread_mutex_unlock(&h->lock);
}

static void *run(void *arg)
{
    struct zt_store_thread *h = arg;

    uv_run(&h->loop, UV_RUN_DEFAULT);
    return NULL;
}

static int start_thread(struct zt_store_thread *h)
{
    sigset_t all, before;
    int e;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    e = pthread_create(&h->thread, NULL, run, h);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return e;
}

/* The loop as it is now, run until everything on it has closed. */
static void end_loop(struct zt_store_thread *h)
{
    uv_run(&h->loop, UV_RUN_DEFAULT);
    uv_loop_close(&h->loop);
    pthread_cond_destroy(&h->changed);
    pthread_mutex_destroy(&h->lock);
    free(h);
}

zt_err zt_store_thread_open(const struct zt_store_server_config *cfg,
                            struct zt_store_thread **out, struct zt_fault *fault)
{
    struct zt_store_thread *h = calloc(1, sizeof(*h));
    zt_err rc;

    if (!h || uv_loop_init(&h->loop)) {
        free(h);
        return zt_fault_set(fault, ZT_E_NOMEM, "store: no memory for its loop");
    }
    pthread_mutex_init(&h->lock, NULL);
    pthread_cond_init(&h->changed, NULL);
    h->wanted = h->reached = cfg->generation;
    rc = zt_store_server_open(&h->loop, cfg, &h->server, fault);
    if (rc) {
        end_loop(h);
        return rc;
    }
    h->port = zt_store_server_port(h->server);
    uv_async_init(&h->loop, &h->wake, on_wake);
    uv_timer_init(&h->loop, &h->look);
    h->wake.data = h->look.data = h;
    if (start_thread(h)) {
        zt_store_server_close(h->server);
        uv_close((uv_handle_t *)&h->wake, NULL);
        uv_close((uv_handle_t *)&h->look, NULL);
        end_loop(h);
        return zt_fault_set(fault, ZT_E_SYSTEM, "store: cannot start its thread");
    }
    *out = h;
    return ZT_OK;
}

int zt_store_thread_port(const struct zt_store_thread *h)
{
    return h->port;
}

void zt_store_thread_advance(struct zt_store_thread *h, uint64_t generation)
{
    pthread_mutex_lock(&h->lock);
    h->wanted = generation;
    uv_async_send(&h->wake);
    while (h->reached != generation)
        pthread_cond_wait(&h->changed, &h->lock);
    pthread_mutex_unlock(&h->lock);
}

void zt_store_thread_close(struct zt_store_thread *h, double linger_s)
{
    if (!h)
        return;
    pthread_mutex_lock(&h->lock);
    h->stop = true;
    h->stop_at = zt_now() + linger_s;
    pthread_mutex_unlock(&h->lock);
    uv_async_send(&h->wake);
    pthread_join(h->thread, NULL);
    end_loop(h);
}
