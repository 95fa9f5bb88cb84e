/*
 * model.h -- how a plugin declares its weights: blocks, and named parameters in them.
 *
 * A block is the unit of everything: gathered and released as one piece under stage 3,
 * recomputed as one piece under activation checkpointing, offloaded, timed and counted as
 * one piece. Every parameter has one owning block; another block may share it (ties).
 *
 * Names are those of the Hugging Face checkpoint, so weights import and export by name.
 * Errors: a failed declaration returns NULL and is remembered by the model; later calls
 * do nothing and return NULL, so `build` needs to check only what it dereferences, and
 * returns zt_model_status() last.
 * Ownership: blocks and parameters belong to the model. Strings are copied.
 */
#ifndef ZLAUNCH_MODEL_H
#define ZLAUNCH_MODEL_H

#include <zlaunch/option.h>
#include <zlaunch/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* How a parameter starts. Values depend on (seed, name, element) alone. */
typedef enum zt_init_kind {
    ZT_INIT_ZEROS = 0,
    ZT_INIT_CONSTANT, /* a */
    ZT_INIT_NORMAL,   /* mean a, standard deviation b */
    ZT_INIT_UNIFORM,  /* [a, b) */
} zt_init_kind;

struct zt_init {
    zt_init_kind kind;
    float a, b;
};

#define ZT_ZEROS()          ((struct zt_init){ZT_INIT_ZEROS, 0, 0})
#define ZT_ONES()           ((struct zt_init){ZT_INIT_CONSTANT, 1, 0})
#define ZT_NORMAL(mean, sd) ((struct zt_init){ZT_INIT_NORMAL, (mean), (sd)})
#define ZT_UNIFORM(lo, hi)  ((struct zt_init){ZT_INIT_UNIFORM, (lo), (hi)})

/* Flags of a parameter. */
#define ZT_NO_DECAY 1u /* weight decay does not apply: norms, biases */
/* It never changes: no gradient is computed for it, no step, no decay. Any parameter can
 * be frozen, whatever else is in its block; a block of frozen ones alone takes no memory
 * for gradients, moments and master weights, and no communication for them. */
#define ZT_FROZEN 2u
/* It is not in the weights that a run starts from (--model_name_or_path): heads,
 * adapters. Where the folder has no such tensor it keeps its initial values. */
#define ZT_EXTRA 4u

/* A new block. `name` is unique in the model; blocks run in any order, any number of
 * times. */
ZT_API zt_block *zt_model_block(zt_model *m, const char *name);

/*
 * A parameter of `block`. `shape` has `ndim` axes, all > 0. `name` is unique in the
 * model. Storage is the run's compute dtype, with an fp32 master copy kept by the engine.
 */
ZT_API zt_param *zt_block_param(zt_block *block, const char *name, int ndim,
                                const int64_t *shape, struct zt_init init,
                                unsigned flags);
#define ZT_SHAPE(...)                                                                    \
    (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[])               \
    {                                                                                    \
        __VA_ARGS__                                                                      \
    }

/*
 * Let `block` use a parameter that another block owns (a tied weight). Gradients of all
 * uses add up in the owner; only the owner's name is written to checkpoints.
 */
ZT_API void zt_block_share(zt_block *block, zt_param *param);
/*
 * Keep parameters of one block side by side in memory, in this order, so that zt_linears() may
 * take them as one. Names, files and their order know nothing of it. (since ABI 3.5)
 */
ZT_API void zt_block_adjoin(zt_param *const *params, int num);

/* What other parts of the system ask a model. Set in `build`. */
ZT_API void zt_model_set_hidden_size(zt_model *m, int64_t hidden); /* rules of "auto" */
ZT_API void zt_model_set_max_tokens(zt_model *m,
                                    int64_t tokens); /* longest sequence; 0: any */
/* Token ids are in [0, vocab): data with others are refused, and generation chooses among
 * as many logits. */
ZT_API void zt_model_set_vocab(zt_model *m, int64_t vocab);

/* The vocabulary of the data, 0 when there are none (a plugin may default its own to it).
 */
ZT_API int64_t zt_model_data_vocab(const zt_model *m);
/* --block_size when given, else 0. */
ZT_API int64_t zt_model_block_size(const zt_model *m);
/* The plugin's options. */
ZT_API const zt_args *zt_model_args(const zt_model *m);

/*
 * What the run trains the model for: --task, one of those in zt_plugin.tasks. It decides
 * which head `build` declares and which fields data offer (batch.h). (since ABI 3.3)
 */
typedef enum zt_task {
    ZT_TASK_CAUSAL_LM = 0, /* the next token */
    ZT_TASK_MASKED_LM,     /* the tokens that are masked */
    ZT_TASK_CLASSIFY,      /* a class of each row */
    ZT_TASK_REGRESS,       /* a number for each row */
    ZT_TASK_TAG,           /* a class of each word */
    ZT_TASK_SEQ2SEQ,       /* a text from another one */
    ZT_NUM_TASKS
} zt_task;
#define ZT_CAN(task) (1u << (task)) /* for zt_plugin.tasks */
ZT_API zt_task zt_model_task(const zt_model *m);
/* Classes of ZT_TASK_CLASSIFY and ZT_TASK_TAG, by the labels of the data or by id2label of
 * the config.json that weights come with; 0: neither says. The config.json that is written
 * gets their names by itself. (since ABI 3.3) */
ZT_API int64_t zt_model_num_labels(const zt_model *m);

/*
 * Import: when weights come from a folder (--model_name_or_path) its config.json is read
 * here; `key` may name a nested member with dots ("rope.base"), or one of a list
 * ("layer_types.0"). Returns `def` when there is no such file or key, or it is null, and
 * when it is of another type or not within the range of the option of that name: then the
 * build has failed. zt_model_has_config() tells whether there is a config.json at all. Where
 * there is none, `pad_token_id`, `bos_token_id` and `eos_token_id` of a model of pairs are
 * those of the tokenizer, its `eos_token` where it has no other.
 */
ZT_API bool zt_model_has_config(const zt_model *m);
/* Whether it has such a member, null or not: where a key that is left out means something
 * else than null (since ABI 3.3). */
ZT_API bool zt_model_config_has(const zt_model *m, const char *key);
/* Members of a list, which "key.0" and so on are; -1: there is no list (since ABI 3.5). */
ZT_API int64_t zt_model_config_length(const zt_model *m, const char *key);
ZT_API int64_t zt_model_config_int(const zt_model *m, const char *key, int64_t def);
ZT_API double zt_model_config_float(const zt_model *m, const char *key, double def);
ZT_API const char *zt_model_config_string(const zt_model *m, const char *key,
                                          const char *def);

/*
 * So that weights are not trained as another model than they are of (since ABI 3.1):
 *
 * zt_model_config_must(): of `key` only the values of a JSON list are built, as in
 * zt_model_config_must(m, "scale_attn_weights", "[true]"). No such key, or null, is fine.
 *
 * zt_model_config_end(): all is read. Members that were neither read nor are in `ignored`
 * (patterns as of file names, then NULL), which lists what means nothing here, are refused
 * by name. Members that no model of transformers is changed by need not be listed.
 *
 * Tensors of the files that are no parameters are refused as well, but for those that
 * zt_model_ignore_weights() names by a pattern ("*.attn.bias"), and those that hold the
 * values of a parameter a second time, as tied weights may: zt_param_twin() gives that
 * name, and values that differ are an error.
 */
ZT_API void zt_model_config_must(zt_model *m, const char *key, const char *allowed);
ZT_API void zt_model_config_end(zt_model *m, const char *const *ignored);
ZT_API void zt_model_ignore_weights(zt_model *m, const char *pattern);
ZT_API void zt_param_twin(zt_model *m, zt_param *param, const char *name);

/*
 * Export: members of the config.json written beside the weights, so that other readers
 * (Hugging Face transformers) know the architecture. `json` is a JSON value as text:
 * zt_model_export(m, "n_layer", "%d", 12), zt_model_export(m, "model_type", "\"gpt2\"").
 */
ZT_API void zt_model_export(zt_model *m, const char *key, const char *json_fmt, ...)
    ZT_PRINTF(3, 4);
/* The same with what the imported config.json says; nothing when it does not. */
ZT_API void zt_model_export_imported(zt_model *m, const char *key);

/* Refuse to build of what was asked for, by options or a config.json: one sentence for the
 * user. Returns ZT_E_CONFIG, for `return`; the run ends with exit code 65. */
ZT_API zt_err zt_model_fail(zt_model *m, const char *fmt, ...) ZT_PRINTF(2, 3);
/* ZT_OK, or the first failure. */
ZT_API zt_err zt_model_status(const zt_model *m);

#ifdef __cplusplus
}
#endif
#endif
