#include "common/options.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "common/suggest.h"

struct value {
    const char *text; /* NULL: not set */
    zt_origin origin;
    const char **words; /* LIST: (num_words) and a NULL */
    int num_words;
};

struct zt_args {
    const struct zt_option *table;
    int num;
    struct value values[]; /* (num) */
};

/* ---- numbers ---- */

bool zt_parse_float(const char *text, double *out)
{
    char *end;
    double v;

    if (!*text || isspace((unsigned char)*text))
        return false;
    errno = 0;
    v = strtod(text, &end);
    if (*end || errno == ERANGE || isnan(v))
        return false;
    *out = v;
    return true;
}

bool zt_parse_int(const char *text, int64_t *out)
{
    char *end;
    long long n;
    double v;

    if (!*text || isspace((unsigned char)*text))
        return false;
    errno = 0;
    n = strtoll(text, &end, 10);
    if (!*end && !errno) {
        *out = n;
        return true;
    }
    /* 5e8: a float that is whole, and small enough to be exact */
    if (!zt_parse_float(text, &v) || v != floor(v) || fabs(v) > 9007199254740992.0)
        return false;
    *out = (int64_t)v;
    return true;
}

bool zt_parse_bool(const char *text, bool *out)
{
    static const char *const yes[] = {"true", "1", "yes", "True"};
    static const char *const no[] = {"false", "0", "no", "False"};

    for (int i = 0; i < 4; i++)
        if (!strcmp(text, yes[i]) || !strcmp(text, no[i])) {
            *out = !strcmp(text, yes[i]);
            return true;
        }
    return false;
}

/* ---- problems ---- */

zt_err zt_fault_add(struct zt_fault *fault, zt_err code, const char *fmt, ...)
{
    size_t used;
    va_list ap;

    if (!fault)
        return code;
    if (fault->code == ZT_OK) {
        fault->code = code;
        fault->text[0] = 0;
    }
    used = strlen(fault->text);
    if (used && used + 1 < sizeof(fault->text)) {
        fault->text[used++] = '\n';
        fault->text[used] = 0;
    }
    va_start(ap, fmt);
    vsnprintf(fault->text + used, sizeof(fault->text) - used, fmt, ap);
    va_end(ap);
    return fault->code;
}

/* ---- names ---- */

/* "-" and "_" are the same in a name; `n` bytes of `word` are the name. */
static bool same_name(const char *name, const char *word, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!name[i] || name[i] != (word[i] == '-' ? '_' : word[i]))
            return false;
    return !name[n];
}

static const char *resolve_alias(const struct zt_option_set *set, const char *word,
                                 size_t *n)
{
    for (const struct zt_option_alias *a = set->aliases; a && a->alias; a++)
        if (same_name(a->alias, word, *n)) {
            *n = strlen(a->name);
            return a->name;
        }
    return word;
}

struct found {
    int table, row; /* -1: not found */
};

static struct found find(const struct zt_option_set *set, const char *word, size_t n)
{
    for (int t = 0; t < ZT_MAX_OPTION_TABLES && set->tables[t]; t++)
        for (int i = 0; set->tables[t][i].name; i++)
            if (same_name(set->tables[t][i].name, word, n))
                return (struct found){t, i};
    return (struct found){-1, -1};
}

static const char *refusal(const struct zt_option_set *set, const char *word, size_t n)
{
    for (const struct zt_option_refusal *r = set->refusals; r && r->name; r++)
        if (same_name(r->name, word, n))
            return r->why;
    return NULL;
}

static void unknown(const struct zt_option_set *set, const char *word, size_t n,
                    struct zt_fault *fault)
{
    struct zt_suggestion s = {0};
    char name[64];

    snprintf(name, sizeof(name), "%.*s", (int)n, word);
    for (int t = 0; t < ZT_MAX_OPTION_TABLES && set->tables[t]; t++)
        for (int i = 0; set->tables[t][i].name; i++)
            zt_suggest(&s, name, set->tables[t][i].name);
    for (const struct zt_option_alias *a = set->aliases; a && a->alias; a++)
        zt_suggest(&s, name, a->alias);
    if (s.best)
        zt_fault_add(fault, ZT_E_USAGE, "unknown option --%s: did you mean --%s?", name,
                     s.best);
    else
        zt_fault_add(fault, ZT_E_USAGE,
                     "unknown option --%s; --help behind the target lists them all",
                     name);
}

/* ---- values ---- */

static bool is_choice(const char *choices, const char *text)
{
    size_t n = strlen(text);

    for (const char *c = choices; n && *c; c += strcspn(c, "|"), c += *c == '|')
        if (strcspn(c, "|") == n && !memcmp(c, text, n))
            return true;
    return false;
}

static void check_range(const struct zt_option *o, const char *text, const char *from,
                        double v, struct zt_fault *fault)
{
    if ((o->min != 0 || o->max != 0) && (v < o->min || v > o->max))
        zt_fault_add(fault, ZT_E_USAGE, "%s%s %s: must be from %.15g to %.15g", from,
                     o->name, text, o->min, o->max);
}

/* `from`: how the complaint begins, right before the name. */
static void check_value(const struct zt_option *o, const char *text, const char *from,
                        struct zt_fault *fault)
{
    int64_t n;
    double v;
    bool b;

    switch (o->kind) {
    case ZT_OPT_FLAG:
        if (!zt_parse_bool(text, &b))
            zt_fault_add(fault, ZT_E_USAGE, "%s%s %s: true or false is expected", from,
                         o->name, text);
        break;
    case ZT_OPT_INT:
        if (!zt_parse_int(text, &n))
            zt_fault_add(fault, ZT_E_USAGE, "%s%s %s: a whole number is expected", from,
                         o->name, text);
        else
            check_range(o, text, from, (double)n, fault);
        break;
    case ZT_OPT_FLOAT:
        if (!zt_parse_float(text, &v))
            zt_fault_add(fault, ZT_E_USAGE, "%s%s %s: a number is expected", from,
                         o->name, text);
        else
            check_range(o, text, from, v, fault);
        break;
    case ZT_OPT_CHOICE:
        if (!is_choice(o->choices, text))
            zt_fault_add(fault, ZT_E_USAGE, "%s%s %s: one of %s is expected", from,
                         o->name, text, o->choices);
        break;
    case ZT_OPT_STRING:
    case ZT_OPT_LIST:
        break;
    }
}

static bool add_word(struct value *v, const char *word)
{
    const char **grown =
        realloc(v->words, ((size_t)v->num_words + 2) * sizeof(*v->words));

    if (!grown)
        return false;
    v->words = grown;
    v->words[v->num_words++] = word;
    v->words[v->num_words] = NULL;
    v->text = v->words[0];
    return true;
}

/* A word that begins an option, not a negative number. */
static bool begins_option(const char *word)
{
    return word[0] == '-' && word[1] == '-' && word[2];
}

/* The words behind argv[i] that belong to a list; the index of the last. */
static int take_list(struct value *v, const struct zt_option *o, const char *inline_word,
                     int argc, char **argv, int i, struct zt_fault *fault)
{
    bool ok = true;
    int before = v->num_words;

    if (v->origin != ZT_FROM_FLAG)
        v->num_words = before = 0; /* what the environment said no longer counts */
    if (inline_word)
        ok = add_word(v, inline_word);
    while (ok && !inline_word && i + 1 < argc && !begins_option(argv[i + 1]))
        ok = add_word(v, argv[++i]);
    if (!ok)
        zt_fault_add(fault, ZT_E_NOMEM, "--%s: no memory for the list", o->name);
    else if (v->num_words == before)
        zt_fault_add(fault, ZT_E_USAGE, "--%s needs a value", o->name);
    return i;
}

/* One option word at argv[i]; the index of the last word that belongs to it. */
static int take_option(const struct zt_option_set *set, zt_args **args, int argc,
                       char **argv, int i, struct zt_fault *fault)
{
    const char *word = argv[i] + 2;
    size_t n = strcspn(word, "=");
    const char *text = word[n] == '=' ? word + n + 1 : NULL;
    const char *name = resolve_alias(set, word, &n);
    struct found f = find(set, name, n);
    const struct zt_option *o;
    bool clear = false;
    struct value *v;

    if (f.row < 0 && n > 3 && same_name("no_", name, 3)) {
        f = find(set, name + 3, n - 3);
        clear = f.row >= 0 && set->tables[f.table][f.row].kind == ZT_OPT_FLAG;
    }
    if (f.row < 0 || (!clear && !same_name(set->tables[f.table][f.row].name, name, n))) {
        const char *why = refusal(set, name, n);

        if (why)
            zt_fault_add(fault, ZT_E_UNSUPPORTED, "--%.*s: %s", (int)n, name, why);
        else
            unknown(set, name, n, fault);
        if (!text && i + 1 < argc && !begins_option(argv[i + 1]))
            i++; /* its value, most likely: no second complaint about that */
        return i;
    }
    o = &set->tables[f.table][f.row];
    v = &args[f.table]->values[f.row];
    if (o->kind == ZT_OPT_LIST) {
        i = take_list(v, o, text, argc, argv, i, fault);
        v->origin = ZT_FROM_FLAG;
        return i;
    }
    if (clear) {
        text = "false";
    } else if (o->kind == ZT_OPT_FLAG) {
        bool b;

        /* "--flag" alone, or as HF users write it, "--flag True" */
        if (!text && i + 1 < argc && zt_parse_bool(argv[i + 1], &b))
            text = argv[++i];
        text = text ? text : "true";
    } else if (!text && i + 1 < argc && !begins_option(argv[i + 1])) {
        text = argv[++i];
    }
    if (!text) {
        zt_fault_add(fault, ZT_E_USAGE, "--%s needs a value", o->name);
        return i;
    }
    check_value(o, text, "--", fault);
    v->text = text;
    v->origin = ZT_FROM_FLAG;
    return i;
}

/* ZLAUNCH_<NAME>, for what the command line may still overrule. */
static void take_environment(zt_args *args, struct zt_fault *fault)
{
    for (int i = 0; i < args->num; i++) {
        const struct zt_option *o = &args->table[i];
        char name[96] = "ZLAUNCH_";
        const char *text;

        for (size_t k = 0; o->name[k] && k + 9 < sizeof(name); k++)
            name[8 + k] = (char)toupper((unsigned char)o->name[k]);
        text = getenv(name);
        if (!text || !*text)
            continue;
        check_value(o, text, "the environment's --", fault);
        args->values[i].text = text;
        args->values[i].origin = ZT_FROM_ENV;
        if (o->kind == ZT_OPT_LIST && !add_word(&args->values[i], text))
            zt_fault_add(fault, ZT_E_NOMEM, "%s: no memory for the list", name);
    }
}

static zt_args *open_args(const struct zt_option *table)
{
    int num = 0;
    zt_args *args;

    while (table[num].name)
        num++;
    args = calloc(1, sizeof(*args) + (size_t)num * sizeof(args->values[0]));
    if (!args)
        return NULL;
    args->table = table;
    args->num = num;
    for (int i = 0; i < num; i++)
        args->values[i].text = table[i].def;
    return args;
}

void zt_args_close(zt_args *args)
{
    if (!args)
        return;
    for (int i = 0; i < args->num; i++)
        free(args->values[i].words);
    free(args);
}

zt_err zt_options_parse(int argc, char **argv, const struct zt_option_set *set,
                        zt_args *out[ZT_MAX_OPTION_TABLES], struct zt_fault *fault)
{
    struct zt_fault problems = {0};

    memset(out, 0, ZT_MAX_OPTION_TABLES * sizeof(*out));
    for (int t = 0; t < ZT_MAX_OPTION_TABLES && set->tables[t]; t++) {
        out[t] = open_args(set->tables[t]);
        if (!out[t]) {
            zt_fault_add(&problems, ZT_E_NOMEM, "options: no memory");
            break;
        }
        take_environment(out[t], &problems);
    }
    for (int i = 0; i < argc && problems.code != ZT_E_NOMEM; i++) {
        if (begins_option(argv[i]))
            i = take_option(set, out, argc, argv, i, &problems);
        else
            zt_fault_add(&problems, ZT_E_USAGE, "'%s' belongs to no option", argv[i]);
    }
    if (!problems.code)
        return ZT_OK;
    for (int t = 0; t < ZT_MAX_OPTION_TABLES; t++) {
        zt_args_close(out[t]);
        out[t] = NULL;
    }
    return zt_fault_set(fault, problems.code, "%s", problems.text);
}

/* ---- reading ---- */

static const struct value *value_of(const zt_args *args, const char *name)
{
    static const struct value none = {0};

    for (int i = 0; i < args->num; i++)
        if (!strcmp(args->table[i].name, name))
            return &args->values[i];
    return &none;
}

bool zt_args_flag(const zt_args *args, const char *name)
{
    const char *text = value_of(args, name)->text;
    bool b = false;

    return text && zt_parse_bool(text, &b) && b;
}

int64_t zt_args_int(const zt_args *args, const char *name)
{
    const char *text = value_of(args, name)->text;
    int64_t n = 0;

    return text && zt_parse_int(text, &n) ? n : 0;
}

double zt_args_float(const zt_args *args, const char *name)
{
    const char *text = value_of(args, name)->text;
    double v = 0;

    return text && zt_parse_float(text, &v) ? v : 0;
}

const char *zt_args_string(const zt_args *args, const char *name)
{
    return value_of(args, name)->text;
}

const char *zt_args_text(const zt_args *args, const char *name)
{
    return value_of(args, name)->text;
}

bool zt_args_given(const zt_args *args, const char *name)
{
    return value_of(args, name)->origin != ZT_FROM_DEFAULT;
}

zt_origin zt_args_origin(const zt_args *args, const char *name)
{
    return value_of(args, name)->origin;
}

const char *const *zt_args_list(const zt_args *args, const char *name)
{
    static const char *const empty[] = {NULL};
    const struct value *v = value_of(args, name);

    return v->words ? v->words : empty;
}

/* ---- pages ---- */

static const char *value_word(const struct zt_option *o)
{
    if (o->kind == ZT_OPT_FLAG)
        return NULL;
    if (o->kind == ZT_OPT_CHOICE)
        return o->choices;
    return o->value ? o->value : "VALUE";
}

/* `text` in lines of `width`, each but the first behind `indent` blanks. */
static void wrap(FILE *out, const char *text, int indent, int width)
{
    int at = 0;

    while (*text) {
        int n = (int)strcspn(text, " ");

        if (at && at + 1 + n > width) {
            fprintf(out, "\n%*s", indent, "");
            at = 0;
        }
        at += fprintf(out, at ? " %.*s" : "%.*s", n, text);
        text += n;
        text += *text == ' ';
    }
    fputc('\n', out);
}

void zt_options_print_help(FILE *out, const char *title, const struct zt_option *table)
{
    const int indent = 34, width = 56;

    fprintf(out, "%s:\n", title);
    for (const struct zt_option *o = table; o->name; o++) {
        const char *word = value_word(o);
        char text[512];
        int n = fprintf(out, word ? "  --%s %s" : "  --%s", o->name, word);

        if (o->def && o->kind != ZT_OPT_FLAG)
            snprintf(text, sizeof(text), "%s (default: %s)", o->help, o->def);
        else
            snprintf(text, sizeof(text), "%s", o->help);
        if (n >= indent)
            fprintf(out, "\n%*s", indent, "");
        else
            fprintf(out, "%*s", indent - n, "");
        wrap(out, text, indent, width);
    }
}

void zt_options_print_man(FILE *out, const struct zt_option *table)
{
    for (const struct zt_option *o = table; o->name; o++) {
        const char *word = value_word(o);

        fprintf(out, ".TP\n\\fB\\-\\-%s\\fR", o->name);
        if (word)
            fprintf(out, " \\fI%s\\fR", word);
        fprintf(out, "\n%s.", o->help);
        if (o->def && o->kind != ZT_OPT_FLAG)
            fprintf(out, " Default: %s.", o->def);
        fputc('\n', out);
    }
}
