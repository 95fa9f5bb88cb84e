/*
 * zip.h -- the members of a zip archive that is mapped, where they lie.
 *
 * For the archives that torch.save writes: members are stored, not compressed, so each is
 * a range of the mapping. Sizes are taken from the central directory, since the local
 * headers of PyTorch leave them out. PyTorch can be told to leave check sums out as well,
 * they are 0 then. A reader of its own, because the libraries that there are
 * copy members through buffers and cannot say where a member lies.
 * Ownership: names and data belong to the mapping, the table to the struct.
 * Threads:   an open archive may be read by several.
 */
#ifndef WORKER_TORCH_FILE_ZIP_H
#define WORKER_TORCH_FILE_ZIP_H

#include "common/fault.h"

struct zt_zip_member {
    const char *name; /* without a NUL */
    size_t name_bytes;
    const uint8_t *data;
    size_t bytes;
    uint32_t crc; /* of the data; 0: not known */
};

struct zt_zip {
    struct zt_zip_member *members; /* sorted by name */
    size_t num;
};

/* `path` is what messages call it. ZT_E_FORMAT: malformed or truncated; ZT_E_UNSUPPORTED: a
 * member is compressed or encrypted, or the archive has several volumes. */
zt_err zt_zip_open(const char *path, const uint8_t *data, size_t bytes,
                   struct zt_zip *out, struct zt_fault *fault) ZT_MUST_CHECK;
void zt_zip_release(struct zt_zip *z); /* a zeroed struct is fine */

/* The member FOLDER/NAME, where FOLDER is `folder_bytes` long. NULL: there is none. */
const struct zt_zip_member *zt_zip_find(const struct zt_zip *z, const char *folder,
                                        size_t folder_bytes, const char *name);

/* Are the data those that were written? Reads all of them. ZT_E_FORMAT: no. */
zt_err zt_zip_check(const char *path, const struct zt_zip_member *m,
                    struct zt_fault *fault) ZT_MUST_CHECK;

#endif
