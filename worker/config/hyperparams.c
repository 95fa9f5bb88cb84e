/* hyperparams.c -- parameters of optimizers and schedules, resolved by their rows. */
#include <stdlib.h>
#include <string.h>

#include "worker/config/resolve.h"

bool zt_config_has_section(const struct zt_config *c, const char *section)
{
    const struct zt_jnode *written = zt_jnode_get(c->root, section);

    return written && written->num_children; /* an empty section is none */
}

void zt_config_check_type(struct zt_config *c, const char *section)
{
    const struct zt_jnode *type = zt_jnode_get(zt_jnode_get(c->root, section), "type");

    if (zt_config_has_section(c, section) && (!type || type->type == ZT_JSON_NULL))
        zt_problems_add(&c->report, ZT_E_CONFIG, "%s: \"%s\" has no \"type\"", c->file,
                        section);
}

const char *zt_hyper_path(struct zt_config *c, const char *section,
                          const struct zt_hyperparam *p)
{
    return zt_text_arena_printf(&c->arena, "%s.params.%s", section, p->name);
}

/* ---- defaults ---- */

/* 0.0 in a table is 0 in the resolved config. */
static const char *default_text(struct zt_config *c, const struct zt_hyperparam *p)
{
    return p->def && p->type == ZT_HYPER_FLOAT
               ? zt_double_node(&c->arena, strtod(p->def, NULL))->text
               : p->def;
}

/* What the value is when neither file nor option has one; NULL: the option's default. */
static const char *absent_text(struct zt_config *c, const struct zt_hyper_source *src,
                               const struct zt_hyperparam *p, const double *value)
{
    const struct zt_optimizer *o = src->optimizer;
    const char *special = o && o->default_of ? o->default_of(o, p, value) : NULL;

    if (special)
        return special;
    if (p->rule == ZT_RULE_LR)
        return zt_double_node(&c->arena, src->lr)->text;
    return src->written || !p->options[0] ? default_text(c, p) : NULL;
}

/* ---- a pair ---- */

static double element(const struct zt_jnode *pair, int i)
{
    return zt_node_double(i ? pair->last : pair->first);
}

/* The pair of a row's default; zeros where it has none. */
static void default_pair(const struct zt_hyperparam *p, double out[2])
{
    const char *second = p->def ? strchr(p->def, ',') : NULL;

    out[0] = p->def ? strtod(p->def + 1, NULL) : 0;
    out[1] = second ? strtod(second + 1, NULL) : 0;
}

static const char *auto_pair_origin(struct zt_config *c, const struct zt_hyperparam *p)
{
    return zt_text_arena_printf(&c->arena, "auto: the defaults of --%s, --%s",
                                p->options[0], p->options[1]);
}

/* One array of the file from two options. */
static void resolve_pair(struct zt_config *c, const struct zt_hyper_source *src,
                         const struct zt_hyperparam *p, double out[2])
{
    const char *path = zt_hyper_path(c, src->section, p);
    const struct zt_item *item = zt_config_find(c, path);
    bool file = item && !item->is_auto && item->value->num_children == 2;
    struct zt_jnode *pair = zt_jnode_new(&c->arena, ZT_JSON_ARRAY, NULL);
    const char *origin = file                    ? item->where
                         : item && item->is_auto ? auto_pair_origin(c, p)
                                                 : "default";

    default_pair(p, out);
    for (int i = 0; i < 2; i++) {
        const struct zt_value *v = zt_args_value(c->args, p->options[i]);
        const struct zt_value *given = zt_option_given(c, p->options[i]);

        if (file)
            out[i] = element(item->value, i);
        else if (given || !src->written || item)
            out[i] = v->real;
        if (!file && !zt_range_has(p->range, out[i]))
            zt_problems_add(&c->report, zt_value_error(v), "%s: %s is not in %s",
                            v->where, v->text, p->range);
        if (file && given && v->real != out[i])
            zt_problems_add(&c->report, ZT_E_CONFIG,
                            "%s: \"%s\" has %g, but %s is %s; make them agree",
                            item->where, path, out[i], v->where, v->text);
        else if (!file && given)
            origin =
                item ? zt_text_arena_printf(&c->arena, "auto: %s", v->where) : v->where;
        zt_jnode_add(pair, NULL, zt_double_node(&c->arena, out[i]));
    }
    zt_config_set(c, path, pair, origin);
}

/* ---- one row ---- */

/* The index of a word in "a|b|c"; the reader has checked that it is one of them. */
static int choice_index(const char *choices, const char *word)
{
    int index = 0;

    for (const char *w = choices; w; w = strchr(w, '|'), index++) {
        w += *w == '|';
        if (word && strcspn(w, "|") == strlen(word) && !strncmp(w, word, strlen(word)))
            return index;
    }
    return 0;
}

static double number_of(const struct zt_hyperparam *p, const struct zt_jnode *node)
{
    switch (p->type) {
    case ZT_HYPER_BOOL:
        return node->boolean;
    case ZT_HYPER_INT:
        return (double)zt_node_int(node);
    case ZT_HYPER_CHOICE:
        return choice_index(p->choices, node->text);
    case ZT_HYPER_FLOAT:
    case ZT_HYPER_PAIR:
        break;
    }
    return zt_node_double(node);
}

/* Kernels compute in single precision, where 0.99999999 is 1 and 1e-50 is 0. */
static void check_single(struct zt_config *c, const struct zt_hyperparam *p,
                         const char *path, const char *option, double value)
{
    const struct zt_item *item = zt_config_find(c, path);
    const struct zt_value *given = zt_option_given(c, option);
    bool file = item && !item->is_auto;
    char text[ZT_DOUBLE_TEXT];

    if (!zt_range_has(p->range, value) || zt_range_has(p->range, (float)value))
        return;
    zt_format_double(value, text);
    zt_problems_add(&c->report, file || !given ? ZT_E_CONFIG : zt_value_error(given),
                    "%s: \"%s\" must be in %s, and %s is not in single precision, in "
                    "which it is %g",
                    file    ? item->where
                    : given ? given->where
                            : c->file,
                    path, p->range, text, (double)(float)value);
}

/* A schedule's rate that is "auto" is --learning_rate, and what that is without the option the
 * optimizer's section may say. */
static bool is_rate_of_optimizer(const struct zt_config *c,
                                 const struct zt_hyper_source *src,
                                 const struct zt_hyperparam *p, const char *path)
{
    static const char option[] = "learning_rate";
    const struct zt_item *item = zt_config_find(c, path);

    return !src->optimizer && item && item->is_auto && p->options[0] &&
           strcmp(p->options[0], option) == 0 && !zt_option_given(c, option);
}

double zt_hyper_from_options(struct zt_config *c, const struct zt_hyperparam *p)
{
    const struct zt_value *v =
        p->options[0] ? zt_args_value(c->args, p->options[0]) : NULL;
    const struct zt_jnode *node;

    if (v)
        return p->type == ZT_HYPER_INT    ? (double)v->integer
               : p->type == ZT_HYPER_BOOL ? v->boolean
                                          : v->real;
    node = p->def ? zt_jtree_parse(&c->arena, p->name, p->def, strlen(p->def), &c->report)
                  : NULL;
    return node ? number_of(p, node) : 0;
}

void zt_resolve_hyperparams(struct zt_config *c, const struct zt_hyper_source *src,
                            double *value)
{
    for (const struct zt_hyperparam *p = src->rows; p->name; p++) {
        const char *path = zt_hyper_path(c, src->section, p);

        if (p->rule == ZT_RULE_RUN_STEPS)
            continue;
        if (p->type == ZT_HYPER_PAIR) {
            resolve_pair(c, src, p, value + p->slot);
        } else if (is_rate_of_optimizer(c, src, p, path)) {
            value[p->slot] = src->lr;
            zt_config_set(c, path, zt_double_node(&c->arena, src->lr),
                          "auto: the optimizer's lr");
        } else {
            value[p->slot] = number_of(
                p, zt_resolve(c, path, p->options[0], absent_text(c, src, p, value)));
        }
        if (p->type == ZT_HYPER_FLOAT || p->type == ZT_HYPER_PAIR)
            check_single(c, p, path, p->options[0], value[p->slot]);
        if (p->type == ZT_HYPER_PAIR)
            check_single(c, p, path, p->options[1], value[p->slot + 1]);
    }
}
