/*
 * suggest.h -- which of several names was written: one of a list, or the nearest of those
 *              that are offered ("did you mean").
 *
 * Distance is that of Damerau and Levenshtein (restricted): one letter put in, left out,
 * changed, or two neighbours swapped. '-' equals '_' and case does not count. A word that is left
 * out, and words at the end, count as a few letters.
 * Ownership: the candidates must outlive the struct.
 * Threads:   one.
 */
#ifndef COMMON_SUGGEST_H
#define COMMON_SUGGEST_H

#include "include/zlaunch/types.h"

/* Longer names are never near to anything. */
#define ZT_SUGGEST_MAX 128

struct zt_suggest {
    const char *word; /* what was written */
    const char *best; /* nearest so far, NULL: none; "": several */
    int distance;     /* of best */
};

/* Is `word` one of "a|b|c"? What follows a '=' there is no part of the word. words NULL:
 * no. */
bool zt_is_one_of(const char *words, const char *word, bool any_case);

int zt_suggest_distance(const char *a, const char *b);

void zt_suggest_init(struct zt_suggest *s, const char *word);
/* Compare word with name; remember what (the text to show) if it is the nearest. */
void zt_suggest_offer_as(struct zt_suggest *s, const char *name, const char *what);
void zt_suggest_offer(struct zt_suggest *s, const char *name);
/* The nearest, if it is near enough to be worth a sentence; else NULL. */
const char *zt_suggest_best(const struct zt_suggest *s);

#endif
