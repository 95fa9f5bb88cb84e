/*
 * zip_write.h -- a zip archive of stored members, written as a stream.
 *
 * The data of each member begin at a multiple of 64 bytes, as torch.save has it, and
 * sizes above 4 GiB are 64-bit fields. A member's size is known when it begins; its check sum
 * is put into its header when it ends.
 * Ownership: the caller owns the struct; release removes a file that is not published.
 * Threads:   one.
 */
#ifndef WORKER_TORCH_FILE_ZIP_WRITE_H
#define WORKER_TORCH_FILE_ZIP_WRITE_H

#include "common/buf.h"
#include "worker/checkpoint/atomic_file.h"

struct zt_zip_writer {
    struct zt_atomic_file file;
    struct zt_buf directory;
    uint64_t at, num;
    /* the member that is being written */
    char name[64]; /* empty: none yet */
    uint64_t header_at, size, left;
    uint32_t crc;
};

/* `bytes`: about what will be written. ZT_E_CANTCREATE. */
zt_err zt_zip_writer_open(struct zt_zip_writer *w, const char *path, int64_t bytes,
                          struct zt_fault *fault) ZT_MUST_CHECK;
/* A member of this size; its bytes follow by put, in pieces of any size. */
zt_err zt_zip_writer_begin(struct zt_zip_writer *w, const char *name, uint64_t size,
                           struct zt_fault *fault) ZT_MUST_CHECK;
zt_err zt_zip_writer_put(struct zt_zip_writer *w, const void *data, size_t bytes,
                         struct zt_fault *fault) ZT_MUST_CHECK;
zt_err zt_zip_writer_publish(struct zt_zip_writer *w,
                             struct zt_fault *fault) ZT_MUST_CHECK;
void zt_zip_writer_release(struct zt_zip_writer *w);

/* CRC-32 as zip has it; continues from `crc` (0 at the beginning). */
uint32_t zt_crc32(uint32_t crc, const void *data, size_t bytes);

#endif
