#include "common/options.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/suggest.h"

struct zt_args {
    const struct zt_option *table;
    const struct zt_option_extra *extras;
    struct zt_value *values; /* one a row of the table */
    struct zt_keep keep;
};

/* ---- numbers ---- */

bool zt_number_real(const char *text, double *out)
{
    char *end;
    double d;

    if (!*text || strspn(text, "+-.0123456789eE") != strlen(text))
        return false;
    d = strtod(text, &end);
    if (*end || end == text || !isfinite(d))
        return false;
    *out = d;
    return true;
}

bool zt_number_int(const char *text, int64_t *out)
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
    if (!zt_number_real(text, &d) || d != floor(d) || fabs(d) >= 0x1p63)
        return false;
    *out = (int64_t)d;
    return true;
}

bool zt_number_truth(const char *text, bool *out)
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

void zt_real_text(double value, char out[ZT_REAL_TEXT])
{
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(out, ZT_REAL_TEXT, "%.*g", digits, value);
        if (strtod(out, NULL) == value)
            return;
    }
}

/* ---- names ---- */

static char fold(char c)
{
    return c == '-' ? '_' : c;
}

/* Is text[0..n) this name? */
static bool same_name(const char *name, const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!name[i] || fold(name[i]) != fold(text[i]))
            return false;
    return !name[n];
}

const struct zt_option_extra *zt_option_extra_of(const struct zt_option_extra *extras,
                                                 const char *name)
{
    static const struct zt_option_extra none;

    for (const struct zt_option_extra *e = extras; e && e->name; e++)
        if (!strcmp(e->name, name))
            return e;
    return &none;
}

static int find_row(const zt_args *a, const char *text, size_t n)
{
    for (int i = 0; a->table[i].name; i++) {
        const char *alias = zt_option_extra_of(a->extras, a->table[i].name)->alias;

        if (same_name(a->table[i].name, text, n) || (alias && same_name(alias, text, n)))
            return i;
    }
    return -1;
}

static int find_letter(const zt_args *a, char letter)
{
    for (int i = 0; a->table[i].name; i++)
        if (zt_option_extra_of(a->extras, a->table[i].name)->letter == letter)
            return i;
    return -1;
}

const char *zt_args_find(const zt_args *args, const char *name)
{
    int row = find_row(args, name, strlen(name));

    return row < 0 ? NULL : args->table[row].name;
}

const struct zt_option *zt_args_table(const zt_args *args)
{
    return args->table;
}

/* ---- values ---- */

static bool is_choice(const char *choices, const char *text)
{
    size_t n = strlen(text);

    for (const char *c = choices; c; c = strchr(c, '|')) {
        c += *c == '|';
        if (!strncmp(c, text, n) && (c[n] == '|' || !c[n]))
            return true;
    }
    return false;
}

static const char *nearest_choice(struct zt_keep *keep, const char *choices,
                                  const char *text)
{
    struct zt_suggest s;

    zt_suggest_init(&s, text);
    for (const char *c = choices; c; c = strchr(c, '|')) {
        c += *c == '|';
        zt_suggest_offer(&s, zt_keep_text(keep, c, strcspn(c, "|")));
    }
    return zt_suggest_best(&s);
}

static void bad_number(const struct zt_option *o, zt_err code, const char *text,
                       const char *where, struct zt_report *report)
{
    char lo[ZT_REAL_TEXT], hi[ZT_REAL_TEXT];
    const char *kind = o->kind == ZT_OPT_INT ? "whole number" : "number";

    zt_real_text(o->min, lo);
    zt_real_text(o->max, hi);
    if (o->min == 0 && o->max == 0)
        zt_report_problem(report, code, "%s: \"%s\" is no %s", where, text, kind);
    else if (o->max >= 1e12)
        zt_report_problem(report, code, "%s: \"%s\" is no %s of at least %s", where, text,
                          kind, lo);
    else
        zt_report_problem(report, code, "%s: \"%s\" is no %s from %s to %s", where, text,
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

/* Read text as the option's kind; false after a problem. */
static bool read_value(zt_args *a, const struct zt_option *o, const char *text,
                       const char *where, struct zt_value *v, struct zt_report *report)
{
    zt_err code = code_of(v->from);
    const char *near;

    v->text = zt_keep_text(&a->keep, text, strlen(text));
    switch (o->kind) {
    case ZT_OPT_FLAG:
        if (zt_number_truth(text, &v->truth))
            return true;
        zt_report_problem(report, code, "%s: \"%s\" is neither true nor false", where,
                          text);
        return false;
    case ZT_OPT_INT:
        if (zt_number_int(text, &v->integer) && in_range(o, (double)v->integer))
            return true;
        bad_number(o, code, text, where, report);
        return false;
    case ZT_OPT_FLOAT:
        if (zt_number_real(text, &v->real) && in_range(o, v->real))
            return true;
        bad_number(o, code, text, where, report);
        return false;
    case ZT_OPT_CHOICE:
        if (is_choice(o->choices, text))
            return true;
        near = nearest_choice(report->keep, o->choices, text);
        zt_report_problem(report, code, "%s: \"%s\" is none of %s%s%s%s", where, text,
                          o->choices, near ? "; did you mean " : "", near ? near : "",
                          near ? "?" : "");
        return false;
    case ZT_OPT_STRING:
    case ZT_OPT_LIST:
        break;
    }
    return true;
}

static const char *const no_words[] = {NULL};

static void add_to_list(zt_args *a, struct zt_value *v, const char *text)
{
    size_t n = 0;
    const char **list;

    while (v->list[n])
        n++;
    list = zt_keep_alloc(&a->keep, (n + 2) * sizeof(*list));
    if (!list)
        return;
    memcpy(list, v->list, n * sizeof(*list));
    list[n] = zt_keep_text(&a->keep, text, strlen(text));
    v->list = list;
}

/* Set a row from texts (one, or several for a list) if nothing stronger has set it. */
static void set(zt_args *a, int row, const char *const *texts, int num_texts,
                zt_from from, const char *where, struct zt_report *report)
{
    const struct zt_option *o = &a->table[row];
    const char *refused = zt_option_extra_of(a->extras, o->name)->refused;
    struct zt_value *old = &a->values[row], v = {.from = from, .list = no_words};

    if (old->from > from)
        return;
    if (refused) {
        zt_report_problem(report, code_of(from), "%s: not in this version: %s", where,
                          refused);
        return;
    }
    v.where = zt_keep_text(&a->keep, where, strlen(where));
    if (o->kind == ZT_OPT_LIST) {
        if (old->from == from)
            v.list = old->list;
        for (int i = 0; i < num_texts; i++)
            add_to_list(a, &v, texts[i]);
        v.text = v.list[0];
    } else if (num_texts != 1) {
        zt_report_problem(report, code_of(from), "%s: one value is wanted, not %d", where,
                          num_texts);
        return;
    } else if (!read_value(a, o, texts[0], where, &v, report)) {
        return;
    }
    *old = v;
}

void zt_args_set_from_file(zt_args *args, const char *name, const char *const *texts,
                           int num_texts, const char *where, struct zt_report *report)
{
    int row = find_row(args, name, strlen(name));

    if (row >= 0)
        set(args, row, texts, num_texts, ZT_FROM_FILE, where, report);
}

void zt_args_set_default(zt_args *args, const char *name, const char *text,
                         const char *where, struct zt_report *report)
{
    int row = find_row(args, name, strlen(name));

    if (row >= 0)
        set(args, row, &text, 1, ZT_FROM_DEFAULT, where, report);
}

const struct zt_value *zt_args_value(const zt_args *args, const char *name)
{
    int row = find_row(args, name, strlen(name));

    return row < 0 ? NULL : &args->values[row];
}

zt_err zt_args_open(const struct zt_option *table, const struct zt_option_extra *extras,
                    zt_args **out, struct zt_fault *fault)
{
    struct zt_args *a = calloc(1, sizeof(*a));
    struct zt_report report;
    size_t n = 0;

    while (table[n].name)
        n++;
    if (a)
        a->values = calloc(n + 1, sizeof(*a->values));
    if (!a || !a->values) {
        zt_args_close(a);
        return zt_fault_set(fault, ZT_E_NOMEM, "options: no host memory");
    }
    a->table = table;
    a->extras = extras;
    zt_report_init(&report, &a->keep);
    for (size_t i = 0; i < n; i++) {
        struct zt_value *v = &a->values[i];

        *v = (struct zt_value){.where = "default", .list = no_words};
        if (!table[i].def)
            continue;
        if (table[i].kind == ZT_OPT_LIST)
            add_to_list(a, v, table[i].def);
        else
            read_value(a, &table[i], table[i].def, table[i].name, v, &report);
    }
    if (report.num_problems || a->keep.failed) {
        zt_err rc = zt_report_end(&report, fault);

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
    zt_keep_release(&args->keep);
    free(args->values);
    free(args);
}

/* ---- command line ---- */

struct reader {
    zt_args *const *sets;
    int num_sets, argc, at;
    char *const *argv;
    struct zt_report *report;
};

/* Is this word an option rather than a value? "-3" and "-" are values. */
static bool is_option(const char *word)
{
    double d;

    return word[0] == '-' && word[1] && !zt_number_real(word, &d);
}

static void unknown_option(struct reader *r, const char *word, size_t n)
{
    const char *best;
    struct zt_suggest s;

    zt_suggest_init(&s, zt_keep_text(r->report->keep, word, n));
    for (int k = 0; k < r->num_sets; k++)
        for (const struct zt_option *o = r->sets[k]->table; o->name; o++) {
            const char *alias = zt_option_extra_of(r->sets[k]->extras, o->name)->alias;

            zt_suggest_offer(&s, o->name);
            if (alias)
                zt_suggest_offer(&s, alias);
        }
    best = zt_suggest_best(&s);
    if (best)
        zt_report_problem(r->report, ZT_E_USAGE,
                          "--%s: unknown option; did you mean --%s?", s.word, best);
    else
        zt_report_problem(r->report, ZT_E_USAGE, "--%s: unknown option; see --help",
                          s.word);
    /* its value, if it has one, is no second problem */
    if (!memchr(word, '=', strlen(word)) && r->at + 1 < r->argc &&
        !is_option(r->argv[r->at + 1]))
        r->at++;
}

/* The option is at argv[at]; `value` is what stands behind '=', or NULL. */
static void take_option(struct reader *r, zt_args *a, int row, bool negated,
                        const char *value)
{
    const struct zt_option *o = &a->table[row];
    const char *where = zt_keep_printf(r->report->keep, "--%s", o->name);
    bool truth;
    int first = r->at + 1, n = 0;

    if (negated) {
        if (value)
            zt_report_problem(r->report, ZT_E_USAGE, "--no_%s takes no value", o->name);
        else
            set(a, row, (const char *[]){"false"}, 1, ZT_FROM_FLAG, where, r->report);
        return;
    }
    if (value) {
        set(a, row, &value, 1, ZT_FROM_FLAG, where, r->report);
        return;
    }
    if (o->kind == ZT_OPT_FLAG) {
        const char *next = first < r->argc ? r->argv[first] : "";
        bool word = zt_number_truth(next, &truth) && isalpha((unsigned char)*next);

        r->at += word;
        set(a, row, (const char *[]){word ? next : "true"}, 1, ZT_FROM_FLAG, where,
            r->report);
        return;
    }
    while (first + n < r->argc && !is_option(r->argv[first + n]) &&
           (o->kind == ZT_OPT_LIST || n < 1))
        n++;
    if (!n && o->kind == ZT_OPT_STRING && first < r->argc &&
        strncmp(r->argv[first], "--", 2) != 0)
        n = 1; /* text may begin with one dash */
    r->at += n;
    if (n)
        set(a, row, (const char *const *)&r->argv[first], n, ZT_FROM_FLAG, where,
            r->report);
    else
        zt_report_problem(r->report, ZT_E_USAGE, "%s: a value is missing%s%s", where,
                          o->value ? ": " : "", o->value ? o->value : "");
}

static void long_option(struct reader *r, const char *word)
{
    size_t n = strcspn(word, "=");
    const char *value = word[n] ? word + n + 1 : NULL;

    for (int k = 0; k < r->num_sets; k++) {
        int row = find_row(r->sets[k], word, n);

        if (row >= 0) {
            take_option(r, r->sets[k], row, false, value);
            return;
        }
    }
    for (int k = 0; k < r->num_sets && n > 3 && same_name("no_", word, 3); k++) {
        int row = find_row(r->sets[k], word + 3, n - 3);

        if (row >= 0 && r->sets[k]->table[row].kind == ZT_OPT_FLAG) {
            take_option(r, r->sets[k], row, true, value);
            return;
        }
    }
    unknown_option(r, word, n);
}

/* "-v", "-vq", "-H FILE", "-HFILE" */
static void letters(struct reader *r, const char *word)
{
    for (const char *c = word + 1; *c; c++) {
        int row = -1, k;

        for (k = 0; k < r->num_sets && row < 0; k++)
            row = find_letter(r->sets[k], *c);
        if (row < 0) {
            zt_report_problem(r->report, ZT_E_USAGE,
                              "-%c: unknown option in \"%s\"; see --help", *c, word);
            return;
        }
        if (r->sets[k - 1]->table[row].kind == ZT_OPT_FLAG) {
            set(r->sets[k - 1], row, (const char *[]){"true"}, 1, ZT_FROM_FLAG,
                zt_keep_printf(r->report->keep, "-%c", *c), r->report);
            continue;
        }
        take_option(r, r->sets[k - 1], row, false, c[1] ? c + 1 : NULL);
        return;
    }
}

void zt_args_read_words(zt_args *const *sets, int num_sets, int argc, char *const *argv,
                        int *rest, struct zt_report *report)
{
    struct reader r = {
        .sets = sets, .num_sets = num_sets, .argc = argc, .argv = argv, .report = report};

    for (; r.at < argc; r.at++) {
        const char *word = argv[r.at];

        if (!strncmp(word, "--", 2) && word[2])
            long_option(&r, word + 2);
        else if (rest && (!is_option(word) || !strcmp(word, "--")))
            break;
        else if (is_option(word) && word[1] != '-')
            letters(&r, word);
        else
            zt_report_problem(report, ZT_E_USAGE,
                              "\"%s\": a word that belongs to no option", word);
    }
    if (rest)
        *rest = r.at;
}

/* ---- environment ---- */

void zt_args_read_env(zt_args *args, struct zt_report *report)
{
    for (int i = 0; args->table[i].name; i++) {
        char name[128];
        const char *text, *one[1], *colon;
        size_t n = 8;

        snprintf(name, sizeof(name), "ZLAUNCH_%s", args->table[i].name);
        for (; name[n]; n++)
            name[n] = (char)toupper((unsigned char)fold(name[n]));
        text = getenv(name);
        if (!text || !*text || args->values[i].from > ZT_FROM_ENV)
            continue;
        for (; args->table[i].kind == ZT_OPT_LIST && (colon = strchr(text, ':'));
             text = colon + 1) {
            one[0] = zt_keep_text(report->keep, text, (size_t)(colon - text));
            set(args, i, one, 1, ZT_FROM_ENV, name, report);
        }
        one[0] = text;
        set(args, i, one, 1, ZT_FROM_ENV, name, report);
    }
}

/* ---- what plugins see ---- */

static const struct zt_value empty_value = {.list = no_words};

static const struct zt_value *value_of(const zt_args *args, const char *name)
{
    const struct zt_value *v = args ? zt_args_value(args, name) : NULL;

    return v ? v : &empty_value;
}

bool zt_args_flag(const zt_args *args, const char *name)
{
    return value_of(args, name)->truth;
}

int64_t zt_args_int(const zt_args *args, const char *name)
{
    return value_of(args, name)->integer;
}

double zt_args_float(const zt_args *args, const char *name)
{
    return value_of(args, name)->real;
}

const char *zt_args_string(const zt_args *args, const char *name)
{
    return value_of(args, name)->text;
}

bool zt_args_given(const zt_args *args, const char *name)
{
    return value_of(args, name)->from != ZT_FROM_DEFAULT;
}
