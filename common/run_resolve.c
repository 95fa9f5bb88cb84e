#include "common/run_resolve.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- nodes ---- */

struct zt_jnode *zt_int_node(struct zt_keep *keep, int64_t value)
{
    char text[24];

    snprintf(text, sizeof(text), "%lld", (long long)value);
    return zt_jnode_new(keep, ZT_JSON_NUMBER, text);
}

struct zt_jnode *zt_real_node(struct zt_keep *keep, double value)
{
    char text[ZT_REAL_TEXT];

    zt_real_text(value, text);
    return zt_jnode_new(keep, ZT_JSON_NUMBER, text);
}

double zt_node_real(const struct zt_jnode *node)
{
    return node && node->type == ZT_JSON_NUMBER ? strtod(node->text, NULL) : 0;
}

int64_t zt_node_int(const struct zt_jnode *node)
{
    int64_t i = 0;

    if (node && node->type == ZT_JSON_NUMBER)
        (void)zt_number_int(node->text, &i);
    return i;
}

/* A default of the table: a number, true, false, or "a string". */
static struct zt_jnode *text_node(struct zt_keep *keep, const char *text)
{
    double d;

    if (zt_number_real(text, &d))
        return zt_jnode_new(keep, ZT_JSON_NUMBER, text);
    if (!strcmp(text, "true") || !strcmp(text, "false"))
        return zt_jnode_new(keep, ZT_JSON_BOOL, text);
    return zt_jnode_new(keep, strcmp(text, "null") ? ZT_JSON_STRING : ZT_JSON_NULL, text);
}

static struct zt_jnode *option_node(struct zt_config *c, const char *option)
{
    const struct zt_option *o = zt_args_table(c->args);
    const struct zt_value *v = zt_args_value(c->args, option);

    while (strcmp(o->name, option) != 0)
        o++;
    switch (o->kind) {
    case ZT_OPT_FLAG:
        return zt_jnode_new(&c->keep, ZT_JSON_BOOL, v->truth ? "true" : "false");
    case ZT_OPT_INT:
        return zt_int_node(&c->keep, v->integer);
    case ZT_OPT_FLOAT:
        return zt_real_node(&c->keep, v->real);
    case ZT_OPT_STRING:
    case ZT_OPT_CHOICE:
    case ZT_OPT_LIST:
        break;
    }
    return zt_jnode_new(&c->keep, ZT_JSON_STRING, v->text ? v->text : "");
}

/* ---- one decision ---- */

const struct zt_value *zt_explicit(const struct zt_config *c, const char *option)
{
    const struct zt_value *v = option ? zt_args_value(c->args, option) : NULL;

    return v && v->from != ZT_FROM_DEFAULT ? v : NULL;
}

zt_err zt_code_of(const struct zt_value *v)
{
    return v->from == ZT_FROM_FILE ? ZT_E_CONFIG : ZT_E_USAGE;
}

static void contradiction(struct zt_config *c, const struct zt_item *item,
                          const struct zt_value *option, const struct zt_jnode *said)
{
    char a[64], b[64];

    zt_jnode_brief(item->value, a, sizeof(a));
    zt_jnode_brief(said, b, sizeof(b));
    zt_report_problem(
        &c->report, ZT_E_CONFIG,
        "%s: \"%s\" is %s, but %s is %s; make them agree, or write \"auto\" "
        "in the file",
        item->where, item->path, a, option->where, b);
}

const struct zt_jnode *zt_resolve(struct zt_config *c, const char *path,
                                  const char *option, const char *absent)
{
    static const struct zt_jnode nothing;
    const struct zt_item *item = zt_config_find(c, path);
    const struct zt_value *given = zt_explicit(c, option);
    const char *origin;
    struct zt_jnode *node;

    if (item && !item->is_auto) {
        node = item->value;
        origin = item->where;
        if (given && !zt_jnode_equal(node, option_node(c, option)))
            contradiction(c, item, given, option_node(c, option));
    } else if (given) {
        node = option_node(c, option);
        origin = item ? zt_keep_printf(&c->keep, "auto: %s", given->where) : given->where;
    } else if (item && option) {
        node = option_node(c, option);
        origin = zt_keep_printf(&c->keep, "auto: the default of --%s", option);
    } else {
        node = absent ? text_node(&c->keep, absent) : option_node(c, option);
        origin = item ? "auto: the default" : "default";
    }
    zt_config_set(c, path, node, origin);
    return node ? node : &nothing;
}

double zt_resolve_real(struct zt_config *c, const char *path, const char *option,
                       const char *absent)
{
    return zt_node_real(zt_resolve(c, path, option, absent));
}

int64_t zt_resolve_int(struct zt_config *c, const char *path, const char *option,
                       const char *absent)
{
    return zt_node_int(zt_resolve(c, path, option, absent));
}

bool zt_resolve_truth(struct zt_config *c, const char *path, const char *option,
                      const char *absent)
{
    return zt_resolve(c, path, option, absent)->truth;
}

/* ---- precision ---- */

/* How matrix products round what they multiply. */
static void resolve_products(struct zt_config *c, struct zt_run *run)
{
    const struct zt_value *tf32 = zt_args_value(c->args, "tf32");

    run->tf32 = tf32->truth && run->compute_dtype == ZT_F32;
    if (tf32->truth && !run->tf32)
        zt_report_note(&c->report, "%s changes nothing: no product is of fp32",
                       tf32->where);
}

/* A flag that goes on top of bf16. */
static bool resolve_upon_bf16(struct zt_config *c, const struct zt_run *run,
                              const char *option, const char *what)
{
    const struct zt_value *v = zt_args_value(c->args, option);

    if (v->truth && run->compute_dtype != ZT_BF16)
        zt_report_problem(&c->report, zt_code_of(v),
                          "%s is about %s in bf16: give --bf16 (or \"bf16\": "
                          "{\"enabled\": true}), or leave it out",
                          v->where, what);
    return v->truth;
}

static void resolve_precision(struct zt_config *c, struct zt_run *run)
{
    struct zt_scaler_config *s = &run->scaler;
    bool fp16 = zt_resolve_truth(c, "fp16.enabled", "fp16", NULL);
    bool bf16;

    s->loss_scale = zt_resolve_real(c, "fp16.loss_scale", NULL, "0");
    s->initial_scale_power =
        (int)zt_resolve_int(c, "fp16.initial_scale_power", NULL, "16");
    s->loss_scale_window = zt_resolve_int(c, "fp16.loss_scale_window", NULL, "1000");
    s->hysteresis = (int)zt_resolve_int(c, "fp16.hysteresis", NULL, "2");
    s->consecutive_hysteresis =
        zt_resolve_truth(c, "fp16.consecutive_hysteresis", NULL, "false");
    s->min_loss_scale = zt_resolve_real(c, "fp16.min_loss_scale", NULL, "1");
    bf16 = zt_resolve_truth(c, "bf16.enabled", "bf16", NULL);
    run->check_grad_overflow =
        zt_resolve_truth(c, "bf16.check_grad_overflow", NULL, "true");
    run->compute_dtype = fp16 ? ZT_F16 : bf16 ? ZT_BF16 : ZT_F32;
    resolve_products(c, run);
    run->fp8 = resolve_upon_bf16(c, run, "fp8", "linear layers of a run");
    run->stochastic_rounding =
        resolve_upon_bf16(c, run, "stochastic_rounding", "weights");
    if (fp16 && bf16) {
        const struct zt_jnode *f =
            zt_jnode_get(zt_jnode_get(c->resolved, "fp16"), "enabled");
        const struct zt_jnode *b =
            zt_jnode_get(zt_jnode_get(c->resolved, "bf16"), "enabled");
        bool options = zt_explicit(c, "fp16") && zt_explicit(c, "bf16");

        zt_report_problem(
            &c->report, options ? ZT_E_USAGE : ZT_E_CONFIG,
            "fp16.enabled (%s) and bf16.enabled (%s) exclude each other: choose one",
            f ? f->comment : "", b ? b->comment : "");
    }
    if (s->loss_scale == 0 &&
        s->min_loss_scale > (double)(1ull << s->initial_scale_power))
        zt_report_problem(&c->report, ZT_E_CONFIG,
                          "fp16.min_loss_scale %g is above the first scale, 2 to "
                          "fp16.initial_scale_power %d",
                          s->min_loss_scale, s->initial_scale_power);
}

/* ---- the rest ---- */

static const char *text_of(const struct zt_config *c, const char *option)
{
    return zt_args_string(c->args, option);
}

static void resolve_checkpointing(struct zt_config *c, struct zt_run *run)
{
    const char *path = "activation_checkpointing.partition_activations";
    const struct zt_item *item = zt_config_find(c, path);
    const struct zt_value *given = zt_args_value(c->args, "gradient_checkpointing");

    if (item && item->value->truth)
        zt_args_set_default(c->args, "gradient_checkpointing", "true",
                            "rule: partition_activations asks for it", &c->report);
    run->gradient_checkpointing = given->truth;
    if (item && item->value->truth && !given->truth)
        zt_report_problem(&c->report, ZT_E_CONFIG,
                          "%s: \"%s\" asks for recomputation, but %s is false",
                          item->where, path, given->where);
}

static void resolve_reports(struct zt_config *c, struct zt_run *run)
{
    const struct zt_item *item = zt_config_find(c, "steps_per_print");
    const struct zt_value *steps = zt_args_value(c->args, "logging_steps");

    run->logging_steps = steps->integer;
    if (item && !item->is_auto && item->value->type == ZT_JSON_NUMBER &&
        steps->from < ZT_FROM_ENV) {
        run->logging_steps = zt_node_int(item->value);
        zt_config_set(c, "steps_per_print", item->value, item->where);
    } else {
        if (item && !item->is_auto && item->value->type == ZT_JSON_NUMBER &&
            zt_node_int(item->value) != steps->integer)
            zt_report_note(&c->report, "%s: steps_per_print gives way to %s", item->where,
                           steps->where);
        zt_config_set(c, "steps_per_print", zt_int_node(&c->keep, steps->integer),
                      steps->where);
    }
    run->dump_state = zt_resolve_truth(c, "dump_state", NULL, "false");
}

static void resolve_task(struct zt_config *c, struct zt_run *run)
{
    const zt_args *a = c->args;
    const struct zt_value *tokens = zt_args_value(a, "generate_tokens");
    const struct zt_value *steps = zt_args_value(a, "max_steps");

    run->do_train = zt_args_flag(a, "do_train");
    run->do_eval = zt_args_flag(a, "do_eval");
    run->check_config = zt_args_flag(a, "check_config");
    run->dry_run = zt_args_flag(a, "dry_run");
    run->eval_fraction = zt_args_float(a, "eval_fraction");
    run->data_format = text_of(c, "data_format");
    run->output_dir = text_of(c, "output_dir");
    run->init_from = text_of(c, "model_name_or_path");
    run->resume_guard_overwrite = zt_args_flag(a, "overwrite_output_dir");
    run->max_steps = zt_args_int(a, "max_steps");
    run->num_train_epochs = zt_args_float(a, "num_train_epochs");
    run->block_size = zt_args_int(a, "block_size");
    run->seed = zt_args_int(a, "seed");
    run->eval_steps = zt_args_int(a, "eval_steps");
    run->eval_batches = zt_args_int(a, "eval_batches");
    run->fingerprint_steps = zt_args_int(a, "fingerprint_steps");
    run->per_device_eval_batch_size = zt_args_int(a, "per_device_eval_batch_size");
    run->threads = (int)zt_args_int(a, "threads");
    run->prompt = text_of(c, "prompt");
    if (run->prompt)
        zt_args_set_default(c->args, "generate_tokens", "100", "rule: there is a prompt",
                            &c->report);
    run->generate_tokens = tokens->integer;
    run->temperature = zt_args_float(a, "temperature");
    run->top_p = zt_args_float(a, "top_p");
    run->top_k = zt_args_int(a, "top_k");
    run->reduce_every_micro_batch = zt_args_flag(a, "reduce_every_micro_batch");
    run->device = text_of(c, "device");
    run->comm = text_of(c, "comm");
    run->share_gpu = zt_args_flag(a, "share_gpu");
    run->ordered_reductions = strcmp(text_of(c, "reduction_order"), "rank") == 0;
    run->trace = text_of(c, "trace");
    run->dataloader_drop_last =
        zt_resolve_truth(c, "dataloader_drop_last", "dataloader_drop_last", NULL);
    if (run->max_steps == 0)
        zt_report_problem(&c->report, zt_code_of(steps),
                          "%s: 0 steps are no training; leave out --do_train",
                          steps->where);
    if (!run->do_train && !run->do_eval && !run->generate_tokens && !run->check_config &&
        !run->dry_run)
        zt_report_problem(&c->report, ZT_E_USAGE,
                          "nothing to do: give --do_train, --do_eval or --prompt");
}

void zt_resolve_all(struct zt_config *c, struct zt_run *run)
{
    zt_resolve_batch(c, run);
    resolve_reports(c, run);
    zt_resolve_optimizer(c, run);
    zt_resolve_scheduler(c, run);
    run->max_grad_norm = zt_resolve_real(c, "gradient_clipping", "max_grad_norm", NULL);
    resolve_precision(c, run);
    zt_resolve_zero(c, run);
    resolve_checkpointing(c, run);
    resolve_task(c, run);
}
