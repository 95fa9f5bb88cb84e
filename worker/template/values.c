/* values.c -- what values are, as Python has it: truth, equality, text, JSON. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker/template/private.h"

#define NUMBER_BYTES 40

/* true, false, or NULL: it is not lazy. */
static const json_t *is_fresh(const struct zt_template_run *r, const json_t *v)
{
    char at[NUMBER_BYTES];

    snprintf(at, sizeof(at), "%p", (const void *)v);
    return json_is_array(v) ? json_object_get(r->lazy, at) : NULL;
}

bool zt_template_is_lazy(const struct zt_template_run *r, const json_t *v)
{
    return is_fresh(r, v) != NULL;
}

json_t *zt_template_set_lazy(struct zt_template_run *r, json_t *list, bool fresh)
{
    char at[NUMBER_BYTES];

    snprintf(at, sizeof(at), "%p", (const void *)list);
    return list && json_object_set_new(r->lazy, at, json_boolean(fresh))
               ? zt_template_keep(r, NULL)
               : list;
}

bool zt_template_is_true(const struct zt_template_run *r, const json_t *v)
{
    if (v == r->undefined)
        return false;
    switch (json_typeof(v)) {
    case JSON_OBJECT:
        return json_object_size(v) > 0;
    case JSON_ARRAY:
        return json_array_size(v) > 0 || zt_template_is_lazy(r, v);
    case JSON_STRING:
        return json_string_length(v) > 0;
    case JSON_INTEGER:
        return json_integer_value(v) != 0;
    case JSON_REAL:
        return json_real_value(v) != 0;
    default:
        return json_is_true(v);
    }
}

static bool is_number(const json_t *v)
{
    return json_is_number(v) || json_is_boolean(v);
}

static double number_of(const json_t *v)
{
    return json_is_boolean(v) ? (double)json_is_true(v) : json_number_value(v);
}

static bool same_items(const json_t *a, const json_t *b)
{
    const char *key;
    json_t *value;

    if (json_is_array(a)) {
        if (json_array_size(a) != json_array_size(b))
            return false;
        for (size_t i = 0; i < json_array_size(a); i++)
            if (!zt_template_equal(json_array_get(a, i), json_array_get(b, i)))
                return false;
        return true;
    }
    if (json_object_size(a) != json_object_size(b))
        return false;
    json_object_foreach((json_t *)a, key, value)
    {
        const json_t *other = json_object_get(b, key);

        if (!other || !zt_template_equal(value, other))
            return false;
    }
    return true;
}

bool zt_template_equal(const json_t *a, const json_t *b)
{
    if (a == b)
        return true;
    if (json_is_integer(a) && json_is_integer(b))
        return json_integer_value(a) == json_integer_value(b);
    if (is_number(a) && is_number(b))
        return number_of(a) == number_of(b);
    if (json_typeof(a) != json_typeof(b))
        return false;
    if (json_is_string(a))
        return json_string_length(a) == json_string_length(b) &&
               memcmp(json_string_value(a), json_string_value(b),
                      json_string_length(a)) == 0;
    return (json_is_array(a) || json_is_object(a)) ? same_items(a, b) : json_is_null(a);
}

/* ---- text ---- */

/* The shortest decimal that is read back as x, as repr(x) writes it. */
static void write_real(double x, char out[NUMBER_BYTES])
{
    char digits[NUMBER_BYTES];
    int precision = 1, exponent;

    do
        snprintf(digits, sizeof(digits), "%.*e", precision - 1, x);
    while (strtod(digits, NULL) != x && precision++ < 17);
    exponent = atoi(strchr(digits, 'e') ? strchr(digits, 'e') + 1 : "0");
    if (exponent < -4 || exponent >= 16)
        snprintf(out, NUMBER_BYTES, "%.*e", precision - 1, x);
    else
        snprintf(out, NUMBER_BYTES, "%.*f",
                 precision - 1 - exponent > 1 ? precision - 1 - exponent : 1, x);
}

static void write_number(const json_t *v, char out[NUMBER_BYTES])
{
    if (json_is_integer(v))
        snprintf(out, NUMBER_BYTES, "%" JSON_INTEGER_FORMAT, json_integer_value(v));
    else
        write_real(json_real_value(v), out);
}

json_t *zt_template_to_string(struct zt_template_run *r, int line, json_t *v)
{
    char number[NUMBER_BYTES];

    if (v == r->undefined)
        return zt_template_string(r, "", 0);
    if (json_is_string(v) && v != r->function)
        return v;
    if (json_is_number(v)) {
        write_number(v, number);
        return zt_template_string(r, number, strlen(number));
    }
    if (json_is_boolean(v))
        return json_is_true(v) ? zt_template_string(r, "True", 4)
                               : zt_template_string(r, "False", 5);
    if (json_is_null(v))
        return zt_template_string(r, "None", 4);
    return zt_template_fail(r, line, "%s is printed: | tojson does that",
                            json_is_array(v)    ? "a list"
                            : json_is_object(v) ? "a dict"
                                                : "a function");
}

/* ---- JSON ---- */

struct dump {
    struct zt_buf out;
    zt_err rc;
    int indent;
};

static void put(struct dump *d, const char *s, size_t n)
{
    if (!d->rc && n)
        d->rc = zt_buf_put(&d->out, s, n);
}

static void put_line(struct dump *d, int level)
{
    if (d->indent < 0)
        return;
    put(d, "\n", 1);
    for (int i = 0; i < level * d->indent; i++)
        put(d, " ", 1);
}

static void dump_string(struct dump *d, const char *s, size_t n)
{
    static const char from[] = "\"\\\n\r\t\b\f", to[] = "\"\\nrtbf";
    char escape[8];

    put(d, "\"", 1);
    for (size_t i = 0; i < n; i++) {
        const char *known = s[i] ? strchr(from, s[i]) : NULL;

        if (known) {
            snprintf(escape, sizeof(escape), "\\%c", to[known - from]);
            put(d, escape, 2);
        } else if ((unsigned char)s[i] < 0x20) {
            snprintf(escape, sizeof(escape), "\\u%04x", (unsigned char)s[i]);
            put(d, escape, 6);
        } else {
            put(d, s + i, 1);
        }
    }
    put(d, "\"", 1);
}

static void dump(struct dump *d, const json_t *v, int level);

static void dump_between(struct dump *d, bool first, int level)
{
    if (!first)
        put(d, d->indent < 0 ? ", " : ",", d->indent < 0 ? 2 : 1);
    put_line(d, level);
}

static void dump_items(struct dump *d, const json_t *v, int level)
{
    const char *key;
    json_t *value;
    bool first = true;

    put(d, json_is_array(v) ? "[" : "{", 1);
    for (size_t i = 0; json_is_array(v) && i < json_array_size(v); i++) {
        dump_between(d, first, level + 1);
        dump(d, json_array_get(v, i), level + 1);
        first = false;
    }
    if (json_is_object(v))
        json_object_foreach((json_t *)v, key, value)
        {
            dump_between(d, first, level + 1);
            dump_string(d, key, strlen(key));
            put(d, ": ", 2);
            dump(d, value, level + 1);
            first = false;
        }
    if (!first)
        put_line(d, level);
    put(d, json_is_array(v) ? "]" : "}", 1);
}

static void dump(struct dump *d, const json_t *v, int level)
{
    char number[NUMBER_BYTES];

    if (level > ZT_TEMPLATE_DEPTH * 4) {
        d->rc = ZT_E_LIMIT;
    } else if (json_is_string(v)) {
        dump_string(d, json_string_value(v), json_string_length(v));
    } else if (json_is_number(v)) {
        write_number(v, number);
        put(d, number, strlen(number));
    } else if (json_is_array(v) || json_is_object(v)) {
        dump_items(d, v, level);
    } else {
        const char *word = json_is_true(v) ? "true" : json_is_false(v) ? "false" : "null";

        put(d, word, strlen(word));
    }
}

json_t *zt_template_to_json(struct zt_template_run *r, int line, const json_t *v,
                            int indent)
{
    struct dump d = {.indent = indent};
    json_t *text = NULL;

    if (v == r->undefined || v == r->function || zt_template_is_lazy(r, v))
        return zt_template_fail(r, line, "tojson of what is not defined");
    zt_buf_init(&d.out, ZT_TEMPLATE_BYTES);
    dump(&d, v, 0);
    if (d.rc)
        zt_template_fail(r, line, "tojson: %s",
                         d.rc == ZT_E_LIMIT ? "it is too large" : "no memory");
    else
        text =
            zt_template_string(r, (const char *)zt_buf_head(&d.out), zt_buf_used(&d.out));
    zt_buf_release(&d.out);
    return text;
}

/* ---- items ---- */

size_t zt_template_char_bytes(const char *s, size_t n)
{
    size_t i = 1;

    while (i < n && ((unsigned char)s[i] & 0xC0) == 0x80)
        i++;
    return i;
}

static json_t *chars_of(struct zt_template_run *r, const json_t *v)
{
    json_t *list = zt_template_keep(r, json_array());
    const char *s = json_string_value(v);
    size_t n = json_string_length(v);

    for (size_t i = 0; list && i < n;) {
        size_t bytes = zt_template_char_bytes(s + i, n - i);

        if (json_array_append_new(list, json_stringn(s + i, bytes)))
            return zt_template_keep(r, NULL);
        i += bytes;
    }
    return list;
}

json_t *zt_template_items(struct zt_template_run *r, int line, json_t *v)
{
    json_t *list, *value;
    const char *key;

    if (zt_template_is_lazy(r, v)) {
        if (!json_is_true(is_fresh(r, v)))
            return zt_template_fail(r, line,
                                    "what a filter makes is gone through twice, and is "
                                    "nothing then: | list keeps it");
        return zt_template_set_lazy(r, v, false) ? zt_template_keep(r, json_copy(v))
                                                 : NULL;
    }
    if (json_is_array(v))
        return v;
    if (v == r->undefined)
        return zt_template_keep(r, json_array());
    if (json_is_string(v) && v != r->function)
        return chars_of(r, v);
    if (!json_is_object(v))
        return zt_template_fail(r, line, "a loop goes through a list, a dict or text");
    list = zt_template_keep(r, json_array());
    if (list)
        json_object_foreach(
            v, key,
            value) if (json_array_append_new(list,
                                             json_string(
                                                 key))) return zt_template_keep(r, NULL);
    return list;
}
