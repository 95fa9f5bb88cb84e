/*
 * csv.c -- tables with a header, as RFC 4180 has them: a field in quotes may hold
 * separators, line feeds, and quotes that are written twice. Lines end in LF or CR LF.
 */
#include <stdlib.h>
#include <string.h>

#include "worker/records/format.h"
#include "worker/records/parse_json.h"

static char separator(const struct zt_records *r)
{
    return r->format == &zt_records_tsv ? '\t' : ',';
}

/* Quotes open a field only where it begins; one behind a closing one is text. */
static size_t end_of_row(const struct zt_records *r, size_t from)
{
    enum { BEGIN, PLAIN, QUOTED, CLOSED } field = BEGIN;
    char sep = separator(r);

    for (; from < r->n; from++) {
        char c = r->text[from];

        if (field == QUOTED)
            field = c == '"' ? CLOSED : QUOTED;
        else if (c == '\n')
            return from + 1;
        else if (c == '"' && field != PLAIN)
            field = QUOTED;
        else
            field = c == sep ? BEGIN : PLAIN;
    }
    return r->n;
}

/* A field: its text as it is meant, in `to` (of at least its length), and where it ends. */
static zt_err read_field(const struct zt_records *r, size_t *at, size_t end, char *to,
                         size_t *n, struct zt_fault *fault)
{
    const char *text = r->text;
    char sep = separator(r);
    size_t i = *at;

    *n = 0;
    if (i == end || text[i] != '"') {
        for (; i < end && text[i] != sep; i++)
            to[(*n)++] = text[i];
        *at = i;
        return ZT_OK;
    }
    for (i++; i < end && (text[i] != '"' || (i + 1 < end && text[i + 1] == '"')); i++) {
        i += text[i] == '"';
        to[(*n)++] = text[i];
    }
    if (i == end)
        return zt_records_fault(
            r, *at, ZT_E_FORMAT, fault,
            "the quote that begins here is not closed; a quote inside "
            "of a field is written twice");
    if (i + 1 < end && text[i + 1] != sep)
        return zt_records_fault(
            r, i, ZT_E_FORMAT, fault,
            "text stands behind the quote that closes a field; a quote "
            "inside of a field is written twice");
    *at = i + 1;
    return ZT_OK;
}

/* Fields of [from, to) as an array of strings, whatever bytes they hold. */
static zt_err read_fields(const struct zt_records *r, size_t from, size_t to,
                          json_t *fields, struct zt_fault *fault)
{
    char *text = malloc(to - from + 1);
    zt_err rc = text
                    ? ZT_OK
                    : zt_fault_set(fault, ZT_E_NOMEM, "%s: no memory for a row", r->path);

    to -= to > from && r->text[to - 1] == '\n';
    to -= to > from && r->text[to - 1] == '\r';
    for (bool more = true; !rc && more;) {
        size_t n;

        rc = read_field(r, &from, to, text, &n, fault);
        if (!rc && json_array_append_new(fields, json_stringn_nocheck(text, n)))
            rc = zt_fault_set(fault, ZT_E_NOMEM, "%s: no memory for a row", r->path);
        more = from < to;
        from++; /* the separator */
    }
    free(text);
    return rc;
}

/* ---- the table ---- */

static zt_err refuse_twice(const struct zt_records *r, size_t at, const char *name,
                           struct zt_fault *fault)
{
    return zt_records_fault(r, at, ZT_E_FORMAT, fault,
                            "two columns are named \"%s\"; name one of them otherwise",
                            name);
}

/* Names that are empty are fine: tables with numbered rows have one. */
static zt_err check_header(const struct zt_records *r, size_t at, struct zt_fault *fault)
{
    json_t *seen = json_object();
    zt_err rc = ZT_OK;
    json_t *name;
    size_t i;

    json_array_foreach(r->columns, i, name)
    {
        if (!rc && json_object_get(seen, json_string_value(name)))
            rc = refuse_twice(r, at, json_string_value(name), fault);
        if (!rc &&
            json_object_set_new_nocheck(seen, json_string_value(name), json_true()))
            rc = zt_fault_set(fault, ZT_E_NOMEM, "%s: no memory for its header", r->path);
    }
    json_decref(seen);
    return rc;
}

/* One column whose name has what separates columns elsewhere, outside of quotes: a table of
 * another kind, whose rows would be taken whole. */
static zt_err check_separator(const struct zt_records *r, size_t from,
                              struct zt_fault *fault)
{
    const char *others = separator(r) == '\t' ? ";,|" : ";\t|";
    const char *name = json_string_value(json_array_get(r->columns, 0));
    const char *other = name && json_array_size(r->columns) == 1 && r->text[from] != '"'
                            ? strpbrk(name, others)
                            : NULL;

    if (!other)
        return ZT_OK;
    if (*other == '\t')
        return zt_records_fault(
            r, from, ZT_E_USAGE, fault,
            "the header is one column, \"%s\": columns are separated by commas in a "
            ".csv; "
            "tabs are those of a .tsv: give the file that name, or say --data_format tsv",
            name);
    return zt_records_fault(
        r, from, ZT_E_FORMAT, fault,
        "the header is one column, \"%s\": columns are separated by commas in a .csv, by "
        "tabs in a .tsv, and not by '%.1s'; a single column of that name is written in "
        "quotes",
        name, other);
}

/* A CR outside of quotes, with no LF behind it: lines as old Mac programs end them. */
static bool has_bare_cr(const char *row, size_t n)
{
    bool quoted = false;

    for (size_t i = 0; i < n; i++) {
        if (row[i] == '"')
            quoted = !quoted;
        else if (row[i] == '\r' && !quoted && (i + 1 == n || row[i + 1] != '\n'))
            return true;
    }
    return false;
}

static zt_err open_table(struct zt_records *r, struct zt_fault *fault)
{
    size_t from = r->first;
    zt_err rc;

    if (from < r->n)
        r->first = end_of_row(r, from);
    if (zt_records_only_spaces(r, from, r->first))
        return zt_records_fault(r, from, ZT_E_FORMAT, fault,
                                "the first line has to name the columns");
    if (has_bare_cr(r->text + from, r->first - from))
        return zt_records_fault(r, from, ZT_E_FORMAT, fault,
                                "lines end in CR alone: convert it (tr '\\r' '\\n' "
                                "<FILE >NEW)");
    r->columns = json_array();
    rc = r->columns ? read_fields(r, from, r->first, r->columns, fault)
                    : zt_fault_set(fault, ZT_E_NOMEM, "%s: no memory", r->path);
    if (!rc)
        rc = check_separator(r, from, fault);
    return rc ? rc : check_header(r, from, fault);
}

static bool is_blank(const struct zt_records *r, size_t from, size_t to)
{
    while (from < to && (r->text[from] == '\r' || r->text[from] == '\n'))
        from++;
    return from == to;
}

static zt_err name_fields(const struct zt_records *r, size_t from, const json_t *fields,
                          json_t *row, struct zt_fault *fault)
{
    size_t want = json_array_size(r->columns), have = json_array_size(fields);

    if (have != want)
        return zt_records_fault(
            r, from, ZT_E_FORMAT, fault,
            "has %zu field%s, and the header %zu: a field that holds a "
            "%s is written in quotes",
            have, have == 1 ? "" : "s", want, separator(r) == '\t' ? "tab" : "comma");
    for (size_t i = 0; i < want; i++)
        if (json_object_set_nocheck(row, json_string_value(json_array_get(r->columns, i)),
                                    json_array_get(fields, i)))
            return zt_fault_set(fault, ZT_E_NOMEM, "%s: no memory for a row", r->path);
    return ZT_OK;
}

static zt_err parse_row(const struct zt_records *r, size_t from, size_t to, json_t **row,
                        struct zt_fault *fault)
{
    json_t *fields = json_array(), *o = json_object();
    zt_err rc = fields && o
                    ? ZT_OK
                    : zt_fault_set(fault, ZT_E_NOMEM, "%s: no memory for a row", r->path);

    if (!rc)
        rc = read_fields(r, from, to, fields, fault);
    if (!rc)
        rc = name_fields(r, from, fields, o, fault);
    json_decref(fields);
    if (rc)
        json_decref(o);
    else
        *row = o;
    return rc;
}

const struct zt_record_format zt_records_csv = {
    .name = "csv",
    .ends = {".csv"},
    .open = open_table,
    .end = end_of_row,
    .is_blank = is_blank,
    .parse = parse_row,
};

const struct zt_record_format zt_records_tsv = {
    .name = "tsv",
    .ends = {".tsv"},
    .open = open_table,
    .end = end_of_row,
    .is_blank = is_blank,
    .parse = parse_row,
};
