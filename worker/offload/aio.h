/*
 * aio.h -- bytes of files, read and written in the background by one of the engines of
 * aio_engine.h.
 *
 *      bytes of a store, in blocks of `block_size`, over two files of two drives:
 *      | 0 | 1 | 2 | 3 | 4 |      file 0: | 0 | 2 | 4 |      file 1: | 1 | 3 |
 *
 * Each of `threads` threads has a queue of its own, which it fills with up to `queue_depth`
 * requests, of one job or of several: as one ends the next is submitted (overlap_events), or the
 * next ones when all have ended. What is left of a job is taken by whichever has room.
 *
 * Order:     requests of the job that is waited for come first, then reads, then writes; but of
 *            jobs that touch the same bytes, of memory or of a file, the one that was started
 *            first ends before the other begins.
 *
 * Files are opened past the page cache where the file system can (O_DIRECT) and have no
 * name, so nothing is left of them when the process ends, however it ends.
 * Ownership: a job is the caller's and stays where it is until zt_aio_wait() returns.
 * Threads:   start and wait from one thread.
 * Failure:   the first error of a job is kept; zt_aio_wait() names the file.
 */
#ifndef WORKER_OFFLOAD_AIO_H
#define WORKER_OFFLOAD_AIO_H

#include <stddef.h>
#include <stdint.h>

#include "common/fault.h"
#include "worker/offload/aio_engine.h"

#define ZT_AIO_MAX_FILES   16
#define ZT_AIO_MAX_THREADS 256
#define ZT_AIO_SUM_BYTES   ((size_t)4096) /* that a checksum is of */

struct zt_aio_options {
    int64_t block_size; /* bytes of a request; a multiple of 4096 */
    int queue_depth, threads;
    const struct zt_aio_engine *engine; /* NULL: the first that the kernel has */
    bool single_submit;                 /* one system call for each request */
    bool overlap_events; /* submit as requests end, rather than when all have */
};

struct zt_aio_files {
    int num;
    int fd[ZT_AIO_MAX_FILES];
    const char *dir[ZT_AIO_MAX_FILES]; /* the caller's */
    bool direct;                       /* all of them are past the page cache */
};

struct zt_aio_job {
    const struct zt_aio_files *files;
    char *data;
    size_t offset, bytes;
    uint64_t *sums;
    bool write;
    /* zt_aio's own */
    struct zt_aio_job *next; /* the one that was started behind it and has not ended */
    int num_before; /* of those before it that it meets and that have not ended */
    size_t taken;   /* bytes, from the first on, that a thread has made requests of */
    int moving;     /* requests that have not ended */
    bool ended;
    int error; /* of the first failure: errno, or one of enum aio_error */
    int file;  /* of which it is */
    size_t at; /* the byte of the store where its request begins */
};

struct zt_aio;

zt_err zt_aio_open(const struct zt_aio_options *o, struct zt_aio **out,
                   struct zt_fault *fault) ZT_MUST_CHECK;
void zt_aio_close(struct zt_aio *a); /* NULL is fine; nothing is in flight */

/* Of the engine that does it: the wanted one, or where the kernel refused it another. */
const char *zt_aio_engine_name(const struct zt_aio *a);
size_t zt_aio_block_bytes(const struct zt_aio *a); /* block_size */

uint64_t zt_aio_sum(const void *data); /* of ZT_AIO_SUM_BYTES */

/* Whether files can be made in these folders (NULL: none), also where nothing is to be kept
 * there yet. ZT_E_CANTCREATE. */
zt_err zt_aio_check_folders(const char *const *dirs,
                            struct zt_fault *fault) ZT_MUST_CHECK;
/* Files for `bytes` bytes in these folders, all zero, with room on the drives. Where there is
 * none the message says what of, and what helps (NULL: nothing is to be said). */
zt_err zt_aio_files_open(const struct zt_aio *a, const char *const *dirs, size_t bytes,
                         const char *what, const char *advice, struct zt_aio_files *out,
                         struct zt_fault *fault) ZT_MUST_CHECK;
void zt_aio_files_close(struct zt_aio_files *f);

/* Memory to measure with, all zero: of huge pages where there are any, as the buffers of
 * stores are: many drives take twice as long over small ones, each of which is a segment.
 * NULL: none. */
void *zt_aio_memory_map(size_t bytes);
void zt_aio_memory_unmap(void *p, size_t bytes); /* NULL is fine */

/* offset, bytes (not 0) and the address: multiples of 4096. sums (the caller's; NULL: none): one of
 * every ZT_AIO_SUM_BYTES of the store from its first byte on, kept of what is written and
 * compared with what is read, by the threads that do it. */
void zt_aio_start(struct zt_aio *a, struct zt_aio_job *job,
                  const struct zt_aio_files *files, bool write, void *data, size_t offset,
                  size_t bytes, uint64_t *sums);
zt_err zt_aio_wait(struct zt_aio *a, struct zt_aio_job *job,
                   struct zt_fault *fault) ZT_MUST_CHECK;

#endif
