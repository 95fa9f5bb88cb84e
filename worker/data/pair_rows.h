/*
 * pair_rows.h -- rows of a batch from pairs of texts: one to read, one to write.
 *
 *      name             shape    dtype   of a pair whose source has s tokens and target n
 *      source           (B, S)   i32     the source, then padding
 *      source_lengths   (B)      i32     s
 *      tokens           (B, T)   i32     the start token, target 0 .. n - 2, then padding
 *      targets          (B, T)   i32     target 0 .. n - 1, then padding
 *      lengths          (B)      i32     n
 *
 * Of a text that is longer than a row the row takes what fits, but its last token stays: it ends
 * the text, as truncation in transformers leaves it.
 * Threads: any; nothing is kept.
 */
#ifndef WORKER_DATA_PAIR_ROWS_H
#define WORKER_DATA_PAIR_ROWS_H

#include "worker/data/fields.h"

/* How long rows may be, and how they are padded. */
struct zt_pair_limits {
    int64_t target, source; /* the most tokens of each */
    struct zt_padding padding;
};

/*
 * Fill B rows from these samples (B) of data that are pairs; -1: a row without data. *widths:
 * T and S, which the longest of the rows decide.
 */
zt_err zt_pair_rows_read(const struct zt_dataset *ds, const struct zt_pair_limits *most,
                         const int64_t *samples, int64_t B,
                         const struct zt_field_buffers *out, struct zt_widths *widths,
                         struct zt_fault *fault) ZT_MUST_CHECK;

#endif
