/*
 * results.h -- eval_results.json in --output_dir: what the weights that a run ends with are worth,
 * by the names that the example scripts of transformers give (eval_loss, eval_accuracy, ...).
 */
#ifndef WORKER_ENGINE_TASKS_RESULTS_H
#define WORKER_ENGINE_TASKS_RESULTS_H

#include "common/message/metrics.h"
#include "worker/engine/engine.h"

/* Of the newest evaluation; `best`: none before was better. For rank 0 alone; nothing is kept of it
 * where host memory ends. */
void zt_results_take(struct zt_engine *e, const struct zt_eval_stats *stats, bool best);

/* The weights of the best evaluation are those that the run has again. */
void zt_results_go_back_to_best(struct zt_engine *e);

/* Into the file, on rank 0, where the run has evaluated and has an --output_dir, which is made.
 * ZT_E_CANTCREATE and what writing can fail with. */
zt_err zt_results_write(const struct zt_engine *e, struct zt_fault *fault) ZT_MUST_CHECK;

/* A run whose last evaluation has no finite loss is no success: with these weights no further
 * training and no text would be. Nor is one whose last step had none, of weights that are not finite. Weights that were trained are saved by then. Collective, behind zt_results_write(). ZT_E_NUMERIC. */
zt_err zt_results_check(const struct zt_engine *e, struct zt_fault *fault) ZT_MUST_CHECK;

void zt_results_release(struct zt_engine *e);

#endif
