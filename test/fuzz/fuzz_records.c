/*
 * Records: the first byte chooses the kind, the rest is the file. Rows follow each other
 * without a gap to its end, and one that is read is an object that names nothing twice. What
 * rows are as examples, with the labels that they have themselves, adds up.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "worker/text/rows/examples.h"

/* A row that was encoded is as many ids as it says, and its label one that there is. */
static void check_example(const struct zt_example_spec *spec, const struct zt_example *x,
                          size_t ids)
{
    if (x->tokens != ids || x->first > x->tokens || !isfinite(x->label))
        abort();
    if (spec->kind == ZT_EXAMPLES_TAGS && x->tokens != 2 * x->first)
        abort();
    if (spec->kind == ZT_EXAMPLES_CLASS &&
        (x->label < 0 || x->label >= (double)spec->labels->num))
        abort();
}

static void read_examples(const struct zt_records *r, zt_example_kind kind)
{
    struct zt_labels labels = {0};
    struct zt_example_spec spec = {.kind = kind, .labels = &labels};
    struct zt_example_columns columns;
    struct zt_fault fault;
    struct zt_buf ids;
    size_t to;

    if ((kind != ZT_EXAMPLES_NUMBER && zt_examples_collect(&spec, r, &labels, &fault)) ||
        zt_example_find_columns(&spec, r, &columns, &fault)) {
        zt_labels_release(&labels);
        return;
    }
    zt_labels_sort(&labels);
    zt_buf_init(&ids, (size_t)1 << 24);
    for (size_t from = r->first; from < r->n; from = to) {
        struct zt_example x;
        json_t *row;

        to = zt_records_end(r, from);
        if (zt_records_is_blank(r, from, to) ||
            zt_records_parse(r, from, to, &row, &fault))
            continue;
        zt_buf_drop(&ids, zt_buf_used(&ids));
        if (!zt_example_encode(&spec, &columns, r, from, row, NULL, &ids, &x, &fault))
            check_example(&spec, &x, zt_buf_used(&ids) / sizeof(int32_t));
        json_decref(row);
    }
    zt_buf_release(&ids);
    zt_example_columns_release(&columns);
    zt_labels_release(&labels);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const char *const kinds[] = {"jsonl", "json", "csv", "tsv"};
    struct zt_fault fault;
    struct zt_records r;
    char *column, *text;
    size_t to;

    if (!n)
        return 0;
    text = malloc(n); /* one byte less is used: nothing behind it may be read */
    if (!text)
        return 0;
    memcpy(text, data + 1, n - 1);
    if (zt_records_open(&r, zt_record_format_named(kinds[data[0] % 4]), "fuzz", text,
                        n - 1, &fault)) {
        free(text);
        return 0;
    }
    if (!zt_records_find_text(&r, data[0] & 4 ? "text" : NULL, &column, &fault))
        free(column);
    for (size_t from = r.first; from < r.n; from = to) {
        json_t *row;

        to = zt_records_end(&r, from);
        if (to <= from || to > r.n)
            abort();
        if (zt_records_is_blank(&r, from, to) ||
            zt_records_parse(&r, from, to, &row, &fault))
            continue;
        if (!json_is_object(row) ||
            (r.columns && json_object_size(row) != json_array_size(r.columns)))
            abort();
        json_decref(row);
    }
    read_examples(&r, (zt_example_kind)(ZT_EXAMPLES_CLASS + (data[0] >> 3) % 3));
    zt_records_release(&r);
    free(text);
    return 0;
}
