/* methods.c -- methods of text and dicts. */
#include <string.h>

#include "worker/template/text.h"

/* A method's object and arguments, evaluated; arg[i] NULL: not given. */
struct method_call {
    const struct zt_expr *x;
    json_t *of, *arg[3];
};

static json_t *truth(bool holds)
{
    return holds ? json_true() : json_false();
}

/* ---- of text ---- */

static json_t *strip(struct zt_template_run *r, const struct method_call *c,
                     enum zt_strip_sides sides)
{
    if (c->arg[0] && !json_is_null(c->arg[0]) && !zt_template_is_text(r, c->arg[0]))
        return zt_template_fail(r, c->x->line, "%s() takes text", c->x->a->name);
    return zt_template_strip(r, c->of, json_is_string(c->arg[0]) ? c->arg[0] : NULL,
                             sides);
}

static json_t *strip_both(struct zt_template_run *r, const struct method_call *c)
{
    return strip(r, c, ZT_STRIP_BOTH);
}

static json_t *strip_left(struct zt_template_run *r, const struct method_call *c)
{
    return strip(r, c, ZT_STRIP_LEFT);
}

static json_t *strip_right(struct zt_template_run *r, const struct method_call *c)
{
    return strip(r, c, ZT_STRIP_RIGHT);
}

static bool has_end(const json_t *text, const json_t *part, bool at_start)
{
    size_t n = json_string_length(text), m = json_string_length(part);

    return n >= m && memcmp(json_string_value(text) + (at_start ? 0 : n - m),
                            json_string_value(part), m) == 0;
}

static json_t *check_end(struct zt_template_run *r, const struct method_call *c,
                         bool at_start)
{
    const json_t *any = c->arg[0];

    if (zt_template_is_text(r, any))
        return truth(has_end(c->of, any, at_start));
    if (!any || !json_is_array(any))
        return zt_template_fail(r, c->x->line, "%s() takes text", c->x->a->name);
    for (size_t i = 0; i < json_array_size(any); i++)
        if (zt_template_is_text(r, json_array_get(any, i)) &&
            has_end(c->of, json_array_get(any, i), at_start))
            return json_true();
    return json_false();
}

static json_t *starts_with(struct zt_template_run *r, const struct method_call *c)
{
    return check_end(r, c, true);
}

static json_t *ends_with(struct zt_template_run *r, const struct method_call *c)
{
    return check_end(r, c, false);
}

static json_t *add_part(struct zt_template_run *r, json_t *list, const char *from,
                        const char *to)
{
    json_t *part = zt_template_string(r, from, (size_t)(to - from));

    if (part && json_array_append(list, part))
        return zt_template_keep(r, NULL);
    return part;
}

static size_t char_bytes(const char *s, const char *end)
{
    return zt_template_char_bytes(s, (size_t)(end - s));
}

/* split() without a separator: at white space, and no empty parts. */
static json_t *split_words(struct zt_template_run *r, const struct method_call *c,
                           json_int_t most)
{
    json_t *list = zt_template_keep(r, json_array());
    const char *s = json_string_value(c->of), *end = s + json_string_length(c->of);
    const char *from;

    while (list) {
        while (s < end && zt_template_is_white(s, char_bytes(s, end)))
            s += char_bytes(s, end);
        if (s == end)
            break;
        from = s;
        while (s < end && (most == 0 || !zt_template_is_white(s, char_bytes(s, end))))
            s += char_bytes(s, end);
        most--;
        if (!add_part(r, list, from, s))
            return NULL;
    }
    return list;
}

static json_t *split(struct zt_template_run *r, const struct method_call *c)
{
    const char *s = json_string_value(c->of), *end = s + json_string_length(c->of), *at;
    json_int_t most = json_is_integer(c->arg[1]) ? json_integer_value(c->arg[1]) : -1;
    json_t *list;
    size_t n;

    if (!c->arg[0] || json_is_null(c->arg[0]))
        return split_words(r, c, most);
    n = json_string_length(c->arg[0]);
    if (!zt_template_is_text(r, c->arg[0]) || !n)
        return zt_template_fail(r, c->x->line, "split() takes text");
    list = zt_template_keep(r, json_array());
    while (list && most-- != 0 &&
           (at = memmem(s, (size_t)(end - s), json_string_value(c->arg[0]), n))) {
        if (!add_part(r, list, s, at))
            return NULL;
        s = at + n;
    }
    return list && add_part(r, list, s, end) ? list : NULL;
}

static json_t *replace(struct zt_template_run *r, const struct method_call *c)
{
    if (!zt_template_is_text(r, c->arg[0]) || !zt_template_is_text(r, c->arg[1]))
        return zt_template_fail(r, c->x->line, "replace() takes two texts");
    return zt_template_replace(r, c->x->line, c->of, c->arg[0], c->arg[1],
                               json_is_integer(c->arg[2]) ? json_integer_value(c->arg[2])
                                                          : -1);
}

static json_t *upper(struct zt_template_run *r, const struct method_call *c)
{
    return zt_template_letters(r, c->x->line, c->of, ZT_LETTERS_UPPER);
}

static json_t *lower(struct zt_template_run *r, const struct method_call *c)
{
    return zt_template_letters(r, c->x->line, c->of, ZT_LETTERS_LOWER);
}

static json_t *capitalize(struct zt_template_run *r, const struct method_call *c)
{
    return zt_template_letters(r, c->x->line, c->of, ZT_LETTERS_CAPITALIZED);
}

static json_t *title(struct zt_template_run *r, const struct method_call *c)
{
    return zt_template_letters(r, c->x->line, c->of, ZT_LETTERS_TITLE);
}

/* ---- of dicts ---- */

static json_t *list_of(struct zt_template_run *r, const struct method_call *c, bool keys,
                       bool values)
{
    json_t *list = zt_template_keep(r, json_array()), *value, *one;
    const char *key;

    if (!list)
        return NULL;
    json_object_foreach(c->of, key, value)
    {
        one = keys && values ? json_pack("[sO]", key, value)
              : keys         ? json_string(key)
                             : json_incref(value);
        if (json_array_append_new(list, one))
            return zt_template_keep(r, NULL);
    }
    return list;
}

static json_t *items(struct zt_template_run *r, const struct method_call *c)
{
    return list_of(r, c, true, true);
}

static json_t *keys(struct zt_template_run *r, const struct method_call *c)
{
    return list_of(r, c, true, false);
}

static json_t *values(struct zt_template_run *r, const struct method_call *c)
{
    return list_of(r, c, false, true);
}

static json_t *get(struct zt_template_run *r, const struct method_call *c)
{
    json_t *v = NULL;

    if (!zt_template_is_text(r, c->arg[0]))
        return zt_template_fail(r, c->x->line, "get() takes a key");
    v = json_object_get(c->of, json_string_value(c->arg[0]));
    return v ? v : c->arg[1] ? c->arg[1] : json_null();
}

/* ---- all of them ---- */

static const struct {
    const char *name, *takes;
    bool of_dict;
    json_t *(*call)(struct zt_template_run *r, const struct method_call *c);
} methods[] = {
    {"strip", "1", false, strip_both},
    {"lstrip", "1", false, strip_left},
    {"rstrip", "1", false, strip_right},
    {"startswith", "1", false, starts_with},
    {"endswith", "1", false, ends_with},
    {"split", "sep maxsplit", false, split},
    {"replace", "1 2 count", false, replace},
    {"upper", "", false, upper},
    {"lower", "", false, lower},
    {"capitalize", "", false, capitalize},
    {"title", "", false, title},
    {"items", "", true, items},
    {"keys", "", true, keys},
    {"values", "", true, values},
    {"get", "1 2", true, get},
};

json_t *zt_template_eval_call(struct zt_template_run *r, const struct zt_expr *x)
{
    static const char *const keywords[] = {"sep", "maxsplit", "count"};
    struct method_call c = {.x = x, .of = zt_template_eval(r, x->a->a)};
    json_t *(*method)(struct zt_template_run *, const struct method_call *) = NULL;

    for (int i = 0; c.of && i < 3; i++)
        c.arg[i] = zt_template_argument(r, x, i, keywords[i]);
    if (r->rc)
        return NULL;
    for (size_t i = 0; !method && i < sizeof(methods) / sizeof(*methods); i++)
        if (!r->rc && strcmp(x->a->name, methods[i].name) == 0 &&
            (methods[i].of_dict ? json_is_object(c.of) : zt_template_is_text(r, c.of)))
            method = zt_template_takes(r, x, x->a->name, methods[i].takes)
                         ? methods[i].call
                         : NULL;
    if (r->rc)
        return NULL;
    if (method)
        /* cppcheck-suppress returnDanglingLifetime ; what it returns is r's */
        return method(r, &c);
    return zt_template_fail(r, x->line, "%s.%s() is not in the subset that is read",
                            c.of == r->undefined   ? "what is not defined"
                            : json_is_string(c.of) ? "text"
                            : json_is_object(c.of) ? "dict"
                            : json_is_array(c.of)  ? "list"
                                                   : "value",
                            x->a->name);
}
