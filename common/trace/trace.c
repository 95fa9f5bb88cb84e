/*
 * trace.c -- recording: a track per thread, and the list of them.
 *
 * A thread finds its track through a thread-local pointer, so recording takes no lock.
 * Tracks outlive their threads and the trace: a thread that is late writes into memory
 * that is still there. The next zt_trace_open() frees them; the generation tells a
 * thread that its pointer is of an older trace.
 */
#include "common/trace/trace.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/trace/private.h"

#define DROPPED UINT32_MAX

struct kept_text {
    struct kept_text *next;
    char text[];
};

static struct {
    pthread_mutex_t lock; /* of tracks, num_tracks and texts */
    struct zt_track *tracks;
    int num_tracks;
    struct kept_text *texts;
    char *path;
    int rank, world;
    _Atomic unsigned generation;
    _Atomic uint64_t lost; /* events of threads without a track */
} trace = {.lock = PTHREAD_MUTEX_INITIALIZER};

bool zt_trace_recording;

static _Thread_local struct {
    struct zt_track *track;
    unsigned generation;
} mine;

int64_t zt_trace_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* ---- tracks ---- */

static struct zt_track *add_track(void)
{
    struct zt_track *t = calloc(1, sizeof(*t));

    if (!t)
        return NULL;
    pthread_mutex_lock(&trace.lock);
    t->tid = trace.num_tracks++;
    t->next = trace.tracks;
    trace.tracks = t;
    pthread_mutex_unlock(&trace.lock);
    return t;
}

/* Of the calling thread; NULL: memory is out. */
static struct zt_track *my_track(void)
{
    unsigned generation = atomic_load(&trace.generation);

    if (!mine.track || mine.generation != generation) {
        mine.track = add_track();
        mine.generation = generation;
    }
    return mine.track;
}

static void free_track(struct zt_track *t)
{
    for (int i = 0; i < ZT_TRACE_CHUNKS; i++)
        free(t->chunks[i]);
    free(t);
}

static struct zt_trace_event *event_at(const struct zt_track *t, uint32_t i)
{
    return &t->chunks[i / ZT_TRACE_CHUNK][i % ZT_TRACE_CHUNK];
}

static void count_drop(struct zt_track *t, int64_t at_ns)
{
    if (!atomic_load_explicit(&t->dropped, memory_order_relaxed))
        atomic_store_explicit(&t->dropped_ns, at_ns, memory_order_relaxed);
    atomic_fetch_add_explicit(&t->dropped, 1, memory_order_release);
}

/* Its place in the track, or DROPPED. */
static uint32_t append(struct zt_track *t, const char *category, const char *name,
                       const char *key, int64_t value, int64_t start_ns, int64_t took_ns)
{
    uint32_t i = atomic_load_explicit(&t->num, memory_order_relaxed);
    struct zt_trace_event *e;

    if (i < ZT_TRACE_MAX_EVENTS && !t->chunks[i / ZT_TRACE_CHUNK])
        t->chunks[i / ZT_TRACE_CHUNK] = calloc(ZT_TRACE_CHUNK, sizeof(*e));
    /* after a drop nothing is kept, so that the record has one end, not holes */
    if (i >= ZT_TRACE_MAX_EVENTS || !t->chunks[i / ZT_TRACE_CHUNK] ||
        atomic_load_explicit(&t->dropped, memory_order_relaxed)) {
        count_drop(t, start_ns);
        return DROPPED;
    }
    e = event_at(t, i);
    e->start_ns = start_ns;
    e->category = category;
    e->name = name;
    e->key = key;
    e->value = value;
    atomic_store_explicit(&e->took_ns, took_ns, memory_order_relaxed);
    atomic_store_explicit(&t->num, i + 1, memory_order_release);
    return i;
}

/* ---- recording ---- */

void zt_trace_record_thread(const char *name)
{
    struct zt_track *t = my_track();

    if (t)
        atomic_store(&t->name, name);
}

void zt_trace_record_begin(const char *category, const char *name, const char *key,
                           int64_t value)
{
    struct zt_track *t = my_track();

    if (!t)
        atomic_fetch_add(&trace.lost, 1);
    else if (t->depth < ZT_TRACE_MAX_DEPTH)
        t->open[t->depth++] =
            append(t, category, name, key, value, zt_trace_now(), ZT_TRACE_OPEN);
    else {
        t->depth++;
        count_drop(t, zt_trace_now());
    }
}

void zt_trace_record_end(void)
{
    struct zt_track *t = my_track();
    struct zt_trace_event *e;

    if (!t || !t->depth || --t->depth >= ZT_TRACE_MAX_DEPTH ||
        t->open[t->depth] == DROPPED)
        return;
    e = event_at(t, t->open[t->depth]);
    atomic_store_explicit(&e->took_ns, zt_trace_now() - e->start_ns,
                          memory_order_relaxed);
}

void zt_trace_record_span(const char *category, const char *name, const char *key,
                          int64_t value, int64_t began_ns)
{
    struct zt_track *t = my_track();

    if (t)
        append(t, category, name, key, value, began_ns, zt_trace_now() - began_ns);
    else
        atomic_fetch_add(&trace.lost, 1);
}

void zt_trace_record_instant(const char *category, const char *name)
{
    struct zt_track *t = my_track();

    if (t)
        append(t, category, name, NULL, 0, zt_trace_now(), ZT_TRACE_INSTANT);
    else
        atomic_fetch_add(&trace.lost, 1);
}

static const char *keep_text(const char *text)
{
    size_t n = strlen(text) + 1;
    struct kept_text *k = trace.texts;

    while (k && strcmp(k->text, text) != 0)
        k = k->next;
    if (k)
        return k->text;
    k = malloc(sizeof(*k) + n);
    if (!k)
        return "";
    memcpy(k->text, text, n);
    k->next = trace.texts;
    trace.texts = k;
    return k->text;
}

const char *zt_trace_text(const char *text)
{
    const char *kept;

    if (!zt_trace_on())
        return "";
    pthread_mutex_lock(&trace.lock);
    kept = keep_text(text);
    pthread_mutex_unlock(&trace.lock);
    return kept;
}

/* ---- opening and closing ---- */

/* What an earlier trace of this process left. */
static void forget(void)
{
    while (trace.tracks) {
        struct zt_track *t = trace.tracks;

        trace.tracks = t->next;
        free_track(t);
    }
    while (trace.texts) {
        struct kept_text *k = trace.texts;

        trace.texts = k->next;
        free(k);
    }
    trace.num_tracks = 0;
    atomic_store(&trace.lost, 0);
    atomic_fetch_add(&trace.generation, 1);
}

static zt_err check_folder(const char *path, struct zt_fault *fault)
{
    const char *slash = strrchr(path, '/');
    char *dir = !slash          ? strdup(".")
                : slash == path ? strdup("/")
                                : strndup(path, (size_t)(slash - path));
    struct stat sb;
    bool there = stat(path, &sb) == 0;
    zt_err rc = ZT_OK;

    if (!dir)
        return zt_fault_set(fault, ZT_E_NOMEM, "%s: no memory", path);
    if ((slash && !slash[1]) || (there && S_ISDIR(sb.st_mode)))
        rc = zt_fault_set(fault, ZT_E_CANTCREATE, "timeline %s: is a folder; give a file",
                          path);
    else if (there && !S_ISREG(sb.st_mode)) /* the file would take its place */
        rc = zt_fault_set(fault, ZT_E_CANTCREATE,
                          "timeline %s: is a device, a pipe or a socket; give a file",
                          path);
    else if (access(dir, W_OK | X_OK) < 0)
        rc = zt_fault_set(fault, ZT_E_CANTCREATE,
                          "timeline %s: cannot write to folder %s: %s", path, dir,
                          strerror(errno));
    free(dir);
    return rc;
}

zt_err zt_trace_open(const char *path, int rank, int world, struct zt_fault *fault)
{
    char *part;
    zt_err rc;

    if (!path)
        return ZT_OK;
    if (zt_trace_on())
        return zt_fault_set(fault, ZT_E_ARG, "timeline %s: %s is being recorded", path,
                            trace.path);
    rc = check_folder(path, fault);
    if (rc)
        return rc;
    forget();
    trace.path = strdup(path);
    part = zt_trace_part_path(path, rank);
    if (!trace.path || !part) {
        free(trace.path);
        free(part);
        return zt_fault_set(fault, ZT_E_NOMEM, "timeline %s: no memory", path);
    }
    unlink(part); /* of an earlier run that was killed: not to be taken for ours */
    free(part);
    trace.rank = rank;
    trace.world = world;
    __atomic_store_n(&zt_trace_recording, true, __ATOMIC_RELEASE);
    return ZT_OK;
}

zt_err zt_trace_close(struct zt_fault *fault)
{
    struct zt_trace_source src = {.path = trace.path};
    zt_err rc;

    if (!zt_trace_on())
        return ZT_OK;
    __atomic_store_n(&zt_trace_recording, false, __ATOMIC_RELEASE);
    src.rank = trace.rank;
    src.world = trace.world;
    src.now_ns = zt_trace_now();
    src.lost = atomic_load(&trace.lost);
    pthread_mutex_lock(&trace.lock); /* a late thread may be adding its track */
    src.tracks = trace.tracks;
    pthread_mutex_unlock(&trace.lock);
    rc = zt_trace_write(&src, fault);
    free(trace.path);
    trace.path = NULL;
    return rc;
}
