/* private.h -- of the room: what a template is parsed into, and what renders it. */
#ifndef WORKER_TEMPLATE_PRIVATE_H
#define WORKER_TEMPLATE_PRIVATE_H

#include "common/problems.h"
#include "worker/template/template.h"

#define ZT_TEMPLATE_DEPTH 64
#define ZT_TEMPLATE_STEPS ((int64_t)1 << 21)
#define ZT_TEMPLATE_BYTES ((size_t)256 << 20) /* of values that are made, and of text */

/* ---- what is parsed ---- */

typedef enum zt_expr_kind {
    ZT_EXPR_CONSTANT, /* value */
    ZT_EXPR_NAME,     /* name */
    ZT_EXPR_LIST,     /* args */
    ZT_EXPR_DICT,     /* args with keys */
    ZT_EXPR_FIELD,    /* a.name */
    ZT_EXPR_ITEM,     /* a[b] */
    ZT_EXPR_SLICE,    /* a[args: from, to, step; value NULL: left out] */
    ZT_EXPR_CALL,     /* a(args) */
    ZT_EXPR_FILTER,   /* a | name(args) */
    ZT_EXPR_TEST,     /* a is name(args) */
    ZT_EXPR_NOT,      /* not a */
    ZT_EXPR_MINUS,    /* -a */
    ZT_EXPR_BINARY,   /* a op b */
    ZT_EXPR_COMPARE,  /* a op b */
    ZT_EXPR_AND,      /* a and b */
    ZT_EXPR_OR,       /* a or b */
    ZT_EXPR_CHOICE    /* a if b else c; c NULL: undefined */
} zt_expr_kind;

struct zt_expr_arg {
    const char *name;     /* of a keyword; NULL */
    struct zt_expr *key;  /* of a dict; NULL */
    struct zt_expr *expr; /* NULL: left out */
    struct zt_expr_arg *next;
};

struct zt_expr {
    zt_expr_kind kind;
    int line;
    const char *op; /* "+", "==", "not in", ... */
    const char *name;
    json_t *value; /* the template's */
    struct zt_expr *a, *b, *c;
    struct zt_expr_arg *args;
};

typedef enum zt_stmt_kind {
    ZT_STMT_TEXT,       /* text */
    ZT_STMT_PRINT,      /* expr */
    ZT_STMT_IF,         /* expr, body, other */
    ZT_STMT_FOR,        /* name and name2 in expr if condition: body; none: other */
    ZT_STMT_SET,        /* name or name.field = expr, or = body where expr is NULL */
    ZT_STMT_GENERATION, /* body */
    ZT_STMT_BREAK,
    ZT_STMT_CONTINUE
} zt_stmt_kind;

struct zt_stmt {
    zt_stmt_kind kind;
    int line;
    const char *text; /* (n) */
    size_t n;
    const char *name, *name2, *field;
    struct zt_expr *expr, *condition;
    struct zt_stmt *body, *other, *next;
};

struct zt_template {
    char *name, *text;
    size_t n;
    struct zt_text_arena arena;
    json_t *constants; /* an array: it keeps the literals */
    struct zt_stmt *body;
    bool marks_generation;
};

/* ---- parsing ---- */

typedef enum zt_lexeme {
    ZT_LEX_END, /* of the tag */
    ZT_LEX_NAME,
    ZT_LEX_STRING,
    ZT_LEX_NUMBER,
    ZT_LEX_OPERATOR
} zt_lexeme;

struct zt_template_parser {
    struct zt_template *t;
    struct zt_fault *fault;
    zt_err rc; /* the first that went wrong */
    const char *at, *end;
    int line, depth, braces;
    bool generates;   /* within {% generation %} */
    bool line_starts; /* nothing but blanks can be before `at` in its line */
    char close;       /* '%' or '}': how the tag ends */

    /* the lexeme at hand */
    zt_lexeme lex;
    const char *word; /* a name, an operator; in the arena or static */
    json_t *literal;
};

/* Go to the next lexeme of the tag. At its end the tag is left, with what the end strips. */
void zt_template_lex(struct zt_template_parser *p);
bool zt_template_lex_is(const struct zt_template_parser *p, zt_lexeme lex,
                        const char *word);
/* Where it is this one, go past it. */
bool zt_template_lex_take(struct zt_template_parser *p, const char *word);
void zt_template_lex_need(struct zt_template_parser *p, const char *word);
/* A name that is not reserved, and past it; "" where there is none. */
const char *zt_template_lex_name(struct zt_template_parser *p);

/* Text up to the next tag: stripped as the tag says. `opens`: '{', '%' or 0 at the end of the
 * template; comments are passed over. */
void zt_template_lex_text(struct zt_template_parser *p, const char **text, size_t *n,
                          char *opens);

struct zt_expr *zt_template_parse_expr(struct zt_template_parser *p); /* NULL: p->rc */
/* What a loop goes through; behind `if` its condition, else *condition is NULL. */
struct zt_expr *zt_template_parse_loop(struct zt_template_parser *p,
                                       struct zt_expr **condition);
void *zt_template_alloc(struct zt_template_parser *p, size_t bytes);
void zt_template_refuse(struct zt_template_parser *p, const char *fmt, ...)
    ZT_PRINTF(2, 3);

/* ---- rendering ---- */

struct zt_template_scope {
    json_t *names; /* an object */
    struct zt_template_scope *up;
};

/*
 * Values are JSON; those that are made while it runs are kept in `made` until the end, so all
 * are borrowed. Two are known by where they are: what is not defined, and a function.
 */
struct zt_template_run {
    const struct zt_template *t;
    const json_t *values;
    struct zt_template_scope *scope;
    struct zt_buf *out;
    struct zt_buf *text, *spans; /* what is wanted, of which `out` may be a part; NULL */
    size_t begin;                /* of the text in it */
    struct zt_fault *fault;
    zt_err rc;
    json_t *made, *undefined, *function;
    json_t *namespaces; /* an array */
    json_t
        *lazy; /* of lists that Jinja makes as they are gone through, by where they are:
                     whether they were not yet */
    int64_t steps;
    size_t counted, bytes; /* of `made`: so many values take so much */
    int jump;              /* out of a loop's body: a zt_stmt_kind; 0: none */
};

/* Keeps a new reference; NULL (no memory) is a failure. */
json_t *zt_template_keep(struct zt_template_run *r, json_t *value);
json_t *zt_template_string(struct zt_template_run *r, const char *s, size_t n);
/* Before each expression and statement: false past a bound of what a template may do. */
bool zt_template_step(struct zt_template_run *r, int line);
/* Returns NULL, for the caller to return. */
json_t *zt_template_fail(struct zt_template_run *r, int line, const char *fmt, ...)
    ZT_PRINTF(3, 4);

json_t *zt_template_eval(struct zt_template_run *r, const struct zt_expr *x);
json_t *zt_template_eval_call(struct zt_template_run *r, const struct zt_expr *x);
json_t *zt_template_eval_filter(struct zt_template_run *r, const struct zt_expr *x);
json_t *zt_template_eval_binary(struct zt_template_run *r, const struct zt_expr *x);
json_t *zt_template_eval_item(struct zt_template_run *r, const struct zt_expr *x);
/* of[name]: an item of a dict, else what a value has by that name; else undefined. */
json_t *zt_template_field(struct zt_template_run *r, const json_t *of, const char *name);
bool zt_template_is_lazy(const struct zt_template_run *r, const json_t *v);
/* Takes the list as such a one; NULL: no memory. `fresh`: it was not gone through. */
json_t *zt_template_set_lazy(struct zt_template_run *r, json_t *list, bool fresh);
/* 1, 0, or -1: failed. */
int zt_template_eval_test(struct zt_template_run *r, const struct zt_expr *x);
int zt_template_test(struct zt_template_run *r, const struct zt_expr *x, const char *name,
                     json_t *value, json_t *with);
int zt_template_compare(struct zt_template_run *r, int line, const char *op, json_t *a,
                        json_t *b);

/* ---- values ---- */

bool zt_template_is_true(const struct zt_template_run *r, const json_t *v);
bool zt_template_equal(const json_t *a, const json_t *b);
/* As Python's str(); NULL: of a list or a dict, which is refused. */
json_t *zt_template_to_string(struct zt_template_run *r, int line, json_t *v);
/* As Python's json.dumps(ensure_ascii=False), `indent` < 0: on one line. */
json_t *zt_template_to_json(struct zt_template_run *r, int line, const json_t *v,
                            int indent);
/* What a loop goes through: an array; of a dict its keys, of text its characters. */
json_t *zt_template_items(struct zt_template_run *r, int line, json_t *v);
size_t zt_template_char_bytes(const char *s, size_t n); /* of the character at s, n > 0 */
bool zt_template_is_space(char c);

#endif
