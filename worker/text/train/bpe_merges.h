/*
 * bpe_merges.h -- merges learned from words: over and over, the pair of neighbours that
 * stands most often becomes a token; of equal ones that of the lower ids.
 *
 * The merges are those of the package `tokenizers` (BpeTrainer), its habits with them: a
 * pair that comes again, because two merges gave the same token, is merged again, and the
 * count of a pair that overlaps itself is not corrected.
 *
 * Memory: 4 bytes a byte of each different word, 4 a word for each pair in it, 24 a pair.
 */
#ifndef WORKER_TEXT_TRAIN_BPE_MERGES_H
#define WORKER_TEXT_TRAIN_BPE_MERGES_H

#include "worker/text/train/word_counts.h"

struct zt_bpe_merge {
    int32_t left, right, into;
};

struct zt_bpe_learned {
    struct zt_buf merges; /* struct zt_bpe_merge, by rank; those done twice stand twice */
    struct zt_buf text;   /* of tokens, one behind the other, as bytes of the text */
    struct zt_buf ends;   /* size_t: where each ends */
};

/* Token `first_id` + b is byte_order[b]; lower ids have no text. */
struct zt_bpe_alphabet {
    const uint8_t *byte_order; /* (256) */
    int32_t first_id;
};

/* Tokens up to `vocab_size`, fewer where the words have no more pairs. `out` is initialised
 * here; release it in any case. ZT_E_NOMEM, ZT_E_LIMIT. */
zt_err zt_bpe_learn(const struct zt_word_counts *words,
                    const struct zt_bpe_alphabet *alphabet, int32_t vocab_size,
                    struct zt_bpe_learned *out) ZT_MUST_CHECK;
void zt_bpe_learned_release(struct zt_bpe_learned *l);

#endif
