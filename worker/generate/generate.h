/*
 * generate.h -- text from a model: prompts and what the model continues them with.
 *
 *      prompts (engine) --> writer --> decoder: passes, cache      sample, beam: the next token
 *                             |
 *                             +--> collect --> rank 0: events, or OUTPUT_DIR/predictions.jsonl,
 *                                              or the metrics of an evaluation
 *
 * Threads: one, that of the engine.
 */
#ifndef WORKER_GENERATE_GENERATE_H
#define WORKER_GENERATE_GENERATE_H

#include "worker/engine/engine.h"

/*
 * Collective. Continue e->prompts by run->generate_tokens tokens at most; rank 0 sends the
 * texts as events, that of a single prompt piece by piece as it comes; with run->do_predict it
 * writes them to output_dir/predictions.jsonl, a line for each prompt. ZT_E_NUMERIC: a
 * logit is NaN or +inf; ZT_E_FORMAT: of the files of the model; ZT_E_CANTCREATE.
 */
zt_err zt_generate(struct zt_engine *e, struct zt_fault *fault) ZT_MUST_CHECK;

/*
 * Collective: texts for e->eval_prompts, each once, and into *stats, on all ranks, how near they
 * are to those that were meant (the metrics that has_texts is before). A zt_rate_texts.
 */
zt_err zt_generate_scores(struct zt_engine *e, struct zt_eval_stats *stats,
                          struct zt_fault *fault) ZT_MUST_CHECK;

#endif
