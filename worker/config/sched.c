/* sched.c -- the learning-rate schedule of a run, from the config or from options. */
#include <math.h>

#include "common/log.h"
#include "worker/config/resolve.h"

/* ---- from options alone ---- */

/* A schedule without a warm-up cannot do what these options ask for. */
static void check_warmup_options(struct zt_config *c, const char *type)
{
    const struct zt_value *steps = zt_args_value(c->args, "warmup_steps");
    const struct zt_value *ratio = zt_args_value(c->args, "warmup_ratio");
    const struct zt_value *given = steps->integer > 0 ? steps : ratio;

    if (steps->integer > 0 || ratio->real > 0)
        zt_problems_add(&c->report, zt_value_error(given),
                        "%s has no effect with lr_scheduler_type %s; "
                        "constant_with_warmup has a warm-up",
                        given->where, type);
}

static void resolve_from_options(struct zt_config *c, struct zt_sched_config *s)
{
    const char *type = zt_args_string(c->args, "lr_scheduler_type");

    s->schedule = zt_schedule_of_option(type);
    if (!s->schedule)
        return; /* the option's own check reports it */
    for (const struct zt_hyperparam *p = s->schedule->params; p->name; p++)
        s->value[p->slot] = zt_hyper_from_options(c, p);
    if (!zt_hyper_with_rule(s->schedule->params, ZT_RULE_WARMUP_STEPS))
        check_warmup_options(c, type);
}

/* ---- from the config ---- */

/* The steps of the run: the file's number, or "auto" for what zt_run_resolve() learns. */
static void resolve_run_steps(struct zt_config *c, const struct zt_item *type,
                              const struct zt_hyperparam *p, struct zt_sched_config *s)
{
    const char *path = zt_hyper_path(c, "scheduler", p);
    const struct zt_item *item = zt_config_find(c, path);
    const struct zt_value *max_steps = zt_option_given(c, "max_steps");
    const struct zt_jnode *params =
        zt_jnode_get(zt_jnode_get(c->root, "scheduler"), "params");
    int64_t total;

    if (!item && !zt_jnode_get(params, p->name)) /* one that is no good is reported */
        zt_problems_add(
            &c->report, ZT_E_CONFIG,
            "%s: %s needs \"%s\" (a number, or \"auto\" for the steps of the run)",
            type->where, s->schedule->type, path);
    if (!item || item->is_auto)
        return;
    total = zt_resolve_int(c, path, NULL, "0");
    s->value[p->slot] = (double)total;
    if (max_steps && max_steps->integer > 0 && max_steps->integer != total)
        zt_problems_add(
            &c->report, ZT_E_CONFIG,
            "%s: \"%s\" is %lld, but %s is %s; make them agree, or write \"auto\" in the "
            "file",
            item->where, p->name, (long long)total, max_steps->where, max_steps->text);
}

static void resolve_section(struct zt_config *c, const struct zt_item *type, double lr,
                            struct zt_sched_config *s)
{
    struct zt_hyper_source src = {
        .section = "scheduler", .written = true, .rows = s->schedule->params, .lr = lr};
    const struct zt_hyperparam *p = zt_hyper_with_rule(src.rows, ZT_RULE_RUN_STEPS);
    const struct zt_value *option = zt_option_given(c, "lr_scheduler_type");
    struct zt_fault fault = {0};

    if (option)
        zt_problems_add(&c->report, ZT_E_CONFIG,
                        "%s: \"scheduler.type\" is \"%s\", but %s is %s; keep one",
                        type->where, type->value->text, option->where, option->text);
    zt_resolve(c, "scheduler.type", NULL,
               zt_text_arena_printf(&c->arena, "\"%s\"", s->schedule->type));
    zt_resolve_hyperparams(c, &src, s->value);
    if (s->schedule->check && s->schedule->check(s->value, &fault))
        zt_problems_add(&c->report, fault.code, "scheduler: %s", fault.text);
    if (p)
        resolve_run_steps(c, type, p, s);
}

/* As in Trainer. */
static void tell_two_warmups(struct zt_config *c)
{
    const struct zt_value *steps = zt_option_given(c, "warmup_steps");
    const struct zt_value *ratio = zt_option_given(c, "warmup_ratio");

    if (steps && steps->integer && ratio && ratio->real > 0)
        zt_problems_note(&c->report, "%s %s gives way to %s %s", ratio->where,
                         ratio->text, steps->where, steps->text);
}

void zt_resolve_scheduler(struct zt_config *c, struct zt_run *run)
{
    const struct zt_item *type = zt_config_find(c, "scheduler.type");
    struct zt_sched_config *s = &run->sched;

    tell_two_warmups(c);
    if (!zt_config_has_section(c, "scheduler")) {
        resolve_from_options(c, s);
        return;
    }
    zt_config_check_type(c, "scheduler");
    s->schedule = type ? zt_schedule_find(type->value->text) : NULL;
    if (s->schedule) /* else it is no good, which is reported already */
        resolve_section(c, type, run->optim.value[ZT_OPTIM_LR], s);
}

/* ---- once the data are known ---- */

/* The warm-up as a share of the run, where --warmup_ratio decides. */
static void resolve_warmup_ratio(struct zt_config *c, const struct zt_hyperparam *p,
                                 int64_t total, double *value)
{
    const char *path = zt_hyper_path(c, "scheduler", p);
    bool section = zt_config_has_section(c, "scheduler");
    const struct zt_item *item = section ? zt_config_find(c, path) : NULL;
    const struct zt_value *ratio = zt_option_given(c, "warmup_ratio");
    double share = zt_args_float(c->args, "warmup_ratio");
    int64_t steps = (int64_t)ceil((double)total * share);

    if (zt_args_int(c->args, "warmup_steps") != 0 || share <= 0)
        return;
    if (item && !item->is_auto) {
        if (ratio && (double)steps != value[p->slot])
            zt_problems_add(&c->report, ZT_E_CONFIG,
                            "%s: \"%s\" is %lld, but %s makes it %lld; make them agree",
                            item->where, path, (long long)value[p->slot], ratio->where,
                            (long long)steps);
        return;
    }
    value[p->slot] = (double)steps;
    if (section)
        zt_config_set(c, path, zt_int_node(&c->arena, steps),
                      "rule: warmup_ratio * steps of the run");
}

/* Nobody wants that, but for a trial of a few steps; a warm-up between two equal rates is one in
 * name alone. */
static void tell_long_warmup(const struct zt_run *run, double warmup, int64_t total)
{
    double base = run->optim.value[ZT_OPTIM_LR];
    static bool told;

    if (told || run->rank || !run->do_train || warmup < (double)total ||
        zt_sched_lr(&run->sched, base, total) ==
            zt_sched_lr(&run->sched, base, (int64_t)warmup + 1))
        return;
    told = true;
    zt_info("config",
            "the warm-up has %.0f steps and the run %lld: the learning rate does not get "
            "to where it is meant to be",
            warmup, (long long)total);
}

/* A schedule of a number of steps in the file, for a run of another. Trainer refuses it. */
static void tell_other_steps(const struct zt_run *run, const struct zt_item *item,
                             int64_t steps, int64_t total)
{
    static bool told;

    if (told || run->rank || !run->do_train || steps == total)
        return;
    told = true;
    zt_log(
        steps < total ? ZT_LOG_WARN : ZT_LOG_INFO, "config",
        "%s: \"%s\" is %lld and the run has %lld steps: the learning rate %s; \"auto\" "
        "is the steps of the run",
        item->where, item->path, (long long)steps, (long long)total,
        steps < total ? "stays where that schedule ends"
                      : "does not get to where that schedule ends");
}

void zt_resolve_steps(struct zt_config *c, struct zt_run *run, int64_t total)
{
    struct zt_sched_config *s = &run->sched;
    const struct zt_hyperparam *warmup, *p;
    const struct zt_item *item;

    if (!s->schedule)
        return; /* that is a problem which was reported */
    warmup = zt_hyper_with_rule(s->schedule->params, ZT_RULE_WARMUP_STEPS);
    p = zt_hyper_with_rule(s->schedule->params, ZT_RULE_RUN_STEPS);
    if (warmup)
        resolve_warmup_ratio(c, warmup, total, s->value);
    if (warmup)
        tell_long_warmup(run, s->value[warmup->slot], total);
    if (!p)
        return;
    if (!zt_config_has_section(c, "scheduler")) {
        s->value[p->slot] = (double)total;
        return;
    }
    item = zt_config_find(c, zt_hyper_path(c, "scheduler", p));
    if (item && !item->is_auto)
        tell_other_steps(run, item, (int64_t)s->value[p->slot], total);
    if (!item || !item->is_auto)
        return;
    s->value[p->slot] = (double)total;
    zt_config_set(c, item->path, zt_int_node(&c->arena, total), "auto: steps of the run");
}
