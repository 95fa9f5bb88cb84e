/*
 * best.h -- which evaluation was the best so far, and what follows from it: when a run ends
 * early, and which weights it ends with.
 *
 * All ranks decide from the same numbers, so they decide the same.
 */
#ifndef WORKER_ENGINE_TASKS_BEST_H
#define WORKER_ENGINE_TASKS_BEST_H

#include "common/message/metrics.h"
#include "worker/engine/engine.h"

/* --metric_for_best_model is a metric that evaluations of this run have. ZT_E_USAGE, with
 * those that they have. */
zt_err zt_best_check(const struct zt_engine *e, struct zt_fault *fault) ZT_MUST_CHECK;

/* After an evaluation behind step `step`. Where the best weights are to be loaded at the end,
 * only an evaluation whose step is saved can become the best; patience compares with all of
 * them, as in Trainer. */
void zt_best_take(struct zt_engine *e, int64_t step, const struct zt_eval_stats *stats);

/* Whether as many evaluations in a row as --early_stopping_patience says were no better. */
bool zt_best_stops(const struct zt_engine *e);

/* Collective, at the end of training: the weights of the best step, from its checkpoint, where
 * --load_best_model_at_end asks for them; where that is damaged or gone the last ones stay, with
 * a warning. *step: that of the weights there are now. */
zt_err zt_best_load(struct zt_engine *e, int64_t *step,
                    struct zt_fault *fault) ZT_MUST_CHECK;

#endif
