/*
 * model.h -- what a model file says, as the files of this room share it.
 */
#ifndef WORKER_TEXT_SENTENCEPIECE_MODEL_H
#define WORKER_TEXT_SENTENCEPIECE_MODEL_H

#include "worker/text/charsmap.h"
#include "worker/text/sentencepiece/sentencepiece.h"
#include "worker/text/vocab.h"

#define ZT_SP_BLANK       "\xe2\x96\x81" /* U+2581: a blank within a piece */
#define ZT_SP_BLANK_BYTES 3

/* ModelProto.SentencePiece.Type */
typedef enum zt_sp_type {
    ZT_SP_NORMAL = 1,
    ZT_SP_UNKNOWN,
    ZT_SP_CONTROL,
    ZT_SP_USER,
    ZT_SP_UNUSED,
    ZT_SP_BYTE
} zt_sp_type;

struct zt_sp_piece {
    const char *text; /* (n), in `texts` */
    size_t n;
    float score;
    zt_sp_type type;
};

struct zt_sentencepiece {
    struct zt_sp_piece *pieces; /* (num) */
    float *scores;              /* (num): what unigram adds up */
    int32_t num;
    char *texts, *unknown_text; /* of all pieces; what an unknown one is decoded to */
    size_t text_bytes;
    struct zt_vocab text_pieces; /* those that text can become, to their ids */
    struct zt_vocab reserved;    /* the others */
    struct zt_trie trie,
        user_trie; /* unigram: those to be used; those defined by users */
    int32_t unknown, end, byte_ids[256];
    float min_score; /* of normal pieces */
    struct zt_charsmap *charsmap;
    bool is_bpe, byte_fallback, any_user, any_unused;
    bool add_dummy_prefix, remove_extra_whitespaces, escape_whitespaces;
    bool whitespace_as_suffix;
    bool is_plain[256]; /* a byte that is a character, and stays as it is in any text */
};

/* The bytes of the character at s by its first one, at most n. */
static inline size_t zt_sp_char_bytes(const char *s, size_t n)
{
    static const uint8_t by_nibble[16] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 3, 4};
    size_t len = by_nibble[(uint8_t)*s >> 4];

    return len < n ? len : n;
}

/* The id of a piece, reserved ones first; the unknown one. */
int32_t zt_sp_id(const struct zt_sentencepiece *m, const char *s, size_t n);

/* m->is_plain, when all else is known. */
void zt_sp_find_plain(struct zt_sentencepiece *m);
/* w->text becomes the normalized text. */
zt_err zt_sp_normalize(const struct zt_sentencepiece *m, struct zt_buf *out,
                       const char *text, size_t n, zt_sp_start start,
                       uint64_t *replaced) ZT_MUST_CHECK;

/* Puts the ids of pieces; unknown ones that follow each other are one, or their bytes. */
struct zt_sp_output {
    const struct zt_sentencepiece *m;
    struct zt_buf *ids;
    bool after_unknown;
};
zt_err zt_sp_put_piece(struct zt_sp_output *o, const char *s, size_t n,
                       int32_t id) ZT_MUST_CHECK;

/* w->text to pieces. */
zt_err zt_sp_unigram(const struct zt_sentencepiece *m, struct zt_sp_work *w,
                     struct zt_sp_output *o) ZT_MUST_CHECK;
zt_err zt_sp_bpe(const struct zt_sentencepiece *m, struct zt_sp_work *w,
                 struct zt_sp_output *o) ZT_MUST_CHECK;

#endif
