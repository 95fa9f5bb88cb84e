/*
 * pairs.h -- rows with a text to read and a text to write: prompts and completions,
 * sentences and their translations.
 *
 *      {"prompt": "...", "completion": "..."}         source, target: columns
 *      {"translation": {"en": "...", "ro": "..."}}    one column, and two languages in it
 *
 * A row becomes prefix + source + target, as `prompt` and `completion` do in TRL. For a model
 * that reads the one and writes the other they are two texts, framed and ended each
 * (`separate`).
 */
#ifndef WORKER_TEXT_PAIRS_H
#define WORKER_TEXT_PAIRS_H

#include <stdbool.h>

#include <jansson.h>

#include "common/buf.h"
#include "common/fault.h"

/* Strings are the caller's. */
struct zt_text_pair {
    const char *source, *target;           /* columns; NULL: these are no pairs */
    const char *source_lang, *target_lang; /* of an object in the column; NULL */
    const char *prefix;                    /* NULL: none */
    bool separate; /* two texts; the ids of the source are marked as context */
};

/* Append one side of a row, the source without the prefix. Errors as below. */
zt_err zt_pair_render_source(const struct zt_text_pair *p, const json_t *row,
                             struct zt_buf *out, struct zt_fault *fault) ZT_MUST_CHECK;
zt_err zt_pair_render_target(const struct zt_text_pair *p, const json_t *row,
                             struct zt_buf *out, struct zt_fault *fault) ZT_MUST_CHECK;

/* Appends the text of a row, prefix, source and target; *source_bytes of it are to be read. ZT_E_FORMAT: a part is not
 * there, or no text; ZT_E_NOMEM. */
zt_err zt_pair_render(const struct zt_text_pair *p, const json_t *row, struct zt_buf *out,
                      size_t *source_bytes, struct zt_fault *fault) ZT_MUST_CHECK;

#endif
