/*
 * rows.h -- what becomes of tokens in a row of a batch, beside being predicted one by one.
 *
 * Examples (worker/text/rows/examples.h): their texts are cut so that the row with its frame
 * has room, the longest first as the truncation "longest_first" of `tokenizers` does, and then
 * the frame is put. Masked rows: of the tokens that no frame puts a share is to be predicted;
 * of these 8 in 10 become the mask, 1 in 10 another token, and 1 in 10 stay (Devlin et al.
 * 2018). Which ones follows from (seed, epoch, place in the data, position in the row), so
 * masks are others in each epoch, and the same whatever the ranks; in every evaluation they
 * are the same.
 * Threads: pure functions.
 */
#ifndef WORKER_DATA_ROWS_H
#define WORKER_DATA_ROWS_H

#include "worker/text/rows/examples.h"

typedef enum zt_row_kind {
    ZT_ROWS_NEXT_TOKEN = 0, /* targets are the tokens behind */
    ZT_ROWS_MASKED,         /* targets are the tokens that were masked */
    ZT_ROWS_EXAMPLES,       /* a sample is an example */
    ZT_ROWS_PAIRS, /* a sample is a text to read and one to write (pair_rows.h) */
} zt_row_kind;

struct zt_masking {
    double probability; /* of a token to be predicted */
    uint64_t seed;
    int32_t mask, vocab; /* the mask's id; others are drawn below vocab */
};

struct zt_row_options {
    zt_row_kind kind;
    struct zt_masking masking;
    zt_example_kind examples;
    struct zt_row_frame single, pair; /* around a text, and two */
};

#define ZT_EVAL_EPOCH ((int64_t)0xffffff) /* of masks of evaluations */

/* Tokens that a row of at most T takes of an example, its frame with them; *a and *b of them
 * are of its two texts. */
int64_t zt_example_cut(const struct zt_row_options *o, const struct zt_example *x,
                       int64_t T, int64_t *a, int64_t *b);

/*
 * Tokens (n) of a row that begins at `place` of the data: those that are masked are replaced
 * in `tokens`, and `targets` gets what they were, `ignore` elsewhere. Either may be NULL.
 */
void zt_mask_row(const struct zt_row_options *o, int64_t epoch, int64_t place,
                 const int32_t *original, int64_t n, int32_t *tokens, int32_t *targets,
                 int32_t ignore);

#endif
