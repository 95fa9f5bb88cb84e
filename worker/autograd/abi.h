/*
 * abi.h -- structs that a plugin filled, read whatever minor version its header had.
 *
 * Such a struct says its own size. A shorter one is of an older header: the members that
 * are not there read as zero. A longer one cannot be: plugins of newer headers are
 * refused when they are loaded. Any other size is not one that a macro of the headers
 * wrote.
 */
#ifndef WORKER_AUTOGRAD_ABI_H
#define WORKER_AUTOGRAD_ABI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* The bytes of a struct up to the end of a member. */
#define ZT_ABI_THROUGH(type, member)                                                     \
    (offsetof(type, member) + sizeof(((type *)NULL)->member))

/*
 * Copy `bytes` of `from` to `to`, which has `to_bytes`, and zero the rest. `least`: up to
 * the last member that no version goes without. false: no header has this size; `to` is
 * as it was.
 */
static inline bool zt_abi_take(void *to, size_t to_bytes, const void *from,
                               uint32_t bytes, size_t least)
{
    if (bytes < least || bytes > to_bytes || bytes % 4)
        return false;
    memcpy(to, from, bytes);
    memset((char *)to + bytes, 0, to_bytes - bytes);
    return true;
}

#endif
