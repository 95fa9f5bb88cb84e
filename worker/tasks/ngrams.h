/*
 * ngrams.h -- sequences of symbols (words or characters, as numbers) and what two of them
 * have in common.
 *
 * Ownership: `at` is its owner's, zt_symbols_release() frees it; a zeroed one is empty.
 * Threads:   pure functions.
 */
#ifndef WORKER_TASKS_NGRAMS_H
#define WORKER_TASKS_NGRAMS_H

#include "common/buf.h"

struct zt_symbols {
    uint32_t *at; /* (n) */
    int64_t n;
};
void zt_symbols_release(struct zt_symbols *s);

/* The characters of valid UTF-8 that are no blanks. ZT_E_NOMEM. */
zt_err zt_symbols_of_chars(const char *text, size_t n,
                           struct zt_symbols *out) ZT_MUST_CHECK;

/* The words between blanks of two texts, valid UTF-8; equal words have the same number in
 * both. ZT_E_NOMEM. */
zt_err zt_symbols_of_words(const char *const text[2], const size_t n[2],
                           struct zt_symbols out[2]) ZT_MUST_CHECK;

/* How many n-grams of symbols there are, n > 0. */
int64_t zt_num_ngrams(const struct zt_symbols *s, int64_t n);

/* How many of them both have, each as often as in the one that has fewer. ZT_E_NOMEM. */
zt_err zt_common_ngrams(const struct zt_symbols *a, const struct zt_symbols *b, int64_t n,
                        int64_t *out) ZT_MUST_CHECK;

/* Length of the longest common subsequence. ZT_E_NOMEM. */
zt_err zt_longest_common(const struct zt_symbols *a, const struct zt_symbols *b,
                         int64_t *out) ZT_MUST_CHECK;

/* What str.isspace() of Python says of a character. */
bool zt_is_blank(uint32_t c);

#endif
