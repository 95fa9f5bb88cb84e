/*
 * spans.h -- entities that tags of words mark: which of them are right, as seqeval counts them
 * in its default mode.
 *
 *      B-PER I-PER O I-LOC B-LOC      PER 0-1, LOC 3-3, LOC 4-4
 *
 * Tags are O, or one of B I E S (begin, inside, end, single), a dash and a type.
 * Threads: pure functions, and structs of their caller.
 */
#ifndef WORKER_TASKS_SPANS_H
#define WORKER_TASKS_SPANS_H

#include "common/fault.h"

/* What the classes of tags say: (num) each. */
struct zt_span_tags {
    char *part; /* B, I, E, S or O */
    int *type;  /* equal where types are; of O -1 */
    int64_t num;
};

/* Whether all names are such tags, and some are not O. */
bool zt_tags_mark_spans(const char *const *names, int64_t num);

/* Of names (num) that do. ZT_E_NOMEM. */
zt_err zt_span_tags_open(struct zt_span_tags *t, const char *const *names, int64_t num,
                         struct zt_fault *fault) ZT_MUST_CHECK;
void zt_span_tags_close(struct zt_span_tags *t); /* zeroed: fine */

/* Whole numbers, which add up over rows and ranks. */
struct zt_span_counts {
    double right, predicted, meant;
};

/* The classes of the words of one row (n). */
void zt_spans_add(struct zt_span_counts *c, const struct zt_span_tags *t,
                  const int32_t *predicted, const int32_t *meant, int64_t n);

/* Over all types together; 0 where there is nothing to divide by. */
double zt_span_precision(const struct zt_span_counts *c);
double zt_span_recall(const struct zt_span_counts *c);
double zt_span_f1(const struct zt_span_counts *c);

#endif
