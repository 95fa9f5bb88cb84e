#include "worker/offload/aio.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/trace/trace.h"
#include "common/trace/waits.h"

#define MAX_JOBS 64 /* started and not waited for; a tier has few buffers */

struct thread {
    struct zt_aio *aio;
    int index;
    pthread_t id;
    aio_context_t context; /* 0: the kernel has none to give; pread and pwrite then */
    struct iocb *slots;    /* queue_depth of them */
    struct iocb **ready;
    struct io_event *events;
    int *free_slots;
    struct zt_aio_job *jobs[MAX_JOBS]; /* a ring */
    unsigned head, tail;
};

struct zt_aio {
    struct zt_aio_options o;
    struct thread *threads;
    int num_threads; /* that run */
    pthread_mutex_t lock;
    pthread_cond_t started, ended;
    bool stop;
};

/* ---- requests ---- */

/* What is left of a thread's share of a job. */
struct aio_cursor {
    const struct zt_aio_job *job;
    size_t block_size, at, end; /* bytes of the store */
    size_t block, step;         /* this thread's next block, and from one to the next */
};

struct aio_request {
    int file;
    off_t offset; /* in the file */
    char *data;
    size_t bytes;
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

static bool next_request(struct aio_cursor *c, struct aio_request *r)
{
    size_t begin = c->block * c->block_size, end = begin + c->block_size;
    size_t n = (size_t)c->job->files->num;

    if (begin >= c->end)
        return false;
    r->file = (int)(c->block % n);
    r->offset = (off_t)(c->block / n * c->block_size);
    if (begin < c->at) {
        r->offset += (off_t)(c->at - begin);
        begin = c->at;
    }
    end = end < c->end ? end : c->end;
    r->data = c->job->data + (begin - c->job->offset);
    r->bytes = end - begin;
    c->block += c->step;
    return true;
}

static void note_error(struct zt_aio *a, struct zt_aio_job *job, int file, int error)
{
    pthread_mutex_lock(&a->lock);
    if (!job->error) {
        job->error = error;
        job->file = file;
    }
    pthread_mutex_unlock(&a->lock);
}

static bool has_failed(struct zt_aio *a, const struct zt_aio_job *job)
{
    bool failed;

    pthread_mutex_lock(&a->lock);
    failed = job->error != 0;
    pthread_mutex_unlock(&a->lock);
    return failed;
}

/* ---- one thread's share of a job, by the kernel's queue ---- */

static void fill_slot(struct iocb *s, const struct zt_aio_job *job,
                      const struct aio_request *r, int index)
{
    *s = (struct iocb){
        .aio_data = (uint64_t)index,
        .aio_lio_opcode = job->write ? IOCB_CMD_PWRITE : IOCB_CMD_PREAD,
        .aio_fildes = (uint32_t)job->files->fd[r->file],
        .aio_reqprio = 0,
        .aio_buf = (uint64_t)(uintptr_t)r->data,
        .aio_nbytes = r->bytes,
        .aio_offset = r->offset,
    };
}

/* Submit ready[from .. num): how many the kernel took; *error when it takes none. */
static int submit(struct thread *t, int from, int num, int *error)
{
    int step = t->aio->o.single_submit ? 1 : num - from, done = from;

    while (done < num) {
        long n = syscall(SYS_io_submit, t->context,
                         (long)(num - done < step ? num - done : step), t->ready + done);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            *error = n < 0 ? errno : EAGAIN;
            break;
        }
        done += (int)n;
    }
    return done;
}

static int file_of(const struct zt_aio_job *job, uint32_t fd)
{
    int i = 0;

    while (i < job->files->num - 1 && job->files->fd[i] != (int)fd)
        i++;
    return i;
}

/* Wait for at least `least` requests; their slots are free again. Returns how many. */
static int reap(struct thread *t, struct zt_aio_job *job, int least, int in_flight,
                int *num_free)
{
    long n;

    do
        n = syscall(SYS_io_getevents, t->context, (long)least, (long)in_flight, t->events,
                    NULL);
    while (n < 0 && errno == EINTR);
    for (long i = 0; i < n; i++) {
        const struct iocb *s = &t->slots[t->events[i].data];
        int64_t result = (int64_t)t->events[i].res;

        if (result != (int64_t)s->aio_nbytes)
            note_error(t->aio, job, file_of(job, s->aio_fildes),
                       result < 0 ? (int)-result : -1);
        t->free_slots[(*num_free)++] = (int)t->events[i].data;
    }
    return (int)n;
}

static void transfer_queued(struct thread *t, struct zt_aio_job *job)
{
    int depth = t->aio->o.queue_depth, num_free = depth, in_flight = 0, waiting = 0;
    struct aio_cursor c = first_request(t, job);
    struct aio_request r;
    bool more = true;

    for (int i = 0; i < depth; i++)
        t->free_slots[i] = i;
    while (more || waiting || in_flight) {
        int error = 0, taken;

        more = more && !has_failed(t->aio, job);
        while (more && num_free && (more = next_request(&c, &r))) {
            int slot = t->free_slots[--num_free];

            fill_slot(&t->slots[slot], job, &r, slot);
            t->ready[waiting++] = &t->slots[slot];
        }
        taken = submit(t, 0, waiting, &error);
        in_flight += taken;
        waiting -= taken;
        memmove(t->ready, t->ready + taken, (size_t)waiting * sizeof(struct iocb *));
        if (error && (error != EAGAIN || !in_flight)) {
            note_error(t->aio, job, 0, error);
            more = false;
            waiting = 0;
        }
        if (in_flight) {
            int n = reap(t, job, t->aio->o.overlap_events ? 1 : in_flight, in_flight,
                         &num_free);

            if (n < 0) { /* not a thing that the kernel does to a valid context */
                note_error(t->aio, job, 0, errno);
                return;
            }
            in_flight -= n;
        }
    }
}

/* The same where the kernel has no such queue: one request after the other. */
static void transfer_plain(struct thread *t, struct zt_aio_job *job)
{
    struct aio_cursor c = first_request(t, job);
    struct aio_request r;

    while (!has_failed(t->aio, job) && next_request(&c, &r)) {
        while (r.bytes) {
            int fd = job->files->fd[r.file];
            ssize_t n = job->write ? pwrite(fd, r.data, r.bytes, r.offset)
                                   : pread(fd, r.data, r.bytes, r.offset);

            if (n < 0 && errno == EINTR)
                continue;
            if (n <= 0) {
                note_error(t->aio, job, r.file, n < 0 ? errno : -1);
                break;
            }
            r.data += n;
            r.offset += n;
            r.bytes -= (size_t)n;
        }
    }
}

static void *run_thread(void *ctx)
{
    struct thread *t = ctx;
    struct zt_aio *a = t->aio;

    pthread_mutex_lock(&a->lock);
    for (;;) {
        struct zt_aio_job *job;

        while (t->head == t->tail && !a->stop)
            pthread_cond_wait(&a->started, &a->lock);
        if (t->head == t->tail)
            break;
        job = t->jobs[t->head++ % MAX_JOBS];
        pthread_mutex_unlock(&a->lock);
        zt_trace_thread("files");
        zt_trace_begin_with("files", job->write ? "write" : "read", "bytes",
                            (int64_t)job->bytes);
        if (t->context)
            transfer_queued(t, job);
        else
            transfer_plain(t, job);
        zt_trace_end();
        pthread_mutex_lock(&a->lock);
        if (--job->threads_left == 0)
            pthread_cond_broadcast(&a->ended);
    }
    pthread_mutex_unlock(&a->lock);
    return NULL;
}

/* ---- open and close ---- */

static bool open_thread(struct zt_aio *a, struct thread *t, int index)
{
    size_t depth = (size_t)a->o.queue_depth;

    t->aio = a;
    t->index = index;
    t->slots = calloc(depth, sizeof(*t->slots));
    t->ready = calloc(depth, sizeof(struct iocb *));
    t->events = calloc(depth, sizeof(*t->events));
    t->free_slots = calloc(depth, sizeof(*t->free_slots));
    if (!t->slots || !t->ready || !t->events || !t->free_slots)
        return false;
    if (syscall(SYS_io_setup, (long)depth, &t->context) < 0)
        t->context = 0;
    return true;
}

static void free_thread(struct thread *t)
{
    if (t->context)
        (void)syscall(SYS_io_destroy, t->context);
    free(t->slots);
    free(t->ready);
    free(t->events);
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

/* ---- files ---- */

/* A file without a name; on a file system that cannot, one whose name is gone at once. */
static int open_nameless(const char *dir, int flags)
{
    char path[4096];
    int fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC | flags, 0600);

    if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != ENOENT))
        return fd;
    if (snprintf(path, sizeof(path), "%s/zlaunch-swap-XXXXXX", dir) >= (int)sizeof(path))
        return -1;
    fd = mkostemp(path, O_CLOEXEC | flags);
    if (fd >= 0)
        (void)unlink(path);
    return fd;
}

static double free_bytes(int fd)
{
    struct statvfs fs;

    return fstatvfs(fd, &fs) ? 0 : (double)fs.f_bavail * (double)fs.f_frsize;
}

static zt_err open_file(struct zt_aio_files *f, const char *dir, size_t bytes,
                        struct zt_fault *fault)
{
    int fd = open_nameless(dir, O_DIRECT), rc;
    double left;

    if (fd < 0 && errno == EINVAL) {
        f->direct = false;
        fd = open_nameless(dir, 0);
    }
    if (fd < 0)
        return zt_fault_set(fault, ZT_E_CANTCREATE,
                            "nvme_path %s: no file can be made there: %s%s", dir,
                            strerror(errno), errno == ENOENT ? "; make the folder" : "");
    f->dir[f->num] = dir;
    f->fd[f->num++] = fd;
    left = free_bytes(fd); /* before: what was allocated of it is free again at the end */
    do
        rc = fallocate(fd, 0, 0, (off_t)bytes);
    while (rc && errno == EINTR);
    if (rc && (errno == EOPNOTSUPP || errno == ENOSYS))
        rc = ftruncate(fd, (off_t)bytes);
    return rc ? zt_fault_set(
                    fault, ZT_E_CANTCREATE,
                    "nvme_path %s: no room for the %.1f MiB of state of this "
                    "rank, of %.1f MiB that are free there (%s): make room, name "
                    "more folders, on other drives, or offload a smaller ratio",
                    dir, (double)bytes / (1 << 20), left / (1 << 20), strerror(errno))
              : ZT_OK;
}

zt_err zt_aio_files_open(const struct zt_aio *a, const char *const *dirs, size_t bytes,
                         struct zt_aio_files *out, struct zt_fault *fault)
{
    size_t bs = (size_t)a->o.block_size, blocks = (bytes + bs - 1) / bs, num = 0;
    zt_err rc = ZT_OK;

    *out = (struct zt_aio_files){.direct = true};
    while (num < ZT_AIO_MAX_FILES && dirs[num])
        num++;
    for (size_t i = 0; !rc && i < num; i++)
        rc = open_file(out, dirs[i], num == 1 ? bytes : (blocks + num - 1 - i) / num * bs,
                       fault);
    if (rc)
        zt_aio_files_close(out);
    return rc;
}

void zt_aio_files_close(struct zt_aio_files *f)
{
    for (int i = 0; i < f->num; i++)
        (void)close(f->fd[i]);
    f->num = 0;
}

/* ---- memory ---- */

void *zt_aio_memory_map(size_t bytes)
{
    void *p =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (p == MAP_FAILED)
        return NULL;
    (void)madvise(p, bytes, MADV_HUGEPAGE); /* advice: works without too */
    memset(p, 0, bytes);
    return p;
}

void zt_aio_memory_unmap(void *p, size_t bytes)
{
    if (p)
        (void)munmap(p, bytes);
}

/* ---- jobs ---- */

void zt_aio_start(struct zt_aio *a, struct zt_aio_job *job,
                  const struct zt_aio_files *files, bool write, void *data, size_t offset,
                  size_t bytes)
{
    *job = (struct zt_aio_job){.files = files,
                               .data = data,
                               .offset = offset,
                               .bytes = bytes,
                               .write = write,
                               .threads_left = a->num_threads};
    pthread_mutex_lock(&a->lock);
    for (int i = 0; i < a->num_threads; i++) {
        struct thread *t = &a->threads[i];

        t->jobs[t->tail++ % MAX_JOBS] = job;
    }
    pthread_cond_broadcast(&a->started);
    pthread_mutex_unlock(&a->lock);
}

zt_err zt_aio_wait(struct zt_aio *a, struct zt_aio_job *job, struct zt_fault *fault)
{
    const char *verb = job->write ? "writing" : "reading";

    zt_trace_begin("wait", "files");
    zt_wait_begin();
    pthread_mutex_lock(&a->lock);
    while (job->threads_left)
        pthread_cond_wait(&a->ended, &a->lock);
    pthread_mutex_unlock(&a->lock);
    zt_wait_end(ZT_WAIT_FILES);
    zt_trace_end();
    if (!job->error)
        return ZT_OK;
    if (job->error < 0)
        return zt_fault_set(fault, ZT_E_SYSTEM,
                            "nvme_path %s: %s %zu bytes of offloaded state ended early",
                            job->files->dir[job->file], verb, job->bytes);
    return zt_fault_set(fault, ZT_E_SYSTEM, "nvme_path %s: %s offloaded state: %s",
                        job->files->dir[job->file], verb, strerror(job->error));
}
