/*
 * swap_faults.c -- a library to preload: one request of a rank to the files of offloaded
 * state fails.
 *
 *     SWAP_FAULT=KIND:N   in the rank SWAP_RANK the N-th request that the kernel has done
 *                         (from 0) is reported as failed: eio, enospc, or short, which
 *                         ends 4096 bytes early
 *     SWAP_COUNT=FILE     that rank writes how many requests were done when it ends
 *
 * The file tier reaches the kernel's queues through syscall(), so that is what stands
 * here.
 */
#include <dlfcn.h>
#include <errno.h>
#include <linux/aio_abi.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static atomic_long done;
static long strike = -1; /* the request that fails */
static char kind[8];     /* eio, enospc, short */
static const char *count_file;

static void fail_request(struct io_event *event)
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
    n = real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
    if (number != SYS_io_getevents || n <= 0)
        return n;
    for (long i = 0, at = atomic_fetch_add(&done, n); i < n; i++, at++)
        if (at == strike)
            fail_request((struct io_event *)a[3] + i);
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
}

__attribute__((destructor)) static void end(void)
{
    FILE *f = count_file ? fopen(count_file, "w") : NULL;

    if (!f)
        return;
    fprintf(f, "%ld\n", atomic_load(&done));
    if (fclose(f))
        abort();
}
