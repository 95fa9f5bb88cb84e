/*
 * data.h (engine) -- the files that a run trains and evaluates on, and the rows of them that it
 * takes.
 *
 * Ownership: the engine's; zt_engine_close() closes what was opened.
 * Threads:   one.
 */
#ifndef WORKER_ENGINE_DATA_H
#define WORKER_ENGINE_DATA_H

#include "worker/engine/engine.h"

/* e->train_data and e->eval_data, where the run has files of that sort. */
zt_err zt_engine_open_data(struct zt_engine *e, struct zt_fault *fault) ZT_MUST_CHECK;

/* Rows of the embedding that the data need; 0 without data. */
int64_t zt_engine_data_vocab(const struct zt_engine *e);

/* Once the length of a row is known: the end of the training data is held out where there
 * are no files to evaluate on, no more rows are left than the run asks for, and samples are
 * packed. */
zt_err zt_engine_divide_data(struct zt_engine *e, struct zt_fault *fault) ZT_MUST_CHECK;

/* What an evaluation of this run evaluates: a hash of its data, of which rows of them it takes
 * and where these are cut. 0: nothing. */
uint64_t zt_engine_eval_fingerprint(const struct zt_engine *e);

/* The records as pairs, as the run names their columns. */
struct zt_text_pair zt_engine_pair(const struct zt_run *run);

/* Several samples share a row. */
bool zt_engine_packs_samples(const struct zt_run *run);

/* How wide the rows of samples are, as the run asks for it. */
struct zt_padding zt_engine_padding(const struct zt_run *run);

/* e->sampler and e->total_steps; ZT_E_USAGE without training data, ZT_E_FORMAT where no row of
 * them has a target. */
zt_err zt_engine_open_sampler(struct zt_engine *e, struct zt_fault *fault) ZT_MUST_CHECK;

/* Passes over the training data after this step, with which `rows` rows were read; under
 * drop_last one is over with its last whole batch. */
double zt_engine_epochs(const struct zt_engine *e, int64_t step, double rows);

/* An epoch of the training data ends with this step, which is not before the first. */
bool zt_engine_epoch_ends(const struct zt_engine *e, int64_t step);

#endif
