#include "worker/generate/sample.h"

#include <math.h>
#include <stdlib.h>

static int32_t largest(const float *x, int64_t n)
{
    int32_t best = 0;

    for (int64_t i = 1; i < n; i++)
        if (x[i] > x[best])
            best = (int32_t)i;
    return best;
}

/* By probability, then by id, so that equal ones have one order. */
static int by_probability(const void *a, const void *b)
{
    const struct zt_choice *x = a, *y = b;

    if (x->p != y->p)
        return x->p < y->p ? 1 : -1;
    return x->id < y->id ? -1 : x->id > y->id;
}

/* The k-th largest of n > k entries; they change places. */
static float kth_largest(struct zt_choice *x, int64_t n, int64_t k)
{
    int64_t lo = 0, hi = n - 1, at = k - 1;

    while (lo < hi) { /* Hoare's quickselect */
        float pivot = x[lo + (hi - lo) / 2].p;
        int64_t i = lo, j = hi;

        while (i <= j) {
            while (x[i].p > pivot)
                i++;
            while (x[j].p < pivot)
                j--;
            if (i <= j) {
                struct zt_choice t = x[i];

                x[i++] = x[j];
                x[j--] = t;
            }
        }
        if (at <= j)
            hi = j;
        else if (at >= i)
            lo = i;
        else
            break;
    }
    return x[at].p;
}

/* What equals the smallest that is kept stays, too. */
static int64_t cut_to_top_k(struct zt_choice *x, int64_t n, int64_t k)
{
    float least = kth_largest(x, n, k);
    int64_t kept = 0;

    for (int64_t i = 0; i < n; i++)
        if (x[i].p >= least)
            x[kept++] = x[i];
    return kept;
}

static int64_t cut_to_top_p(const struct zt_choice *x, int64_t n, double top_p,
                            int64_t min_kept)
{
    double sum = 0, mass = 0;
    int64_t kept;

    for (int64_t i = 0; i < n; i++)
        sum += (double)x[i].p;
    for (kept = 0; kept < n && (kept < min_kept || mass < top_p * sum); kept++)
        mass += (double)x[kept].p;
    return kept;
}

int64_t zt_sample_candidates(const float *logits, int64_t n,
                             const struct zt_sampling *how, struct zt_choice *scratch)
{
    int64_t least = how->min_kept > 1 ? how->min_kept : 1, kept = 0;
    int64_t k = how->top_k > least ? how->top_k : least;
    int32_t top = largest(logits, n);

    for (int64_t i = 0; i < n; i++) {
        double below = (double)logits[i] - (double)logits[top];

        if (logits[i] == logits[top]) /* two of them may be infinite */
            below = 0;
        scratch[kept].p = (float)exp(below / how->temperature);
        scratch[kept++].id = (int32_t)i;
    }
    if (how->top_k > 0 && k < kept)
        kept = cut_to_top_k(scratch, kept, k);
    qsort(scratch, (size_t)kept, sizeof(*scratch), by_probability);
    return how->top_p < 1 ? cut_to_top_p(scratch, kept, how->top_p, least) : kept;
}

int32_t zt_sample_token(const float *logits, int64_t n, const struct zt_sampling *how,
                        double u, struct zt_choice *scratch)
{
    double mass = 0;
    int64_t kept;

    if (how->temperature <= 0)
        return largest(logits, n);
    kept = zt_sample_candidates(logits, n, how, scratch);
    for (int64_t i = 0; i < kept; i++)
        mass += (double)scratch[i].p;
    u *= mass;
    for (int64_t i = 0; i < kept; i++) {
        u -= (double)scratch[i].p;
        if (u < 0)
            return scratch[i].id;
    }
    return scratch[kept - 1].id; /* rounding at the very end of the interval */
}
