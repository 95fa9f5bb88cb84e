/*
 * suggest.h -- "did you mean": the known name nearest to a misspelt one.
 *
 * Distance: insertions, deletions, replacements and swaps of neighbours (Damerau 1964),
 * where '-' equals '_' and case does not count. Threads: any. Failure: none.
 */
#ifndef COMMON_SUGGEST_H
#define COMMON_SUGGEST_H

#include <stddef.h>

/* Edits from a to b; at least the true number when a name is longer than 63. */
int zt_edit_distance(const char *a, const char *b);

/* Best-so-far of a search; start with {0}. */
struct zt_suggestion {
    const char *best; /* NULL: nothing near enough */
    int distance;
};

/* Consider one candidate; near means at most a third of the word's length, and two. */
void zt_suggest(struct zt_suggestion *s, const char *word, const char *candidate);

#endif
