/*
 * collect.h -- texts of all ranks on rank 0, in order.
 *
 * Item i is rank (i % world)'s, as prompts are divided, and has `each` texts.
 */
#ifndef WORKER_GENERATE_COLLECT_H
#define WORKER_GENERATE_COLLECT_H

#include "common/buf.h"
#include "worker/comm/comm.h"

/* What stands before and behind a text that is appended to `mine`; *at is between them. ZT_E_NOMEM. */
zt_err zt_collect_begin(struct zt_buf *mine, size_t *at) ZT_MUST_CHECK;
void zt_collect_end(struct zt_buf *mine, size_t at);

/* A text of item i, n bytes of which any may be zero; called on rank 0 alone. */
typedef zt_err (*zt_take_text)(void *user, int64_t i, const char *text, size_t n,
                               struct zt_fault *fault);

/*
 * Collective. mine: (own items, each), the texts of this rank in order, each between a begin and
 * an end. An error of `take` is one of rank 0 alone, when all texts have been passed on.
 */
zt_err zt_collect_texts(struct zt_comm *c, int64_t num, int64_t each,
                        const struct zt_buf *mine, zt_take_text take, void *user,
                        struct zt_fault *fault) ZT_MUST_CHECK;

#endif
