/* parse_json.h -- one object of JSON out of a file. */
#ifndef WORKER_RECORDS_PARSE_JSON_H
#define WORKER_RECORDS_PARSE_JSON_H

#include "worker/records/records.h"

/* All of [from, to), as zt_records_parse(). */
zt_err zt_records_parse_object(const struct zt_records *r, size_t from, size_t to,
                               json_t **row, struct zt_fault *fault) ZT_MUST_CHECK;

/* Spaces, tabs, line feeds and carriage returns alone in [from, to). */
bool zt_records_only_spaces(const struct zt_records *r, size_t from, size_t to);

#endif
