/*
 * text_scores.h -- how near texts are to those that were meant: BLEU and chrF as sacreBLEU
 * computes them, ROUGE as the Python package rouge_score does; all from 0 to 100.
 *
 *      BLEU    of the corpus: tokenizer 13a, n-grams of 1 to 4 words, case kept, exponential
 *              smoothing
 *      chrF    of the corpus: n-grams of 1 to 6 characters without blanks, beta 2
 *      ROUGE   mean over texts of the F1 of words [a-z0-9]+ of the lowered text, not stemmed:
 *              1 and 2 of n-grams, L of the longest common subsequence
 *
 * One reference for each text. Texts that are no valid UTF-8 count with U+FFFD where they are
 * broken. Sums of ROUGE are in the order in which texts are added.
 * Threads: pure functions, and structs of their caller.
 */
#ifndef WORKER_TASKS_TEXT_SCORES_H
#define WORKER_TASKS_TEXT_SCORES_H

#include "common/fault.h"

#define ZT_BLEU_ORDER 4
#define ZT_CHRF_ORDER 6
enum { ZT_ROUGE_1, ZT_ROUGE_2, ZT_ROUGE_L, ZT_NUM_ROUGE };

/* What sacreBLEU prints beside a score, up to the version. */
#define ZT_BLEU_SIGNATURE "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp"
#define ZT_CHRF_SIGNATURE "nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no"

struct zt_text_scores { /* zeroed: of no text */
    int64_t num;        /* texts */
    int64_t written_words, meant_words;
    int64_t words[ZT_BLEU_ORDER], right_words[ZT_BLEU_ORDER];
    int64_t chars[ZT_CHRF_ORDER], meant_chars[ZT_CHRF_ORDER], right_chars[ZT_CHRF_ORDER];
    double rouge[ZT_NUM_ROUGE]; /* sums */
};

/* Texts of n and num_meant bytes. ZT_E_NOMEM. */
zt_err zt_text_scores_add(struct zt_text_scores *s, const char *written, size_t n,
                          const char *meant, size_t num_meant,
                          struct zt_fault *fault) ZT_MUST_CHECK;

double zt_bleu(const struct zt_text_scores *s);
double zt_chrf(const struct zt_text_scores *s);
double zt_rouge(const struct zt_text_scores *s, int kind); /* 0 of no text */

#endif
