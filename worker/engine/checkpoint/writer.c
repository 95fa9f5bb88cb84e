#include "worker/engine/checkpoint/writer.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "common/trace/trace.h"

struct zt_ckpt_writer {
    pthread_t thread;
    pthread_mutex_t lock; /* of all below but `memory`, `bytes` and `total` */
    pthread_cond_t changed;
    zt_ckpt_job job; /* NULL: none, or it is over */
    void *arg;
    bool quit; /* the thread is to end, and its job before that */
    zt_err rc;
    struct zt_fault fault; /* of the job */

    char *memory;
    size_t bytes;
    size_t total;           /* bytes of the job */
    size_t filled, written; /* of the stream so far */
};

/* ---- the thread ---- */

static void *serve(void *arg)
{
    struct zt_ckpt_writer *w = arg;

    zt_trace_thread("checkpoint writer");
    pthread_mutex_lock(&w->lock);
    while (!w->quit) {
        zt_err rc;

        if (!w->job) {
            pthread_cond_wait(&w->changed, &w->lock);
            continue;
        }
        pthread_mutex_unlock(&w->lock);
        rc = w->job(w, w->arg, &w->fault);
        pthread_mutex_lock(&w->lock);
        w->rc = rc;
        w->job = NULL;
        pthread_cond_broadcast(&w->changed);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

/* Signals are for the rank's first thread. */
static int start_thread(struct zt_ckpt_writer *w)
{
    sigset_t all, before;
    int e;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    e = pthread_create(&w->thread, NULL, serve, w);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return e;
}

zt_err zt_ckpt_writer_open(void *memory, size_t bytes, struct zt_ckpt_writer **out,
                           struct zt_fault *fault)
{
    struct zt_ckpt_writer *w = calloc(1, sizeof(*w));
    int e;

    if (!w)
        return zt_fault_set(fault, ZT_E_NOMEM, "checkpoint: no host memory");
    w->memory = memory;
    w->bytes = bytes;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->changed, NULL);
    e = start_thread(w);
    if (e) {
        pthread_cond_destroy(&w->changed);
        pthread_mutex_destroy(&w->lock);
        free(w);
        return zt_fault_set(fault, ZT_E_SYSTEM, "checkpoint: a thread to write: %s",
                            strerror(e));
    }
    *out = w;
    return ZT_OK;
}

void zt_ckpt_writer_close(struct zt_ckpt_writer *w)
{
    if (!w)
        return;
    pthread_mutex_lock(&w->lock);
    w->quit = true;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
    free(w);
}

/* ---- jobs ---- */

void zt_ckpt_writer_start(struct zt_ckpt_writer *w, zt_ckpt_job job, void *arg,
                          size_t total)
{
    pthread_mutex_lock(&w->lock);
    w->total = total;
    w->filled = w->written = 0;
    w->rc = ZT_OK;
    w->fault = (struct zt_fault){.code = ZT_OK};
    w->arg = arg;
    w->job = job;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
}

bool zt_ckpt_writer_has_all(const struct zt_ckpt_writer *w)
{
    return w->total <= w->bytes;
}

bool zt_ckpt_writer_is_done(struct zt_ckpt_writer *w)
{
    bool done;

    pthread_mutex_lock(&w->lock);
    done = !w->job;
    pthread_mutex_unlock(&w->lock);
    return done;
}

zt_err zt_ckpt_writer_wait(struct zt_ckpt_writer *w, struct zt_fault *fault)
{
    zt_err rc;

    pthread_mutex_lock(&w->lock);
    while (w->job)
        pthread_cond_wait(&w->changed, &w->lock);
    rc = w->rc;
    pthread_mutex_unlock(&w->lock);
    return rc ? zt_fault_set(fault, rc, "%s", w->fault.text) : ZT_OK;
}

/* ---- the ring ---- */

size_t zt_ckpt_writer_align(size_t at)
{
    return (at + 7) & ~(size_t)7;
}

/* The next piece of the stream at `at`: the same on both sides. */
static size_t piece_of(const struct zt_ckpt_writer *w, size_t at, size_t left)
{
    size_t to_end = w->bytes - at % w->bytes;
    size_t n = left < ZT_CKPT_WRITER_PIECE ? left : ZT_CKPT_WRITER_PIECE;

    return n < to_end ? n : to_end;
}

void *zt_ckpt_writer_room(struct zt_ckpt_writer *w, bool first, size_t left,
                          size_t *bytes)
{
    void *room = NULL;

    pthread_mutex_lock(&w->lock);
    if (first && !zt_ckpt_writer_has_all(w))
        w->filled = zt_ckpt_writer_align(w->filled);
    *bytes = piece_of(w, w->filled, left);
    /* what was padded may be ahead of what is written */
    while (w->job && w->filled + *bytes > w->written + w->bytes)
        pthread_cond_wait(&w->changed, &w->lock);
    if (w->job)
        room = w->memory + w->filled % w->bytes;
    pthread_mutex_unlock(&w->lock);
    return room;
}

void zt_ckpt_writer_filled(struct zt_ckpt_writer *w, size_t bytes)
{
    pthread_mutex_lock(&w->lock);
    w->filled += bytes;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
}

const void *zt_ckpt_writer_take(struct zt_ckpt_writer *w, bool first, size_t left,
                                size_t *bytes)
{
    bool has_all = zt_ckpt_writer_has_all(w);
    const void *data = NULL;

    pthread_mutex_lock(&w->lock);
    if (first && !has_all)
        w->written = zt_ckpt_writer_align(w->written);
    *bytes = piece_of(w, w->written, left);
    while (!w->quit && w->filled < (has_all ? w->total : w->written + *bytes))
        pthread_cond_wait(&w->changed, &w->lock);
    if (!w->quit)
        data = w->memory + w->written % w->bytes;
    pthread_mutex_unlock(&w->lock);
    return data;
}

void zt_ckpt_writer_taken(struct zt_ckpt_writer *w, size_t bytes)
{
    pthread_mutex_lock(&w->lock);
    w->written += bytes;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
}
