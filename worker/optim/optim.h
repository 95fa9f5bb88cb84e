/*
 * optim.h -- optimizers on flat slices; each is one file that fills one table row.
 *
 * An optimizer sees slices: neighbouring elements of a block's flat buffer that share a
 * weight-decay setting. It does not know blocks, ranks or stages, so that a sharded step
 * and a whole one give the same bits. One that treats a parameter as a matrix, or scales
 * by its norm, says needs_tensor: then a slice lies within one parameter and says which.
 * Ownership: the caller owns all memory.
 * Threads:   one.
 * Failure:   that of the kernel.
 */
#ifndef WORKER_OPTIM_OPTIM_H
#define WORKER_OPTIM_OPTIM_H

#include "kernels/backend.h"
#include "worker/optim/hyperparam.h"

#define ZT_OPTIM_MAX_STATES 4

/* The slot of the learning rate, which every optimizer has. */
#define ZT_OPTIM_LR 0

/* An optimizer and the values of its parameters. */
struct zt_optim_config {
    const struct zt_optimizer *optimizer;
    double value[ZT_HYPER_VALUES]; /* by the slots of its rows */
};

/* What is the same for every slice of one optimizer step. */
struct zt_optim_step {
    const struct zt_backend *backend;
    struct zt_device *device;
    const struct zt_optim_config *cfg;
    double lr;               /* of this step, from the schedule */
    int64_t t;               /* steps taken, this one included: 1, 2, ... */
    const float *grad_scale; /* device memory: unscale and clip in one factor */
    const uint32_t *skip;    /* device memory, or NULL */
    bool stochastic;         /* bf16 weights by stochastic rounding, not to nearest */
    uint64_t seed;           /* ... with this key */
};

/* Which part of which parameter a slice is. */
struct zt_optim_tensor {
    const char *name;
    int ndim;
    const int64_t *shape;
    int64_t first; /* element of the parameter that the slice begins with */
};

/*
 * Neighbouring elements. All buffers have n elements; param is the compute-dtype copy, or
 * NULL when master is the weight; a master of ZT_REST16 is what param leaves of it
 * (kernels/split.h), and every optimizer takes both. stream and offset name the slice's random numbers: of
 * this step and block, from this element of the block on, so that they do not depend on
 * how a block is cut.
 */
struct zt_optim_slice {
    void *master; /* fp32 or ZT_REST16 */
    zt_dtype master_dtype;
    float *grad;
    void *state[ZT_OPTIM_MAX_STATES]; /* of the dtypes of the optimizer's states */
    void *param;
    zt_dtype param_dtype;
    int64_t n;
    bool decay;
    uint64_t stream, offset;
    struct zt_optim_tensor tensor; /* name NULL: the optimizer does not need it */
};

/* Kept for every element beside the master copy; zero at the start. */
struct zt_optim_state {
    const char *name; /* "exp_avg", as torch.optim calls it */
    zt_dtype dtype;
};

struct zt_optimizer {
    const char *name;    /* "AdamW": the type in a config; its case does not matter */
    const char *options; /* "adamw|adamw_torch": values of --optim; NULL: none */
    const char *help;    /* a few words */
    const struct zt_hyperparam *params;
    struct zt_optim_state states[ZT_OPTIM_MAX_STATES]; /* the first num_states count */
    int num_states;
    bool needs_tensor; /* slices stay within a parameter and say which one it is */

    /* optional: the default (JSON text) of a parameter that depends on values of rows above
     * it; NULL: `def` of its row */
    const char *(*default_of)(const struct zt_optimizer *optimizer,
                              const struct zt_hyperparam *param, const double *value);

    /* optional: another row that these values turn this one into; NULL: this one */
    const struct zt_optimizer *(*variant)(const double *value);

    /* One slice; zeroes the gradient it has used. */
    zt_err (*update)(const struct zt_optim_step *step, const struct zt_optim_slice *slice,
                     struct zt_fault *fault);
};

/* All that are built; the first is the default. NULL behind the last. */
extern const struct zt_optimizer *const zt_optimizers[];

/* By the type of a config, and by a value of --optim. NULL: not built. */
const struct zt_optimizer *zt_optimizer_find(const char *type);
const struct zt_optimizer *zt_optimizer_of_option(const char *value);

#endif
