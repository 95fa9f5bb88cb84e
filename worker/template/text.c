/* text.c -- what methods and filters do with text. */
#include "worker/template/text.h"

#include <string.h>

bool zt_template_is_text(const struct zt_template_run *r, const json_t *v)
{
    return v && json_is_string(v) && v != r->undefined && v != r->function;
}

json_t *zt_template_argument(struct zt_template_run *r, const struct zt_expr *x,
                             int place, const char *keyword)
{
    int at = 0;

    for (const struct zt_expr_arg *a = x->args; a; a = a->next) {
        if (a->name ? (keyword && strcmp(a->name, keyword) == 0) : at == place)
            return zt_template_eval(r, a->expr);
        at += !a->name;
    }
    return NULL;
}

bool zt_template_takes(struct zt_template_run *r, const struct zt_expr *x,
                       const char *what, const char *names)
{
    int most = 0, at = 0;

    for (const char *s = names; *s; s += strspn(s, " ")) {
        s += strcspn(s, " ");
        most++;
    }
    for (const struct zt_expr_arg *a = x->args; a; a = a->next) {
        const char *found = a->name ? strstr(names, a->name) : NULL;
        size_t n = a->name ? strlen(a->name) : 0;
        bool whole = found && (found == names || found[-1] == ' ') &&
                     (found[n] == ' ' || !found[n]);

        at += !a->name;
        if (a->name && !whole)
            zt_template_fail(r, x->line, "%s(%s=) is not in the subset that is read",
                             what, a->name);
        else if (at > most)
            zt_template_fail(r, x->line,
                             "%s() with %d arguments is not in the subset that is read",
                             what, at);
        if (r->rc)
            return false;
    }
    return true;
}

/* ---- strip ---- */

static uint32_t code_of(const char *s, size_t n)
{
    const unsigned char *u = (const unsigned char *)s;

    if (n == 2)
        return (u[0] & 0x1Fu) << 6 | (u[1] & 0x3Fu);
    if (n == 3)
        return (u[0] & 0x0Fu) << 12 | (u[1] & 0x3Fu) << 6 | (u[2] & 0x3Fu);
    return n == 1 ? u[0] : 0x10000;
}

/* As Python's str.isspace(). */
bool zt_template_is_white(const char *s, size_t n)
{
    uint32_t c = code_of(s, n);

    return (c >= 9 && c <= 13) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
           c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
           c == 0x202F || c == 0x205F || c == 0x3000;
}

static bool is_stripped(const char *s, size_t n, const json_t *chars)
{
    const char *set = chars ? json_string_value(chars) : NULL;
    size_t size = chars ? json_string_length(chars) : 0;

    if (!set)
        return zt_template_is_white(s, n);
    for (size_t i = 0, k; i < size; i += k) {
        k = zt_template_char_bytes(set + i, size - i);
        if (k == n && memcmp(set + i, s, n) == 0)
            return true;
    }
    return false;
}

json_t *zt_template_strip(struct zt_template_run *r, const json_t *text,
                          const json_t *chars, enum zt_strip_sides sides)
{
    const char *s = json_string_value(text), *end = s + json_string_length(text), *last;

    while ((sides & ZT_STRIP_LEFT) && s < end) {
        size_t n = zt_template_char_bytes(s, (size_t)(end - s));

        if (!is_stripped(s, n, chars))
            break;
        s += n;
    }
    while ((sides & ZT_STRIP_RIGHT) && s < end) {
        for (last = end - 1; last > s && ((unsigned char)*last & 0xC0) == 0x80; last--)
            ;
        if (!is_stripped(last, (size_t)(end - last), chars))
            break;
        end = last;
    }
    return zt_template_string(r, s, (size_t)(end - s));
}

/* ---- replace ---- */

json_t *zt_template_replace(struct zt_template_run *r, int line, const json_t *text,
                            const json_t *from, const json_t *to, json_int_t count)
{
    const char *s = json_string_value(text), *end = s + json_string_length(text);
    size_t n = json_string_length(from);
    struct zt_buf out;
    json_t *v = NULL;
    zt_err rc = ZT_OK;

    if (!n)
        return zt_template_fail(r, line, "replace() of no text");
    zt_buf_init(&out, ZT_TEMPLATE_BYTES);
    for (const char *at; !rc && count != 0; s = at + n, count--) {
        at = memmem(s, (size_t)(end - s), json_string_value(from), n);
        if (!at)
            break;
        rc = zt_buf_put(&out, s, (size_t)(at - s));
        rc = rc ? rc : zt_buf_put(&out, json_string_value(to), json_string_length(to));
    }
    rc = rc ? rc : zt_buf_put(&out, s, (size_t)(end - s));
    if (rc)
        zt_template_fail(r, line, "replace(): the text is too long");
    else
        v = zt_template_string(r,
                               zt_buf_used(&out) ? (const char *)zt_buf_head(&out) : "",
                               zt_buf_used(&out));
    zt_buf_release(&out);
    return v;
}

/* ---- letters ---- */

static char letter(char c, bool upper)
{
    if (upper)
        return c >= 'a' && c <= 'z' ? (char)(c - 32) : c;
    return c >= 'A' && c <= 'Z' ? (char)(c + 32) : c;
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* Whether a word begins behind `before`. */
static bool begins_word(zt_letters how, char before)
{
    if (how == ZT_LETTERS_TITLE_FILTER)
        return zt_template_is_space(before) || (before >= 0x1C && before <= 0x1F) ||
               (before && strchr("-({[<", before));
    return how == ZT_LETTERS_TITLE && !is_letter(before);
}

json_t *zt_template_letters(struct zt_template_run *r, int line, const json_t *text,
                            zt_letters how)
{
    size_t n = json_string_length(text);
    json_t *v = zt_template_string(r, json_string_value(text), n);
    char *s = v ? (char *)json_string_value(v) : NULL;

    for (size_t i = 0; s && i < n; i++) {
        bool begins = i == 0 || begins_word(how, json_string_value(text)[i - 1]);

        if ((unsigned char)s[i] >= 0x80)
            return zt_template_fail(r, line,
                                    "upper and lower case of letters beyond ASCII "
                                    "are not in the subset that is read");
        s[i] = letter(s[i], how == ZT_LETTERS_UPPER ||
                                (how >= ZT_LETTERS_CAPITALIZED && begins));
    }
    return v;
}
