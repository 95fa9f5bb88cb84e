/*
 * to_zlaunch.c -- a checkpoint of another program as one of our own: one shard with all
 * tensors whole, and a manifest that says where training stood.
 *
 * Values are the master's; where the run computed in 16 bits the weights are its rounding,
 * as DeepSpeed's own are. What the other program does not save (the position in the data)
 * is left out.
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/files/folders.h"
#include "common/half.h"
#include "worker/checkpoint/folder.h"
#include "worker/checkpoint/folder_lock.h"
#include "worker/checkpoint/hf_folder.h"
#include "worker/checkpoint/checksummed_json.h"
#include "worker/checkpoint/shard.h"
#include "worker/tools/convert.h"
#include "worker/tools/export.h"
#include "worker/tools/param_groups.h"

struct import {
    struct zt_checkpoint_source *s;
    struct zt_ckpt_place place;
    struct zt_ckpt_kind kinds[ZT_SOURCE_MAX_KINDS];
    int from[ZT_SOURCE_MAX_KINDS]; /* kind of the source */
    int num_kinds;
    struct zt_ckpt_param *params;
    int *of; /* tensor of the source */
    int num_params;
    struct zt_ckpt_part *parts;
    int64_t num_parts;
    int64_t step, skipped, samples;
};

/* ---- what there is ---- */

static int64_t count_of(const struct zt_checkpoint_source *s, const char *key)
{
    int64_t n = 0;

    return zt_pickled_int(zt_pickled_get(s->deepspeed->model, key), &n) && n > 0 ? n : 0;
}

/* The type in which the run computed, by its weights. */
static zt_dtype compute_dtype(const struct zt_checkpoint_source *s)
{
    const struct zt_pickled *config = zt_pickled_get(s->deepspeed->model, "ds_config");
    int64_t on = 0;

    if (zt_pickled_int(zt_pickled_get(zt_pickled_get(config, "bf16"), "enabled"), &on) &&
        on)
        return ZT_BF16;
    if (zt_pickled_int(zt_pickled_get(zt_pickled_get(config, "bfloat16"), "enabled"),
                       &on) &&
        on)
        return ZT_BF16;
    if (zt_pickled_int(zt_pickled_get(zt_pickled_get(config, "fp16"), "enabled"), &on) &&
        on)
        return ZT_F16;
    return ZT_F32;
}

static void choose_kinds(struct import *m)
{
    zt_dtype compute = compute_dtype(m->s);

    m->kinds[m->num_kinds++] = (struct zt_ckpt_kind){"weights", compute};
    if (compute != ZT_F32)
        m->kinds[m->num_kinds++] = (struct zt_ckpt_kind){"master", ZT_F32};
    for (int k = 1; k < m->s->num_kinds; k++) {
        m->from[m->num_kinds] = k;
        m->kinds[m->num_kinds++] = (struct zt_ckpt_kind){m->s->kinds[k], ZT_F32};
    }
}

static zt_err choose_params(struct import *m, struct zt_fault *fault)
{
    size_t n = (size_t)m->s->num + 1;

    m->params = calloc(n, sizeof(*m->params));
    m->of = calloc(n, sizeof(*m->of));
    m->parts = calloc(n * (size_t)m->num_kinds, sizeof(*m->parts));
    if (!m->params || !m->of || !m->parts)
        return zt_fault_set(fault, ZT_E_NOMEM, "%s: no memory", m->s->path);
    for (int i = 0; i < m->s->num; i++) {
        const struct zt_source_tensor *t = &m->s->tensors[i];
        struct zt_ckpt_param *p = &m->params[m->num_params];

        if (t->buffer || t->t.alias_of)
            continue;
        *p = (struct zt_ckpt_param){.name = t->t.name,
                                    .ndim = t->t.ndim,
                                    .numel = t->t.numel,
                                    .frozen = !t->t.trained};
        memcpy(p->shape, t->t.shape, (size_t)t->t.ndim * sizeof(*p->shape));
        for (int k = 0; k < m->num_kinds; k++)
            if (t->kinds >> m->from[k] & 1 &&
                !(p->frozen && strcmp(m->kinds[k].name, "master") == 0))
                p->kinds |= 1u << k;
        m->of[m->num_params++] = i;
    }
    for (int k = 0; k < m->num_kinds; k++)
        for (int i = 0; i < m->num_params; i++)
            if (m->params[i].kinds >> k & 1)
                m->parts[m->num_parts++] = (struct zt_ckpt_part){
                    .kind = k, .param = i, .elems = m->params[i].numel};
    return ZT_OK;
}

/* ---- the shard ---- */

static zt_err write_part(struct import *m, struct zt_ckpt_shard_writer *w,
                         const struct zt_ckpt_part *p, float *values,
                         struct zt_fault *fault)
{
    zt_dtype dtype = m->kinds[p->kind].dtype;
    uint16_t *halves = (uint16_t *)(void *)(values + ZT_EXPORT_PIECE);
    zt_err rc = ZT_OK;

    for (int64_t at = 0; !rc && at < p->elems; at += ZT_EXPORT_PIECE) {
        int64_t n = p->elems - at < ZT_EXPORT_PIECE ? p->elems - at : ZT_EXPORT_PIECE;

        rc =
            zt_source_read(m->s, m->from[p->kind], m->of[p->param], at, n, values, fault);
        for (int64_t i = 0; !rc && dtype != ZT_F32 && i < n; i++)
            halves[i] = dtype == ZT_BF16 ? zt_bf16_of_float(values[i])
                                         : zt_f16_of_float(values[i]);
        if (!rc)
            rc = zt_ckpt_shard_put(w, dtype == ZT_F32 ? (void *)values : (void *)halves,
                                   (size_t)n * zt_dtype_bytes(dtype), fault);
    }
    return rc;
}

static zt_err write_shard(struct import *m, const char *dir,
                          struct zt_ckpt_shard_made *made, struct zt_fault *fault)
{
    struct zt_ckpt_tables tables = {m->kinds, m->num_kinds, m->params, m->num_params};
    float *values = malloc(2 * ZT_EXPORT_PIECE * sizeof(*values));
    struct zt_ckpt_shard_writer *w = NULL;
    zt_err rc =
        values ? zt_ckpt_shard_open(dir, 0, &tables, m->parts, m->num_parts, &w, fault)
               : zt_fault_set(fault, ZT_E_NOMEM, "%s: no memory", dir);

    for (int64_t i = 0; !rc && i < m->num_parts; i++)
        rc = write_part(m, w, &m->parts[i], values, fault);
    if (!rc)
        rc = zt_ckpt_shard_finish(w, made, fault);
    zt_ckpt_shard_close(w);
    free(values);
    return rc;
}

/* ---- the manifest ---- */

static json_t *kinds_json(const struct import *m)
{
    json_t *list = json_array();

    for (int k = 0; k < m->num_kinds; k++)
        json_array_append_new(list, json_pack("{s:s, s:s}", "name", m->kinds[k].name,
                                              "dtype", zt_dtype_name(m->kinds[k].dtype)));
    return list;
}

static json_t *params_json(const struct import *m)
{
    json_t *list = json_array();

    for (int i = 0; i < m->num_params; i++) {
        const struct zt_ckpt_param *p = &m->params[i];
        json_t *shape = json_array(), *kinds = json_array(), *one;

        for (int k = 0; k < p->ndim; k++)
            json_array_append_new(shape, json_integer(p->shape[k]));
        for (int k = 0; k < m->num_kinds; k++)
            if (p->kinds >> k & 1)
                json_array_append_new(kinds, json_integer(k));
        one =
            json_pack("{s:s, s:o, s:o}", "name", p->name, "shape", shape, "kinds", kinds);
        if (p->frozen)
            json_object_set_new(one, "frozen", json_true());
        json_array_append_new(list, one);
    }
    return list;
}

/* A member of DeepSpeed's loss scaler, an object whose state is a dictionary. */
static const struct zt_pickled *scaler_member(const struct zt_checkpoint_source *s,
                                              const char *key)
{
    const struct zt_pickled *o = zt_pickled_get(s->deepspeed->optimizer, "loss_scaler");
    const struct zt_pickled *found = NULL;

    for (int64_t i = 0; o && o->kind == ZT_PICKLED_OBJECT && i < o->num && !found; i++)
        found = zt_pickled_get(o->items[i], key);
    return found;
}

static json_t *training_json(const struct import *m)
{
    json_t *t = json_pack("{s:I, s:I, s:I, s:I, s:I, s:I}", "step", (json_int_t)m->step,
                          "steps_taken", (json_int_t)(m->step - m->skipped), "skipped",
                          (json_int_t)m->skipped, "samples", (json_int_t)m->samples,
                          "seed", (json_int_t)0, "total_steps", (json_int_t)0);
    int64_t iter = 0, last = -1, hysteresis = 1;
    double scale = 0;

    json_object_set_new(t, "param_groups", zt_param_groups_of(m->s));
    if (m->kinds[0].dtype != ZT_F16 ||
        !zt_pickled_real(scaler_member(m->s, "cur_scale"), &scale))
        return t;
    (void)zt_pickled_int(scaler_member(m->s, "cur_iter"), &iter);
    (void)zt_pickled_int(scaler_member(m->s, "last_overflow_iter"), &last);
    (void)zt_pickled_int(scaler_member(m->s, "cur_hysteresis"), &hysteresis);
    json_object_set_new(t, "scaler",
                        json_pack("{s:f, s:I, s:I, s:I}", "scale", scale, "iter",
                                  (json_int_t)iter, "last_overflow", (json_int_t)last,
                                  "hysteresis_left", (json_int_t)hysteresis));
    return t;
}

static zt_err write_manifest(const struct import *m, const char *dir,
                             const struct zt_ckpt_shard_made *made,
                             struct zt_fault *fault)
{
    char file[ZT_CKPT_SHARD_NAME], index[ZT_CKPT_SHARD_NAME], hash[ZT_HASH_TEXT];
    char *text = NULL;
    uint64_t whole;
    size_t bytes;
    json_t *root;
    zt_err rc;

    zt_ckpt_shard_names(0, file, index);
    zt_hash_print(made->index_hash, hash);
    root =
        json_pack("{s:s, s:i, s:s, s:s, s:s, s:i, s:i, s:o, s:{}, s:s, s:[], s:o, s:o, "
                  "s:[{s:s, s:I, "
                  "s:s, s:s}], s:{}}",
                  "format", ZT_CKPT_FORMAT, "version", ZT_CKPT_VERSION, "writer",
                  "zckpt " ZT_VERSION, "job", "", "tag", m->place.tag, "world_size", 1,
                  "zero_stage", 0, "training", training_json(m), "fingerprints", "config",
                  "{}", "files", "kinds", kinds_json(m), "params", params_json(m),
                  "shards", "file", file, "bytes", (json_int_t)made->bytes, "index",
                  index, "index_xxh3", hash, "client_state");
    if (!root)
        return zt_fault_set(fault, ZT_E_NOMEM, "%s: no memory", dir);
    for (int i = 0; i < m->s->num; i++)
        if (m->s->tensors[i].t.alias_of && !m->s->tensors[i].buffer)
            zt_ckpt_add_alias(root, m->s->tensors[i].t.name, m->s->tensors[i].t.alias_of);
    rc = zt_sealed_json_print(root, &text, &bytes, &whole, fault);
    if (!rc)
        rc = zt_hf_write_text(dir, "manifest.json", text, fault);
    free(text);
    json_decref(root);
    return rc;
}

static zt_err write_all(struct import *m, struct zt_fault *fault)
{
    struct zt_ckpt_shard_made made = {0};
    char dir[PATH_MAX];
    size_t folders_made = 0;
    zt_err rc = zt_folders_make(NULL, m->place.root, &folders_made, fault);

    if (!rc)
        rc = zt_ckpt_folder_begin(&m->place, fault);
    zt_ckpt_work_dir(&m->place, dir);
    if (!rc)
        rc = write_shard(m, dir, &made, fault);
    if (!rc)
        rc = write_manifest(m, dir, &made, fault);
    if (!rc)
        rc = zt_ckpt_folder_publish(&m->place, fault);
    else
        zt_ckpt_folder_abandon(&m->place);
    if (rc)
        zt_folders_remove(m->place.root, folders_made);
    return rc;
}

zt_err zt_convert_to_zlaunch(struct zt_checkpoint_source *s, const char *to,
                             bool overwrite, struct zt_fault *fault)
{
    struct import m = {.s = s};
    char dir[PATH_MAX + 64];
    zt_err rc;

    if (s->ours)
        return zt_fault_set(fault, ZT_E_USAGE,
                            "%s: is a checkpoint of zlaunch already; "
                            "--resume_from_checkpoint takes it as it is",
                            s->path);
    if (!s->deepspeed)
        return zt_fault_set(fault, ZT_E_USAGE,
                            "%s: has weights and no moments to resume from; train with "
                            "--model_name_or_path, or convert a checkpoint of DeepSpeed",
                            s->path);
    m.step = count_of(s, "global_steps");
    m.skipped = count_of(s, "skipped_steps");
    m.samples = count_of(s, "global_samples");
    zt_ckpt_place_of_step(&m.place, to, m.step);
    snprintf(dir, sizeof(dir), "%s/%s", to, m.place.name);
    rc = zt_source_check_kept(s, dir, fault);
    if (rc)
        return rc;
    if (!overwrite && access(dir, F_OK) == 0)
        return zt_fault_set(fault, ZT_E_CANTCREATE,
                            "%s is there already; --overwrite replaces it", dir);
    rc = zt_folder_lock_check(to, fault);
    if (rc)
        return rc;
    choose_kinds(&m);
    rc = choose_params(&m, fault);
    if (!rc)
        rc = write_all(&m, fault);
    if (!rc)
        zt_source_tell_left_out(s, false, dir);
    if (!rc)
        printf("%s/%s: %d parameters after step %lld, of %s\n", to, m.place.name,
               m.num_params, (long long)m.step, s->form);
    free(m.params);
    free(m.of);
    free(m.parts);
    return rc;
}
