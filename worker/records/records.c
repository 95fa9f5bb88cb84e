#include "worker/records/records.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/buf.h"
#include "worker/records/format.h"

static const struct zt_record_format *const formats[] = {
    &zt_records_jsonl,
    &zt_records_json,
    &zt_records_csv,
    &zt_records_tsv,
};
#define NUM_FORMATS (sizeof(formats) / sizeof(*formats))

static bool ends_with(const char *s, const char *tail)
{
    size_t n = strlen(s), k = strlen(tail);

    return n > k && strcasecmp(s + n - k, tail) == 0;
}

const struct zt_record_format *zt_record_format_named(const char *name)
{
    for (size_t i = 0; i < NUM_FORMATS; i++)
        if (strcmp(formats[i]->name, name) == 0)
            return formats[i];
    return NULL;
}

const struct zt_record_format *zt_record_format_of_file(const char *path)
{
    for (size_t i = 0; i < NUM_FORMATS; i++)
        for (const char *const *end = formats[i]->ends; *end; end++)
            if (ends_with(path, *end))
                return formats[i];
    return NULL;
}

const char *zt_record_format_name(const struct zt_record_format *f)
{
    return f->name;
}

/* ---- rows ---- */

size_t zt_records_end(const struct zt_records *r, size_t from)
{
    return r->format->end(r, from);
}

bool zt_records_is_blank(const struct zt_records *r, size_t from, size_t to)
{
    return r->format->is_blank(r, from, to);
}

zt_err zt_records_parse(const struct zt_records *r, size_t from, size_t to, json_t **row,
                        struct zt_fault *fault)
{
    return r->format->parse(r, from, to, row, fault);
}

/* The first row that is not blank; false: there is none. */
static bool first_row(const struct zt_records *r, size_t *from, size_t *to)
{
    for (*from = r->first; *from < r->n; *from = *to) {
        *to = zt_records_end(r, *from);
        if (!zt_records_is_blank(r, *from, *to))
            return true;
    }
    return false;
}

zt_err zt_records_open(struct zt_records *r, const struct zt_record_format *format,
                       const char *path, const char *text, size_t n,
                       struct zt_fault *fault)
{
    size_t from, to;
    zt_err rc;

    *r = (struct zt_records){.format = format, .path = path, .text = text, .n = n};
    if (n >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0)
        r->first = 3;
    rc = format->open(r, fault);
    if (!rc && !first_row(r, &from, &to))
        rc = zt_fault_set(fault, ZT_E_FORMAT, "%s: holds no rows; take it off the list",
                          path);
    if (rc)
        zt_records_release(r);
    return rc;
}

void zt_records_release(struct zt_records *r)
{
    json_decref(r->columns);
    *r = (struct zt_records){0};
}

zt_err zt_records_fault(const struct zt_records *r, size_t at, zt_err rc,
                        struct zt_fault *fault, const char *what, ...)
{
    char text[ZT_FAULT_TEXT];
    size_t line = 1;
    va_list args;

    for (const char *p = r->text; (p = memchr(p, '\n', (size_t)(r->text + at - p))); p++)
        line++;
    va_start(args, what);
    vsnprintf(text, sizeof(text), what, args);
    va_end(args);
    return zt_fault_set(fault, rc, "%s:%zu: %s", r->path, line, text);
}

/* ---- columns ---- */

/* The member of an object whose value is a list of objects, which have `member`, or NULL:
 * anything, in them; NULL: none is. */
static const char *find_list(const json_t *row, const char *member)
{
    const char *key;
    json_t *value;

    json_object_foreach((json_t *)row, key, value)
    {
        const json_t *first = json_array_get(value, 0);

        if (json_is_object(first) && (!member || json_object_get(first, member)))
            return key;
    }
    return NULL;
}

zt_err zt_records_check_nested(const struct zt_records *r, size_t at, const json_t *row,
                               struct zt_fault *fault)
{
    const char *key = find_list(row, NULL);

    return key ? zt_records_fault(r, at, ZT_E_FORMAT, fault,
                                  "no column is named \"text\"; rows that are inside of "
                                  "\"%s\" are to be the file: that list alone, or a row "
                                  "a line",
                                  key)
               : ZT_OK;
}

#define SHAREGPT                                                                         \
    "messages by ShareGPT's names: rename \"from\" to \"role\", of which \"human\" is "  \
    "\"user\" and \"gpt\" is \"assistant\", and \"value\" to \"content\""

/* No column is named, and a list of objects is there. */
static zt_err refuse_list(const struct zt_records *r, size_t at, const json_t *row,
                          struct zt_fault *fault)
{
    const char *key = find_list(row, "role");

    if (key && strcmp(key, "prompt") == 0 && json_object_get(row, "completion"))
        return zt_records_fault(
            r, at, ZT_E_FORMAT, fault,
            "\"prompt\" and \"completion\" hold messages, which are to be one list: "
            "jq -c '{messages: (.prompt + .completion)}' FILE makes it");
    if (key)
        return zt_records_fault(r, at, ZT_E_USAGE, fault,
                                "no column is named \"text\" or \"messages\"; \"%s\" "
                                "holds messages: say --text_column %s",
                                key, key);
    key = find_list(row, "from");
    if (key)
        return zt_records_fault(r, at, ZT_E_FORMAT, fault,
                                "\"%s\" holds " SHAREGPT "; then say --text_column %s",
                                key, key);
    return zt_records_check_nested(r, at, row, fault);
}

/* Whether text may be in a column: what is null or empty in this row is not in others. */
static bool may_hold_text(const json_t *row)
{
    const char *key;
    json_t *value;

    json_object_foreach((json_t *)row, key, value)
    {
        bool empty = json_is_array(value) && json_array_size(value) == 0;

        if (json_is_string(value) || json_is_null(value) || empty)
            return true;
    }
    return false;
}

/* "a", "b" and "c": names of what a row has. */
static zt_err refuse_column(const struct zt_records *r, size_t at, const json_t *row,
                            const char *wanted, struct zt_fault *fault)
{
    const char *key;
    struct zt_buf names;
    json_t *value;
    size_t num = 0;
    zt_err rc = ZT_OK;

    if (!wanted && find_list(row, NULL))
        return refuse_list(r, at, row, fault);
    zt_buf_init(&names, 256);
    json_object_foreach((json_t *)row, key, value)
    {
        if (!rc && num++)
            rc = zt_buf_put(&names, ", ", 2);
        if (!rc)
            rc = zt_buf_put(&names, key, strlen(key));
    }
    /* those that do not fit are left out */
    (void)!zt_buf_put(&names, "", 1);
    if (wanted)
        rc = zt_records_fault(r, at, ZT_E_USAGE, fault,
                              "there is no column \"%s\"; the row has %.*s: name one of "
                              "these",
                              wanted, (int)zt_buf_used(&names),
                              (const char *)zt_buf_head(&names));
    else if (!may_hold_text(row))
        rc = zt_records_fault(r, at, ZT_E_FORMAT, fault,
                              "no column holds text; the row has %.*s",
                              num ? (int)zt_buf_used(&names) : 4,
                              num ? (const char *)zt_buf_head(&names) : "none");
    else
        rc = zt_records_fault(r, at, ZT_E_USAGE, fault,
                              "no column is named \"text\", and of %.*s it is not clear "
                              "which one is meant: say --text_column NAME%s",
                              (int)zt_buf_used(&names), (const char *)zt_buf_head(&names),
                              num > 1 ? ", or --source_column NAME and --target_column "
                                        "NAME of a text and its answer"
                                      : "");
    zt_buf_release(&names);
    return rc;
}

/* What tells one row from another is nothing to learn from. */
static bool is_row_name(const char *key)
{
    static const char *const names[] = {"id", "_id", "idx", "uid", "uuid", "guid"};

    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        if (strcasecmp(key, names[i]) == 0)
            return true;
    return false;
}

/* The only column with text; NULL: there is none, or there are more, or messages beside it. */
static const char *only_text(const json_t *row)
{
    const char *key, *only = NULL;
    json_t *value;
    int num = 0;

    json_object_foreach((json_t *)row, key, value)
    {
        if (json_is_string(value) && num++ == 0)
            only = key;
    }
    return num != 1 || is_row_name(only) || find_list(row, "role") ||
                   find_list(row, "from")
               ? NULL
               : only;
}

/* Of a file that is one object, its rows are in a list of that: {"version": "1", "data": [...]}. */
static bool is_around_rows(const struct zt_records *r, size_t behind, const json_t *row)
{
    return find_list(row, NULL) && zt_records_is_blank(r, behind, r->n);
}

/* null: the row lacks what others have, which is told when it is read. */
static bool is_list_or_null(const json_t *row, const char *column)
{
    const json_t *value = json_object_get(row, column);

    return json_is_array(value) || json_is_null(value);
}

/* A list of objects that is written as text, as tables have one, is hardly text to learn. */
static zt_err check_guess(const struct zt_records *r, size_t at, const json_t *row,
                          const char *column, struct zt_fault *fault)
{
    const char *text = json_string_value(json_object_get(row, column));

    if (!text || strcmp(column, "text") == 0 || strncmp(text, "[{", 2) != 0)
        return ZT_OK;
    return zt_records_fault(r, at, ZT_E_USAGE, fault,
                            "\"%s\" holds a list that is written as text: in JSON lines "
                            "jq -c '.[\"%s\"] |= fromjson' FILE makes a list of it; to "
                            "learn it as it stands say --text_column %s",
                            column, column, column);
}

zt_err zt_records_find_text(const struct zt_records *r, const char *wanted, char **name,
                            struct zt_fault *fault)
{
    json_t *row = NULL;
    const char *found;
    size_t from, to;
    zt_err rc;

    *name = NULL;
    if (!first_row(r, &from, &to))
        return zt_fault_set(fault, ZT_E_FORMAT, "%s: holds no rows", r->path);
    rc = zt_records_parse(r, from, to, &row, fault);
    if (rc)
        return rc;
    found = wanted                             ? wanted
            : json_object_get(row, "text")     ? "text"
            : is_list_or_null(row, "messages") ? "messages"
            : is_around_rows(r, to, row)       ? NULL
                                               : only_text(row);
    if (!found || !json_object_get(row, found)) {
        rc = refuse_column(r, from, row, wanted, fault);
    } else {
        rc = wanted ? ZT_OK : check_guess(r, from, row, found, fault);
        if (!rc && !(*name = strdup(found)))
            rc = zt_fault_set(fault, ZT_E_NOMEM, "%s: no memory", r->path);
    }
    json_decref(row);
    return rc;
}

/* That of the first row, a new reference; NULL: it has no such column. */
static json_t *first_value(const struct zt_records *r, const char *column, size_t *from)
{
    json_t *row = NULL, *value;
    size_t to;

    if (!first_row(r, from, &to) || zt_records_parse(r, *from, to, &row, NULL))
        return NULL;
    value = json_incref(json_object_get(row, column));
    json_decref(row);
    return value;
}

/* -1: there is no such column in the first row. */
static int type_of_column(const struct zt_records *r, const char *column)
{
    size_t from;
    json_t *value = first_value(r, column, &from);
    int type = value ? (int)json_typeof(value) : -1;

    json_decref(value);
    return type;
}

zt_err zt_records_check_messages(const struct zt_records *r, const char *column,
                                 struct zt_fault *fault)
{
    size_t from;
    json_t *value = first_value(r, column, &from);
    const json_t *one = json_array_get(value, 0);
    bool other = one && !json_is_string(json_object_get(one, "role"));
    bool sharegpt = other && json_object_get(one, "from");

    json_decref(value);
    if (sharegpt)
        return zt_records_fault(r, from, ZT_E_FORMAT, fault, "\"%s\" holds " SHAREGPT,
                                column);
    return other
               ? zt_records_fault(r, from, ZT_E_FORMAT, fault,
                                  "\"%s\" is a list of other things than messages, each "
                                  "with a \"role\": a row is one text, or one "
                                  "conversation",
                                  column)
               : ZT_OK;
}

bool zt_records_has(const struct zt_records *r, const char *column)
{
    return type_of_column(r, column) >= 0;
}

bool zt_records_holds_lists(const struct zt_records *r, const char *column)
{
    return type_of_column(r, column) == JSON_ARRAY;
}

bool zt_records_holds_text(const struct zt_records *r, const char *column)
{
    return type_of_column(r, column) == JSON_STRING;
}

static const char *type_name(const json_t *value)
{
    static const char *const names[] = {
        [JSON_OBJECT] = "an object", [JSON_ARRAY] = "an array", [JSON_STRING] = "text",
        [JSON_INTEGER] = "a number", [JSON_REAL] = "a number",  [JSON_TRUE] = "true",
        [JSON_FALSE] = "false",      [JSON_NULL] = "null",
    };

    return names[json_typeof(value)];
}

zt_err zt_records_text(const struct zt_records *r, size_t from, const json_t *row,
                       const char *column, const char **text, size_t *n,
                       struct zt_fault *fault)
{
    const json_t *value = json_object_get(row, column);

    if (!value)
        return zt_records_fault(r, from, ZT_E_FORMAT, fault,
                                "the row has no \"%s\"; add it, or take the row out",
                                column);
    if (!json_is_string(value))
        return zt_records_fault(r, from, ZT_E_FORMAT, fault,
                                "\"%s\" is %s, and text is wanted; correct it, or name "
                                "another column",
                                column, type_name(value));
    *text = json_string_value(value);
    *n = json_string_length(value);
    return ZT_OK;
}
