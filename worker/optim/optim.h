/*
 * optim.h -- optimizers on flat fp32 slices; each is one file that fills one table row.
 *
 * An optimizer sees slices: neighbouring elements of a block's flat buffer that share a
 * weight-decay setting. It does not know blocks, ranks or stages, so that a sharded step
 * and a whole one give the same bits.
 * Ownership: the caller owns all memory. Threads: one. Failure: that of the kernel.
 */
#ifndef WORKER_OPTIM_OPTIM_H
#define WORKER_OPTIM_OPTIM_H

#include "common/run.h"
#include "kernels/backend.h"

#define ZT_OPTIM_MAX_STATES 4

/* What is the same for every slice of one optimizer step. */
struct zt_optim_step {
    const struct zt_backend *backend;
    struct zt_device *device;
    const struct zt_optim_config *cfg;
    double lr;               /* of this step */
    int64_t t;               /* steps taken, this one included: 1, 2, ... */
    const float *grad_scale; /* device memory: unscale and clip in one factor */
    const uint32_t *skip;    /* device memory, or NULL */
    bool stochastic;         /* bf16 weights are rounded by chance, not to nearest */
    uint64_t seed;           /* ... with this key */
};

/*
 * All of length n; param is the compute-dtype copy, or NULL when master is the weight.
 * stream and offset name the slice's random numbers: of this step and block, from this
 * element of the block on, so that they do not depend on how a block is cut.
 */
struct zt_optim_slice {
    float *master, *grad;
    float *state[ZT_OPTIM_MAX_STATES];
    void *param;
    zt_dtype param_dtype;
    int64_t n;
    bool decay;
    uint64_t stream, offset;
};

struct zt_optimizer {
    const char *name;
    int num_states; /* fp32 values per parameter beside the master copy; start at zero */

    /* One slice; zeroes the gradient it has used. */
    zt_err (*update)(const struct zt_optim_step *step, const struct zt_optim_slice *slice,
                     struct zt_fault *fault);
};

/* The row of a kind; never NULL for a kind that the config accepts. */
const struct zt_optimizer *zt_optimizer_find(zt_optim_kind kind);

#endif
