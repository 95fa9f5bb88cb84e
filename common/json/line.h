/*
 * line.h -- JSON on one line, in and out, and as files, on top of jansson.
 *
 * Numbers are written in the fewest digits that read back as the same double. JSON has no
 * NaN or infinity: they travel as the strings "NaN", "Infinity" and "-Infinity".
 * Threads: any.
 */
#ifndef COMMON_JSON_LINE_H
#define COMMON_JSON_LINE_H

#include "common/buf.h"

#include <jansson.h>

/* A JSON string of n bytes of any text: what is not UTF-8 becomes U+FFFD. NULL: memory.
 */
json_t *zt_json_text(const char *text, size_t n);

/* A JSON number, or one of the three strings. NULL: memory. */
json_t *zt_json_real(double value);
/* Back again: a number or one of the three strings; anything else is `otherwise`. */
double zt_json_get_real(const json_t *obj, const char *key, double otherwise);
int64_t zt_json_get_int(const json_t *obj, const char *key, int64_t otherwise);
const char *zt_json_get_text(const json_t *obj, const char *key, const char *otherwise);

/* {"ts": now, "event": name}: how each line of a program that prints JSON begins. */
json_t *zt_json_event(const char *name);

/* Parse n bytes as one JSON object. NULL: they are not. */
json_t *zt_json_object(const void *bytes, size_t n);

/*
 * json_object_set_new() and the like leave out in silence what there is no memory for. A
 * program that sends values has the memory watched from its start, and asks before each
 * one: whether something may be missing since it asked last. One thread.
 */
void zt_json_watch_memory(void);
bool zt_json_is_short_of_memory(void);

/* Append the value, without a newline. */
zt_err zt_json_put(struct zt_buf *out, const json_t *value) ZT_MUST_CHECK;

/* The value as a file for people, a member on each line. The caller frees. NULL: memory. */
char *zt_json_file_text(const json_t *value);

/* "2026-01-31T10:20:30.123456Z" */
#define ZT_TIMESTAMP_BYTES 32
void zt_timestamp(char out[ZT_TIMESTAMP_BYTES]);

#endif
