/*
 * Records: the first byte chooses the kind, the rest is the file. Rows follow each other
 * without a gap to its end, and one that is read is an object that names nothing twice.
 */
#include <stdlib.h>
#include <string.h>

#include "worker/records/records.h"

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
    zt_records_release(&r);
    free(text);
    return 0;
}
