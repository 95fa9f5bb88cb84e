/*
 * sampler.h -- which tokens a rank sees in which step, as pure arithmetic.
 *
 * The stream is cut into blocks of T + 1 tokens that start T apart. In each epoch a keyed
 * permutation of (seed, epoch), computed in constant time, orders them. A step takes the
 * next G = num_micro * world * B blocks:
 *
 *      row of the global batch = (micro * world + rank) * B + row of the micro-batch
 *
 * S1  every row of a global batch belongs to exactly one (micro, rank, row)
 * S2  N ranks with B rows and A micro-batches see what 1 rank with N*A of them sees, in
 *     the same order
 * S3  an epoch holds each block once; under drop_last, but for fewer than G blocks at its
 *     end, other ones in each epoch; without it a batch continues in the next epoch
 * S4  the position is four integers: set back, it gives the same rows again, under any
 *     number of ranks
 *
 * Of a dataset with samples each is a row by itself, in the place of a block: its first T + 1
 * tokens, and padding. Where samples are packed (zt_dataset_pack) such a row has several; pairs
 * are rows as pair_rows.h has it. A micro-batch is as wide as its longest row.
 *
 * Ownership: the dataset stays the caller's and must outlive the sampler.
 * Threads:   reading is safe from several threads.
 */
#ifndef WORKER_DATA_SAMPLER_H
#define WORKER_DATA_SAMPLER_H

#include "worker/data/fields.h"

struct zt_sampler_config {
    int64_t block_size;  /* T */
    int64_t source_size; /* S, of pairs */
    int64_t micro_rows;  /* B: rows of a micro-batch on one rank */
    int64_t num_micro;   /* micro-batches of a step (gradient accumulation) */
    int rank, world;
    uint64_t seed;
    bool in_order;             /* blocks as they lie in the stream, not shuffled */
    bool drop_last;            /* no batch spans two epochs */
    struct zt_padding padding; /* this and group_by_length: of samples */
    bool
        group_by_length; /* not of packed ones: of 50 global batches, as they are shuffled, the longest
                                  samples come first, so that rows of a batch are alike */
    bool random_start; /* each epoch cuts its blocks at another offset below T; needs 2 T
                          tokens, and loses up to T of them per epoch */
};

/* Everything that decides what comes next. Plain integers: store it as they are. */
struct zt_sampler_state {
    uint64_t seed;
    int64_t epoch;        /* full passes over the blocks */
    int64_t index;        /* blocks of this epoch already taken */
    int64_t blocks;       /* of an epoch, as index counts them; 0: as many as there are */
    int64_t grouped;      /* rows of the batches by which this epoch's samples are put in
                             order of length; 0: none are; -1: as the sampler does */
    uint64_t fingerprint; /* zt_dataset_fingerprint() of the data it belongs to */
};

struct zt_sampler;

/*
 * ZT_E_FORMAT: too few tokens for one block, or under drop_last for one global batch.
 * ZT_E_ARG: a size that is not positive, a rank outside the world.
 */
zt_err zt_sampler_open(const struct zt_dataset *ds, const struct zt_sampler_config *cfg,
                       struct zt_sampler **out, struct zt_fault *fault) ZT_MUST_CHECK;
void zt_sampler_close(struct zt_sampler *s); /* NULL is fine */

/*
 * Rows of micro-batch `micro` (from 0) of the `step`-th step (from 1) since the sampler
 * was opened or put to a position, into the fields of `out`. All B rows hold data. *widths
 * (NULL: not wanted): its T, at most block_size, and S.
 */
zt_err zt_sampler_read(const struct zt_sampler *s, int64_t step, int64_t micro,
                       const struct zt_field_buffers *out, struct zt_widths *widths,
                       struct zt_fault *fault) ZT_MUST_CHECK;

/* Row of the global batch where this rank's micro-batch begins. */
int64_t zt_sampler_row0(const struct zt_sampler *s, int64_t micro);

int64_t zt_sampler_num_blocks(
    const struct zt_sampler *s); /* of one epoch; or rows of samples */
int64_t zt_sampler_global_rows(const struct zt_sampler *s); /* G */

/* Steps that `epochs` (> 0) passes take, at least 1; a partial last step counts. Before the
 * sampler is put to a position. */
int64_t zt_sampler_num_steps(const struct zt_sampler *s, double epochs);

/* Steps from the position to the end of `epochs` passes; negative when it is behind that. Of a
 * batch of another size than the one that came to this position the steps are others. */
int64_t zt_sampler_steps_left(const struct zt_sampler *s, double epochs);

/* The position after `steps` steps (0: the one set last) since it was set. */
void zt_sampler_tell(const struct zt_sampler *s, int64_t steps,
                     struct zt_sampler_state *out);

/*
 * Go to a position: the next step is step 1 again. The seed is the position's from here
 * on. Where blocks are of another length than the position's, it is the one behind the same
 * share of the epoch. An epoch that was begun keeps its order of length to its end. ZT_E_FORMAT when it belongs to other data, ZT_E_ARG when it is out of
 * range; nothing changes then.
 */
zt_err zt_sampler_seek(struct zt_sampler *s, const struct zt_sampler_state *at,
                       struct zt_fault *fault) ZT_MUST_CHECK;

/*
 * The permutation itself: where sample `index` of `epoch` lies among n blocks. A
 * bijection of [0, n) for each (seed, epoch). 0 <= index < n.
 */
int64_t zt_permute(uint64_t seed, int64_t epoch, int64_t n, int64_t index);

/*
 * Evaluation: the stream in order, every token but the first a target exactly once. Each
 * rank runs the same number of batches; what is past the end is padding, so that sum of
 * losses / sum of targets over all ranks is the exact mean. Samples, where there are some, are
 * read in order, each a row.
 */
struct zt_eval_batches {
    const struct zt_dataset *ds;
    int64_t block_size, rows; /* T, B */
    int rank, world;
    int64_t num_batches;       /* per rank, the same on all */
    int64_t num_targets;       /* of all ranks and batches together: tokens - 1, or all of
                                  them where these are masked */
    struct zt_padding padding; /* of samples: this and the next to be set behind _init */
    int64_t source_size;       /* S, of pairs */
};

/* ZT_E_FORMAT: fewer than two tokens. ZT_E_ARG as zt_sampler_open(). */
zt_err zt_eval_batches_init(struct zt_eval_batches *ev, const struct zt_dataset *ds,
                            int64_t block_size, int64_t rows, int rank, int world,
                            struct zt_fault *fault) ZT_MUST_CHECK;

/* Batch `batch` (from 0) of this rank. *num_rows: how many of the B rows, the first ones,
 * hold data; may be 0. *widths as zt_sampler_read() has it. */
zt_err zt_eval_batches_read(const struct zt_eval_batches *ev, int64_t batch,
                            const struct zt_field_buffers *out, int64_t *num_rows,
                            struct zt_widths *widths,
                            struct zt_fault *fault) ZT_MUST_CHECK;

#endif
