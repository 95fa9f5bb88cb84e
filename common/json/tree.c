#include "common/json/tree.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/utf8.h"

struct parser {
    struct zt_text_arena *arena;
    struct zt_problems *report;
    const char *name;
    const char *p, *end;
    const char *line_start;
    int line, depth;
    bool dead; /* a problem was reported; unwind */
    bool comments, trailing;
};

static int column(const struct parser *ps)
{
    return (int)(ps->p - ps->line_start) + 1;
}

static struct zt_jnode *fail(struct parser *ps, const char *what)
{
    if (!ps->dead)
        zt_problems_add(ps->report, ZT_E_CONFIG, "%s:%d:%d: %s", ps->name, ps->line,
                        column(ps), what);
    ps->dead = true;
    return NULL;
}

/* ---- blanks and comments ---- */

static void step(struct parser *ps)
{
    if (*ps->p++ == '\n') {
        ps->line++;
        ps->line_start = ps->p;
    }
}

static void note_comment(struct parser *ps)
{
    if (!ps->comments)
        zt_problems_note(ps->report,
                         "%s:%d:%d: comments are accepted, though JSON has none",
                         ps->name, ps->line, column(ps));
    ps->comments = true;
}

static void skip(struct parser *ps)
{
    while (ps->p < ps->end) {
        char c = *ps->p, d = ps->p + 1 < ps->end ? ps->p[1] : 0;

        if (c == ' ' || c == '\t' || c == '\n' || c == '\r') {
            step(ps);
        } else if (c == '#' || (c == '/' && d == '/')) {
            note_comment(ps);
            while (ps->p < ps->end && *ps->p != '\n')
                step(ps);
        } else if (c == '/' && d == '*') {
            note_comment(ps);
            for (ps->p += 2; ps->p + 1 < ps->end && (*ps->p != '*' || ps->p[1] != '/');)
                step(ps);
            if (ps->p + 1 >= ps->end) {
                fail(ps, "a comment that begins with /* has no end");
                return;
            }
            ps->p += 2;
        } else {
            return;
        }
    }
}

/* ---- strings ---- */

static int hex4(const char *p, const char *end)
{
    int v = 0;

    if (end - p < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        int c = (unsigned char)p[i];

        if (!isxdigit(c))
            return -1;
        v = v * 16 + (isdigit(c) ? c - '0' : (c | 32) - 'a' + 10);
    }
    return v;
}

static size_t put_utf8(char *out, uint32_t c)
{
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    if (c < 0x800) {
        out[0] = (char)(0xc0 | c >> 6);
        out[1] = (char)(0x80 | (c & 63));
        return 2;
    }
    if (c < 0x10000) {
        out[0] = (char)(0xe0 | c >> 12);
        out[1] = (char)(0x80 | (c >> 6 & 63));
        out[2] = (char)(0x80 | (c & 63));
        return 3;
    }
    out[0] = (char)(0xf0 | c >> 18);
    out[1] = (char)(0x80 | (c >> 12 & 63));
    out[2] = (char)(0x80 | (c >> 6 & 63));
    out[3] = (char)(0x80 | (c & 63));
    return 4;
}

/* The escape at p (behind the backslash); bytes written to out, 0 after a problem. */
static size_t escape(struct parser *ps, char *out)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    const char *which = *ps->p ? strchr(from, *ps->p) : NULL;
    int hi, lo;

    if (which) {
        ps->p++;
        *out = to[which - from];
        return 1;
    }
    hi = *ps->p == 'u' ? hex4(ps->p + 1, ps->end) : -1;
    if (hi <= 0 || (hi >= 0xdc00 && hi < 0xe000)) {
        fail(ps, hi == 0 ? "a string cannot hold \\u0000" : "no such escape in a string");
        return 0;
    }
    ps->p += 5;
    if (hi < 0xd800 || hi >= 0xe000)
        return put_utf8(out, (uint32_t)hi);
    lo = ps->end - ps->p >= 6 && ps->p[0] == '\\' && ps->p[1] == 'u'
             ? hex4(ps->p + 2, ps->end)
             : -1;
    if (lo < 0xdc00 || lo >= 0xe000) {
        fail(ps, "half of a surrogate pair in a string");
        return 0;
    }
    ps->p += 6;
    return put_utf8(out,
                    0x10000 + (((uint32_t)hi - 0xd800) << 10) + (uint32_t)lo - 0xdc00);
}

/* p stands on the opening quote. NULL after a problem. */
static const char *string(struct parser *ps)
{
    const char *close = ps->p + 1;
    char *out;
    size_t n = 0;

    while (close < ps->end && *close != '"' && *close != '\n')
        close += *close == '\\' && close + 1 < ps->end ? 2 : 1;
    if (close >= ps->end || *close != '"')
        return (const char *)fail(ps, "a string without its closing quote");
    out = zt_text_arena_alloc(ps->arena,
                              (size_t)(close - ps->p)); /* an escape only shrinks */
    if (!out) {
        ps->dead = true;
        return NULL;
    }
    for (ps->p++; *ps->p != '"';) {
        size_t len;

        if (*ps->p == '\\') {
            ps->p++;
            len = escape(ps, out + n);
        } else if ((unsigned char)*ps->p < 0x20) {
            fail(ps, "a control character in a string");
            len = 0;
        } else {
            len = zt_utf8_length(ps->p, (size_t)(ps->end - ps->p));
            if (len)
                memcpy(out + n, ps->p, len);
            else
                fail(ps, "text that is not UTF-8");
            ps->p += len;
        }
        if (!len)
            return NULL;
        n += len;
    }
    ps->p++;
    out[n] = 0;
    return out;
}

/* ---- numbers and words ---- */

static size_t digits(const char *p, const char *end)
{
    size_t n = 0;

    while (p + n < end && isdigit((unsigned char)p[n]))
        n++;
    return n;
}

/* Length of the JSON number at p, 0: there is none. */
static size_t number_length(const char *p, const char *end)
{
    const char *s = p;
    size_t n;

    s += s < end && *s == '-';
    n = digits(s, end);
    if (!n || (n > 1 && *s == '0'))
        return 0;
    s += n;
    if (s < end && *s == '.') {
        n = digits(s + 1, end);
        if (!n)
            return 0;
        s += 1 + n;
    }
    if (s < end && (*s | 32) == 'e') {
        const char *e = s + 1;

        e += e < end && (*e == '+' || *e == '-');
        n = digits(e, end);
        if (!n)
            return 0;
        s = e + n;
    }
    return (size_t)(s - p);
}

static bool word_ends(const char *p, const char *end)
{
    return p >= end || !(isalnum((unsigned char)*p) || *p == '_' || *p == '.');
}

/* Does True, False or None stand here, as Python prints them? */
static bool is_python(const struct parser *ps)
{
    static const char *const words[] = {"True", "False", "None"};

    for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++) {
        size_t n = strlen(words[i]);

        if ((size_t)(ps->end - ps->p) >= n && !memcmp(ps->p, words[i], n) &&
            word_ends(ps->p + n, ps->end))
            return true;
    }
    return false;
}

static struct zt_jnode *scalar(struct parser *ps, struct zt_jnode *node)
{
    static const struct {
        const char *word;
        zt_json_type type;
    } words[] = {{"true", ZT_JSON_BOOL},       {"false", ZT_JSON_BOOL},
                 {"null", ZT_JSON_NULL},       {"NaN", ZT_JSON_NUMBER},
                 {"Infinity", ZT_JSON_NUMBER}, {"-Infinity", ZT_JSON_NUMBER}};
    size_t n = number_length(ps->p, ps->end);

    node->type = ZT_JSON_NUMBER;
    for (size_t i = 0; !n && i < sizeof(words) / sizeof(*words); i++) {
        size_t len = strlen(words[i].word);

        if ((size_t)(ps->end - ps->p) >= len && !memcmp(ps->p, words[i].word, len)) {
            n = len;
            node->type = words[i].type;
            node->boolean = *ps->p == 't';
        }
    }
    if (!n && is_python(ps))
        return fail(ps, "a value of Python's; JSON has true, false and null");
    if (!n || !word_ends(ps->p + n, ps->end))
        return fail(ps, "here a value must stand: a number, a \"string\", true, false, "
                        "null, [ or {");
    node->text = zt_text_arena_copy(ps->arena, ps->p, n);
    ps->p += n;
    return node;
}

/* ---- arrays and objects ---- */

static struct zt_jnode *value(struct parser *ps);

/* "key": at p. False after a problem. */
static bool member_key(struct parser *ps, struct zt_jnode *obj, const char **key,
                       int *line, int *col)
{
    const struct zt_jnode *twin;

    *line = ps->line;
    *col = column(ps);
    if (ps->p >= ps->end || *ps->p != '"') {
        fail(ps, "here a \"key\" or } must stand");
        return false;
    }
    *key = string(ps);
    if (!*key)
        return false;
    twin = zt_jnode_get(obj, *key);
    if (twin)
        zt_problems_add(ps->report, ZT_E_CONFIG,
                        "%s:%d:%d: \"%s\" is here a second time; the first is at %d:%d",
                        ps->name, *line, *col, *key, twin->key_line, twin->key_col);
    skip(ps);
    if (ps->dead || ps->p >= ps->end || *ps->p != ':') {
        fail(ps, "a ':' is missing behind the key");
        return false;
    }
    ps->p++;
    return true;
}

static struct zt_jnode *members(struct parser *ps, struct zt_jnode *node, char close)
{
    ps->p++;
    for (;;) {
        struct zt_jnode *child;
        const char *key = NULL;
        int line = 0, col = 0;

        skip(ps);
        if (ps->dead)
            return NULL;
        if (ps->p < ps->end && *ps->p == close)
            break;
        if (node->num_children == ZT_JSON_MAX_MEMBERS)
            return fail(ps, "too many members");
        if (close == '}' && !member_key(ps, node, &key, &line, &col))
            return NULL;
        child = value(ps);
        if (!child)
            return NULL;
        if (!zt_jnode_get(node, key ? key : "")) /* the first of a duplicate stays */
            zt_jnode_add(node, key, child);
        child->key_line = line;
        child->key_col = col;
        skip(ps);
        if (ps->dead)
            return NULL;
        if (ps->p < ps->end && *ps->p == close)
            break;
        if (ps->p >= ps->end || *ps->p != ',')
            return fail(ps, close == '}' ? "a ',' or '}' is missing here"
                                         : "a ',' or ']' is missing here");
        ps->p++;
        skip(ps);
        if (!ps->dead && ps->p < ps->end && *ps->p == close && !ps->trailing) {
            zt_problems_note(ps->report,
                             "%s:%d:%d: a trailing comma is accepted, though "
                             "JSON has none",
                             ps->name, ps->line, column(ps));
            ps->trailing = true;
        }
    }
    ps->p++;
    return node;
}

static struct zt_jnode *value(struct parser *ps)
{
    struct zt_jnode *node = zt_jnode_new(ps->arena, ZT_JSON_NULL, NULL);

    skip(ps);
    if (!node)
        ps->dead = true;
    if (ps->dead)
        return NULL;
    node->line = ps->line;
    node->col = column(ps);
    if (ps->p < ps->end && *ps->p == '"') {
        node->type = ZT_JSON_STRING;
        node->text = string(ps);
        return node->text ? node : NULL;
    }
    if (ps->p < ps->end && (*ps->p == '{' || *ps->p == '[')) {
        bool object = *ps->p == '{';

        if (ps->depth == ZT_JSON_MAX_DEPTH)
            return fail(ps, "nested too deeply");
        node->type = object ? ZT_JSON_OBJECT : ZT_JSON_ARRAY;
        ps->depth++;
        node = members(ps, node, object ? '}' : ']');
        ps->depth--;
        return node;
    }
    return scalar(ps, node);
}

struct zt_jnode *zt_jtree_parse(struct zt_text_arena *arena, const char *name,
                                const char *text, size_t n, struct zt_problems *report)
{
    struct parser ps = {.arena = arena,
                        .report = report,
                        .name = name,
                        .p = text,
                        .end = text + n,
                        .line_start = text,
                        .line = 1};
    struct zt_jnode *root;

    if (n > ZT_JSON_MAX_BYTES)
        return fail(&ps, "larger than any config: 4 MiB is the most");
    if (n >= 3 && !memcmp(text, "\xef\xbb\xbf", 3))
        ps.p += 3; /* byte order mark */
    root = value(&ps);
    if (!root)
        return NULL;
    skip(&ps);
    if (ps.p < ps.end || ps.dead)
        return fail(&ps, "text behind the end of the config");
    return root;
}

/* ---- trees ---- */

struct zt_jnode *zt_jnode_get(const struct zt_jnode *obj, const char *key)
{
    if (!obj || obj->type != ZT_JSON_OBJECT)
        return NULL;
    for (struct zt_jnode *c = obj->first; c; c = c->next)
        if (!strcmp(c->key, key))
            return c;
    return NULL;
}

const char *zt_jnode_type_name(const struct zt_jnode *n)
{
    static const char *const names[] = {"null",   "true or false", "number",
                                        "string", "array",         "object"};

    return names[n->type];
}

bool zt_jnode_equal(const struct zt_jnode *a, const struct zt_jnode *b)
{
    const struct zt_jnode *x, *y;

    if (a->type != b->type || a->num_children != b->num_children)
        return false;
    switch (a->type) {
    case ZT_JSON_NULL:
        return true;
    case ZT_JSON_BOOL:
        return a->boolean == b->boolean;
    case ZT_JSON_NUMBER:
        return !strcmp(a->text, b->text) ||
               strtod(a->text, NULL) == strtod(b->text, NULL);
    case ZT_JSON_STRING:
        return !strcmp(a->text, b->text);
    case ZT_JSON_ARRAY:
        for (x = a->first, y = b->first; x; x = x->next, y = y->next)
            if (!zt_jnode_equal(x, y))
                return false;
        return true;
    case ZT_JSON_OBJECT:
        for (x = a->first; x; x = x->next) {
            y = zt_jnode_get(b, x->key);
            if (!y || !zt_jnode_equal(x, y))
                return false;
        }
    }
    return true;
}

struct zt_jnode *zt_jnode_new(struct zt_text_arena *arena, zt_json_type type,
                              const char *text)
{
    struct zt_jnode *n = zt_text_arena_alloc(arena, sizeof(*n));

    if (!n)
        return NULL;
    n->type = type;
    n->boolean = type == ZT_JSON_BOOL && text && *text == 't';
    n->text = text ? zt_text_arena_copy(arena, text, strlen(text)) : NULL;
    return n;
}

struct zt_jnode *zt_jnode_copy(struct zt_text_arena *arena, const struct zt_jnode *from)
{
    struct zt_jnode *n = zt_text_arena_alloc(arena, sizeof(*n));

    if (!n)
        return NULL;
    *n = *from;
    n->first = n->last = n->next = NULL;
    n->num_children = 0;
    for (const struct zt_jnode *c = from->first; c; c = c->next) {
        struct zt_jnode *copy = zt_jnode_copy(arena, c);

        if (!copy)
            return NULL;
        zt_jnode_add(n, c->key, copy);
    }
    return n;
}

void zt_jnode_add(struct zt_jnode *parent, const char *key, struct zt_jnode *child)
{
    if (!parent || !child)
        return;
    child->key = key;
    child->next = NULL;
    if (parent->last)
        parent->last->next = child;
    else
        parent->first = child;
    parent->last = child;
    parent->num_children++;
}

/* ---- printing ---- */

static void print_string(FILE *out, const char *s)
{
    fputc('"', out);
    for (; *s; s++) {
        if (*s == '"' || *s == '\\')
            fprintf(out, "\\%c", *s);
        else if ((unsigned char)*s < 0x20)
            fprintf(out, "\\u%04x", (unsigned)*s);
        else
            fputc(*s, out);
    }
    fputc('"', out);
}

static bool all_scalars(const struct zt_jnode *node)
{
    for (const struct zt_jnode *c = node->first; c; c = c->next)
        if (c->type >= ZT_JSON_ARRAY || c->comment)
            return false;
    return true;
}

static void print_flat(FILE *out, const struct zt_jnode *node)
{
    bool object = node->type == ZT_JSON_OBJECT;

    switch (node->type) {
    case ZT_JSON_NULL:
        fputs("null", out);
        return;
    case ZT_JSON_BOOL:
        fputs(node->boolean ? "true" : "false", out);
        return;
    case ZT_JSON_NUMBER:
        fputs(node->text, out);
        return;
    case ZT_JSON_STRING:
        print_string(out, node->text);
        return;
    case ZT_JSON_ARRAY:
    case ZT_JSON_OBJECT:
        break;
    }
    fputc(object ? '{' : '[', out);
    for (const struct zt_jnode *c = node->first; c; c = c->next) {
        if (object) {
            print_string(out, c->key);
            fputs(": ", out);
        }
        print_flat(out, c);
        if (c->next)
            fputs(", ", out);
    }
    fputc(object ? '}' : ']', out);
}

static void print_node(FILE *out, const struct zt_jnode *node, int depth)
{
    bool object = node->type == ZT_JSON_OBJECT;

    if (node->type < ZT_JSON_ARRAY || !node->first || (!object && all_scalars(node))) {
        print_flat(out, node);
        return;
    }
    fputs(object ? "{\n" : "[\n", out);
    for (const struct zt_jnode *c = node->first; c; c = c->next) {
        fprintf(out, "%*s", 2 * depth + 2, "");
        if (object) {
            print_string(out, c->key);
            fputs(": ", out);
        }
        print_node(out, c, depth + 1);
        if (c->next)
            fputc(',', out);
        if (c->comment)
            fprintf(out, " // %s", c->comment);
        fputc('\n', out);
    }
    fprintf(out, "%*s%c", 2 * depth, "", object ? '}' : ']');
}

void zt_jtree_print(FILE *out, const struct zt_jnode *root)
{
    print_node(out, root, 0);
    fputc('\n', out);
}

void zt_jnode_brief(const struct zt_jnode *node, char *out, size_t n)
{
    char *text = NULL;
    size_t len = 0;
    FILE *f = open_memstream(&text, &len);

    out[0] = 0;
    if (!f)
        return;
    print_flat(f, node);
    if (fclose(f) == 0 && text)
        snprintf(out, n, "%s", text);
    free(text);
    if (len >= n && n > 4)
        memcpy(out + n - 4, "...", 4);
}
