/*
 * read_ahead.h -- ranges of files, in an order that is known beforehand, read past the page
 * cache before they are asked for.
 *
 *      zt_read_ahead_expect    each range, in order; neighbours in a file become one read
 *      zt_read_ahead_start     threads read, a few blocks ahead
 *      zt_read_ahead_take      the next range
 *
 * Where the file system has no O_DIRECT, or `shared` says that others on this machine read
 * the same, they read through the page cache.
 * Threads:   one makes all calls.
 */
#ifndef WORKER_CHECKPOINT_DISK_READ_AHEAD_H
#define WORKER_CHECKPOINT_DISK_READ_AHEAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ZT_READ_AHEAD_BLOCK   ((size_t)4 << 20)
#define ZT_READ_AHEAD_BUFFERS 4 /* of a block, or of the longest range */

struct zt_read_ahead;

struct zt_read_ahead *zt_read_ahead_open(bool shared); /* NULL: no memory */
/* What is still being read is given up. NULL is fine. */
void zt_read_ahead_close(struct zt_read_ahead *r);

/* `fd` is the caller's and stays open. False: no memory. */
bool zt_read_ahead_expect(struct zt_read_ahead *r, int fd, int64_t at, size_t bytes);
/* Of memory from start to close, where no range is longer than `longest`. */
size_t zt_read_ahead_bytes(size_t longest);
/* False: no memory, or no thread. */
bool zt_read_ahead_start(struct zt_read_ahead *r);
/*
 * The bytes of the next range that was expected, valid until the next call. NULL: it is not
 * this one (*error is 0), or it could not be read: errno, or -1 when the file ends before.
 */
const void *zt_read_ahead_take(struct zt_read_ahead *r, int fd, int64_t at, size_t bytes,
                               int *error);

#endif
