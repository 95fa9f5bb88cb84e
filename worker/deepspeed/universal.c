/*
 * universal.c -- DeepSpeed's universal form: a folder for each parameter.
 *
 *      DIR/TAG/zero/NAME/fp32.pt, exp_avg.pt, exp_avg_sq.pt, step.pt
 *      DIR/TAG/zero/optimizer_state.pt                 what is not of one parameter
 *
 * Each file is a tensor, or a dictionary with the tensor under "param". Which parameters
 * there are, and in which groups, is in the model file.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "worker/deepspeed/private.h"

static const struct zt_torch_tensor *tensor_of(const struct zt_pickled *root)
{
    const struct zt_pickled *param = zt_pickled_get(root, "param");

    return zt_pickled_tensor(param ? param : root);
}

/* Kind `kind` of parameter p, if its file is there. */
static zt_err add_kind(struct zt_ds *ds, struct zt_ds_param *p, int64_t flat,
                       const char *kind, const char *file, struct zt_fault *fault)
{
    const struct zt_torch_tensor *x;
    const struct zt_pickled *root = NULL;
    char *name = NULL, *path = NULL;
    int number = zt_ds_kind(ds, kind);
    zt_err rc = ZT_OK;

    if (number < 0 || asprintf(&name, "zero/%s/%s.pt", p->name, file) < 0 ||
        asprintf(&path, "%s/%s", ds->dir, name) < 0)
        rc = zt_ds_no_memory(ds, fault);
    else if (number > 0 && access(path, F_OK) < 0)
        number = -1;
    else
        rc = zt_ds_file(ds, name, &root, fault);
    if (!rc && number >= 0) {
        x = tensor_of(root);
        if (!x || x->t.elems != p->numel)
            rc = zt_fault_set(fault, ZT_E_FORMAT,
                              "%s: holds no tensor of the %lld elements of %s", path,
                              (long long)p->numel, p->name);
        else
            ds->files->flats[flat].of_kind[number] = &x->t;
    }
    free(name);
    free(path);
    return rc;
}

static void read_step(struct zt_ds *ds, const struct zt_ds_param *p)
{
    const struct zt_pickled *root = NULL, *v;
    const struct zt_torch_tensor *x;
    char *name = NULL;
    double real = 0;
    float one = 0;

    if (ds->optimizer_step >= 0 || asprintf(&name, "zero/%s/step.pt", p->name) < 0)
        return;
    if (zt_ds_file(ds, name, &root, NULL) == ZT_OK) {
        v = zt_pickled_get(root, "param") ? zt_pickled_get(root, "param") : root;
        x = zt_pickled_tensor(v);
        if (x && x->t.elems == 1 && !zt_safetensors_read_f32(&x->t, 0, 1, &one, NULL))
            ds->optimizer_step = (int64_t)one;
        else if (zt_pickled_real(v, &real))
            ds->optimizer_step = (int64_t)real;
    }
    free(name);
}

static zt_err add_params(struct zt_ds *ds, const struct zt_pickled *shapes, int group,
                         struct zt_fault *fault)
{
    zt_err rc = ZT_OK;

    for (int64_t i = 0; !rc && i < zt_pickled_count(shapes); i++) {
        struct zt_ds_param *p = zt_ds_add_param(ds, zt_pickled_key(shapes, i));
        int64_t flat = zt_ds_add_flat(ds);

        if (!p || flat < 0 || strstr(p->name, "..") || strchr(p->name, '/') ||
            !zt_ds_set_shape(ds, p, zt_pickled_value(shapes, i)))
            return zt_fault_set(fault, ZT_E_FORMAT,
                                "%s: a parameter's name or shape is none", ds->dir);
        p->group = group;
        if (!zt_ds_add_piece(ds, p, flat, 0, p->numel))
            return zt_ds_no_memory(ds, fault);
        rc = add_kind(ds, p, flat, "master", "fp32", fault);
        if (!rc)
            rc = add_kind(ds, p, flat, "exp_avg", "exp_avg", fault);
        if (!rc)
            rc = add_kind(ds, p, flat, "exp_avg_sq", "exp_avg_sq", fault);
        if (!rc)
            read_step(ds, p);
    }
    return rc;
}

/* All model files: one below stage 3, else one a rank. */
static zt_err open_models(struct zt_ds *ds, const struct zt_pickled ***out, int *num,
                          struct zt_fault *fault)
{
    const struct zt_pickled **models = NULL;
    zt_err rc = ZT_OK;
    int n = 0;

    for (bool more = true; !rc && more; n++) {
        char name[80], *path = NULL;
        const struct zt_pickled **bigger =
            realloc(models, (size_t)(n + 1) * sizeof(*models));

        if (bigger)
            models = bigger;
        snprintf(name, sizeof(name), "zero_pp_rank_%d_mp_rank_00_model_states.pt", n);
        if (!bigger || asprintf(&path, "%s/%s", ds->dir, name) < 0) {
            free(models);
            return zt_ds_no_memory(ds, fault);
        }
        more = access(path, F_OK) == 0;
        free(path);
        if (!more && n > 0)
            break;
        rc =
            zt_ds_file(ds, more ? name : "mp_rank_00_model_states.pt", &models[n], fault);
    }
    if (rc || !models) {
        free(models);
        return rc;
    }
    *out = models;
    *num = n;
    return ZT_OK;
}

/* Into ds->optimizer, if it is there. */
static zt_err open_optimizer(struct zt_ds *ds, struct zt_fault *fault)
{
    static const char name[] = "zero/optimizer_state.pt";
    char *path = NULL;
    bool there;

    if (asprintf(&path, "%s/%s", ds->dir, name) < 0)
        return zt_ds_no_memory(ds, fault);
    there = access(path, F_OK) == 0;
    free(path);
    return there ? zt_ds_file(ds, name, &ds->optimizer, fault) : ZT_OK;
}

zt_err zt_ds_read_universal(struct zt_ds *ds, struct zt_fault *fault)
{
    const struct zt_pickled **models = NULL, *shapes;
    int num = 0;
    zt_err rc = open_models(ds, &models, &num, fault);

    if (rc || !models)
        return rc;
    ds->model = models[0];
    rc = open_optimizer(ds, fault);
    shapes = zt_pickled_get(ds->model, "param_shapes");
    if (!rc && zt_pickled_count(shapes) == 0)
        rc = zt_fault_set(fault, ZT_E_FORMAT, "%s: its model states have no param_shapes",
                          ds->dir);
    else if (!rc && shapes->kind == ZT_PICKLED_DICT)
        rc = add_params(ds, shapes, 0, fault);
    else
        for (int64_t g = 0; !rc && g < zt_pickled_count(shapes); g++)
            rc = add_params(ds, zt_pickled_at(shapes, g), (int)g, fault);
    if (!rc)
        rc = zt_ds_read_rest(ds, models, num, fault);
    free(models);
    return rc;
}
