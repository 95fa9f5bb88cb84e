/*
 * sentencepiece.h -- SentencePiece's own model files (spiece.model, tokenizer.model): text
 * to ids and back as the library of that name does.
 *
 *      text -> sp_normalize.c: charsmap, blanks -> sp_words.c: words, those seen before
 *           -> sp_unigram.c or sp_bpe.c -> ids
 *      ids  -> sp_decode.c -> text
 *
 * Text may be any bytes: one that belongs to no UTF-8 character is read as U+FFFD.
 * Kinds of models that are taken: unigram, BPE. Threads: a model does not change.
 */
#ifndef WORKER_TEXT_SENTENCEPIECE_SENTENCEPIECE_H
#define WORKER_TEXT_SENTENCEPIECE_SENTENCEPIECE_H

#include "common/buf.h"
#include "common/fault.h"
#include "worker/text/word_cache.h"

struct zt_sentencepiece;

/* A model file's bytes; `name` is what messages call it. ZT_E_FORMAT, ZT_E_NOMEM. */
zt_err zt_sentencepiece_parse(const char *name, const void *bytes, size_t n,
                              struct zt_sentencepiece **out,
                              struct zt_fault *fault) ZT_MUST_CHECK;
void zt_sentencepiece_free(struct zt_sentencepiece *m); /* NULL is fine */

int32_t zt_sentencepiece_num(const struct zt_sentencepiece *m);
/* 0 <= id < num. Not terminated. */
const char *zt_sentencepiece_piece(const struct zt_sentencepiece *m, int32_t id,
                                   size_t *n);
/* What ends a text; -1: nothing. */
int32_t zt_sentencepiece_end_id(const struct zt_sentencepiece *m);
size_t zt_sentencepiece_bytes(const struct zt_sentencepiece *m);

/* ---- encoding ---- */

/* What a thread works with, with one model. */
struct zt_sp_work {
    struct zt_buf text;             /* normalized */
    struct zt_buf nodes, heap, cut; /* of the two ways to segment */
    struct zt_word_cache *words;    /* NULL: none yet */
};

void zt_sp_work_init(struct zt_sp_work *w);
void zt_sp_work_release(struct zt_sp_work *w);
size_t zt_sp_work_bytes(const struct zt_sp_work *w);

/* How a part of a text begins. */
typedef enum zt_sp_start {
    ZT_SP_TEXT,     /* as a text of its own */
    ZT_SP_CONTINUED /* behind another token: no blank is put in front, and one that is there
                     * stays */
} zt_sp_start;

/* Appends ids (int32_t); *replaced grows by the bytes that were no UTF-8. ZT_E_NOMEM,
 * ZT_E_LIMIT: the text is too long. */
zt_err zt_sentencepiece_encode(const struct zt_sentencepiece *m, struct zt_sp_work *w,
                               const char *text, size_t n, zt_sp_start start,
                               struct zt_buf *ids, uint64_t *replaced) ZT_MUST_CHECK;

/* ---- decoding, token by token ---- */

struct zt_sp_decoding {
    bool begun, blank_taken, any_text;
    uint8_t bytes[4]; /* of a character that waits for the rest of it */
    size_t num_bytes;
};

/* A zeroed struct begins a text. Append what is certain; end: what waited, as U+FFFD, and
 * the next text begins. */
zt_err zt_sentencepiece_put(const struct zt_sentencepiece *m, struct zt_sp_decoding *d,
                            int32_t id, struct zt_buf *out) ZT_MUST_CHECK;
zt_err zt_sentencepiece_end(struct zt_sp_decoding *d, struct zt_buf *out) ZT_MUST_CHECK;

#endif
