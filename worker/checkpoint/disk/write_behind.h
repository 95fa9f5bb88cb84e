/*
 * write_behind.h -- bytes of a file that are written past the page cache while the next ones
 * are made.
 *
 *      |  block 0  |  block 1  |  block 2  |  block 3  |  block 0  |  rest |
 *       are written, each by a thread ...   is filled
 *
 * The page cache would take a copy of everything, in memory that the training needs, only to
 * write it a second later. Where the file system has no O_DIRECT the threads write through it.
 * What is lent is written from where it is: nobody copies it, and a drive takes huge pages in few segments.
 * Threads:   one makes all calls.
 * Failure:   errno of the first write that failed: at the next call, and at all after it.
 */
#ifndef WORKER_CHECKPOINT_DISK_WRITE_BEHIND_H
#define WORKER_CHECKPOINT_DISK_WRITE_BEHIND_H

#include <stddef.h>

#define ZT_WRITE_BEHIND_ALIGN  ((size_t)4096) /* of addresses and places, on any drive */
#define ZT_WRITE_BEHIND_BLOCK  ((size_t)4 << 20)
#define ZT_WRITE_BEHIND_BLOCKS 4
#define ZT_WRITE_BEHIND_BYTES                                                            \
    (ZT_WRITE_BEHIND_BLOCKS * ZT_WRITE_BEHIND_BLOCK) /* of memory, while it is open */

struct zt_write_behind;

/* From the beginning of a file, which stays the caller's, of `bytes` as far as is known: it has this
 * length until it is finished, because a file system takes several writes at once only within a file.
 * NULL: no memory, or no thread. */
struct zt_write_behind *zt_write_behind_open(int fd, size_t bytes);
/* Append; the bytes are the caller's again. 0 or errno. */
int zt_write_behind_put(struct zt_write_behind *w, const void *data, size_t bytes);
/* Append bytes that stay as they are until it is finished or closed. It copies none of those that follow each other in
 * memory, call after call, where the first one's address is that of its place in the file modulo ZT_WRITE_BEHIND_ALIGN. */
int zt_write_behind_lend(struct zt_write_behind *w, const void *data, size_t bytes);
/* Until all is written, though not synced; the file ends there. 0 or errno. */
int zt_write_behind_finish(struct zt_write_behind *w);
/* What is not written is given up. NULL is fine. */
void zt_write_behind_close(struct zt_write_behind *w);

#endif
