/*
 * records.h -- rows with columns by name: JSON lines, a JSON array of objects, CSV, TSV.
 *
 *      name    files              a row                         a value
 *      jsonl   .jsonl .ndjson     an object on a line           any JSON
 *              .jsonlines
 *      json    .json              an object of an array, or     any JSON
 *                                 as jsonl
 *      csv     .csv               RFC 4180, under a header      text
 *      tsv     .tsv               the same with tabs            text
 *
 * Rows lie behind one another in the file: one begins where the one before it ends. What is
 * blank between them belongs to the row before. A row is parsed by itself, so that several
 * threads can; it is known by the byte where it begins, and named by its line.
 *
 * Ownership: path and text are the caller's and outlive the struct.
 * Threads:   open and release from one; all others any.
 */
#ifndef WORKER_RECORDS_RECORDS_H
#define WORKER_RECORDS_RECORDS_H

#include <jansson.h>

#include "common/fault.h"

struct zt_record_format;

struct zt_records {
    const struct zt_record_format *format;
    const char *path;
    const char *text; /* (n) */
    size_t n;
    size_t first; /* where rows begin: behind a byte order mark, a header */
    json_t *
        columns; /* of a table, as its header names them, in order; NULL: each row's own */
};

/* By the name of a format, or of a file; NULL: there is none. Static. */
const struct zt_record_format *zt_record_format_named(const char *name);
const struct zt_record_format *zt_record_format_of_file(const char *path);
const char *zt_record_format_name(const struct zt_record_format *f);

/* ZT_E_FORMAT: no rows, or a malformed header; ZT_E_NOMEM. */
zt_err zt_records_open(struct zt_records *r, const struct zt_record_format *format,
                       const char *path, const char *text, size_t n,
                       struct zt_fault *fault) ZT_MUST_CHECK;
void zt_records_release(struct zt_records *r); /* a zeroed struct is fine */

/* Where the row that begins at `from` (first <= from < n) ends, and the next one begins. */
size_t zt_records_end(const struct zt_records *r, size_t from);

/* Whether nothing stands in [from, to): an empty line, which is no row. */
bool zt_records_is_blank(const struct zt_records *r, size_t from, size_t to);

/*
 * The row as an object, a new reference. ZT_E_FORMAT, with path and line: it is malformed.
 */
zt_err zt_records_parse(const struct zt_records *r, size_t from, size_t to, json_t **row,
                        struct zt_fault *fault) ZT_MUST_CHECK;

/* A fault at byte `at`: "PATH:LINE: what". Returns rc. */
zt_err zt_records_fault(const struct zt_records *r, size_t at, zt_err rc,
                        struct zt_fault *fault, const char *what, ...)
    __attribute__((format(printf, 5, 6)));

/* ZT_E_FORMAT where a member of the row is a list of objects, as `data` of one that holds all rows. */
zt_err zt_records_check_nested(const struct zt_records *r, size_t at, const json_t *row,
                               struct zt_fault *fault) ZT_MUST_CHECK;

/*
 * The column that text is taken from: `wanted`, else "text", else "messages" that holds a
 * list, else the only one that holds text in the first row, by which its rows are not told apart and
 * beside which no messages are. *name is r's own or wanted. ZT_E_USAGE: there is none such, with
 * the names of those there are; ZT_E_FORMAT: the first row is malformed, or none can hold text.
 */
zt_err zt_records_find_text(const struct zt_records *r, const char *wanted, char **name,
                            struct zt_fault *fault) ZT_MUST_CHECK;

/* Whether the column of the first row holds a list: of messages; or text. */
bool zt_records_holds_lists(const struct zt_records *r, const char *column);
bool zt_records_holds_text(const struct zt_records *r, const char *column);
/* Whether the first row has it, be it null. */
bool zt_records_has(const struct zt_records *r, const char *column);

/* That the list of the first row is one of messages, before what they need is missed. ZT_E_FORMAT. */
zt_err zt_records_check_messages(const struct zt_records *r, const char *column,
                                 struct zt_fault *fault) ZT_MUST_CHECK;

/* The text in a column of a row, as long as the row lives. ZT_E_FORMAT: there is none. */
zt_err zt_records_text(const struct zt_records *r, size_t from, const json_t *row,
                       const char *column, const char **text, size_t *n,
                       struct zt_fault *fault) ZT_MUST_CHECK;

#endif
