/*
 * zero.c -- the form in which DeepSpeed's ranks save: flat partitions of each parameter
 * group.
 *
 *      stages 1, 2:  rank 0 | rank 1 | ...     a group is cut anywhere; where a parameter
 *                    lies in a rank's part is in param_slice_mappings
 *      stage 3:      each parameter is cut into equal parts, the last padded; a rank has
 *                    its part of all of them, one behind the other
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker/deepspeed/private.h"

/* One rank's optimizer file. */
struct rank_state {
    const struct zt_pickled *model, *optim; /* model: of rank 0 alone below stage 3 */
    const struct zt_pickled *masters;       /* list of tensors, one a group */
    const struct zt_pickled *states;        /* of the groups */
    int64_t first_flat;
    int num_groups;
};

static zt_err inconsistent(const struct zt_ds *ds, const char *what,
                           struct zt_fault *fault)
{
    return zt_fault_set(fault, ZT_E_FORMAT, "%s: %s", ds->dir, what);
}

/* ---- the files ---- */

/* Ranks by the names of files "[bf16_]zero_pp_rank_D_mp_rank_00_optim_states.pt";
 * *prefix: what stands in front. */
static zt_err count_ranks(struct zt_ds *ds, char prefix[16], struct zt_fault *fault)
{
    DIR *d = opendir(ds->dir);
    int most = -1, num = 0;

    for (struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d)) {
        const char *at = strstr(e->d_name, "zero_pp_rank_");
        int rank = -1, slot = -1, end = 0;

        if (strncmp(e->d_name, "layer_", 6) == 0 || strncmp(e->d_name, "expp_", 5) == 0) {
            closedir(d);
            return zt_fault_set(
                fault, ZT_E_UNSUPPORTED,
                "%s: of a run with pipeline stages or experts (%s), which "
                "is not read",
                ds->dir, e->d_name);
        }
        if (!at || at - e->d_name > 8 ||
            sscanf(at, "zero_pp_rank_%d_mp_rank_%d_optim_states.pt%n", &rank, &slot,
                   &end) != 2 ||
            !end)
            continue;
        snprintf(prefix, 16, "%.*s", (int)(at - e->d_name), e->d_name);
        num++;
        most = rank > most ? rank : most;
        if (slot != 0)
            most = -2;
        if (most == -2)
            break;
    }
    if (d)
        closedir(d);
    if (most == -2)
        return zt_fault_set(fault, ZT_E_UNSUPPORTED,
                            "%s: of a tensor parallel run, which is not read", ds->dir);
    if (num != most + 1)
        return zt_fault_set(fault, ZT_E_NOINPUT,
                            "%s: has %d files of optimizer states where the highest rank "
                            "is %d; all ranks' files belong here",
                            ds->dir, num, most);
    ds->world_size = num;
    return ZT_OK;
}

static zt_err read_stage(struct zt_ds *ds, const struct zt_pickled *optim,
                         struct zt_fault *fault)
{
    const struct zt_pickled *v = zt_pickled_get(optim, "zero_stage");
    const struct zt_pickled *count = zt_pickled_get(optim, "partition_count");
    int64_t stage = 0, world = ds->world_size;

    /* an enumeration is the call of its class with a number */
    if (v && v->kind == ZT_PICKLED_OBJECT && v->num > 0)
        v = zt_pickled_at(v->items[0], 0);
    if (!zt_pickled_int(v, &stage) || stage < 1 || stage > 3)
        return inconsistent(ds, "its optimizer states say no ZeRO stage of 1 to 3",
                            fault);
    ds->stage = (int)stage;
    if (zt_pickled_count(count) > 0)
        count = zt_pickled_at(count, 0);
    if (zt_pickled_int(count, &world) && world != ds->world_size)
        return zt_fault_set(fault, ZT_E_NOINPUT,
                            "%s: was saved by %lld ranks, and has optimizer states of %d",
                            ds->dir, (long long)world, ds->world_size);
    return ZT_OK;
}

static zt_err open_rank(struct zt_ds *ds, const char *prefix, int rank,
                        struct rank_state *r, struct zt_fault *fault)
{
    const struct zt_pickled *root = NULL;
    char name[96];
    zt_err rc;

    snprintf(name, sizeof(name), "%szero_pp_rank_%d_mp_rank_00_optim_states.pt", prefix,
             rank);
    rc = zt_ds_file(ds, name, &root, fault);
    if (rc)
        return rc;
    r->optim = zt_pickled_get(root, "optimizer_state_dict");
    if (rank == 0)
        rc = read_stage(ds, r->optim, fault);
    if (rc)
        return rc;
    if (ds->stage == 3)
        snprintf(name, sizeof(name), "zero_pp_rank_%d_mp_rank_00_model_states.pt", rank);
    else
        snprintf(name, sizeof(name), "mp_rank_00_model_states.pt");
    if (ds->stage == 3 || rank == 0)
        rc = zt_ds_file(ds, name, &r->model, fault);
    return rc;
}

/* ---- flats ---- */

/* A scalar of the optimizer: its count of steps. */
static void read_step(struct zt_ds *ds, const struct zt_pickled *v)
{
    const struct zt_torch_tensor *x = zt_pickled_tensor(v);
    double real = 0;
    float one = 0;

    if (x && x->t.elems == 1 && !zt_safetensors_read_f32(&x->t, 0, 1, &one, NULL))
        ds->optimizer_step = (int64_t)one;
    else if (zt_pickled_real(v, &real))
        ds->optimizer_step = (int64_t)real;
}

/* The tensors of one group's state that have an element for each of the master's. */
static bool add_state(struct zt_ds *ds, struct zt_ds_flat *flat,
                      const struct zt_pickled *state)
{
    int64_t elems = flat->of_kind[0]->elems;

    for (int64_t i = 0; i < zt_pickled_count(state); i++) {
        const struct zt_torch_tensor *x = zt_pickled_tensor(zt_pickled_value(state, i));
        const struct zt_pickled *key = zt_pickled_key(state, i);
        const char *name;
        int kind;

        if (zt_pickled_is(key, "step")) {
            read_step(ds, zt_pickled_value(state, i));
            continue;
        }
        if (!x ||
            x->t.elems < elems) /* it may be longer: padded, where the master is not */
            continue;
        name = zt_ds_text(ds, key);
        kind = name ? zt_ds_kind(ds, name) : -1;
        if (kind < 0)
            return false;
        flat->of_kind[kind] = &x->t;
    }
    return true;
}

/* States are a dictionary by number, or a list (the elastic form). */
static const struct zt_pickled *state_of(const struct zt_pickled *states, int64_t group)
{
    int64_t number = 0;

    for (int64_t i = 0; states && states->kind == ZT_PICKLED_DICT && i < states->num / 2;
         i++)
        if (zt_pickled_int(zt_pickled_key(states, i), &number) && number == group)
            return zt_pickled_value(states, i);
    return zt_pickled_at(states, group);
}

static zt_err add_flats(struct zt_ds *ds, struct rank_state *r, struct zt_fault *fault)
{
    const struct zt_pickled *base;

    if (ds->stage == 3) {
        base = zt_pickled_get(r->optim, "optimizer_state_dict");
        r->masters = zt_pickled_get(r->optim, "fp32_flat_groups");
    } else {
        base = zt_pickled_get(r->optim, "base_optimizer_state");
        r->masters = zt_pickled_get(r->optim, "single_partition_of_fp32_groups");
    }
    r->states = zt_pickled_get(base, "state") ? zt_pickled_get(base, "state") : base;
    r->num_groups = (int)zt_pickled_count(r->masters);
    r->first_flat = ds->files->num_flats;
    if (ds->optimizer_step < 0)
        read_step(ds, zt_pickled_get(r->optim, "base_optimizer_state_step"));
    for (int g = 0; g < r->num_groups; g++) {
        const struct zt_torch_tensor *x = zt_pickled_tensor(zt_pickled_at(r->masters, g));
        int64_t flat = zt_ds_add_flat(ds);

        if (!x)
            return inconsistent(ds, "a rank's partition in fp32 is no tensor", fault);
        if (flat < 0)
            return zt_ds_no_memory(ds, fault);
        ds->files->flats[flat].of_kind[0] = &x->t;
        if (!add_state(ds, &ds->files->flats[flat], state_of(r->states, g)))
            return zt_ds_no_memory(ds, fault);
    }
    return ZT_OK;
}

/* ---- pieces: stages 1 and 2 ---- */

/* What a slice of a parameter says; an object whose state has these members. */
static bool read_slice(const struct zt_pickled *v, int64_t *start, int64_t *elems)
{
    for (int64_t i = 0; v && v->kind == ZT_PICKLED_OBJECT && i < v->num; i++)
        if (zt_pickled_int(zt_pickled_get(v->items[i], "start"), start) &&
            zt_pickled_int(zt_pickled_get(v->items[i], "numel"), elems))
            return true;
    return zt_pickled_int(zt_pickled_get(v, "start"), start) &&
           zt_pickled_int(zt_pickled_get(v, "numel"), elems);
}

/*
 * The ranks' slices of parameter `p`, in the order of ranks. at[r]: the next entry of rank
 * r's mapping, which is in the order of parameters but for options that reorder them:
 * then `search`.
 */
static zt_err find_slices(struct zt_ds *ds, const struct rank_state *ranks,
                          struct zt_ds_param *p, int64_t *at, bool search, int64_t *have,
                          struct zt_fault *fault)
{
    for (int r = 0; r < ds->world_size; r++) {
        const struct zt_pickled *all =
            zt_pickled_get(ranks[r].optim, "param_slice_mappings");
        const struct zt_pickled *map = zt_pickled_at(all, p->group);
        int64_t start = 0, elems = 0, i = search ? 0 : at[r];

        while (search && i < zt_pickled_count(map) &&
               !zt_pickled_is(zt_pickled_key(map, i), p->name))
            i++;
        if (!zt_pickled_is(zt_pickled_key(map, i), p->name))
            continue;
        if (!read_slice(zt_pickled_value(map, i), &start, &elems))
            return inconsistent(ds, "a slice of a parameter says no start and numel",
                                fault);
        at[r] = i + 1;
        if (!zt_ds_add_piece(ds, p, ranks[r].first_flat + p->group, start, elems))
            return zt_ds_no_memory(ds, fault);
        *have += elems;
    }
    return ZT_OK;
}

static zt_err add_slices(struct zt_ds *ds, const struct rank_state *ranks,
                         struct zt_ds_param *p, int64_t *at, struct zt_fault *fault)
{
    int64_t have = 0;
    zt_err rc = find_slices(ds, ranks, p, at, false, &have, fault);

    if (!rc && have != p->numel) {
        ds->files->num_pieces -= p->num_pieces;
        p->num_pieces = have = 0;
        rc = find_slices(ds, ranks, p, at, true, &have, fault);
    }
    if (!rc && have != p->numel)
        rc = zt_fault_set(fault, ZT_E_FORMAT,
                          "%s: %s: the ranks have %lld elements of its %lld", ds->dir,
                          p->name, (long long)have, (long long)p->numel);
    return rc;
}

/* Without mappings (before 0.7.6): parameters lie one behind the other. */
static zt_err add_run(struct zt_ds *ds, const struct rank_state *ranks,
                      struct zt_ds_param *p, int *rank, int64_t *at,
                      struct zt_fault *fault)
{
    int64_t left = p->numel;

    while (left > 0) {
        const struct rank_state *r = &ranks[*rank];
        int64_t room, k;

        if (*rank == ds->world_size || p->group >= r->num_groups)
            return zt_fault_set(fault, ZT_E_FORMAT,
                                "%s: %s: the ranks' partitions end before it does",
                                ds->dir, p->name);
        room = ds->files->flats[r->first_flat + p->group].of_kind[0]->elems - *at;
        k = left < room ? left : room;
        if (k > 0 && !zt_ds_add_piece(ds, p, r->first_flat + p->group, *at, k))
            return zt_ds_no_memory(ds, fault);
        left -= k;
        *at += k;
        if (k == room) {
            ++*rank;
            *at = 0;
        }
    }
    return ZT_OK;
}

/* ---- pieces: stage 3 ---- */

/* Equal parts on all ranks; at: elements before it on each rank, over all groups. */
static zt_err add_parts(struct zt_ds *ds, const struct rank_state *ranks,
                        struct zt_ds_param *p, int64_t *at, struct zt_fault *fault)
{
    int64_t part = (p->numel + ds->world_size - 1) / ds->world_size;

    for (int r = 0; r < ds->world_size; r++) {
        int64_t here = *at, left = p->numel - r * part;

        left = left > part ? part : left;
        for (int g = 0; left > 0 && g < ranks[r].num_groups; g++) {
            int64_t flat = ranks[r].first_flat + g;
            int64_t elems = ds->files->flats[flat].of_kind[0]->elems, k = elems - here;

            k = k > left ? left : k;
            if (k > 0) {
                if (!zt_ds_add_piece(ds, p, flat, here, k))
                    return zt_ds_no_memory(ds, fault);
                left -= k;
                here += k;
            }
            here -= elems;
        }
        if (left > 0)
            return zt_fault_set(fault, ZT_E_FORMAT,
                                "%s: %s: rank %d's partitions end before it does",
                                ds->dir, p->name, r);
    }
    *at += part;
    return ZT_OK;
}

/* ---- parameters ---- */

/* Every piece lies within all tensors of its flat. */
static zt_err check_pieces(const struct zt_ds *ds, const struct zt_ds_param *p,
                           struct zt_fault *fault)
{
    for (int64_t i = 0; i < p->num_pieces; i++) {
        const struct zt_ds_piece *x = &ds->files->pieces[p->first_piece + i];

        for (int k = 0; k < ds->num_kinds; k++) {
            const struct zt_safetensors_tensor *t =
                x->flat < ds->files->num_flats ? ds->files->flats[x->flat].of_kind[k]
                                               : NULL;

            if ((!t && k == 0) ||
                (t && (x->first < 0 || x->elems < 0 || x->first > t->elems ||
                       x->elems > t->elems - x->first)))
                return zt_fault_set(
                    fault, ZT_E_FORMAT,
                    "%s: %s: a rank's slice of its %s lies outside of the "
                    "rank's partition",
                    ds->dir, p->name, ds->kinds[k]);
        }
    }
    return ZT_OK;
}

static zt_err add_group(struct zt_ds *ds, const struct rank_state *ranks,
                        const struct zt_pickled *shapes, int group, int64_t *at,
                        int64_t *at_stage3, struct zt_fault *fault)
{
    bool mapped = zt_pickled_get(ranks[0].optim, "param_slice_mappings") != NULL;
    int rank = 0;
    zt_err rc = ZT_OK;

    memset(at, 0, (size_t)ds->world_size * sizeof(*at));
    for (int64_t i = 0; !rc && i < zt_pickled_count(shapes); i++) {
        struct zt_ds_param *p = zt_ds_add_param(ds, zt_pickled_key(shapes, i));

        if (!p)
            return inconsistent(ds, "a parameter's name is no text", fault);
        p->group = group;
        if (!zt_ds_set_shape(ds, p, zt_pickled_value(shapes, i)))
            return zt_fault_set(fault, ZT_E_FORMAT, "%s: %s: its shape is none", ds->dir,
                                p->name);
        rc = ds->stage == 3 ? add_parts(ds, ranks, p, at_stage3, fault)
             : mapped       ? add_slices(ds, ranks, p, at, fault)
                            : add_run(ds, ranks, p, &rank, at, fault);
        if (!rc)
            rc = check_pieces(ds, p, fault);
    }
    return rc;
}

static zt_err add_params(struct zt_ds *ds, const struct rank_state *ranks,
                         struct zt_fault *fault)
{
    const struct zt_pickled *shapes = zt_pickled_get(ds->model, "param_shapes");
    int64_t *at = calloc((size_t)ds->world_size, sizeof(*at)), at_stage3 = 0;
    zt_err rc = ZT_OK;

    if (!at)
        return zt_ds_no_memory(ds, fault);
    if (zt_pickled_count(shapes) == 0)
        rc = inconsistent(ds, "its model states have no param_shapes", fault);
    /* before 0.3.16: one dictionary for all groups */
    if (!rc && shapes->kind == ZT_PICKLED_DICT)
        rc = add_group(ds, ranks, shapes, 0, at, &at_stage3, fault);
    else
        for (int64_t g = 0; !rc && g < zt_pickled_count(shapes); g++)
            rc = add_group(ds, ranks, zt_pickled_at(shapes, g), (int)g, at, &at_stage3,
                           fault);
    free(at);
    return rc;
}

zt_err zt_ds_read_zero(struct zt_ds *ds, struct zt_fault *fault)
{
    const struct zt_pickled **models = NULL;
    struct rank_state *ranks = NULL;
    char prefix[16] = "";
    zt_err rc = count_ranks(ds, prefix, fault);

    if (!rc && ds->world_size == 0)
        rc = zt_fault_set(
            fault, ZT_E_NOINPUT,
            "%s: has no *_optim_states.pt: a checkpoint without ZeRO, which is "
            "not read; its weights become a file that is by Python's "
            "torch.save(torch.load(\"mp_rank_00_model_states.pt\", "
            "weights_only=False)[\"module\"], \"pytorch_model.bin\")",
            ds->dir);
    if (rc)
        return rc;
    ranks = calloc((size_t)ds->world_size, sizeof(*ranks));
    models = calloc((size_t)ds->world_size, sizeof(*models));
    if (!ranks || !models) {
        free(ranks);
        free(models);
        return zt_ds_no_memory(ds, fault);
    }
    for (int r = 0; !rc && r < ds->world_size; r++) {
        rc = open_rank(ds, prefix, r, &ranks[r], fault);
        if (!rc)
            rc = add_flats(ds, &ranks[r], fault);
        models[r] = ranks[r].model;
    }
    if (!rc) {
        ds->model = models[0];
        ds->optimizer = ranks[0].optim;
        rc = add_params(ds, ranks, fault);
    }
    if (!rc)
        rc = zt_ds_read_rest(ds, models, ds->stage == 3 ? ds->world_size : 1, fault);
    free(ranks);
    free(models);
    return rc;
}
