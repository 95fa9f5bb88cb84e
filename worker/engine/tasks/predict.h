/*
 * predict.h -- --do_predict of tasks with labels: what the model makes of each row of
 * --test_file, in OUTPUT_DIR/predictions.jsonl, a line a row, in the order of the rows.
 *
 *      classify  {"label": "NAME", "score": P, "logits": [...]}    score: its probability
 *      regress   {"label": X}
 *      tag       {"tags": ["NAME", ...]}     a word that --block_size has cut off has null
 *
 * Rows that are blank in the file have no line.
 */
#ifndef WORKER_ENGINE_TASKS_PREDICT_H
#define WORKER_ENGINE_TASKS_PREDICT_H

#include "worker/engine/engine.h"

/* Collective; rank 0 writes. ZT_E_CANTCREATE: it cannot. */
zt_err zt_engine_predict(struct zt_engine *e, struct zt_fault *fault) ZT_MUST_CHECK;

#endif
