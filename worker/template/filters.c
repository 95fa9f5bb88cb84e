/* filters.c -- a | filter(arguments) */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "worker/template/text.h"

/* Text is needed: what is not becomes it, as Jinja's do. */
static json_t *as_text(struct zt_template_run *r, const struct zt_expr *x, json_t *v)
{
    return zt_template_to_string(r, x->line, v);
}

static json_t *trim(struct zt_template_run *r, const struct zt_expr *x, json_t *v)
{
    const json_t *chars = zt_template_argument(r, x, 0, "chars");

    v = as_text(r, x, v);
    if (!v)
        return NULL;
    if (chars && !zt_template_is_text(r, chars))
        return zt_template_fail(r, x->line, "trim takes text");
    return zt_template_strip(r, v, chars, ZT_STRIP_BOTH);
}

static json_t *to_json(struct zt_template_run *r, const struct zt_expr *x, json_t *v)
{
    const json_t *indent = zt_template_argument(r, x, -1, "indent");

    if (r->rc)
        return NULL;
    if (x->args && !x->args->name) /* transformers has ensure_ascii there */
        return zt_template_fail(r, x->line, "tojson takes indent= by its name alone");
    if (indent && !json_is_null(indent) &&
        !(json_is_integer(indent) && json_integer_value(indent) >= 0 &&
          json_integer_value(indent) <= 16))
        return zt_template_fail(r, x->line, "tojson: indent is none, or from 0 to 16");
    return zt_template_to_json(
        r, x->line, v,
        indent && json_is_integer(indent) ? (int)json_integer_value(indent) : -1);
}

static json_t *length(struct zt_template_run *r, const struct zt_expr *x, json_t *v)
{
    if (json_is_object(v))
        return zt_template_keep(r, json_integer((json_int_t)json_object_size(v)));
    if (zt_template_is_text(r, v)) {
        const char *s = json_string_value(v);
        json_int_t n = 0;

        for (size_t i = 0; i < json_string_length(v); i++)
            n += ((unsigned char)s[i] & 0xC0) != 0x80;
        return zt_template_keep(r, json_integer(n));
    }
    if (v != r->undefined && (!json_is_array(v) || zt_template_is_lazy(r, v)))
        return zt_template_fail(r, x->line, "length of what has none");
    return zt_template_keep(r, json_integer((json_int_t)json_array_size(v)));
}

static json_t *or_default(struct zt_template_run *r, const struct zt_expr *x, json_t *v)
{
    json_t *other = zt_template_argument(r, x, 0, "default_value");
    const json_t *also_false = zt_template_argument(r, x, 1, "boolean");

    if (r->rc)
        return NULL;
    if (v == r->undefined ||
        (also_false && zt_template_is_true(r, also_false) && !zt_template_is_true(r, v)))
        return other ? other : zt_template_string(r, "", 0);
    return v;
}

static json_t *letters(struct zt_template_run *r, const struct zt_expr *x, json_t *v,
                       zt_letters how)
{
    v = as_text(r, x, v);
    return v ? zt_template_letters(r, x->line, v, how) : NULL;
}

static json_t *upper(struct zt_template_run *r, const struct zt_expr *x, json_t *v)
{
    return letters(r, x, v, ZT_LETTERS_UPPER);
}

static json_t *lower(struct zt_template_run *r, const struct zt_expr *x, json_t *v)
{
    return letters(r, x, v, ZT_LETTERS_LOWER);
}

static json_t *capitalize(struct zt_template_run *r, const struct zt_expr *x, json_t *v)
{
    return letters(r, x, v, ZT_LETTERS_CAPITALIZED);
}

static json_t *title(struct zt_template_run *r, const struct zt_expr *x, json_t *v)
{
    return letters(r, x, v, ZT_LETTERS_TITLE_FILTER);
}

static json_t *first(struct zt_template_run *r, const struct zt_expr *x, json_t *v)
{
    v = zt_template_items(r, x->line, v);
    if (!v)
        return NULL;
    return json_array_size(v) ? json_array_get(v, 0) : r->undefined;
}

static json_t *last(struct zt_template_run *r, const struct zt_expr *x, json_t *v)
{
    v = zt_template_items(r, x->line, v);
    if (!v)
        return NULL;
    return json_array_size(v) ? json_array_get(v, json_array_size(v) - 1) : r->undefined;
}

static json_t *list(struct zt_template_run *r, const struct zt_expr *x, json_t *v)
{
    return zt_template_items(r, x->line, v);
}

/* What Jinja makes as it is gone through: it is true, has no items, and is there once. */
static json_t *as_lazy(struct zt_template_run *r, json_t *list)
{
    return zt_template_set_lazy(r, list, true);
}

static json_t *reverse(struct zt_template_run *r, const struct zt_expr *x, json_t *v)
{
    json_t *back = zt_template_keep(r, json_array());

    v = zt_template_is_text(r, v) ? zt_template_fail(r, x->line,
                                                     "reverse of text is not in the "
                                                     "subset that is read")
                                  : zt_template_items(r, x->line, v);
    for (size_t i = v ? json_array_size(v) : 0; back && i-- > 0;)
        if (json_array_append(back, json_array_get(v, i)))
            return zt_template_keep(r, NULL);
    return v ? as_lazy(r, back) : NULL;
}

static json_t *join(struct zt_template_run *r, const struct zt_expr *x, json_t *v)
{
    const json_t *by = zt_template_argument(r, x, 0, "d");
    struct zt_buf text;
    zt_err rc = ZT_OK;
    json_t *all = NULL;

    v = r->rc ? NULL : zt_template_items(r, x->line, v);
    if (!v)
        return NULL;
    if (zt_template_argument(r, x, 1, "attribute") || (by && !zt_template_is_text(r, by)))
        return zt_template_fail(r, x->line, "join takes a text, and no attribute");
    zt_buf_init(&text, ZT_TEMPLATE_BYTES);
    for (size_t i = 0; !r->rc && !rc && i < json_array_size(v); i++) {
        const json_t *one = zt_template_to_string(r, x->line, json_array_get(v, i));

        if (i && by)
            rc = zt_buf_put(&text, json_string_value(by), json_string_length(by));
        if (one && !rc)
            rc = zt_buf_put(&text, json_string_value(one), json_string_length(one));
    }
    if (rc)
        zt_template_fail(r, x->line, "join: the text is too long");
    if (!r->rc)
        all = zt_template_string(
            r, zt_buf_used(&text) ? (const char *)zt_buf_head(&text) : "",
            zt_buf_used(&text));
    zt_buf_release(&text);
    return all;
}

static json_t *replace(struct zt_template_run *r, const struct zt_expr *x, json_t *v)
{
    const json_t *from = zt_template_argument(r, x, 0, "old");
    const json_t *to = zt_template_argument(r, x, 1, "new");
    const json_t *count = zt_template_argument(r, x, 2, "count");

    v = as_text(r, x, v);
    if (!v)
        return NULL;
    if (!zt_template_is_text(r, from) || !zt_template_is_text(r, to))
        return zt_template_fail(r, x->line, "replace takes two texts");
    if (count && !json_is_integer(count) && !json_is_null(count))
        return zt_template_fail(r, x->line, "replace takes a whole number of times");
    return zt_template_replace(r, x->line, v, from, to,
                               json_is_integer(count) ? json_integer_value(count) : -1);
}

static json_t *integer_of_real(struct zt_template_run *r, const struct zt_expr *x,
                               double real)
{
    if (fabs(real) >= 0x1p63)
        return zt_template_fail(r, x->line, "an integer is too large");
    return zt_template_keep(r, json_integer((json_int_t)real));
}

/* As Python reads a whole number, or else another; `other`: it is none. */
static json_t *integer_of_text(struct zt_template_run *r, const struct zt_expr *x,
                               const char *text, json_t *other)
{
    static const char blanks[] = " \t\n\v\f\r";
    char *end;
    double real;
    long long v;

    errno = 0;
    v = strtoll(text, &end, 10);
    if (end != text && !end[strspn(end, blanks)])
        return errno ? zt_template_fail(r, x->line, "an integer is too large")
                     : zt_template_keep(r, json_integer(v));
    real = strtod(text, &end);
    if (end == text || end[strspn(end, blanks)] || !isfinite(real) || strpbrk(text, "xX"))
        return other;
    return integer_of_real(r, x, real);
}

static json_t *as_integer(struct zt_template_run *r, const struct zt_expr *x, json_t *v)
{
    json_t *other = zt_template_argument(r, x, 0, "default");

    if (!other && !r->rc)
        other = zt_template_keep(r, json_integer(0));
    if (r->rc)
        return NULL;
    if (v == r->undefined)
        return zt_template_fail(r, x->line, "int of what is not defined");
    if (zt_template_is_text(r, v))
        return integer_of_text(r, x, json_string_value(v), other);
    if (json_is_real(v))
        return integer_of_real(r, x, json_real_value(v));
    if (json_is_boolean(v))
        return zt_template_keep(r, json_integer(json_is_true(v)));
    return json_is_integer(v) ? v : other;
}

static json_t *pairs(struct zt_template_run *r, const struct zt_expr *x, json_t *v)
{
    json_t *list = zt_template_keep(r, json_array()), *value;
    const char *key;

    if (!json_is_object(v))
        return v == r->undefined ? as_lazy(r, list)
                                 : zt_template_fail(r, x->line, "items of no dict");
    if (list)
        json_object_foreach(
            v, key,
            value) if (json_array_append_new(list,
                                             json_pack(
                                                 "[sO]", key,
                                                 value))) return zt_template_keep(r,
                                                                                  NULL);
    return as_lazy(r, list);
}

/* ---- of the items of a list ---- */

/* `path` of an item: names, and places in lists, with points in between. */
static json_t *field_of(struct zt_template_run *r, const struct zt_expr *x, json_t *item,
                        const char *path)
{
    while (item) {
        size_t n = strcspn(path, ".");
        char *name = strndup(path, n);

        if (!name)
            return zt_template_keep(r, NULL);
        if (item == r->undefined)
            item = zt_template_fail(r, x->line,
                                    "'%s' of what is not defined is asked for", name);
        else if (n && strspn(name, "0123456789") == n)
            item = zt_template_fail(r, x->line,
                                    "%s(): the place '%s' of a list is not in the subset "
                                    "that is read",
                                    x->name, name);
        else
            item = zt_template_field(r, item, name);
        free(name);
        if (!path[n])
            break;
        path += n + 1;
    }
    return item;
}

static json_t *map(struct zt_template_run *r, const struct zt_expr *x, json_t *v)
{
    const json_t *name = zt_template_argument(r, x, -1, "attribute");
    json_t *some = zt_template_keep(r, json_array());

    if (r->rc)
        return NULL;
    if (!zt_template_is_text(r, name))
        return zt_template_fail(r, x->line,
                                "map() without attribute= is not in the subset "
                                "that is read");
    v = zt_template_items(r, x->line, v);
    for (size_t i = 0; v && some && i < json_array_size(v); i++)
        if (json_array_append(
                some, field_of(r, x, json_array_get(v, i), json_string_value(name))))
            return zt_template_keep(r, NULL);
    return v ? as_lazy(r, some) : NULL;
}

/* Those items whose field is true, or passes a test. */
static json_t *select_items(struct zt_template_run *r, const struct zt_expr *x, json_t *v,
                            bool wanted)
{
    const json_t *name = zt_template_argument(r, x, 0, NULL);
    const json_t *test = zt_template_argument(r, x, 1, NULL);
    json_t *with = zt_template_argument(r, x, 2, NULL);
    json_t *some = zt_template_keep(r, json_array());

    if (r->rc)
        return NULL;
    if (!zt_template_is_text(r, name) || (test && !zt_template_is_text(r, test)))
        return zt_template_fail(r, x->line, "%s takes the name of a field, and of a test",
                                x->name);
    v = zt_template_items(r, x->line, v);
    for (size_t i = 0; v && some && i < json_array_size(v); i++) {
        json_t *field = field_of(r, x, json_array_get(v, i), json_string_value(name));
        int holds = !field ? -1
                    : test ? zt_template_test(r, x, json_string_value(test), field, with)
                           : zt_template_is_true(r, field);

        if (holds < 0)
            return NULL;
        if ((holds == 1) == wanted && json_array_append(some, json_array_get(v, i)))
            return zt_template_keep(r, NULL);
    }
    return v ? as_lazy(r, some) : NULL;
}

static json_t *select_attr(struct zt_template_run *r, const struct zt_expr *x, json_t *v)
{
    return select_items(r, x, v, true);
}

static json_t *reject_attr(struct zt_template_run *r, const struct zt_expr *x, json_t *v)
{
    return select_items(r, x, v, false);
}

/* ---- all of them ---- */

json_t *zt_template_eval_filter(struct zt_template_run *r, const struct zt_expr *x)
{
    static const struct {
        const char *name, *takes;
        json_t *(*apply)(struct zt_template_run *r, const struct zt_expr *x, json_t *v);
    } filters[] = {
        {"trim", "chars", trim},
        {"tojson", "indent", to_json},
        {"length", "", length},
        {"count", "", length},
        {"default", "default_value boolean", or_default},
        {"d", "default_value boolean", or_default},
        {"upper", "", upper},
        {"lower", "", lower},
        {"capitalize", "", capitalize},
        {"title", "", title},
        {"first", "", first},
        {"last", "", last},
        {"list", "", list},
        {"reverse", "", reverse},
        {"join", "d attribute", join},
        {"replace", "old new count", replace},
        {"string", "", as_text},
        {"int", "default", as_integer},
        {"safe", "", as_text},
        {"items", "", pairs},
        {"map", "attribute", map},
        {"selectattr", "1 2 3", select_attr},
        {"rejectattr", "1 2 3", reject_attr},
    };
    json_t *v = zt_template_eval(r, x->a);

    for (size_t i = 0; v && i < sizeof(filters) / sizeof(*filters); i++)
        if (strcmp(x->name, filters[i].name) == 0)
            return zt_template_takes(r, x, x->name, filters[i].takes)
                       ? filters[i].apply(r, x, v)
                       : NULL;
    return v ? zt_template_fail(r, x->line,
                                "the filter '%s' is not in the subset that is read",
                                x->name)
             : NULL;
}
