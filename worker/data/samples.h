/*
 * samples.h -- where the samples of a token stream are: lines of text, rows of records,
 * sequences of a Megatron index.
 *
 * One of fewer than two tokens has nothing to be learnt and is passed over, and of masked
 * tokens one that is a frame alone; num_short counts them. A sample that is a pair begins with its source. Memory: 12 bytes each, of pairs 16.
 */
#ifndef WORKER_DATA_SAMPLES_H
#define WORKER_DATA_SAMPLES_H

#include "worker/text/rows/examples.h"

struct zt_samples {
    int64_t *at;      /* (num) its first token */
    uint32_t *n;      /* (num) tokens, > 1; of examples and masked ones any number */
    uint32_t *source; /* (num) those of them that are the source of a pair; NULL:
                                    they are no pairs */
    struct zt_example *examples; /* (num); NULL: they are none */
    int64_t num, num_short;
};

/* Append samples of such lengths (num), one behind the other from token `at`, but for those of
 * fewer than `least` tokens; `sources` (num): of pairs, else NULL. Pairs and others are not in
 * one list. ZT_E_NOMEM. */
zt_err zt_samples_add(struct zt_samples *s, int64_t at, const uint32_t *lengths,
                      const uint32_t *sources, int64_t num, uint32_t least,
                      struct zt_fault *fault) ZT_MUST_CHECK;
/* The same of examples, as words of worker/text/rows/lines.h; none is passed over. */
zt_err zt_samples_add_examples(struct zt_samples *s, int64_t at, const uint32_t *words,
                               int64_t num_words, struct zt_fault *fault) ZT_MUST_CHECK;
void zt_samples_release(struct zt_samples *s); /* zeroed: fine */

#endif
