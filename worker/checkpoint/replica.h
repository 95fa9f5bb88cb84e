/*
 * replica.h -- copies of a rank's state in a memory file that outlives the rank.
 *
 *      | head | area own 0 | area own 1 | area copy 0 | area copy 1 |
 *                  |            |              +------------+-- of a rank on another node
 *                  +------------+-- of this rank
 *      an area:  | its head, with a text | data |
 *
 * The daemon of the node makes the file and keeps it; a rank maps it. Of both there are two
 * areas, so that one is whole while the other is filled: zt_replica_begin() says that an
 * area holds nothing, zt_replica_seal() that it is whole, with a checksum of its data. A
 * rank that is killed in between leaves an area that holds nothing.
 * Ownership: the descriptor stays the caller's. Memory is that of the file.
 * Threads:   one.
 * Failure:   zt_replica_open() takes all memory, so that none is missing later.
 */
#ifndef WORKER_CHECKPOINT_REPLICA_H
#define WORKER_CHECKPOINT_REPLICA_H

#include <stddef.h>

#include "common/fault.h"

#define ZT_REPLICA_SLOTS 2
#define ZT_REPLICA_TEXT  (32u << 10) /* bytes of a text at most, with its NUL */
#define ZT_REPLICA_HEAD  (64u << 10) /* bytes of an area before its data */

typedef enum zt_replica_whose { ZT_REPLICA_OWN, ZT_REPLICA_COPY } zt_replica_whose;

struct zt_replica;

struct zt_replica_config {
    int fd;
    /* What the data of an area are: areas that were filled with another one are empty. */
    uint64_t layout[2];   /* by whose */
    size_t data_bytes[2]; /* room for data in an area; copy 0: there are no copies */
};

/* Bytes that an area for so much data takes, and the whole file. */
size_t zt_replica_area_bytes(size_t data_bytes);
size_t zt_replica_file_bytes(size_t own_bytes, size_t copy_bytes);

/* What areas of the same configuration hold is still there. ZT_E_NOMEM: the memory cannot
 * be had; ZT_E_SYSTEM. */
zt_err zt_replica_open(const struct zt_replica_config *cfg, struct zt_replica **out,
                       struct zt_fault *fault) ZT_MUST_CHECK;
void zt_replica_close(struct zt_replica *r); /* NULL is fine; the file stays */

/* The area holds nothing from here on. Its memory for data. */
void *zt_replica_begin(struct zt_replica *r, zt_replica_whose whose, int slot);
/* It holds `bytes` of data, of after step `step`, and the text. ZT_E_LIMIT: that is too
 * long. */
zt_err zt_replica_seal(struct zt_replica *r, zt_replica_whose whose, int slot,
                       int64_t step, size_t bytes, const char *text,
                       struct zt_fault *fault) ZT_MUST_CHECK;

/* The step of what the area holds; -1: nothing. Its data may be damaged. */
int64_t zt_replica_step(const struct zt_replica *r, zt_replica_whose whose, int slot);
/* Of an area that holds something: whether its data are those that were sealed. */
bool zt_replica_is_whole(const struct zt_replica *r, zt_replica_whose whose, int slot);
const char *zt_replica_text(const struct zt_replica *r, zt_replica_whose whose, int slot);

/* ---- from one rank's area to another's ---- */

/* The area as bytes; sent and stored in any pieces, of which the first ZT_REPLICA_HEAD
 * bytes are the last: before all zt_replica_begin() was called, with these it is sealed. */
char *zt_replica_area(struct zt_replica *r, zt_replica_whose whose, int slot,
                      size_t *bytes);
#endif
