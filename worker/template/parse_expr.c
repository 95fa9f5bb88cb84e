/*
 * parse_expr.c -- expressions, from the weakest operator to the strongest:
 *
 *      choice  a if b else c        sum      + -
 *      or, and, not                 join     ~
 *      compare == != < > <= >=      product  * / // %
 *              in, not in           power    **
 *                                   sign     -a
 *                                   postfix  . [ ] ( ), then filters and tests
 */
#include <string.h>

#include "worker/template/private.h"

typedef struct zt_expr *(*parse_fn)(struct zt_template_parser *p);

static struct zt_expr *parse_choice(struct zt_template_parser *p);

static struct zt_expr *make(struct zt_template_parser *p, zt_expr_kind kind,
                            const char *op, struct zt_expr *a, struct zt_expr *b)
{
    struct zt_expr *x = zt_template_alloc(p, sizeof(*x));

    if (x)
        *x = (struct zt_expr){.kind = kind, .line = p->line, .op = op, .a = a, .b = b};
    return x;
}

static bool deeper(struct zt_template_parser *p)
{
    if (++p->depth > ZT_TEMPLATE_DEPTH)
        zt_template_refuse(p, "more than %d levels", ZT_TEMPLATE_DEPTH);
    return !p->rc;
}

/* ---- lists of expressions ---- */

/* Items up to `close`, after what opens them: of a list, a dict, a call. */
static struct zt_expr_arg *parse_args(struct zt_template_parser *p, const char *close,
                                      bool with_names, bool with_keys)
{
    struct zt_expr_arg *first = NULL, **next = &first;

    while (!p->rc && !zt_template_lex_is(p, ZT_LEX_OPERATOR, close)) {
        struct zt_expr_arg *arg = zt_template_alloc(p, sizeof(*arg));

        if (!arg)
            break;
        *arg = (struct zt_expr_arg){.expr = parse_choice(p)};
        if (with_names && arg->expr && arg->expr->kind == ZT_EXPR_NAME &&
            zt_template_lex_take(p, "=")) {
            arg->name = arg->expr->name;
            arg->expr = parse_choice(p);
        } else if (with_keys) {
            arg->key = arg->expr;
            zt_template_lex_need(p, ":");
            arg->expr = parse_choice(p);
        }
        *next = arg;
        next = &arg->next;
        if (!zt_template_lex_take(p, ","))
            break;
    }
    zt_template_lex_need(p, close);
    return first;
}

/* ---- primaries ---- */

static struct zt_expr *parse_parens(struct zt_template_parser *p)
{
    struct zt_expr *x, *list;

    zt_template_lex(p);
    x = parse_choice(p);
    if (!zt_template_lex_is(p, ZT_LEX_OPERATOR, ",")) {
        zt_template_lex_need(p, ")");
        return x;
    }
    zt_template_lex(p);
    list = make(p, ZT_EXPR_LIST, NULL, NULL, NULL); /* a tuple */
    if (list && (list->args = zt_template_alloc(p, sizeof(*list->args)))) {
        list->args->expr = x;
        list->args->next = parse_args(p, ")", false, false);
    }
    return list;
}

static struct zt_expr *parse_word(struct zt_template_parser *p)
{
    static const struct {
        const char *word;
        json_t *(*make)(void);
    } words[] = {{"true", json_true},   {"True", json_true}, {"false", json_false},
                 {"False", json_false}, {"none", json_null}, {"None", json_null}};
    struct zt_expr *x = make(p, ZT_EXPR_NAME, NULL, NULL, NULL);

    for (size_t i = 0; x && i < sizeof(words) / sizeof(*words); i++)
        if (zt_template_lex_take(p, words[i].word)) {
            x->kind = ZT_EXPR_CONSTANT;
            x->value = words[i].make();
            return x;
        }
    if (x)
        x->name = zt_template_lex_name(p);
    return x;
}

static struct zt_expr *parse_primary(struct zt_template_parser *p)
{
    struct zt_expr *x = NULL;

    if (p->lex == ZT_LEX_NAME)
        return parse_word(p);
    if (p->lex == ZT_LEX_STRING || p->lex == ZT_LEX_NUMBER) {
        x = make(p, ZT_EXPR_CONSTANT, NULL, NULL, NULL);
        if (x)
            x->value = p->literal;
        zt_template_lex(p);
    } else if (zt_template_lex_is(p, ZT_LEX_OPERATOR, "(")) {
        x = parse_parens(p);
    } else if (zt_template_lex_take(p, "[")) {
        x = make(p, ZT_EXPR_LIST, NULL, NULL, NULL);
        if (x)
            x->args = parse_args(p, "]", false, false);
    } else if (zt_template_lex_take(p, "{")) {
        x = make(p, ZT_EXPR_DICT, NULL, NULL, NULL);
        if (x)
            x->args = parse_args(p, "}", false, true);
    } else {
        zt_template_refuse(p, "an expression is missing%s%s%s",
                           *p->word ? " before '" : "", p->word, *p->word ? "'" : "");
    }
    return x;
}

/* ---- postfix ---- */

static struct zt_expr_arg *parse_bound(struct zt_template_parser *p)
{
    struct zt_expr_arg *arg = zt_template_alloc(p, sizeof(*arg));

    if (arg && !zt_template_lex_is(p, ZT_LEX_OPERATOR, ":") &&
        !zt_template_lex_is(p, ZT_LEX_OPERATOR, "]"))
        arg->expr = parse_choice(p);
    return arg;
}

/* What stands between brackets: an index, or from:to:step. */
static struct zt_expr *parse_item(struct zt_template_parser *p, struct zt_expr *of)
{
    struct zt_expr_arg *from = parse_bound(p), *to = NULL, *step = NULL;
    struct zt_expr *x;

    if (!zt_template_lex_take(p, ":")) {
        x = make(p, ZT_EXPR_ITEM, NULL, of, from ? from->expr : NULL);
        if (from && !from->expr)
            zt_template_refuse(p, "an index is missing before ']'");
        zt_template_lex_need(p, "]");
        return x;
    }
    to = parse_bound(p);
    step = zt_template_lex_take(p, ":") ? parse_bound(p)
                                        : zt_template_alloc(p, sizeof(*step));
    zt_template_lex_need(p, "]");
    x = make(p, ZT_EXPR_SLICE, NULL, of, NULL);
    if (!x || !from || !to || !step)
        return NULL;
    from->next = to;
    to->next = step;
    x->args = from;
    return x;
}

static struct zt_expr *parse_postfix(struct zt_template_parser *p, struct zt_expr *x)
{
    while (x && !p->rc) {
        if (zt_template_lex_take(p, ".")) {
            x = make(p, ZT_EXPR_FIELD, NULL, x, NULL);
            if (x && p->lex == ZT_LEX_NAME) {
                x->name = p->word;
                zt_template_lex(p);
            } else {
                zt_template_refuse(p, "a name is missing after '.'");
            }
        } else if (zt_template_lex_take(p, "[")) {
            x = parse_item(p, x);
        } else if (zt_template_lex_take(p, "(")) {
            x = make(p, ZT_EXPR_CALL, NULL, x, NULL);
            if (x)
                x->args = parse_args(p, ")", true, false);
        } else {
            break;
        }
    }
    return x;
}

/* `is divisibleby 3`: one argument without parentheses. */
static bool begins_argument(const struct zt_template_parser *p)
{
    static const char *const not [] = {"else", "or", "and", "is", "in", "if", "not"};

    if (p->lex == ZT_LEX_STRING || p->lex == ZT_LEX_NUMBER)
        return true;
    for (size_t i = 0; i < sizeof(not ) / sizeof(*not ); i++)
        if (strcmp(p->word, not [i]) == 0)
            return false;
    return p->lex == ZT_LEX_NAME || zt_template_lex_is(p, ZT_LEX_OPERATOR, "[") ||
           zt_template_lex_is(p, ZT_LEX_OPERATOR, "{");
}

static struct zt_expr *parse_test(struct zt_template_parser *p, struct zt_expr *of)
{
    bool negated = zt_template_lex_take(p, "not");
    struct zt_expr *x = make(p, ZT_EXPR_TEST, NULL, of, NULL);

    if (!x || p->rc)
        return x;
    if (p->lex != ZT_LEX_NAME) {
        zt_template_refuse(p, "a test is missing after 'is'");
        return x;
    }
    x->name = p->word; /* `none`, `true` and `in` are tests, too */
    zt_template_lex(p);
    if (zt_template_lex_take(p, "(")) {
        x->args = parse_args(p, ")", false, false);
    } else if (begins_argument(p) && (x->args = zt_template_alloc(p, sizeof(*x->args)))) {
        x->args->expr = parse_postfix(p, parse_primary(p));
    }
    return negated ? make(p, ZT_EXPR_NOT, NULL, x, NULL) : x;
}

static struct zt_expr *parse_filters(struct zt_template_parser *p, struct zt_expr *x)
{
    while (x && !p->rc) {
        if (zt_template_lex_take(p, "|")) {
            x = make(p, ZT_EXPR_FILTER, NULL, x, NULL);
            if (x)
                x->name = zt_template_lex_name(p);
            if (x && zt_template_lex_take(p, "("))
                x->args = parse_args(p, ")", true, false);
        } else if (zt_template_lex_take(p, "is")) {
            x = parse_test(p, x);
        } else if (zt_template_lex_is(p, ZT_LEX_OPERATOR, "(")) {
            x = parse_postfix(p, x);
        } else {
            break;
        }
    }
    return x;
}

/* ---- operators ---- */

static struct zt_expr *parse_sign_without_filters(struct zt_template_parser *p)
{
    struct zt_expr *x = NULL;

    if (!deeper(p))
        return NULL;
    if (zt_template_lex_take(p, "-"))
        x = make(p, ZT_EXPR_MINUS, NULL, parse_sign_without_filters(p), NULL);
    else
        x = parse_postfix(p, parse_primary(p));
    p->depth--;
    return x;
}

static struct zt_expr *parse_sign(struct zt_template_parser *p)
{
    return parse_filters(p, parse_sign_without_filters(p));
}

/* a op b op c, from the left. */
static struct zt_expr *parse_chain(struct zt_template_parser *p, parse_fn part,
                                   const char *const *ops)
{
    struct zt_expr *x = part(p);

    for (int i = 0; x && !p->rc && ops[i];)
        if (zt_template_lex_is(p, ZT_LEX_OPERATOR, ops[i])) {
            zt_template_lex(p);
            x = make(p, ZT_EXPR_BINARY, ops[i], x, part(p));
            i = 0;
        } else {
            i++;
        }
    return x;
}

static struct zt_expr *parse_power(struct zt_template_parser *p)
{
    static const char *const ops[] = {"**", NULL};

    return parse_chain(p, parse_sign, ops);
}

static struct zt_expr *parse_product(struct zt_template_parser *p)
{
    static const char *const ops[] = {"*", "/", "//", "%", NULL};

    return parse_chain(p, parse_power, ops);
}

static struct zt_expr *parse_join(struct zt_template_parser *p)
{
    static const char *const ops[] = {"~", NULL};

    return parse_chain(p, parse_product, ops);
}

static struct zt_expr *parse_sum(struct zt_template_parser *p)
{
    static const char *const ops[] = {"+", "-", NULL};

    return parse_chain(p, parse_join, ops);
}

static const char *take_comparison(struct zt_template_parser *p)
{
    static const char *const ops[] = {"==", "!=", "<=", ">=", "<", ">", "in"};

    for (size_t i = 0; i < sizeof(ops) / sizeof(*ops); i++)
        if (zt_template_lex_take(p, ops[i]))
            return ops[i];
    if (!zt_template_lex_take(p, "not"))
        return NULL;
    zt_template_lex_need(p, "in");
    return "not in";
}

/* a < b < c is a < b and b < c */
static struct zt_expr *parse_compare(struct zt_template_parser *p)
{
    struct zt_expr *left = parse_sum(p), *all = NULL;
    const char *op;

    while (left && !p->rc && (op = take_comparison(p))) {
        struct zt_expr *right = parse_sum(p);
        struct zt_expr *one = make(p, ZT_EXPR_COMPARE, op, left, right);

        all = all ? make(p, ZT_EXPR_AND, NULL, all, one) : one;
        left = right;
    }
    return all ? all : left;
}

static struct zt_expr *parse_not(struct zt_template_parser *p)
{
    struct zt_expr *x;

    if (!deeper(p))
        return NULL;
    x = zt_template_lex_take(p, "not") ? make(p, ZT_EXPR_NOT, NULL, parse_not(p), NULL)
                                       : parse_compare(p);
    p->depth--;
    return x;
}

static struct zt_expr *parse_and(struct zt_template_parser *p)
{
    struct zt_expr *x = parse_not(p);

    while (x && zt_template_lex_take(p, "and"))
        x = make(p, ZT_EXPR_AND, NULL, x, parse_not(p));
    return x;
}

static struct zt_expr *parse_or(struct zt_template_parser *p)
{
    struct zt_expr *x = parse_and(p);

    while (x && zt_template_lex_take(p, "or"))
        x = make(p, ZT_EXPR_OR, NULL, x, parse_and(p));
    return x;
}

static struct zt_expr *parse_choice(struct zt_template_parser *p)
{
    struct zt_expr *x;

    if (!deeper(p))
        return NULL;
    x = parse_or(p);
    while (x && zt_template_lex_take(p, "if")) {
        struct zt_expr *condition = parse_or(p);

        x = make(p, ZT_EXPR_CHOICE, NULL, x, condition);
        if (x && zt_template_lex_take(p, "else"))
            x->c = parse_choice(p);
    }
    p->depth--;
    return p->rc ? NULL : x;
}

struct zt_expr *zt_template_parse_expr(struct zt_template_parser *p)
{
    return parse_choice(p);
}

struct zt_expr *zt_template_parse_loop(struct zt_template_parser *p,
                                       struct zt_expr **condition)
{
    struct zt_expr *x = parse_or(p); /* `if` does not choose here */

    if (x && zt_template_lex_take(p, "if"))
        *condition = parse_or(p);
    return x;
}
