/*
 * jsonl.c -- an object on each line (jsonlines.org). JSON has no line feed inside of a value.
 */
#include <stdlib.h>
#include <string.h>

#include "worker/records/format.h"
#include "worker/records/parse_json.h"

/* A file that is one object, over several lines: what has its rows. */
static zt_err refuse_one_object(const struct zt_records *r, const json_t *o,
                                struct zt_fault *fault)
{
    const char *key, *rows = NULL;
    json_t *value;

    json_object_foreach((json_t *)o, key, value)
    {
        if (!rows && json_is_array(value))
            rows = key;
    }
    if (!rows)
        return zt_records_fault(
            r, 0, ZT_E_FORMAT, fault,
            "is one object over several lines, and a row is an object "
            "on one line (jq -c . FILE makes that)");
    return zt_records_fault(r, 0, ZT_E_FORMAT, fault,
                            "is one object, and the rows are to be the file: if they are "
                            "in \"%s\", that list alone (jq '.[\"%s\"]' FILE makes it)",
                            rows, rows);
}

/* A copy of the text in which whole numbers of 19 digits or more are real ones; NULL: no memory. */
static char *copy_with_reals(const char *text, size_t n, size_t *out)
{
    char *copy = malloc(2 * n + 1), *to = copy;
    bool quoted = false;

    for (size_t i = 0; copy && i < n;) {
        size_t k = 0;

        while (!quoted && i + k < n && text[i + k] >= '0' && text[i + k] <= '9')
            k++;
        if (!k) {
            quoted ^= text[i] == '"';
            if (quoted && text[i] == '\\' && i + 1 < n)
                *to++ = text[i++];
            *to++ = text[i++];
            continue;
        }
        memcpy(to, text + i, k);
        to += k;
        i += k;
        /* digits of a fraction or a power are few, or no part of a whole number */
        if (k >= 19 && (i == n || !strchr(".eE", text[i])) && i > k &&
            !strchr(".eE+", text[i - k - 1])) {
            *to++ = 'e';
            *to++ = '0';
        }
    }
    *out = copy ? (size_t)(to - copy) : 0;
    return copy;
}

/* As a row that has a number too large for 64 bits: that one is read as a real one. */
static json_t *load_with_reals(const char *text, size_t n, size_t flags, json_error_t *e)
{
    size_t num;
    char *copy = copy_with_reals(text, n, &num);
    json_t *o = copy ? json_loadb(copy, num, flags, e) : NULL;

    if (!copy)
        e->text[0] = 0;
    free(copy);
    return o;
}

/* Keys that stand twice are refused. */
zt_err zt_records_parse_object(const struct zt_records *r, size_t from, size_t to,
                               json_t **row, struct zt_fault *fault)
{
    const size_t flags = JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_ANY;
    json_error_t e = {.text = ""};
    json_t *o = json_loadb(r->text + from, to - from, flags, &e);
    size_t at;

    if (!o && e.text[0] && json_error_code(&e) == json_error_numeric_overflow)
        o = load_with_reals(r->text + from, to - from, flags, &e);
    if (!o && !e.text[0]) /* jansson has no words for it */
        return zt_fault_set(fault, ZT_E_NOMEM, "%s: no memory for a row", r->path);
    at = from +
         (e.position > 0 && (size_t)e.position < to - from ? (size_t)e.position : 0);
    if (!o && zt_records_only_spaces(r, 0, from) &&
        (o = json_loadb(r->text, r->n, flags, NULL)) && json_is_object(o)) {
        zt_err rc = refuse_one_object(r, o, fault);

        json_decref(o);
        return rc;
    }
    if (!o)
        return zt_records_fault(r, at, ZT_E_FORMAT, fault,
                                "is no JSON: %s; mend the row, or take it out", e.text);
    if (!json_is_object(o)) {
        json_decref(o);
        return zt_records_fault(r, from, ZT_E_FORMAT, fault,
                                "a row has to be an object, as in {\"text\": \"...\"}");
    }
    *row = o;
    return ZT_OK;
}

bool zt_records_only_spaces(const struct zt_records *r, size_t from, size_t to)
{
    while (from < to && r->text[from] && strchr(" \t\r\n", r->text[from]))
        from++;
    return from == to;
}

static zt_err open_lines(struct zt_records *r, struct zt_fault *fault)
{
    (void)r;
    (void)fault;
    return ZT_OK;
}

static size_t end_of_line(const struct zt_records *r, size_t from)
{
    const char *end = memchr(r->text + from, '\n', r->n - from);

    return end ? (size_t)(end + 1 - r->text) : r->n;
}

const struct zt_record_format zt_records_jsonl = {
    .name = "jsonl",
    .ends = {".jsonl", ".jsonlines", ".ndjson"},
    .open = open_lines,
    .end = end_of_line,
    .is_blank = zt_records_only_spaces,
    .parse = zt_records_parse_object,
};
