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

/* Which symbols of BPE become one (sp_pairs.c). A symbol is a piece of text, by its id, or a
 * character that is none, but within one: num and above. Others have no number: -1. */
struct zt_sp_pairs {
    struct zt_sp_pair {
        uint64_t key; /* left << 32 | right; UINT64_MAX: free */
        int32_t into; /* a piece */
    } * slots;        /* (mask + 1), by hash of the key */
    uint32_t mask;
    struct zt_vocab chars; /* that are no pieces, to their number less num */
    int32_t ascii[128];    /* the symbols of characters */
    int32_t *ids; /* (num): what a piece is in the end: one of its text may be reserved */
};

struct zt_sentencepiece {
    struct zt_sp_piece *pieces; /* (num) */
    float *scores;              /* (num): what unigram adds up */
    float *node_scores; /* (trie.num_nodes): the same; -INFINITY: no piece ends there */
    int32_t num;
    char *texts, *unknown_text; /* of all pieces; what an unknown one is decoded to */
    size_t text_bytes;
    struct zt_vocab text_pieces; /* those that text can become, to their ids */
    struct zt_vocab reserved;    /* the others */
    struct zt_sp_pairs pairs;    /* of BPE */
    struct zt_trie trie,
        user_trie; /* unigram: those to be used; those defined by users */
    int32_t unknown, end, byte_ids[256];
    float min_score; /* of normal pieces */
    struct zt_charsmap *charsmap;
    bool is_bpe, byte_fallback, any_user, any_unused;
    bool add_dummy_prefix, remove_extra_whitespaces, escape_whitespaces;
    bool whitespace_as_suffix;
    /* A byte that is a character, and stays as it is: in any text; where ASCII or the text's
     * end follows. */
    bool is_plain[256], is_plain_before_ascii[256];
    bool words_stand_alone; /* each piece lies within a word (sp_words.c) */
};

static inline bool zt_sp_is_of_text(const struct zt_sp_piece *p)
{
    return p->type == ZT_SP_NORMAL || p->type == ZT_SP_USER || p->type == ZT_SP_UNUSED;
}

/* The bytes of the character at s by its first one, at most n. */
static inline size_t zt_sp_char_bytes(const char *s, size_t n)
{
    static const uint8_t by_nibble[16] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 3, 4};
    size_t len = by_nibble[(uint8_t)*s >> 4];

    return len < n ? len : n;
}

/* The id of a piece, reserved ones first; the unknown one. */
int32_t zt_sp_id(const struct zt_sentencepiece *m, const char *s, size_t n);

/* m->pairs, when all pieces are known. ZT_E_NOMEM. Release: zeroed is fine. */
zt_err zt_sp_pairs_make(struct zt_sentencepiece *m) ZT_MUST_CHECK;
void zt_sp_pairs_release(struct zt_sp_pairs *p);
size_t zt_sp_pairs_bytes(const struct zt_sp_pairs *p);
/* The symbol of one character. */
int32_t zt_sp_symbol(const struct zt_sentencepiece *m, const char *s, size_t n);

static inline uint64_t zt_sp_pair_key(int32_t left, int32_t right)
{
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

/* Where it is looked for first. */
static inline uint32_t zt_sp_pair_place(const struct zt_sp_pairs *p, uint64_t key)
{
    return (uint32_t)((key * 0x9e3779b97f4a7c15u) >> 32) & p->mask;
}

/* The piece that two symbols make together; -1: none. */
static inline int32_t zt_sp_join(const struct zt_sp_pairs *p, int32_t left, int32_t right)
{
    uint64_t key = zt_sp_pair_key(left, right);
    uint32_t at = zt_sp_pair_place(p, key);

    if (left < 0 || right < 0)
        return -1;
    while (p->slots[at].key != key) {
        if (p->slots[at].key == UINT64_MAX)
            return -1;
        at = (at + 1) & p->mask;
    }
    return p->slots[at].into;
}

/* m->is_plain, m->words_stand_alone, when all else is known. */
void zt_sp_find_plain(struct zt_sentencepiece *m);
void zt_sp_find_words(struct zt_sentencepiece *m);
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

/* Words of a text, one after the other: no piece crosses their borders (sp_words.c). */
struct zt_sp_words {
    struct zt_sp_output out;
    float sum; /* unigram: the scores of all so far */
    /* Of the unigram word just done: the least lead of a piece of it over what else leads
     * there, and how far from where it began its sums went; INFINITY: not known. */
    float lead, reach;
};

/* The next word: n > 0 bytes. */
zt_err zt_sp_unigram(struct zt_sp_words *d, struct zt_sp_work *w, const char *text,
                     size_t n) ZT_MUST_CHECK;
zt_err zt_sp_bpe(struct zt_sp_words *d, struct zt_sp_work *w, const char *text,
                 size_t n) ZT_MUST_CHECK;
/* Below it, unigram changes what its sums begin at. */
#define ZT_SP_LOWEST_SUM -1e5f

/* w->text to ids. */
zt_err zt_sp_encode_words(const struct zt_sentencepiece *m, struct zt_sp_work *w,
                          struct zt_buf *ids) ZT_MUST_CHECK;

#endif
