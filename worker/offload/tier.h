/*
 * tier.h -- where a region of model state is kept, and how pieces of it are reached.
 *
 *      tier     the state is in     acquire                      commit
 *      device   device memory       gives its address            nothing to do
 *      host     host memory         copies it into a device      copies it back, when it
 *                                   buffer, when it is read      was written
 *        where kernels work there   gives its address            nothing to do
 *      file     files               reads it into a buffer       begins to write it,
 *                                   of host memory               when it was written
 *
 * A tier is one file that fills one struct zt_tier. A store is what a tier keeps of one
 * region: `bytes` bytes that begin as zero. Code never keeps the address of a piece
 * beyond its commit: in a tier that moves pieces the buffer belongs to another piece
 * then. With AddressSanitizer such buffers are out of bounds between commit and acquire.
 *
 * Order:     copies are queued on the device's main stream, so kernels that are queued
 *            there after acquire and before commit read and write the right bytes.
 * Alignment: offset and length of a piece are multiples of ZT_TIER_ALIGN, which is what
 *            direct file access needs.
 * Threads:   one. Failure: after an error of a call only close().
 */
#ifndef WORKER_OFFLOAD_TIER_H
#define WORKER_OFFLOAD_TIER_H

#include "kernels/backend.h"
#include "worker/offload/aio.h"

#define ZT_TIER_ALIGN ((size_t)4096)

/* What memory is of, as a plan accounts for it. */
typedef enum zt_memory_place {
    ZT_PLACE_DEVICE, /* on a processor: the host's own memory */
    ZT_PLACE_PINNED, /* host memory that transfers reach without a staging copy */
    ZT_PLACE_HOST,
    ZT_PLACE_FILE,
    ZT_NUM_PLACES
} zt_memory_place;
const char *zt_memory_place_name(
    zt_memory_place place); /* "device", "pinned host", ... */

typedef enum zt_access {
    ZT_READ = 1,
    ZT_WRITE = 2, /* all of the piece is written: what was there need not be read */
    ZT_READ_WRITE = 3,
    ZT_READ_LAST =
        5 /* read, and not again before all of it is written: the tier may forget it */
} zt_access;

/* Where device memory comes from: the backend, or a communicator whose peers reach it. */
struct zt_tier_memory {
    void *ctx;
    zt_err (*alloc)(void *ctx, size_t bytes, void **out, struct zt_fault *fault);
    void (*free)(void *ctx, void *p, size_t bytes);
};

/* Bytes of files that a plan would have moved, and in how many pieces. */
struct zt_swap_traffic {
    double read, written;
    double reads, writes;
    double longest; /* bytes that a buffer of the pieces has */
};

/* What stores in files have in common. */
struct zt_swap {
    struct zt_aio *aio;              /* NULL: planning */
    struct zt_swap_traffic *planned; /* planning: counted there; NULL: not counted */
    const char *const *dirs; /* one or more, NULL behind the last: files are striped */
    int buffers;             /* of a store, at least; more where the pipeline needs it */
    bool pipeline_read, pipeline_write;
    bool verify; /* what is read is compared with what was written */
};

struct zt_tier_config {
    const struct zt_backend *backend;
    struct zt_device *device;
    bool staged;        /* host memory and device memory are two */
    bool direct;        /* kernels work on host memory where it is: nothing is copied */
    bool planning;      /* nothing is touched: sizes alone matter */
    size_t bytes;       /* of the region; a multiple of ZT_TIER_ALIGN, not 0 */
    size_t piece_bytes; /* longest piece that is wanted, likewise; for tiers that move */
    size_t
        buffer_bytes; /* of each buffer that the swap asks for; longer than a piece: so many
                            more, as long as pieces */
    int num_pieces; /* of the region: more buffers are of no use, and with pipeline_write what
                         is written may stay in its buffer; 0: not known */
    bool in_order; /* pieces are used in order of their offsets, over and over */
    struct zt_tier_memory memory;
    const struct zt_swap *swap; /* for the file tier; outlives the store */
};

struct zt_tier {
    const char *name;
    /* A piece is the memory itself: of any length, lent as often as asked, for as long as
     * wanted. Blocks and collectives work on such state in place. */
    bool in_place;

    zt_err (*open)(const struct zt_tier_config *cfg, void **store,
                   struct zt_fault *fault);
    void (*close)(void *store); /* NULL is fine */

    /* The longest piece of the store, in bytes; SIZE_MAX: no limit. */
    size_t (*piece_bytes)(const void *store);

    /* optional: whether all of it stays in memory that kernels work on, as it is in the store: any
     * pieces that follow one another can be lent at once, and one to several readers. Then a piece that
     * is read there need not be copied, however long it is used. */
    bool (*is_resident)(const void *store);

    /* optional: whether more than a piece, pieces that follow one another, can be lent at once now: where
     * kernels work on host memory and there is room besides what is lent. */
    bool (*lends)(const void *store, size_t bytes);

    /* optional: a piece that is acquired soon begins to move; *begun: it does, or is here. Not
     * at the cost of one that is acquired before it. NULL: acquire does it. */
    zt_err (*prefetch)(void *store, size_t offset, size_t bytes, bool *begun,
                       struct zt_fault *fault);

    /* *data: device memory with these bytes of the store, until commit: a piece, or what it lends. */
    zt_err (*acquire)(void *store, size_t offset, size_t bytes, zt_access access,
                      void **data, struct zt_fault *fault);
    /* `written`: the bytes go back to the store. */
    zt_err (*commit)(void *store, void *data, size_t offset, size_t bytes, bool written,
                     struct zt_fault *fault);

    /* Add what the store takes, to bytes[ZT_NUM_PLACES]. */
    void (*measure)(const void *store, size_t *bytes);
};

extern const struct zt_tier zt_device_tier, zt_host_tier, zt_file_tier;

#endif
