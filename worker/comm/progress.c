#include "worker/comm/progress.h"

#include "common/trace/trace.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define RING 64u /* calls that may be queued; a power of two */

struct queued_call {
    struct zt_comm *c;
    struct zt_comm_call call;
};

struct zt_progress {
    zt_progress_fn run;
    pthread_t thread;
    pthread_mutex_t lock; /* the ring, `pushed` and `stop`; not held while a call runs */
    pthread_cond_t work, progress;
    struct queued_call ring[RING];
    uint64_t pushed;
    _Atomic uint64_t done; /* written under the lock, read without */
    bool stop;
};

static void *serve(void *arg)
{
    struct zt_progress *p = arg;
    const struct queued_call *e;
    uint64_t next = 1;

    zt_trace_thread("comm");
    pthread_mutex_lock(&p->lock);
    for (;; next++) {
        while (p->pushed < next && !p->stop)
            pthread_cond_wait(&p->work, &p->lock);
        if (p->pushed < next)
            break;
        pthread_mutex_unlock(&p->lock);
        e = &p->ring[next % RING]; /* nobody reuses the place yet */
        p->run(e->c, &e->call, next);
        pthread_mutex_lock(&p->lock);
        atomic_store_explicit(&p->done, next, memory_order_release);
        pthread_cond_signal(&p->progress);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

zt_err zt_progress_open(zt_progress_fn run, struct zt_progress **out,
                        struct zt_fault *fault)
{
    struct zt_progress *p = calloc(1, sizeof(*p));
    sigset_t all, was;
    int e;

    if (!p)
        return zt_fault_set(fault, ZT_E_NOMEM, "comm: out of memory");
    p->run = run;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->work, NULL);
    pthread_cond_init(&p->progress, NULL);
    sigfillset(&all); /* signals are the application's business */
    pthread_sigmask(SIG_SETMASK, &all, &was);
    e = pthread_create(&p->thread, NULL, serve, p);
    pthread_sigmask(SIG_SETMASK, &was, NULL);
    if (e) {
        free(p);
        return zt_fault_set(fault, ZT_E_SYSTEM, "comm: no progress thread: %s",
                            strerror(e));
    }
    *out = p;
    return ZT_OK;
}

void zt_progress_close(struct zt_progress *p)
{
    if (!p)
        return;
    pthread_mutex_lock(&p->lock);
    p->stop = true;
    pthread_cond_signal(&p->work);
    pthread_mutex_unlock(&p->lock);
    pthread_join(p->thread, NULL);
    pthread_cond_destroy(&p->progress);
    pthread_cond_destroy(&p->work);
    pthread_mutex_destroy(&p->lock);
    free(p);
}

uint64_t zt_progress_push(struct zt_progress *p, struct zt_comm *c,
                          const struct zt_comm_call *call)
{
    uint64_t number;

    pthread_mutex_lock(&p->lock);
    while (p->pushed - atomic_load(&p->done) == RING)
        pthread_cond_wait(&p->progress, &p->lock);
    number = ++p->pushed;
    p->ring[number % RING] = (struct queued_call){c, *call};
    pthread_cond_signal(&p->work);
    pthread_mutex_unlock(&p->lock);
    return number;
}

void zt_progress_wait(struct zt_progress *p, uint64_t number)
{
    if (atomic_load_explicit(&p->done, memory_order_acquire) >= number)
        return;
    pthread_mutex_lock(&p->lock);
    while (atomic_load(&p->done) < number)
        pthread_cond_wait(&p->progress, &p->lock);
    pthread_mutex_unlock(&p->lock);
}

void zt_progress_drain(struct zt_progress *p)
{
    zt_progress_wait(p, p->pushed); /* only the caller writes `pushed` */
}
