#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/json/line.h"
#include "common/mapped_file.h"
#include "worker/checkpoint/hf_folder.h"
#include "worker/checkpoint/checksummed_json.h"
#include "worker/checkpoint/tokenizer_files.h"
#include "worker/config/canonical_text.h"
#include "worker/engine/checkpoint/private.h"
#include "worker/engine/data.h"
#include "worker/engine/weights.h"

static json_t *kinds_json(const struct zt_ckpt_state *s)
{
    json_t *list = json_array();

    for (int k = 0; k < s->num_kinds; k++)
        json_array_append_new(list, json_pack("{s:s, s:s}", "name", s->kinds[k].name,
                                              "dtype", zt_dtype_name(s->kinds[k].dtype)));
    return list;
}

static json_t *param_json(const struct zt_ckpt_state *s, const struct zt_ckpt_param *p)
{
    json_t *shape = json_array(), *kinds = json_array(), *one;

    for (int i = 0; i < p->ndim; i++)
        json_array_append_new(shape, json_integer(p->shape[i]));
    for (int k = 0; k < s->num_kinds; k++)
        if (p->kinds >> k & 1)
            json_array_append_new(kinds, json_integer(k));
    one = json_pack("{s:s, s:o, s:o}", "name", p->name, "shape", shape, "kinds", kinds);
    if (p->frozen)
        json_object_set_new(one, "frozen", json_true());
    return one;
}

static json_t *params_json(const struct zt_ckpt_state *s)
{
    json_t *list = json_array();

    for (int i = 0; i < s->num_params; i++)
        json_array_append_new(list, param_json(s, &s->params[i]));
    return list;
}

/* Names that other programs give a parameter besides its own: their files have it twice. */
static void add_aliases(json_t *root, const struct zt_model *m)
{
    int num;
    const struct zt_twin *twins = zt_model_twins(m, &num);

    for (int i = 0; i < num; i++)
        zt_ckpt_add_alias(root, twins[i].name, twins[i].param->name);
}

static void add_shards(json_t *list, const struct zt_ckpt_outcome *all, int world)
{
    for (int r = 0; r < world; r++) {
        char file[ZT_CKPT_SHARD_NAME], index[ZT_CKPT_SHARD_NAME], hash[ZT_HASH_TEXT];

        zt_ckpt_shard_names(r, file, index);
        zt_hash_print(all[r].made.index_hash, hash);
        json_array_append_new(list, json_pack("{s:s, s:I, s:s, s:s}", "file", file,
                                              "bytes", (json_int_t)all[r].made.bytes,
                                              "index", index, "index_xxh3", hash));
    }
}

/* ---- small files beside it ---- */

static zt_err write_file(const char *dir, const char *name, const char *up,
                         const char *text, json_t *files, struct zt_fault *fault)
{
    char hash[ZT_HASH_TEXT], listed[64];

    snprintf(listed, sizeof(listed), "%s%s", up, name);
    zt_hash_print(zt_hash_bytes(text, strlen(text)), hash);
    json_array_append_new(files, json_pack("{s:s, s:I, s:s}", "name", listed, "bytes",
                                           (json_int_t)strlen(text), "xxh3", hash));
    return zt_hf_write_text(dir, name, text, fault);
}

/* A file that is there already, synced. */
static zt_err list_file(const char *dir, const char *name, const char *up, json_t *files,
                        struct zt_fault *fault)
{
    char path[PATH_MAX + 64], hash[ZT_HASH_TEXT], listed[64];
    struct zt_mapping map = {0};
    zt_err rc;

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    rc = zt_mapping_open(path, &map, fault);
    if (rc)
        return rc;
    snprintf(listed, sizeof(listed), "%s%s", up, name);
    zt_hash_print(zt_hash_bytes(map.data, map.bytes), hash);
    json_array_append_new(files, json_pack("{s:s, s:I, s:s}", "name", listed, "bytes",
                                           (json_int_t)map.bytes, "xxh3", hash));
    zt_mapping_release(&map);
    return ZT_OK;
}

/* What programs around Hugging Face's Trainer look for. */
static char *trainer_state(const struct zt_engine *e, int64_t step)
{
    json_t *t =
        json_pack("{s:I, s:o, s:I, s:I}", "global_step", (json_int_t)step, "epoch",
                  zt_json_real(zt_engine_epochs(e, step, (double)e->samples)),
                  "max_steps", (json_int_t)e->planned_steps, "train_batch_size",
                  (json_int_t)e->run->micro_batch_size);
    char *text;

    if (e->best.step > 0)
        json_object_set_new(t, "best_metric", zt_json_real(e->best.metric));
    text = zt_json_file_text(t);
    json_decref(t);
    return text;
}

/* ---- the whole ---- */

/* What is in it is that of now; `files` and `shards` are filled when they are written. */
static json_t *manifest_json(const struct zt_engine *e, const struct zt_ckpt_place *place,
                             const struct zt_ckpt_state *s, int64_t step,
                             struct zt_fault *fault)
{
    char *config = NULL;
    json_t *root;

    if (zt_run_config_text(e->run, &config, fault))
        return NULL;
    root = json_pack("{s:s, s:i, s:s, s:s, s:s, s:i, s:i}", "format", ZT_CKPT_FORMAT,
                     "version", ZT_CKPT_VERSION, "writer", "zlaunch " ZT_VERSION, "job",
                     e->run->job, "tag", place->tag, "world_size", e->run->world,
                     "zero_stage", e->run->zero.stage);
    json_object_set_new(root, "training", zt_ckpt_training_json(e, step));
    json_object_set_new(root, "fingerprints", zt_ckpt_fingerprints(e));
    json_object_set_new(root, "config", json_string(config));
    json_object_set_new(root, "files", json_array());
    json_object_set_new(root, "others", json_array());
    json_object_set_new(root, "kinds", kinds_json(s));
    json_object_set_new(root, "params", params_json(s));
    add_aliases(root, e->model);
    json_object_set_new(root, "shards", json_array());
    free(config);
    if (!root)
        zt_fault_set(fault, ZT_E_NOMEM, "manifest.json: no host memory");
    return root;
}

zt_err zt_ckpt_describe(const struct zt_engine *e, const struct zt_ckpt_place *place,
                        const struct zt_ckpt_state *s, int64_t step,
                        struct zt_ckpt_description *out, struct zt_fault *fault)
{
    out->manifest = manifest_json(e, place, s, step, fault);
    if (!out->manifest)
        return ZT_E_NOMEM;
    out->run = e->run;
    out->learnt_end = zt_engine_learnt_end(e);
    out->config = zt_model_config_text(e->model);
    out->trainer_state = trainer_state(e, step);
    return out->config && out->trainer_state
               ? ZT_OK
               : zt_fault_set(fault, ZT_E_NOMEM, "config.json: no host memory");
}

void zt_ckpt_description_release(struct zt_ckpt_description *d)
{
    json_decref(d->manifest);
    free(d->config);
    free(d->trainer_state);
    zt_client_state_free(d->client);
    *d = (struct zt_ckpt_description){.manifest = NULL};
}

/* "model.safetensors", its shards and their index, of adapters, or of a tokenizer. */
static bool is_for_others(const char *name)
{
    return zt_is_tokenizer_file(name) || strncmp(name, "model.", 6) == 0 ||
           strncmp(name, "model-", 6) == 0 || strncmp(name, "adapter_", 8) == 0;
}

/* What is not read back. */
static zt_err list_others(const char *dir, const char *up, json_t *list,
                          struct zt_fault *fault)
{
    DIR *d = opendir(dir);
    const struct dirent *e;
    zt_err rc = ZT_OK;

    if (!d)
        return zt_fault_set(fault, ZT_E_CANTCREATE, "%s: cannot list the folder: %s", dir,
                            strerror(errno));
    while (!rc && (e = readdir(d)))
        if (is_for_others(e->d_name))
            rc = list_file(dir, e->d_name, up, list, fault);
    closedir(d);
    return rc;
}

zt_err zt_ckpt_write_description(const struct zt_ckpt_description *d,
                                 const struct zt_ckpt_place *place,
                                 const struct zt_ckpt_outcome *all, int world,
                                 struct zt_fault *fault)
{
    json_t *files = json_object_get(d->manifest, "files");
    const char *up = place->name[0] ? "../" : "";
    char top[PATH_MAX], work[PATH_MAX], *text = NULL;
    size_t bytes = 0;
    uint64_t hash;
    zt_err rc;

    zt_ckpt_work_top(place, top);
    zt_ckpt_work_dir(place, work);
    rc = write_file(top, "config.json", up, d->config, files, fault);
    zt_ckpt_place_tool(top);
    if (!rc)
        rc = write_file(top, "trainer_state.json", up, d->trainer_state, files, fault);
    if (!rc)
        rc = zt_weights_copy_tokenizer(d->run, d->learnt_end, top, fault);
    if (!rc)
        rc = list_others(top, up, json_object_get(d->manifest, "others"), fault);
    if (!rc && d->client)
        rc = zt_client_state_write(d->client, work, fault);
    if (!rc && d->client)
        rc = list_file(work, ZT_CLIENT_STATE_FILE, "", files, fault);
    add_shards(json_object_get(d->manifest, "shards"), all, world);
    if (!rc)
        rc = zt_sealed_json_print(d->manifest, &text, &bytes, &hash, fault);
    if (!rc)
        rc = zt_hf_write_text(work, "manifest.json", text, fault);
    free(text);
    return rc;
}
