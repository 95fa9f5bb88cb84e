#include "worker/checkpoint/disk/write_behind.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ALIGN       ((size_t)4096) /* of addresses, places and lengths, on any drive */
#define NUM_BLOCKS  ZT_WRITE_BEHIND_BLOCKS
#define NUM_THREADS (NUM_BLOCKS - 1)

struct zt_write_behind {
    int fd;
    pthread_t threads[NUM_THREADS];
    int num_threads;
    pthread_mutex_t lock; /* of what follows, up to `error` */
    pthread_cond_t changed;
    size_t given, begun; /* whole blocks since the beginning; begun: by a thread */
    bool is_pending[NUM_BLOCKS];
    bool quit;
    int error;

    char *blocks;  /* NUM_BLOCKS of them; number n of the file is in n % NUM_BLOCKS */
    size_t filled; /* bytes of the block at hand */
};

static char *block_of(const struct zt_write_behind *w, size_t number)
{
    return w->blocks + number % NUM_BLOCKS * ZT_WRITE_BEHIND_BLOCK;
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
        size_t block;
        int error;

        while (!w->quit && w->begun == w->given)
            pthread_cond_wait(&w->changed, &w->lock);
        if (w->quit)
            break;
        block = w->begun++;
        pthread_mutex_unlock(&w->lock);
        error = write_all(w->fd, block_of(w, block), ZT_WRITE_BEHIND_BLOCK,
                          (off_t)(block * ZT_WRITE_BEHIND_BLOCK));
        pthread_mutex_lock(&w->lock);
        w->error = w->error ? w->error : error;
        w->is_pending[block % NUM_BLOCKS] = false;
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

/* Until this block is not being written. */
static int wait_for(struct zt_write_behind *w, size_t number)
{
    int error;

    pthread_mutex_lock(&w->lock);
    while (w->is_pending[number % NUM_BLOCKS])
        pthread_cond_wait(&w->changed, &w->lock);
    error = w->error;
    pthread_mutex_unlock(&w->lock);
    return error;
}

static void give(struct zt_write_behind *w)
{
    pthread_mutex_lock(&w->lock);
    w->is_pending[w->given++ % NUM_BLOCKS] = true;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
    w->filled = 0;
}

int zt_write_behind_put(struct zt_write_behind *w, const void *data, size_t bytes)
{
    const char *from = data;

    while (bytes > 0) {
        size_t room = ZT_WRITE_BEHIND_BLOCK - w->filled, n = bytes < room ? bytes : room;
        int error = w->filled ? 0 : wait_for(w, w->given);

        if (error)
            return error;
        memcpy(block_of(w, w->given) + w->filled, from, n);
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
    const char *rest = block_of(w, w->given);
    size_t aligned = w->filled & ~(ALIGN - 1);
    off_t at = (off_t)(w->given * ZT_WRITE_BEHIND_BLOCK);
    int error = 0;

    for (size_t i = 0; i < NUM_BLOCKS; i++)
        error = wait_for(w, i);
    if (!error)
        error = write_all(w->fd, rest, aligned, at);
    (void)set_direct(w->fd, false);
    if (!error)
        error =
            write_all(w->fd, rest + aligned, w->filled - aligned, at + (off_t)aligned);
    if (!error && ftruncate(w->fd, at + (off_t)w->filled) < 0)
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
