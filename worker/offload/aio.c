#include "worker/offload/aio.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "common/log.h"
#include "common/trace/trace.h"
#include "common/trace/waits.h"

struct thread {
    struct zt_aio *aio;
    int index;
    pthread_t id;
    const struct zt_aio_engine *engine; /* NULL: no queue is open */
    void *queue;
    struct aio_slot *slots; /* queue_depth of them */
    const struct zt_aio_request **ready;
    struct zt_aio_result *results;
    int *free_slots;
};

struct zt_aio {
    struct zt_aio_options o;
    struct thread *threads;
    int num_threads;          /* that run */
    struct zt_aio_job *first; /* of those that have not ended, as they were started */
    const struct zt_aio_job *wanted; /* is waited for */
    pthread_mutex_t lock;
    pthread_cond_t started; /* a job, or another may be begun */
    pthread_cond_t ended;
    bool stop;
};

/* ---- requests ---- */

/* What is left of a thread's share of a job. */
struct aio_cursor {
    const struct zt_aio_job *job;
    size_t block_size, at, end; /* bytes of the store */
    size_t block, step;         /* this thread's next block, and from one to the next */
};

/* A place of a queue, for a request that waits or is in flight. */
struct aio_slot {
    struct zt_aio_request request;
    int file;  /* of the job */
    size_t at; /* its first byte in the store */
};

/* What is no errno. */
enum aio_error {
    AIO_ENDED_EARLY = -1, /* fewer bytes were moved than asked for */
    AIO_CHANGED = -2      /* what was read is not what was written */
};

static struct aio_cursor first_request(const struct thread *t,
                                       const struct zt_aio_job *job)
{
    size_t bs = (size_t)t->aio->o.block_size, n = (size_t)t->aio->num_threads;
    size_t first = job->offset / bs, mine = first / n * n + (size_t)t->index;

    return (struct aio_cursor){.job = job,
                               .block_size = bs,
                               .at = job->offset,
                               .end = job->offset + job->bytes,
                               .block = mine < first ? mine + n : mine,
                               .step = n};
}

/* `slot`: one of `t` that is free. */
static bool next_request(struct aio_cursor *c, struct thread *t, int slot)
{
    struct aio_slot *s = &t->slots[slot];
    size_t begin = c->block * c->block_size, end = begin + c->block_size;
    size_t n = (size_t)c->job->files->num, first = begin;

    if (begin >= c->end)
        return false;
    begin = begin > c->at ? begin : c->at;
    end = end < c->end ? end : c->end;
    s->file = (int)(c->block % n);
    s->at = begin;
    s->request = (struct zt_aio_request){
        .id = slot,
        .fd = c->job->files->fd[s->file],
        .write = c->job->write,
        .data = c->job->data + (begin - c->job->offset),
        .bytes = end - begin,
        .offset = (off_t)(c->block / n * c->block_size + (begin - first)),
    };
    c->block += c->step;
    return true;
}

static void note_error_at(struct zt_aio *a, struct zt_aio_job *job, int file, size_t at,
                          int error)
{
    pthread_mutex_lock(&a->lock);
    if (!job->error) {
        job->error = error;
        job->file = file;
        job->at = at;
    }
    pthread_mutex_unlock(&a->lock);
}

static void note_error(struct zt_aio *a, struct zt_aio_job *job, int error)
{
    note_error_at(a, job, 0, job->offset, error);
}

static bool has_failed(struct zt_aio *a, const struct zt_aio_job *job)
{
    bool failed;

    pthread_mutex_lock(&a->lock);
    failed = job->error != 0;
    pthread_mutex_unlock(&a->lock);
    return failed;
}

/* ---- checksums ---- */

uint64_t zt_aio_sum(const void *data)
{
    return XXH3_64bits(data, ZT_AIO_SUM_BYTES);
}

/* Of what is written next. */
static void keep_sums(const struct zt_aio_job *job, const struct aio_slot *s)
{
    uint64_t *sum = job->sums + s->at / ZT_AIO_SUM_BYTES;

    for (size_t i = 0; i < s->request.bytes; i += ZT_AIO_SUM_BYTES)
        *sum++ = zt_aio_sum(s->request.data + i);
}

/* Of what was read. */
static void compare_sums(struct zt_aio *a, struct zt_aio_job *job,
                         const struct aio_slot *s)
{
    const uint64_t *sum = job->sums + s->at / ZT_AIO_SUM_BYTES;

    for (size_t i = 0; i < s->request.bytes; i += ZT_AIO_SUM_BYTES)
        if (*sum++ != zt_aio_sum(s->request.data + i)) {
            note_error_at(a, job, s->file, s->at + i, AIO_CHANGED);
            return;
        }
}

/* ---- one thread's share of a job ---- */

/* Submit the first `num` of what is ready: how many were taken; *error when none can be. */
static int submit(struct thread *t, int num, int *error)
{
    int done = 0;

    while (done < num) {
        int n = t->engine->submit(t->queue, t->ready + done,
                                  t->aio->o.single_submit ? 1 : num - done);

        if (n <= 0) {
            *error = -n;
            break;
        }
        done += n;
    }
    return done;
}

/* Wait for at least `least` requests; their slots are free again. How many, or -errno. */
static int reap(struct thread *t, struct zt_aio_job *job, int least, int in_flight,
                int *num_free)
{
    int n = t->engine->reap(t->queue, least, in_flight, t->results);

    for (int i = 0; i < n; i++) {
        const struct zt_aio_result *r = &t->results[i];
        const struct aio_slot *s = &t->slots[r->id];

        if (r->bytes != (int64_t)s->request.bytes)
            note_error_at(t->aio, job, s->file, s->at,
                          r->bytes < 0 ? (int)-r->bytes : AIO_ENDED_EARLY);
        else if (job->sums && !job->write)
            compare_sums(t->aio, job, s);
        t->free_slots[(*num_free)++] = r->id;
    }
    return n;
}

/* The next requests of the job, as many as there are slots for, or one: then the drive works
 * on those before while checksums of this one are made. */
static int prepare(struct thread *t, const struct zt_aio_job *job, struct aio_cursor *c,
                   bool one, int *num_free, bool *more)
{
    int n = 0;

    while (*num_free && !(one && n)) {
        int slot = t->free_slots[*num_free - 1];

        *more = next_request(c, t, slot);
        if (!*more)
            break;
        if (job->sums && job->write)
            keep_sums(job, &t->slots[slot]);
        t->ready[n++] = &t->slots[slot].request;
        --*num_free;
    }
    return n;
}

static void transfer(struct thread *t, struct zt_aio_job *job)
{
    int depth = t->aio->o.queue_depth, num_free = depth, in_flight = 0, waiting = 0;
    bool one = job->sums && job->write && t->aio->o.overlap_events, more = true;
    struct aio_cursor c = first_request(t, job);

    for (int i = 0; i < depth; i++)
        t->free_slots[i] = i;
    while (more || waiting || in_flight) {
        int error = 0, taken;

        more = more && !has_failed(t->aio, job);
        if (more && !waiting)
            waiting = prepare(t, job, &c, one, &num_free, &more);
        taken = submit(t, waiting, &error);
        in_flight += taken;
        waiting -= taken;
        memmove(t->ready, t->ready + taken,
                (size_t)waiting * sizeof(const struct zt_aio_request *));
        if (error && (error != EAGAIN || !in_flight)) {
            note_error(t->aio, job, error);
            more = false;
            waiting = 0;
        }
        if (in_flight) {
            int least = one && more && !waiting && num_free ? 0 : 1;
            int n = reap(t, job, t->aio->o.overlap_events ? least : in_flight, in_flight,
                         &num_free);

            if (n < 0) { /* not a thing that the kernel does to a valid queue */
                note_error(t->aio, job, -n);
                return;
            }
            in_flight -= n;
        }
    }
}

/* ---- which job comes next ---- */

static bool has_taken(const struct thread *t, const struct zt_aio_job *job)
{
    return job->taken[t->index / 64] >> t->index % 64 & 1;
}

static bool overlap(size_t a, size_t a_bytes, size_t b, size_t b_bytes)
{
    return a < b + b_bytes && b < a + a_bytes;
}

/* Whether two jobs touch the same bytes, of memory or of a file. */
static bool meet(const struct zt_aio_job *a, const struct zt_aio_job *b)
{
    return overlap((uintptr_t)a->data, a->bytes, (uintptr_t)b->data, b->bytes) ||
           (a->files == b->files && overlap(a->offset, a->bytes, b->offset, b->bytes));
}

/* This job, or the first that it meets of those before it, which has to end first, and likewise
 * what that meets. NULL: other threads are at that, or its part is taken. */
static struct zt_aio_job *ready_job(const struct thread *t, struct zt_aio_job *job)
{
    struct zt_aio_job *first = t->aio->first;

    while (first != job) {
        if (meet(first, job)) { /* begin again with that */
            job = first;
            first = t->aio->first;
        } else {
            first = first->next;
        }
    }
    return has_taken(t, job) ? NULL : job;
}

/* What the caller waits for comes first, then what it will: reads before writes, which only their
 * buffers wait for. */
static struct zt_aio_job *next_job(const struct thread *t)
{
    const struct zt_aio *a = t->aio;
    struct zt_aio_job *read = NULL, *write = NULL;

    for (struct zt_aio_job *job = a->first; job; job = job->next) {
        struct zt_aio_job *ready = ready_job(t, job);

        if (ready && job == a->wanted)
            return ready;
        if (ready && !job->write && !read)
            read = ready;
        else if (ready && job->write && !write)
            write = ready;
    }
    return read ? read : write;
}

/* A thread has done its part. */
static void end_part(struct zt_aio *a, struct zt_aio_job *job)
{
    struct zt_aio_job **at = &a->first;

    if (--job->threads_left > 0)
        return;
    while (*at != job)
        at = &(*at)->next;
    *at = job->next;
    pthread_cond_broadcast(&a->ended);
    pthread_cond_broadcast(&a->started);
}

static void *run_thread(void *ctx)
{
    struct thread *t = ctx;
    struct zt_aio *a = t->aio;

    pthread_mutex_lock(&a->lock);
    for (;;) {
        struct zt_aio_job *job;

        while (!(job = next_job(t)) && !a->stop)
            pthread_cond_wait(&a->started, &a->lock);
        if (!job)
            break;
        job->taken[t->index / 64] |= (uint64_t)1 << t->index % 64;
        pthread_mutex_unlock(&a->lock);
        zt_trace_thread("files");
        zt_trace_begin_with("files", job->write ? "write" : "read", "bytes",
                            (int64_t)job->bytes);
        transfer(t, job);
        zt_trace_end();
        pthread_mutex_lock(&a->lock);
        end_part(a, job);
    }
    pthread_mutex_unlock(&a->lock);
    return NULL;
}

/* ---- open and close ---- */

/* Said once, and louder where an engine was asked for. */
static void tell_refused(const struct zt_aio *a, const struct thread *t, int refused)
{
    const struct zt_aio_engine *wanted = a->o.engine ? a->o.engine : zt_aio_engines[0];

    if (t->index == 0 && refused)
        zt_log(a->o.engine ? ZT_LOG_WARN : ZT_LOG_INFO, "files",
               "%s: the kernel does not let this process have it (%s): files are read "
               "and written by %s",
               wanted->name, strerror(refused), t->engine->name);
}

static bool open_thread(struct zt_aio *a, struct thread *t, int index)
{
    size_t depth = (size_t)a->o.queue_depth;
    int refused;

    t->aio = a;
    t->index = index;
    t->slots = calloc(depth, sizeof(*t->slots));
    t->ready = calloc(depth, sizeof(const struct zt_aio_request *));
    t->results = calloc(depth, sizeof(*t->results));
    t->free_slots = calloc(depth, sizeof(*t->free_slots));
    if (!t->slots || !t->ready || !t->results || !t->free_slots)
        return false;
    t->engine = zt_aio_engine_open(a->o.engine, a->o.queue_depth, &t->queue, &refused);
    if (t->engine)
        tell_refused(a, t, refused);
    return t->engine != NULL;
}

static void free_thread(struct thread *t)
{
    if (t->engine)
        t->engine->close(t->queue);
    free(t->slots);
    free(t->ready);
    free(t->results);
    free(t->free_slots);
}

zt_err zt_aio_open(const struct zt_aio_options *o, struct zt_aio **out,
                   struct zt_fault *fault)
{
    struct zt_aio *a = calloc(1, sizeof(*a));
    int error = 0;

    if (!a)
        return zt_fault_set(fault, ZT_E_NOMEM, "file tier: no host memory");
    a->o = *o;
    a->threads = calloc((size_t)o->threads, sizeof(*a->threads));
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->started, NULL);
    pthread_cond_init(&a->ended, NULL);
    for (int i = 0; a->threads && !error && i < o->threads; i++)
        error = open_thread(a, &a->threads[i], i) ? 0 : ENOMEM;
    pthread_mutex_lock(&a->lock);
    while (a->threads && !error && a->num_threads < o->threads) {
        error = pthread_create(&a->threads[a->num_threads].id, NULL, run_thread,
                               &a->threads[a->num_threads]);
        a->num_threads += !error;
    }
    pthread_mutex_unlock(&a->lock);
    if (!a->threads || error) {
        zt_aio_close(a);
        return zt_fault_set(fault, ZT_E_SYSTEM, "file tier: %d threads: %s", o->threads,
                            strerror(error ? error : ENOMEM));
    }
    *out = a;
    return ZT_OK;
}

void zt_aio_close(struct zt_aio *a)
{
    if (!a)
        return;
    pthread_mutex_lock(&a->lock);
    a->stop = true;
    pthread_cond_broadcast(&a->started);
    pthread_mutex_unlock(&a->lock);
    for (int i = 0; i < a->num_threads; i++)
        pthread_join(a->threads[i].id, NULL);
    for (int i = 0; a->threads && i < a->o.threads; i++)
        free_thread(&a->threads[i]);
    free(a->threads);
    pthread_cond_destroy(&a->started);
    pthread_cond_destroy(&a->ended);
    pthread_mutex_destroy(&a->lock);
    free(a);
}

const char *zt_aio_engine_name(const struct zt_aio *a)
{
    return a->threads[0].engine->name;
}

size_t zt_aio_block_bytes(const struct zt_aio *a)
{
    return (size_t)a->o.block_size;
}

/* ---- jobs ---- */

void zt_aio_start(struct zt_aio *a, struct zt_aio_job *job,
                  const struct zt_aio_files *files, bool write, void *data, size_t offset,
                  size_t bytes, uint64_t *sums)
{
    struct zt_aio_job **last = &a->first;

    *job = (struct zt_aio_job){.files = files,
                               .data = data,
                               .offset = offset,
                               .bytes = bytes,
                               .sums = sums,
                               .write = write,
                               .threads_left = a->num_threads};
    pthread_mutex_lock(&a->lock);
    while (*last)
        last = &(*last)->next;
    *last = job;
    pthread_cond_broadcast(&a->started);
    pthread_mutex_unlock(&a->lock);
}

zt_err zt_aio_wait(struct zt_aio *a, struct zt_aio_job *job, struct zt_fault *fault)
{
    const char *verb = job->write ? "writing" : "reading";

    zt_trace_begin("wait", "files");
    zt_wait_begin();
    pthread_mutex_lock(&a->lock);
    a->wanted = job;
    while (job->threads_left)
        pthread_cond_wait(&a->ended, &a->lock);
    a->wanted = NULL;
    pthread_mutex_unlock(&a->lock);
    zt_wait_end(ZT_WAIT_FILES);
    zt_trace_end();
    if (!job->error)
        return ZT_OK;
    if (job->error == AIO_CHANGED)
        return zt_fault_set(fault, ZT_E_FORMAT,
                            "nvme_path %s: offloaded state is not what was written there "
                            "(4096 bytes from %zu on); the drive is faulty, or something "
                            "else wrote to it",
                            job->files->dir[job->file], job->at);
    if (job->error == AIO_ENDED_EARLY)
        return zt_fault_set(fault, ZT_E_SYSTEM,
                            "nvme_path %s: %s %zu bytes of offloaded state ended early",
                            job->files->dir[job->file], verb, job->bytes);
    return zt_fault_set(fault, ZT_E_SYSTEM, "nvme_path %s: %s offloaded state: %s",
                        job->files->dir[job->file], verb, strerror(job->error));
}
