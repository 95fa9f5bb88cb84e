/* model_file.c -- what model files of DeepSpeed hold beside trained parameters. */
#include <stdlib.h>
#include <string.h>

#include "worker/deepspeed/private.h"

/* A tensor that is whole, as a parameter of one piece. */
static zt_err add_whole(struct zt_ds *ds, const struct zt_pickled *name, zt_ds_role role,
                        const struct zt_torch_tensor *x, struct zt_fault *fault)
{
    struct zt_ds_param *p = zt_ds_add_param(ds, name);
    int64_t flat = p ? zt_ds_add_flat(ds) : -1;

    if (flat < 0 || !zt_ds_add_piece(ds, p, flat, 0, x->t.elems))
        return zt_ds_no_memory(ds, fault);
    p->role = role;
    p->ndim = x->t.ndim;
    p->shape = x->t.shape;
    p->numel = x->t.elems;
    p->of_buffer = &x->t;
    ds->files->flats[flat].of_kind[0] = &x->t;
    return ZT_OK;
}

static zt_err add_buffers(struct zt_ds *ds, struct zt_fault *fault)
{
    const struct zt_pickled *names = zt_pickled_get(ds->model, "buffer_names");
    const struct zt_pickled *module = zt_pickled_get(ds->model, "module");
    zt_err rc = ZT_OK;

    for (int64_t i = 0; !rc && i < zt_pickled_count(names); i++) {
        const struct zt_pickled *name = zt_pickled_at(names, i);
        const char *text = zt_ds_text(ds, name);
        const struct zt_torch_tensor *x =
            text ? zt_pickled_tensor(zt_pickled_get(module, text)) : NULL;

        if (x) /* those that are not saved are names alone */
            rc = add_whole(ds, name, ZT_DS_BUFFER, x, fault);
    }
    return rc;
}

/* Frozen parameter `name`: whole in stages 1 and 2, a part of each rank in stage 3. */
static zt_err add_frozen(struct zt_ds *ds, const struct zt_pickled *name,
                         const struct zt_pickled *shape,
                         const struct zt_pickled *const *models, int num_models,
                         struct zt_fault *fault)
{
    struct zt_ds_param *p = zt_ds_add_param(ds, name);
    int64_t left;

    if (!p || !zt_ds_set_shape(ds, p, shape))
        return zt_fault_set(fault, ZT_E_FORMAT,
                            "%s: a frozen parameter has no name or shape", ds->dir);
    p->role = ZT_DS_FROZEN;
    left = p->numel;
    for (int r = 0; r < num_models && left > 0; r++) {
        const struct zt_pickled *all =
            zt_pickled_get(models[r], "frozen_param_fragments");
        const struct zt_torch_tensor *x = zt_pickled_tensor(zt_pickled_get(all, p->name));
        int64_t flat = zt_ds_add_flat(ds), k = x && x->t.elems < left ? x->t.elems : left;

        if (flat < 0)
            return zt_ds_no_memory(ds, fault);
        if (!x)
            break;
        ds->files->flats[flat].of_kind[0] = &x->t;
        if (!zt_ds_add_piece(ds, p, flat, 0, k))
            return zt_ds_no_memory(ds, fault);
        left -= k;
    }
    if (left > 0)
        return zt_fault_set(fault, ZT_E_FORMAT,
                            "%s: %s: the model files hold only a part of it", ds->dir,
                            p->name);
    return ZT_OK;
}

static bool is_known(const struct zt_ds *ds, const struct zt_pickled *name)
{
    for (int i = 0; i < ds->num_params; i++)
        if (zt_pickled_is(name, ds->params[i].name))
            return true;
    for (int i = 0; i < ds->num_aliases; i++)
        if (zt_pickled_is(name, ds->aliases[i].name))
            return true;
    return false;
}

/* Stage 1 does not list what is frozen: it is what else the module's dictionary has, in
 * the type that the run computed in. */
static zt_err add_unlisted(struct zt_ds *ds, struct zt_fault *fault)
{
    const struct zt_pickled *module = zt_pickled_get(ds->model, "module");
    zt_err rc = ZT_OK;

    for (int64_t i = 0; !rc && i < zt_pickled_count(module); i++) {
        const struct zt_torch_tensor *x = zt_pickled_tensor(zt_pickled_value(module, i));

        if (x && !is_known(ds, zt_pickled_key(module, i)))
            rc = add_whole(ds, zt_pickled_key(module, i), ZT_DS_FROZEN, x, fault);
    }
    return rc;
}

/* shared_params: name -> source, as a dictionary or as pairs. */
static zt_err add_aliases(struct zt_ds *ds, struct zt_fault *fault)
{
    const struct zt_pickled *all = zt_pickled_get(ds->model, "shared_params");
    int64_t n = zt_pickled_count(all);
    bool dict = all && all->kind == ZT_PICKLED_DICT;

    ds->aliases = calloc((size_t)n + 1, sizeof(*ds->aliases));
    if (!ds->aliases)
        return zt_ds_no_memory(ds, fault);
    for (int64_t i = 0; i < n; i++) {
        const struct zt_pickled *pair = zt_pickled_at(all, i);
        struct zt_ds_alias *a = &ds->aliases[ds->num_aliases];

        a->name = zt_ds_text(ds, dict ? zt_pickled_key(all, i) : zt_pickled_at(pair, 0));
        a->of = zt_ds_text(ds, dict ? zt_pickled_value(all, i) : zt_pickled_at(pair, 1));
        if (!a->name || !a->of)
            return zt_fault_set(fault, ZT_E_FORMAT, "%s: shared_params holds no names",
                                ds->dir);
        ds->num_aliases++;
    }
    return ZT_OK;
}

zt_err zt_ds_read_rest(struct zt_ds *ds, const struct zt_pickled *const *models,
                       int num_models, struct zt_fault *fault)
{
    const struct zt_pickled *frozen = zt_pickled_get(ds->model, "frozen_param_shapes");
    zt_err rc = ZT_OK;

    for (int64_t i = 0; !rc && i < zt_pickled_count(frozen); i++)
        rc = add_frozen(ds, zt_pickled_key(frozen, i), zt_pickled_value(frozen, i),
                        models, num_models, fault);
    if (!rc)
        rc = add_buffers(ds, fault);
    if (!rc)
        rc = add_aliases(ds, fault);
    if (!rc && ds->stage < 3 && num_models == 1)
        rc = add_unlisted(ds, fault);
    return rc;
}
