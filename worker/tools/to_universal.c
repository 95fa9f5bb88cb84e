/*
 * to_universal.c -- a checkpoint as DeepSpeed's universal one, from which DeepSpeed resumes
 * on any number of ranks and in any ZeRO stage ("checkpoint": {"load_universal": true}).
 *
 *      TO/latest_universal                             text: TAG
 *      TO/TAG/zero/PARAMETER/fp32.pt, exp_avg.pt, exp_avg_sq.pt, step.pt
 *      TO/TAG/zero/optimizer_state.pt                  what is not of one parameter
 *      TO/TAG/mp_rank_00_model_states.pt               counters; the second name is read
 *      TO/TAG/zero_pp_rank_0_mp_rank_00_model_states.pt       with stage 3
 *
 * Groups of parameters have the learning rate of the next step, which DeepSpeed's schedules set
 * behind a step: the first one after loading is taken with what is here.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/stat.h>

#include "common/files/folders.h"
#include "worker/checkpoint/folder.h"
#include "worker/checkpoint/folder_lock.h"
#include "worker/checkpoint/hf_folder.h"
#include "worker/tools/convert.h"
#include "worker/tools/export.h"
#include "worker/tools/param_groups.h"
#include "worker/torch_file/torch_write.h"

/* DeepSpeed takes as many parameter groups from the list as its optimizer has. */
#define GROUPS  64
#define VERSION "0.14.0" /* of DeepSpeed, whose form this is */

struct universal {
    struct zt_checkpoint_source *s;
    char dir[PATH_MAX]; /* TO/.TAG.tmp, while it is written */
    const char *tag;
    int64_t step, taken, skipped, samples;
    json_t *groups; /* param_groups.h */
};

static const struct {
    const char *kind, *file;
} files[] = {{"value", "fp32"}, {"exp_avg", "exp_avg"}, {"exp_avg_sq", "exp_avg_sq"}};

static zt_err make_dir(const char *path, struct zt_fault *fault)
{
    if (mkdir(path, 0777) < 0 && errno != EEXIST)
        return zt_fault_set(fault, ZT_E_CANTCREATE, "%s: %s", path, strerror(errno));
    return ZT_OK;
}

/* ---- a file of values; `data` are those of its tensors ---- */

static zt_err write_values(struct zt_torch_values *v, const char *path, const void *data,
                           size_t bytes, struct zt_fault *fault)
{
    struct zt_torch_writer *w = NULL;
    zt_err rc = zt_torch_writer_open(path, v, &w, fault);

    if (!rc)
        rc = zt_torch_writer_put(w, data, bytes, fault);
    if (!rc)
        rc = zt_torch_writer_commit(w, fault);
    zt_torch_writer_close(w);
    zt_torch_values_release(v);
    return rc;
}

static void put_count(struct zt_torch_values *v, const char *key, int64_t value)
{
    zt_torch_put_text(v, key);
    zt_torch_put_int(v, value);
}

/* {"param": tensor} of one kind, streamed. */
static zt_err write_state(struct universal *u, int i, int kind, const char *path,
                          struct zt_fault *fault)
{
    const struct zt_checkpoint_tensor *t = &u->s->tensors[i].t;
    const struct zt_safetensors_decl d = {t->name, ZT_F32, t->ndim, t->shape};
    float *values = malloc(ZT_EXPORT_PIECE * sizeof(*values));
    struct zt_torch_writer *w = NULL;
    struct zt_torch_values v;
    zt_err rc;

    if (!values)
        return zt_fault_set(fault, ZT_E_NOMEM, "%s: no memory", path);
    zt_torch_values_init(&v);
    zt_torch_put_mark(&v, ZT_TORCH_DICT);
    zt_torch_put_text(&v, "param");
    zt_torch_put_tensor(&v, &d);
    zt_torch_put_end(&v, ZT_TORCH_DICT);
    rc = zt_torch_writer_open(path, &v, &w, fault);
    for (int64_t at = 0; !rc && at < t->numel; at += ZT_EXPORT_PIECE) {
        int64_t n = t->numel - at < ZT_EXPORT_PIECE ? t->numel - at : ZT_EXPORT_PIECE;

        rc = zt_source_read(u->s, kind, i, at, n, values, fault);
        if (!rc)
            rc = zt_torch_writer_put(w, values, (size_t)n * sizeof(*values), fault);
    }
    if (!rc)
        rc = zt_torch_writer_commit(w, fault);
    zt_torch_writer_close(w);
    zt_torch_values_release(&v);
    free(values);
    return rc;
}

static zt_err write_param(struct universal *u, int i, struct zt_fault *fault)
{
    const struct zt_safetensors_decl scalar = {"step", ZT_F32, 0, NULL};
    const char *name = u->s->tensors[i].t.name;
    float step = (float)u->taken;
    char dir[PATH_MAX], path[PATH_MAX + 32];
    struct zt_torch_values v;
    zt_err rc;

    if (strchr(name, '/') || name[0] == '.' ||
        snprintf(dir, sizeof(dir), "%s/zero/%s", u->dir, name) >= (int)sizeof(dir))
        return zt_fault_set(fault, ZT_E_FORMAT, "%s: %s cannot be the name of a folder",
                            u->s->path, name);
    rc = make_dir(dir, fault);
    for (size_t k = 0; !rc && k < sizeof(files) / sizeof(*files); k++) {
        snprintf(path, sizeof(path), "%s/%s.pt", dir, files[k].file);
        rc = write_state(u, i, zt_source_find_kind(u->s, files[k].kind), path, fault);
    }
    if (rc)
        return rc;
    snprintf(path, sizeof(path), "%s/step.pt", dir);
    zt_torch_values_init(&v);
    zt_torch_put_tensor(&v, &scalar);
    return write_values(&v, path, &step, sizeof(step), fault);
}

/* ---- what is not of one parameter ---- */

static void put_groups(struct zt_torch_values *v, const struct universal *u)
{
    zt_torch_put_text(v, "param_groups");
    zt_torch_put_mark(v, ZT_TORCH_LIST);
    for (size_t g = 0; g < GROUPS; g++) {
        zt_torch_put_mark(v, ZT_TORCH_DICT);
        put_count(v, "step", u->taken);
        zt_param_groups_put(u->groups, g, v);
        zt_torch_put_end(v, ZT_TORCH_DICT);
    }
    zt_torch_put_end(v, ZT_TORCH_LIST);
}

static zt_err write_optimizer(const struct universal *u, struct zt_fault *fault)
{
    const struct zt_safetensors_decl scalar = {"step", ZT_F32, 0, NULL};
    float step = (float)u->taken;
    char path[PATH_MAX + 32];
    struct zt_torch_values v;

    snprintf(path, sizeof(path), "%s/zero/optimizer_state.pt", u->dir);
    zt_torch_values_init(&v);
    zt_torch_put_mark(&v, ZT_TORCH_DICT);
    zt_torch_put_text(&v, "ds_version");
    zt_torch_put_text(&v, VERSION);
    put_groups(&v, u);
    /* stage 3 looks here */
    zt_torch_put_text(&v, "optimizer_state_dict");
    zt_torch_put_mark(&v, ZT_TORCH_DICT);
    put_groups(&v, u);
    zt_torch_put_text(&v, "state");
    zt_torch_put_mark(&v, ZT_TORCH_DICT);
    zt_torch_put_int(&v, 0);
    zt_torch_put_mark(&v, ZT_TORCH_DICT);
    zt_torch_put_text(&v, "step");
    zt_torch_put_tensor(&v, &scalar);
    zt_torch_put_end(&v, ZT_TORCH_DICT);
    zt_torch_put_end(&v, ZT_TORCH_DICT);
    zt_torch_put_end(&v, ZT_TORCH_DICT);
    zt_torch_put_end(&v, ZT_TORCH_DICT);
    return write_values(&v, path, &step, sizeof(step), fault);
}

static void put_shapes(struct zt_torch_values *v, const struct zt_checkpoint_source *s)
{
    zt_torch_put_text(v, "param_shapes");
    zt_torch_put_mark(v, ZT_TORCH_LIST);
    zt_torch_put_mark(v, ZT_TORCH_DICT);
    for (int i = 0; i < s->num; i++) {
        const struct zt_checkpoint_tensor *t = &s->tensors[i].t;

        if (!t->trained || t->alias_of)
            continue;
        zt_torch_put_text(v, t->name);
        zt_torch_put_mark(v, ZT_TORCH_TUPLE);
        for (int k = 0; k < t->ndim; k++)
            zt_torch_put_int(v, t->shape[k]);
        zt_torch_put_end(v, ZT_TORCH_TUPLE);
    }
    zt_torch_put_end(v, ZT_TORCH_DICT);
    zt_torch_put_end(v, ZT_TORCH_LIST);
}

static void put_empty(struct zt_torch_values *v, const char *key)
{
    zt_torch_put_text(v, key);
    zt_torch_put_mark(v, ZT_TORCH_DICT);
    zt_torch_put_end(v, ZT_TORCH_DICT);
}

static void put_shared(struct zt_torch_values *v, const struct zt_checkpoint_source *s)
{
    zt_torch_put_text(v, "shared_params");
    zt_torch_put_mark(v, ZT_TORCH_DICT);
    for (int i = 0; i < s->num; i++)
        if (s->tensors[i].t.alias_of) {
            zt_torch_put_text(v, s->tensors[i].t.name);
            zt_torch_put_text(v, s->tensors[i].t.alias_of);
        }
    zt_torch_put_end(v, ZT_TORCH_DICT);
}

static zt_err write_model(const struct universal *u, const char *file,
                          struct zt_fault *fault)
{
    char path[PATH_MAX + 64];
    struct zt_torch_values v;

    snprintf(path, sizeof(path), "%s/%s", u->dir, file);
    zt_torch_values_init(&v);
    zt_torch_put_mark(&v, ZT_TORCH_DICT);
    put_empty(&v, "module"); /* weights are those in zero/ */
    put_empty(&v, "buffer_names");
    put_shapes(&v, u->s);
    put_shared(&v, u->s);
    zt_torch_put_text(&v, "optimizer");
    zt_torch_put_none(&v);
    zt_torch_put_text(&v, "lr_scheduler");
    zt_torch_put_mark(&v, ZT_TORCH_DICT);
    put_count(&v, "last_batch_iteration", u->taken - 1);
    zt_torch_put_end(&v, ZT_TORCH_DICT);
    put_count(&v, "global_steps", u->step);
    put_count(&v, "global_samples", u->samples);
    put_count(&v, "skipped_steps", u->skipped);
    put_count(&v, "dp_world_size", 1);
    put_count(&v, "mp_world_size", 1);
    zt_torch_put_text(&v, "ds_version");
    zt_torch_put_text(&v, VERSION);
    zt_torch_put_end(&v, ZT_TORCH_DICT);
    return write_values(&v, path, "", 0, fault);
}

/* ---- all ---- */

static int64_t manifest_count(const struct zt_checkpoint_source *s, const char *key)
{
    const json_t *training = json_object_get(zt_ckpt_manifest(s->ours)->root, "training");

    return json_integer_value(json_object_get(training, key));
}

static int64_t ds_count(const struct zt_checkpoint_source *s, const char *key)
{
    int64_t n = 0;

    return zt_pickled_int(zt_pickled_get(s->deepspeed->model, key), &n) ? n : 0;
}

static zt_err describe(struct universal *u, struct zt_fault *fault)
{
    const struct zt_checkpoint_source *s = u->s;

    if (!s->ours && !s->deepspeed)
        return zt_fault_set(fault, ZT_E_USAGE,
                            "%s: has weights and no moments to resume from; give a "
                            "checkpoint",
                            s->path);
    if (zt_source_find_kind(s, "exp_avg") < 0 || zt_source_find_kind(s, "exp_avg_sq") < 0)
        return zt_fault_set(
            fault, ZT_E_USAGE,
            "%s: has no exp_avg and exp_avg_sq; DeepSpeed's universal form "
            "is for Adam alone",
            s->path);
    u->step = s->ours ? manifest_count(s, "step") : ds_count(s, "global_steps");
    u->skipped = s->ours ? manifest_count(s, "skipped") : ds_count(s, "skipped_steps");
    u->samples = s->ours ? manifest_count(s, "samples") : ds_count(s, "global_samples");
    u->taken = s->ours                             ? manifest_count(s, "steps_taken")
               : s->deepspeed->optimizer_step >= 0 ? s->deepspeed->optimizer_step
                                                   : u->step - u->skipped;
    u->groups = zt_param_groups_of(s);
    return u->groups ? ZT_OK : zt_fault_set(fault, ZT_E_NOMEM, "%s: no memory", s->path);
}

/* It has its name when all of it is there. */
static zt_err write_all(struct universal *u, struct zt_fault *fault)
{
    char path[PATH_MAX + 16];
    zt_err rc = zt_ckpt_remove_tree(u->dir, fault); /* a killed conversion's */

    if (!rc)
        rc = make_dir(u->dir, fault);
    snprintf(path, sizeof(path), "%s/zero", u->dir);
    if (!rc)
        rc = make_dir(path, fault);
    for (int i = 0; !rc && i < u->s->num; i++)
        if (u->s->tensors[i].t.trained && !u->s->tensors[i].t.alias_of)
            rc = write_param(u, i, fault);
    if (!rc)
        rc = write_optimizer(u, fault);
    if (!rc)
        rc = write_model(u, "mp_rank_00_model_states.pt", fault);
    if (!rc)
        rc = write_model(u, "zero_pp_rank_0_mp_rank_00_model_states.pt", fault);
    return rc;
}

/* Of a checkpoint that was written before they were in it. */
static void tell_of_no_rate(const struct universal *u)
{
    if (!json_object_get(json_array_get(u->groups, 0), "lr"))
        fprintf(
            stderr,
            "%s: does not say the learning rate of its next step; DeepSpeed takes that "
            "with the first rate of its own schedule\n",
            u->s->path);
}

static zt_err convert(struct universal *u, const char *to, bool overwrite,
                      struct zt_fault *fault)
{
    char final[PATH_MAX];
    size_t made = 0;
    zt_err rc;

    snprintf(final, sizeof(final), "%s/%s", to, u->tag);
    if (snprintf(u->dir, sizeof(u->dir), "%s/.%s.tmp", to, u->tag) >= (int)sizeof(u->dir))
        return zt_fault_set(fault, ZT_E_CANTCREATE, "%s: too long a path", to);
    rc = zt_source_check_kept(u->s, final, fault);
    if (rc)
        return rc;
    if (!overwrite && access(final, F_OK) == 0)
        return zt_fault_set(fault, ZT_E_CANTCREATE,
                            "%s is there already; --overwrite replaces it", final);
    rc = zt_folder_lock_check(to, fault);
    if (rc)
        return rc;
    rc = zt_folders_make(NULL, to, &made, fault);
    if (!rc)
        rc = write_all(u, fault);
    if (!rc)
        rc = zt_ckpt_replace_folder(to, u->dir, final, fault);
    if (rc) {
        (void)!zt_ckpt_remove_tree(u->dir, NULL);
        zt_folders_remove(to, made);
        return rc;
    }
    rc = zt_hf_write_text(to, "latest_universal", u->tag, fault);
    if (rc)
        return rc;
    printf("%s: DeepSpeed's universal checkpoint of step %lld\n", final,
           (long long)u->step);
    zt_source_tell_left_out(u->s, true, final);
    tell_of_no_rate(u);
    return ZT_OK;
}

zt_err zt_convert_to_universal(struct zt_checkpoint_source *s, const char *to,
                               bool overwrite, struct zt_fault *fault)
{
    struct universal u = {.s = s};
    char tag[64];
    zt_err rc = describe(&u, fault);

    if (!rc) {
        snprintf(tag, sizeof(tag), "global_step%lld_universal", (long long)u.step);
        u.tag = tag;
        rc = convert(&u, to, overwrite, fault);
    }
    json_decref(u.groups);
    return rc;
}
