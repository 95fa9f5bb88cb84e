/*
 * lex.c -- the text between tags, with what trim_blocks, lstrip_blocks and '-' strip; and the
 * lexemes inside of tags.
 */
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker/template/private.h"

#define NUMBER_BYTES 64

bool zt_template_is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

void zt_template_refuse(struct zt_template_parser *p, const char *fmt, ...)
{
    char text[256];
    va_list ap;

    if (p->rc)
        return;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    p->rc = zt_fault_set(p->fault, ZT_E_FORMAT, "%s:%d: %s", p->t->name, p->line, text);
    p->lex = ZT_LEX_END;
}

void *zt_template_alloc(struct zt_template_parser *p, size_t bytes)
{
    void *m = zt_text_arena_alloc(&p->t->arena, bytes);

    if (!m && !p->rc)
        p->rc = zt_fault_set(p->fault, ZT_E_NOMEM, "%s: no memory", p->t->name);
    return m;
}

/* ---- text ---- */

static void count_lines(struct zt_template_parser *p, const char *from, const char *to)
{
    for (; from < to; from++)
        p->line += *from == '\n';
}

static const char *find_tag(const struct zt_template_parser *p)
{
    const char *s = p->at;

    while (s < p->end && (s = memchr(s, '{', (size_t)(p->end - s)))) {
        if (p->end - s > 1 && s[1] && strchr("{%#", s[1]))
            return s;
        s++;
    }
    return p->end;
}

/* The blanks of the line that the tag begins, if there is nothing else before it. */
static const char *without_indent(const struct zt_template_parser *p, const char *to)
{
    const char *s = to;

    while (s > p->at && zt_template_is_space(s[-1]) && s[-1] != '\n')
        s--;
    return s > p->at ? (s[-1] == '\n' ? s : to) : (p->line_starts ? s : to);
}

static void skip_spaces(struct zt_template_parser *p)
{
    while (p->at < p->end && zt_template_is_space(*p->at)) {
        p->line += *p->at == '\n';
        p->at++;
    }
}

/* Past "-%}", "%}", ...: `p->at` is behind the brace. */
static void leave_tag(struct zt_template_parser *p, char before, char kind)
{
    if (before == '-') {
        skip_spaces(p);
    } else if (before != '+' && kind != '}' && p->at < p->end && *p->at == '\n') {
        p->at++;
        p->line++;
    }
    p->line_starts = p->at[-1] == '\n';
}

static void skip_comment(struct zt_template_parser *p)
{
    const char *s = p->at, *from = s;

    while (p->end - s > 1 && !(s[0] == '#' && s[1] == '}'))
        s++;
    if (p->end - s < 2) {
        zt_template_refuse(p, "a comment {# has no end #}");
        return;
    }
    count_lines(p, p->at, s);
    p->at = s + 2;
    leave_tag(p, s > from ? s[-1] : 0, '#');
}

void zt_template_lex_text(struct zt_template_parser *p, const char **text, size_t *n,
                          char *opens)
{
    const char *tag = find_tag(p), *to = tag;
    char sign = p->end - tag > 2 ? tag[2] : 0;

    *text = p->at;
    *opens = tag < p->end ? tag[1] : 0;
    if (*opens && sign == '-')
        while (to > p->at && zt_template_is_space(to[-1]))
            to--;
    else if (*opens && *opens != '{' && sign != '+')
        to = without_indent(p, tag);
    *n = (size_t)(to - p->at);
    count_lines(p, p->at, tag);
    p->at = tag;
    if (!*opens)
        return;
    p->at += 2 + (sign == '-' || sign == '+');
    if (*opens == '#') {
        skip_comment(p);
        return;
    }
    p->close = *opens == '{' ? '}' : '%';
    p->braces = 0;
    zt_template_lex(p);
}

/* ---- lexemes ---- */

static bool is_name_char(char c, bool first)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           (!first && c >= '0' && c <= '9');
}

static void keep_literal(struct zt_template_parser *p, json_t *value)
{
    p->literal = value;
    if ((!value || json_array_append_new(p->t->constants, value)) && !p->rc)
        p->rc = zt_fault_set(p->fault, ZT_E_NOMEM,
                             "%s: no memory, or text that is no UTF-8", p->t->name);
}

static char unescaped(char c)
{
    static const char from[] = "ntrbfva\\'\"", to[] = "\n\t\r\b\f\v\a\\'\"";
    const char *at = strchr(from, c);

    return at && c ? to[at - from] : 0;
}

static void lex_string(struct zt_template_parser *p)
{
    char quote = *p->at++, *out = zt_template_alloc(p, (size_t)(p->end - p->at) + 1);
    size_t n = 0;

    if (!out)
        return;
    while (p->at < p->end && *p->at != quote) {
        char c = *p->at++;

        if (c == '\\' && p->at < p->end && unescaped(*p->at))
            c = unescaped(*p->at++);
        else if (c == '\\' && p->at < p->end && *p->at &&
                 strchr("xuUN01234567\n", *p->at)) {
            zt_template_refuse(p, "the escape \\%c in a string is not known", *p->at);
            return;
        }
        p->line += c == '\n' && p->at[-1] == '\n';
        out[n++] = c;
    }
    if (p->at == p->end) {
        zt_template_refuse(p, "a string has no end");
        return;
    }
    p->at++;
    p->lex = ZT_LEX_STRING;
    keep_literal(p, json_stringn(out, n));
}

static bool begins_digits(const struct zt_template_parser *p, int ahead)
{
    return p->end - p->at > ahead && p->at[ahead] >= '0' && p->at[ahead] <= '9';
}

static void lex_number(struct zt_template_parser *p)
{
    char text[NUMBER_BYTES];
    size_t n = 0;
    bool is_real = false, has_power = false;
    long long whole;
    double real;

    for (; p->at < p->end && n < sizeof(text) - 1; p->at++) {
        char c = *p->at;
        bool fraction = c == '.' && !is_real && begins_digits(p, 1);
        bool power =
            (c == 'e' || c == 'E') && !has_power &&
            (begins_digits(p, 1) ||
             (p->end - p->at > 1 && strchr("+-", p->at[1]) && begins_digits(p, 2)));
        bool sign = has_power && (c == '-' || c == '+') && strchr("eE", p->at[-1]);

        if (!(c >= '0' && c <= '9') && !fraction && !power && !sign && c != '_')
            break;
        is_real = is_real || fraction || power;
        has_power = has_power || power;
        if (c != '_')
            text[n++] = c;
    }
    text[n] = 0;
    p->lex = ZT_LEX_NUMBER;
    errno = 0;
    whole = strtoll(text, NULL, 10);
    real = strtod(text, NULL);
    if (n == sizeof(text) - 1 || !isfinite(real) || (errno && !is_real)) {
        zt_template_refuse(p, "the number %.40s... is too large", text);
        return;
    }
    keep_literal(p, is_real ? json_real(real) : json_integer(whole));
}

static void lex_operator(struct zt_template_parser *p)
{
    static const char *const known[] = {"==", "!=", "<=", ">=", "//", "**", "+", "-", "*",
                                        "/",  "%",  "~",  "<",  ">",  "=",  "|", ".", ",",
                                        ":",  "(",  ")",  "[",  "]",  "{",  "}"};

    p->lex = ZT_LEX_OPERATOR;
    for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++) {
        size_t n = strlen(known[i]);

        if ((size_t)(p->end - p->at) >= n && memcmp(p->at, known[i], n) == 0) {
            p->word = known[i];
            p->at += n;
            p->braces += n == 1 && strchr("([{", *known[i]) ? 1 : 0;
            p->braces -= n == 1 && strchr(")]}", *known[i]) ? 1 : 0;
            return;
        }
    }
    zt_template_refuse(p, "'%.*s' is not known here",
                       (int)zt_template_char_bytes(p->at, (size_t)(p->end - p->at)),
                       p->at);
}

/* "-%}", "+%}", "%}"; in a tag of an expression "-}}", "}}". */
static bool at_end_of_tag(struct zt_template_parser *p)
{
    const char *s = p->at + (p->at < p->end && (*p->at == '-' || *p->at == '+'));
    char before;

    if (p->braces > 0 || p->end - s < 2 || s[0] != p->close || s[1] != '}')
        return false;
    if (p->close == '}' && *p->at == '+') /* a sign, and no end */
        return false;
    before = *p->at;
    p->at = s + 2;
    leave_tag(p, before, p->close);
    return true;
}

void zt_template_lex(struct zt_template_parser *p)
{
    p->word = "";
    p->literal = NULL;
    if (p->rc) {
        p->lex = ZT_LEX_END;
        return;
    }
    skip_spaces(p);
    if (p->at == p->end) {
        zt_template_refuse(p, "a tag has no end %c}", p->close);
    } else if (at_end_of_tag(p)) {
        p->lex = ZT_LEX_END;
    } else if (is_name_char(*p->at, true)) {
        const char *from = p->at;

        while (p->at < p->end && is_name_char(*p->at, false))
            p->at++;
        p->lex = ZT_LEX_NAME;
        p->word = zt_text_arena_copy(&p->t->arena, from, (size_t)(p->at - from));
    } else if (*p->at == '"' || *p->at == '\'') {
        lex_string(p);
    } else if (*p->at >= '0' && *p->at <= '9') {
        lex_number(p);
    } else {
        lex_operator(p);
    }
}

bool zt_template_lex_is(const struct zt_template_parser *p, zt_lexeme lex,
                        const char *word)
{
    return !p->rc && p->lex == lex && strcmp(p->word, word) == 0;
}

bool zt_template_lex_take(struct zt_template_parser *p, const char *word)
{
    bool is_it = zt_template_lex_is(p, ZT_LEX_OPERATOR, word) ||
                 zt_template_lex_is(p, ZT_LEX_NAME, word);

    if (is_it)
        zt_template_lex(p);
    return is_it;
}

void zt_template_lex_need(struct zt_template_parser *p, const char *word)
{
    if (!zt_template_lex_take(p, word))
        zt_template_refuse(p, "'%s' is missing%s%s%s", word, *p->word ? " before '" : "",
                           p->word, *p->word ? "'" : "");
}

const char *zt_template_lex_name(struct zt_template_parser *p)
{
    static const char *const reserved[] = {"and",  "or",    "not",   "if",   "else",
                                           "elif", "in",    "is",    "for",  "true",
                                           "True", "false", "False", "none", "None"};
    const char *name = p->word;

    if (!p->rc && p->lex != ZT_LEX_NAME)
        zt_template_refuse(p, "a name is missing%s%s%s", *p->word ? " before '" : "",
                           p->word, *p->word ? "'" : "");
    for (size_t i = 0; i < sizeof(reserved) / sizeof(*reserved); i++)
        if (strcmp(name, reserved[i]) == 0)
            zt_template_refuse(p, "'%s' is no name", name);
    if (p->rc)
        return "";
    zt_template_lex(p);
    return name;
}
