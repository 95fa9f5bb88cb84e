/* operators.c -- arithmetic, joining and comparing, as Python has them. */
#include <math.h>
#include <string.h>

#include "worker/template/private.h"

static bool is_text(const struct zt_template_run *r, const json_t *v)
{
    return json_is_string(v) && v != r->undefined && v != r->function;
}

static json_t *join_texts(struct zt_template_run *r, const json_t *a, const json_t *b)
{
    size_t n = json_string_length(a), m = json_string_length(b);
    struct zt_buf both;
    json_t *v = NULL;
    zt_err rc;

    zt_buf_init(&both, ZT_TEMPLATE_BYTES);
    rc = zt_buf_put(&both, json_string_value(a), n);
    rc = rc ? rc : zt_buf_put(&both, json_string_value(b), m);
    v = rc        ? zt_template_keep(r, NULL)
        : (n + m) ? zt_template_string(r, (const char *)zt_buf_head(&both), n + m)
                  : zt_template_string(r, "", 0);
    zt_buf_release(&both);
    return v;
}

static json_t *join_lists(struct zt_template_run *r, json_t *a, json_t *b)
{
    json_t *both = zt_template_keep(r, json_array());

    if (both && (json_array_extend(both, a) || json_array_extend(both, b)))
        return zt_template_keep(r, NULL);
    return both;
}

static json_t *repeat(struct zt_template_run *r, const struct zt_expr *x,
                      const json_t *text, json_int_t times)
{
    size_t n = json_string_length(text);
    struct zt_buf all;
    zt_err rc = ZT_OK;
    json_t *v;

    if (times > 0 && n && (size_t)times > ZT_TEMPLATE_BYTES / n)
        return zt_template_fail(r, x->line, "the text is longer than 256 MiB");
    zt_buf_init(&all, ZT_TEMPLATE_BYTES);
    for (json_int_t i = 0; !rc && i < times && n; i++)
        rc = zt_buf_put(&all, json_string_value(text), n);
    v = rc ? zt_template_keep(r, NULL)
        : zt_buf_used(&all)
            ? zt_template_string(r, (const char *)zt_buf_head(&all), zt_buf_used(&all))
            : zt_template_string(r, "", 0);
    zt_buf_release(&all);
    return v;
}

/* ---- numbers ---- */

static json_t *of_integers(struct zt_template_run *r, const struct zt_expr *x,
                           json_int_t a, json_int_t b)
{
    const char *op = x->op;
    json_int_t v = 0;
    bool over = false;

    if (strcmp(op, "+") == 0)
        over = __builtin_add_overflow(a, b, &v);
    else if (strcmp(op, "-") == 0)
        over = __builtin_sub_overflow(a, b, &v);
    else if (strcmp(op, "*") == 0)
        over = __builtin_mul_overflow(a, b, &v);
    else if (b == 0 || b == -1) { /* of // and %; -1 divides the least integer badly */
        if (b == 0)
            return zt_template_fail(r, x->line, "a division by 0");
        over = strcmp(op, "//") == 0 && __builtin_sub_overflow(0, a, &v);
    } else if (strcmp(op, "//") == 0)
        v = a / b - ((a % b != 0) && ((a < 0) != (b < 0)));
    else
        v = (a % b + b) % b;
    if (over)
        return zt_template_fail(r, x->line, "an integer is too large");
    return zt_template_keep(r, json_integer(v));
}

/* With the sign of b, as Python has it. */
static double remainder_of(double a, double b)
{
    double rest = fmod(a, b);

    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

static json_t *of_reals(struct zt_template_run *r, const struct zt_expr *x, double a,
                        double b)
{
    const char *op = x->op;
    double v;

    if (strchr("/%", op[0]) && b == 0)
        return zt_template_fail(r, x->line, "a division by 0");
    v = strcmp(op, "+") == 0    ? a + b
        : strcmp(op, "-") == 0  ? a - b
        : strcmp(op, "*") == 0  ? a * b
        : strcmp(op, "/") == 0  ? a / b
        : strcmp(op, "//") == 0 ? round((a - remainder_of(a, b)) / b)
        : strcmp(op, "**") == 0 ? pow(a, b)
                                : remainder_of(a, b);
    if (!isfinite(v))
        return zt_template_fail(r, x->line, "'%s' makes what is no number", op);
    return zt_template_keep(r, json_real(v));
}

static json_t *power(struct zt_template_run *r, const struct zt_expr *x, json_int_t a,
                     json_int_t b)
{
    json_int_t v = 1;

    if (b < 0)
        return of_reals(r, x, (double)a, (double)b);
    for (json_int_t i = 0; i < b && (a > 1 || a < -1 || i < 2); i++)
        if (__builtin_mul_overflow(v, a, &v))
            return zt_template_fail(r, x->line, "an integer is too large");
    if (a == -1 && b > 2)
        v = b % 2 ? -1 : 1;
    return zt_template_keep(r, json_integer(v));
}

static json_t *of_numbers(struct zt_template_run *r, const struct zt_expr *x,
                          const json_t *a, const json_t *b)
{
    if (!json_is_integer(a) || !json_is_integer(b) || strcmp(x->op, "/") == 0)
        return of_reals(r, x, json_number_value(a), json_number_value(b));
    if (strcmp(x->op, "**") == 0)
        return power(r, x, json_integer_value(a), json_integer_value(b));
    return of_integers(r, x, json_integer_value(a), json_integer_value(b));
}

static const char *kind_of(const struct zt_template_run *r, const json_t *v)
{
    return v == r->undefined    ? "what is not defined"
           : v == r->function   ? "a function"
           : json_is_string(v)  ? "text"
           : json_is_number(v)  ? "a number"
           : json_is_array(v)   ? "a list"
           : json_is_object(v)  ? "a dict"
           : json_is_boolean(v) ? "a boolean"
                                : "none";
}

json_t *zt_template_eval_binary(struct zt_template_run *r, const struct zt_expr *x)
{
    json_t *a = zt_template_eval(r, x->a), *b = a ? zt_template_eval(r, x->b) : NULL;

    if (!b)
        return NULL;
    if (strcmp(x->op, "~") == 0) {
        a = zt_template_to_string(r, x->line, a);
        b = a ? zt_template_to_string(r, x->line, b) : NULL;
        return b ? join_texts(r, a, b) : NULL;
    }
    if (json_is_number(a) && json_is_number(b))
        return of_numbers(r, x, a, b);
    if (strcmp(x->op, "+") == 0 && is_text(r, a) && is_text(r, b))
        return join_texts(r, a, b);
    if (strcmp(x->op, "+") == 0 && json_is_array(a) && json_is_array(b))
        return join_lists(r, a, b);
    if (strcmp(x->op, "*") == 0 && is_text(r, a) && json_is_integer(b))
        return repeat(r, x, a, json_integer_value(b));
    return zt_template_fail(r, x->line, "'%s' of %s and %s", x->op, kind_of(r, a),
                            kind_of(r, b));
}

/* ---- comparing ---- */

static int is_in(struct zt_template_run *r, int line, json_t *a, json_t *b)
{
    if (json_is_array(b)) {
        for (size_t i = 0; i < json_array_size(b); i++)
            if (zt_template_equal(a, json_array_get(b, i)))
                return 1;
        return 0;
    }
    if (json_is_object(b))
        return is_text(r, a) && json_object_get(b, json_string_value(a)) != NULL;
    if (is_text(r, a) && is_text(r, b))
        return memmem(json_string_value(b), json_string_length(b), json_string_value(a),
                      json_string_length(a)) != NULL;
    if (b == r->undefined)
        return 0;
    zt_template_fail(r, line, "'in' of %s and %s", kind_of(r, a), kind_of(r, b));
    return -1;
}

/* Below, the same, above: < 0, 0, > 0. Code points of UTF-8 are in the order of its bytes. */
static int order(const json_t *a, const json_t *b)
{
    size_t n = json_string_length(a), m = json_string_length(b);
    int d;

    if (json_is_integer(a) && json_is_integer(b))
        return (json_integer_value(a) > json_integer_value(b)) -
               (json_integer_value(a) < json_integer_value(b));
    if (json_is_number(a))
        return (json_number_value(a) > json_number_value(b)) -
               (json_number_value(a) < json_number_value(b));
    d = memcmp(json_string_value(a), json_string_value(b), n < m ? n : m);
    return d ? d : (n > m) - (n < m);
}

int zt_template_compare(struct zt_template_run *r, int line, const char *op, json_t *a,
                        json_t *b)
{
    int d;

    if (strcmp(op, "==") == 0)
        return zt_template_equal(a, b);
    if (strcmp(op, "!=") == 0)
        return !zt_template_equal(a, b);
    if (strcmp(op, "in") == 0)
        return is_in(r, line, a, b);
    if (strcmp(op, "not in") == 0) {
        d = is_in(r, line, a, b);
        return d < 0 ? d : !d;
    }
    if (!(json_is_number(a) && json_is_number(b)) && !(is_text(r, a) && is_text(r, b))) {
        zt_template_fail(r, line, "'%s' of %s and %s", op, kind_of(r, a), kind_of(r, b));
        return -1;
    }
    d = order(a, b);
    return strcmp(op, "<") == 0    ? d < 0
           : strcmp(op, ">") == 0  ? d > 0
           : strcmp(op, "<=") == 0 ? d <= 0
                                   : d >= 0;
}

/* ---- tests ---- */

/* Lists and dicts are themselves alone; 1 is neither 1.0 nor true. */
static bool is_same(const json_t *a, const json_t *b)
{
    return a == b || (json_typeof(a) == json_typeof(b) && !json_is_array(a) &&
                      !json_is_object(a) && zt_template_equal(a, b));
}

int zt_template_test(struct zt_template_run *r, const struct zt_expr *x, const char *name,
                     json_t *v, json_t *with)
{
    static const char *const compares[][2] = {
        {"eq", "=="}, {"equalto", "=="}, {"ne", "!="}, {"lt", "<"},
        {"gt", ">"},  {"le", "<="},      {"ge", ">="}, {"in", "in"}};
    const struct {
        const char *name;
        bool holds;
    } kinds[] = {
        {"defined", v != r->undefined},
        {"undefined", v == r->undefined},
        {"none", json_is_null(v)},
        {"string", is_text(r, v)},
        {"mapping", json_is_object(v)},
        {"sequence", (json_is_array(v) && !zt_template_is_lazy(r, v)) ||
                         json_is_object(v) || is_text(r, v) || v == r->undefined},
        {"iterable",
         json_is_array(v) || json_is_object(v) || is_text(r, v) || v == r->undefined},
        {"number", json_is_number(v) || json_is_boolean(v)},
        {"integer", json_is_integer(v)},
        {"float", json_is_real(v)},
        {"boolean", json_is_boolean(v)},
        {"true", json_is_true(v)},
        {"false", json_is_false(v)},
        {"callable", v == r->function || v == r->undefined},
    };
    bool is_odd = strcmp(name, "odd") == 0;

    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
        if (strcmp(name, kinds[i].name) == 0)
            return kinds[i].holds;
    for (size_t i = 0; i < sizeof(compares) / sizeof(*compares); i++)
        if (strcmp(name, compares[i][0]) == 0 && with)
            return zt_template_compare(r, x->line, compares[i][1], v, with);
    if (strcmp(name, "sameas") == 0 && with)
        return is_same(v, with);
    if (is_odd || strcmp(name, "even") == 0) {
        if (json_is_integer(v))
            return (json_integer_value(v) % 2 != 0) == is_odd;
        if (json_is_boolean(v))
            return json_is_true(v) == is_odd;
        zt_template_fail(r, x->line, "'is %s' of %s", name, kind_of(r, v));
        return -1;
    }
    if (strcmp(name, "divisibleby") == 0 && json_is_integer(v) && json_is_integer(with) &&
        json_integer_value(with) > 0)
        return json_integer_value(v) % json_integer_value(with) == 0;
    zt_template_fail(r, x->line, "the test 'is %s' is not in the subset that is read",
                     name);
    return -1;
}

int zt_template_eval_test(struct zt_template_run *r, const struct zt_expr *x)
{
    json_t *v = zt_template_eval(r, x->a), *with = NULL;

    if (v && x->args)
        with = zt_template_eval(r, x->args->expr);
    return r->rc ? -1 : zt_template_test(r, x, x->name, v, with);
}
