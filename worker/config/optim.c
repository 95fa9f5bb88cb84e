/* optim.c -- the optimizer of a run. */
#include "worker/config/resolve.h"

/* The optimizer that file and option name; what they name beside the built ones is
 * reported where it was read. */
static const struct zt_optimizer *named_optimizer(struct zt_config *c)
{
    const struct zt_item *type = zt_config_find(c, "optimizer.type");
    const char *option = zt_args_string(c->args, "optim");
    const struct zt_optimizer *o =
        type ? zt_optimizer_find(type->value->text)
             : zt_optimizer_of_option(zt_option_given(c, "optim") ? option : "");

    return o ? o : zt_optimizers[0];
}

static void check_option(struct zt_config *c, const struct zt_optimizer *o)
{
    const struct zt_value *given = zt_option_given(c, "optim");
    const struct zt_optimizer *wanted =
        given ? zt_optimizer_of_option(given->text) : NULL;

    if (wanted && wanted != o)
        zt_problems_add(&c->report, ZT_E_CONFIG,
                        "%s asks for %s, but the config's optimizer is %s (%s)",
                        given->where, wanted->name, o->name, o->help);
}

/* DeepSpeed's AdamW is decoupled whatever this says. */
static void tell_of_adam_w_mode(struct zt_config *c, const struct zt_optimizer *o)
{
    const struct zt_item *mode = zt_config_find(c, "optimizer.params.adam_w_mode");

    if (mode && !mode->value->boolean && !o->variant)
        zt_problems_note(&c->report,
                         "%s: \"%s\": false has no effect with %s, which is always "
                         "decoupled; with \"type\": \"Adam\" it has",
                         mode->where, mode->path, o->name);
}

void zt_resolve_optimizer(struct zt_config *c, struct zt_run *run)
{
    const struct zt_optimizer *o = named_optimizer(c), *variant;
    struct zt_hyper_source src = {.section = "optimizer",
                                  .written = zt_config_has_section(c, "optimizer"),
                                  .rows = o->params,
                                  .optimizer = o};

    zt_config_check_type(c, "optimizer");
    zt_resolve(c, "optimizer.type", NULL,
               zt_text_arena_printf(&c->arena, "\"%s\"", o->name));
    zt_resolve_hyperparams(c, &src, run->optim.value);
    variant = o->variant ? o->variant(run->optim.value) : NULL;
    run->optim.optimizer = variant ? variant : o;
    tell_of_adam_w_mode(c, o);
    check_option(c, run->optim.optimizer);
}
