/*
 * metrics.h -- how good predictions are, beside the loss: the definitions of scikit-learn and
 * scipy.
 *
 * Of classes counts are enough, which add up over ranks as whole numbers do. Of numbers all
 * pairs are needed, in the order of the data, so that sums are the same on any ranks.
 * Threads: pure functions, and structs of their caller.
 */
#ifndef WORKER_TASKS_METRICS_H
#define WORKER_TASKS_METRICS_H

#include "common/fault.h"

/*
 * Predictions of `num` classes, as doubles that hold whole numbers: counts[3 * c] is how often
 * class c was right, [3 * c + 1] how often it was predicted, [3 * c + 2] how often it was meant.
 */
struct zt_class_counts {
    double *counts; /* (3 * num) */
    int64_t num;
};

zt_err zt_class_counts_open(struct zt_class_counts *c, int64_t num,
                            struct zt_fault *fault) ZT_MUST_CHECK;
void zt_class_counts_close(struct zt_class_counts *c); /* zeroed: fine */
void zt_class_counts_add(struct zt_class_counts *c, int64_t predicted, int64_t meant);

double zt_accuracy(const struct zt_class_counts *c); /* NAN of none */
/* f1_score: of one class; of all, the mean over those that were predicted or meant. 0 where
 * there is nothing to divide by. */
double zt_f1_of(const struct zt_class_counts *c, int64_t class);
double zt_f1_macro(const struct zt_class_counts *c);
/* matthews_corrcoef, of any number of classes; 0 where one side is all of one class. */
double zt_matthews(const struct zt_class_counts *c);

/* pearsonr and spearmanr of n pairs; NAN where one side is constant. ZT_E_NOMEM. */
double zt_pearson(const double *x, const double *y, int64_t n);
zt_err zt_spearman(const double *x, const double *y, int64_t n, double *out,
                   struct zt_fault *fault) ZT_MUST_CHECK;

/* The first of the largest of n numbers; NaN is never it, unless all are: 0. */
int64_t zt_largest(const float *x, int64_t n);

#endif
