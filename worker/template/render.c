/* render.c -- statements. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "worker/template/private.h"

static void run_body(struct zt_template_run *r, const struct zt_stmt *s);

json_t *zt_template_fail(struct zt_template_run *r, int line, const char *fmt, ...)
{
    char text[400];
    va_list ap;

    if (r->rc)
        return NULL;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    r->rc = zt_fault_set(r->fault, ZT_E_FORMAT, "%s:%d: %s", r->t->name, line, text);
    return NULL;
}

json_t *zt_template_keep(struct zt_template_run *r, json_t *value)
{
    if (value && json_array_append_new(r->made, value) == 0)
        return value;
    if (!r->rc)
        r->rc = zt_fault_set(r->fault, ZT_E_NOMEM, "%s: no memory", r->t->name);
    return NULL;
}

json_t *zt_template_string(struct zt_template_run *r, const char *s, size_t n)
{
    return zt_template_keep(r, json_stringn_nocheck(s, n));
}

static size_t bytes_of(const json_t *v)
{
    return 64 + (json_is_string(v)  ? json_string_length(v)
                 : json_is_array(v) ? 32 * json_array_size(v)
                                    : 512 + 128 * json_object_size(v));
}

bool zt_template_step(struct zt_template_run *r, int line)
{
    while (r->counted < json_array_size(r->made))
        r->bytes += bytes_of(json_array_get(r->made, r->counted++));
    if (++r->steps > ZT_TEMPLATE_STEPS)
        zt_template_fail(r, line, "more than %lld steps", (long long)ZT_TEMPLATE_STEPS);
    else if (r->bytes > ZT_TEMPLATE_BYTES)
        zt_template_fail(r, line, "values of more than 256 MiB are made");
    else
        return true;
    r->rc = ZT_E_LIMIT;
    return false;
}

static void print(struct zt_template_run *r, const char *s, size_t n)
{
    zt_err rc = r->rc || !n ? ZT_OK : zt_buf_put(r->out, s, n);

    if (rc)
        r->rc = zt_fault_set(r->fault, rc, "%s: %s", r->t->name,
                             rc == ZT_E_LIMIT ? "the text is longer than 256 MiB"
                                              : "no memory");
}

/* Values stay trees of bounded depth: `within` (NULL: any) is no part of them. */
static bool is_tree(const json_t *v, const json_t *within, int depth)
{
    const char *key;
    json_t *value;

    if (depth > ZT_TEMPLATE_DEPTH || v == within)
        return false;
    for (size_t i = 0; json_is_array(v) && i < json_array_size(v); i++)
        if (!is_tree(json_array_get(v, i), within, depth + 1))
            return false;
    if (json_is_object(v))
        json_object_foreach((json_t *)v, key,
                            value) if (!is_tree(value, within, depth + 1)) return false;
    return true;
}

static void set_name(struct zt_template_run *r, const char *name, json_t *value)
{
    if (value && json_object_set_nocheck(r->scope->names, name, value))
        zt_template_keep(r, NULL);
}

/* ---- loops ---- */

/* The values that a loop's names have for an item. */
static void set_loop_names(struct zt_template_run *r, const struct zt_stmt *s,
                           json_t *item)
{
    if (!s->name2) {
        set_name(r, s->name, item);
        return;
    }
    if (!json_is_array(item) || json_array_size(item) != 2) {
        zt_template_fail(r, s->line, "the loop over %s, %s gets what is no pair", s->name,
                         s->name2);
        return;
    }
    set_name(r, s->name, json_array_get(item, 0));
    set_name(r, s->name2, json_array_get(item, 1));
}

/* Loops that are recursive are refused, so that no other has a depth. */
static json_t *describe_loop(struct zt_template_run *r, const json_t *items, size_t i)
{
    size_t n = json_array_size(items);
    json_t *next = i + 1 < n ? json_array_get(items, i + 1) : r->undefined;
    json_t *previous = i ? json_array_get(items, i - 1) : r->undefined;

    return zt_template_keep(
        r, json_pack("{s:i, s:i, s:I, s:I, s:I, s:I, s:I, s:b, s:b, s:O, s:O}", "depth",
                     1, "depth0", 0, "index", (json_int_t)i + 1, "index0", (json_int_t)i,
                     "revindex", (json_int_t)(n - i), "revindex0",
                     (json_int_t)(n - i - 1), "length", (json_int_t)n, "first", i == 0,
                     "last", i + 1 == n, "previtem", previous, "nextitem", next));
}

static json_t *names_of_scope(struct zt_template_run *r)
{
    return zt_template_keep(r, json_object());
}

/* A body whose names are its own. */
static void run_inner(struct zt_template_run *r, const struct zt_stmt *s)
{
    struct zt_template_scope own = {names_of_scope(r), r->scope};

    r->scope = &own;
    if (own.names)
        run_body(r, s);
    r->scope = own.up;
}

/* The items for which the condition holds. */
static json_t *choose_items(struct zt_template_run *r, const struct zt_stmt *s,
                            json_t *all)
{
    struct zt_template_scope own = {names_of_scope(r), r->scope};
    json_t *some = zt_template_keep(r, json_array());

    r->scope = &own;
    for (size_t i = 0; !r->rc && i < json_array_size(all); i++) {
        const json_t *holds;

        set_loop_names(r, s, json_array_get(all, i));
        holds = r->rc ? NULL : zt_template_eval(r, s->condition);
        if (holds && zt_template_is_true(r, holds) &&
            json_array_append(some, json_array_get(all, i)))
            zt_template_keep(r, NULL);
    }
    r->scope = own.up;
    return some;
}

static void run_for(struct zt_template_run *r, const struct zt_stmt *s)
{
    json_t *over = zt_template_eval(r, s->expr), *items;

    items = over ? zt_template_items(r, s->line, over) : NULL;
    if (items && s->condition)
        items = choose_items(r, s, items);
    for (size_t i = 0; !r->rc && i < json_array_size(items); i++) {
        struct zt_template_scope own = {names_of_scope(r), r->scope};
        json_t *item = json_array_get(items, i);

        r->scope = &own;
        if (own.names) {
            set_name(r, "loop", describe_loop(r, items, i));
            set_loop_names(r, s, item);
            run_body(r, s->body);
        }
        r->scope = own.up;
        if (r->jump == ZT_STMT_BREAK)
            break;
        r->jump = 0;
    }
    r->jump = 0;
    if (!r->rc && json_array_size(items) == 0)
        run_body(r, s->other);
}

/* ---- set ---- */

static json_t *value_of_set(struct zt_template_run *r, const struct zt_stmt *s)
{
    struct zt_buf *out = r->out, own;
    json_t *text = NULL;

    if (s->expr)
        return zt_template_eval(r, s->expr);
    zt_buf_init(&own, out->max);
    r->out = &own;
    run_inner(r, s->body);
    r->out = out;
    if (!r->rc)
        text = zt_template_string(
            r, zt_buf_used(&own) ? (const char *)zt_buf_head(&own) : "",
            zt_buf_used(&own));
    zt_buf_release(&own);
    return text;
}

static void set_field(struct zt_template_run *r, const struct zt_stmt *s, json_t *value)
{
    json_t *of = NULL;

    for (const struct zt_template_scope *up = r->scope; up && !of; up = up->up)
        of = json_object_get(up->names, s->name);
    for (size_t i = 0; of && i < json_array_size(r->namespaces); i++)
        if (json_array_get(r->namespaces, i) == of) {
            if (!is_tree(value, of, 0))
                zt_template_fail(r, s->line, "%s becomes a part of itself", s->name);
            else if (json_object_set_nocheck(of, s->field, value))
                zt_template_keep(r, NULL);
            return;
        }
    zt_template_fail(r, s->line, "%s.%s is set, and %s is no namespace()", s->name,
                     s->field, s->name);
}

static void run_set(struct zt_template_run *r, const struct zt_stmt *s)
{
    json_t *value = value_of_set(r, s);

    if (!value)
        return;
    if (!is_tree(value, NULL, 0))
        zt_template_fail(r, s->line, "'%s' has more than %d levels", s->name,
                         ZT_TEMPLATE_DEPTH);
    else if (s->field)
        set_field(r, s, value);
    else
        set_name(r, s->name, value);
}

/* ---- all of them ---- */

static void run_print(struct zt_template_run *r, const struct zt_stmt *s)
{
    json_t *v = zt_template_eval(r, s->expr);

    v = v ? zt_template_to_string(r, s->line, v) : NULL;
    if (v)
        print(r, json_string_value(v), json_string_length(v));
}

static void run_if(struct zt_template_run *r, const struct zt_stmt *s)
{
    const json_t *v = zt_template_eval(r, s->expr);

    if (v)
        run_body(r, zt_template_is_true(r, v) ? s->body : s->other);
}

/* What a block that is set prints goes elsewhere first, and is no span. */
static void run_generation(struct zt_template_run *r, const struct zt_stmt *s)
{
    struct zt_template_span span = {zt_buf_used(r->out) - r->begin, 0};

    run_inner(r, s->body);
    span.to = zt_buf_used(r->out) - r->begin;
    if (!r->rc && r->spans && r->out == r->text &&
        zt_buf_put(r->spans, &span, sizeof(span)) != ZT_OK)
        zt_template_keep(r, NULL);
}

static void run_body(struct zt_template_run *r, const struct zt_stmt *s)
{
    for (; s && !r->rc && !r->jump; s = s->next) {
        if (!zt_template_step(r, s->line))
            return;
        switch (s->kind) {
        case ZT_STMT_TEXT:
            print(r, s->text, s->n);
            break;
        case ZT_STMT_PRINT:
            run_print(r, s);
            break;
        case ZT_STMT_IF:
            run_if(r, s);
            break;
        case ZT_STMT_FOR:
            run_for(r, s);
            break;
        case ZT_STMT_SET:
            run_set(r, s);
            break;
        case ZT_STMT_GENERATION:
            run_generation(r, s);
            break;
        case ZT_STMT_BREAK:
        case ZT_STMT_CONTINUE:
            r->jump = (int)s->kind;
            break;
        }
    }
}

zt_err zt_template_render(const struct zt_template *t, const json_t *values,
                          struct zt_buf *out, struct zt_buf *spans,
                          struct zt_fault *fault)
{
    struct zt_template_run r = {.t = t,
                                .values = values,
                                .out = out,
                                .text = out,
                                .spans = spans,
                                .begin = zt_buf_used(out),
                                .fault = fault,
                                .made = json_array()};
    struct zt_template_scope top = {json_object(), NULL};

    r.scope = &top;
    /* no text is the same as one that begins with a zero byte, but by a template's own doing */
    r.undefined = zt_template_keep(&r, json_stringn("\0undefined", 10));
    r.function = zt_template_keep(&r, json_stringn("\0function", 9));
    r.namespaces = zt_template_keep(&r, json_array());
    r.lazy = zt_template_keep(&r, json_object());
    if (!top.names)
        zt_template_keep(&r, NULL);
    if (!r.rc)
        run_body(&r, t->body);
    json_decref(top.names);
    json_decref(r.made);
    return r.rc;
}

bool zt_template_marks_generation(const struct zt_template *t)
{
    return t->marks_generation;
}
