/*
 * derive.c -- keys of optimizers and schedules, from their rows in worker/optim.
 *
 * A section is its static rows (optim.c) with three changes: the built types are added to
 * those of "type", the parameters of built ones stand behind "params", and static rows of
 * the same names are left out.
 */
#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "common/suggest.h"
#include "worker/config/schema/rows.h"

#define MAX_KEYS   192
#define TEXT_BYTES 8192

/* Made once; the texts of the rows are kept in `text`. */
static struct {
    pthread_once_t once;
    struct zt_key keys[MAX_KEYS];
    int num_keys;
    char text[TEXT_BYTES];
    size_t used;
    const char *optim_names, *sched_names;
} made = {.once = PTHREAD_ONCE_INIT};

/* A section: what is built, each with the name that its "type" has. */
struct built {
    const char *section; /* "optimizer" */
    const char *types[32];
    const struct zt_hyperparam *params[32];
    int num;
};

/* ---- texts ---- */

/* a, between, b, kept with the rows; a or b may be NULL or empty: then the other alone. */
static const char *join(const char *a, const char *between, const char *b)
{
    char *at = made.text + made.used;
    bool both = a && *a && b && *b;
    int n = snprintf(at, TEXT_BYTES - made.used, "%s%s%s", a ? a : "",
                     both ? between : "", b ? b : "");

    assert(n >= 0 && (size_t)n < TEXT_BYTES - made.used);
    made.used += (size_t)n + 1;
    return at;
}

/* The words of `from` that are not in `words`, behind them. */
static const char *add_words(const char *words, const char *from)
{
    char word[64];

    for (const char *w = from; w && *w; w += strcspn(w, "|"), w += *w == '|') {
        snprintf(word, sizeof(word), "%.*s", (int)strcspn(w, "|"), w);
        if (!words || !zt_is_one_of(words, word, false))
            words = join(words, "|", word);
    }
    return words;
}

static const char *built_types(const struct built *b, const char *between)
{
    const char *all = NULL;

    for (int i = 0; i < b->num; i++)
        all = join(all, between, b->types[i]);
    return all;
}

/* ---- one row from a parameter ---- */

static zt_key_type key_type(zt_hyper_type type)
{
    static const zt_key_type types[] = {
        [ZT_HYPER_FLOAT] = ZT_KEY_FLOAT, [ZT_HYPER_INT] = ZT_KEY_INT,
        [ZT_HYPER_BOOL] = ZT_KEY_BOOL,   [ZT_HYPER_PAIR] = ZT_KEY_ARRAY,
        [ZT_HYPER_CHOICE] = ZT_KEY_ENUM,
    };

    return types[type];
}

/* What "auto" is, where it is not one option's value. */
static const char *auto_text(const struct zt_hyperparam *p)
{
    if (p->rule == ZT_RULE_RUN_STEPS)
        return "the steps of the run";
    if (p->rule == ZT_RULE_WARMUP_STEPS)
        return join("--", "", join(p->options[0], "", ", or --warmup_ratio * steps"));
    if (p->options[1])
        return join(join("--", "", p->options[0]), ", --", p->options[1]);
    return NULL;
}

/* The types that have a parameter of this name. */
static const char *types_with(const struct built *b, const char *name)
{
    const char *types = NULL;

    for (int i = 0; i < b->num; i++)
        if (zt_hyper_find(b->params[i], name))
            types = join(types, "|", b->types[i]);
    return types;
}

/* The default of the first that has one. */
static const char *default_of(const struct built *b, const char *name)
{
    const char *def = NULL;

    for (int i = 0; i < b->num && !def; i++) {
        const struct zt_hyperparam *p = zt_hyper_find(b->params[i], name);

        def = p ? p->def : NULL;
    }
    return def;
}

static struct zt_key *new_key(void)
{
    assert(made.num_keys < MAX_KEYS - 1);
    return &made.keys[made.num_keys++];
}

static void add_param(const struct built *b, const struct zt_hyperparam *p)
{
    *new_key() = (struct zt_key){
        .path = join(join(b->section, ".", "params"), ".", p->name),
        .type = key_type(p->type),
        .status = ZT_HONOURED,
        .flags = p->takes_auto ? ZT_KEY_AUTO : 0,
        .def = default_of(b, p->name),
        .choices = p->choices,
        .range = p->range,
        .length = p->type == ZT_HYPER_PAIR ? 2 : 0,
        .option = p->options[1] ? NULL : p->options[0],
        .auto_text = auto_text(p),
        .types = types_with(b, p->name),
        .why = p->remark,
    };
}

/* ---- a section ---- */

/* The first of the built ones that has this parameter; -1: none has. */
static int first_with(const struct built *b, const char *name)
{
    for (int i = 0; i < b->num; i++)
        if (zt_hyper_find(b->params[i], name))
            return i;
    return -1;
}

static void add_params(const struct built *b)
{
    for (int i = 0; i < b->num; i++)
        for (const struct zt_hyperparam *p = b->params[i]; p->name; p++)
            if (first_with(b, p->name) == i)
                add_param(b, p);
}

static void add_type(const struct built *b, const struct zt_key *other)
{
    struct zt_key *k = new_key();

    *k = *other;
    k->neutral = built_types(b, "|");
    k->choices = add_words(k->neutral, other->choices);
    k->why = join("built are ", "", built_types(b, ", "));
}

static void add_section(const struct built *b, const struct zt_key *others)
{
    size_t n = strlen(b->section);

    for (const struct zt_key *k = others; k->path; k++) {
        const char *name = k->path[n] ? k->path + n + 1 : "";
        bool is_param = !strncmp(name, "params.", 7);

        if (!strcmp(name, "type"))
            add_type(b, k);
        else if (!is_param || first_with(b, name + 7) < 0)
            *new_key() = *k;
        if (!strcmp(name, "params"))
            add_params(b);
    }
}

/* ---- all ---- */

static void make(void)
{
    struct built b = {.section = "optimizer"};

    for (int i = 0; zt_optimizers[i]; i++) {
        const struct zt_optimizer *o = zt_optimizers[i];

        b.types[b.num] = o->name;
        b.params[b.num++] = o->params;
        made.optim_names = add_words(made.optim_names, o->options);
        assert(b.num < 32);
    }
    add_section(&b, zt_keys_other_optimizers);
    b = (struct built){.section = "scheduler"};
    for (int i = 0; zt_schedules[i]; i++) {
        const struct zt_schedule *s = zt_schedules[i];

        made.sched_names = add_words(made.sched_names, s->options);
        if (!s->type)
            continue;
        b.types[b.num] = s->type;
        b.params[b.num++] = s->params;
        assert(b.num < 32);
    }
    add_section(&b, zt_keys_other_schedules);
}

const struct zt_key *zt_keys_optim(void)
{
    (void)pthread_once(&made.once, make);
    return made.keys;
}

const char *zt_optim_names(void)
{
    (void)pthread_once(&made.once, make);
    return made.optim_names;
}

const char *zt_lr_scheduler_type_names(void)
{
    (void)pthread_once(&made.once, make);
    return made.sched_names;
}
