/*
 * json.c -- an array of objects, one row each, or objects on lines where there is no array.
 *
 * Rows are found by their braces, outside of strings, before anything is parsed: what
 * stands between two rows has to be one comma, and that is looked at with the first of them.
 */
#include "worker/records/format.h"
#include "worker/records/parse_json.h"

static bool is_array(const struct zt_records *r)
{
    return r->first > 0 && r->text[r->first - 1] == '[';
}

static zt_err open_array(struct zt_records *r, struct zt_fault *fault)
{
    size_t at = r->first;

    (void)fault;
    while (at < r->n && zt_records_only_spaces(r, at, at + 1))
        at++;
    if (at < r->n && r->text[at] == '[')
        r->first = at + 1;
    return ZT_OK;
}

/* Behind the value that begins at `from`: the first comma or bracket outside of it. */
static size_t end_of_value(const struct zt_records *r, size_t from)
{
    bool quoted = false;
    size_t depth = 0;

    for (; from < r->n; from++) {
        char c = r->text[from];

        if (quoted && c == '\\')
            from++;
        else if (c == '"')
            quoted = !quoted;
        else if (!quoted && (c == '{' || c == '['))
            depth++;
        else if (!quoted && depth && (c == '}' || c == ']'))
            depth--;
        else if (!quoted && !depth && (c == ',' || c == ']'))
            break;
    }
    return from < r->n ? from : r->n;
}

/* A row ends behind its comma; the last one, at the end of the file. */
static size_t end_of_row(const struct zt_records *r, size_t from)
{
    size_t at;

    if (!is_array(r))
        return zt_records_jsonl.end(r, from);
    at = end_of_value(r, from);
    return at < r->n && r->text[at] == ',' ? at + 1 : r->n;
}

/* The end of an array without rows. */
static bool is_blank(const struct zt_records *r, size_t from, size_t to)
{
    size_t at = from;

    if (!is_array(r))
        return zt_records_only_spaces(r, from, to);
    while (at < to && zt_records_only_spaces(r, at, at + 1))
        at++;
    return from == r->first && at < to && r->text[at] == ']' &&
           zt_records_only_spaces(r, at + 1, to);
}

static zt_err parse_row(const struct zt_records *r, size_t from, size_t to, json_t **row,
                        struct zt_fault *fault)
{
    size_t at;

    if (!is_array(r))
        return zt_records_parse_object(r, from, to, row, fault);
    while (from < to && zt_records_only_spaces(r, from, from + 1))
        from++; /* so that messages name the line where the row begins */
    at = end_of_value(r, from);
    if (at >= r->n || (at + 1 == r->n && r->text[at] == ',')) /* no row is behind it */
        return zt_records_fault(r, from, ZT_E_FORMAT, fault,
                                "the array has no end: the file is cut off");
    if (r->text[at] == ']' && !zt_records_only_spaces(r, at + 1, to))
        return zt_records_fault(r, at, ZT_E_FORMAT, fault,
                                "something stands behind the end of the array");
    return zt_records_parse_object(r, from, at, row, fault);
}

const struct zt_record_format zt_records_json = {
    .name = "json",
    .ends = {".json"},
    .open = open_array,
    .end = end_of_row,
    .is_blank = is_blank,
    .parse = parse_row,
};
