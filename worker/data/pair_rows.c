#include "worker/data/pair_rows.h"

#include <string.h>

/* A text of a pair: tokens [at, at + all) of the stream, of which a row takes n. */
struct text {
    int64_t at, all, n;
};

struct row_pair {
    struct text source, target;
};

static struct text text_of(int64_t at, int64_t all, int64_t most)
{
    return (struct text){at, all, all < most ? all : most};
}

static struct row_pair pair_of(const struct zt_dataset *ds,
                               const struct zt_pair_limits *most, int64_t sample)
{
    int64_t at, n, source;

    if (sample < 0)
        return (struct row_pair){{0, 0, 0}, {0, 0, 0}};
    zt_dataset_sample(ds, sample, &at, &n);
    source = zt_dataset_source(ds, sample);
    return (struct row_pair){text_of(at, source, most->source),
                             text_of(at + source, n - source, most->target)};
}

/* The first `n` tokens of what a row takes of a text, then padding up to `width`. */
static zt_err fill(const struct zt_dataset *ds, const struct text *t, int64_t n,
                   int32_t *to, int64_t width, int32_t pad, struct zt_fault *fault)
{
    zt_err rc = zt_dataset_read(ds, t->at, n, to, fault);

    if (!rc && n == t->n && t->n < t->all) /* its last one is the text's */
        rc = zt_dataset_read(ds, t->at + t->all - 1, 1, to + n - 1, fault);
    for (int64_t i = n; i < width; i++)
        to[i] = pad;
    return rc;
}

/* The target behind the start token, less its last one. */
static zt_err fill_shifted(const struct zt_dataset *ds, const struct text *t,
                           int32_t start, int32_t *to, int64_t width, int32_t pad,
                           struct zt_fault *fault)
{
    if (!t->n)
        return fill(ds, t, 0, to, width, pad, fault);
    *to = start;
    return fill(ds, t, t->n - 1, to + 1, width - 1, pad, fault);
}

static zt_err fill_field(const struct zt_dataset *ds, const struct zt_field *f,
                         int32_t start, const struct row_pair *p, int32_t *to,
                         int64_t row, const struct zt_widths *w, struct zt_fault *fault)
{
    int32_t pad = (int32_t)f->pad;

    if (strcmp(f->name, ZT_SOURCE) == 0)
        return fill(ds, &p->source, p->source.n, to + row * w->source, w->source, pad,
                    fault);
    if (strcmp(f->name, ZT_TOKENS) == 0)
        return fill_shifted(ds, &p->target, start, to + row * w->row, w->row, pad, fault);
    if (strcmp(f->name, ZT_TARGETS) == 0)
        return fill(ds, &p->target, p->target.n, to + row * w->row, w->row, pad, fault);
    if (strcmp(f->name, ZT_SOURCE_LENGTHS) == 0)
        to[row] = (int32_t)p->source.n;
    else if (strcmp(f->name, ZT_LENGTHS) == 0)
        to[row] = (int32_t)p->target.n;
    else
        return zt_fault_set(fault, ZT_E_ARG, "there is no field %s to read", f->name);
    return ZT_OK;
}

zt_err zt_pair_rows_read(const struct zt_dataset *ds, const struct zt_pair_limits *most,
                         const int64_t *samples, int64_t B,
                         const struct zt_field_buffers *out, struct zt_widths *widths,
                         struct zt_fault *fault)
{
    int64_t source = 0, target = 0;
    zt_err rc = ZT_OK;

    for (int64_t b = 0; b < B; b++) {
        struct row_pair p = pair_of(ds, most, samples[b]);

        source = p.source.n > source ? p.source.n : source;
        target = p.target.n > target ? p.target.n : target;
    }
    *widths = (struct zt_widths){zt_padded(&most->padding, target, most->target),
                                 zt_padded(&most->padding, source, most->source)};
    for (int64_t b = 0; !rc && b < B; b++) {
        struct row_pair p = pair_of(ds, most, samples[b]);

        for (int i = 0; !rc && i < out->num; i++)
            if (out->data[i])
                rc = fill_field(ds, &out->fields[i], out->start, &p, out->data[i], b,
                                widths, fault);
    }
    return rc;
}
