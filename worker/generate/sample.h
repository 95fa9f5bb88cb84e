/*
 * sample.h -- choosing the next token from logits; host arithmetic, no model.
 *
 * temperature 0 is greedy: the first of the largest. Otherwise, as the warpers of
 * transformers, in their order: logits / temperature; of these the top_k largest (0: all),
 * and those that equal the smallest of them; of these the fewest likeliest that reach top_p
 * (1: all; Holtzman et al. 2020), but no fewer than min_kept; and one of what is left, by the
 * uniform number u in [0, 1).
 * Threads:   any, with its own scratch.
 */
#ifndef WORKER_GENERATE_SAMPLE_H
#define WORKER_GENERATE_SAMPLE_H

#include <stdint.h>

struct zt_sampling {
    double temperature, top_p;
    int64_t top_k, min_kept; /* min_kept: of both cuts; 0 means 1 */
};

struct zt_choice {
    float p; /* relative to the likeliest, which has 1 */
    int32_t id;
};

/*
 * What is left of logits (n), of which none is NaN, to choose from, likeliest first, equal ones
 * by id: returns how many, 1 at least. scratch: n entries.
 */
int64_t zt_sample_candidates(const float *logits, int64_t n,
                             const struct zt_sampling *how, struct zt_choice *scratch);

int32_t zt_sample_token(const float *logits, int64_t n, const struct zt_sampling *how,
                        double u, struct zt_choice *scratch);

#endif
