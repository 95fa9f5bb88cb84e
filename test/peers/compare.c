/*
 * compare.c -- do two .safetensors files hold the same numbers?
 *
 *      compare OURS.safetensors REFERENCE.safetensors TOLERANCE [PREFIX]
 *
 * Every tensor of REFERENCE whose name begins with PREFIX must be in OURS, with the same
 * number of elements, and there must be one. The measure, per tensor, is
 *
 *      max |ours - reference| / max |reference|
 *
 * A NaN on either side fails. Prints the worst tensor; exit code 1 when it is too far.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker/checkpoint/safetensors.h"

static zt_err load(const struct zt_safetensors_tensor *t, float **out,
                   struct zt_fault *fault)
{
    float *values = malloc((size_t)t->elems * sizeof(*values) + 1);
    zt_err rc;

    if (!values)
        return zt_fault_set(fault, ZT_E_NOMEM, "%s: no memory", t->name);
    rc = zt_safetensors_read_f32(t, 0, t->elems, values, fault);
    if (rc)
        free(values);
    else
        *out = values;
    return rc;
}

static double distance(const float *a, const float *b, int64_t n)
{
    double far = 0, large = 0;

    for (int64_t i = 0; i < n; i++) {
        double d = fabs((double)a[i] - (double)b[i]);

        if (!isfinite(d))
            return INFINITY;
        far = fmax(far, d);
        large = fmax(large, fabs((double)b[i]));
    }
    return far == 0 ? 0 : far / large;
}

static zt_err measure(const struct zt_safetensors_file *ours,
                      const struct zt_safetensors_tensor *r, double *out,
                      struct zt_fault *fault)
{
    const struct zt_safetensors_tensor *t = zt_safetensors_find(ours, r->name);
    float *a = NULL, *b = NULL;
    zt_err rc;

    if (!t || t->elems != r->elems)
        return zt_fault_set(fault, ZT_E_FORMAT, "%s: %s", r->name,
                            t ? "another size" : "missing");
    rc = load(t, &a, fault);
    if (!rc)
        rc = load(r, &b, fault);
    if (!rc)
        *out = distance(a, b, r->elems);
    free(a);
    free(b);
    return rc;
}

static zt_err compare(const char *const *paths, const char *prefix, double tolerance,
                      struct zt_fault *fault)
{
    struct zt_safetensors_file *ours = NULL, *reference = NULL;
    const char *worst = NULL;
    double most = -1;
    int n = 0;
    zt_err rc = zt_safetensors_open(paths[0], &ours, fault);

    if (!rc)
        rc = zt_safetensors_open(paths[1], &reference, fault);
    for (int i = 0; !rc && i < zt_safetensors_count(reference); i++) {
        const struct zt_safetensors_tensor *r = zt_safetensors_at(reference, i);
        double d = 0;

        if (strncmp(r->name, prefix, strlen(prefix)) != 0)
            continue;
        rc = measure(ours, r, &d, fault);
        n++;
        if (d > most) {
            most = d;
            worst = r->name;
        }
    }
    if (!rc && !n)
        rc = zt_fault_set(fault, ZT_E_FORMAT, "%s: no tensor %s*", paths[1], prefix);
    if (!rc) {
        printf("%d tensors, worst %s: %.3g (at most %g)\n", n, worst, most, tolerance);
        rc = most <= tolerance ? ZT_OK
                               : zt_fault_set(fault, ZT_E_NUMERIC, "%s differs", worst);
    }
    zt_safetensors_close(ours);
    zt_safetensors_close(reference);
    return rc;
}

int main(int argc, char **argv)
{
    struct zt_fault fault = {0};
    double tolerance = argc > 3 ? atof(argv[3]) : -1;

    if (argc < 4 || argc > 5 || tolerance < 0) {
        fprintf(stderr, "usage: compare OURS REFERENCE TOLERANCE [PREFIX]\n");
        return 2;
    }
    if (compare((const char *const *)argv + 1, argc > 4 ? argv[4] : "", tolerance,
                &fault)) {
        fprintf(stderr, "compare: %s\n", fault.text);
        return 1;
    }
    return 0;
}
