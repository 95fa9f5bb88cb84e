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
#include <zlaunch/types.h>
#include <zlaunch/weights.h>

#ifdef __cplusplus
extern "C" {
#endif

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
