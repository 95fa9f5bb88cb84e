/*
 * decoder.h -- logits behind texts that grow token by token, whichever rank has them.
 *
 * Each rank has rows, a text each. What a text has lost nothing of since its last step costs
 * one token in a pass with all others that are so; any other is read in a pass of its own,
 * one row: the bits of a text do not depend on who is written beside it.
 *
 * A model that reads a source does so in the first pass of a text, or of the first of the
 * beams that are written from it (ZT_PLUGIN_CACHED_SOURCE).
 *
 * Where weights are sharded every pass gathers them, so ranks make equally many: a rank
 * whose texts have ended goes on with passes of one token (`synced_gpus` of transformers).
 *
 * A plugin without ZT_PLUGIN_CACHED reads the whole context of each text for each token.
 *
 * Threads:   one, that of the engine.
 */
#ifndef WORKER_GENERATE_DECODER_H
#define WORKER_GENERATE_DECODER_H

#include "worker/engine/engine.h"

struct zt_decoder;

/* Texts are known by their row, 0 .. rows - 1, and are the caller's. */
struct zt_decoder_text {
    const int32_t *ids;
    int64_t n;
};

/* Collective, where weights are sharded. Room for what `g` says. */
zt_err zt_decoder_open(struct zt_engine *e, const struct zt_generation *g,
                       struct zt_decoder **out, struct zt_fault *fault) ZT_MUST_CHECK;
void zt_decoder_close(struct zt_decoder *d); /* NULL is fine */

/* Another text begins in a row: the next step reads it from its start. */
void zt_decoder_begin(struct zt_decoder *d, int64_t row, int64_t n);

/* Of a model that reads a source: the row's text is written from a copy of these ids. */
zt_err zt_decoder_set_source(struct zt_decoder *d, int64_t row, const int32_t *ids,
                             int64_t n, struct zt_fault *fault) ZT_MUST_CHECK;

/* The text of row `from` goes on in row `to`. */
zt_err zt_decoder_move(struct zt_decoder *d, int64_t from, int64_t to,
                       struct zt_fault *fault) ZT_MUST_CHECK;

/*
 * Rows first + i become what rows first + from[i] were, i < n. Needs a cache row beside those
 * of the texts (cache_rows of `g`).
 */
zt_err zt_decoder_reorder(struct zt_decoder *d, int64_t first, const int32_t *from,
                          int64_t n, struct zt_fault *fault) ZT_MUST_CHECK;

/*
 * Collective: logits (num, vocab) fp32 behind the texts of rows 0 .. num - 1; num may be 0.
 * *more: some rank had texts. Where there are none anywhere nothing was done.
 */
zt_err zt_decoder_step(struct zt_decoder *d, const struct zt_decoder_text *texts,
                       int64_t num, float *logits, bool *more,
                       struct zt_fault *fault) ZT_MUST_CHECK;

#endif
