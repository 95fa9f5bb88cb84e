/*
 * times.h -- of times that were measured: their order, and the one in the middle.
 */
#ifndef BENCH_TIMES_H
#define BENCH_TIMES_H

#include <stdlib.h>

/* For qsort() of doubles, the shortest first. */
static inline int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Sorts t (n). */
static inline double median_of(double *t, int n)
{
    qsort(t, (size_t)n, sizeof(*t), by_value);
    return t[n / 2];
}

#endif
