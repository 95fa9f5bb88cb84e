/*
 * mapped_file.h -- a whole file, mapped read-only.
 *
 * Ownership: the caller owns the struct; release unmaps. An empty file maps to NULL.
 * Threads:   reading from any; open and release from one.
 * The file must not shrink while it is mapped: the kernel would end the process.
 */
#ifndef COMMON_MAPPED_FILE_H
#define COMMON_MAPPED_FILE_H

#include "common/fault.h"

struct zt_mapping {
    const uint8_t *data; /* page aligned */
    size_t bytes;
};

/* ZT_E_NOINPUT: missing, unreadable, or no regular file; ZT_E_NOMEM: no room to map. */
zt_err zt_mapping_open(const char *path, struct zt_mapping *out,
                       struct zt_fault *fault) ZT_MUST_CHECK;
/* Its pages no longer count as memory of this process; what is read again is mapped again. */
void zt_mapping_forget(const struct zt_mapping *m);
/* The same of bytes [from, to), and what stands before them on their first page. */
void zt_mapping_forget_part(const struct zt_mapping *m, size_t from, size_t to);
void zt_mapping_release(struct zt_mapping *m); /* a zeroed struct is fine */

#endif
