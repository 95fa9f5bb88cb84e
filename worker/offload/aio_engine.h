/*
 * aio_engine.h -- how requests of files reach the kernel. An engine is one file that fills
 * one struct zt_aio_engine, and one line of the list in aio_engines.c.
 *
 * A queue holds at most `depth` requests that are submitted and not reaped.
 *
 * Ownership: memory and descriptor of a request are the caller's, and stay until it is
 *            reaped; the struct itself is read during submit alone.
 * Threads:   one for each queue, after open.
 * Failure:   functions give an errno, negative where a count is positive. What one request
 *            met is in its result.
 */
#ifndef WORKER_OFFLOAD_AIO_ENGINE_H
#define WORKER_OFFLOAD_AIO_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct zt_aio_request {
    int id; /* the caller's; comes back with the result */
    int fd;
    bool write;
    char *data;
    size_t bytes; /* below 2 GiB */
    off_t offset; /* in the file */
};

struct zt_aio_result {
    int id;
    int64_t bytes; /* that were moved; below 0: -errno */
};

struct zt_aio_engine {
    const char *name; /* as --aio_engine and zio spell it; those of fio */

    /* 0, or why there is none: the kernel lacks it, or forbids it to this process. */
    int (*open)(int depth, void **queue);
    void (*close)(void *queue); /* nothing is in flight */

    /* In one system call, if there are such: how many of them were taken, from the first
     * on; below 0: -errno, and none was. EAGAIN: after some have been reaped. */
    int (*submit)(void *queue, const struct zt_aio_request *const *requests, int num);

    /* Wait for `least` of the requests in flight, take up to `most`: how many. */
    int (*reap)(void *queue, int least, int most, struct zt_aio_result *results);
};

extern const struct zt_aio_engine zt_aio_io_uring, zt_aio_libaio, zt_aio_psync;

/* Those that there are, as they are tried, NULL behind the last, which any kernel has. */
extern const struct zt_aio_engine *const zt_aio_engines[];

/* NULL: no engine is called so, or "auto". */
const struct zt_aio_engine *zt_aio_engine_find(const char *name);

/* The wanted engine (NULL: the first), or where the kernel does not let it, the first
 * behind it in the list that opens: its queue, and why it is not the wanted one in *refused,
 * an errno or 0. NULL: no memory. */
const struct zt_aio_engine *zt_aio_engine_open(const struct zt_aio_engine *wanted,
                                               int depth, void **queue, int *refused);

#endif
