/*
 * private.h -- what the files of zero share.
 *
 *      zero.c             open, close, the hooks of a step
 *      regions.c          kinds of state, in tiers; acquire and commit
 *      gather_weights.c   stage 3: gather, prefetch, release
 *      gradients.c        accumulate, buckets, reductions
 *      norm.c             squares of gradients
 *      update.c           the optimizer
 *      publish_weights.c  new weights to all who hold them whole
 *      state_values.c     values in and out, the fingerprint
 *      state_copy.c       state as it is stored, in and out
 *      split_master.c     masters in two halves of 16 bits
 *      plugin_weights.c   <zlaunch/weights.h> for the plugin's hooks
 *
 * Z1: a shard of block b is elements [rank * n, (rank + 1) * n), n = padded_elems /
 * world. Z2: block->weights is NULL whenever the block is not held whole; using it then
 * is an error of the tape, not a wrong number. Z3: all decisions follow from the model,
 * the options and the order of calls: never from time. So all ranks issue the same
 * collectives, and a plan sees what a run will do.
 */
#ifndef WORKER_ZERO_PRIVATE_H
#define WORKER_ZERO_PRIVATE_H

#include "worker/zero/regions.h"

/* A block that is gathered, or about to be. */
struct zt_gathered {
    void *data; /* NULL: only the shard is here */
    int users;  /* calls that run on it */
    bool in_flight;
    struct zt_comm *from;  /* whose shards it is gathered from */
    struct zt_piece shard; /* this rank's, while the gather reads it or it is lent */
    void *loaded;          /* a copy of it on the device, where it is offloaded */
    zt_comm_handle gather;
};

/* The calls of a pass in their order, learnt from the pass before. */
struct zt_block_call {
    int block;
    bool backward;
};
struct zt_call_record {
    struct zt_block_call *at;
    int num, cap;
    bool known;
};

/* The reduction of one block's gradients, from its bucket to the accumulators. */
struct zt_reduction {
    struct zt_block *block;
    void *buf; /* whole block in `dtype`: accumulators, transient or message */
    struct zt_piece accumulators; /* while the reduction reads or writes them in place */
    zt_dtype dtype;               /* of the message */
    bool message;                 /* buf is a copy in the type of communication */
    bool direct;                  /* the sum lands in the accumulators by itself */
    zt_comm_handle handle;
};

struct zt_bucket {
    struct zt_reduction *reductions;
    int num;
    int64_t elems;
};

/* The all-gathers that publish new weights, block after block. */
struct zt_publish {
    zt_comm_handle *handle;       /* per block */
    struct zt_piece *weights;     /* per block: while peers read and write them */
    int num_started, num_arrived; /* of the blocks in order; frozen ones count as both */
    int64_t elems_in_flight;
    bool with_frozen;
};

/* Neighbouring elements of a block with the same optimizer settings. */
struct zt_segment {
    const struct zt_block *block;
    int64_t at, n; /* elements of the block's flat buffer */
    bool decay;
    const struct zt_param *param; /* the one it lies in; NULL: it may span several */
};

/* What the optimizer works on at a time: n elements from `at` on of the block that the
 * segment is the first of; n is 0 behind the last. */
struct zt_work {
    const struct zt_segment *seg;
    int64_t at, n, end; /* end: of the block's part that is updated here */
};

/* The optimizer's step, as far as it has come. */
struct zt_update {
    bool active; /* blocks wait for it */
    bool running;
    struct zt_optim_step how;
    struct zt_work work; /* what comes next; while not active, of what is read ahead */
    bool is_ahead;       /* something is */
    int num_done;        /* of the blocks in order: the same on all ranks */
};

struct zt_zero {
    struct zt_zero_config cfg;
    const struct zt_kernels *kernels;
    struct zt_comm *host; /* for values in host memory; NULL while planning */
    int stage;            /* as laid out: 0 when there is one rank */
    bool hpz;             /* backward gathers from a group of near ranks */
    bool planning;
    struct zt_zero_traffic traffic; /* while planning */

    struct zt_region regions[ZT_NUM_STATE_KINDS];
    struct zt_piece *bound; /* 2 per block: weights and gradients it works on */
    bool unpublished;       /* a rank may have new values only of its own shards */
    struct zt_comm *secondary_comm; /* that group; NULL while planning */

    /* gather_weights.c */
    struct zt_pool *gathered_pool;
    void *gathered_base;
    struct zt_gathered *gathered;
    int64_t gathered_elems, gathered_peak;
    struct zt_call_record call_records[3]; /* by mode */
    int call_index;                        /* calls entered in this pass */
    bool follows_record;                   /* they were the expected ones */
    zt_mode mode;
    bool in_backward;

    /* gradients.c */
    struct zt_pool *transient_pool;
    void *transient_base;
    bool transient;    /* backward adds to a buffer that lives for one micro-batch */
    bool carried;      /* that buffer begins with what the accumulators hold */
    bool reduce_every; /* reduce after every micro-batch */
    bool first_micro, last_micro; /* micro-batch of the step */
    struct zt_piece *lent;        /* per block: accumulators that backward is at */
    float prescale, postscale;    /* scales around the sum */
    struct zt_bucket pending, in_flight;

    struct zt_publish publish;

    /* state_values.c */
    float *staging; /* device memory that values pass through; NULL: no need */

    /* norm.c */
    double *sumsq;       /* (blocks, ZT_NORM_LANES), device memory */
    double *sumsq_host;  /* the same on the host */
    int64_t *num_summed; /* per block: so many elements of this rank's shard are in it */

    /* update.c */
    float *grads_fp32; /* one optimizer piece in fp32, when accumulators are 16 bit */
    struct zt_segment *segments;
    int num_segments;
    struct zt_update update;
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

/* Moments that the optimizer keeps of every element. */
static inline int zt_num_moments(const struct zt_zero *z)
{
    return z->cfg.training ? z->cfg.optimizer->num_states : 0;
}

static inline bool zt_is_whole(const struct zt_zero *z, zt_state_kind kind,
                               const struct zt_block *b)
{
    return z->regions[kind].whole[b->index];
}

static inline zt_dtype zt_state_dtype(const struct zt_zero *z, zt_state_kind kind)
{
    return z->regions[kind].dtype;
}

/* The i-th block whose weights a call of b reads: b itself, then owners of what it
 * shares. NULL behind the last. */
struct zt_block *zt_needed_block(const struct zt_block *b, int i);

/* Whether the block's weights are gathered for use and released after. */
static inline bool zt_is_gathered(const struct zt_zero *z, const struct zt_block *b)
{
    return !zt_is_whole(z, ZT_STATE_WEIGHTS, b) && b->padded_elems > 0;
}

/* y = alpha x + beta y on flat runs. */
zt_err zt_zero_axpby(struct zt_zero *z, const void *x, zt_dtype xt, void *y, zt_dtype yt,
                     int64_t n, float alpha, float beta,
                     struct zt_fault *fault) ZT_MUST_CHECK;
zt_err zt_zero_clear(struct zt_zero *z, void *y, zt_dtype dtype, int64_t n,
                     struct zt_fault *fault) ZT_MUST_CHECK;

/* Memory of a pool; a pool that the plan found no use for is NULL. */
zt_err zt_zero_pool_alloc(struct zt_pool *p, size_t bytes, void **out,
                          struct zt_fault *fault) ZT_MUST_CHECK;

/* gather_weights.c */
zt_err zt_gather_open(struct zt_zero *z, struct zt_fault *fault) ZT_MUST_CHECK;
void zt_gather_close(struct zt_zero *z);
zt_err zt_gather_enter(struct zt_zero *z, struct zt_block *b,
                       struct zt_fault *fault) ZT_MUST_CHECK;
zt_err zt_gather_leave(struct zt_zero *z, struct zt_block *b,
                       struct zt_fault *fault) ZT_MUST_CHECK;
void zt_gather_begin(struct zt_zero *z);
zt_err zt_gather_end(struct zt_zero *z, struct zt_fault *fault) ZT_MUST_CHECK;

/* gradients.c */
void zt_grads_plan(
    struct zt_zero *z); /* which buffers gradients pass through; before regions */
zt_err zt_grads_open(struct zt_zero *z, struct zt_fault *fault) ZT_MUST_CHECK;
void zt_grads_close(struct zt_zero *z);
/* A pass of training begins. */
void zt_grads_begin(struct zt_zero *z);
zt_err zt_grads_alloc(struct zt_zero *z, struct zt_block *b,
                      struct zt_fault *fault) ZT_MUST_CHECK;
zt_err zt_grads_ready(struct zt_zero *z, struct zt_block *b,
                      struct zt_fault *fault) ZT_MUST_CHECK;
zt_err zt_grads_end(struct zt_zero *z, struct zt_fault *fault) ZT_MUST_CHECK;

/* publish_weights.c */
zt_err zt_publish_open(struct zt_zero *z, struct zt_fault *fault) ZT_MUST_CHECK;
void zt_publish_close(struct zt_zero *z);
/* Whole blocks get the values of all shards; frozen ones do if asked. */
zt_err zt_publish(struct zt_zero *z, bool with_frozen,
                  struct zt_fault *fault) ZT_MUST_CHECK;
/* Until what was started has arrived: no peer reads weights that are changed next. A
 * block that was not called since it was published may still be in flight. */
zt_err zt_publish_finish(struct zt_zero *z, struct zt_fault *fault) ZT_MUST_CHECK;
/* Until what a call of the block reads has arrived; NULL: everything. */
zt_err zt_publish_wait(struct zt_zero *z, const struct zt_block *called,
                       struct zt_fault *fault) ZT_MUST_CHECK;

/* state_values.c */
zt_err zt_values_open(struct zt_zero *z, struct zt_fault *fault) ZT_MUST_CHECK;
void zt_values_close(struct zt_zero *z);
size_t zt_values_staging_bytes(const struct zt_zero *z);

/* state_copy.c: n elements from `at` on of what this rank keeps, between the state and host
 * memory, as they are stored. */
zt_err zt_state_copy(struct zt_zero *z, zt_state_kind kind, const struct zt_block *b,
                     int64_t at, int64_t n, void *host, zt_access access,
                     struct zt_fault *fault) ZT_MUST_CHECK;

/* split_master.c */
/* Whether the kind means masters that are split: then these are their values in host memory. */
bool zt_is_split(const struct zt_zero *z, zt_state_kind kind, const struct zt_block *b);
zt_err zt_split_store(struct zt_zero *z, const struct zt_block *b, int64_t at, int64_t n,
                      const float *values, struct zt_fault *fault) ZT_MUST_CHECK;
zt_err zt_split_load(struct zt_zero *z, const struct zt_block *b, int64_t at, int64_t n,
                     float *values, struct zt_fault *fault) ZT_MUST_CHECK;

/* norm.c */
zt_err zt_norm_open(struct zt_zero *z, struct zt_fault *fault) ZT_MUST_CHECK;
void zt_norm_close(struct zt_zero *z);
/* The block's gradients from `begin` on are written anew. */
void zt_norm_forget(struct zt_zero *z, const struct zt_block *b, int64_t begin);
/* Gradients that are what the optimizer gets: those that come next in this rank's shard are
 * summed while they are here. Any other piece is left to zt_zero_sumsq(). */
zt_err zt_norm_add(struct zt_zero *z, const struct zt_block *b,
                   const struct zt_piece *grads, struct zt_fault *fault) ZT_MUST_CHECK;

/* update.c */
#define ZT_FP32_PIECE_ELEMS ((int64_t)1 << 20) /* of 16-bit accumulators, at once */
size_t zt_update_piece_bytes(void);            /* of them as fp32 */
static inline bool zt_has_fp32_grads(const struct zt_zero *z)
{
    return zt_state_dtype(z, ZT_STATE_GRADIENTS) == ZT_F32;
}
/* n accumulators as fp32: themselves, or a copy of them. */
zt_err zt_grads_as_fp32(struct zt_zero *z, void *grads, int64_t n, float **out,
                        struct zt_fault *fault) ZT_MUST_CHECK;
/* What the optimizer takes at a time: sub_group_size in whole chunks; INT64_MAX: all. */
int64_t zt_update_piece_elems(const struct zt_zero *z);
zt_err zt_update_open(struct zt_zero *z, struct zt_fault *fault) ZT_MUST_CHECK;
void zt_update_close(struct zt_zero *z);
/* Until the block has its new weights, and the state that made them is as it stays. */
zt_err zt_update_reach(struct zt_zero *z, const struct zt_block *b,
                       struct zt_fault *fault) ZT_MUST_CHECK;
/* A call of the block begins: what it needs, and the block behind that. */
zt_err zt_update_enter(struct zt_zero *z, const struct zt_block *called,
                       struct zt_fault *fault) ZT_MUST_CHECK;
/* The last pass of a step is at work on the block: what the update begins with is read meanwhile. */
zt_err zt_update_ahead(struct zt_zero *z, const struct zt_block *b,
                       struct zt_fault *fault) ZT_MUST_CHECK;
zt_err zt_update_finish(struct zt_zero *z, struct zt_fault *fault) ZT_MUST_CHECK;
static inline bool zt_update_is_due(const struct zt_zero *z, const struct zt_block *b)
{
    return z->update.active && b->index >= z->update.num_done;
}

#endif
