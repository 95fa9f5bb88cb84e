/*
 * state.h -- where the numbers of the model live: one region per kind, all blocks in it.
 *
 *      weights   compute dtype   every block, one behind the other (padded_elems each)
 *      master    fp32            the optimizer's truth; is `weights` itself in fp32 runs
 *      grads     fp32            accumulated over micro-batches; memory peers can read
 *      state[k]  fp32            optimizer moments
 *
 * Stage 0 means that every rank reaches all of it. Ranks of one node that share memory
 * share one copy of all but the gradients, and each rank updates its own shard of every
 * block: the same bits as if each had done all of it, without doing it several times.
 *
 * Frozen blocks are in `weights` only.
 * Regions are page aligned; a block is found in them by the accessors below.
 * Ownership: the state owns the regions that it took from the backend; gradients and
 *            shared regions are the communicator's.
 * Threads:   one.
 */
#ifndef WORKER_ENGINE_STATE_H
#define WORKER_ENGINE_STATE_H

#include "worker/autograd/model.h"
#include "worker/comm/comm.h"
#include "worker/optim/optim.h"

struct zt_state {
    const struct zt_backend *backend;
    struct zt_device *device;
    struct zt_model *model;
    zt_dtype dtype;       /* of the weights */
    int64_t elems;        /* of `weights` */
    int64_t train_elems;  /* of every other region: trainable blocks only */
    int64_t *base;        /* per block: its place in `weights` */
    int64_t *train_base;  /* per block: its place elsewhere; -1: frozen */
    bool training;        /* master, gradients and moments are there */
    struct zt_comm *comm; /* gradients are from it; NULL: from the backend */
    bool shared;          /* the other regions too, one copy for all ranks */
    int num_states;       /* moments per parameter */

    void *weights;
    float *master;      /* NULL when `weights` is fp32: then that is the truth */
    float *grads;       /* of the step: summed over micro-batches (and ranks) */
    float *micro_grads; /* of one micro-batch, when each is reduced by itself; or NULL */
    float *moments[ZT_OPTIM_MAX_STATES];
};

struct zt_state_config {
    const struct zt_backend *backend;
    struct zt_device *device;
    struct zt_model *model;
    struct zt_comm *comm; /* NULL: gradients from the backend (planning) */
    zt_dtype dtype;
    bool training, micro_grads;
    int num_states;
    int sharers; /* ranks that share one copy of weights, master and moments; 1: none */
};

/* Bytes that zt_state_open will take for this rank: of shared regions, its part. */
struct zt_state_bytes {
    size_t weights, master, grads, moments;
};
struct zt_state_bytes zt_state_measure(const struct zt_state_config *cfg);

/* Room that the communicator must have for regions shared by all ranks. */
size_t zt_state_shared_bytes(const struct zt_state_config *cfg);

/*
 * Allocate everything and bind the model's blocks to it: backward adds to micro_grads
 * when there is one, else to grads.
 */
zt_err zt_state_open(const struct zt_state_config *cfg, struct zt_state **out,
                     struct zt_fault *fault) ZT_MUST_CHECK;
void zt_state_close(struct zt_state *st); /* NULL is fine */

/* A block's slice of a region, (padded_elems) each; NULL: it has none. */
void *zt_state_weights(const struct zt_state *st, const struct zt_block *b);
float *zt_state_master(const struct zt_state *st, const struct zt_block *b);
float *zt_state_grads(const struct zt_state *st, const struct zt_block *b);
float *zt_state_moment(const struct zt_state *st, const struct zt_block *b, int k);

/* Initial values of every parameter from (seed, name, element); master and weights. */
zt_err zt_state_init(struct zt_state *st, uint64_t seed,
                     struct zt_fault *fault) ZT_MUST_CHECK;

/* Whether this rank is the one that gives a parameter its first values. */
bool zt_state_initialises(const struct zt_state *st, const struct zt_param *p);

/* One parameter from (numel) fp32 host values: master, and weights rounded from it. */
zt_err zt_state_set(struct zt_state *st, const struct zt_param *p, const float *values,
                    struct zt_fault *fault) ZT_MUST_CHECK;

/* `count` fp32 values of a parameter from element `from`: its master, else its weights.
 */
zt_err zt_state_get(const struct zt_state *st, const struct zt_param *p, int64_t from,
                    int64_t count, float *values, struct zt_fault *fault) ZT_MUST_CHECK;

/*
 * 64-bit hash of the fp32 values of all parameters. Chunks of ZT_NORM_CHUNK elements of a
 * block's flat buffer are hashed (xxh3) with their place as seed, and the hashes are
 * added: shards, which are cut between chunks, can each add their part.
 */
zt_err zt_state_fingerprint(const struct zt_state *st, uint64_t *out,
                            struct zt_fault *fault) ZT_MUST_CHECK;

#endif
