#include "common/options/env_names.h"
#include "common/options/private.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/suggest.h"

/* The first question for an option that was wrong; readers of any thread may ask it. */
struct zt_args_misuse {
    atomic_flag taken;  /* somebody writes the text, or has written it */
    atomic_bool is_set; /* the text is whole */
    char text[1024];
};

/* ---- numbers ---- */

bool zt_parse_double(const char *text, double *out)
{
    char *end;
    double d;

    if (!*text || strspn(text, "+-.0123456789eE") != strlen(text))
        return false;
    d = strtod(text, &end);
    if (*end || end == text || !isfinite(d))
        return false;
    if (d == 0 && strcspn(text, "123456789") < strcspn(text, "eE"))
        return false; /* too small for a double: not the 0 that it would become */
    *out = d;
    return true;
}

bool zt_parse_int64(const char *text, int64_t *out)
{
    char *end;
    long long i;
    double d;

    if (!*text || isspace((unsigned char)*text))
        return false;
    errno = 0;
    i = strtoll(text, &end, 10);
    if (!*end && end != text) {
        if (errno)
            return false;
        *out = i;
        return true;
    }
    if (!zt_parse_double(text, &d) || d != floor(d) || fabs(d) >= 0x1p63)
        return false;
    *out = (int64_t)d;
    return true;
}

bool zt_parse_bool(const char *text, bool *out)
{
    static const char *const words[] = {"false", "true", "no", "yes",
                                        "off",   "on",   "0",  "1"};

    for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
        if (!strcasecmp(text, words[i])) {
            *out = i & 1;
            return true;
        }
    return false;
}

void zt_format_double(double value, char out[ZT_DOUBLE_TEXT])
{
    if (value == trunc(value) && fabs(value) < 1e6 && (value != 0 || !signbit(value))) {
        snprintf(out, ZT_DOUBLE_TEXT, "%.0f", value); /* 600, not 6e+02 */
        return;
    }
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(out, ZT_DOUBLE_TEXT, "%.*g", digits, value);
        if (strtod(out, NULL) == value)
            return;
    }
}

/* ---- names ---- */

char zt_fold_dash(char c)
{
    return c == '-' ? '_' : c;
}

bool zt_name_is_n(const char *name, const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!name[i] || zt_fold_dash(name[i]) != zt_fold_dash(text[i]))
            return false;
    return true;
}

bool zt_name_is(const char *name, const char *text, size_t n)
{
    return zt_name_is_n(name, text, n) && !name[n];
}

int zt_args_row(const zt_args *a, const char *text, size_t n)
{
    for (int i = 0; a->table[i].name; i++) {
        const struct zt_option *o = &a->table[i];

        if (zt_name_is(o->name, text, n) || (o->alias && zt_name_is(o->alias, text, n)))
            return i;
    }
    return -1;
}

const char *zt_args_find(const zt_args *args, const char *name)
{
    int row = zt_args_row(args, name, strlen(name));

    return row < 0 ? NULL : args->table[row].name;
}

const struct zt_option *zt_args_table(const zt_args *args)
{
    return args->table;
}

/* ---- values ---- */

static const char *nearest_choice(struct zt_text_arena *arena, const char *choices,
                                  const char *text)
{
    static const char *const also[][2] = {{"gpu", "cuda"}, {"nvidia", "cuda"}};
    struct zt_suggest s;

    for (size_t i = 0; i < sizeof(also) / sizeof(*also); i++)
        if (strcasecmp(text, also[i][0]) == 0 && zt_is_one_of(choices, also[i][1], false))
            return also[i][1]; /* near in letters may be the opposite: gpu, cpu */
    zt_suggest_init(&s, text);
    for (const char *c = choices; c; c = strchr(c, '|')) {
        c += *c == '|';
        zt_suggest_offer(&s, zt_text_arena_copy(arena, c, strcspn(c, "|")));
    }
    return zt_suggest_best(&s);
}

/* 1000, where the shortest spelling of a double would be 1e+03. */
static void limit_text(double limit, char out[ZT_DOUBLE_TEXT])
{
    if (limit > -1e15 && limit < 1e15 && (double)(int64_t)limit == limit)
        snprintf(out, ZT_DOUBLE_TEXT, "%lld", (long long)limit);
    else
        zt_format_double(limit, out);
}

static void bad_number(const struct zt_option *o, zt_err code, const char *text,
                       const char *where, struct zt_problems *report)
{
    char lo[ZT_DOUBLE_TEXT], hi[ZT_DOUBLE_TEXT];
    const char *kind = o->kind == ZT_OPT_INT ? "whole number" : "number";
    double value;

    limit_text(o->min, lo);
    limit_text(o->max, hi);
    if (o->min == 0 && o->max == 0)
        zt_problems_add(report, code, "%s: \"%s\" is no %s", where, text, kind);
    else if (o->max >= 1e12 && zt_parse_double(text, &value) && value > o->max)
        zt_problems_add(report, code, "%s: %s is too large: at most %s", where, text, hi);
    else if (o->max >= 1e12)
        zt_problems_add(report, code, "%s: \"%s\" is no %s of at least %s", where, text,
                        kind, lo);
    else
        zt_problems_add(report, code, "%s: \"%s\" is no %s from %s to %s", where, text,
                        kind, lo, hi);
}

static bool in_range(const struct zt_option *o, double d)
{
    return (o->min == 0 && o->max == 0) || (d >= o->min && d <= o->max);
}

static zt_err code_of(zt_from from)
{
    return from == ZT_FROM_FILE ? ZT_E_CONFIG : ZT_E_USAGE;
}

bool zt_option_takes(const struct zt_option *o, const char *text)
{
    int64_t integer;
    double real;
    bool boolean;

    switch (o->kind) {
    case ZT_OPT_FLAG:
        return zt_parse_bool(text, &boolean);
    case ZT_OPT_INT:
        return zt_parse_int64(text, &integer) && in_range(o, (double)integer);
    case ZT_OPT_FLOAT:
        return zt_parse_double(text, &real) && in_range(o, real);
    case ZT_OPT_CHOICE:
        return zt_is_one_of(o->choices, text, false);
    case ZT_OPT_STRING:
    case ZT_OPT_LIST:
        break;
    }
    return true;
}

/* The choice that `text` is in other letters: case does not count, as in DeepSpeed. */
static const char *spelt_as_choice(struct zt_text_arena *arena, const char *choices,
                                   const char *text)
{
    size_t n = strlen(text);
    const char *any_case = text;

    for (const char *c = choices; c; c = strchr(c, '|')) {
        c += *c == '|';
        if (strcspn(c, "|=") != n || strncasecmp(c, text, n) != 0)
            continue;
        if (strncmp(c, text, n) == 0)
            return text;
        any_case = c;
    }
    return any_case == text ? text : zt_text_arena_copy(arena, any_case, n);
}

/* A shell leaves the ~ of --option=~/x as it is. */
static const char *with_home(struct zt_text_arena *arena, const struct zt_option *o,
                             const char *text)
{
    const char *home = getenv("HOME");

    if (!(o->flags & ZT_OPTION_PATH) || strncmp(text, "~/", 2) != 0 || !home || !*home)
        return text;
    return zt_text_arena_printf(arena, "%s%s", home, text + 1);
}

/* Read text as the option's kind; false after a problem. */
static bool parse_value(zt_args *a, const struct zt_option *o, const char *text,
                        const char *where, struct zt_value *v, struct zt_problems *report)
{
    zt_err code = code_of(v->from);
    const char *near;

    text = with_home(&a->arena, o, text);
    v->text = zt_text_arena_copy(&a->arena, text, strlen(text));
    switch (o->kind) {
    case ZT_OPT_FLAG:
        if (zt_parse_bool(text, &v->boolean))
            return true;
        zt_problems_add(report, code, "%s: \"%s\" is neither true nor false", where,
                        text);
        return false;
    case ZT_OPT_INT:
        if (zt_parse_int64(text, &v->integer) && in_range(o, (double)v->integer))
            return true;
        bad_number(o, code, text, where, report);
        return false;
    case ZT_OPT_FLOAT:
        if (zt_parse_double(text, &v->real) && in_range(o, v->real))
            return true;
        bad_number(o, code, text, where, report);
        return false;
    case ZT_OPT_CHOICE:
        if (zt_is_one_of(o->choices, text, true)) {
            v->text = spelt_as_choice(&a->arena, o->choices, v->text);
            return true;
        }
        near = nearest_choice(report->arena, o->choices, text);
        zt_problems_add(report, code, "%s: \"%s\" is none of %s%s%s%s", where, text,
                        o->choices, near ? "; did you mean " : "", near ? near : "",
                        near ? "?" : "");
        return false;
    case ZT_OPT_STRING:
    case ZT_OPT_LIST:
        break;
    }
    return true;
}

static const char *const empty_list[] = {NULL};

static void add_to_list(zt_args *a, struct zt_value *v, const char *text)
{
    size_t n = 0;
    const char **list;

    while (v->list[n])
        n++;
    list = zt_text_arena_alloc(&a->arena, (n + 2) * sizeof(*list));
    if (!list)
        return;
    memcpy(list, v->list, n * sizeof(*list));
    list[n] = zt_text_arena_copy(&a->arena, text, strlen(text));
    v->list = list;
}

/* A file or another text that words have said before by another name of the option: of numbers the
 * last one counts, as everywhere. */
static bool contradicts(const struct zt_option *o, const struct zt_value *old,
                        const struct zt_value *v)
{
    return o->kind == ZT_OPT_STRING && !(o->flags & ZT_OPTION_ADDS) &&
           old->from == ZT_FROM_FLAG && v->from == ZT_FROM_FLAG && old->text &&
           strcmp(old->where, v->where) != 0 && strcmp(old->text, v->text) != 0;
}

bool zt_args_set(zt_args *a, int row, const char *const *texts, int num_texts,
                 zt_from from, const char *where, struct zt_problems *report)
{
    const struct zt_option *o = &a->table[row];
    struct zt_value *old = &a->values[row], v = {.from = from, .list = empty_list};

    if (old->from > from)
        return false;
    if (o->refused) {
        zt_problems_add(report, code_of(from), "%s: not in this version: %s", where,
                        o->refused);
        return false;
    }
    v.where = zt_text_arena_copy(&a->arena, where, strlen(where));
    if (o->kind == ZT_OPT_LIST) {
        if (old->from == from)
            v.list = old->list;
        for (int i = 0; i < num_texts; i++)
            add_to_list(a, &v, texts[i]);
        v.text = v.list[0];
    } else if (num_texts != 1) {
        zt_problems_add(report, code_of(from), "%s: one value is wanted, not %d", where,
                        num_texts);
        return false;
    } else if (!parse_value(a, o, texts[0], where, &v, report)) {
        return false;
    } else if (contradicts(o, old, &v)) {
        zt_problems_add(report, ZT_E_USAGE,
                        "%s and %s are two names of one option, and their "
                        "values differ: give one of them",
                        old->where, v.where);
        return false;
    }
    if (o->flags & ZT_OPTION_ADDS && old->from == from && old->text && *old->text)
        v.text = zt_text_arena_printf(&a->arena, "%s,%s", old->text, v.text);
    v.origin = v.where;
    *old = v;
    return true;
}

void zt_args_set_from_file(zt_args *args, const char *name, const char *const *texts,
                           int num_texts, const char *where, const char *origin,
                           struct zt_problems *report)
{
    int row = zt_args_row(args, name, strlen(name));

    if (row >= 0 && zt_args_set(args, row, texts, num_texts, ZT_FROM_FILE, where, report))
        args->values[row].origin =
            zt_text_arena_copy(&args->arena, origin, strlen(origin));
}

void zt_args_set_default(zt_args *args, const char *name, const char *text,
                         const char *where, struct zt_problems *report)
{
    int row = zt_args_row(args, name, strlen(name));

    if (row >= 0)
        zt_args_set(args, row, &text, 1, ZT_FROM_DEFAULT, where, report);
}

zt_err zt_args_open(const struct zt_option *table, zt_args **out, struct zt_fault *fault)
{
    struct zt_args *a = calloc(1, sizeof(*a));
    struct zt_problems report;
    size_t n = 0;

    while (table[n].name)
        n++;
    if (a) {
        a->values = calloc(n + 1, sizeof(*a->values));
        a->misuse = calloc(1, sizeof(*a->misuse));
    }
    if (!a || !a->values || !a->misuse) {
        zt_args_close(a);
        return zt_fault_set(fault, ZT_E_NOMEM, "options: no host memory");
    }
    a->table = table;
    a->keys_end = &a->keys;
    zt_problems_init(&report, &a->arena);
    for (size_t i = 0; i < n; i++) {
        struct zt_value *v = &a->values[i];

        *v = (struct zt_value){
            .where = "default", .origin = "default", .list = empty_list};
        if (!table[i].def)
            continue;
        if (table[i].kind == ZT_OPT_LIST)
            add_to_list(a, v, table[i].def);
        else
            parse_value(a, &table[i], table[i].def, table[i].name, v, &report);
    }
    if (report.num_problems || a->arena.failed) {
        zt_err rc = zt_problems_end(&report, fault);

        rc = zt_fault_context(fault, rc == ZT_E_USAGE ? ZT_E_ARG : rc,
                              "the default of an option");
        zt_args_close(a);
        return rc == ZT_E_USAGE ? ZT_E_ARG : rc;
    }
    *out = a;
    return ZT_OK;
}

void zt_args_close(zt_args *args)
{
    if (!args)
        return;
    zt_text_arena_release(&args->arena);
    free(args->values);
    free(args->misuse);
    free(args);
}

void zt_args_know(zt_args *args, const struct zt_foreign_names *names)
{
    args->names = names;
}

const struct zt_foreign_key *zt_args_keys(const zt_args *args)
{
    return args->keys;
}

/* ---- environment ---- */

/* As in PATH. A text may have colons of its own. */
static bool splits_at_colons(const struct zt_option *o)
{
    return o->kind == ZT_OPT_LIST && o->flags & ZT_OPTION_PATH;
}

static void read_variable(zt_args *args, int row, const char *option,
                          struct zt_problems *report)
{
    char name[ZT_ENV_NAME_BYTES];
    const char *text, *one[1], *colon;

    zt_env_name_of(option, name);
    text = getenv(name);
    if (!text || !*text || args->values[row].from > ZT_FROM_ENV)
        return;
    for (; splits_at_colons(&args->table[row]) && (colon = strchr(text, ':'));
         text = colon + 1) {
        one[0] = zt_text_arena_copy(report->arena, text, (size_t)(colon - text));
        zt_args_set(args, row, one, 1, ZT_FROM_ENV, name, report);
    }
    one[0] = text;
    zt_args_set(args, row, one, 1, ZT_FROM_ENV, name, report);
}

/* Of two names of one option both may be set, to the same. */
static bool are_at_odds(const struct zt_option *o, struct zt_problems *report)
{
    char first[ZT_ENV_NAME_BYTES], second[ZT_ENV_NAME_BYTES];
    const char *a, *b;

    zt_env_name_of(o->name, first);
    zt_env_name_of(o->alias, second);
    a = getenv(first);
    b = getenv(second);
    if (!a || !*a || !b || !*b || strcmp(a, b) == 0)
        return false;
    zt_problems_add(report, ZT_E_USAGE,
                    "%s and %s are set to different values and are one option: unset one",
                    first, second);
    return true;
}

void zt_args_read_env(zt_args *args, struct zt_problems *report)
{
    for (int i = 0; args->table[i].name; i++) {
        const struct zt_option *o = &args->table[i];

        if (o->alias && args->values[i].from <= ZT_FROM_ENV && are_at_odds(o, report))
            continue;
        read_variable(args, i, o->name, report);
        if (o->alias && args->values[i].from < ZT_FROM_ENV)
            read_variable(args, i, o->alias, report);
    }
}

/* ---- reading by name ---- */

static const struct zt_value empty_value = {
    .where = "default", .origin = "default", .list = empty_list};

/* Remember `text` as what was wrong, unless something was wrong before. */
static void note_misuse(const zt_args *args, const char *text)
{
    struct zt_args_misuse *m = args->misuse;

    if (atomic_flag_test_and_set(&m->taken))
        return;
    snprintf(m->text, sizeof(m->text), "%s", text);
    atomic_store(&m->is_set, true);
}

static void note_unknown(const zt_args *args, const char *name)
{
    char text[sizeof(args->misuse->text)];
    size_t n = (size_t)snprintf(text, sizeof(text),
                                "it asks for the option \"%s\", which is not in its "
                                "table; there ",
                                name);

    if (!args->table[0].name)
        snprintf(text + n, sizeof(text) - n, "are none");
    for (int i = 0; args->table[i].name && n < sizeof(text); i++)
        n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%s", i ? ", " : "are ",
                              args->table[i].name);
    note_misuse(args, text);
}

const char *zt_args_misuse(const zt_args *args)
{
    return atomic_load(&args->misuse->is_set) ? args->misuse->text : NULL;
}

static int row_of(const zt_args *args, const char *name)
{
    int row;

    assert(args && "zt_args_*() without the handle that zt_model_args() gives");
    row = zt_args_row(args, name, strlen(name));
    if (row < 0)
        note_unknown(args, name);
    return row;
}

const struct zt_value *zt_args_value(const zt_args *args, const char *name)
{
    int row = row_of(args, name);

    return row < 0 ? &empty_value : &args->values[row];
}

/* The value when the option is of one of these kinds, a bit each. */
static const struct zt_value *read_kind(const zt_args *args, const char *name,
                                        unsigned kinds, const char *function)
{
    static const char *const names[] = {
        [ZT_OPT_FLAG] = "a flag",     [ZT_OPT_INT] = "a whole number",
        [ZT_OPT_FLOAT] = "a number",  [ZT_OPT_STRING] = "a string",
        [ZT_OPT_CHOICE] = "a choice", [ZT_OPT_LIST] = "a list",
    };
    int row = row_of(args, name);
    char text[256];

    if (row >= 0 && kinds & 1u << args->table[row].kind)
        return &args->values[row];
    if (row >= 0) {
        snprintf(text, sizeof(text),
                 "it reads the option \"%s\" with %s(), but its table says that it is %s",
                 name, function, names[args->table[row].kind]);
        note_misuse(args, text);
    }
    return &empty_value;
}

bool zt_args_flag(const zt_args *args, const char *name)
{
    return read_kind(args, name, 1u << ZT_OPT_FLAG, __func__)->boolean;
}

int64_t zt_args_int(const zt_args *args, const char *name)
{
    return read_kind(args, name, 1u << ZT_OPT_INT, __func__)->integer;
}

double zt_args_float(const zt_args *args, const char *name)
{
    return read_kind(args, name, 1u << ZT_OPT_FLOAT, __func__)->real;
}

const char *zt_args_string(const zt_args *args, const char *name)
{
    return read_kind(args, name,
                     1u << ZT_OPT_STRING | 1u << ZT_OPT_CHOICE | 1u << ZT_OPT_LIST,
                     __func__)
        ->text;
}

bool zt_args_given(const zt_args *args, const char *name)
{
    return zt_args_value(args, name)->from != ZT_FROM_DEFAULT;
}
