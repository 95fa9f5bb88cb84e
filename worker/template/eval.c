/* eval.c -- expressions: names, fields, items, calls. */
#include <string.h>
#include <time.h>

#include "worker/template/private.h"

#define MOST_NUMBERS 100000 /* of a range */

/* ---- names ---- */

static bool is_function(const char *name)
{
    static const char *const names[] = {"raise_exception", "namespace", "range", "dict",
                                        "strftime_now"};

    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return false;
}

static json_t *find_name(struct zt_template_run *r, const char *name)
{
    json_t *v = NULL;

    for (const struct zt_template_scope *s = r->scope; s && !v; s = s->up)
        v = json_object_get(s->names, name);
    if (!v)
        v = json_object_get(r->values, name);
    if (!v && is_function(name))
        v = r->function;
    return v ? v : r->undefined;
}

static bool is_namespace(const struct zt_template_run *r, const json_t *v)
{
    size_t i = 0;

    while (i < json_array_size(r->namespaces) && json_array_get(r->namespaces, i) != v)
        i++;
    return i < json_array_size(r->namespaces);
}

/* A method that is not called, as Python finds it before an item of that name; those that would
 * change what they are of are not there for a template. NULL: there is none. */
static json_t *find_method(struct zt_template_run *r, const json_t *of, const char *name)
{
    static const struct {
        json_type of;
        bool is_there;
        const char *name;
    } methods[] = {
        {JSON_OBJECT, true, "items"},     {JSON_OBJECT, true, "keys"},
        {JSON_OBJECT, true, "values"},    {JSON_OBJECT, true, "get"},
        {JSON_OBJECT, true, "copy"},      {JSON_OBJECT, true, "fromkeys"},
        {JSON_OBJECT, false, "clear"},    {JSON_OBJECT, false, "pop"},
        {JSON_OBJECT, false, "popitem"},  {JSON_OBJECT, false, "setdefault"},
        {JSON_OBJECT, false, "update"},   {JSON_ARRAY, true, "copy"},
        {JSON_ARRAY, true, "count"},      {JSON_ARRAY, true, "index"},
        {JSON_STRING, true, "count"},     {JSON_STRING, true, "index"},
        {JSON_STRING, true, "title"},     {JSON_STRING, true, "format"},
        {JSON_STRING, true, "strip"},     {JSON_STRING, true, "split"},
        {JSON_STRING, true, "join"},      {JSON_STRING, true, "replace"},
        {JSON_STRING, true, "lower"},     {JSON_STRING, true, "upper"},
        {JSON_STRING, true, "find"},      {JSON_STRING, true, "center"},
        {JSON_STRING, true, "translate"}, {JSON_STRING, true, "encode"},
    };

    if (of == r->undefined || of == r->function || is_namespace(r, of))
        return NULL;
    for (size_t i = 0; i < sizeof(methods) / sizeof(*methods); i++)
        if (json_typeof(of) == methods[i].of && strcmp(name, methods[i].name) == 0)
            return methods[i].is_there ? r->function : r->undefined;
    return NULL;
}

json_t *zt_template_field(struct zt_template_run *r, const json_t *of, const char *name)
{
    json_t *v = json_is_object(of) ? json_object_get(of, name) : NULL;

    if (!v)
        v = find_method(r, of, name);
    return v ? v : r->undefined;
}

/* ---- items ---- */

static json_t *char_at(struct zt_template_run *r, const json_t *of, json_int_t at)
{
    json_t *all = zt_template_items(r, 0, (json_t *)of), *c;

    if (!all)
        return NULL;
    if (at < 0)
        at += (json_int_t)json_array_size(all);
    c = at < 0 ? NULL : json_array_get(all, (size_t)at);
    return c ? c : r->undefined;
}

json_t *zt_template_eval_item(struct zt_template_run *r, const struct zt_expr *x)
{
    json_t *of = zt_template_eval(r, x->a), *at = of ? zt_template_eval(r, x->b) : NULL,
           *v;
    json_int_t i;

    if (!at)
        return NULL;
    if (of == r->undefined)
        return zt_template_fail(r, x->line,
                                "an item of what is not defined is asked for");
    if (json_is_string(at) && at != r->undefined)
        return zt_template_field(r, of, json_string_value(at));
    if (!json_is_integer(at) || zt_template_is_lazy(r, of))
        return r->undefined;
    i = json_integer_value(at);
    if (json_is_string(of))
        return char_at(r, of, i);
    if (i < 0)
        i += (json_int_t)json_array_size(of);
    v = json_is_array(of) && i >= 0 ? json_array_get(of, (size_t)i) : NULL;
    return v ? v : r->undefined;
}

/* A bound of a slice; false: it failed. */
static bool eval_bound(struct zt_template_run *r, const struct zt_expr_arg *arg,
                       json_int_t *out, bool *given)
{
    json_t *v = arg->expr ? zt_template_eval(r, arg->expr) : NULL;

    *given = arg->expr && v && !json_is_null(v);
    if (arg->expr && !v)
        return false;
    if (*given && !json_is_integer(v)) {
        zt_template_fail(r, arg->expr->line, "a bound of a slice is no integer");
        return false;
    }
    if (*given)
        *out = json_integer_value(v);
    return true;
}

static json_int_t clamp(json_int_t at, json_int_t n, json_int_t least, json_int_t most)
{
    at += at < 0 ? n : 0;
    return at < least ? least : at > most ? most : at;
}

static json_t *pick(struct zt_template_run *r, const json_t *all, json_int_t from,
                    json_int_t to, json_int_t step)
{
    json_t *some = zt_template_keep(r, json_array());

    for (json_int_t i = from; some && (step > 0 ? i < to : i > to); i += step)
        if (json_array_append(some, json_array_get(all, (size_t)i)))
            return zt_template_keep(r, NULL);
    return some;
}

static json_t *join_chars(struct zt_template_run *r, const json_t *chars)
{
    struct zt_buf text;
    zt_err rc = ZT_OK;
    json_t *v;

    zt_buf_init(&text, ZT_TEMPLATE_BYTES);
    for (size_t i = 0; !rc && i < json_array_size(chars); i++) {
        const json_t *c = json_array_get(chars, i);

        rc = zt_buf_put(&text, json_string_value(c), json_string_length(c));
    }
    v = rc ? zt_template_keep(r, NULL)
           : zt_template_string(
                 r, zt_buf_used(&text) ? (const char *)zt_buf_head(&text) : "",
                 zt_buf_used(&text));
    zt_buf_release(&text);
    return v;
}

static json_t *eval_slice(struct zt_template_run *r, const struct zt_expr *x)
{
    json_t *of = zt_template_eval(r, x->a), *all;
    json_int_t from = 0, to = 0, step = 1, n;
    bool has_from, has_to, has_step;

    if (!of || !eval_bound(r, x->args, &from, &has_from) ||
        !eval_bound(r, x->args->next, &to, &has_to) ||
        !eval_bound(r, x->args->next->next, &step, &has_step))
        return NULL;
    if (of == r->undefined || zt_template_is_lazy(r, of) ||
        (!json_is_array(of) && !json_is_string(of)))
        return zt_template_fail(r, x->line, "a slice is of a list or of text");
    if (step == 0 || step > INT32_MAX || step < -INT32_MAX)
        return zt_template_fail(r, x->line, "a slice by a step of %" JSON_INTEGER_FORMAT,
                                step);
    all = zt_template_items(r, x->line, of);
    if (!all)
        return NULL;
    n = (json_int_t)json_array_size(all);
    if (step > 0) {
        from = has_from ? clamp(from, n, 0, n) : 0;
        to = has_to ? clamp(to, n, 0, n) : n;
    } else {
        from = has_from ? clamp(from, n, -1, n - 1) : n - 1;
        to = has_to ? clamp(to, n, -1, n - 1) : -1;
    }
    all = pick(r, all, from, to, step);
    return all && json_is_string(of) ? join_chars(r, all) : all;
}

/* ---- lists and dicts ---- */

static json_t *eval_list(struct zt_template_run *r, const struct zt_expr *x)
{
    json_t *list = zt_template_keep(r, json_array());

    for (const struct zt_expr_arg *a = x->args; list && a; a = a->next) {
        json_t *v = zt_template_eval(r, a->expr);

        if (!v)
            return NULL;
        if (json_array_append(list, v))
            return zt_template_keep(r, NULL);
    }
    return list;
}

static json_t *eval_dict(struct zt_template_run *r, const struct zt_expr *x)
{
    json_t *dict = zt_template_keep(r, json_object());

    for (const struct zt_expr_arg *a = x->args; dict && a; a = a->next) {
        const json_t *key = zt_template_eval(r, a->key);
        json_t *v = key ? zt_template_eval(r, a->expr) : NULL;

        if (!v)
            return NULL;
        if (!json_is_string(key) || key == r->undefined)
            return zt_template_fail(r, x->line, "a key of a dict is no text");
        if (json_object_set_nocheck(dict, json_string_value(key), v))
            return zt_template_keep(r, NULL);
    }
    return dict;
}

/* ---- functions ---- */

static json_t *call_raise(struct zt_template_run *r, const struct zt_expr *x)
{
    json_t *why = x->args ? zt_template_eval(r, x->args->expr) : NULL;

    why = why ? zt_template_to_string(r, x->line, why) : NULL;
    return zt_template_fail(r, x->line, "the template refuses this conversation: %s",
                            why ? json_string_value(why) : "");
}

/* The keywords of a call, over the items of dicts. */
static json_t *call_dict(struct zt_template_run *r, const struct zt_expr *x)
{
    json_t *dict = zt_template_keep(r, json_object());

    for (const struct zt_expr_arg *a = x->args; dict && a; a = a->next) {
        json_t *v = zt_template_eval(r, a->expr);

        if (!v)
            return NULL;
        if (!a->name && !json_is_object(v))
            return zt_template_fail(r, x->line, "%s() takes keywords and dicts",
                                    x->a->name);
        if (a->name ? json_object_set_nocheck(dict, a->name, v)
                    : json_object_update(dict, v))
            return zt_template_keep(r, NULL);
    }
    return dict;
}

static json_t *call_namespace(struct zt_template_run *r, const struct zt_expr *x)
{
    json_t *ns = call_dict(r, x);

    return ns && json_array_append(r->namespaces, ns) ? zt_template_keep(r, NULL) : ns;
}

static json_t *call_range(struct zt_template_run *r, const struct zt_expr *x)
{
    json_int_t v[3] = {0, 0, 1};
    json_t *list = zt_template_keep(r, json_array());
    int n = 0;

    for (const struct zt_expr_arg *a = x->args; a; a = a->next) {
        const json_t *one = zt_template_eval(r, a->expr);

        if (!one)
            return NULL;
        if (!json_is_integer(one) || n == 3)
            return zt_template_fail(r, x->line, "range() takes one to three integers");
        v[n++] = json_integer_value(one);
    }
    if (n == 1) {
        v[1] = v[0];
        v[0] = 0;
    }
    if (!n || !v[2] || v[2] > INT32_MAX || v[2] < -INT32_MAX ||
        (v[1] - v[0]) / v[2] > MOST_NUMBERS)
        return zt_template_fail(r, x->line,
                                "range() takes one to three integers, and makes "
                                "at most %d",
                                MOST_NUMBERS);
    for (json_int_t i = v[0]; list && (v[2] > 0 ? i < v[1] : i > v[1]); i += v[2])
        if (json_array_append_new(list, json_integer(i)))
            return zt_template_keep(r, NULL);
    return list;
}

static json_t *call_time(struct zt_template_run *r, const struct zt_expr *x)
{
    json_t *format = x->args ? zt_template_eval(r, x->args->expr) : NULL;
    time_t now = time(NULL);
    struct tm tm;
    char text[256];
    size_t n;

    if (r->rc)
        return NULL;
    if (!format || !json_is_string(format) || !localtime_r(&now, &tm))
        return zt_template_fail(r, x->line, "strftime_now() takes a format");
    n = strftime(text, sizeof(text), json_string_value(format), &tm);
    return zt_template_string(r, text, n);
}

static json_t *call_function(struct zt_template_run *r, const struct zt_expr *x)
{
    static const struct {
        const char *name;
        json_t *(*call)(struct zt_template_run *r, const struct zt_expr *x);
    } functions[] = {{"raise_exception", call_raise},
                     {"namespace", call_namespace},
                     {"range", call_range},
                     {"dict", call_dict},
                     {"strftime_now", call_time}};

    for (size_t i = 0; i < sizeof(functions) / sizeof(*functions); i++)
        if (strcmp(x->a->name, functions[i].name) == 0 &&
            find_name(r, x->a->name) == r->function)
            return functions[i].call(r, x);
    return zt_template_fail(r, x->line, "%s() is not in the subset that is read",
                            x->a->name);
}

/* ---- all of them ---- */

static json_t *eval_call(struct zt_template_run *r, const struct zt_expr *x)
{
    if (x->a->kind == ZT_EXPR_NAME)
        return call_function(r, x);
    if (x->a->kind == ZT_EXPR_FIELD)
        return zt_template_eval_call(r, x);
    return zt_template_fail(r, x->line, "what is called is no function");
}

static json_t *eval_field(struct zt_template_run *r, const struct zt_expr *x)
{
    const json_t *of = zt_template_eval(r, x->a);
    json_t *method;

    if (!of)
        return NULL;
    if (of == r->undefined)
        return zt_template_fail(r, x->line, "'%s' of what is not defined is asked for",
                                x->name);
    method = find_method(r, of, x->name);
    return method ? method : zt_template_field(r, of, x->name);
}

static json_t *eval_minus(struct zt_template_run *r, const struct zt_expr *x)
{
    const json_t *v = zt_template_eval(r, x->a);

    if (!v)
        return NULL;
    if (json_is_integer(v))
        return zt_template_keep(r, json_integer(-json_integer_value(v)));
    if (json_is_real(v))
        return zt_template_keep(r, json_real(-json_real_value(v)));
    return zt_template_fail(r, x->line, "- of what is no number");
}

static json_t *of_truth(bool is_true)
{
    return is_true ? json_true() : json_false();
}

static json_t *eval_logic(struct zt_template_run *r, const struct zt_expr *x)
{
    json_t *a = zt_template_eval(r, x->kind == ZT_EXPR_CHOICE ? x->b : x->a);
    bool is_true = a && zt_template_is_true(r, a);

    if (!a)
        return NULL;
    switch (x->kind) {
    case ZT_EXPR_NOT:
        return of_truth(!is_true);
    case ZT_EXPR_AND:
        return is_true ? zt_template_eval(r, x->b) : a;
    case ZT_EXPR_OR:
        return is_true ? a : zt_template_eval(r, x->b);
    default:
        if (is_true)
            return zt_template_eval(r, x->a);
        return x->c ? zt_template_eval(r, x->c) : r->undefined;
    }
}

static json_t *eval_test(struct zt_template_run *r, const struct zt_expr *x)
{
    int holds = zt_template_eval_test(r, x);

    return holds < 0 ? NULL : of_truth(holds);
}

static json_t *eval_comparison(struct zt_template_run *r, const struct zt_expr *x)
{
    json_t *a = zt_template_eval(r, x->a), *b = a ? zt_template_eval(r, x->b) : NULL;
    int holds = b ? zt_template_compare(r, x->line, x->op, a, b) : -1;

    return holds < 0 ? NULL : of_truth(holds);
}

json_t *zt_template_eval(struct zt_template_run *r, const struct zt_expr *x)
{
    if (r->rc || !zt_template_step(r, x->line))
        return NULL;
    switch (x->kind) {
    case ZT_EXPR_CONSTANT:
        return x->value;
    case ZT_EXPR_NAME:
        return find_name(r, x->name);
    case ZT_EXPR_LIST:
        return eval_list(r, x);
    case ZT_EXPR_DICT:
        return eval_dict(r, x);
    case ZT_EXPR_FIELD:
        return eval_field(r, x);
    case ZT_EXPR_ITEM:
        return zt_template_eval_item(r, x);
    case ZT_EXPR_SLICE:
        return eval_slice(r, x);
    case ZT_EXPR_CALL:
        return eval_call(r, x);
    case ZT_EXPR_FILTER:
        return zt_template_eval_filter(r, x);
    case ZT_EXPR_TEST:
        return eval_test(r, x);
    case ZT_EXPR_MINUS:
        return eval_minus(r, x);
    case ZT_EXPR_BINARY:
        return zt_template_eval_binary(r, x);
    case ZT_EXPR_COMPARE:
        return eval_comparison(r, x);
    case ZT_EXPR_NOT:
    case ZT_EXPR_AND:
    case ZT_EXPR_OR:
    case ZT_EXPR_CHOICE:
        return eval_logic(r, x);
    }
    return NULL;
}
