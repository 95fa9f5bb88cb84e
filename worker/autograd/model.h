/*
 * model.h (worker) -- the table of blocks and parameters behind <zlaunch/model.h>.
 *
 * A block's owned parameters lie in one flat buffer in registration order, each aligned
 * to ZT_PARAM_ALIGN elements; the buffer is padded to a multiple of world *
 * ZT_SHARD_ALIGN elements, so that a shard is one contiguous slice at any world size:
 *
 *      | p0 .. pad | p1 ... pad | p2 . pad | padding |
 *      |<- rank 0 ->|<- rank 1 ->|<- rank 2 ->|<- 3 ->|
 *
 * M1: every element of every parameter lies in exactly one block, at offset_elems + i.
 * M2: padding is zero in weights and gradients, so sums over a buffer need no mask.
 * M3: padded_elems is a multiple of world * ZT_SHARD_ALIGN.
 * Ownership: the model owns everything here but the memory of zt_block_bind().
 * Threads:   unlocked; built by one thread, read-only during steps.
 */
#ifndef WORKER_AUTOGRAD_MODEL_H
#define WORKER_AUTOGRAD_MODEL_H

#include <zlaunch/plugin.h>

#include "common/fault.h"
#include "kernels/backend.h"
#include "worker/autograd/batch.h"

#define ZT_PARAM_ALIGN 64 /* elements */
#define ZT_SHARD_ALIGN                                                                   \
    4096 /* elements; = ZT_NORM_CHUNK, so shards cut between chunks                      \
          */

struct zt_adapter;

struct zt_param {
    char *name;
    struct zt_block *block; /* the owner */
    int index;              /* in model->params */
    int ndim;
    int64_t shape[ZT_MAX_NDIM];
    int64_t numel;
    int64_t offset_elems; /* in the block's flat buffer */
    struct zt_init init;
    unsigned flags;
    bool reached; /* set when backward adds to its gradient; cleared by who asks */
    bool
        is_new; /* set by who has the gradients: what is there counts for nothing, backward
                    * is to replace it; cleared by backward when it does */
    unsigned uses;              /* ZT_USED_..., of passes that note them (adapter.h) */
    struct zt_adapter *adapter; /* the pair beside it; NULL: none */
    struct zt_param *adapts;    /* the weight that it is a factor of the pair of; NULL */
    bool is_base; /* frozen under adapters: its values are in the folder that the run
                   * starts from, and in no checkpoint */
};

/* "(8, 768)"; for messages. */
const char *zt_sizes_text(int ndim, const int64_t *sizes, char out[96]);

struct zt_block {
    struct zt_model *model;
    char *name;
    int index; /* in model->blocks */
    struct zt_param *
        *params; /* owned, in the order of memory: that of registration, but for
                               * zt_block_adjoin() */
    int num_params;
    struct zt_param **shared; /* owned by other blocks */
    int num_shared;
    int64_t numel;        /* sum of the parameters */
    int64_t padded_elems; /* of the flat buffer, after zt_model_layout() */
    bool frozen;          /* all parameters are */

    void *weights; /* (padded_elems) compute dtype; zt_block_bind() */
    float *grads;  /* (padded_elems) fp32, added to or replaced (zt_param.is_new); there
                    * when backward is */
    bool requires_grads; /* backward is to compute them */
};

struct zt_model {
    const struct zt_plugin *plugin;
    void *self;
    struct zt_block **blocks;
    int num_blocks;
    struct zt_param **params;
    int num_params;
    int64_t numel; /* every parameter once */
    int64_t hidden_size, max_tokens, vocab;
    struct zt_batch_layout layout;
    /* the rest is private to model.c: options, config.json, exports, status */
    struct zt_model_private *priv;
};

/* What `build` may ask for. */
struct zt_model_config {
    const zt_args *args;
    int64_t data_vocab, block_size;
    const char *config_json; /* path of a config.json, or NULL */
    bool partial_import;     /* what the plugin does not know of it is a warning */
    bool new_head;           /* a head that does not fit begins as new */
    zt_task task;
    const char *const *labels; /* (num_labels) names of the classes */
    int64_t num_labels;
    bool has_tokenizer; /* the data's ids are of one that is known */
    bool has_text_end;  /* it is known what ends a text, by a tokenizer or without one */
    int64_t text_end;   /* that; -1: nothing does, or it is not known */
    int64_t text_begin; /* ... that begins one */
    int64_t text_pad;   /* ... that pads rows */
    int64_t learnt_end; /* that of texts which are trained on; -1: none are */
    zt_dtype compute_dtype;
};

/* Run plugin->build. On failure the text is the plugin's own sentence, with its name. */
zt_err zt_model_open(const struct zt_plugin *plugin, const struct zt_model_config *cfg,
                     struct zt_model **out, struct zt_fault *fault) ZT_MUST_CHECK;
void zt_model_close(struct zt_model *m); /* NULL is fine; runs plugin->release */

/* Has the plugin asked for an option that it does not have, or for another kind? Then
 * ZT_E_PLUGIN, with the sentence; or, behind build(), has it declared or refused something?
 * Whoever has called the plugin looks here: what it did with the empty value that it got is
 * not to be used. */
zt_err zt_model_check_options(const struct zt_model *m,
                              struct zt_fault *fault) ZT_MUST_CHECK;

/* Fix offsets and padding for a world size. Before zt_block_bind() and any step. */
void zt_model_layout(struct zt_model *m, int world);

/*
 * Where the block's weights and gradients are; the caller owns both. Without gradients
 * none are wanted. Who gives and takes them as blocks come and go sets the members
 * itself.
 */
void zt_block_bind(struct zt_block *b, void *weights, float *grads);

struct zt_param *zt_model_find(const struct zt_model *m, const char *name); /* or NULL */

/* The Philox key of a parameter's initial values: a hash of its name. */
uint64_t zt_param_init_stream(const struct zt_param *p);

/* Another name under which files may hold the values of a parameter. */
struct zt_twin {
    const struct zt_param *param;
    char *name;
};
const struct zt_twin *zt_model_twins(const struct zt_model *m, int *num);
/* Is its head the embedding whatever a config.json says of tie_word_embeddings? */
bool zt_model_is_always_tied(const struct zt_model *m);
/* A member of config.json that stays with the weights and changes nothing that they compute. */
bool zt_model_carries(const char *key);
/* Does the plugin say that a tensor of this name means nothing? */
bool zt_model_ignores_weight(const struct zt_model *m, const char *name);

/* config.json for export as text; the caller frees it. NULL: out of memory. */
char *zt_model_config_text(const struct zt_model *m);

/*
 * Load a plugin: dlopen, symbol, ABI. Each failure says what to do (rebuild against this
 * version, the undefined symbol, ...). The handle stays open for the life of the process.
 */
zt_err zt_plugin_load(const char *path, const struct zt_plugin **out,
                      struct zt_fault *fault) ZT_MUST_CHECK;

#endif
