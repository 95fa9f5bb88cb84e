#include "worker/tools/param_groups.h"

static const char *const reals[] = {"lr", "eps", "weight_decay"};

#define NUM_REALS (sizeof(reals) / sizeof(*reals))

/* Where they are depends on the stage: in the optimizer's own dictionary, which is one of ZeRO's,
 * or in a universal checkpoint beside it. */
static const struct zt_pickled *deepspeed_groups(const struct zt_ds *ds)
{
    static const char *const within[] = {"base_optimizer_state", "optimizer_state_dict"};
    const struct zt_pickled *groups = zt_pickled_get(ds->optimizer, "param_groups");

    for (size_t i = 0; !groups && i < sizeof(within) / sizeof(*within); i++)
        groups = zt_pickled_get(zt_pickled_get(ds->optimizer, within[i]), "param_groups");
    return groups;
}

static json_t *deepspeed_group(const struct zt_pickled *group)
{
    const struct zt_pickled *betas = zt_pickled_get(group, "betas");
    json_t *out = json_object();
    double a, b;

    for (size_t i = 0; i < NUM_REALS; i++)
        if (zt_pickled_real(zt_pickled_get(group, reals[i]), &a))
            json_object_set_new(out, reals[i], json_real(a));
    if (zt_pickled_real(zt_pickled_at(betas, 0), &a) &&
        zt_pickled_real(zt_pickled_at(betas, 1), &b))
        json_object_set_new(out, "betas", json_pack("[f, f]", a, b));
    return out;
}

json_t *zt_param_groups_of(const struct zt_checkpoint_source *s)
{
    const struct zt_pickled *theirs;
    json_t *out = json_array();
    const json_t *training;

    if (s->ours) {
        training = json_object_get(zt_ckpt_manifest(s->ours)->root, "training");
        json_array_extend(out, json_object_get(training, "param_groups"));
        return out;
    }
    theirs = s->deepspeed ? deepspeed_groups(s->deepspeed) : NULL;
    for (int64_t g = 0; g < zt_pickled_count(theirs); g++)
        json_array_append_new(out, deepspeed_group(zt_pickled_at(theirs, g)));
    return out;
}

void zt_param_groups_put(const json_t *groups, size_t g, struct zt_torch_values *v)
{
    size_t num = json_array_size(groups);
    const json_t *group = num ? json_array_get(groups, g < num ? g : num - 1) : NULL;
    const json_t *betas = json_object_get(group, "betas");

    for (size_t i = 0; i < NUM_REALS; i++) {
        const json_t *value = json_object_get(group, reals[i]);

        if (!json_is_number(value))
            continue;
        zt_torch_put_text(v, reals[i]);
        zt_torch_put_real(v, json_number_value(value));
    }
    if (json_array_size(betas) != 2)
        return;
    zt_torch_put_text(v, "betas");
    zt_torch_put_mark(v, ZT_TORCH_TUPLE);
    for (size_t i = 0; i < 2; i++)
        zt_torch_put_real(v, json_number_value(json_array_get(betas, i)));
    zt_torch_put_end(v, ZT_TORCH_TUPLE);
}
