/* parse.c -- a template becomes a list of statements. */
#include <stdlib.h>
#include <string.h>

#include "worker/template/private.h"

static struct zt_stmt *parse_body(struct zt_template_parser *p, const char *const *ends,
                                  const char **ended_by);

static const char *const no_ends[] = {NULL};

static struct zt_stmt *make(struct zt_template_parser *p, zt_stmt_kind kind)
{
    struct zt_stmt *s = zt_template_alloc(p, sizeof(*s));

    if (s)
        *s = (struct zt_stmt){.kind = kind, .line = p->line};
    return s;
}

/* The end of the tag at hand. */
static void end_tag(struct zt_template_parser *p)
{
    if (!p->rc && p->lex != ZT_LEX_END)
        zt_template_refuse(p, "'%s' is not known here", p->word);
}

/* Up to a tag of `end`, whose own end has been passed. */
static struct zt_stmt *parse_until(struct zt_template_parser *p, const char *end)
{
    const char *const ends[] = {end, NULL};
    const char *by = NULL;
    struct zt_stmt *body = parse_body(p, ends, &by);

    end_tag(p);
    return body;
}

/* ---- statements: the word that names them has been passed ---- */

static struct zt_stmt *parse_if(struct zt_template_parser *p)
{
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    struct zt_stmt *s = make(p, ZT_STMT_IF);
    const char *by = NULL;

    if (!s)
        return NULL;
    s->expr = zt_template_parse_expr(p);
    end_tag(p);
    s->body = parse_body(p, ends, &by);
    if (p->rc || !by)
        return s;
    if (strcmp(by, "elif") == 0) {
        s->other = parse_if(p);
        return s;
    }
    end_tag(p);
    if (strcmp(by, "else") == 0)
        s->other = parse_until(p, "endif");
    return s;
}

static struct zt_stmt *parse_for(struct zt_template_parser *p)
{
    static const char *const ends[] = {"else", "endfor", NULL};
    struct zt_stmt *s = make(p, ZT_STMT_FOR);
    const char *by = NULL;
    bool in_parens;

    if (!s)
        return NULL;
    in_parens = zt_template_lex_take(p, "(");
    s->name = zt_template_lex_name(p);
    if (zt_template_lex_take(p, ","))
        s->name2 = zt_template_lex_name(p);
    if (in_parens)
        zt_template_lex_need(p, ")");
    zt_template_lex_need(p, "in");
    s->expr = zt_template_parse_loop(p, &s->condition);
    if (zt_template_lex_is(p, ZT_LEX_NAME, "recursive"))
        zt_template_refuse(p, "recursive loops are not in the subset that is read");
    end_tag(p);
    s->body = parse_body(p, ends, &by);
    end_tag(p);
    if (!p->rc && by && strcmp(by, "else") == 0)
        s->other = parse_until(p, "endfor");
    return s;
}

static struct zt_stmt *parse_set(struct zt_template_parser *p)
{
    struct zt_stmt *s = make(p, ZT_STMT_SET);

    if (!s)
        return NULL;
    s->name = zt_template_lex_name(p);
    if (zt_template_lex_take(p, "."))
        s->field = zt_template_lex_name(p);
    if (zt_template_lex_take(p, "=")) {
        s->expr = zt_template_parse_expr(p);
        end_tag(p);
    } else {
        if (p->lex == ZT_LEX_OPERATOR)
            zt_template_refuse(
                p,
                "'%s' after the name that is set is not in the subset that "
                "is read",
                p->word);
        end_tag(p);
        s->body = parse_until(p, "endset");
    }
    return s;
}

/* {% generation %} marks what an assistant says; it changes no text. */
static struct zt_stmt *parse_generation(struct zt_template_parser *p)
{
    struct zt_stmt *s = make(p, ZT_STMT_GENERATION);

    if (!s)
        return NULL;
    if (p->generates)
        zt_template_refuse(p, "{%% generation %%} is within another one");
    p->t->marks_generation = p->generates = true;
    end_tag(p);
    s->body = parse_until(p, "endgeneration");
    p->generates = false;
    return s;
}

static struct zt_stmt *parse_jump(struct zt_template_parser *p, zt_stmt_kind kind)
{
    struct zt_stmt *s = make(p, kind);

    end_tag(p);
    return s;
}

static struct zt_stmt *parse_break(struct zt_template_parser *p)
{
    return parse_jump(p, ZT_STMT_BREAK);
}

static struct zt_stmt *parse_continue(struct zt_template_parser *p)
{
    return parse_jump(p, ZT_STMT_CONTINUE);
}

static struct zt_stmt *parse_statement(struct zt_template_parser *p)
{
    static const struct {
        const char *word;
        struct zt_stmt *(*parse)(struct zt_template_parser *p);
    } statements[] = {{"if", parse_if},       {"for", parse_for},
                      {"set", parse_set},     {"generation", parse_generation},
                      {"break", parse_break}, {"continue", parse_continue}};

    for (size_t i = 0; i < sizeof(statements) / sizeof(*statements); i++)
        if (zt_template_lex_take(p, statements[i].word))
            return statements[i].parse(p);
    if (p->lex == ZT_LEX_END)
        zt_template_refuse(p, "a tag {%% %%} says nothing");
    else
        zt_template_refuse(p, "{%% %s %%} is not in the subset that is read", p->word);
    return NULL;
}

static struct zt_stmt *parse_print(struct zt_template_parser *p)
{
    struct zt_stmt *s = make(p, ZT_STMT_PRINT);

    if (s)
        s->expr = zt_template_parse_expr(p);
    end_tag(p);
    return s;
}

/* ---- bodies ---- */

static const char *find_end(struct zt_template_parser *p, const char *const *ends)
{
    for (; *ends; ends++)
        if (zt_template_lex_take(p, *ends))
            return *ends;
    return NULL;
}

static void refuse_end(struct zt_template_parser *p, const char *const *ends)
{
    const char *last = NULL;

    for (; *ends; ends++)
        last = *ends;
    zt_template_refuse(p, "the template ends, and {%% %s %%} is missing", last);
}

/* Statements up to a tag that begins with one of `ends`, or the end of the template where
 * there are none. *ended_by: that word, which has been passed. */
static struct zt_stmt *parse_body(struct zt_template_parser *p, const char *const *ends,
                                  const char **ended_by)
{
    struct zt_stmt *first = NULL, **next = &first, *s;

    if (++p->depth > ZT_TEMPLATE_DEPTH)
        zt_template_refuse(p, "more than %d levels", ZT_TEMPLATE_DEPTH);
    while (!p->rc) {
        const char *text;
        size_t n;
        char opens;

        zt_template_lex_text(p, &text, &n, &opens);
        if (n && (s = make(p, ZT_STMT_TEXT))) {
            s->text = text;
            s->n = n;
            *next = s;
            next = &s->next;
        }
        if (!opens && *ends)
            refuse_end(p, ends);
        if (!opens || p->rc)
            break;
        if (opens == '#')
            continue;
        if (opens == '%' && (*ended_by = find_end(p, ends)))
            break;
        s = opens == '%' ? parse_statement(p) : parse_print(p);
        if (!s)
            break;
        *next = s;
        next = &s->next;
    }
    p->depth--;
    return first;
}

/* ---- the whole ---- */

/* A copy with lines that end in \n, but the last one, as Jinja reads it. */
static char *copy_text(const char *text, size_t n, size_t *out)
{
    char *copy = malloc(n + 1), *to = copy;

    for (size_t i = 0; copy && i < n; i++) {
        if (text[i] == '\r' && i + 1 < n && text[i + 1] == '\n')
            continue;
        *to++ = text[i] == '\r' ? '\n' : text[i];
    }
    if (!copy)
        return NULL;
    if (to > copy && to[-1] == '\n')
        to--;
    *to = 0;
    *out = (size_t)(to - copy);
    return copy;
}

zt_err zt_template_parse(const char *name, const char *text, size_t n,
                         struct zt_template **out, struct zt_fault *fault)
{
    struct zt_template *t = calloc(1, sizeof(*t));
    struct zt_template_parser p = {
        .t = t, .fault = fault, .line = 1, .line_starts = true};
    const char *ended_by;

    if (t) {
        t->name = strdup(name);
        t->text = copy_text(text, n, &t->n);
        t->constants = json_array();
    }
    if (!t || !t->name || !t->text || !t->constants) {
        zt_template_close(t);
        return zt_fault_set(fault, ZT_E_NOMEM, "%s: no memory", name);
    }
    p.at = t->text;
    p.end = t->text + t->n;
    t->body = parse_body(&p, no_ends, &ended_by);
    if (!p.rc && t->arena.failed)
        p.rc = zt_fault_set(fault, ZT_E_NOMEM, "%s: no memory", name);
    if (p.rc) {
        zt_template_close(t);
        return p.rc;
    }
    *out = t;
    return ZT_OK;
}

void zt_template_close(struct zt_template *t)
{
    if (!t)
        return;
    zt_text_arena_release(&t->arena);
    json_decref(t->constants);
    free(t->name);
    free(t->text);
    free(t);
}
