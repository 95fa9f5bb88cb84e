/*
 * atomic_file.h -- a file that appears whole, synced and under its name, or not at all.
 *
 * It is written as ".NAME.tmp" in the same folder and renamed at commit. The temporary
 * name is locked while in use and taken over when a killed process left one behind, so
 * leftovers never pile up.
 * A large file is written past the page cache, beside the caller (disk/write_behind.h), from
 * the first write on.
 * Ownership: the caller owns the struct.
 * Threads:   one.
 */
#ifndef WORKER_CHECKPOINT_ATOMIC_FILE_H
#define WORKER_CHECKPOINT_ATOMIC_FILE_H

#include "common/fault.h"

struct zt_write_behind;

struct zt_atomic_file {
    char *path, *tmp, *dir;
    int fd;                         /* -1: not open */
    size_t reserved;                /* large: it is written behind the caller; else 0 */
    struct zt_write_behind *behind; /* from its first write until it is synced */
    bool published;
};

/*
 * `bytes`: what will be written, reserved on the disk at once where the file system can;
 * 0: not known. ZT_E_CANTCREATE; the struct is then released already.
 */
zt_err zt_atomic_file_open(struct zt_atomic_file *f, const char *path, int64_t bytes,
                           struct zt_fault *fault) ZT_MUST_CHECK;
/* Memory that a file of so many bytes takes while it is written. */
size_t zt_atomic_file_buffer_bytes(int64_t bytes);
/* Remove temporary files that killed processes left in a folder; best effort. */
void zt_atomic_file_remove_stale(const char *dir);
/* What in a file of so many bytes should be a multiple of this if it is in memory, too: then
 * what is lent is not copied. */
size_t zt_atomic_file_align(int64_t bytes);
/* Append. ZT_E_CANTCREATE. */
zt_err zt_atomic_file_write(struct zt_atomic_file *f, const void *data, size_t bytes,
                            struct zt_fault *fault) ZT_MUST_CHECK;
/* Append bytes that stay as they are until the file is synced or released
 * (disk/write_behind.h). ZT_E_CANTCREATE. */
zt_err zt_atomic_file_lend(struct zt_atomic_file *f, const void *data, size_t bytes,
                           struct zt_fault *fault) ZT_MUST_CHECK;
/* Overwrite bytes that are written already; the end stays where it is. ZT_E_CANTCREATE. */
zt_err zt_atomic_file_write_at(struct zt_atomic_file *f, int64_t at, const void *data,
                               size_t bytes, struct zt_fault *fault) ZT_MUST_CHECK;
/* Data to the disk: the slow half of a commit. Optional before publish. */
zt_err zt_atomic_file_sync(struct zt_atomic_file *f,
                           struct zt_fault *fault) ZT_MUST_CHECK;
/* Sync, rename to the final name, sync the folder. */
zt_err zt_atomic_file_publish(struct zt_atomic_file *f,
                              struct zt_fault *fault) ZT_MUST_CHECK;
/* Removes the temporary file unless published. A zeroed struct with fd -1 is fine. */
void zt_atomic_file_release(struct zt_atomic_file *f);

#endif
