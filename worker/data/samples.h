/*
 * samples.h -- where the samples of a token stream are: lines of text, rows of records,
 * sequences of a Megatron index.
 *
 * One of fewer than two tokens has nothing to be learnt and is passed over; num_short counts
 * them. Memory: 12 bytes each.
 */
#ifndef WORKER_DATA_SAMPLES_H
#define WORKER_DATA_SAMPLES_H

#include "common/fault.h"

struct zt_samples {
    int64_t *at; /* (num) its first token */
    uint32_t *n; /* (num) tokens, > 1 */
    int64_t num, num_short;
};

/* Append samples of such lengths (num), one behind the other from token `at`. ZT_E_NOMEM. */
zt_err zt_samples_add(struct zt_samples *s, int64_t at, const uint32_t *lengths,
                      int64_t num, struct zt_fault *fault) ZT_MUST_CHECK;
void zt_samples_release(struct zt_samples *s); /* zeroed: fine */

#endif
