/*
 * plugin.h -- the one struct a model plugin exports; include this, and write a forward
 * pass.
 *
 *     ZT_PLUGIN(.name = "mine", .options = options, .build = build, .forward = forward);
 *
 * Build it with:  cc -shared -fPIC $(pkg-config --cflags zlaunch) -o mine.so mine.c
 * Symbols of the API are resolved inside zworker when the plugin is loaded. It loads into
 * every later zlaunch of the same ABI major number, too (types.h).
 *
 * The same binary runs on every backend, under every ZeRO stage, for training, evaluation
 * and generation, and on shapes alone (backend `meta`) to plan memory before a run.
 */
#ifndef ZLAUNCH_PLUGIN_H
#define ZLAUNCH_PLUGIN_H

#include <zlaunch/batch.h>
#include <zlaunch/model.h>
#include <zlaunch/ops.h>
#include <zlaunch/option.h>
#include <zlaunch/save.h>
#include <zlaunch/types.h>
#include <zlaunch/weights.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * A flag of a plugin: text can be continued from a cache. While it is generated, forward
 * then gets the tokens alone that the passes before have not seen, T = 1 as a rule.
 *
 * The cache holds keys and values of zt_attention(), and nothing else. So the flag is for
 * models in which zt_attention(.causal = true) of as many queries as keys is the only
 * way from one token to another, and zt_positions() the only way to know a position:
 * most transformers. Not for convolutions, recurrences, attention that is not causal,
 * constants over positions, or sums over the axis of tokens: they would see the new
 * tokens as a text of their own.
 *
 * Without the flag every pass gets the whole context: right for every model, and slower.
 */
#define ZT_PLUGIN_CACHED 1u
/*
 * Beside ZT_PLUGIN_CACHED, of a model that reads a source: it is read once. A text's first
 * pass has the source and one token, later ones tokens alone: zt_batch_field() of ZT_SOURCE
 * and ZT_SOURCE_LENGTHS is NULL. zt_cross_attention() is the only way from the source to the
 * text. (since ABI 3.4)
 */
#define ZT_PLUGIN_CACHED_SOURCE 2u

struct zt_plugin {
    /* ZT_PLUGIN() fills these; the first two have this place in every version */
    uint32_t abi;          /* ZT_ABI */
    uint32_t struct_bytes; /* sizeof(struct zt_plugin) */
    uint32_t option_bytes; /* sizeof(struct zt_option) */

    const char *name;                /* "gpt2" */
    const char *summary;             /* one line for --help */
    const struct zt_option *options; /* ends with a NULL name; NULL: none */

    /*
     * Declare blocks, parameters and fields; *self is handed to forward and release.
     * Called once per model, before any step. Return zt_model_status(m), or
     * zt_model_fail().
     */
    zt_err (*build)(zt_model *m, void **self);

    /*
     * One pass over a batch: the summed loss (scalar fp32) when it has the labels, else
     * logits (see zt_lm_head). Parameters are only reachable inside zt_block_call().
     */
    zt_tensor *(*forward)(zt_step *s, void *self, const zt_batch *b);

    /* optional: free what build allocated; NULL: free(self) */
    void (*release)(void *self);

    /*
     * optional, on every rank: look at or change weights once they have their first
     * values, and after optimizer step `step` (1, 2, ...). See weights.h.
     */
    zt_err (*setup)(zt_weights *w, void *self);
    zt_err (*after_step)(zt_weights *w, void *self, int64_t step);

    uint32_t flags; /* optional: ZT_PLUGIN_... (since ABI 3.1) */

    /*
     * optional, on every rank: hand over what goes into a checkpoint that is being saved,
     * and take it back before the first step of a run that goes on from one (where the
     * checkpoint has none, nothing is found). See save.h. (since ABI 3.2)
     */
    zt_err (*save_state)(zt_client_state *s, void *self);
    zt_err (*load_state)(const zt_client_state *s, void *self);

    /* optional: ZT_CAN(...) of each task that it can be trained for, the first in the order
     * of zt_task unless --task says another; 0: causal language modelling. (since ABI 3.3) */
    uint32_t tasks;
};

#define ZT_PLUGIN_SYMBOL "zt_plugin_entry"
#define ZT_PLUGIN(...)                                                                   \
    ZT_API extern const struct zt_plugin zt_plugin_entry;                                \
    const struct zt_plugin zt_plugin_entry = {.abi = ZT_ABI,                             \
                                              .struct_bytes = sizeof(struct zt_plugin),  \
                                              .option_bytes = sizeof(struct zt_option),  \
                                              __VA_ARGS__}

#ifdef __cplusplus
}
#endif
#endif
