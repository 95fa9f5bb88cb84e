/*
 * regex_syntax.c -- from Oniguruma's syntax (Ruby's) to PCRE2's.
 *
 * One pass over the pattern. What means the same in both is copied; a list says what else
 * becomes what; everything else that is no plain character is refused, so that no
 * expression quietly means something else.
 */
#include <stdio.h>
#include <string.h>

#include "worker/text/regex/regex.h"

/* outside of a class some numbers of Latin-1 are of a word, too */
#define WORD    "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}"
#define LATIN_1 "\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}"
#define IS_WORD "[" WORD LATIN_1 "]"

#define MAX_GROUPS 200

struct translation {
    const struct zt_setting *where;
    const char *p;
    size_t n, i;
    struct zt_buf *out;
    size_t groups[MAX_GROUPS]; /* where open groups begin in `out` */
    int num_groups;
    size_t atom; /* where the last atom begins in `out` */
    struct zt_fault *fault;
};

/* Escapes that become something else; NULL: refused there. */
static const struct escape {
    char name;
    const char *outside, *in_class;
} escapes[] = {
    {'s', "\\p{White_Space}", "\\p{White_Space}"},
    {'S', "\\P{White_Space}", "\\P{White_Space}"},
    {'d', "\\p{Nd}", "\\p{Nd}"},
    {'D', "\\P{Nd}", "\\P{Nd}"},
    {'w', IS_WORD, WORD},
    {'W', "[^" WORD LATIN_1 "]", NULL},
    {'h', "[0-9A-Fa-f]", "0-9A-Fa-f"},
    {'H', "[^0-9A-Fa-f]", NULL},
    {'b', "(?:(?<=" IS_WORD ")(?!" IS_WORD ")|(?<!" IS_WORD ")(?=" IS_WORD "))", "\\x08"},
    {'B', "(?:(?<=" IS_WORD ")(?=" IS_WORD ")|(?<!" IS_WORD ")(?!" IS_WORD "))", NULL},
    {'t', "\\t", "\\t"},
    {'n', "\\n", "\\n"},
    {'r', "\\r", "\\r"},
    {'f', "\\f", "\\f"},
    {'v', "\\x0b", "\\x0b"},
    {'a', "\\x07", "\\x07"},
    {'e', "\\x1b", "\\x1b"},
    {'A', "\\A", NULL},
    {'z', "\\z", NULL},
    {'Z', "\\Z", NULL},
};

static zt_err refuse(const struct translation *t, const char *what)
{
    return zt_setting_refuse(t->where, t->fault,
                             "as a regular expression: %s, at byte %zu, is not taken",
                             what, t->i);
}

static zt_err put(struct translation *t, const char *s, size_t n)
{
    zt_err rc = zt_buf_put(t->out, s, n);

    return rc ? zt_fault_set(t->fault, rc, "tokenizer: no memory") : ZT_OK;
}

static zt_err put_text(struct translation *t, const char *s)
{
    return put(t, s, strlen(s));
}

static bool is_alnum(char c)
{
    return (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z');
}

static int hex_digits(const struct translation *t, size_t from, int most)
{
    int k = 0;

    while (k < most && from + (size_t)k < t->n &&
           strchr("0123456789abcdefABCDEF", t->p[from + (size_t)k]) &&
           t->p[from + (size_t)k])
        k++;
    return k;
}

/* \uHHHH, \x{H...} and \xHH of ASCII: a byte of UTF-8 is no character. */
static zt_err translate_code(struct translation *t)
{
    bool braces = t->p[t->i + 1] == 'x' && t->i + 2 < t->n && t->p[t->i + 2] == '{';
    size_t from = t->i + (braces ? 3 : 2);
    int k = hex_digits(t, from, braces ? 6 : t->p[t->i + 1] == 'u' ? 4 : 2);
    char code[24];

    if (!k || (t->p[t->i + 1] == 'u' && k != 4) ||
        (braces && (from + (size_t)k >= t->n || t->p[from + (size_t)k] != '}')) ||
        (t->p[t->i + 1] == 'x' && !braces && k == 2 && t->p[from] > '7'))
        return refuse(t, "this \\x or \\u");
    snprintf(code, sizeof(code), "\\x{%.*s}", k, t->p + from);
    t->i = from + (size_t)k + braces;
    return put_text(t, code);
}

/* \p{NAME}, \P{NAME}, \p{^NAME}. A script is that of a character itself, not what else uses it. */
static zt_err translate_property(struct translation *t)
{
    const char *end = memchr(t->p + t->i, '}', t->n - t->i), *name;
    size_t n;
    zt_err rc;

    if (t->i + 2 >= t->n || t->p[t->i + 2] != '{' || !end)
        return refuse(t, "\\p without {NAME}");
    name = t->p + t->i + 3;
    name += *name == '^';
    n = (size_t)(name - (t->p + t->i));
    rc = put(t, t->p + t->i, n);
    if (!rc && zt_regex_is_script(name, (size_t)(end - name)))
        rc = put_text(t, "sc:");
    if (!rc)
        rc = put(t, name, (size_t)(end + 1 - name));
    t->i = (size_t)(end + 1 - t->p);
    return rc;
}

/* t->p[t->i] is a backslash. */
static zt_err translate_escape(struct translation *t, bool in_class)
{
    char c, name[32];
    zt_err rc;

    if (t->i + 1 >= t->n)
        return refuse(t, "a \\ at the end");
    c = t->p[t->i + 1];
    if (c == 'u' || c == 'x')
        return translate_code(t);
    if (c == 'p' || c == 'P')
        return translate_property(t);
    for (size_t k = 0; k < sizeof(escapes) / sizeof(*escapes); k++) {
        const char *to = in_class ? escapes[k].in_class : escapes[k].outside;

        if (escapes[k].name != c || !to)
            continue;
        t->i += 2;
        return put_text(t, to);
    }
    if (is_alnum(c) && (in_class || c < '1' || c > '9')) {
        snprintf(name, sizeof(name), "\\%c%s", c, in_class ? " in a class" : "");
        return refuse(t, name);
    }
    if ((unsigned char)c >= 0x80) { /* the character itself, whose other bytes follow */
        t->i += 1;
        return ZT_OK;
    }
    rc = put(t, t->p + t->i, 2);
    t->i += 2;
    return rc;
}

/* [:name:] within a class. */
static zt_err translate_posix(struct translation *t)
{
    static const struct {
        const char *name, *to;
    } known[] = {
        {"[:alpha:]", "\\p{Alphabetic}"},  {"[:digit:]", "\\p{Nd}"},
        {"[:space:]", "\\p{White_Space}"}, {"[:upper:]", "\\p{Uppercase}"},
        {"[:lower:]", "\\p{Lowercase}"},   {"[:alnum:]", "\\p{Alphabetic}\\p{Nd}"},
    };

    for (size_t k = 0; k < sizeof(known) / sizeof(*known); k++) {
        size_t n = strlen(known[k].name);

        if (n <= t->n - t->i && memcmp(t->p + t->i, known[k].name, n) == 0) {
            t->i += n;
            return put_text(t, known[k].to);
        }
    }
    return refuse(t, "a [ within a class: a class in a class");
}

static zt_err translate_class(struct translation *t)
{
    zt_err rc = put(t, "[", 1);
    bool empty = true;

    t->i++;
    if (!rc && t->i < t->n && t->p[t->i] == '^') {
        rc = put(t, "^", 1);
        t->i++;
    }
    while (!rc && t->i < t->n && t->p[t->i] != ']') {
        char c = t->p[t->i];

        empty = false;
        if (c == '\\') {
            rc = translate_escape(t, true);
        } else if (c == '[') {
            rc = translate_posix(t);
        } else if (c == '&' && t->i + 1 < t->n && t->p[t->i + 1] == '&') {
            rc = refuse(t, "&& in a class");
        } else {
            rc = put(t, &c, 1);
            t->i++;
        }
    }
    if (!rc && (empty || t->i >= t->n))
        return refuse(t, empty ? "an empty class" : "a class without ]");
    t->i++;
    return rc ? rc : put(t, "]", 1);
}

/* {n}, {n,}, {,m}, {n,m}: its length, or 0. */
static size_t interval_length(const struct translation *t, bool *no_min, bool *fixed)
{
    size_t k = t->i + 1, digits = 0;

    for (; k < t->n && t->p[k] >= '0' && t->p[k] <= '9'; k++)
        digits++;
    *no_min = digits == 0;
    *fixed = true;
    if (k < t->n && t->p[k] == ',') {
        *fixed = false;
        for (k++; k < t->n && t->p[k] >= '0' && t->p[k] <= '9'; k++)
            digits++;
    }
    return digits && k < t->n && t->p[k] == '}' ? k + 1 - t->i : 0;
}

/* A + behind an interval repeats it in Ruby's syntax; PCRE2 would not give back. */
static zt_err translate_interval(struct translation *t)
{
    bool no_min, fixed;
    size_t n = interval_length(t, &no_min, &fixed);
    zt_err rc;

    if (!n) {
        t->atom = t->out->len;
        t->i++;
        return put(t, "\\{", 2);
    }
    rc = put_text(t, no_min ? "{0" : "{");
    if (!rc)
        rc = put(t, t->p + t->i + 1, n - 1);
    t->i += n;
    if (rc || t->i >= t->n)
        return rc;
    if (t->p[t->i] == '?' && fixed)
        return refuse(t, "{n}?");
    if (t->p[t->i] == '+') {
        size_t len = t->out->len - t->atom;

        rc = put(t, "(?:)+", 5);
        if (rc)
            return rc;
        memmove(t->out->data + t->atom + 3, t->out->data + t->atom, len);
        memcpy(t->out->data + t->atom, "(?:", 3);
        memcpy(t->out->data + t->atom + 3 + len, ")+", 2);
        t->i++;
    }
    return ZT_OK;
}

/* The bytes of the "(" at t->i and of what says its kind; 0: a kind that is not taken. */
static size_t opening_length(const struct translation *t)
{
    static const char *const same[] = {"(?:",  "(?=",  "(?!",  "(?>",
                                       "(?<=", "(?<!", "(?i:", "(?-i:"};
    const char *p = t->p + t->i;
    size_t left = t->n - t->i;

    if (left < 2 || (p[1] != '?' && p[1] != '*'))
        return 1;
    for (size_t k = 0; k < sizeof(same) / sizeof(*same); k++)
        if (left >= strlen(same[k]) && strncmp(p, same[k], strlen(same[k])) == 0)
            return strlen(same[k]);
    return 0;
}

static zt_err translate_group(struct translation *t)
{
    size_t n = opening_length(t);
    zt_err rc;

    if (t->i == 0 && t->n >= 4 && strncmp(t->p, "(?i)", 4) == 0) {
        t->i = 4; /* for the whole pattern; elsewhere its reach differs */
        return put(t, "(?i)", 4);
    }
    if (!n)
        return refuse(t, "this kind of group");
    if (t->num_groups == MAX_GROUPS)
        return refuse(t, "nesting this deep");
    t->groups[t->num_groups++] = t->out->len;
    rc = put(t, t->p + t->i, n);
    t->i += n;
    return rc;
}

static zt_err translate_one(struct translation *t)
{
    char c = t->p[t->i];
    zt_err rc;

    switch (c) {
    case '\\':
        t->atom = t->out->len;
        return translate_escape(t, false);
    case '[':
        t->atom = t->out->len;
        return translate_class(t);
    case '{':
        return translate_interval(t);
    case '(':
        return translate_group(t);
    case ')':
        if (!t->num_groups)
            return refuse(t, "a ) without (");
        t->atom = t->groups[--t->num_groups];
        break;
    case '\0':
        return refuse(t, "a zero byte");
    case '*':
    case '+':
    case '?':
    case '|':
        break;
    default:
        if (((uint8_t)c & 0xc0) != 0x80) /* not within a character */
            t->atom = t->out->len;
    }
    rc = put(t, &c, 1);
    t->i++;
    return rc;
}

zt_err zt_regex_translate(const struct zt_setting *where, const char *pattern, size_t n,
                          struct zt_buf *out, struct zt_fault *fault)
{
    struct translation t = {
        .where = where, .p = pattern, .n = n, .out = out, .fault = fault};
    zt_err rc = ZT_OK;

    while (!rc && t.i < t.n)
        rc = translate_one(&t);
    return rc;
}
