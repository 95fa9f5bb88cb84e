#include "worker/offload/aio.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "common/log.h"
#include "common/trace/trace.h"
#include "common/trace/waits.h"

/* A place of a queue, for a request that waits or is in flight. */
struct aio_slot {
    struct zt_aio_request request;
    struct zt_aio_job *job; /* NULL: the place is free */
    int file;               /* of the job */
    size_t at;              /* its first byte in the store */
};

struct thread {
    struct zt_aio *aio;
    int index;
    pthread_t id;
    const struct zt_aio_engine *engine; /* NULL: no queue is open */
    void *queue;
    struct aio_slot *slots; /* queue_depth of them */
    int *free_slots, num_free;
    const struct zt_aio_request **ready; /* the first num_ready are not submitted yet */
    int num_ready, in_flight;
    struct zt_aio_result *results;
    struct {
        const char *name; /* NULL: none is open */
        int64_t began_ns, bytes;
        const struct zt_aio_job *job;
    } span; /* of the timeline: requests of one job that were taken */
};

struct zt_aio {
    struct zt_aio_options o;
    struct thread *threads;
    int num_threads;          /* that run */
    struct zt_aio_job *first; /* of those that have not ended, as they were started */
    const struct zt_aio_job *wanted; /* is waited for */
    pthread_mutex_t lock;
    pthread_cond_t started; /* there is more to take */
    pthread_cond_t ended;
    bool stop;
};

/* What is no errno. */
enum aio_error {
    AIO_ENDED_EARLY = -1, /* fewer bytes were moved than asked for */
    AIO_CHANGED = -2      /* what was read is not what was written */
};

/* ---- which job comes next; all with the lock ---- */

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

static bool has_left(const struct zt_aio_job *job)
{
    return !job->num_before && job->taken < job->bytes;
}

/* The wanted job, or the first that it meets of those before it, which has to end first, and
 * likewise what that meets. */
static struct zt_aio_job *first_wanted(const struct zt_aio *a)
{
    const struct zt_aio_job *wanted = a->wanted;
    struct zt_aio_job *job = a->first;

    while (job && job != wanted) {
        if (meet(job, wanted)) { /* begin again with that */
            wanted = job;
            job = a->first;
        } else {
            job = job->next;
        }
    }
    return job;
}

/* What the caller waits for comes first, then what it will: reads before writes, which only their
 * buffers wait for. NULL: all that may be taken is. */
static struct zt_aio_job *next_job(const struct zt_aio *a)
{
    struct zt_aio_job *job = a->wanted ? first_wanted(a) : NULL, *write = NULL;

    if (job && has_left(job))
        return job;
    for (job = a->first; job; job = job->next) {
        if (has_left(job) && !job->write)
            return job;
        if (has_left(job) && !write)
            write = job;
    }
    return write;
}

static void end_job(struct zt_aio *a, struct zt_aio_job *job)
{
    struct zt_aio_job **at = &a->first;

    while (*at != job)
        at = &(*at)->next;
    *at = job->next;
    if (a->wanted == job)
        a->wanted = NULL;
    for (struct zt_aio_job *later = job->next; later; later = later->next)
        later->num_before -= meet(job, later);
    job->ended = true;
    pthread_cond_broadcast(&a->ended);
    pthread_cond_broadcast(&a->started);
}

/* ---- the timeline ---- */

static void end_span(struct thread *t)
{
    if (t->span.name)
        zt_trace_span("files", t->span.name, "bytes", t->span.bytes, t->span.began_ns);
    t->span.name = NULL;
}

/* The thread turns to this job. */
static void begin_span(struct thread *t, const struct zt_aio_job *job)
{
    const char *name = job->write ? "write" : "read";

    if (!zt_trace_on() || (t->span.name == name && t->span.job == job))
        return;
    zt_trace_thread("files");
    end_span(t);
    t->span.name = name;
    t->span.job = job;
    t->span.bytes = 0;
    t->span.began_ns = zt_trace_now();
}

/* ---- requests ---- */

/* The next one of a job, to a free place. */
static void take_request(struct thread *t, struct zt_aio_job *job)
{
    int slot = t->free_slots[--t->num_free];
    struct aio_slot *s = &t->slots[slot];
    size_t bs = (size_t)t->aio->o.block_size, n = (size_t)job->files->num;
    size_t at = job->offset + job->taken, block = at / bs, in_block = at % bs;
    size_t left = job->bytes - job->taken;

    s->job = job;
    s->file = (int)(block % n);
    s->at = at;
    s->request = (struct zt_aio_request){
        .id = slot,
        .fd = job->files->fd[s->file],
        .write = job->write,
        .data = job->data + job->taken,
        .bytes = left < bs - in_block ? left : bs - in_block,
        .offset = (off_t)(block / n * bs + in_block),
    };
    job->taken += s->request.bytes;
    job->moving++;
    t->span.bytes += (int64_t)s->request.bytes;
    t->ready[t->num_ready++] = &s->request;
}

/*
 * Of what comes next as many as there are places for, of a job no more than this thread's share
 * of what is left. Of what checksums are made first one alone: the drive works on those before it
 * meanwhile. With the lock.
 */
static void take_requests(struct thread *t)
{
    struct zt_aio *a = t->aio;
    size_t bs = (size_t)a->o.block_size, threads = (size_t)a->num_threads;
    struct zt_aio_job *job;
    bool one = false;

    while (!one && t->num_free && (job = next_job(a))) {
        size_t left = (job->bytes - job->taken + bs - 1) / bs;

        one = job->sums && job->write && a->o.overlap_events;
        begin_span(t, job);
        for (size_t n = one ? 1 : (left + threads - 1) / threads; n && t->num_free; n--)
            take_request(t, job);
    }
}

/* ---- checksums ---- */

uint64_t zt_aio_sum(const void *data)
{
    return XXH3_64bits(data, ZT_AIO_SUM_BYTES);
}

/* Of what is written next. */
static void keep_sums(const struct aio_slot *s)
{
    uint64_t *sum = s->job->sums ? s->job->sums + s->at / ZT_AIO_SUM_BYTES : NULL;

    for (size_t i = 0; sum && s->request.write && i < s->request.bytes;
         i += ZT_AIO_SUM_BYTES)
        *sum++ = zt_aio_sum(s->request.data + i);
}

/* Of what was read: where it is something else; NULL: nowhere. */
static const char *compare_sums(const struct aio_slot *s)
{
    const uint64_t *sum = s->job->sums + s->at / ZT_AIO_SUM_BYTES;

    for (size_t i = 0; i < s->request.bytes; i += ZT_AIO_SUM_BYTES)
        if (*sum++ != zt_aio_sum(s->request.data + i))
            return s->request.data + i;
    return NULL;
}

/* ---- what a thread does ---- */

/* With this error (0: none) at that byte of the store; its place is free then. The first error of
 * a job is kept, and no more of that is taken. */
static void end_request(struct thread *t, int slot, int error, size_t at)
{
    struct zt_aio *a = t->aio;
    struct aio_slot *s = &t->slots[slot];
    struct zt_aio_job *job = s->job;

    t->free_slots[t->num_free++] = slot;
    s->job = NULL;
    pthread_mutex_lock(&a->lock);
    if (error && !job->error) {
        job->error = error;
        job->file = s->file;
        job->at = at;
        job->taken = job->bytes;
    }
    if (--job->moving == 0 && job->taken == job->bytes)
        end_job(a, job);
    pthread_mutex_unlock(&a->lock);
}

static void end_with_result(struct thread *t, const struct zt_aio_result *r)
{
    const struct aio_slot *s = &t->slots[r->id];
    const char *changed = NULL;

    if (r->bytes == (int64_t)s->request.bytes && s->job->sums && !s->job->write)
        changed = compare_sums(s);
    if (r->bytes != (int64_t)s->request.bytes)
        end_request(t, r->id, r->bytes < 0 ? (int)-r->bytes : AIO_ENDED_EARLY, s->at);
    else if (changed)
        end_request(t, r->id, AIO_CHANGED, s->at + (size_t)(changed - s->request.data));
    else
        end_request(t, r->id, 0, 0);
}

/* What is ready, or all that the kernel takes of it. */
static void submit(struct thread *t)
{
    int done = 0, n = 1;

    while (done < t->num_ready && n > 0) {
        n = t->engine->submit(t->queue, t->ready + done,
                              t->aio->o.single_submit ? 1 : t->num_ready - done);
        done += n > 0 ? n : 0;
    }
    t->in_flight += done;
    t->num_ready -= done;
    memmove(t->ready, t->ready + done,
            (size_t)t->num_ready * sizeof(const struct zt_aio_request *));
    if (n > 0 || (n == -EAGAIN && t->in_flight))
        return;
    while (t->num_ready) {
        int slot = t->ready[--t->num_ready]->id;

        end_request(t, slot, -n, t->slots[slot].at);
    }
}

/* Wait for at least `least` requests. With overlap_events one at a time is looked after: others move
 * while what it held is compared, and its place is taken again at once. */
static void reap(struct thread *t, int least)
{
    int most = t->aio->o.overlap_events ? 1 : t->in_flight;
    int n = t->engine->reap(t->queue, least, most, t->results);

    for (int i = 0; i < n; i++)
        end_with_result(t, &t->results[i]);
    t->in_flight -= n > 0 ? n : 0;
    if (n >= 0)
        return;
    /* not a thing that the kernel does to a valid queue */
    for (int i = 0; i < t->aio->o.queue_depth; i++)
        if (t->slots[i].job)
            end_request(t, i, -n, t->slots[i].at);
    t->in_flight = t->num_ready = 0;
}

/* Take what there is to do, or wait until there is any: how many requests. */
static int take_next(struct thread *t)
{
    struct zt_aio *a = t->aio;
    int before = t->num_ready;

    pthread_mutex_lock(&a->lock);
    for (;;) {
        if (!before)
            take_requests(t);
        if (t->num_ready || t->in_flight || a->stop)
            break;
        end_span(t);
        pthread_cond_wait(&a->started, &a->lock);
    }
    pthread_mutex_unlock(&a->lock);
    return t->num_ready - before;
}

static void *run_thread(void *ctx)
{
    struct thread *t = ctx;
    bool overlap = t->aio->o.overlap_events;

    for (;;) {
        int took = take_next(t);

        if (!t->num_ready && !t->in_flight)
            break;
        for (int i = 0; i < took; i++)
            keep_sums(&t->slots[t->ready[i]->id]);
        submit(t);
        if (t->in_flight) /* where there may be more to take, without waiting */
            reap(t, !overlap ? t->in_flight : took && t->num_free ? 0 : 1);
    }
    end_span(t);
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
    for (int i = 0; i < a->o.queue_depth; i++)
        t->free_slots[t->num_free++] = i;
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

    assert(bytes);
    *job = (struct zt_aio_job){.files = files,
                               .data = data,
                               .offset = offset,
                               .bytes = bytes,
                               .sums = sums,
                               .write = write};
    pthread_mutex_lock(&a->lock);
    for (; *last; last = &(*last)->next)
        job->num_before += meet(*last, job);
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
    while (!job->ended)
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
