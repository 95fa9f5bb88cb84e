/*
 * fields.h -- what a token stream offers as fields of a batch, and how they are filled.
 *
 *      name           shape    dtype   of a row of pieces, each n tokens from `at` on
 *      tokens         (B, T)   i32     tokens at .. at + n - 1 of each piece, then padding
 *      targets        (B, T)   i32     the token after each of them, then padding; padding where
 *                                      that is context (zt_dataset_has_context())
 *      lengths        (B)      i32     tokens of all pieces
 *      positions      (B, T)   i32     0, 1, ... in each piece, then padding
 *      segment_begin  (B, T)   i32     where in the row the token's piece begins
 *      segment_end    (B, T)   i32     one past where it ends
 *
 * The last three are for rows that samples share: where each row is one piece, a model gets them
 * if it requires them, and goes without them if it does not. With masked rows (rows.h) some
 * tokens are replaced, and targets are those. Of examples a row has one piece, `at` is which one,
 * and there are
 *
 *      token_types (B, T) i32        the type of each, by the frame; else 0
 *      labels      (B)    i32, f32   the class, or the number; of rows with either
 *      targets     (B, T) i32        the class of a word at its first token, else padding
 *
 * The padding is what the model declared; of segments, each token behind the pieces is one by
 * itself. Threads: any; nothing is kept.
 */
#ifndef WORKER_DATA_FIELDS_H
#define WORKER_DATA_FIELDS_H

#include <zlaunch/batch.h>

#include "worker/data/dataset.h"

/* Host memory for a batch: for each declared field (B, ...) of its dtype; NULL: the field
 * is not read. */
struct zt_field_buffers {
    const struct zt_field *fields; /* (num), as the model declared them */
    int num;
    int32_t start; /* of pairs: the token that a target shifted right begins with */
    void *data[ZT_MAX_FIELDS];
};

/* Tokens of the widest row of a micro-batch, and of its widest source; 0: it has none. */
struct zt_widths {
    int64_t row, source;
};

/* How samples become rows of a micro-batch. */
struct zt_padding {
    int64_t multiple; /* of so many tokens, but for block_size; at least 1 */
    bool to_max;      /* all rows are block_size wide */
};

/* The width of rows of which the longest has n tokens; `most`: of all rows. */
int64_t zt_padded(const struct zt_padding *p, int64_t n, int64_t most);

/*
 * Whether the data offer a declared field (those of pairs: pair_rows.h). ZT_E_PLUGIN, with the names of what they
 * offer: the field is required and there is none, or there is one of another dtype or
 * shape. `which` names the data: "the training data"; `packed`: samples share rows.
 */
zt_err zt_data_offers(const struct zt_field *declared, const char *which,
                      const struct zt_row_options *rows, bool packed, bool *offered,
                      struct zt_fault *fault) ZT_MUST_CHECK;

/* Tokens [at, at + n) of a stream, or example `at`, whose row has n; `epoch` decides about
 * masks, and `cut` tokens of a sample are left out behind them. */
struct zt_row_piece {
    int64_t at, n, epoch, cut;
};

/* Fill row `row` (from 0) of a batch of T tokens from pieces of at most T tokens together; none:
 * padding alone. Fields that are read must be offered. */
zt_err zt_data_fill_row(const struct zt_dataset *ds, const struct zt_field_buffers *out,
                        int64_t row, int64_t T, const struct zt_row_piece *pieces,
                        int64_t num, struct zt_fault *fault) ZT_MUST_CHECK;

#endif
