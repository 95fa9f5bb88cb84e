#include "worker/generate/logits.h"

#include <math.h>
#include <string.h>

bool zt_logits_is_end(const struct zt_logits_rules *rules, int32_t id)
{
    for (int i = 0; i < rules->num_ends; i++)
        if (rules->ends[i] == id)
            return true;
    return false;
}

/* All are read before one is written: a token that comes twice is penalised once. */
static void penalize_repetition(float penalty, const int32_t *ids, int64_t n,
                                float *logits, float *scratch)
{
    for (int64_t i = 0; i < n; i++) {
        float x = logits[ids[i]];

        scratch[i] = x < 0 ? x * penalty : x / penalty;
    }
    for (int64_t i = 0; i < n; i++)
        logits[ids[i]] = scratch[i];
}

/* The text's last size - 1 tokens, wherever they stand in it, are not followed by the
 * same token again. */
static void ban_ngrams(int64_t size, const int32_t *ids, int64_t n, float *logits)
{
    const int32_t *last = ids + n - (size - 1);

    for (int64_t i = 0; i + size <= n; i++)
        if (memcmp(ids + i, last, (size_t)(size - 1) * sizeof(*ids)) == 0)
            logits[ids[i + size - 1]] = -INFINITY;
}

static void force(const int32_t *ids, int num, float *logits, int64_t vocab)
{
    for (int64_t i = 0; i < vocab; i++)
        logits[i] = -INFINITY;
    for (int i = 0; i < num; i++)
        if (ids[i] < vocab)
            logits[ids[i]] = 0;
}

void zt_logits_apply(const struct zt_logits_rules *rules, const int32_t *ids, int64_t n,
                     int64_t num_prompt, float *logits, int64_t vocab, float *scratch)
{
    if (rules->repetition_penalty != 1)
        penalize_repetition((float)rules->repetition_penalty, ids, n, logits, scratch);
    if (rules->no_repeat_ngram_size > 0 && rules->no_repeat_ngram_size <= n)
        ban_ngrams(rules->no_repeat_ngram_size, ids, n, logits);
    for (int i = 0; i < rules->num_ends && n - num_prompt < rules->min_new_tokens; i++)
        if (rules->ends[i] >= 0 && rules->ends[i] < vocab)
            logits[rules->ends[i]] = -INFINITY;
    if (rules->num_forced_first && n == 1)
        force(rules->forced_first, rules->num_forced_first, logits, vocab);
    if (rules->num_forced_last && n - num_prompt == rules->max_new_tokens - 1)
        force(rules->forced_last, rules->num_forced_last, logits, vocab);
}

int64_t zt_logits_find_bad(const float *logits, int64_t vocab)
{
    for (int64_t i = 0; i < vocab; i++)
        if (isnan(logits[i]) || logits[i] == INFINITY)
            return i;
    return -1;
}

void zt_logits_normalize(float *logits, int64_t vocab)
{
    double most = -INFINITY, sum = 0, shift;

    for (int64_t i = 0; i < vocab; i++)
        most = logits[i] > most ? (double)logits[i] : most;
    if (!isfinite(most))
        return;
    for (int64_t i = 0; i < vocab; i++)
        sum += exp((double)logits[i] - most);
    shift = most + log(sum);
    for (int64_t i = 0; i < vocab; i++)
        logits[i] = (float)((double)logits[i] - shift);
}
