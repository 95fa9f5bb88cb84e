#include "worker/checkpoint/disk/write_behind.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ALIGN ((size_t)4096) /* of addresses, places and lengths, on any drive */

struct zt_write_behind {
    int fd;
    pthread_t thread;
    pthread_mutex_t lock; /* of `given`, `done`, `quit`, `error` */
    pthread_cond_t changed;
    size_t given, done; /* whole blocks since the beginning */
    bool quit;
    int error;

    char *blocks[2];
    size_t filled; /* bytes of the block at hand */
};

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
        ssize_t n = pwrite(fd, data, bytes, at);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EINVAL && (fcntl(fd, F_GETFL) & O_DIRECT) &&
            set_direct(fd, false))
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
        int error;

        while (!w->quit && w->done == w->given)
            pthread_cond_wait(&w->changed, &w->lock);
        if (w->quit)
            break;
        pthread_mutex_unlock(&w->lock);
        error = write_all(w->fd, w->blocks[w->done % 2], ZT_WRITE_BEHIND_BLOCK,
                          (off_t)(w->done * ZT_WRITE_BEHIND_BLOCK));
        pthread_mutex_lock(&w->lock);
        w->error = w->error ? w->error : error;
        w->done++;
        pthread_cond_broadcast(&w->changed);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

/* Signals are for others. */
static bool start_thread(struct zt_write_behind *w)
{
    sigset_t all, before;
    int e;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    e = pthread_create(&w->thread, NULL, serve, w);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return !e;
}

/* ---- calls ---- */

struct zt_write_behind *zt_write_behind_open(int fd)
{
    struct zt_write_behind *w = calloc(1, sizeof(*w));

    if (!w)
        return NULL;
    w->fd = fd;
    w->blocks[0] = aligned_alloc(ALIGN, ZT_WRITE_BEHIND_BYTES);
    if (!w->blocks[0]) {
        free(w);
        return NULL;
    }
    w->blocks[1] = w->blocks[0] + ZT_WRITE_BEHIND_BLOCK;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->changed, NULL);
    (void)set_direct(fd, true);
    if (start_thread(w))
        return w;
    (void)set_direct(fd, false);
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
    free(w->blocks[0]);
    free(w);
    return NULL;
}

/* Until at most `left` blocks are still to be written. */
static int wait_for(struct zt_write_behind *w, size_t left)
{
    int error;

    pthread_mutex_lock(&w->lock);
    while (w->given - w->done > left)
        pthread_cond_wait(&w->changed, &w->lock);
    error = w->error;
    pthread_mutex_unlock(&w->lock);
    return error;
}

static void give(struct zt_write_behind *w)
{
    pthread_mutex_lock(&w->lock);
    w->given++;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
    w->filled = 0;
}

int zt_write_behind_put(struct zt_write_behind *w, const void *data, size_t bytes)
{
    const char *from = data;

    while (bytes > 0) {
        size_t room = ZT_WRITE_BEHIND_BLOCK - w->filled, n = bytes < room ? bytes : room;
        int error = w->filled ? 0 : wait_for(w, 1);

        if (error)
            return error;
        memcpy(w->blocks[w->given % 2] + w->filled, from, n);
        w->filled += n;
        from += n;
        bytes -= n;
        if (w->filled == ZT_WRITE_BEHIND_BLOCK)
            give(w);
    }
    return 0;
}

int zt_write_behind_finish(struct zt_write_behind *w)
{
    const char *rest = w->blocks[w->given % 2];
    size_t aligned = w->filled & ~(ALIGN - 1);
    off_t at = (off_t)(w->given * ZT_WRITE_BEHIND_BLOCK);
    int error = wait_for(w, 0);

    if (!error)
        error = write_all(w->fd, rest, aligned, at);
    (void)set_direct(w->fd, false);
    if (!error)
        error =
            write_all(w->fd, rest + aligned, w->filled - aligned, at + (off_t)aligned);
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
    pthread_join(w->thread, NULL);
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
    free(w->blocks[0]);
    free(w);
}
