/*
 * regions.h -- the model state of a rank: one region for each kind, reached in pieces.
 *
 *      region of a kind:  | block 0 ...... | block 1 .. | block 2 .......... |
 *      pieces of block 2:                               | 0    | 1    | 2    |
 *
 * A region is kept in a tier (worker/offload/tier.h): in device memory, in host memory,
 * in files. Where a part of it is offloaded, whole blocks are, the first ones, until
 * offload_ratio of the elements are; the others stay in device memory. Of weights that go to
 * files the first blocks may be in host memory. Code acquires a piece, works on its memory
 * and commits it. What a tier moves is moved by these calls, so nobody else knows where
 * state is.
 *
 * S1: a region holds of a block all of its flat buffer, or part `part` of `parts` equal
 *     ones: elements [part * n, (part + 1) * n), n = padded_elems / parts.
 * S2: pieces begin and end at multiples of ZT_SHARD_ALIGN elements of the flat buffer,
 *     and blocks begin at such multiples of a region. So no piece cuts a chunk of a norm,
 *     and each begins and ends at a multiple of ZT_TIER_ALIGN bytes of its tier.
 * S3: the address of a piece is used between acquire and commit only. Every acquire has
 *     its commit, also when something failed in between; zt_region_close() checks it.
 */
#ifndef WORKER_ZERO_REGIONS_H
#define WORKER_ZERO_REGIONS_H

#include "worker/offload/tier.h"
#include "worker/zero/zero.h"

/* Where the device memory of a region is from. */
typedef enum zt_memory_kind {
    ZT_MEMORY_PRIVATE, /* of the backend: this rank's alone */
    ZT_MEMORY_PEERS,   /* of the communicator: peers read it in place */
    ZT_MEMORY_GROUP,   /* of the communicator of the secondary shards */
    ZT_MEMORY_NODE,    /* one copy for all ranks of the node */
} zt_memory_kind;

/* The stores of a region: every block is in one of them. */
typedef enum zt_store_kind {
    ZT_STORE_DEVICE, /* device memory */
    ZT_STORE_HOST, /* host memory, for those of the offloaded ones that are not in files */
    ZT_STORE_OFFLOADED, /* the tier that the config names */
    ZT_NUM_STORES
} zt_store_kind;

/* The blocks of a region that are in one tier. */
struct zt_region_store {
    const struct zt_tier *tier;
    void *store; /* of the tier; NULL: no block is in it */
    size_t bytes;
};

struct zt_region {
    struct zt_zero *zero;
    zt_state_kind kind;
    zt_dtype dtype;
    struct zt_region_store stores[ZT_NUM_STORES];
    zt_memory_kind memory;
    int parts, part;
    int64_t *offset;    /* per block: its first element in its store; -1: it has none */
    bool *whole;        /* per block: all of it is here */
    zt_store_kind *in;  /* per block: its store */
    int64_t num_pieces; /* acquired and not yet committed */
};

/* What a caller of zt_state_acquire() has until zt_state_commit(). */
struct zt_piece {
    void *data;       /* device memory: element `begin` of the block's flat buffer */
    int64_t begin, n; /* elements */
    zt_dtype dtype;
    zt_access access;
    struct zt_region *region; /* NULL: nothing is acquired */
    struct zt_region_store *from;
    size_t offset; /* bytes in that store */
};

/* Element i of the block's flat buffer, which is in the piece. */
static inline void *zt_piece_at(const struct zt_piece *p, int64_t i)
{
    return (char *)p->data + (size_t)(i - p->begin) * zt_dtype_bytes(p->dtype);
}

/* ---- what there is ---- */

/* Whether this rank keeps such state for the block. */
bool zt_state_has(const struct zt_zero *z, zt_state_kind kind, const struct zt_block *b);
/* Elements [*begin, *begin + *n) of the block's flat buffer are those it keeps. */
void zt_state_held(const struct zt_zero *z, zt_state_kind kind, const struct zt_block *b,
                   int64_t *begin, int64_t *n);
/* The longest piece of the block, in elements; INT64_MAX: no limit. */
int64_t zt_state_piece_elems(const struct zt_zero *z, zt_state_kind kind,
                             const struct zt_block *b);
/* Whether a piece of the block's state is that state's own memory. */
bool zt_state_in_place(const struct zt_zero *z, zt_state_kind kind,
                       const struct zt_block *b);

/* Whether the block's state stays where kernels work on it: all of it can be acquired at once, to be
 * read, as long as wanted and by several. The same in a plan and at any time. */
bool zt_state_is_resident(const struct zt_zero *z, zt_state_kind kind,
                          const struct zt_block *b);

/* Whether all that this rank keeps of the block can be acquired at once now, and worked on where it
 * is, in a tier that moves pieces as well. */
bool zt_state_lends(const struct zt_zero *z, zt_state_kind kind,
                    const struct zt_block *b);

/* ---- pieces ---- */

/*
 * Elements from `begin` on, at most n of them: piece->n says how many, less than n when
 * the tier has shorter pieces. The block has such state, and begin and n obey S2. With
 * ZT_WRITE all elements of the piece have to be written.
 */
zt_err zt_state_acquire(struct zt_zero *z, zt_state_kind kind, const struct zt_block *b,
                        int64_t begin, int64_t n, zt_access access,
                        struct zt_piece *piece, struct zt_fault *fault) ZT_MUST_CHECK;

/* The same for any range: the piece begins at or before `begin`, and ends behind the last
 * element or at the limit of the tier. With ZT_WRITE it is read, too, where it is more
 * than the range. */
zt_err zt_state_acquire_around(struct zt_zero *z, zt_state_kind kind,
                               const struct zt_block *b, int64_t begin, int64_t n,
                               zt_access access, struct zt_piece *piece,
                               struct zt_fault *fault) ZT_MUST_CHECK;

/* All that this rank keeps of the block, for work in place, where it is kept so or the tier lends it. */
zt_err zt_state_acquire_all(struct zt_zero *z, zt_state_kind kind,
                            const struct zt_block *b, zt_access access,
                            struct zt_piece *piece, struct zt_fault *fault) ZT_MUST_CHECK;

/* Elements that are acquired soon may begin to move; *begun: all do, or need not. */
zt_err zt_state_prefetch(struct zt_zero *z, zt_state_kind kind, const struct zt_block *b,
                         int64_t begin, int64_t n, bool *begun,
                         struct zt_fault *fault) ZT_MUST_CHECK;

/*
 * Give a piece back; what was written goes to where the state is kept. rc: how the work
 * on the piece went; when it failed nothing is written back, and rc is returned. A piece
 * that is not acquired is left alone.
 */
zt_err zt_state_commit(struct zt_piece *piece, zt_err rc,
                       struct zt_fault *fault) ZT_MUST_CHECK;

/* ---- opening ---- */

/*
 * Lay out a region: every block gets a place, but frozen ones without `frozen_too`, whole
 * or as a part. r->offset, r->whole and r->in may be changed before zt_region_fill()
 * takes the memory from the tiers.
 */
zt_err zt_region_open(struct zt_zero *z, zt_state_kind kind, zt_dtype dtype,
                      bool frozen_too, bool whole, struct zt_fault *fault) ZT_MUST_CHECK;
/* in_place: blocks or collectives work on it where it is. */
zt_err zt_region_fill(struct zt_zero *z, zt_state_kind kind, zt_memory_kind memory,
                      bool in_place, struct zt_fault *fault) ZT_MUST_CHECK;
void zt_region_close(struct zt_zero *z, zt_state_kind kind);

/* Add what the region takes, to bytes[ZT_NUM_PLACES]. */
void zt_region_measure(const struct zt_region *r, size_t *bytes);

/* Device memory of a kind; memory of a communicator is freed with it. */
zt_err zt_memory_alloc(struct zt_zero *z, zt_memory_kind memory, size_t bytes, void **out,
                       struct zt_fault *fault) ZT_MUST_CHECK;
void zt_memory_free(struct zt_zero *z, zt_memory_kind memory, void *p, size_t bytes);

#endif
