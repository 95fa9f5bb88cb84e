/*
 * logits.h -- what is done with logits before a token is chosen from them; host
 * arithmetic, no model.
 *
 * The rules have the names, the order and the fp32 arithmetic of `generate` of transformers:
 *
 *      repetition_penalty    logits of tokens that the text has, prompt and all: divided by it
 *                            where they are positive, else multiplied (Keskar et al. 2019)
 *      no_repeat_ngram_size  -inf for a token that would end a run of so many tokens that
 *                            the text has already
 *      min_new_tokens        -inf for tokens that end a text, until so many were added
 *      forced_bos_token_id   behind a single token, all but this one are -inf, and it is 0
 *      forced_eos_token_id   the last of max_new_tokens is one of these in the same way
 *
 * Threads:   any, each with a scratch of its own.
 */
#ifndef WORKER_GENERATE_LOGITS_H
#define WORKER_GENERATE_LOGITS_H

#include <stdbool.h>
#include <stdint.h>

struct zt_logits_rules {
    double repetition_penalty;    /* 1: none; greater than 0 */
    int64_t no_repeat_ngram_size; /* 0: any run may come again */
    int64_t min_new_tokens;
    const int32_t *ends; /* (num_ends) tokens that end a text */
    int num_ends;
    const int32_t *forced_first, *forced_last; /* as many as follow; 0: any token */
    int num_forced_first, num_forced_last;
    int64_t max_new_tokens; /* for forced_last */
};

bool zt_logits_is_end(const struct zt_logits_rules *rules, int32_t id);

/*
 * logits (vocab) become those that the rules leave. ids (n): the text so far, of which the
 * first num_prompt tokens were given; all in [0, vocab). scratch: n floats.
 */
void zt_logits_apply(const struct zt_logits_rules *rules, const int32_t *ids, int64_t n,
                     int64_t num_prompt, float *logits, int64_t vocab, float *scratch);

/* The first id whose logit is NaN or +inf, with which there are no probabilities; -1: none. */
int64_t zt_logits_find_bad(const float *logits, int64_t vocab);

/* logits (vocab) become their logarithms of probabilities; those of -inf stay. */
void zt_logits_normalize(float *logits, int64_t vocab);

#endif
