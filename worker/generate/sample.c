#include "worker/generate/sample.h"

#include <math.h>
#include <stdlib.h>

static int32_t largest(const float *x, int64_t n)
{
    int32_t best = -1;

    for (int64_t i = 0; i < n; i++)
        if (!isnan(x[i]) && (best < 0 || x[i] > x[best]))
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

int32_t zt_sample_token(const float *logits, int64_t n, const struct zt_sampling *how,
                        double u, struct zt_choice *scratch)
{
    int32_t top = largest(logits, n);
    int64_t kept = 0, cut;
    double sum = 0, mass = 0;

    if (top < 0 || how->temperature <= 0)
        return top;
    for (int64_t i = 0; i < n; i++) {
        if (isnan(logits[i]))
            continue;
        scratch[kept].p =
            (float)exp(((double)logits[i] - (double)logits[top]) / how->temperature);
        scratch[kept++].id = (int32_t)i;
    }
    qsort(scratch, (size_t)kept, sizeof(*scratch), by_probability);
    if (how->top_k > 0 && how->top_k < kept)
        kept = how->top_k;
    for (int64_t i = 0; i < kept; i++)
        sum += (double)scratch[i].p;
    for (cut = 0; cut < kept && (cut == 0 || mass < how->top_p * sum); cut++)
        mass += (double)scratch[cut].p;
    u *= mass;
    for (int64_t i = 0; i < cut; i++) {
        u -= (double)scratch[i].p;
        if (u < 0)
            return scratch[i].id;
    }
    return scratch[cut - 1].id; /* rounding at the very end of the interval */
}
