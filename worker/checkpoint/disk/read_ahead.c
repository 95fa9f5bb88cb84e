/*
 * read_ahead.c -- ranges are gathered into runs: neighbours of one file, of at most BLOCK
 * bytes unless one alone is longer. A run is read into one buffer; NUM_BUFFERS - 1 runs are
 * read, each by a thread, while the ranges of another are used: with one request at a time
 * a drive waits for a thread to wake up between two of them.
 */
#include "worker/checkpoint/disk/read_ahead.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define BLOCK       ZT_READ_AHEAD_BLOCK
#define NUM_BUFFERS ZT_READ_AHEAD_BUFFERS
#define NUM_THREADS (NUM_BUFFERS - 1)
#define ALIGN       4096 /* of addresses, places and lengths, on any drive */
#define HUGE_PAGE   ((size_t)2 << 20)

struct run {
    int fd;
    int64_t at;
    size_t bytes;
    size_t num_ranges;
    int error;
    bool is_read;
};

struct zt_read_ahead {
    bool shared;
    struct run *runs;
    size_t num_runs, runs_cap;
    size_t *ranges; /* their lengths, one after the other */
    size_t num_ranges, ranges_cap;
    size_t longest; /* run */

    char *buffers;
    size_t buffer_bytes;
    pthread_t threads[NUM_THREADS];
    int num_threads;
    pthread_mutex_t lock; /* of what follows, and of a run's `error` and `is_read` */
    pthread_cond_t changed;
    size_t begun, used; /* runs */
    bool quit;

    size_t range, range_of_run; /* the next one to be taken */
    int64_t at;                 /* where it begins */
};

struct zt_read_ahead *zt_read_ahead_open(bool shared)
{
    struct zt_read_ahead *r = calloc(1, sizeof(*r));

    if (!r)
        return NULL;
    r->shared = shared;
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->changed, NULL);
    return r;
}

void zt_read_ahead_close(struct zt_read_ahead *r)
{
    if (!r)
        return;
    pthread_mutex_lock(&r->lock);
    r->quit = true;
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
    for (int i = 0; i < r->num_threads; i++)
        pthread_join(r->threads[i], NULL);
    pthread_cond_destroy(&r->changed);
    pthread_mutex_destroy(&r->lock);
    free(r->buffers);
    free(r->ranges);
    free(r->runs);
    free(r);
}

/* ---- what is expected ---- */

static bool make_room(void **list, size_t *cap, size_t num, size_t width)
{
    size_t more = *cap ? 2 * *cap : 256;
    void *p;

    if (num < *cap)
        return true;
    p = realloc(*list, more * width);
    if (!p)
        return false;
    *list = p;
    *cap = more;
    return true;
}

/* It begins where the last run ends, and there is room for it in that. */
static bool continues_run(const struct zt_read_ahead *r, int fd, int64_t at, size_t bytes)
{
    const struct run *last = r->num_runs ? &r->runs[r->num_runs - 1] : NULL;

    return last && last->fd == fd && last->at + (int64_t)last->bytes == at &&
           last->bytes + bytes <= BLOCK;
}

bool zt_read_ahead_expect(struct zt_read_ahead *r, int fd, int64_t at, size_t bytes)
{
    bool continues = continues_run(r, fd, at, bytes);
    struct run *last;

    if (!make_room((void **)&r->ranges, &r->ranges_cap, r->num_ranges, sizeof(size_t)) ||
        !make_room((void **)&r->runs, &r->runs_cap, r->num_runs, sizeof(*r->runs)))
        return false;
    if (!continues)
        r->runs[r->num_runs++] = (struct run){.fd = fd, .at = at};
    last = &r->runs[r->num_runs - 1];
    last->bytes += bytes;
    last->num_ranges++;
    r->ranges[r->num_ranges++] = bytes;
    r->longest = last->bytes > r->longest ? last->bytes : r->longest;
    return true;
}

/* ---- the threads ---- */

/* The same file once more; -1: it is read as it was opened. */
static int open_direct(int fd)
{
    char name[64];

    snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
    return open(name, O_RDONLY | O_DIRECT | O_CLOEXEC);
}

/* At least [at, at + bytes) of the file, from the last multiple of ALIGN on. */
static int read_run(int fd, const struct run *run, char *to)
{
    int64_t at = run->at / ALIGN * ALIGN;
    size_t want = (size_t)(run->at - at) + run->bytes, got = 0;
    size_t most = (want + ALIGN - 1) / ALIGN * ALIGN;

    while (got < want) {
        ssize_t n = pread(fd, to + got, most - got, (off_t)(at + (int64_t)got));

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n ? errno : -1;
        got += (size_t)n;
    }
    return 0;
}

static char *buffer_of(const struct zt_read_ahead *r, size_t run)
{
    return r->buffers + run % NUM_BUFFERS * r->buffer_bytes;
}

/* The next run that nobody reads, once there is a buffer for it. NULL: there is none. */
static struct run *begin_run(struct zt_read_ahead *r, size_t *index)
{
    struct run *run = NULL;

    pthread_mutex_lock(&r->lock);
    while (!r->quit && r->begun < r->num_runs && r->begun == r->used + NUM_BUFFERS)
        pthread_cond_wait(&r->changed, &r->lock);
    if (!r->quit && r->begun < r->num_runs) {
        *index = r->begun++;
        run = &r->runs[*index];
    }
    pthread_mutex_unlock(&r->lock);
    return run;
}

static void end_run(struct zt_read_ahead *r, struct run *run, int error)
{
    pthread_mutex_lock(&r->lock);
    run->error = error;
    run->is_read = true;
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
}

static void *serve(void *arg)
{
    struct zt_read_ahead *r = arg;
    int of = -1, direct = -1; /* the file at hand, and its direct twin */
    struct run *run;
    size_t i;

    while ((run = begin_run(r, &i))) {
        int error;

        if (run->fd != of) {
            if (direct >= 0)
                close(direct);
            of = run->fd;
            direct = r->shared ? -1 : open_direct(of);
        }
        error = read_run(direct >= 0 ? direct : of, run, buffer_of(r, i));
        if (error == EINVAL && direct >= 0) /* it was opened and is not supported */
            error = read_run(of, run, buffer_of(r, i));
        end_run(r, run, error);
    }
    if (direct >= 0)
        close(direct);
    return NULL;
}

/* An unaligned run reaches into one more page at each end. */
static size_t one_buffer(size_t longest)
{
    return (longest + ALIGN - 1) / ALIGN * ALIGN + 2 * (size_t)ALIGN;
}

size_t zt_read_ahead_bytes(size_t longest)
{
    size_t bytes = NUM_BUFFERS * one_buffer(longest);

    return (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
}

/* In huge pages, where there are some: a request then is of few segments. */
static bool make_buffers(struct zt_read_ahead *r)
{
    size_t all = zt_read_ahead_bytes(r->longest);

    r->buffer_bytes = one_buffer(r->longest);
    r->buffers = aligned_alloc(HUGE_PAGE, all);
    if (r->buffers)
        (void)madvise(r->buffers, all, MADV_HUGEPAGE); /* advice: works without too */
    return r->buffers != NULL;
}

/* With fewer threads than it may have it is slower, no more. */
bool zt_read_ahead_start(struct zt_read_ahead *r)
{
    sigset_t all, before;

    if (!r->num_runs)
        return true;
    if (!make_buffers(r))
        return false;
    r->at = r->runs[0].at;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (r->num_threads < NUM_THREADS && (size_t)r->num_threads < r->num_runs &&
           pthread_create(&r->threads[r->num_threads], NULL, serve, r) == 0)
        r->num_threads++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return r->num_threads > 0;
}

/* ---- taking ---- */

/* Behind the last range of a run: its buffer is free. */
static void next_run(struct zt_read_ahead *r)
{
    r->range_of_run = 0;
    pthread_mutex_lock(&r->lock);
    r->used++;
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
    if (r->used < r->num_runs)
        r->at = r->runs[r->used].at;
}

const void *zt_read_ahead_take(struct zt_read_ahead *r, int fd, int64_t at, size_t bytes,
                               int *error)
{
    const struct run *run;

    *error = 0;
    if (!r->num_threads)
        return NULL;
    if (r->used < r->num_runs && r->range_of_run == r->runs[r->used].num_ranges)
        next_run(r);
    if (r->used == r->num_runs)
        return NULL;
    run = &r->runs[r->used];
    if (run->fd != fd || r->at != at || r->ranges[r->range] != bytes)
        return NULL;
    pthread_mutex_lock(&r->lock);
    while (!run->is_read)
        pthread_cond_wait(&r->changed, &r->lock);
    *error = run->error;
    pthread_mutex_unlock(&r->lock);
    if (*error)
        return NULL;
    r->range++;
    r->range_of_run++;
    r->at += (int64_t)bytes;
    return buffer_of(r, r->used) + (at - run->at / ALIGN * ALIGN);
}
