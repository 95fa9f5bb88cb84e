/*
 * agree.h -- ranks find out before the first step whether they were given the same.
 *
 * What must be the same is written as lines of text; the ranks compare hashes, and only
 * when these differ look for the line. A text is canonical: equal things give equal
 * texts, so whatever may differ between ranks (paths, threads, places) is left out.
 * Threads: one.
 */
#ifndef WORKER_ENGINE_AGREE_H
#define WORKER_ENGINE_AGREE_H

#include "worker/autograd/model.h"
#include "worker/comm/comm.h"
#include "worker/data/dataset.h"

/*
 * Collective. ZT_OK when all ranks pass the same text. Else ZT_E_PEER on all of them,
 * with one line that is the same everywhere: the first rank whose text is not that of
 * rank 0, and the first line in which the two differ (cut to 300 bytes each). `what`
 * names the text: "the config".
 */
zt_err zt_agree(struct zt_comm *c, const char *what, const char *text,
                struct zt_fault *fault) ZT_MUST_CHECK;

/* Texts; allocated, the caller frees them. ZT_E_NOMEM. For the config see
 * worker/config/canonical_text.h. */

/* The plugin, its fields, and every block and parameter: name, shape, flags, initial
 * values, ties. */
zt_err zt_agree_model_text(const struct zt_model *m, char **out,
                           struct zt_fault *fault) ZT_MUST_CHECK;

/* Tokens, vocabulary, format and contents of both; NULL: there is none. */
zt_err zt_agree_data_text(const struct zt_dataset *train, const struct zt_dataset *eval,
                          char **out, struct zt_fault *fault) ZT_MUST_CHECK;

#endif
