#include "worker/checkpoint/disk/write_behind.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ALIGN       ZT_WRITE_BEHIND_ALIGN
#define BLOCK       ZT_WRITE_BEHIND_BLOCK
#define NUM_BLOCKS  ZT_WRITE_BEHIND_BLOCKS
#define NUM_THREADS (NUM_BLOCKS - 1)

struct one_write {
    const char *data;
    size_t bytes; /* a multiple of ALIGN, at most a block */
    off_t at;
    bool is_pending;
};

struct zt_write_behind {
    int fd;
    pthread_t threads[NUM_THREADS];
    int num_threads;
    pthread_mutex_t lock; /* of what follows, up to `error` */
    pthread_cond_t changed;
    size_t given, begun; /* requests since the beginning; begun: by a thread */
    struct one_write requests[NUM_BLOCKS]; /* number n is in n % NUM_BLOCKS */
    bool quit;
    int error;

    char *blocks;     /* one for each request */
    const char *lent; /* by the caller: where the next request begins; NULL: its block */
    size_t filled;    /* bytes of the next request */
    off_t at;         /* where it begins in the file: a multiple of ALIGN */
};

static char *block_of(const struct zt_write_behind *w, size_t number)
{
    return w->blocks + number % NUM_BLOCKS * BLOCK;
}

/* ---- past the page cache, or not ---- */

static bool set_direct(int fd, bool on)
{
    int flags = fcntl(fd, F_GETFL);

    return flags >= 0 &&
           fcntl(fd, F_SETFL, on ? flags | O_DIRECT : flags & ~O_DIRECT) == 0;
}

/* A file system may let O_DIRECT be set and refuse the writes. */
static int write_all(int fd, const char *data, size_t bytes, off_t at)
{
    while (bytes > 0) {
        bool is_direct = fcntl(fd, F_GETFL) & O_DIRECT; /* other threads change it, too */
        ssize_t n = pwrite(fd, data, bytes, at);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EINVAL && is_direct && set_direct(fd, false))
            continue;
        if (n <= 0)
            return n < 0 ? errno : EIO;
        data += n;
        at += n;
        bytes -= (size_t)n;
        if ((size_t)n % ALIGN) /* the disk is nearly full: what is left is not aligned */
            (void)set_direct(fd, false);
    }
    return 0;
}

/* ---- the thread ---- */

static void *serve(void *arg)
{
    struct zt_write_behind *w = arg;

    pthread_mutex_lock(&w->lock);
    for (;;) {
        struct one_write *r;
        int error;

        while (!w->quit && w->begun == w->given)
            pthread_cond_wait(&w->changed, &w->lock);
        if (w->quit)
            break;
        r = &w->requests[w->begun++ % NUM_BLOCKS];
        pthread_mutex_unlock(&w->lock);
        error = write_all(w->fd, r->data, r->bytes, r->at);
        pthread_mutex_lock(&w->lock);
        w->error = w->error ? w->error : error;
        r->is_pending = false;
        pthread_cond_broadcast(&w->changed);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

/* One is enough, though slower. Signals are for others. */
static bool start_threads(struct zt_write_behind *w)
{
    sigset_t all, before;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (w->num_threads < NUM_THREADS &&
           !pthread_create(&w->threads[w->num_threads], NULL, serve, w))
        w->num_threads++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return w->num_threads > 0;
}

/* ---- calls ---- */

struct zt_write_behind *zt_write_behind_open(int fd, size_t bytes)
{
    struct zt_write_behind *w = calloc(1, sizeof(*w));

    if (!w)
        return NULL;
    w->fd = fd;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->changed, NULL);
    w->blocks = aligned_alloc(ALIGN, ZT_WRITE_BEHIND_BYTES);
    if (!w->blocks || !start_threads(w)) {
        zt_write_behind_close(w);
        return NULL;
    }
    (void)!ftruncate(fd, (off_t)bytes);
    (void)set_direct(fd, true);
    return w;
}

/* Until the request that has this place, and its block, are written. */
static int wait_for(struct zt_write_behind *w, size_t number)
{
    int error;

    pthread_mutex_lock(&w->lock);
    while (w->requests[number % NUM_BLOCKS].is_pending)
        pthread_cond_wait(&w->changed, &w->lock);
    error = w->error;
    pthread_mutex_unlock(&w->lock);
    return error;
}

/* The first `bytes` of the next request; its place is free. */
static void give(struct zt_write_behind *w, size_t bytes)
{
    const char *data = w->lent ? w->lent : block_of(w, w->given);

    pthread_mutex_lock(&w->lock);
    w->requests[w->given++ % NUM_BLOCKS] = (struct one_write){data, bytes, w->at, true};
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
    w->at += (off_t)bytes;
    w->filled -= bytes;
    w->lent = w->lent ? w->lent + bytes : NULL;
}

/* What was lent and is less than a request: whole pages from where they are, the rest in a block. */
static int end_lent(struct zt_write_behind *w)
{
    size_t pages = w->filled & ~(ALIGN - 1);
    int error = wait_for(w, w->given);

    if (!error && pages) {
        give(w, pages);
        error = wait_for(w, w->given);
    }
    if (!error)
        memcpy(block_of(w, w->given), w->lent, w->filled);
    w->lent = NULL;
    return error;
}

int zt_write_behind_put(struct zt_write_behind *w, const void *data, size_t bytes)
{
    const char *from = data;
    int error = w->lent ? end_lent(w) : 0;

    while (!error && bytes > 0) {
        size_t room = BLOCK - w->filled, n = bytes < room ? bytes : room;

        error = w->filled ? 0 : wait_for(w, w->given);
        if (error)
            break;
        memcpy(block_of(w, w->given) + w->filled, from, n);
        w->filled += n;
        from += n;
        bytes -= n;
        if (w->filled == BLOCK)
            give(w, BLOCK);
    }
    return error;
}

/* Up to a page of the file, from which on the caller's memory can be written. */
static int begin_lent(struct zt_write_behind *w, const char *data, size_t head)
{
    int error = zt_write_behind_put(w, data, head);

    if (!error && w->filled)
        give(w, w->filled);
    w->lent = data + head;
    return error;
}

int zt_write_behind_lend(struct zt_write_behind *w, const void *data, size_t bytes)
{
    const char *from = data;
    size_t head = 0;
    int error = w->lent && from != w->lent + w->filled ? end_lent(w) : 0;

    if (!error && !w->lent) {
        head = (ALIGN - w->filled % ALIGN) % ALIGN;
        if (bytes < head + ALIGN || (uintptr_t)(from + head) % ALIGN)
            return zt_write_behind_put(w, data, bytes);
        error = begin_lent(w, from, head);
    }
    w->filled += bytes - head;
    while (!error && w->filled >= BLOCK) {
        error = wait_for(w, w->given);
        if (!error)
            give(w, BLOCK);
    }
    return error;
}

int zt_write_behind_finish(struct zt_write_behind *w)
{
    int error = w->lent ? end_lent(w) : 0;
    const char *rest = block_of(w, w->given);
    size_t aligned = w->filled & ~(ALIGN - 1);

    for (size_t i = 0; i < NUM_BLOCKS; i++) {
        int e = wait_for(w, i);

        error = error ? error : e;
    }
    if (!error)
        error = write_all(w->fd, rest, aligned, w->at);
    (void)set_direct(w->fd, false);
    if (!error)
        error =
            write_all(w->fd, rest + aligned, w->filled - aligned, w->at + (off_t)aligned);
    if (!error && ftruncate(w->fd, w->at + (off_t)w->filled) < 0)
        error = errno;
    return error;
}

void zt_write_behind_close(struct zt_write_behind *w)
{
    if (!w)
        return;
    pthread_mutex_lock(&w->lock);
    w->quit = true;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
    for (int i = 0; i < w->num_threads; i++)
        pthread_join(w->threads[i], NULL);
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
    free(w->blocks);
    free(w);
}
