/*
 * swap_faults.c -- a library to preload: one request of a rank to the files of offloaded
 * state fails.
 *
 *     SWAP_FAULT=KIND:N   in the rank SWAP_RANK the N-th request (from 0) fails: eio,
 *                         enospc, or short, which ends 4096 bytes early
 *     SWAP_COUNT=FILE     that rank writes how many requests there were when it ends
 *
 * The file tier reaches the kernel's queues through syscall(), so that is what stands
 * here. Of libaio a result is changed as the rank takes it. io_uring's results reach the
 * rank without a call, so the request is changed as it is submitted, into one of which the
 * kernel says the same: a write to /dev/full, a read of memory that is not there, one that
 * is shorter.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <linux/io_uring.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static atomic_long num_requests;
static long strike = -1; /* the request that fails */
static char kind[8];     /* eio, enospc, short */
static const char *count_file;
static int full = -1, no_memory = -1; /* /dev/full, /proc/self/mem */

/* ---- libaio ---- */

static void fail_event(struct io_event *event)
{
    int64_t result = (int64_t)event->res;

    if (strcmp(kind, "eio") == 0)
        result = -EIO;
    else if (strcmp(kind, "enospc") == 0)
        result = -ENOSPC;
    else
        result -= 4096;
    event->res = (__s64)result;
}

static void see_events(struct io_event *events, long n)
{
    for (long i = 0, at = atomic_fetch_add(&num_requests, n); i < n; i++, at++)
        if (at == strike)
            fail_event(events + i);
}

/* ---- io_uring ---- */

#define MOST_RINGS 256

/* By the descriptor; those of a rank are opened before its threads use them. */
static struct ring_seen {
    struct io_uring_params params;
    char *ring;
    struct io_uring_sqe *entries;
} rings[MOST_RINGS];

static void fail_entry(struct io_uring_sqe *e)
{
    if (strcmp(kind, "short") == 0) {
        e->len -= 4096;
        return;
    }
    e->opcode = strcmp(kind, "eio") == 0 ? IORING_OP_READ : IORING_OP_WRITE;
    e->fd = strcmp(kind, "eio") == 0 ? no_memory : full;
    e->off = 0;
}

static void see_entries(int fd, unsigned n)
{
    const struct ring_seen *r = &rings[fd];
    unsigned tail = atomic_load((_Atomic unsigned *)(r->ring + r->params.sq_off.tail));
    long at = atomic_fetch_add(&num_requests, (long)n);

    for (unsigned i = tail - n; i != tail; i++, at++)
        if (at == strike)
            fail_entry(&r->entries[i & (r->params.sq_entries - 1)]);
}

void *mmap(void *addr, size_t bytes, int prot, int flags, int fd, off_t offset)
{
    static void *(*real)(void *, size_t, int, int, int, off_t);
    void *p;

    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "mmap");
    p = real(addr, bytes, prot, flags, fd, offset);
    if (fd < 0 || fd >= MOST_RINGS || !rings[fd].params.sq_entries || p == MAP_FAILED)
        return p;
    if ((unsigned long long)offset == IORING_OFF_SQ_RING)
        rings[fd].ring = p;
    if ((unsigned long long)offset == IORING_OFF_SQES)
        rings[fd].entries = p;
    return p;
}

/* ---- both ---- */

long syscall(long number, ...)
{
    static long (*real)(long, ...);
    long a[6], n;
    va_list args;

    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "syscall");
    va_start(args, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(args, long);
    va_end(args);
    if (number == SYS_io_uring_enter && a[1] > 0)
        see_entries((int)a[0], (unsigned)a[1]);
    n = real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
    if (number == SYS_io_uring_setup && n >= MOST_RINGS)
        abort();
    if (number == SYS_io_uring_setup && n >= 0)
        rings[n] = (struct ring_seen){.params = *(struct io_uring_params *)a[1]};
    if (number == SYS_io_getevents && n > 0)
        see_events((struct io_event *)a[3], n);
    return n;
}

__attribute__((constructor)) static void begin(void)
{
    const char *fault = getenv("SWAP_FAULT"), *rank = getenv("RANK");
    const char *which = getenv("SWAP_RANK");

    if (!rank || !which || strcmp(rank, which) != 0)
        return;
    count_file = getenv("SWAP_COUNT");
    if (fault && sscanf(fault, "%7[^:]:%ld", kind, &strike) != 2)
        abort();
    full = open("/dev/full", O_WRONLY | O_CLOEXEC);
    no_memory = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
    if (full < 0 || no_memory < 0)
        abort();
}

__attribute__((destructor)) static void end(void)
{
    FILE *f = count_file ? fopen(count_file, "w") : NULL;

    if (!f)
        return;
    fprintf(f, "%ld\n", atomic_load(&num_requests));
    if (fclose(f))
        abort();
}
