#include "worker/tasks/metrics.h"

#include <math.h>
#include <stdlib.h>

/* ---- classes ---- */

zt_err zt_class_counts_open(struct zt_class_counts *c, int64_t num,
                            struct zt_fault *fault)
{
    *c = (struct zt_class_counts){.num = num};
    c->counts = calloc(3 * (size_t)num + 1, sizeof(*c->counts));
    return c->counts ? ZT_OK : zt_fault_set(fault, ZT_E_NOMEM, "metrics: no memory");
}

void zt_class_counts_close(struct zt_class_counts *c)
{
    free(c->counts);
    *c = (struct zt_class_counts){.counts = NULL};
}

void zt_class_counts_add(struct zt_class_counts *c, int64_t predicted, int64_t meant)
{
    c->counts[3 * meant] += predicted == meant;
    c->counts[3 * predicted + 1]++;
    c->counts[3 * meant + 2]++;
}

static double right(const struct zt_class_counts *c, int64_t class)
{
    return c->counts[3 * class];
}

static double predicted(const struct zt_class_counts *c, int64_t class)
{
    return c->counts[3 * class + 1];
}

static double meant(const struct zt_class_counts *c, int64_t class)
{
    return c->counts[3 * class + 2];
}

double zt_accuracy(const struct zt_class_counts *c)
{
    double hits = 0, all = 0;

    for (int64_t i = 0; i < c->num; i++) {
        hits += right(c, i);
        all += meant(c, i);
    }
    return hits / all;
}

double zt_f1_of(const struct zt_class_counts *c, int64_t class)
{
    double both = predicted(c, class) + meant(c, class);

    return both > 0 ? 2 * right(c, class) / both : 0;
}

double zt_f1_macro(const struct zt_class_counts *c)
{
    double sum = 0;
    int64_t num = 0;

    for (int64_t i = 0; i < c->num; i++) {
        if (predicted(c, i) + meant(c, i) == 0)
            continue;
        sum += zt_f1_of(c, i);
        num++;
    }
    return num ? sum / (double)num : 0;
}

/* The correlation of Gorodkin (2004), which of two classes is that of Matthews. */
double zt_matthews(const struct zt_class_counts *c)
{
    double all = 0, hits = 0, both = 0, of_predicted = 0, of_meant = 0;

    for (int64_t i = 0; i < c->num; i++) {
        all += meant(c, i);
        hits += right(c, i);
        both += predicted(c, i) * meant(c, i);
        of_predicted += predicted(c, i) * predicted(c, i);
        of_meant += meant(c, i) * meant(c, i);
    }
    of_predicted = all * all - of_predicted;
    of_meant = all * all - of_meant;
    if (of_predicted <= 0 || of_meant <= 0)
        return 0;
    return (hits * all - both) / sqrt(of_predicted * of_meant);
}

/* ---- numbers ---- */

static double mean(const double *x, int64_t n)
{
    double sum = 0;

    for (int64_t i = 0; i < n; i++)
        sum += x[i];
    return sum / (double)n;
}

double zt_pearson(const double *x, const double *y, int64_t n)
{
    double mx = mean(x, n), my = mean(y, n), xx = 0, yy = 0, xy = 0, r;

    for (int64_t i = 0; i < n; i++) {
        xx += (x[i] - mx) * (x[i] - mx);
        yy += (y[i] - my) * (y[i] - my);
        xy += (x[i] - mx) * (y[i] - my);
    }
    if (n < 2 || !(xx > 0) || !(yy > 0))
        return NAN;
    r = xy / (sqrt(xx) * sqrt(yy));
    return r > 1 ? 1 : r < -1 ? -1 : r;
}

struct placed {
    double value;
    int64_t index;
};

static int compare_values(const void *x, const void *y)
{
    const struct placed *a = x, *b = y;

    if (a->value != b->value)
        return a->value < b->value ? -1 : 1;
    return (a->index > b->index) - (a->index < b->index);
}

/* Ranks from 1; equal values share the mean of theirs. */
static void rank_values(const double *x, int64_t n, struct placed *room, double *ranks)
{
    int64_t end;

    for (int64_t i = 0; i < n; i++)
        room[i] = (struct placed){x[i], i};
    qsort(room, (size_t)n, sizeof(*room), compare_values);
    for (int64_t i = 0; i < n; i = end) {
        for (end = i + 1; end < n && room[end].value == room[i].value; end++)
            ;
        for (int64_t k = i; k < end; k++)
            ranks[room[k].index] = (double)(i + 1 + end) / 2;
    }
}

static bool any_nan(const double *x, int64_t n)
{
    int64_t i = 0;

    while (i < n && !isnan(x[i]))
        i++;
    return i < n;
}

zt_err zt_spearman(const double *x, const double *y, int64_t n, double *out,
                   struct zt_fault *fault)
{
    struct placed *room = calloc((size_t)n + 1, sizeof(*room));
    double *ranks = calloc(2 * (size_t)n + 1, sizeof(*ranks));
    zt_err rc = ZT_OK;

    if (any_nan(x, n) || any_nan(y, n)) {
        *out = NAN; /* it has no rank */
    } else if (room && ranks) {
        rank_values(x, n, room, ranks);
        rank_values(y, n, room, ranks + n);
        *out = zt_pearson(ranks, ranks + n, n);
    } else {
        rc = zt_fault_set(fault, ZT_E_NOMEM, "metrics: no memory");
    }
    free(room);
    free(ranks);
    return rc;
}

int64_t zt_largest(const float *x, int64_t n)
{
    int64_t best = 0;

    for (int64_t i = 1; i < n; i++)
        if (x[i] > x[best] || (isnan(x[best]) && !isnan(x[i])))
            best = i;
    return best;
}
