/*
 * sample.h -- choosing the next token from logits; host arithmetic, no model.
 *
 * temperature 0 is greedy: the first of the largest. Otherwise
 * softmax(logits/temperature) cut to the top_k largest (0: all), then to the fewest that
 * reach top_p (1: all; Holtzman et al. 2020), and one of them by the uniform number u in
 * [0, 1).
 * Threads:   any, with its own scratch.
 */
#ifndef WORKER_GENERATE_SAMPLE_H
#define WORKER_GENERATE_SAMPLE_H

#include <stdint.h>

struct zt_sampling {
    double temperature, top_p;
    int64_t top_k;
};

/* scratch: n entries. A NaN among the logits is never chosen; returns -1 if all are. */
struct zt_choice {
    float p;
    int32_t id;
};
int32_t zt_sample_token(const float *logits, int64_t n, const struct zt_sampling *how,
                        double u, struct zt_choice *scratch);

#endif
