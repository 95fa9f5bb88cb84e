/*
 * beam.h -- beam search over what continues one text; host arithmetic, no model.
 *
 *      logits of every beam --> zt_beams_step --> which beam each goes on from, and a token
 *
 * The rules are those of `generate` of transformers, version 5, in fp32 as there: of every
 * beam's logarithms of probabilities, after the rules of logits.h, the best
 * (1 + tokens that end a text, at least 2) * num_beams continuations are taken. Those that
 * end, or reach max_new_tokens, and are among the first num_beams, are finished, with the
 * score (sum of logarithms) / (new tokens) ^ length_penalty; the best num_beams of all
 * finished ones are kept. The best num_beams of the others go on. Equal scores: the lower
 * beam, then the lower id is the better.
 *
 * With sampling the continuations are drawn, without replacement, by their probability.
 *
 * Threads:   one at a time.
 */
#ifndef WORKER_GENERATE_BEAM_H
#define WORKER_GENERATE_BEAM_H

#include "common/fault.h"
#include "kernels/philox.h"
#include "worker/config/run.h"
#include "worker/generate/logits.h"
#include "worker/generate/sample.h"

struct zt_beam_config {
    int64_t num_beams, vocab, max_new_tokens;
    double length_penalty;
    zt_early_stopping early_stopping;
    const struct zt_logits_rules *rules;
    const struct zt_sampling *sampling; /* NULL: the best are taken */
    struct zt_philox rng;               /* of this text, for sampling */
};

struct zt_beams;

/* ids (n): the text so far. cfg is kept by value, what it points to is the caller's. */
zt_err zt_beams_open(const struct zt_beam_config *cfg, const int32_t *ids, int64_t n,
                     struct zt_beams **out, struct zt_fault *fault) ZT_MUST_CHECK;
void zt_beams_close(struct zt_beams *b); /* NULL is fine */

/*
 * logits (num_beams, vocab) of the texts of all beams, none of them NaN or +inf, are
 * overwritten. Then beam i is what beam from[i] was (num_beams), and a token more. *done: the
 * search has ended. ZT_E_USAGE: without a text, as no score was large enough.
 */
zt_err zt_beams_step(struct zt_beams *b, float *logits, int32_t *from, bool *done,
                     struct zt_fault *fault) ZT_MUST_CHECK;

/* The text of beam i that goes on; valid until the next step. */
const int32_t *zt_beams_ids(const struct zt_beams *b, int64_t i, int64_t *n);
/* The i-th best text that is finished, with the token that ended it, and its score. */
const int32_t *zt_beams_result(const struct zt_beams *b, int64_t i, int64_t *n,
                               float *score);

#endif
