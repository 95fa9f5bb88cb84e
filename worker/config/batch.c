/* batch.c -- batch sizes of a run: B = m * g * W. */
#include "worker/config/resolve.h"

#define TOTAL "train_batch_size"
#define MICRO "train_micro_batch_size_per_gpu"
#define ACCUM "gradient_accumulation_steps"

#define MOST_TRIED (1 << 20) /* rows of a rank that are split in search of a fit */

/* One of the three: what file or option say. */
struct batch_part {
    const char *path, *option;
    int64_t value; /* 0: nobody says */
    const char *origin;
};

/* The whole. `own`: micro-batch times steps as far as somebody has said them; `fixed`: both
 * are said. */
struct batch {
    struct batch_part B, m, g;
    int64_t W, own;
    bool fixed;
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

/* The divisor of n that is nearest to `like`. */
static int64_t nearest_divisor(int64_t n, int64_t like)
{
    int64_t d = like < n ? like : n;

    for (int64_t k = 0; k < d; k++) {
        if (n % (d - k) == 0)
            return d - k;
        if (d + k <= n && n % (d + k) == 0)
            return d + k;
    }
    return 1;
}

/* ", or ...": micro-batches that make up the total as it is, if there are any. */
static void put_split(char *out, size_t cap, int64_t total, int64_t micro, int64_t W)
{
    int64_t rows = total / W;

    *out = 0;
    if (total % W || rows > MOST_TRIED)
        return;
    micro = nearest_divisor(rows, micro);
    snprintf(out, cap, ", or " MICRO " %lld with " ACCUM " %lld", (long long)micro,
             (long long)(rows / micro));
}

/* Totals next to the one that was asked for: multiples of `unit`. */
static void put_totals(char *out, size_t cap, int64_t total, int64_t unit)
{
    int64_t below = total / unit * unit, above;

    if (!below)
        snprintf(out, cap, TOTAL " %lld", (long long)unit);
    else if (__builtin_add_overflow(below, unit, &above) || below == total)
        snprintf(out, cap, TOTAL " %lld", (long long)below);
    else
        snprintf(out, cap, TOTAL " %lld or %lld", (long long)below, (long long)above);
}

/* The numbers do not fit together: which would. */
static void refuse_batch(struct zt_config *c, const struct batch *b)
{
    const struct batch_part *B = &b->B, *m = &b->m, *g = &b->g;
    char totals[128] = "", split[192] = "";
    int64_t unit;

    if (!__builtin_mul_overflow(b->own, b->W, &unit)) {
        put_totals(totals, sizeof(totals), b->fixed ? unit : B->value, unit);
        put_split(split, sizeof(split), B->value, m->value, b->W);
    }
    zt_problems_add(&c->report, ZT_E_CONFIG,
                    TOTAL " %lld (%s) is not " MICRO " %lld (%s) * " ACCUM
                          " %lld (%s) * %lld ranks%s%s%s",
                    (long long)B->value, B->origin, (long long)m->value, m->origin,
                    (long long)g->value, g->origin, (long long)b->W,
                    *totals ? "; what fits: " : "", totals, split);
}

/* More rows or steps than an option takes, whose tensors nobody could count. */
static void check_size(struct zt_config *c, const struct batch_part *p)
{
    if (p->value > INT32_MAX)
        zt_problems_add(&c->report, ZT_E_CONFIG, "%s %lld (%s) is too large: at most %d",
                        p->path, (long long)p->value, p->origin, INT32_MAX);
}

/* What nobody has said follows from the others. */
static void complete_batch(struct zt_config *c, struct batch *b)
{
    struct batch_part *B = &b->B, *m = &b->m, *g = &b->g;
    const struct zt_value *micro = zt_args_value(c->args, m->option);

    if (!m->value && !B->value)
        set_by_rule(c, m, micro->integer, "default of --per_device_train_batch_size");
    if (B->value && m->value && !g->value)
        set_by_rule(c, g, B->value / m->value / b->W,
                    "rule: train_batch_size / micro batch / ranks");
    else if (B->value && g->value && !m->value)
        set_by_rule(c, m, B->value / b->W / g->value,
                    "rule: train_batch_size / ranks / steps");
    else if (!g->value)
        set_by_rule(c, g, 1, "default");
    if (!m->value && B->value)
        set_by_rule(c, m, B->value / b->W / g->value, "rule: train_batch_size / ranks");
}

void zt_resolve_batch(struct zt_config *c, struct zt_run *run)
{
    struct batch b = {
        .B = {.path = TOTAL},
        .m = {.path = MICRO, .option = "per_device_train_batch_size"},
        .g = {.path = ACCUM, .option = "gradient_accumulation_steps"},
        .W = run->world,
    };
    const struct zt_item *total = zt_config_find(c, TOTAL);
    int64_t product;

    /* their places in the resolved tree, whichever is known first */
    zt_config_set(c, TOTAL, zt_int_node(&c->arena, 0), NULL);
    zt_config_set(c, MICRO, zt_int_node(&c->arena, 0), NULL);
    zt_config_set(c, ACCUM, zt_int_node(&c->arena, 0), NULL);
    if (total && !total->is_auto)
        read_part(c, &b.B);
    read_part(c, &b.m);
    read_part(c, &b.g);
    b.fixed = b.m.value && b.g.value;
    if (__builtin_mul_overflow(b.m.value ? b.m.value : 1, b.g.value ? b.g.value : 1,
                               &b.own))
        b.own = INT64_MAX;
    complete_batch(c, &b);
    run->micro_batch_size = b.m.value;
    run->grad_accum_steps = b.g.value;
    if (__builtin_mul_overflow(b.m.value, b.g.value, &product) ||
        __builtin_mul_overflow(product, b.W, &product)) {
        zt_problems_add(&c->report, ZT_E_CONFIG, "the batch is too large to count");
        product = 0;
    } else if (b.B.value && (b.B.value != product || product == 0)) {
        refuse_batch(c, &b);
    } else {
        if (!b.B.value)
            set_by_rule(c, &b.B, product,
                        total ? "auto: micro batch * steps * ranks"
                              : "rule: micro batch * steps * ranks");
        check_size(c, &b.m);
        check_size(c, &b.g);
    }
    run->train_batch_size = b.B.value;
}
