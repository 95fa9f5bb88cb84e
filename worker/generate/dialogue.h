/*
 * dialogue.h -- --interactive: what is typed at zlaunch, and the answers of the model.
 *
 *      rank 0: a line -> history -> chat template -> ids --> writer, all ranks --> the answer
 *              ^                                                                       |
 *              +-----------------------------------------------------------------------+
 *
 * Rank 0 has the history and the text alone; the others take part in the passes of the writer,
 * and while rank 0 waits for a person it tells them so, again and again: none takes it for
 * dead. Threads: one, that of the engine.
 */
#ifndef WORKER_GENERATE_DIALOGUE_H
#define WORKER_GENERATE_DIALOGUE_H

#include "worker/engine/engine.h"

/*
 * Collective. Until the input ends. Turns that would not fit into e->prompts.longest tokens are
 * dropped, the oldest first. Answers are events "reply", in pieces "reply_part" as they come
 * (but of beams). ZT_E_NUMERIC: a logit is NaN or +inf; ZT_E_FORMAT: of the files of the model.
 */
zt_err zt_converse(struct zt_engine *e, struct zt_fault *fault) ZT_MUST_CHECK;

#endif
