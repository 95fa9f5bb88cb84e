/* run_numbers.c -- batch sizes, optimizer and schedule of a run. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "common/run_resolve.h"

/* ---- batch: B = m * g * W ---- */

#define TOTAL "train_batch_size"
#define MICRO "train_micro_batch_size_per_gpu"
#define ACCUM "gradient_accumulation_steps"

/* One of the three: what file or option say. */
struct part {
    const char *path, *option;
    int64_t value; /* 0: nobody says */
    const char *origin;
};

static void read_part(struct zt_config *c, struct part *p)
{
    const struct zt_item *item = zt_config_find(c, p->path);
    const struct zt_value *given = zt_explicit(c, p->option);
    const struct zt_value *any = p->option ? zt_args_value(c->args, p->option) : NULL;

    if ((item && !item->is_auto) || given || (item && any)) {
        p->value = zt_resolve_int(c, p->path, p->option, NULL);
        p->origin = zt_jnode_get(c->resolved, p->path)->comment;
    }
}

static void settle(struct zt_config *c, struct part *p, int64_t value, const char *rule)
{
    p->value = value;
    p->origin = rule;
    zt_config_set(c, p->path, zt_int_node(&c->keep, value), rule);
}

void zt_resolve_batch(struct zt_config *c, struct zt_run *run)
{
    struct part B = {.path = TOTAL};
    struct part m = {.path = MICRO, .option = "per_device_train_batch_size"};
    struct part g = {.path = ACCUM, .option = "gradient_accumulation_steps"};
    const struct zt_item *total = zt_config_find(c, TOTAL);
    const struct zt_value *micro = zt_args_value(c->args, m.option);
    int64_t W = run->world, product;

    /* their places in the resolved tree, whichever is known first */
    zt_config_set(c, TOTAL, zt_int_node(&c->keep, 0), NULL);
    zt_config_set(c, MICRO, zt_int_node(&c->keep, 0), NULL);
    zt_config_set(c, ACCUM, zt_int_node(&c->keep, 0), NULL);
    if (total && !total->is_auto)
        read_part(c, &B);
    read_part(c, &m);
    read_part(c, &g);
    if (!m.value && !B.value)
        settle(c, &m, micro->integer, "default of --per_device_train_batch_size");
    if (B.value && m.value && !g.value)
        settle(c, &g, B.value / m.value / W,
               "rule: train_batch_size / micro batch / ranks");
    else if (B.value && g.value && !m.value)
        settle(c, &m, B.value / W / g.value, "rule: train_batch_size / ranks / steps");
    else if (!g.value)
        settle(c, &g, 1, "default");
    if (!m.value && B.value)
        settle(c, &m, B.value / W / g.value, "rule: train_batch_size / ranks");
    run->micro_batch_size = m.value;
    run->grad_accum_steps = g.value;
    if (__builtin_mul_overflow(m.value, g.value, &product) ||
        __builtin_mul_overflow(product, W, &product)) {
        zt_report_problem(&c->report, ZT_E_CONFIG, "the batch is too large to count");
        product = 0;
    } else if (!B.value) {
        settle(c, &B, product,
               total ? "auto: micro batch * steps * ranks"
                     : "rule: micro batch * steps * ranks");
    } else if (B.value != product || product == 0) {
        zt_report_problem(&c->report, ZT_E_CONFIG,
                          "train_batch_size %lld (%s) is not "
                          "train_micro_batch_size_per_gpu %lld (%s) * "
                          "gradient_accumulation_steps %lld (%s) * %lld ranks",
                          (long long)B.value, B.origin, (long long)m.value, m.origin,
                          (long long)g.value, g.origin, (long long)W);
    }
    run->train_batch_size = B.value;
}

/* ---- optimizer ---- */

static bool has_type(const struct zt_jnode *section)
{
    const struct zt_jnode *type = zt_jnode_get(section, "type");

    return type && type->type != ZT_JSON_NULL;
}

/* "optimizer.params.betas": one pair from two options. */
static void resolve_betas(struct zt_config *c, struct zt_optim_config *o)
{
    static const char *const names[2] = {"adam_beta1", "adam_beta2"};
    const char *path = "optimizer.params.betas";
    const struct zt_item *item = zt_config_find(c, path);
    bool file = item && !item->is_auto && item->value->num_children == 2;
    struct zt_jnode *pair = zt_jnode_new(&c->keep, ZT_JSON_ARRAY, NULL);
    const char *origin = file ? item->where : "default";
    double beta[2];

    for (int i = 0; i < 2; i++) {
        const struct zt_value *v = zt_args_value(c->args, names[i]);
        const struct zt_value *given = zt_explicit(c, names[i]);

        beta[i] = v->real;
        if (file) {
            beta[i] = zt_node_real(i ? item->value->last : item->value->first);
            if (given && v->real != beta[i])
                zt_report_problem(&c->report, ZT_E_CONFIG,
                                  "%s: \"%s\" has %g, but %s is %s; make them agree",
                                  item->where, path, beta[i], v->where, v->text);
        } else if (given) {
            origin = item ? zt_keep_printf(&c->keep, "auto: %s", v->where) : v->where;
        }
        zt_jnode_add(pair, NULL, zt_real_node(&c->keep, beta[i]));
    }
    if (item && item->is_auto && !strcmp(origin, "default"))
        origin = "auto: the defaults of --adam_beta1, --adam_beta2";
    o->beta1 = beta[0];
    o->beta2 = beta[1];
    zt_config_set(c, path, pair, origin);
}

void zt_resolve_optimizer(struct zt_config *c, struct zt_run *run)
{
    struct zt_optim_config *o = &run->optim;
    const struct zt_jnode *written = zt_jnode_get(c->root, "optimizer");
    bool section = written && written->num_children;
    const struct zt_item *type = zt_config_find(c, "optimizer.type");
    const struct zt_value *optim = zt_explicit(c, "optim");
    bool adam, torch_adam;

    if (section && !has_type(written))
        zt_report_problem(&c->report, ZT_E_CONFIG, "%s: \"optimizer\" has no \"type\"",
                          c->file);
    zt_resolve(c, "optimizer.type", NULL, "AdamW");
    adam = type && !strcasecmp(type->value->text, "Adam");
    o->lr = zt_resolve_real(c, "optimizer.params.lr", "learning_rate",
                            section ? "0.001" : NULL);
    resolve_betas(c, o);
    o->eps = zt_resolve_real(c, "optimizer.params.eps", "adam_epsilon", "1e-08");
    torch_adam = zt_resolve_truth(c, "optimizer.params.torch_adam", NULL, "false");
    o->decoupled = zt_resolve_truth(c, "optimizer.params.adam_w_mode", NULL, "true");
    if (!adam)
        o->decoupled = true; /* the type says so */
    o->weight_decay = zt_resolve_real(c, "optimizer.params.weight_decay", "weight_decay",
                                      torch_adam && o->decoupled ? "0.01"
                                      : section                  ? "0"
                                                                 : NULL);
    o->bias_correction =
        zt_resolve_truth(c, "optimizer.params.bias_correction", NULL, "true");
    o->kind = o->decoupled ? ZT_OPTIM_ADAMW : ZT_OPTIM_ADAM;
    if (optim && !o->decoupled)
        zt_report_problem(&c->report, ZT_E_CONFIG,
                          "%s asks for AdamW, but the config's optimizer has "
                          "\"adam_w_mode\": false",
                          optim->where);
}

/* ---- schedule ---- */

static void hf_schedule(struct zt_config *c, struct zt_run *run)
{
    static const char *const names[] = {"linear", "cosine", "constant",
                                        "constant_with_warmup"};
    static const zt_sched_kind kinds[] = {ZT_SCHED_LINEAR, ZT_SCHED_COSINE,
                                          ZT_SCHED_CONSTANT,
                                          ZT_SCHED_CONSTANT_WITH_WARMUP};
    const char *type = zt_args_string(c->args, "lr_scheduler_type");
    const struct zt_value *warmup = zt_args_value(c->args, "warmup_steps");
    const struct zt_value *ratio = zt_args_value(c->args, "warmup_ratio");

    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        if (!strcmp(type, names[i]))
            run->sched.kind = kinds[i];
    run->sched.max_lr = run->optim.lr;
    run->sched.warmup_steps = warmup->integer;
    if (run->sched.kind == ZT_SCHED_CONSTANT && (warmup->integer > 0 || ratio->real > 0))
        zt_report_problem(&c->report, zt_code_of(warmup->integer > 0 ? warmup : ratio),
                          "%s has no effect with lr_scheduler_type constant; "
                          "constant_with_warmup has a warm-up",
                          warmup->integer > 0 ? warmup->where : ratio->where);
}

/* An empty section is none. */
static bool has_scheduler(const struct zt_config *c)
{
    const struct zt_jnode *section = zt_jnode_get(c->root, "scheduler");

    return section && section->num_children;
}

static bool is_auto(const struct zt_config *c, const char *path)
{
    const struct zt_item *item = zt_config_find(c, path);

    return item && item->is_auto;
}

void zt_resolve_scheduler(struct zt_config *c, struct zt_run *run)
{
    struct zt_sched_config *s = &run->sched;
    const struct zt_item *type = zt_config_find(c, "scheduler.type");
    const struct zt_value *other = zt_explicit(c, "lr_scheduler_type");
    const struct zt_item *total = zt_config_find(c, "scheduler.params.total_num_steps");
    const struct zt_value *max_steps = zt_explicit(c, "max_steps");
    bool decay;

    s->total_steps = run->max_steps > 0 ? run->max_steps : 0;
    if (!has_scheduler(c)) {
        hf_schedule(c, run);
        return;
    }
    if (!type) { /* written, but no good: that is reported already */
        if (!has_type(zt_jnode_get(c->root, "scheduler")))
            zt_report_problem(&c->report, ZT_E_CONFIG,
                              "%s: \"scheduler\" has no \"type\"", c->file);
        return;
    }
    if (other)
        zt_report_problem(&c->report, ZT_E_CONFIG,
                          "%s: \"scheduler.type\" is \"%s\", but %s is %s; keep one",
                          type->where, type->value->text, other->where, other->text);
    decay = !strcmp(type->value->text, "WarmupDecayLR");
    s->kind = decay ? ZT_SCHED_WARMUP_DECAY : ZT_SCHED_WARMUP;
    zt_resolve(c, "scheduler.type", NULL, "WarmupLR");
    s->min_lr = zt_resolve_real(c, "scheduler.params.warmup_min_lr", NULL, "0");
    s->max_lr =
        zt_resolve_real(c, "scheduler.params.warmup_max_lr", "learning_rate",
                        decay ? "0.001" : zt_real_node(&c->keep, run->optim.lr)->text);
    s->warmup_steps =
        zt_resolve_int(c, "scheduler.params.warmup_num_steps", "warmup_steps", "1000");
    s->warmup_log =
        strcmp(zt_resolve(c, "scheduler.params.warmup_type", NULL, "log")->text, "log") ==
        0;
    if (s->min_lr > s->max_lr)
        zt_report_problem(&c->report, ZT_E_CONFIG,
                          "scheduler: warmup_min_lr %g is above warmup_max_lr %g",
                          s->min_lr, s->max_lr);
    if (!decay)
        return;
    if (!total)
        zt_report_problem(
            &c->report, ZT_E_CONFIG,
            "%s: WarmupDecayLR needs \"scheduler.params.total_num_steps\" (a number, or "
            "\"auto\" for the steps of the run)",
            type->where);
    if (!total || total->is_auto)
        return; /* zt_run_resolve() knows */
    s->total_steps = zt_resolve_int(c, "scheduler.params.total_num_steps", NULL, "0");
    if (max_steps && max_steps->integer > 0 && max_steps->integer != s->total_steps)
        zt_report_problem(
            &c->report, ZT_E_CONFIG,
            "%s: \"total_num_steps\" is %lld, but %s is %s; make them agree, "
            "or write \"auto\" in the file",
            total->where, (long long)s->total_steps, max_steps->where, max_steps->text);
}

/* ---- once data and model are known ---- */

static int64_t ratio_steps(const struct zt_config *c, int64_t total)
{
    return (int64_t)ceil((double)total * zt_args_float(c->args, "warmup_ratio"));
}

void zt_resolve_steps(struct zt_config *c, struct zt_run *run, int64_t total)
{
    struct zt_sched_config *s = &run->sched;
    const char *path = "scheduler.params.warmup_num_steps";
    bool section = has_scheduler(c);
    bool by_ratio = zt_args_int(c->args, "warmup_steps") == 0 &&
                    zt_args_float(c->args, "warmup_ratio") > 0;
    const struct zt_item *item = zt_config_find(c, path);
    const struct zt_value *ratio = zt_explicit(c, "warmup_ratio");

    if (by_ratio && section && item && !item->is_auto) {
        if (ratio && ratio_steps(c, total) != s->warmup_steps)
            zt_report_problem(&c->report, ZT_E_CONFIG,
                              "%s: \"%s\" is %lld, but %s makes it %lld; make them agree",
                              item->where, path, (long long)s->warmup_steps, ratio->where,
                              (long long)ratio_steps(c, total));
    } else if (by_ratio) {
        s->warmup_steps = ratio_steps(c, total);
        if (section)
            zt_config_set(c, path, zt_int_node(&c->keep, s->warmup_steps),
                          "rule: warmup_ratio * steps of the run");
    }
    path = "scheduler.params.total_num_steps";
    if (s->kind == ZT_SCHED_WARMUP_DECAY && is_auto(c, path)) {
        s->total_steps = total;
        zt_config_set(c, path, zt_int_node(&c->keep, total), "auto: steps of the run");
    } else if (!section) {
        s->total_steps = total;
    }
}
