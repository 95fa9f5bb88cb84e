/* export.c -- choosing tensors, cutting shards, and streaming values into them. */
#include "worker/tools/export.h"

#include <errno.h>
#include <limits.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/files/folders.h"
#include "common/files/models.h"
#include "common/half.h"
#include "common/mapped_file.h"
#include "worker/checkpoint/folder.h"
#include "worker/checkpoint/folder_lock.h"
#include "worker/checkpoint/hf_folder.h"
#include "worker/checkpoint/tokenizer_files.h"
#include "worker/tools/output_name.h"
#include "worker/torch_file/torch_write.h"

#define PICKLE_INDEX "pytorch_model.bin.index.json"

/* What is written: tensor `of` of the source under a declaration; aliases behind it. */
struct export_item {
    struct zt_safetensors_decl decl;
    int of;
};

struct export_list {
    struct export_item *items;
    int num;
};

/* ---- values ---- */

bool zt_parse_size(const char *text, int64_t *out)
{
    static const struct {
        const char *name;
        int64_t bytes;
    } units[] = {{"", 1},          {"B", 1},           {"KB", 1000},
                 {"MB", 1000000},  {"GB", 1000000000}, {"TB", 1000000000000},
                 {"KiB", 1 << 10}, {"MiB", 1 << 20},   {"GiB", 1 << 30}};
    char *end;
    long long n;

    errno = 0;
    n = strtoll(text, &end, 10);
    if (end == text || n <= 0 || errno)
        return false;
    for (size_t i = 0; i < sizeof(units) / sizeof(*units); i++)
        if (strcasecmp(end, units[i].name) == 0)
            return !__builtin_mul_overflow((int64_t)n, units[i].bytes, out);
    return false;
}

static size_t narrow(const float *in, int64_t n, zt_dtype dtype, void *out)
{
    uint16_t *h = out;

    if (dtype == ZT_F32) {
        memcpy(out, in, (size_t)n * sizeof(float));
        return (size_t)n * sizeof(float);
    }
    for (int64_t i = 0; i < n; i++)
        h[i] = dtype == ZT_BF16 ? zt_bf16_of_float(in[i]) : zt_f16_of_float(in[i]);
    return (size_t)n * sizeof(*h);
}

zt_err zt_export_stream(struct zt_checkpoint_source *s,
                        const struct zt_tensor_export *how, int i,
                        zt_err (*put)(void *to, const void *data, size_t bytes,
                                      struct zt_fault *fault),
                        void *to, struct zt_fault *fault)
{
    const struct zt_source_tensor *t = &s->tensors[i];
    float *values;
    zt_err rc = ZT_OK;

    if (t->raw)
        return put(to, t->raw, (size_t)t->t.numel * zt_dtype_bytes(t->dtype), fault);
    values = malloc(2 * ZT_EXPORT_PIECE * sizeof(*values));
    if (!values)
        return zt_fault_set(fault, ZT_E_NOMEM, "%s: no memory", how->to);
    for (int64_t at = 0; !rc && at < t->t.numel; at += ZT_EXPORT_PIECE) {
        int64_t n = t->t.numel - at < ZT_EXPORT_PIECE ? t->t.numel - at : ZT_EXPORT_PIECE;

        rc = how->value ? how->value(how->arg, i, at, n, values, fault)
                        : zt_source_read(s, 0, i, at, n, values, fault);
        if (!rc && how->dtype != ZT_F32)
            zt_source_note_lost(s, i, values, n,
                                how->dtype == ZT_F16 ? ZT_F16_LIMIT : ZT_BF16_LIMIT);
        if (!rc)
            rc = put(to, values + ZT_EXPORT_PIECE,
                     narrow(values, n, how->dtype, values + ZT_EXPORT_PIECE), fault);
    }
    free(values);
    return rc;
}

/* ---- which ---- */

static void tell_elsewhere(const struct zt_checkpoint_source *s)
{
    int num = 0;

    for (int i = 0; i < s->num; i++)
        num += zt_source_is_elsewhere(s, i);
    if (num)
        fprintf(
            stderr,
            "%s: %d frozen tensors are left out: they are as in the model that the "
            "training began from, and not in the checkpoint; --merge_adapters saves a "
            "whole model\n",
            s->path, num);
}

/* Pickles have aliases as well, safetensors name a tensor once. */
static bool is_wanted(const struct zt_checkpoint_source *s,
                      const struct zt_tensor_export *how, int i, bool aliases)
{
    const struct zt_source_tensor *t = &s->tensors[i];

    if (t->t.alias_of && !aliases)
        return false;
    return !how->leave_frozen || t->t.trained || t->buffer;
}

static zt_err choose(struct zt_checkpoint_source *s, const struct zt_tensor_export *how,
                     bool aliases, struct export_list *list, struct zt_fault *fault)
{
    list->items = calloc((size_t)s->num + 1, sizeof(*list->items));
    if (!list->items)
        return zt_fault_set(fault, ZT_E_NOMEM, "%s: no memory", how->to);
    for (int i = 0; i < s->num; i++) {
        const struct zt_source_tensor *t = &s->tensors[i];
        const char *type = zt_source_unread_type(s, i);

        if (!is_wanted(s, how, i, aliases) || zt_source_is_elsewhere(s, i))
            continue;
        if (!t->t.readable && !t->raw) /* without it the model would not be whole */
            return zt_fault_set(fault, ZT_E_FORMAT,
                                "%s: %s is stored as %s, which is not read; save it as "
                                "float32",
                                s->path, t->t.name, type ? type : "another type");
        list->items[list->num++] = (struct export_item){
            {t->t.name, t->raw ? t->dtype : how->dtype, t->t.ndim, t->t.shape}, i};
    }
    if (!how->leave_frozen)
        tell_elsewhere(s);
    return ZT_OK;
}

/* ---- safetensors ---- */

static zt_err put_folder(void *to, const void *data, size_t bytes, struct zt_fault *fault)
{
    return zt_hf_writer_put(to, data, bytes, fault);
}

static zt_err put_file(void *to, const void *data, size_t bytes, struct zt_fault *fault)
{
    return zt_safetensors_writer_put(to, data, bytes, fault);
}

static zt_err write_safetensors(struct zt_checkpoint_source *s,
                                const struct zt_tensor_export *how,
                                const struct export_list *list, bool one_file,
                                struct zt_fault *fault)
{
    struct zt_safetensors_decl *decls = calloc((size_t)list->num + 1, sizeof(*decls));
    struct zt_safetensors_writer *file = NULL;
    struct zt_hf_writer *folder = NULL;
    zt_err rc;

    if (!decls)
        return zt_fault_set(fault, ZT_E_NOMEM, "%s: no memory", how->to);
    for (int i = 0; i < list->num; i++)
        decls[i] = list->items[i].decl;
    if (one_file)
        rc = zt_safetensors_writer_open(how->to, decls, list->num, &file, fault);
    else
        rc = zt_hf_writer_open(how->to, decls, list->num, how->shard_bytes, &folder,
                               fault);
    for (int i = 0; !rc && i < list->num; i++)
        rc = zt_export_stream(s, how, list->items[i].of, one_file ? put_file : put_folder,
                              one_file ? (void *)file : (void *)folder, fault);
    if (!rc)
        rc = one_file ? zt_safetensors_writer_commit(file, fault)
                      : zt_hf_writer_commit(folder, fault);
    zt_safetensors_writer_close(file);
    zt_hf_writer_close(folder);
    free(decls);
    return rc;
}

/* ---- pickles ---- */

static zt_err put_torch(void *to, const void *data, size_t bytes, struct zt_fault *fault)
{
    return zt_torch_writer_put(to, data, bytes, fault);
}

/* The original of an alias among items [from, to) that are no aliases: its number there;
 * -1: it is not in this file. */
static int original(const struct zt_checkpoint_source *s, const struct export_list *list,
                    int from, int to, const char *name)
{
    int number = 0;

    for (int i = from; i < to; i++) {
        const struct zt_source_tensor *t = &s->tensors[list->items[i].of];

        if (t->t.alias_of)
            continue;
        if (strcmp(t->t.name, name) == 0)
            return number;
        number++;
    }
    return -1;
}

/* Items [from, to) as one file; an alias goes where its original is. */
static zt_err write_pickle(struct zt_checkpoint_source *s,
                           const struct zt_tensor_export *how,
                           const struct export_list *list, int from, int to,
                           const char *path, struct zt_fault *fault)
{
    struct zt_torch_writer *w = NULL;
    struct zt_torch_values v;
    zt_err rc;

    zt_torch_values_init(&v);
    zt_torch_put_mark(&v, ZT_TORCH_DICT);
    for (int i = from; i < to; i++)
        if (!s->tensors[list->items[i].of].t.alias_of) {
            zt_torch_put_text(&v, list->items[i].decl.name);
            zt_torch_put_tensor(&v, &list->items[i].decl);
        }
    for (int i = 0; i < list->num; i++) {
        const char *of = s->tensors[list->items[i].of].t.alias_of;
        int number = of ? original(s, list, from, to, of) : -1;

        if (number >= 0) {
            zt_torch_put_text(&v, list->items[i].decl.name);
            zt_torch_put_tensor_again(&v, &list->items[i].decl, (size_t)number);
        }
    }
    zt_torch_put_end(&v, ZT_TORCH_DICT);
    rc = zt_torch_writer_open(path, &v, &w, fault);
    for (int i = from; !rc && i < to; i++)
        if (!s->tensors[list->items[i].of].t.alias_of)
            rc = zt_export_stream(s, how, list->items[i].of, put_torch, w, fault);
    if (!rc)
        rc = zt_torch_writer_commit(w, fault);
    zt_torch_writer_close(w);
    zt_torch_values_release(&v);
    return rc;
}

/* The end of the shard that begins at `from`; *bytes: of its tensors. */
static int end_of_shard(const struct zt_checkpoint_source *s,
                        const struct export_list *list, int from, int64_t limit,
                        int64_t *bytes)
{
    int64_t all = 0;
    int i = from;

    for (; i < list->num; i++) {
        int64_t n = s->tensors[list->items[i].of].t.numel *
                    (int64_t)zt_dtype_bytes(list->items[i].decl.dtype);

        if (s->tensors[list->items[i].of].t.alias_of)
            n = 0;
        if (i > from && n > limit - all)
            break;
        all += n;
    }
    *bytes = all;
    return i;
}

static void name_shards(json_t *map, const struct zt_checkpoint_source *s,
                        const struct export_list *list, int from, int to,
                        const char *file)
{
    for (int i = 0; i < list->num; i++) {
        const char *of = s->tensors[list->items[i].of].t.alias_of;

        if (of ? original(s, list, from, to, of) >= 0 : i >= from && i < to)
            json_object_set_new(map, list->items[i].decl.name, json_string(file));
    }
}

static zt_err write_index(const char *dir, json_t *map, int64_t total,
                          struct zt_fault *fault)
{
    json_t *root = json_pack("{s:{s:I}, s:O}", "metadata", "total_size",
                             (json_int_t)total, "weight_map", map);
    char *text = root ? json_dumps(root, JSON_INDENT(2)) : NULL;
    zt_err rc = text ? zt_hf_write_text(dir, PICKLE_INDEX, text, fault)
                     : zt_fault_set(fault, ZT_E_NOMEM, "%s: no memory", dir);

    free(text);
    json_decref(root);
    return rc;
}

struct pickle_names {
    const json_t *map; /* of tensors to files */
    int num;           /* files */
};

static bool is_ours(const void *arg, const char *name)
{
    const struct pickle_names *mine = arg;
    const char *tensor;
    json_t *file;

    if (mine->num > 1 && strcmp(name, PICKLE_INDEX) == 0)
        return true;
    json_object_foreach((json_t *)mine->map, tensor, file)
    {
        if (strcmp(json_string_value(file), name) == 0)
            return true;
    }
    return false;
}

static void name_pickle(char name[64], int shard, int num)
{
    if (num == 1)
        snprintf(name, 64, "pytorch_model.bin");
    else
        snprintf(name, 64, "pytorch_model-%05d-of-%05d.bin", shard, num);
}

/* Out of the folder where they were written: files that are named `num` of them. */
static zt_err publish_pickles(const char *from, const char *to, int num,
                              struct zt_fault *fault)
{
    for (int i = 1; i <= num; i++) {
        char name[64], old[PATH_MAX], new[PATH_MAX];

        name_pickle(name, i, num);
        if (snprintf(old, sizeof(old), "%s/%s", from, name) >= (int)sizeof(old) ||
            snprintf(new, sizeof(new), "%s/%s", to, name) >= (int)sizeof(new))
            return zt_fault_set(fault, ZT_E_CANTCREATE, "%s: too long a path", to);
        if (rename(old, new) < 0)
            return zt_fault_set(fault, ZT_E_CANTCREATE, "%s: %s", new, strerror(errno));
    }
    return ZT_OK;
}

/* What is there is replaced when all is written, so that a full disk leaves it whole. */
static zt_err write_pickles(struct zt_checkpoint_source *s,
                            const struct zt_tensor_export *how,
                            const struct export_list *list, struct zt_fault *fault)
{
    json_t *map = json_object();
    int64_t bytes = 0, total = 0;
    int num = 0, shard = 0;
    char work[PATH_MAX];
    zt_err rc = ZT_OK;

    if (snprintf(work, sizeof(work), "%s/.pytorch_model.tmp", how->to) >=
        (int)sizeof(work))
        rc = zt_fault_set(fault, ZT_E_CANTCREATE, "%s: too long a path", how->to);
    if (!rc) /* a killed one's */
        rc = zt_ckpt_remove_tree(work, fault);
    if (!rc && mkdir(work, 0777) < 0)
        rc = zt_fault_set(fault, ZT_E_CANTCREATE, "%s: %s", work, strerror(errno));
    if (rc) {
        json_decref(map);
        return rc;
    }
    for (int at = 0; at < list->num; num++)
        at = end_of_shard(s, list, at, how->shard_bytes, &bytes);
    for (int at = 0, next; !rc && at < list->num; at = next) {
        char name[64], *path = NULL;

        next = end_of_shard(s, list, at, how->shard_bytes, &bytes);
        name_pickle(name, ++shard, num);
        if (asprintf(&path, "%s/%s", work, name) < 0)
            rc = zt_fault_set(fault, ZT_E_NOMEM, "%s: no memory", how->to);
        else
            rc = write_pickle(s, how, list, at, next, path, fault);
        name_shards(map, s, list, at, next, name);
        total += bytes;
        free(path);
    }
    if (!rc)
        rc = publish_pickles(work, how->to, num, fault);
    (void)!zt_ckpt_remove_tree(work, NULL);
    if (!rc && num > 1)
        rc = write_index(how->to, map, total, fault);
    if (!rc)
        rc =
            zt_hf_remove_older(how->to, is_ours, &(struct pickle_names){map, num}, fault);
    json_decref(map);
    return rc;
}

/* ---- the files beside them ---- */

static zt_err read_text(const char *path, char **out, struct zt_fault *fault)
{
    struct zt_mapping m = {0};
    zt_err rc = zt_mapping_open(path, &m, fault);

    if (rc)
        return rc;
    *out = strndup(m.bytes ? (const char *)m.data : "", m.bytes);
    zt_mapping_release(&m);
    return *out ? ZT_OK : zt_fault_set(fault, ZT_E_NOMEM, "%s: no memory", path);
}

/* What stands beside the weights of the source. */
struct neighbours {
    char *folder; /* NULL: there is no config.json */
    char *config; /* its text, or NULL */
};

/* Whether the source is the checkpoint that `to` is: its folder, that with `latest`, or checkpoint-STEP
 * around that. */
static bool is_own(const struct zt_checkpoint_source *s, const char *to)
{
    static const char *const up[] = {"", "/..", "/../.."};
    char above[PATH_MAX];
    bool own = false;

    for (size_t i = 0; s->ours && !own && i < sizeof(up) / sizeof(*up); i++)
        own = snprintf(above, sizeof(above), "%s%s", zt_ckpt_dir(s->ours), up[i]) <
                  PATH_MAX &&
              zt_is_one_file(above, to);
    return own;
}

/* The folder in which a file is a model by its name; false: it is none. */
static bool is_model_in(const char *file, char dir[PATH_MAX])
{
    static const char *const names[] = {"model.safetensors", "pytorch_model.bin",
                                        "adapter_model.safetensors"};
    const char *slash = strrchr(file, '/'), *name = slash ? slash + 1 : file;
    bool is = false;

    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        is = is || strcmp(name, names[i]) == 0;
    return is && snprintf(dir, PATH_MAX, "%.*s", (int)(slash ? slash + 1 - file : 2),
                          slash ? file : "./") < PATH_MAX;
}

/* The value of the key at `at`, where that is the name of a type; *n: its characters. NULL: it is none. */
static char *type_at(char *at, size_t *n)
{
    static const char *const keys[] = {"\"dtype\"", "\"torch_dtype\""};
    static const char *const types[] = {"float32", "bfloat16", "float16"};

    for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++) {
        char *value = at + strlen(keys[i]);

        if (strncmp(at, keys[i], strlen(keys[i])) != 0)
            continue;
        value += strspn(value, " \t\r\n:");
        for (size_t t = 0; *value == '"' && t < sizeof(types) / sizeof(*types); t++) {
            *n = strlen(types[t]);
            if (strncmp(value + 1, types[t], *n) == 0 && value[1 + *n] == '"')
                return value + 1;
        }
    }
    return NULL;
}

/* config.json says the type of the weights, in which transformers opens them. */
static zt_err set_type(char **config, zt_dtype dtype, struct zt_fault *fault)
{
    const char *name = dtype == ZT_BF16  ? "bfloat16"
                       : dtype == ZT_F16 ? "float16"
                                         : "float32";

    for (size_t at = 0; (*config)[at]; at++) {
        size_t n;
        char *type = type_at(*config + at, &n), *next;

        if (!type)
            continue;
        if (asprintf(&next, "%.*s%s%s", (int)(type - *config), *config, name, type + n) <
            0)
            return zt_fault_set(fault, ZT_E_NOMEM, "config.json: no memory");
        free(*config);
        *config = next;
    }
    return ZT_OK;
}

static zt_err find_neighbours(const struct zt_checkpoint_source *s,
                              const struct zt_tensor_export *how, const char *dir,
                              struct neighbours *out, struct zt_fault *fault)
{
    bool own = !how->value && is_own(s, dir);
    zt_err rc = zt_source_neighbour(s, "config.json", &out->folder, fault);

    if (!rc && out->folder)
        rc = read_text(out->folder, &out->config, fault);
    if (out->folder)
        *strrchr(out->folder, '/') = 0;
    if (!rc)
        rc = zt_ckpt_check_config(dir, out->config, own, fault);
    return rc || !out->config ? rc : set_type(&out->config, how->dtype, fault);
}

/* config.json, where the source has one, and the tokenizer there: with them a folder opens
 * in transformers. */
static zt_err write_neighbours(const struct neighbours *n, const char *to, bool replaces,
                               struct zt_fault *fault)
{
    zt_err rc = ZT_OK;

    if (n->config)
        rc = zt_hf_write_text(to, "config.json", n->config, fault);
    return rc ? rc : zt_copy_tokenizer(NULL, n->folder, to, replaces, -1, fault);
}

/* What a failed export has put into a folder that had nothing, and the folders it made. */
static void remove_neighbours(const char *to, size_t made)
{
    char config[PATH_MAX];

    if (snprintf(config, sizeof(config), "%s/config.json", to) < (int)sizeof(config))
        (void)!unlink(config);
    (void)!zt_copy_tokenizer(NULL, NULL, to, true, -1, NULL);
    zt_folders_remove(to, made);
}

/* ---- all ---- */

zt_err zt_export_check_is_model(const struct zt_checkpoint_source *s, const char *to,
                                struct zt_fault *fault)
{
    char *near = NULL, *adapters = NULL;
    zt_err rc;

    if (!zt_source_is_adapters(s))
        return ZT_OK;
    rc = zt_source_neighbour(s, "adapter_model.safetensors", &near, fault);
    if (near)
        adapters = realpath(near, NULL); /* without its `..` */
    if (!rc)
        rc = zt_fault_set(
            fault, ZT_E_USAGE,
            "%s: has adapters alone, which make no model in %s: %s%sa run of zlaunch "
            "with --merge_adapters saves a whole one, and a name that ends in "
            ".safetensors is a file of these tensors",
            s->path, to, adapters ? adapters : "",
            adapters ? " is for other programs, " : "");
    free(adapters);
    free(near);
    return rc;
}

zt_err zt_export(struct zt_checkpoint_source *s, const struct zt_tensor_export *how,
                 struct zt_exported *made, struct zt_fault *fault)
{
    zt_name_form form = zt_form_of_name(how->to);
    bool bin = form == ZT_NAME_PICKLE, safe = form == ZT_NAME_SAFETENSORS;
    bool pickles = bin || (!safe && !how->safe);
    char found[PATH_MAX], around[PATH_MAX];
    bool folder = !bin && !safe, replaces = folder && zt_find_model(how->to, found);
    bool was_empty = folder && !zt_is_filled_folder(how->to);
    struct neighbours beside = {NULL, NULL};
    struct export_list list = {0};
    size_t folders_made = 0;
    zt_err rc = zt_check_output_name(how->to, fault);

    if (!rc && form == ZT_NAME_GGUF)
        rc = zt_fault_set(fault, ZT_E_USAGE, "%s: zckpt convert writes .gguf files",
                          how->to);
    if (!rc && folder)
        rc = zt_export_check_is_model(s, how->to, fault);
    if (!rc && folder)
        rc = zt_folder_lock_check(how->to, fault);
    if (!rc && (folder || is_model_in(how->to, around)))
        rc = find_neighbours(s, how, folder ? how->to : around, &beside, fault);
    if (!rc && folder && beside.folder)
        rc = zt_check_tokenizer_files(beside.folder, fault);
    if (!rc)
        rc = choose(s, how, pickles, &list, fault);
    if (!rc && list.num == 0)
        rc = zt_fault_set(fault, ZT_E_FORMAT, "%s: has no weights to write", s->path);
    if (!rc && folder)
        rc = zt_folders_make(NULL, how->to, &folders_made, fault);
    if (!rc && folder && !replaces) /* a save that fails leaves no weights to replace */
        rc = write_neighbours(&beside, how->to, false, fault);
    if (!rc && !pickles)
        rc = write_safetensors(s, how, &list, safe, fault);
    else if (!rc && bin)
        rc = write_pickle(s, how, &list, 0, list.num, how->to, fault);
    else if (!rc)
        rc = write_pickles(s, how, &list, fault);
    if (!rc && replaces)
        rc = write_neighbours(&beside, how->to, true, fault);
    if (rc && was_empty)
        remove_neighbours(how->to, folders_made);
    *made = (struct zt_exported){.tensors = list.num};
    for (int i = 0; i < list.num; i++) {
        const struct zt_source_tensor *t = &s->tensors[list.items[i].of];

        if (t->t.alias_of && !made->aliases++)
            made->alias = t;
    }
    free(list.items);
    free(beside.folder);
    free(beside.config);
    return rc;
}

void zt_export_print(const struct zt_tensor_export *how, const struct zt_exported *made,
                     const char *dtype)
{
    printf("%s: %d tensors in %s", how->to, made->tensors, dtype);
    if (made->aliases)
        printf(", %d of them a second name of tied weights (%s is %s)", made->aliases,
               made->alias->t.name, made->alias->t.alias_of);
    putchar('\n');
}
