/* batch.c -- batch sizes of a run: B = m * g * W. */
#include "worker/config/resolve.h"

#define TOTAL "train_batch_size"
#define MICRO "train_micro_batch_size_per_gpu"
#define ACCUM "gradient_accumulation_steps"

/* One of the three: what file or option say. */
struct batch_part {
    const char *path, *option;
    int64_t value; /* 0: nobody says */
    const char *origin;
};

static void read_part(struct zt_config *c, struct batch_part *p)
{
    const struct zt_item *item = zt_config_find(c, p->path);
    const struct zt_value *given = zt_option_given(c, p->option);
    const struct zt_value *any = p->option ? zt_args_value(c->args, p->option) : NULL;

    if ((item && !item->is_auto) || given || (item && any)) {
        p->value = zt_resolve_int(c, p->path, p->option, NULL);
        p->origin = zt_jnode_get(c->resolved, p->path)->comment;
    }
}

static void set_by_rule(struct zt_config *c, struct batch_part *p, int64_t value,
                        const char *rule)
{
    p->value = value;
    p->origin = rule;
    zt_config_set(c, p->path, zt_int_node(&c->arena, value), rule);
}

void zt_resolve_batch(struct zt_config *c, struct zt_run *run)
{
    struct batch_part B = {.path = TOTAL};
    struct batch_part m = {.path = MICRO, .option = "per_device_train_batch_size"};
    struct batch_part g = {.path = ACCUM, .option = "gradient_accumulation_steps"};
    const struct zt_item *total = zt_config_find(c, TOTAL);
    const struct zt_value *micro = zt_args_value(c->args, m.option);
    int64_t W = run->world, product;

    /* their places in the resolved tree, whichever is known first */
    zt_config_set(c, TOTAL, zt_int_node(&c->arena, 0), NULL);
    zt_config_set(c, MICRO, zt_int_node(&c->arena, 0), NULL);
    zt_config_set(c, ACCUM, zt_int_node(&c->arena, 0), NULL);
    if (total && !total->is_auto)
        read_part(c, &B);
    read_part(c, &m);
    read_part(c, &g);
    if (!m.value && !B.value)
        set_by_rule(c, &m, micro->integer, "default of --per_device_train_batch_size");
    if (B.value && m.value && !g.value)
        set_by_rule(c, &g, B.value / m.value / W,
                    "rule: train_batch_size / micro batch / ranks");
    else if (B.value && g.value && !m.value)
        set_by_rule(c, &m, B.value / W / g.value,
                    "rule: train_batch_size / ranks / steps");
    else if (!g.value)
        set_by_rule(c, &g, 1, "default");
    if (!m.value && B.value)
        set_by_rule(c, &m, B.value / W / g.value, "rule: train_batch_size / ranks");
    run->micro_batch_size = m.value;
    run->grad_accum_steps = g.value;
    if (__builtin_mul_overflow(m.value, g.value, &product) ||
        __builtin_mul_overflow(product, W, &product)) {
        zt_problems_add(&c->report, ZT_E_CONFIG, "the batch is too large to count");
        product = 0;
    } else if (!B.value) {
        set_by_rule(c, &B, product,
                    total ? "auto: micro batch * steps * ranks"
                          : "rule: micro batch * steps * ranks");
    } else if (B.value != product || product == 0) {
        zt_problems_add(&c->report, ZT_E_CONFIG,
                        "train_batch_size %lld (%s) is not "
                        "train_micro_batch_size_per_gpu %lld (%s) * "
                        "gradient_accumulation_steps %lld (%s) * %lld ranks",
                        (long long)B.value, B.origin, (long long)m.value, m.origin,
                        (long long)g.value, g.origin, (long long)W);
    }
    run->train_batch_size = B.value;
}
