#include "worker/data/fields.h"

#include <stdio.h>
#include <string.h>

/* Fills T, or 1, entries of a row. */
typedef zt_err (*fill_fn)(const struct zt_dataset *ds, int32_t *to, int32_t pad,
                          int64_t T, int64_t at, int64_t n, struct zt_fault *fault);

static zt_err fill_tokens(const struct zt_dataset *ds, int32_t *to, int32_t pad,
                          int64_t T, int64_t at, int64_t n, struct zt_fault *fault)
{
    for (int64_t i = n; i < T; i++)
        to[i] = pad;
    return zt_dataset_read(ds, at, n, to, fault);
}

static zt_err fill_targets(const struct zt_dataset *ds, int32_t *to, int32_t pad,
                           int64_t T, int64_t at, int64_t n, struct zt_fault *fault)
{
    for (int64_t i = n; i < T; i++)
        to[i] = pad;
    return zt_dataset_read_targets(ds, at + 1, n, pad, to, fault);
}

static zt_err fill_length(const struct zt_dataset *ds, int32_t *to, int32_t pad,
                          int64_t T, int64_t at, int64_t n, struct zt_fault *fault)
{
    (void)ds;
    (void)pad;
    (void)T;
    (void)at;
    (void)fault;
    *to = (int32_t)n;
    return ZT_OK;
}

static const struct offer {
    const char *name;
    bool per_token; /* (B, T), else (B); all are i32 */
    fill_fn fill;
} offers[] = {
    {.name = "tokens", .per_token = true, .fill = fill_tokens},
    {.name = "targets", .per_token = true, .fill = fill_targets},
    {.name = "lengths", .per_token = false, .fill = fill_length},
};

#define NUM_OFFERS ((int)(sizeof(offers) / sizeof(offers[0])))

static const struct offer *find_offer(const char *name)
{
    for (int i = 0; i < NUM_OFFERS; i++)
        if (strcmp(offers[i].name, name) == 0)
            return &offers[i];
    return NULL;
}

static bool is_same_type(const struct offer *o, const struct zt_field *f)
{
    int ndim = 0;

    while (ndim < ZT_MAX_NDIM && f->shape[ndim])
        ndim++;
    return f->dtype == ZT_I32 && f->shape[0] == ZT_DIM_B && ndim == 1 + o->per_token &&
           (!o->per_token || f->shape[1] == ZT_DIM_T);
}

zt_err zt_data_offers(const struct zt_field *declared, const char *which, bool *offered,
                      struct zt_fault *fault)
{
    const struct offer *o = find_offer(declared->name);
    char names[256] = "";
    size_t at = 0;

    *offered = o != NULL;
    if (o && is_same_type(o, declared))
        return ZT_OK;
    if (o)
        return zt_fault_set(fault, ZT_E_PLUGIN,
                            "field %s is declared with another type than %s have: i32 of "
                            "shape %s",
                            declared->name, which,
                            o->per_token ? "{ZT_DIM_B, ZT_DIM_T}" : "{ZT_DIM_B}");
    if (!declared->required)
        return ZT_OK;
    for (int i = 0; i < NUM_OFFERS && at < sizeof(names); i++)
        at += (size_t)snprintf(names + at, sizeof(names) - at, "%s%s", i ? ", " : "",
                               offers[i].name);
    return zt_fault_set(fault, ZT_E_PLUGIN,
                        "the model requires the field %s, which %s do not offer; they "
                        "offer %s",
                        declared->name, which, names);
}

zt_err zt_data_fill_row(const struct zt_dataset *ds, const struct zt_field_buffers *out,
                        int64_t row, int64_t T, int64_t at, int64_t n,
                        struct zt_fault *fault)
{
    zt_err rc = ZT_OK;

    for (int i = 0; !rc && i < out->num; i++) {
        const struct zt_field *f = &out->fields[i];
        const struct offer *o = out->data[i] ? find_offer(f->name) : NULL;

        if (!out->data[i])
            continue;
        if (!o)
            return zt_fault_set(fault, ZT_E_ARG, "there is no field %s to read", f->name);
        rc = o->fill(ds, (int32_t *)out->data[i] + row * (o->per_token ? T : 1),
                     (int32_t)f->pad, T, at, n, fault);
    }
    return rc;
}
