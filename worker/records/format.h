/*
 * format.h -- what a kind of records is: one file and one row of the table in records.c.
 */
#ifndef WORKER_RECORDS_FORMAT_H
#define WORKER_RECORDS_FORMAT_H

#include "worker/records/records.h"

struct zt_record_format {
    const char *name;
    const char *ends[4]; /* of the names of its files; NULL: no more */
    /* Set r->first, and the columns of a table. */
    zt_err (*open)(struct zt_records *r, struct zt_fault *fault);
    /* As zt_records_end(), _is_blank() and _parse(). */
    size_t (*end)(const struct zt_records *r, size_t from);
    bool (*is_blank)(const struct zt_records *r, size_t from, size_t to);
    zt_err (*parse)(const struct zt_records *r, size_t from, size_t to, json_t **row,
                    struct zt_fault *fault);
};

extern const struct zt_record_format zt_records_jsonl, zt_records_json, zt_records_csv,
    zt_records_tsv;

#endif
