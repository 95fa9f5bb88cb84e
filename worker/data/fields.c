#include "worker/data/fields.h"

#include <stdio.h>
#include <string.h>

#include "worker/data/rows.h"

/* A row that is to be filled. */
struct filled_row {
    const struct zt_dataset *ds;
    int64_t T;
    const struct zt_row_piece *pieces;
    int64_t num;
    int64_t at, n; /* of the only piece of an example; else of the first */
};

/* Fills T, or 1, entries of a row; `to` is of the offer's type. */
typedef zt_err (*fill_fn)(const struct filled_row *r, void *to, double pad,
                          struct zt_fault *fault);

static void fill_up(int32_t *to, int64_t from, int64_t T, double pad)
{
    for (int64_t i = from; i < T; i++)
        to[i] = (int32_t)pad;
}

/* ---- stretches of the stream ---- */

static zt_err fill_tokens(const struct filled_row *r, void *to, double pad,
                          struct zt_fault *fault)
{
    int64_t at = 0;
    zt_err rc = ZT_OK;

    for (int64_t k = 0; !rc && k < r->num; at += r->pieces[k++].n)
        rc = zt_dataset_read(r->ds, r->pieces[k].at, r->pieces[k].n, (int32_t *)to + at,
                             fault);
    fill_up(to, at, r->T, pad);
    return rc;
}

static zt_err fill_targets(const struct filled_row *r, void *to, double pad,
                           struct zt_fault *fault)
{
    int64_t at = 0;
    zt_err rc = ZT_OK;

    for (int64_t k = 0; !rc && k < r->num; at += r->pieces[k++].n)
        rc = zt_dataset_read_targets(r->ds, r->pieces[k].at + 1, r->pieces[k].n,
                                     (int32_t)pad, (int32_t *)to + at, fault);
    fill_up(to, at, r->T, pad);
    return rc;
}

static zt_err fill_length(const struct filled_row *r, void *to, double pad,
                          struct zt_fault *fault)
{
    int64_t n = 0;

    (void)pad;
    (void)fault;
    for (int64_t k = 0; k < r->num; k++)
        n += r->pieces[k].n;
    *(int32_t *)to = (int32_t)n;
    return ZT_OK;
}

/* ---- masked ---- */

/* The last tokens that a row takes of a sample become what its frame ends with, where it ends
 * so itself: truncation in transformers keeps that. */
static zt_err keep_end(const struct filled_row *r, const struct zt_row_piece *p,
                       int32_t *to, struct zt_fault *fault)
{
    const struct zt_row_frame_part *end = &zt_dataset_rows(r->ds)->single.after;
    int64_t num = (int64_t)end->num, all = p->n + p->cut;
    zt_err rc = ZT_OK;

    if (!p->cut || num > p->n)
        return ZT_OK;
    for (int64_t i = 0; !rc && i < num; i++) {
        int32_t id = 0;

        rc = zt_dataset_read(r->ds, p->at + all - num + i, 1, &id, fault);
        if (!rc && id != end->ids[i])
            return ZT_OK;
    }
    for (int64_t i = 0; !rc && i < num; i++)
        to[p->n - num + i] = end->ids[i];
    return rc;
}

static zt_err fill_framed(const struct filled_row *r, int32_t *to, double pad,
                          struct zt_fault *fault)
{
    zt_err rc = fill_tokens(r, to, pad, fault);

    for (int64_t k = 0; !rc && k < r->num; to += r->pieces[k++].n)
        rc = keep_end(r, &r->pieces[k], to, fault);
    return rc;
}

static zt_err fill_masked(const struct filled_row *r, void *to, double pad,
                          struct zt_fault *fault)
{
    int32_t *x = to;
    zt_err rc = fill_framed(r, to, pad, fault);

    for (int64_t k = 0; !rc && k < r->num; x += r->pieces[k++].n)
        zt_mask_row(zt_dataset_rows(r->ds), r->pieces[k].epoch, r->pieces[k].at, x,
                    r->pieces[k].n, x, NULL, 0);
    return rc;
}

static zt_err fill_originals(const struct filled_row *r, void *to, double pad,
                             struct zt_fault *fault)
{
    int32_t *x = to;
    zt_err rc = fill_framed(r, to, pad, fault);

    for (int64_t k = 0; !rc && k < r->num; x += r->pieces[k++].n)
        zt_mask_row(zt_dataset_rows(r->ds), r->pieces[k].epoch, r->pieces[k].at, x,
                    r->pieces[k].n, NULL, x, (int32_t)pad);
    return rc;
}

/* ---- where samples are ---- */

static zt_err fill_positions(const struct filled_row *r, void *to, double pad,
                             struct zt_fault *fault)
{
    int64_t at = 0;

    (void)fault;
    for (int64_t k = 0; k < r->num; k++)
        for (int64_t i = 0; i < r->pieces[k].n; i++)
            ((int32_t *)to)[at++] = (int32_t)i;
    fill_up(to, at, r->T, pad);
    return ZT_OK;
}

/* Padding sees itself alone: that costs the least. */
static void fill_segments(const struct filled_row *r, int32_t *to, bool end)
{
    int64_t at = 0;

    for (int64_t k = 0; k < r->num; k++) {
        int64_t first = at;

        while (at < first + r->pieces[k].n)
            to[at++] = (int32_t)(end ? first + r->pieces[k].n : first);
    }
    for (; at < r->T; at++)
        to[at] = (int32_t)(end ? at + 1 : at);
}

static zt_err fill_segment_begin(const struct filled_row *r, void *to, double pad,
                                 struct zt_fault *fault)
{
    (void)pad;
    (void)fault;
    fill_segments(r, to, false);
    return ZT_OK;
}

static zt_err fill_segment_end(const struct filled_row *r, void *to, double pad,
                               struct zt_fault *fault)
{
    (void)pad;
    (void)fault;
    fill_segments(r, to, true);
    return ZT_OK;
}

/* ---- examples ---- */

/* What of example r->at is in the row: its texts, behind which part of the frame. */
struct cut_example {
    const struct zt_example *x;
    const struct zt_row_frame *frame;
    int64_t at, a, b; /* its first token in the stream; tokens of its texts */
};

static struct cut_example cut(const struct filled_row *r)
{
    const struct zt_row_options *o = zt_dataset_rows(r->ds);
    struct cut_example c = {.x = zt_dataset_example(r->ds, r->at)};
    int64_t tokens;

    c.frame = c.x->is_pair ? &o->pair : &o->single;
    zt_dataset_sample(r->ds, r->at, &c.at, &tokens);
    (void)zt_example_cut(o, c.x, r->T, &c.a, &c.b);
    return c;
}

static int64_t put_frame(const struct zt_row_frame_part *p, int32_t *to, int64_t i,
                         int64_t n)
{
    for (size_t k = 0; k < p->num && i < n; k++)
        to[i++] = p->ids[k];
    return i;
}

static zt_err fill_example(const struct filled_row *r, void *to, double pad,
                           struct zt_fault *fault)
{
    struct cut_example c;
    int64_t i;
    zt_err rc;

    fill_up(to, 0, r->T, pad);
    if (!r->n)
        return ZT_OK;
    c = cut(r);
    i = put_frame(&c.frame->before, to, 0, r->n);
    rc = zt_dataset_read(r->ds, c.at, c.a, (int32_t *)to + i, fault);
    i = put_frame(&c.frame->between, to, i + c.a, r->n);
    if (!rc)
        rc = zt_dataset_read(r->ds, c.at + c.x->first, c.b, (int32_t *)to + i, fault);
    (void)put_frame(&c.frame->after, to, i + c.b, r->n);
    return rc;
}

static int64_t put_types(const struct zt_row_frame_part *p, int32_t *to, int64_t i,
                         int64_t n)
{
    for (size_t k = 0; k < p->num && i < n; k++)
        to[i++] = p->types ? p->types[k] : 0;
    return i;
}

static zt_err fill_types(const struct filled_row *r, void *to, double pad,
                         struct zt_fault *fault)
{
    int32_t *types = to;
    struct cut_example c;
    int64_t i, end;

    (void)fault;
    fill_up(to, 0, r->T, pad);
    if (!r->n)
        return ZT_OK;
    c = cut(r);
    i = put_types(&c.frame->before, types, 0, r->n);
    for (end = i + c.a; i < end; i++)
        types[i] = c.frame->type_a;
    i = put_types(&c.frame->between, types, i, r->n);
    for (end = i + c.b; i < end; i++)
        types[i] = c.frame->type_b;
    (void)put_types(&c.frame->after, types, i, r->n);
    return ZT_OK;
}

static zt_err fill_tags(const struct filled_row *r, void *to, double pad,
                        struct zt_fault *fault)
{
    struct cut_example c;
    int32_t *tags;
    zt_err rc;

    fill_up(to, 0, r->T, pad);
    if (!r->n)
        return ZT_OK;
    c = cut(r);
    tags = (int32_t *)to + c.frame->before.num;
    rc = zt_dataset_read(r->ds, c.at + c.x->first, c.a, tags, fault);
    for (int64_t i = 0; !rc && i < c.a; i++)
        tags[i] = tags[i] > 0 ? tags[i] - 1 : (int32_t)pad;
    return rc;
}

static zt_err fill_class(const struct filled_row *r, void *to, double pad,
                         struct zt_fault *fault)
{
    (void)fault;
    *(int32_t *)to = (int32_t)(r->n ? zt_dataset_example(r->ds, r->at)->label : pad);
    return ZT_OK;
}

static zt_err fill_number(const struct filled_row *r, void *to, double pad,
                          struct zt_fault *fault)
{
    (void)fault;
    *(float *)to = (float)(r->n ? zt_dataset_example(r->ds, r->at)->label : pad);
    return ZT_OK;
}

/* ---- the list ---- */

static const struct offer {
    const char *name;
    zt_row_kind rows;
    zt_example_kind only; /* of examples of this kind alone */
    zt_dtype dtype;
    bool per_token; /* (B, T), else (B); of a source (B, S) */
    bool of_packed; /* it says something of rows that samples share, and else nothing */
    fill_fn fill;   /* NULL: pair_rows.c fills it */
} offers[] = {
    {ZT_TOKENS, ZT_ROWS_NEXT_TOKEN, 0, ZT_I32, true, false, fill_tokens},
    {ZT_TARGETS, ZT_ROWS_NEXT_TOKEN, 0, ZT_I32, true, false, fill_targets},
    {ZT_LENGTHS, ZT_ROWS_NEXT_TOKEN, 0, ZT_I32, false, false, fill_length},
    {ZT_TOKENS, ZT_ROWS_MASKED, 0, ZT_I32, true, false, fill_masked},
    {ZT_TARGETS, ZT_ROWS_MASKED, 0, ZT_I32, true, false, fill_originals},
    {ZT_LENGTHS, ZT_ROWS_MASKED, 0, ZT_I32, false, false, fill_length},
    {ZT_POSITIONS, ZT_ROWS_NEXT_TOKEN, 0, ZT_I32, true, true, fill_positions},
    {ZT_SEGMENT_BEGIN, ZT_ROWS_NEXT_TOKEN, 0, ZT_I32, true, true, fill_segment_begin},
    {ZT_SEGMENT_END, ZT_ROWS_NEXT_TOKEN, 0, ZT_I32, true, true, fill_segment_end},
    {ZT_POSITIONS, ZT_ROWS_MASKED, 0, ZT_I32, true, true, fill_positions},
    {ZT_SEGMENT_BEGIN, ZT_ROWS_MASKED, 0, ZT_I32, true, true, fill_segment_begin},
    {ZT_SEGMENT_END, ZT_ROWS_MASKED, 0, ZT_I32, true, true, fill_segment_end},
    {ZT_TOKENS, ZT_ROWS_EXAMPLES, 0, ZT_I32, true, false, fill_example},
    {ZT_TOKEN_TYPES, ZT_ROWS_EXAMPLES, 0, ZT_I32, true, false, fill_types},
    {ZT_LENGTHS, ZT_ROWS_EXAMPLES, 0, ZT_I32, false, false, fill_length},
    {ZT_TARGETS, ZT_ROWS_EXAMPLES, ZT_EXAMPLES_TAGS, ZT_I32, true, false, fill_tags},
    {ZT_LABELS, ZT_ROWS_EXAMPLES, ZT_EXAMPLES_CLASS, ZT_I32, false, false, fill_class},
    {ZT_LABELS, ZT_ROWS_EXAMPLES, ZT_EXAMPLES_NUMBER, ZT_F32, false, false, fill_number},
    {ZT_SOURCE, ZT_ROWS_PAIRS, 0, ZT_I32, true, false, NULL},
    {ZT_SOURCE_LENGTHS, ZT_ROWS_PAIRS, 0, ZT_I32, false, false, NULL},
    {ZT_TOKENS, ZT_ROWS_PAIRS, 0, ZT_I32, true, false, NULL},
    {ZT_TARGETS, ZT_ROWS_PAIRS, 0, ZT_I32, true, false, NULL},
    {ZT_LENGTHS, ZT_ROWS_PAIRS, 0, ZT_I32, false, false, NULL},
};

#define NUM_OFFERS ((int)(sizeof(offers) / sizeof(offers[0])))

static bool is_of(const struct offer *o, const struct zt_row_options *rows)
{
    return o->rows == rows->kind && (!o->only || o->only == rows->examples);
}

static const struct offer *find_offer(const char *name, const struct zt_row_options *rows)
{
    for (int i = 0; i < NUM_OFFERS; i++)
        if (strcmp(offers[i].name, name) == 0 && is_of(&offers[i], rows))
            return &offers[i];
    return NULL;
}

static int64_t axis_of(const struct offer *o)
{
    return strcmp(o->name, ZT_SOURCE) == 0 ? ZT_DIM_S : ZT_DIM_T;
}

static bool is_same_type(const struct offer *o, const struct zt_field *f)
{
    int ndim = 0;

    while (ndim < ZT_MAX_NDIM && f->shape[ndim])
        ndim++;
    return f->dtype == o->dtype && f->shape[0] == ZT_DIM_B && ndim == 1 + o->per_token &&
           (!o->per_token || f->shape[1] == axis_of(o));
}

zt_err zt_data_offers(const struct zt_field *declared, const char *which,
                      const struct zt_row_options *rows, bool packed, bool *offered,
                      struct zt_fault *fault)
{
    const struct offer *o = find_offer(declared->name, rows);
    char names[256] = "";
    size_t at = 0;

    *offered = o && (!o->of_packed || packed || declared->required);
    if (o && is_same_type(o, declared))
        return ZT_OK;
    if (o)
        return zt_fault_set(fault, ZT_E_PLUGIN,
                            "field %s is declared with another type than %s have: %s of "
                            "shape %s",
                            declared->name, which, zt_dtype_name(o->dtype),
                            !o->per_token            ? "{ZT_DIM_B}"
                            : axis_of(o) == ZT_DIM_S ? "{ZT_DIM_B, ZT_DIM_S}"
                                                     : "{ZT_DIM_B, ZT_DIM_T}");
    if (!declared->required)
        return ZT_OK;
    for (int i = 0; i < NUM_OFFERS && at < sizeof(names); i++)
        if (is_of(&offers[i], rows))
            at += (size_t)snprintf(names + at, sizeof(names) - at, "%s%s", at ? ", " : "",
                                   offers[i].name);
    return zt_fault_set(fault, ZT_E_PLUGIN,
                        "the model requires the field %s, which %s do not offer; they "
                        "offer %s",
                        declared->name, which, names);
}

int64_t zt_padded(const struct zt_padding *p, int64_t n, int64_t most)
{
    int64_t k = p->multiple > 0 ? p->multiple : 1;

    n = n < 1 ? k : (n + k - 1) / k * k;
    return p->to_max || n > most ? most : n;
}

zt_err zt_data_fill_row(const struct zt_dataset *ds, const struct zt_field_buffers *out,
                        int64_t row, int64_t T, const struct zt_row_piece *pieces,
                        int64_t num, struct zt_fault *fault)
{
    const struct filled_row r = {.ds = ds,
                                 .T = T,
                                 .pieces = pieces,
                                 .num = num,
                                 .at = num ? pieces[0].at : 0,
                                 .n = num ? pieces[0].n : 0};
    zt_err rc = ZT_OK;

    for (int i = 0; !rc && i < out->num; i++) {
        const struct zt_field *f = &out->fields[i];
        const struct offer *o =
            out->data[i] ? find_offer(f->name, zt_dataset_rows(ds)) : NULL;

        if (!out->data[i])
            continue;
        if (!o || !o->fill)
            return zt_fault_set(fault, ZT_E_ARG, "there is no field %s to read", f->name);
        rc = o->fill(&r, (int32_t *)out->data[i] + row * (o->per_token ? T : 1), f->pad,
                     fault); /* i32 and f32 are as wide */
    }
    return rc;
}
