/*
 * text_out.h -- token ids as the text that people read: by the tokenizer, as bytes, or as
 * numbers; the whole of it, or piece by piece.
 *
 * Pieces end with whole characters; all of them together are the whole. Zero bytes are text.
 *
 * Threads: one.
 */
#ifndef WORKER_GENERATE_TEXT_OUT_H
#define WORKER_GENERATE_TEXT_OUT_H

#include "worker/engine/engine.h"

/* Appends the text of ids (n), without special tokens. */
zt_err zt_text_of_ids(const struct zt_engine *e, const int32_t *ids, int64_t n,
                      struct zt_buf *out, struct zt_fault *fault) ZT_MUST_CHECK;

struct zt_text_pieces {
    const struct zt_engine *e;
    const char *kind;               /* of the events that pieces become */
    struct zt_token_stream *stream; /* NULL: no tokenizer */
    struct zt_buf piece;            /* bytes that are not sent yet */
    bool bytes, any;                /* any: an id has been put */
};

zt_err zt_text_pieces_open(struct zt_text_pieces *p, const struct zt_engine *e,
                           const char *kind, struct zt_fault *fault) ZT_MUST_CHECK;
/* An event with what is whole by now, if there is anything. */
zt_err zt_text_pieces_put(struct zt_text_pieces *p, const int32_t *ids, int64_t n,
                          struct zt_fault *fault) ZT_MUST_CHECK;
/* And one with the rest. */
zt_err zt_text_pieces_end(struct zt_text_pieces *p, struct zt_fault *fault) ZT_MUST_CHECK;
void zt_text_pieces_close(struct zt_text_pieces *p); /* a zeroed one is fine */

#endif
