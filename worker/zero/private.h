/*
 * private.h -- what the files of zero share.
 *
 *      state.c    regions: where which state lies        values.c  in, out, fingerprint
 *      gather.c   weights: gather, prefetch, release      grads.c   gradients: buckets
 *      update.c   norm, optimizer                     publish.c new weights to all
 *
 * Z1: a shard of block b is elements [rank * n, (rank + 1) * n), n = padded_elems /
 * world. Z2: block->weights is NULL whenever the block is not held whole; using it then
 * is an error of the tape, not a wrong number. Z3: all decisions follow from the model,
 * the options and the order of calls: never from time. So all ranks issue the same
 * collectives, and a plan sees what a run will do.
 */
#ifndef WORKER_ZERO_PRIVATE_H
#define WORKER_ZERO_PRIVATE_H

#include "worker/zero/zero.h"

/* Where a region's memory is from. */
typedef enum zt_zone {
    ZT_ZONE_OWN,  /* of the backend: this rank's alone */
    ZT_ZONE_HEAP, /* of the communicator: peers read it in place */
    ZT_ZONE_NODE, /* one copy for all ranks of the node */
} zt_zone;

/* One kind of state: for every block the whole flat buffer, or this rank's shard of it.
 */
struct zt_region {
    char *base;
    size_t bytes;
    zt_zone zone;
    zt_dtype dtype;
    int64_t *at; /* per block: first element; -1: the block has none */
    bool *whole; /* per block */
};

/* A block that is gathered, or about to be. */
struct zt_live {
    void *data; /* NULL: only the shard is here */
    int users;  /* calls that run on it */
    bool pending;
    struct zt_comm *from; /* whose shards it is gathered from */
    zt_comm_handle gather;
};

/* The calls of a pass in their order, learnt from the pass before. */
struct zt_visit {
    int block;
    bool backward;
};
struct zt_visits {
    struct zt_visit *at;
    int num, cap;
    bool known;
};

/* A reduction: one block's gradients on their way. */
struct zt_send {
    struct zt_block *block;
    void *buf;      /* whole block in `dtype`: accumulators, transient or message */
    zt_dtype dtype; /* of the message */
    bool message;   /* buf is a copy in the type of communication */
    bool direct;    /* the sum lands in the accumulators by itself */
    zt_comm_handle handle;
};

struct zt_bucket {
    struct zt_send *sends;
    int num;
    int64_t elems;
};

/* New weights on their way to all ranks, block after block. */
struct zt_publish {
    zt_comm_handle *handle; /* per block */
    int next, done;         /* the first block not started, not known to have arrived */
    int64_t flying;         /* elements */
    bool all;
};

/* Neighbouring elements of a block with the same optimizer settings. */
struct zt_segment {
    const struct zt_block *block;
    int64_t at, n; /* elements of the block's flat buffer */
    bool decay;
};

struct zt_zero {
    struct zt_zero_config cfg;
    const struct zt_kernels *k;
    struct zt_comm *host; /* for values in host memory; NULL while planning */
    int stage;            /* as laid out: 0 when there is one rank */
    bool hpz;             /* backward gathers from a group of near ranks */
    bool planning;

    struct zt_region weights, master, grads, moments[ZT_OPTIM_MAX_STATES], secondary;
    bool has_master, has_grads;
    bool unpublished;     /* a rank may have new values only of its own shards */
    struct zt_comm *near; /* that group; NULL while planning */

    /* gather.c */
    struct zt_pool *live_pool;
    void *live_base;
    struct zt_live *live;
    int64_t live_elems, live_peak;
    struct zt_visits visits[3]; /* by mode */
    int pos;                    /* calls entered in this pass */
    bool on_track;              /* they were the expected ones */
    zt_mode mode;
    bool in_backward;

    /* grads.c */
    struct zt_pool *transient_pool;
    void *transient_base;
    bool transient;   /* backward adds to a buffer that lives for one micro-batch */
    bool every;       /* reduce after every micro-batch */
    bool first, last; /* micro-batch of the step */
    float pre, post;  /* scales around the sum */
    struct zt_bucket filling, flying;

    struct zt_publish publish;

    /* values.c */
    float *staging; /* device memory that values pass through; NULL: no need */

    /* update.c */
    double *sumsq;      /* per piece of a shard, device memory */
    double *sumsq_host; /* the same on the host */
    int64_t num_sumsq;
    float *piece; /* one optimizer piece in fp32, when accumulators are 16 bit */
    struct zt_segment *segments;
    int num_segments;
};

/* Elements of a block's shard; where this rank's begins. */
static inline int64_t zt_shard_elems(const struct zt_zero *z, const struct zt_block *b)
{
    return b->padded_elems / z->cfg.world;
}

static inline int64_t zt_shard_begin(const struct zt_zero *z, const struct zt_block *b)
{
    return zt_shard_elems(z, b) * z->cfg.rank;
}

/* Element i of a block's flat buffer in a region; it must be held there. NULL: the region
 * has nothing of the block. */
void *zt_region_at(const struct zt_zero *z, const struct zt_region *r,
                   const struct zt_block *b, int64_t i);

/* The i-th block whose weights a call of b reads: b itself, then owners of what it
 * shares. NULL behind the last. */
struct zt_block *zt_needed(const struct zt_block *b, int i);

/* Whether the block's weights are gathered for use and released after. */
static inline bool zt_is_gathered(const struct zt_zero *z, const struct zt_block *b)
{
    return !z->weights.whole[b->index] && b->padded_elems > 0;
}

/* y = alpha x + beta y on flat runs. */
zt_err zt_zero_axpby(struct zt_zero *z, const void *x, zt_dtype xt, void *y, zt_dtype yt,
                     int64_t n, float alpha, float beta,
                     struct zt_fault *fault) ZT_MUST_CHECK;
zt_err zt_zero_clear(struct zt_zero *z, void *y, zt_dtype dtype, int64_t n,
                     struct zt_fault *fault) ZT_MUST_CHECK;

/* Memory of a pool; a pool that the plan found no use for is NULL. */
zt_err zt_pool_take(struct zt_pool *p, size_t bytes, void **out,
                    struct zt_fault *fault) ZT_MUST_CHECK;

/* Memory of a zone. */
zt_err zt_zone_take(struct zt_zero *z, zt_zone zone, size_t bytes, void **out,
                    struct zt_fault *fault) ZT_MUST_CHECK;
void zt_zone_give(struct zt_zero *z, zt_zone zone, void *p, size_t bytes);

/* gather.c */
zt_err zt_gather_open(struct zt_zero *z, struct zt_fault *fault) ZT_MUST_CHECK;
void zt_gather_close(struct zt_zero *z);
zt_err zt_gather_enter(struct zt_zero *z, struct zt_block *b,
                       struct zt_fault *fault) ZT_MUST_CHECK;
zt_err zt_gather_leave(struct zt_zero *z, struct zt_block *b,
                       struct zt_fault *fault) ZT_MUST_CHECK;
void zt_gather_begin(struct zt_zero *z);
zt_err zt_gather_end(struct zt_zero *z, struct zt_fault *fault) ZT_MUST_CHECK;

/* grads.c */
void zt_grads_plan(struct zt_zero *z); /* the ways gradients take; before regions */
zt_err zt_grads_open(struct zt_zero *z, struct zt_fault *fault) ZT_MUST_CHECK;
void zt_grads_close(struct zt_zero *z);
zt_err zt_grads_need(struct zt_zero *z, struct zt_block *b,
                     struct zt_fault *fault) ZT_MUST_CHECK;
zt_err zt_grads_ready(struct zt_zero *z, struct zt_block *b,
                      struct zt_fault *fault) ZT_MUST_CHECK;
zt_err zt_grads_end(struct zt_zero *z, struct zt_fault *fault) ZT_MUST_CHECK;

/* publish.c */
zt_err zt_publish_open(struct zt_zero *z, struct zt_fault *fault) ZT_MUST_CHECK;
void zt_publish_close(struct zt_zero *z);
/* Whole blocks get the values of all shards; `all`: frozen ones, too. */
zt_err zt_publish(struct zt_zero *z, bool all, struct zt_fault *fault) ZT_MUST_CHECK;
/* Until what a call of the block reads has arrived; NULL: everything. */
zt_err zt_publish_await(struct zt_zero *z, const struct zt_block *called,
                        struct zt_fault *fault) ZT_MUST_CHECK;

/* values.c */
zt_err zt_values_open(struct zt_zero *z, struct zt_fault *fault) ZT_MUST_CHECK;
void zt_values_close(struct zt_zero *z);
size_t zt_values_staging_bytes(const struct zt_zero *z);

/* update.c */
size_t zt_update_piece_bytes(void); /* of 16-bit accumulators as fp32 */
zt_err zt_update_open(struct zt_zero *z, struct zt_fault *fault) ZT_MUST_CHECK;
void zt_update_close(struct zt_zero *z);

#endif
