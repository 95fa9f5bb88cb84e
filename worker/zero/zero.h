/*
 * zero.h -- the model state of a rank under ZeRO stages 0 to 3 (Rajbhandari et al. 2020).
 *
 *      stage   weights      master, moments   gradients
 *      0       whole        whole             whole
 *      1       whole        shard             whole
 *      2       whole        shard             shard, blocks in backward whole
 *      3       shard,       shard             shard, blocks in backward whole
 *              blocks in use whole
 *
 * Every block has a flat buffer per kind of state and a shard is one contiguous slice of
 * it, so a gather is one all-gather straight into place, and a reduction one
 * reduce-scatter straight out of place. What is whole for a while comes from two pools,
 * `live` (gathered weights) and `transient` (gradients of blocks that backward is at);
 * planning runs the same code without peers, so the pools' peaks are known beforehand.
 *
 *      zt_zero_pass_begin -> forward (-> backward) -> zt_zero_pass_end   per micro-batch
 *      zt_zero_sumsq -> zt_zero_update, or nothing                       per step
 *
 * Bits: gradients are summed over ranks in rank order in fp32; norms per chunk of
 * ZT_NORM_CHUNK elements. Neither depends on stage, bucket, overlap or engine.
 * Calls that talk to peers are made by all ranks in the same order (marked: collective).
 * With one rank every stage is stage 0, but stage 3 with offloaded weights.
 * Threads:   one.
 * Failure:   after an error of a collective call only zt_zero_close().
 */
#ifndef WORKER_ZERO_ZERO_H
#define WORKER_ZERO_ZERO_H

#include <zlaunch/save.h>

#include "worker/config/run.h"
#include "worker/autograd/step.h"
#include "worker/comm/comm.h"
#include "worker/offload/tier.h"
#include "worker/optim/optim.h"

struct zt_zero;

/* What there is of a parameter. */
typedef enum zt_state_kind {
    ZT_STATE_WEIGHTS,   /* as the model computes with them, in its dtype */
    ZT_STATE_MASTER,    /* fp32, where weights are of 16 bit; or what they leave of it */
    ZT_STATE_GRADIENTS, /* accumulators, in data_types.grad_accum_dtype */
    ZT_STATE_MOMENT,    /* of the optimizer: moment k is ZT_STATE_MOMENT + k */
    ZT_STATE_SECONDARY = ZT_STATE_MOMENT + ZT_OPTIM_MAX_STATES, /* copies for a group */
    ZT_NUM_STATE_KINDS,

    /* In zt_zero_get() and zt_zero_set(): the value of the parameter, which is the master
     * where there is one, else the weights; setting it sets both. */
    ZT_STATE_VALUE = ZT_NUM_STATE_KINDS
} zt_state_kind;
const char *zt_state_name(zt_state_kind kind); /* "weights", "optimizer state", ... */

struct zt_zero_config {
    const struct zt_backend *backend;
    struct zt_device *device;
    struct zt_model *model; /* laid out for `world` */
    struct zt_comm *comm;   /* NULL: planning; nothing is exchanged, nothing touched */
    bool staged;            /* host and device memory are two: values are staged */
    int rank, world;
    zt_dtype dtype; /* of the weights */
    bool
        split_master; /* with bf16: of masters what the weights leave (kernels/split.h) */
    bool training;    /* master, gradients and moments are wanted */
    const struct zt_optimizer *optimizer; /* when training: whose states are kept */
    /* Where state is kept, by kind; NULL: in device memory. Weights that a rank holds
     * whole have to be there.
     * Gradients that are kept elsewhere are on the device while backward is at their
     * block. */
    const struct zt_tier *tiers[ZT_NUM_STATE_KINDS];
    double offload_ratio; /* of what the optimizer works on, in those tiers */
    bool host_in_reach;   /* kernels work on host memory where it is */
    /* of the file tier; swap.aio is zero's own */
    struct zt_aio_options aio;
    struct zt_swap swap, weights_swap;
    int64_t weights_piece; /* the longest piece of offloaded weights, in elements */
    /* so many elements at most of those that this rank offloads are in host memory rather than
     * in their tier: whole blocks, the first ones */
    int64_t weights_in_host;
    int64_t micro_batches;
    bool reduce_every_micro_batch; /* stages 0 and 1 as well; 2 and 3 always do */
    const struct zt_zero_options *options;
    size_t gathered_bytes, transient_bytes; /* of the pools; ignored while planning */
};

/* Bytes of a rank in one place: on the device, on the host, ... */
struct zt_state_bytes {
    size_t weights;   /* whole or shards; one copy for the node when shared, counted in
                       * parts */
    size_t master;    /* fp32 or split; 0 when weights are fp32 */
    size_t grads;     /* accumulators */
    size_t moments;   /* of the optimizer */
    size_t gathered;  /* peak of gathered weights, stage 3 */
    size_t transient; /* peak of gradients and messages of blocks in backward */
    size_t secondary; /* second shards of hierarchical partitioning */
    size_t staging;   /* values between host and device */
};

struct zt_zero_bytes {
    struct zt_state_bytes in[ZT_NUM_PLACES];
    size_t peers; /* address space, not memory: what is mapped of the others */
    size_t
        weights_in_host; /* the part of weights that zt_zero_config.weights_in_host let in */
};

/*
 * Bytes that a plan would have moved: of whole blocks, whatever part a rank sends of them,
 * and of this rank's files. An all-reduce counts as both, as it moves as much.
 */
struct zt_zero_traffic {
    double gathered, reduced;
    double near_gathered; /* among the ranks of a group (hierarchical partitioning) */
    struct zt_swap_traffic files;
};
/* While planning: since it was opened or asked the last time. */
struct zt_zero_traffic zt_zero_take_traffic(struct zt_zero *z);

/* Collective. Allocates the state, all zero, and binds the model's blocks to it. */
zt_err zt_zero_open(const struct zt_zero_config *cfg, struct zt_zero **out,
                    struct zt_fault *fault) ZT_MUST_CHECK;
/*
 * Collective, once, before the first pass: memory for weights that are gathered and for gradients
 * on the move. Values are read and written without it, so it is no part of what loading takes.
 */
zt_err zt_zero_open_pools(struct zt_zero *z, struct zt_fault *fault) ZT_MUST_CHECK;
void zt_zero_close(struct zt_zero *z); /* NULL is fine */

/* For zt_step_config: gathers and releases weights, reduces gradients as blocks finish.
 */
struct zt_step_hooks zt_zero_hooks(struct zt_zero *z);

/* Bytes that are allocated, and the pools' peaks so far. */
struct zt_zero_bytes zt_zero_measure(const struct zt_zero *z);
/* All that it is in one place. */
size_t zt_zero_total(const struct zt_zero_bytes *b, zt_memory_place place);
/* The most parameters that one call has to gather at once, whatever the limits say;
 * *block: which call. */
int64_t zt_zero_largest_call(const struct zt_zero *z, const struct zt_block **block);
/* The most parameters that were gathered at once so far, persistent ones not counted. */
int64_t zt_zero_gathered_peak(const struct zt_zero *z);

/* ---- a pass ---- */

/* `micro` counts the training micro-batches of a step from 0; ignored in other modes. */
void zt_zero_pass_begin(struct zt_zero *z, zt_mode mode, int64_t micro);
/* Collective. Finishes the reductions, and releases what was gathered. */
zt_err zt_zero_pass_end(struct zt_zero *z, struct zt_fault *fault) ZT_MUST_CHECK;

/* ---- a step ---- */

/* This rank's part of the squared norm of the (summed) gradients. */
zt_err zt_zero_sumsq(struct zt_zero *z, double *out,
                     struct zt_fault *fault) ZT_MUST_CHECK;
/* Collective. The optimizer on what is this rank's; new weights reach all who hold them. A step
 * without it is skipped: the next one's gradients replace those of this one. */
zt_err zt_zero_update(struct zt_zero *z, const struct zt_optim_step *how,
                      struct zt_fault *fault) ZT_MUST_CHECK;

/* While planning: the next pass is one that begins while the update is due. False: there is none. */
bool zt_zero_plan_late_update(struct zt_zero *z);

#define ZT_SAVE_DIR 4000 /* bytes of a name, with its end */
#define ZT_SAVE_TAG 190

/* Checkpoints that a hook has asked for on this rank. */
struct zt_save_requests {
    int num;
    struct {
        char dir[ZT_SAVE_DIR]; /* "": the run's folder */
        char tag[ZT_SAVE_TAG]; /* "": named by the step */
    } of[ZT_MOST_SAVES];
};

/* Collective. The plugin's hooks: after first values, after an optimizer step. `saves`
 * gets what the hook asks for; NULL: it may not ask. */
zt_err zt_zero_setup_model(struct zt_zero *z, struct zt_fault *fault) ZT_MUST_CHECK;
zt_err zt_zero_step_model(struct zt_zero *z, int64_t step, struct zt_save_requests *saves,
                          struct zt_fault *fault) ZT_MUST_CHECK;

/* ---- values ---- */

/* Collective. Initial values of every parameter from (seed, name, element). */
zt_err zt_zero_init(struct zt_zero *z, uint64_t seed,
                    struct zt_fault *fault) ZT_MUST_CHECK;

/* Whether there is such state of the parameter: the same on every rank. */
bool zt_zero_has(const struct zt_zero *z, zt_state_kind kind, const struct zt_param *p);

/* The part of a parameter that this rank has to be given: elements [*from, *from + *n),
 * of every kind of state. */
void zt_zero_part(const struct zt_zero *z, const struct zt_param *p, int64_t *from,
                  int64_t *n);
/*
 * `n` fp32 values of one kind of state from element `from`, all in that part, from host
 * memory; they are rounded to the kind's dtype. After weights or values were set
 * zt_zero_publish() ends this.
 */
zt_err zt_zero_set(struct zt_zero *z, zt_state_kind kind, const struct zt_param *p,
                   int64_t from, int64_t n, const float *values,
                   struct zt_fault *fault) ZT_MUST_CHECK;
/* Collective. After weights were set: all who hold them whole get them. */
zt_err zt_zero_publish(struct zt_zero *z, struct zt_fault *fault) ZT_MUST_CHECK;

/*
 * Collective. `n` values of one kind of state of a parameter, from element `from`, into
 * host memory on every rank, as fp32. Gradients are those that zt_zero_update() would
 * use: summed over ranks, between zt_zero_pass_end() of the last micro-batch and it.
 */
zt_err zt_zero_get(struct zt_zero *z, zt_state_kind kind, const struct zt_param *p,
                   int64_t from, int64_t n, float *values,
                   struct zt_fault *fault) ZT_MUST_CHECK;

/* ---- values as they are stored, for checkpoints ---- */

/* Collective. Before copies: weights that are still on their way have arrived. */
zt_err zt_zero_settle(struct zt_zero *z, struct zt_fault *fault) ZT_MUST_CHECK;
/* Of copies of a kind of state that there is: a split master is copied as fp32. */
zt_dtype zt_zero_dtype(const struct zt_zero *z, zt_state_kind kind);
/* Elements [*from, *from + *n) of a parameter are this rank's to save: parts of all ranks
 * are the whole, once. It can be 0. */
void zt_zero_own_part(const struct zt_zero *z, const struct zt_param *p, int64_t *from,
                      int64_t *n);
/*
 * Elements that zt_zero_own_part() gives, to host memory in the kind's dtype; and
 * elements that zt_zero_part() gives, from host memory. A copy of split masters sets the
 * weights as well. After the last copy of either zt_zero_publish().
 */
zt_err zt_zero_copy_out(struct zt_zero *z, zt_state_kind kind, const struct zt_param *p,
                        int64_t from, int64_t n, void *out,
                        struct zt_fault *fault) ZT_MUST_CHECK;
zt_err zt_zero_copy_in(struct zt_zero *z, zt_state_kind kind, const struct zt_param *p,
                       int64_t from, int64_t n, const void *values,
                       struct zt_fault *fault) ZT_MUST_CHECK;

/*
 * Collective. 64-bit hash of the fp32 values of all parameters: chunks of ZT_NORM_CHUNK
 * elements of a block's flat buffer are hashed (xxh3) with their place as seed and the
 * hashes added, so it does not depend on stage or world size.
 */
zt_err zt_zero_fingerprint(struct zt_zero *z, uint64_t *out,
                           struct zt_fault *fault) ZT_MUST_CHECK;
/* The same of the blocks that are frozen as a whole, which no step changes. */
zt_err zt_zero_frozen_fingerprint(struct zt_zero *z, uint64_t *out,
                                  struct zt_fault *fault) ZT_MUST_CHECK;

#endif
