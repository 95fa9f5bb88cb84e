/*
 * generate.h -- text from a model: a prompt and what the model continues it with.
 *
 * Threads: one, that of the engine.
 */
#ifndef WORKER_GENERATE_GENERATE_H
#define WORKER_GENERATE_GENERATE_H

#include "worker/engine/engine.h"

/*
 * Collective. Continue run->prompt by run->generate_tokens tokens; rank 0 sends the text
 * as an event. ZT_E_USAGE: the prompt has ids outside of the vocabulary, or no ids where
 * the vocabulary is not bytes. ZT_E_NUMERIC: every logit is NaN.
 */
zt_err zt_generate(struct zt_engine *e, struct zt_fault *fault) ZT_MUST_CHECK;

#endif
