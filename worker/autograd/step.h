/*
 * step.h -- one pass over a micro-batch: the tape, and what the engine hangs on it.
 *
 * Forward runs the plugin, which calls blocks, which call ops; each op runs a kernel and,
 * while training, leaves a node on its block's tape. Backward runs blocks and nodes in
 * reverse. A recomputed block keeps its inputs only and is run again when its turn comes
 * (but for calls whose outputs are all scalars, such as the loss: their turn comes first,
 * so recomputing them would save nothing).
 *
 *      zt_step_forward -> (zt_step_backward) -> zt_step_end
 *
 * All memory comes from one pool over one region, so a steady step allocates nothing from
 * the system, and the same calls on the meta backend yield the peak beforehand.
 * Handles (zt_tensor) live in an arena that is reset by zt_step_end.
 * Threads:   one.
 * Failure:   sticky; the first failure stays until zt_step_end.
 */
#ifndef WORKER_AUTOGRAD_STEP_H
#define WORKER_AUTOGRAD_STEP_H

#include "kernels/backend.h"
#include "kernels/pool.h"
#include "worker/autograd/model.h"

typedef enum zt_mode { ZT_MODE_TRAIN, ZT_MODE_EVAL, ZT_MODE_GENERATE } zt_mode;

/*
 * Called by the step as it goes; any may be NULL. A failure stops the step. A call is
 * entered and left for its own block only: who gathers weights looks at b->shared, too.
 *   block_enter:  before a call of the block, forward or backward (gather, prefetch)
 *   block_leave:  after it (release)
 *   grads_ready:  every call that touches the block's gradients has run backward;
 *                 fires once per trainable block and micro-batch, in a fixed order; those
 *                 that backward never touched come last, in the order of the model
 */
struct zt_step_hooks {
    void *ctx;
    zt_err (*block_enter)(void *ctx, struct zt_block *b, bool backward,
                          struct zt_fault *f);
    zt_err (*block_leave)(void *ctx, struct zt_block *b, bool backward,
                          struct zt_fault *f);
    zt_err (*grads_ready)(void *ctx, struct zt_block *b, struct zt_fault *f);
};

struct zt_step_config {
    const struct zt_backend *backend;
    struct zt_device *device;
    struct zt_pool *pool;
    /* over pinned host memory: the inputs of recomputed blocks are there from forward to
     * backward; NULL: they stay on the device */
    struct zt_pool *host_pool;
    struct zt_model *model;
    zt_dtype compute_dtype;
    bool any_order; /* sums of attention's backward may be added as they come */
    bool tf32;      /* products of fp32 may round their operands to TF32 */
    bool fp8;       /* bf16 linear ops multiply fp8, where their sizes allow it */
    bool recompute; /* activation checkpointing: every block that has parameters */
    bool note_uses; /* which ops take a parameter: zt_param.uses (adapter.h) */
    bool profile;   /* take the times of those blocks; the host waits for each of them */
    float label_smoothing; /* of cross-entropy, in [0, 1) */
    int64_t product_align; /* of the device, see struct zt_backend_info */
    uint64_t seed;
    struct zt_step_hooks hooks;
};

zt_err zt_step_open(const struct zt_step_config *cfg, struct zt_step **out,
                    struct zt_fault *fault) ZT_MUST_CHECK;
void zt_step_close(struct zt_step *s); /* NULL is fine */

struct zt_pass {
    zt_mode mode;
    uint64_t step; /* optimizer step, keys dropout */
    int64_t row0;  /* global row of the micro-batch's first row, keys dropout */
    int64_t B, T;
    int64_t S; /* tokens of a source; 0: the model has no field of one, or it is absent */
    /* per field of the model's layout: host memory that stays as it is until the device
     * has passed (backend->sync); NULL: the field is absent */
    const void *fields[ZT_MAX_FIELDS];
    bool last_only; /* logits of the last position alone: (B, 1, V) */
    /* what backward will start from, so that a head may make its gradient with its loss;
     * 0: that is not known yet */
    float dloss;
    /* while a cache is open, of ZT_MODE_GENERATE: its rows [cache_row, cache_row + B) are
     * those of the pass; `uncached`: none, and the tokens are a text of their own */
    int64_t cache_row;
    bool uncached;
};

/*
 * Returns the loss (scalar fp32 on the device) where every required label is there, else
 * the logits, owned by the step. ZT_E_ARG: a field that is required in this mode is
 * absent.
 */
zt_err zt_step_forward(struct zt_step *s, const struct zt_pass *pass, zt_tensor **out,
                       struct zt_fault *fault) ZT_MUST_CHECK;

/* Backward from a scalar with d(loss) = dloss, into the blocks' grads (+=). */
zt_err zt_step_backward(struct zt_step *s, zt_tensor *loss, float dloss,
                        struct zt_fault *fault) ZT_MUST_CHECK;

/* What an evaluation pass handed out under this name (zt_step_result), row-major; valid
 * until zt_step_end. NULL: nothing. */
const zt_tensor *zt_step_find_result(const struct zt_step *s, const char *name);

/* Let go of everything of this pass. After it the pool is as empty as before, but for
 * what is kept over passes: tables of rope, constants, the cache. */
void zt_step_end(struct zt_step *s);

/* The view behind a handle; for the engine and tests. */
const struct zt_view *zt_tensor_view(const zt_tensor *t);

/*
 * Generation: keys and values of up to max_tokens positions of B rows are kept between
 * passes of ZT_MODE_GENERATE, per attention call, in memory from the pool. The tokens of a
 * pass go behind those that its rows have from the passes before. Rows of a pass of several
 * tokens have the same number; with one token each they may differ.
 */
zt_err zt_step_cache_open(struct zt_step *s, int64_t B, int64_t max_tokens,
                          struct zt_fault *fault) ZT_MUST_CHECK;
/*
 * For a plugin of ZT_PLUGIN_CACHED_SOURCE, before the first pass: rows [i * rows_each, (i + 1) *
 * rows_each) are written from source i < num, of max_source tokens at most. A pass with S is
 * of the first of these rows alone and leaves there what all of them read; passes without S
 * follow, of one token a row.
 */
zt_err zt_step_cache_add_sources(struct zt_step *s, int64_t num, int64_t rows_each,
                                 int64_t max_source,
                                 struct zt_fault *fault) ZT_MUST_CHECK;
/* Whether a cache can be opened for this plugin. */
bool zt_plugin_has_cache(const struct zt_plugin *p, bool reads_source);
void zt_step_cache_reset(struct zt_step *s);               /* of all rows */
void zt_step_cache_forget(struct zt_step *s, int64_t row); /* of one: a new text */
/* Row `to` becomes what row `from` is, and its source with the first row of it; between
 * passes. */
zt_err zt_step_cache_copy(struct zt_step *s, int64_t from, int64_t to,
                          struct zt_fault *fault) ZT_MUST_CHECK;
size_t zt_step_cache_bytes(const struct zt_step *s); /* of what is in the pool now */
void zt_step_cache_close(struct zt_step *s);

/*
 * FLOPs of matrix products (gemm and attention, visible pairs only) queued since the last
 * call, forward and backward; what recomputation repeats is not counted again.
 */
double zt_step_take_flops(struct zt_step *s);

/* Seconds of the calls of recomputed blocks since this was called the last time, without
 * gathers of their weights; zeros without `profile`. */
struct zt_recompute_times {
    int64_t calls;
    double forward, again, backward; /* again: the second forward, before backward */
};
struct zt_recompute_times zt_step_take_times(struct zt_step *s);
/* The largest matrix product of the passes so far; zeros: there was none. */
struct zt_product zt_step_largest_product(const struct zt_step *s);

/*
 * For tests of single ops: a step outside any model. `requires_grad` leaves are made with
 * zt_step_leaf() over caller memory; zt_step_leaf_grad() is their gradient after backward
 * (NULL: none reached it).
 */
zt_tensor *zt_step_leaf(struct zt_step *s, struct zt_view v, bool requires_grad);
const struct zt_view *zt_step_leaf_grad(const zt_tensor *leaf);
zt_err zt_step_begin_bare(struct zt_step *s, zt_mode mode, struct zt_fault *fault);
zt_err zt_step_status(const struct zt_step *s, struct zt_fault *fault);

#endif
