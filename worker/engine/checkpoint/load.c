/*
 * load.c -- tensors of a checkpoint into state.
 *
 * A kind that is stored as this run keeps it is copied bit by bit. Else its fp32 values
 * are rounded to what the run keeps: weights and master from the parameter's value.
 */
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "worker/checkpoint/hf_folder.h"
#include "worker/engine/checkpoint/private.h"

#define CHUNK_ELEMS ((int64_t)1 << 20)

struct loading {
    struct zt_engine *e;
    struct zt_ckpt *c;
    const struct zt_ckpt_manifest *m;
    float *chunk;
    zt_ckpt_use use;
    bool is_planning; /* reads are noted alone */
};

static bool is_to_be_taken(const struct loading *l)
{
    return !l->is_planning && l->use != ZT_CKPT_LOOK;
}

/* A range into one kind, bit by bit. */
static zt_err load_as_stored(struct loading *l, int from, zt_state_kind to, int param,
                             const struct zt_param *p, struct zt_fault *fault)
{
    int64_t at, left;
    zt_err rc = ZT_OK;

    zt_zero_part(l->e->zero, p, &at, &left);
    while (!rc && left > 0) {
        const void *data = NULL;
        int64_t n = 0;

        rc = zt_ckpt_view(l->c, from, param, at, left, &data, &n, fault);
        if (!rc && is_to_be_taken(l))
            rc = zt_zero_copy_in(l->e->zero, to, p, at, n, data, fault);
        at += n;
        left -= n;
    }
    return rc;
}

/* A range into one kind, by its fp32 values. */
static zt_err load_rounded(struct loading *l, int from, zt_state_kind to, int param,
                           const struct zt_param *p, struct zt_fault *fault)
{
    int64_t at, left;
    zt_err rc = ZT_OK;

    zt_zero_part(l->e->zero, p, &at, &left);
    for (int64_t n; !rc && left > 0; at += n, left -= n) {
        n = left < CHUNK_ELEMS ? left : CHUNK_ELEMS;
        rc = zt_ckpt_read_f32(l->c, from, param, at, n, l->chunk, fault);
        if (!rc && is_to_be_taken(l))
            rc = zt_zero_set(l->e->zero, to, p, at, n, l->chunk, fault);
    }
    return rc;
}

/* The checkpoint's kind of this name, where the parameter has it; -1: it has not. */
static int kind_of(const struct loading *l, const char *name, int param)
{
    int k = zt_ckpt_find_kind(l->m, name);

    return k >= 0 && l->m->params[param].kinds >> k & 1 ? k : -1;
}

static bool same_dtype(const struct loading *l, int kind, zt_state_kind state)
{
    return kind >= 0 && l->m->kinds[kind].dtype == zt_zero_dtype(l->e->zero, state);
}

/* Where a parameter's values come from. */
struct value_source {
    int weights, master; /* kinds of the checkpoint; -1: none */
    int value;           /* the one that is rounded where they are not taken as stored */
    bool has_master;     /* in this run */
    bool as_stored;
};

static struct value_source source_of(const struct loading *l, int param,
                                     const struct zt_param *p)
{
    struct value_source s = {.weights = kind_of(l, "weights", param),
                             .master = kind_of(l, "master", param),
                             .has_master = zt_zero_has(l->e->zero, ZT_STATE_MASTER, p)};

    s.value = l->e->run->load_from_fp32_weights && s.master >= 0 ? s.master : s.weights;
    s.as_stored =
        same_dtype(l, s.weights, ZT_STATE_WEIGHTS) &&
        (s.has_master ? s.value == s.master && same_dtype(l, s.master, ZT_STATE_MASTER)
                      : s.master < 0);
    return s;
}

static zt_err load_weights(struct loading *l, int param, const struct zt_param *p,
                           struct zt_fault *fault)
{
    struct value_source s = source_of(l, param, p);

    return s.as_stored ? load_as_stored(l, s.weights, ZT_STATE_WEIGHTS, param, p, fault)
                       : load_rounded(l, s.value, ZT_STATE_VALUE, param, p, fault);
}

static zt_err load_master(struct loading *l, int param, const struct zt_param *p,
                          struct zt_fault *fault)
{
    struct value_source s = source_of(l, param, p);

    return s.as_stored && s.has_master
               ? load_as_stored(l, s.master, ZT_STATE_MASTER, param, p, fault)
               : ZT_OK;
}

static zt_err load_moment(struct loading *l, int k, int param, const struct zt_param *p,
                          struct zt_fault *fault)
{
    const struct zt_engine *e = l->e;
    zt_state_kind state = ZT_STATE_MOMENT + (zt_state_kind)k;
    const char *name = zt_ckpt_kind_name(e, state);
    int from;

    if (!zt_zero_has(e->zero, state, p))
        return ZT_OK;
    from = kind_of(l, name, param);
    if (from < 0)
        return zt_fault_set(fault, ZT_E_CONFIG,
                            "%s has no %s of %s, which %s needs: it is of a run with "
                            "another optimizer or with other frozen parameters; "
                            "--model_name_or_path takes its weights alone",
                            zt_ckpt_dir(l->c), name, p->name,
                            e->run->optim.optimizer->name);
    return same_dtype(l, from, state) ? load_as_stored(l, from, state, param, p, fault)
                                      : load_rounded(l, from, state, param, p, fault);
}

/* A run under adapters goes on with what the checkpoint has, which is not the model itself. */
static bool is_elsewhere(const struct loading *l, const struct zt_param *p)
{
    return p->is_base && l->use != ZT_CKPT_BEGIN;
}

/* A parameter that values to begin with need not have: its initial values stay. */
static bool may_be_new(const struct loading *l, const struct zt_param *p)
{
    return (p->flags & ZT_EXTRA) && l->use == ZT_CKPT_BEGIN;
}

/* The plugin has frozen it since. */
static void tell_of_frozen(const struct loading *l, const int *index)
{
    const struct zt_model *m = l->e->model;
    const char *name = zt_ckpt_kind_name(l->e, ZT_STATE_MOMENT);
    const struct zt_param *first = NULL;
    int num = 0;

    for (int i = 0; i < m->num_params; i++) {
        const struct zt_param *p = m->params[i];

        if (!(p->flags & ZT_FROZEN) || index[i] < 0 || kind_of(l, name, index[i]) < 0)
            continue;
        first = first ? first : p;
        num++;
    }
    if (num && l->e->run->rank == 0)
        zt_warn("checkpoint",
                "%s%s was trained before and is frozen now: it stays as it is in %s, and "
                "its moments are left out",
                first->name, num > 1 ? " (and others)" : "", zt_ckpt_dir(l->c));
}

/* Kind by kind, as they are in the files. */
static zt_err load_all(struct loading *l, const int *index, struct zt_fault *fault)
{
    const struct zt_model *m = l->e->model;
    int moments = l->use == ZT_CKPT_GO_ON ? l->e->run->optim.optimizer->num_states : 0;
    zt_err rc = ZT_OK;

    for (int i = 0; !rc && i < m->num_params; i++)
        if (index[i] >= 0 && !is_elsewhere(l, m->params[i]))
            rc = load_weights(l, index[i], m->params[i], fault);
    for (int i = 0; !rc && i < m->num_params; i++)
        if (index[i] >= 0 && !is_elsewhere(l, m->params[i]))
            rc = load_master(l, index[i], m->params[i], fault);
    for (int k = 0; !rc && k < moments; k++)
        for (int i = 0; !rc && i < m->num_params; i++)
            rc = load_moment(l, k, index[i], m->params[i], fault);
    return rc;
}

/* ---- parameters ---- */

static bool same_shape(const struct zt_ckpt_param *a, const struct zt_param *p)
{
    return a->ndim == p->ndim &&
           memcmp(a->shape, p->shape, (size_t)p->ndim * sizeof(a->shape[0])) == 0;
}

/* A parameter that begins as new, although there may be one of its name (index, -1: none). */
static bool begins_as_new(const struct loading *l, int index, const struct zt_param *p)
{
    return may_be_new(l, p) &&
           (index < 0 || (l->e->head_is_other && zt_hf_is_of_head(p->name)) ||
            (l->e->run->ignore_mismatched_sizes && !same_shape(&l->m->params[index], p)));
}

static const char *hint_at_adapters(const struct zt_param *p)
{
    return strstr(p->name, ".lora_") ? "; a run goes on with the --lora_r and "
                                       "--lora_target_modules it began with"
                                     : "";
}

static zt_err refuse_shape(const struct loading *l, const struct zt_ckpt_param *there,
                           const struct zt_param *p, struct zt_fault *fault)
{
    const char *hint = hint_at_adapters(p);
    char have[96], want[96];

    if (!*hint && l->use == ZT_CKPT_BEGIN)
        hint = "; sizes that no config.json beside a checkpoint says are given by the "
               "options of the model";
    else if (!*hint)
        hint = "; a run goes on with the model it began with: the same "
               "--model_name_or_path, or the same sizes";
    return zt_fault_set(fault, ZT_E_CONFIG, "%s: %s is %s, the model wants %s%s",
                        zt_ckpt_dir(l->c), p->name,
                        zt_sizes_text(there->ndim, there->shape, have),
                        zt_sizes_text(p->ndim, p->shape, want), hint);
}

/* Parameters of the checkpoint that the model lacks, but for what it may leave aside when it
 * begins with another one's values: the head of another task. */
static zt_err check_unused(const struct loading *l, const bool *used,
                           struct zt_fault *fault)
{
    for (int i = 0; i < l->m->num_params; i++) {
        const char *name = l->m->params[i].name;

        if (used[i] ||
            (l->use == ZT_CKPT_BEGIN && (zt_model_ignores_weight(l->e->model, name) ||
                                         l->e->run->allow_partial_import)))
            continue;
        return zt_fault_set(fault, ZT_E_CONFIG, "%s: %s is no parameter of this model%s",
                            zt_ckpt_dir(l->c), name,
                            l->use == ZT_CKPT_BEGIN
                                ? "; --allow_partial_import leaves out what "
                                  "the model does not know"
                                : ": is it of another?");
    }
    return ZT_OK;
}

static void tell_of_new(const struct loading *l, const struct zt_param *first, int num)
{
    if (num && l->e->run->rank == 0)
        zt_info("weights",
                "%d parameters are not taken from %s: they begin as new (%s%s)", num,
                zt_ckpt_dir(l->c), first->name, num > 1 ? ", ..." : "");
}

/* A model that adapters were trained beside is listed with them, without values. */
static zt_err refuse_missing(const struct loading *l, int there, const struct zt_param *p,
                             struct zt_fault *fault)
{
    const char *given = l->e->run->model_name_or_path;

    if (there >= 0 && l->use == ZT_CKPT_BEGIN && given)
        return zt_hf_refuse_adapters(given, fault);
    if (there >= 0)
        return zt_fault_set(
            fault, ZT_E_CONFIG,
            "%s: has adapters and not the model that they are for: a run "
            "goes on with the --lora_r and --lora_target_modules it began "
            "with",
            zt_ckpt_dir(l->c));
    return zt_fault_set(fault, ZT_E_CONFIG, "%s: there is no parameter %s%s",
                        zt_ckpt_dir(l->c), p->name, hint_at_adapters(p));
}

static zt_err match_param(struct loading *l, const struct zt_param *p, int *index,
                          struct zt_fault *fault)
{
    int i =
        p->index < l->m->num_params && strcmp(l->m->params[p->index].name, p->name) == 0
            ? p->index
            : zt_ckpt_find_param(l->m, p->name);

    *index = i;
    if (begins_as_new(l, i, p))
        return ZT_OK;
    if (i < 0 || (zt_ckpt_value_kind(l->c, i) < 0 && !is_elsewhere(l, p)))
        return refuse_missing(l, i, p, fault);
    return same_shape(&l->m->params[i], p) ? ZT_OK
                                           : refuse_shape(l, &l->m->params[i], p, fault);
}

/* The model's parameters are those of the checkpoint: index[i] of parameter i, -1: it is new. */
static zt_err match_params(struct loading *l, int *index, struct zt_fault *fault)
{
    const struct zt_model *model = l->e->model;
    const struct zt_param *first = NULL;
    bool *used = calloc((size_t)l->m->num_params + 1, sizeof(*used));
    int num_new = 0;
    zt_err rc =
        used ? ZT_OK : zt_fault_set(fault, ZT_E_NOMEM, "checkpoint: no host memory");

    for (int i = 0; !rc && i < model->num_params; i++) {
        const struct zt_param *p = model->params[i];

        rc = match_param(l, p, &index[i], fault);
        if (!rc && index[i] >= 0)
            used[index[i]] = true;
        if (!rc && begins_as_new(l, index[i], p)) {
            index[i] = -1;
            first = num_new++ ? first : p;
        }
    }
    if (!rc)
        rc = check_unused(l, used, fault);
    if (!rc)
        tell_of_new(l, first, num_new);
    free(used);
    return rc;
}

zt_err zt_ckpt_match_model(struct zt_engine *e, struct zt_ckpt *c, struct zt_fault *fault)
{
    struct loading l = {.e = e, .c = c, .m = zt_ckpt_manifest(c), .use = ZT_CKPT_GO_ON};
    int *index = calloc((size_t)e->model->num_params + 1, sizeof(*index));
    zt_err rc = index ? match_params(&l, index, fault)
                      : zt_fault_set(fault, ZT_E_NOMEM, "checkpoint: no host memory");

    free(index);
    return rc;
}

zt_err zt_ckpt_load_state(struct zt_engine *e, struct zt_ckpt *c, zt_ckpt_use use,
                          struct zt_fault *fault)
{
    struct loading l = {.e = e, .c = c, .m = zt_ckpt_manifest(c), .use = use};
    int n = e->model->num_params;
    int *index = calloc((size_t)n + 1, sizeof(*index));
    zt_err rc;

    l.chunk = malloc((size_t)CHUNK_ELEMS * sizeof(*l.chunk));
    rc = index && l.chunk ? match_params(&l, index, fault)
                          : zt_fault_set(fault, ZT_E_NOMEM, "checkpoint: no host memory");
    /* without ZeRO every rank reads all of it: for the others it stays in the page cache */
    if (!rc)
        rc = zt_ckpt_plan_reads(c, e->run->zero.stage == 0 && e->run->world > 1, fault);
    l.is_planning = true;
    if (!rc)
        rc = load_all(&l, index, fault);
    l.is_planning = false;
    if (!rc)
        rc = zt_ckpt_begin_reads(c, fault);
    if (!rc)
        rc = load_all(&l, index, fault);
    if (!rc && use == ZT_CKPT_GO_ON)
        tell_of_frozen(&l, index);
    free(l.chunk);
    free(index);
    return rc;
}

/* Some parameters may keep their initial values. */
static bool has_new(const struct zt_engine *e)
{
    for (int i = 0; i < e->model->num_params; i++)
        if (e->model->params[i]->flags & ZT_EXTRA)
            return true;
    return e->adapters != NULL;
}

zt_err zt_checkpoint_load_weights(struct zt_engine *e, struct zt_fault *fault)
{
    struct zt_ckpt *c = NULL;
    zt_err rc = zt_ckpt_open(e->run->model_name_or_path, NULL, &c, fault);

    if (!rc && has_new(e)) /* of all: what the checkpoint has is written over it */
        rc = zt_zero_init(e->zero, (uint64_t)e->run->seed, fault);
    if (!rc)
        rc = zt_ckpt_load_state(e, c, ZT_CKPT_BEGIN, fault);
    zt_ckpt_close(c);
    return rc ? zt_fault_context(fault, rc, "--model_name_or_path")
              : zt_zero_publish(e->zero, fault);
}

static zt_err read_best(struct zt_engine *e, zt_ckpt_use use, struct zt_fault *fault)
{
    struct zt_ckpt *c = NULL;
    char dir[PATH_MAX];
    zt_err rc;

    zt_ckpt_best_dir(e, dir);
    rc = e->run->save_on_each_node ? zt_ckpt_open_partial(dir, NULL, &c, fault)
                                   : zt_ckpt_open(dir, NULL, &c, fault);
    if (!rc)
        rc = zt_ckpt_load_state(e, c, use, fault);
    zt_ckpt_close(c);
    return rc;
}

/* Read twice: what is damaged is to be known before the weights are written over. */
zt_err zt_checkpoint_load_best(struct zt_engine *e, zt_err *refused,
                               struct zt_fault *fault)
{
    struct zt_ckpt_outcome mine = {0};
    zt_err rc;

    mine.code = read_best(e, ZT_CKPT_LOOK, fault);
    rc = zt_ckpt_share_outcome(e, &mine, NULL, refused, fault);
    if (rc || *refused)
        return rc;
    rc = read_best(e, ZT_CKPT_GO_BACK, fault);
    return rc ? rc : zt_zero_publish(e->zero, fault);
}
