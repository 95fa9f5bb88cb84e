#include "common/json/line.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/utf8.h"

json_t *zt_json_text(const char *text, size_t n)
{
    json_t *s = json_stringn(text, n);
    char *fixed;
    size_t at = 0;

    if (s || n > SIZE_MAX / 3)
        return s;
    fixed = malloc(3 * n + 1);
    if (!fixed)
        return NULL;
    for (size_t i = 0; i < n;) {
        size_t k = zt_utf8_length(text + i, n - i);

        memcpy(fixed + at, k ? text + i : "\xef\xbf\xbd", k ? k : 3);
        at += k ? k : 3;
        i += k ? k : 1;
    }
    s = json_stringn(fixed, at);
    free(fixed);
    return s;
}

json_t *zt_json_real(double value)
{
    if (isnan(value))
        return json_string("NaN");
    if (isinf(value))
        return json_string(value > 0 ? "Infinity" : "-Infinity");
    return json_real(value);
}

double zt_json_get_real(const json_t *obj, const char *key, double otherwise)
{
    const json_t *v = json_object_get(obj, key);
    const char *s = json_string_value(v);

    if (json_is_number(v))
        return json_number_value(v);
    if (!s)
        return otherwise;
    return strcmp(s, "NaN") == 0         ? (double)NAN
           : strcmp(s, "Infinity") == 0  ? (double)INFINITY
           : strcmp(s, "-Infinity") == 0 ? -(double)INFINITY
                                         : otherwise;
}

int64_t zt_json_get_int(const json_t *obj, const char *key, int64_t otherwise)
{
    const json_t *v = json_object_get(obj, key);

    return json_is_integer(v) ? (int64_t)json_integer_value(v) : otherwise;
}

const char *zt_json_get_text(const json_t *obj, const char *key, const char *otherwise)
{
    const char *s = json_string_value(json_object_get(obj, key));

    return s ? s : otherwise;
}

json_t *zt_json_object(const void *bytes, size_t n)
{
    json_t *v = json_loadb(bytes, n, JSON_ALLOW_NUL, NULL);

    if (v && !json_is_object(v)) {
        json_decref(v);
        v = NULL;
    }
    return v;
}

static zt_err put_text(struct zt_buf *out, const char *s)
{
    return zt_buf_put(out, s, strlen(s));
}

static zt_err put_real(struct zt_buf *out, double value)
{
    char text[40];

    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, sizeof(text), "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
    if (!strpbrk(text, ".e")) /* 3.0 stays a real when it is read back */
        snprintf(text + strlen(text), sizeof(text) - strlen(text), ".0");
    return put_text(out, text);
}

static zt_err put_string(struct zt_buf *out, const char *s, size_t n)
{
    zt_err rc = zt_buf_put_u8(out, '"');
    size_t plain = 0;

    for (size_t i = 0; !rc && i <= n; i++) {
        unsigned char c = i < n ? (unsigned char)s[i] : 0;
        char esc[8];

        if (i < n && c >= 0x20 && c != '"' && c != '\\')
            continue;
        rc = zt_buf_put(out, s + plain, i - plain);
        plain = i + 1;
        if (rc || i == n)
            break;
        if (c == '"' || c == '\\')
            snprintf(esc, sizeof(esc), "\\%c", c);
        else if (c == '\n')
            snprintf(esc, sizeof(esc), "\\n");
        else if (c == '\t')
            snprintf(esc, sizeof(esc), "\\t");
        else
            snprintf(esc, sizeof(esc), "\\u%04x", c);
        rc = put_text(out, esc);
    }
    return rc ? rc : zt_buf_put_u8(out, '"');
}

/* Where values stand below each other: the line for one at this depth; -1: on one line. */
static zt_err begin_line(struct zt_buf *out, int depth)
{
    zt_err rc = depth < 0 ? ZT_OK : zt_buf_put_u8(out, '\n');

    for (int i = 0; !rc && i < depth; i++)
        rc = put_text(out, "  ");
    return rc;
}

static zt_err put_value(struct zt_buf *out, const json_t *value, int depth);

static zt_err put_object(struct zt_buf *out, const json_t *value, int depth)
{
    int below = depth < 0 ? depth : depth + 1;
    zt_err rc = zt_buf_put_u8(out, '{');
    bool first = true;
    const char *key;
    json_t *v;

    json_object_foreach((json_t *)value, key, v)
    {
        if (!rc && !first)
            rc = zt_buf_put_u8(out, ',');
        if (!rc)
            rc = begin_line(out, below);
        if (!rc)
            rc = put_string(out, key, strlen(key));
        if (!rc)
            rc = put_text(out, depth < 0 ? ":" : ": ");
        if (!rc)
            rc = put_value(out, v, below);
        first = false;
    }
    if (!rc && !first)
        rc = begin_line(out, depth);
    return rc ? rc : zt_buf_put_u8(out, '}');
}

static zt_err put_array(struct zt_buf *out, const json_t *value, int depth)
{
    int below = depth < 0 ? depth : depth + 1;
    zt_err rc = zt_buf_put_u8(out, '[');

    for (size_t i = 0; !rc && i < json_array_size(value); i++) {
        if (i)
            rc = zt_buf_put_u8(out, ',');
        if (!rc)
            rc = begin_line(out, below);
        if (!rc)
            rc = put_value(out, json_array_get(value, i), below);
    }
    if (!rc && json_array_size(value))
        rc = begin_line(out, depth);
    return rc ? rc : zt_buf_put_u8(out, ']');
}

static bool short_of_memory;

static void *watched_malloc(size_t n)
{
    void *p = malloc(n);

    short_of_memory = short_of_memory || !p;
    return p;
}

void zt_json_watch_memory(void)
{
    json_set_alloc_funcs(watched_malloc, free);
}

bool zt_json_is_short_of_memory(void)
{
    bool was = short_of_memory;

    short_of_memory = false;
    return was;
}

static zt_err put_value(struct zt_buf *out, const json_t *value, int depth)
{
    char number[32];

    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return put_object(out, value, depth);
    case JSON_ARRAY:
        return put_array(out, value, depth);
    case JSON_STRING:
        return put_string(out, json_string_value(value), json_string_length(value));
    case JSON_INTEGER:
        snprintf(number, sizeof(number), "%lld", (long long)json_integer_value(value));
        return put_text(out, number);
    case JSON_REAL:
        return put_real(out, json_real_value(value));
    case JSON_TRUE:
        return put_text(out, "true");
    case JSON_FALSE:
        return put_text(out, "false");
    default:
        return put_text(out, "null");
    }
}

zt_err zt_json_put(struct zt_buf *out, const json_t *value)
{
    return put_value(out, value, -1);
}

char *zt_json_file_text(const json_t *value)
{
    struct zt_buf text;
    char *copy = NULL;

    zt_buf_init(&text, SIZE_MAX);
    if (value && !put_value(&text, value, 0))
        copy = strndup((const char *)zt_buf_head(&text), zt_buf_used(&text));
    zt_buf_release(&text);
    return copy;
}

void zt_timestamp(char out[ZT_TIMESTAMP_BYTES])
{
    struct timespec ts;
    struct tm tm;
    size_t n;

    clock_gettime(CLOCK_REALTIME, &ts);
    gmtime_r(&ts.tv_sec, &tm);
    n = strftime(out, ZT_TIMESTAMP_BYTES, "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(out + n, ZT_TIMESTAMP_BYTES - n, ".%06ldZ", ts.tv_nsec / 1000);
}

json_t *zt_json_event(const char *name)
{
    char when[ZT_TIMESTAMP_BYTES];

    zt_timestamp(when);
    return json_pack("{s:s, s:s}", "ts", when, "event", name);
}
