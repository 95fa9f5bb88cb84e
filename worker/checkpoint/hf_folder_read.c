/* hf_folder_read.c -- find and open the weights of a model folder. */
#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "worker/checkpoint/folder.h"
#include "worker/checkpoint/hf_folder.h"
#include "worker/torch_file/torch_file.h"

/* One file of weights, of either kind; the other member is NULL. */
struct weights_file {
    struct zt_safetensors_file *safetensors;
    struct zt_torch_file *torch;
    struct zt_safetensors_tensor *of_torch;       /* its tensors */
    const struct zt_safetensors_tensor **tensors; /* sorted by name */
    int count;
};

struct zt_hf_folder {
    char *dir;
    struct weights_file *files;
    int num_files;
    const struct zt_safetensors_tensor **tensors; /* sorted by name */
    int count;
};

static char *join(const char *dir, const char *name)
{
    char *out = NULL;

    return asprintf(&out, "%s/%s", dir, name) < 0 ? NULL : out;
}

static zt_err no_memory(const char *path, struct zt_fault *fault)
{
    return zt_fault_set(fault, ZT_E_NOMEM, "%s: no memory", path);
}

static int by_name(const void *a, const void *b)
{
    const struct zt_safetensors_tensor *const *x = a, *const *y = b;

    return strcmp((*x)->name, (*y)->name);
}

static bool ends_with(const char *s, const char *tail)
{
    size_t n = strlen(s), k = strlen(tail);

    return n >= k && strcmp(s + n - k, tail) == 0;
}

/* ---- one file ---- */

/* By its first bytes: safetensors begin with the length of a JSON text, and files of
 * torch.save with the signature of a zip archive or of a pickle. */
static bool is_of_torch(const char *path)
{
    uint8_t head[4] = {0};
    FILE *in = fopen(path, "re");
    size_t n = in ? fread(head, 1, sizeof(head), in) : 0;

    if (in)
        fclose(in);
    return ends_with(path, ".bin") ||
           (n == sizeof(head) &&
            (memcmp(head, "PK\3\4", 4) == 0 || memcmp(head, "\x80\x02\x8a\x0a", 4) == 0));
}

static zt_err open_torch(struct weights_file *f, const char *path, struct zt_fault *fault)
{
    zt_err rc = zt_torch_file_open(path, &f->torch, fault);

    return rc ? rc
              : zt_torch_file_tensors(f->torch, NULL, &f->of_torch, &f->count, fault);
}

static zt_err open_file(struct weights_file *f, const char *path, struct zt_fault *fault)
{
    zt_err rc;

    if (is_of_torch(path))
        rc = open_torch(f, path, fault);
    else
        rc = zt_safetensors_open(path, &f->safetensors, fault);
    if (rc)
        return rc;
    if (f->safetensors)
        f->count = zt_safetensors_count(f->safetensors);
    f->tensors = calloc((size_t)f->count + 1, sizeof(*f->tensors));
    if (!f->tensors)
        return no_memory(path, fault);
    for (int i = 0; i < f->count; i++)
        f->tensors[i] =
            f->safetensors ? zt_safetensors_at(f->safetensors, i) : &f->of_torch[i];
    qsort(f->tensors, (size_t)f->count, sizeof(*f->tensors), by_name);
    for (int i = 1; i < f->count; i++)
        if (by_name(&f->tensors[i - 1], &f->tensors[i]) == 0)
            return zt_fault_set(fault, ZT_E_FORMAT, "%s: tensor %s is there twice", path,
                                f->tensors[i]->name);
    return ZT_OK;
}

static void close_file(struct weights_file *f)
{
    zt_safetensors_close(f->safetensors);
    zt_torch_file_close(f->torch);
    free(f->of_torch);
    free(f->tensors);
}

static const struct zt_safetensors_tensor *find_tensor(
    const struct zt_safetensors_tensor *const *tensors, int count, const char *name)
{
    const struct zt_safetensors_tensor want = {.name = name}, *key = &want;
    const struct zt_safetensors_tensor *const *found =
        tensors ? bsearch(&key, tensors, (size_t)count, sizeof(*tensors), by_name) : NULL;

    return found ? *found : NULL;
}

static zt_err open_single(struct zt_hf_folder *hf, const char *path,
                          struct zt_fault *fault)
{
    zt_err rc;

    hf->files = calloc(1, sizeof(*hf->files));
    if (!hf->files)
        return no_memory(path, fault);
    hf->num_files = 1;
    rc = open_file(&hf->files[0], path, fault);
    if (rc)
        return rc;
    hf->count = hf->files[0].count;
    hf->tensors = calloc((size_t)hf->count + 1, sizeof(*hf->tensors));
    if (!hf->tensors)
        return no_memory(path, fault);
    for (int i = 0; i < hf->count; i++)
        hf->tensors[i] = hf->files[0].tensors[i];
    return ZT_OK;
}

/* ---- shards ---- */

/* The shard `name`, opened on first use; `open` maps its name to its number. */
static zt_err get_shard(struct zt_hf_folder *hf, json_t *open, const char *index_path,
                        const char *name, struct weights_file **out,
                        struct zt_fault *fault)
{
    const json_t *known = json_object_get(open, name);
    char *path;
    zt_err rc;

    if (known) {
        *out = &hf->files[json_integer_value(known)];
        return ZT_OK;
    }
    if (strchr(name, '/'))
        return zt_fault_set(fault, ZT_E_FORMAT,
                            "%s: shard %s lies outside the folder; refused", index_path,
                            name);
    path = join(hf->dir, name);
    if (!path || json_object_set_new(open, name, json_integer(hf->num_files))) {
        free(path);
        return no_memory(index_path, fault);
    }
    *out = &hf->files[hf->num_files++];
    rc = open_file(*out, path, fault);
    free(path);
    return rc ? zt_fault_context(fault, rc, "shard named in %s", index_path) : ZT_OK;
}

static zt_err add_from_index(struct zt_hf_folder *hf, json_t *open,
                             const char *index_path, const char *tensor,
                             const json_t *shard, struct zt_fault *fault)
{
    const char *name = json_string_value(shard);
    struct weights_file *file = NULL;
    const struct zt_safetensors_tensor *t;
    zt_err rc;

    if (!name)
        return zt_fault_set(fault, ZT_E_FORMAT, "%s: tensor %s: its shard is no string",
                            index_path, tensor);
    rc = get_shard(hf, open, index_path, name, &file, fault);
    if (rc)
        return rc;
    t = find_tensor(file->tensors, file->count, tensor);
    if (!t)
        return zt_fault_set(fault, ZT_E_FORMAT,
                            "%s: tensor %s is not in %s; the files are not of one save",
                            index_path, tensor, name);
    hf->tensors[hf->count++] = t;
    return ZT_OK;
}

static zt_err open_shards(struct zt_hf_folder *hf, const char *path, const json_t *map,
                          struct zt_fault *fault)
{
    json_t *open = json_object();
    const char *key;
    json_t *value;
    zt_err rc = ZT_OK;

    hf->files = calloc(json_object_size(map) + 1, sizeof(*hf->files));
    hf->tensors = calloc(json_object_size(map) + 1, sizeof(*hf->tensors));
    if (!open || !hf->files || !hf->tensors)
        rc = no_memory(path, fault);
    json_object_foreach((json_t *)map, key, value)
    {
        if (!rc)
            rc = add_from_index(hf, open, path, key, value, fault);
    }
    json_decref(open);
    return rc;
}

static zt_err open_index(struct zt_hf_folder *hf, const char *path,
                         struct zt_fault *fault)
{
    json_error_t e;
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &e);
    const json_t *map = json_object_get(root, "weight_map");
    zt_err rc;

    if (!root)
        rc = access(path, R_OK) < 0
                 ? zt_fault_set(fault, ZT_E_NOINPUT, "%s: cannot be read", path)
             : !e.text[0] /* jansson has no words for it */
                 ? zt_fault_set(fault, ZT_E_NOMEM, "%s: no host memory", path)
                 : zt_fault_set(fault, ZT_E_FORMAT, "%s:%d:%d: %s", path, e.line,
                                e.column, e.text);
    else if (!json_is_object(map))
        rc = zt_fault_set(fault, ZT_E_FORMAT,
                          "%s: has no weight_map, so it is no index of weights; give the "
                          "folder that it is in",
                          path);
    else
        rc = open_shards(hf, path, map, fault);
    json_decref(root);
    return rc;
}

/* ---- the folder ---- */

static bool is_there(const char *path)
{
    return path && access(path, F_OK) == 0;
}

/* What a folder can hold, in the order in which it is looked for. */
static const struct {
    const char *name;
    zt_err (*open)(struct zt_hf_folder *, const char *, struct zt_fault *);
} forms[] = {
    {"model.safetensors", open_single},
    {"model.safetensors.index.json", open_index},
    {"pytorch_model.bin", open_single},
    {"pytorch_model.bin.index.json", open_index},
};

/* Whether a file of this name may be weights that somebody saved by another name. */
static int may_be_weights(const struct dirent *e)
{
    static const char *const ends[] = {".safetensors", ".bin", ".pt", ".pth"};
    static const char *const of_trainer[] = {"optimizer.", "scheduler.", "scaler.",
                                             "rng_state", "training_args."};
    bool may = false;

    for (size_t i = 0; i < sizeof(of_trainer) / sizeof(*of_trainer); i++)
        if (strncmp(e->d_name, of_trainer[i], strlen(of_trainer[i])) == 0)
            return false;
    for (size_t i = 0; !may && i < sizeof(ends) / sizeof(*ends); i++)
        may = ends_with(e->d_name, ends[i]);
    return may;
}

zt_err zt_hf_refuse_adapters(const char *path, struct zt_fault *fault)
{
    return zt_fault_set(
        fault, ZT_E_NOINPUT,
        "%s: holds adapters and no model: --adapter_name_or_path %s, beside "
        "the --model_name_or_path of the model that they are for",
        path, path);
}

/* What is there instead, as the end of a sentence. */
static const char *describe_instead(const char *dir, char *out, size_t cap)
{
    int64_t newest = zt_ckpt_newest(dir);
    const char *deepspeed = newest < 0 ? zt_ckpt_describe_deepspeed(dir) : "";

    if (strstr(deepspeed, "zckpt convert")) /* its weights alone are wanted */
        return "; it is one of DeepSpeed's, of whose weights zero_to_fp32 makes a folder "
               "to name here: zero_to_fp32 FOLDER MODEL";
    if (newest < 0)
        return deepspeed;
    snprintf(out, cap, "; there is a checkpoint, which can be named: %s/checkpoint-%lld",
             dir, (long long)newest);
    return out;
}

static zt_err fault_no_weights(const char *dir, struct zt_fault *fault)
{
    struct dirent **found = NULL;
    int n = scandir(dir, &found, may_be_weights, alphasort);
    char adapters[PATH_MAX], instead[PATH_MAX + 128];

    if (access(dir, R_OK | X_OK) && errno == EACCES) {
        free(found);
        return zt_fault_set(fault, ZT_E_NOINPUT, "%s: %s", dir, strerror(EACCES));
    }
    snprintf(adapters, sizeof(adapters), "%s/adapter_config.json", dir);
    if (access(adapters, F_OK) == 0)
        (void)!zt_hf_refuse_adapters(dir, fault);
    else if (n > 0 && !*zt_ckpt_describe_deepspeed(dir))
        zt_fault_set(
            fault, ZT_E_NOINPUT,
            "%s: has no model.safetensors, no pytorch_model.bin, and no index of "
            "either; %s is there: if that is meant, name the file itself",
            dir, found[0]->d_name);
    else
        zt_fault_set(
            fault, ZT_E_NOINPUT,
            "%s: has no model.safetensors, no pytorch_model.bin, and no index of "
            "either%s",
            dir, describe_instead(dir, instead, sizeof(instead)));
    for (int i = 0; i < n; i++)
        free(found[i]);
    free(found);
    return ZT_E_NOINPUT;
}

static zt_err open_folder(struct zt_hf_folder *hf, struct zt_fault *fault)
{
    for (size_t i = 0; i < sizeof(forms) / sizeof(*forms); i++) {
        char *path = join(hf->dir, forms[i].name);
        bool there = is_there(path);
        zt_err rc = !path   ? no_memory(hf->dir, fault)
                    : there ? forms[i].open(hf, path, fault)
                            : ZT_OK;

        free(path);
        if (rc || there)
            return rc;
    }
    return fault_no_weights(hf->dir, fault);
}

/* The folder of `path`, which is one itself or a file in it. */
static char *dir_of(const char *path, bool is_dir)
{
    const char *slash = strrchr(path, '/');
    size_t n = is_dir ? strlen(path) : slash ? (size_t)(slash - path) : 0;

    if (!is_dir && !slash)
        return strdup(".");
    while (n > 1 && path[n - 1] == '/')
        n--;
    return n ? strndup(path, n) : strdup("/");
}

static zt_err stat_path(const char *path, struct stat *st, struct zt_fault *fault)
{
    if (stat(path, st) < 0)
        return zt_fault_set(fault, ZT_E_NOINPUT,
                            "%s: no such model folder or file of weights; a model of the "
                            "Hugging Face hub is downloaded before (hf download NAME "
                            "--local-dir FOLDER)",
                            path);
    return ZT_OK;
}

zt_err zt_hf_folder_check(const char *path, struct zt_fault *fault)
{
    struct stat st;

    return stat_path(path, &st, fault);
}

zt_err zt_hf_folder_open(const char *path, struct zt_hf_folder **out,
                         struct zt_fault *fault)
{
    struct zt_hf_folder *hf;
    bool is_dir;
    struct stat st;
    zt_err rc;

    rc = stat_path(path, &st, fault);
    if (rc)
        return rc;
    is_dir = S_ISDIR(st.st_mode);
    hf = calloc(1, sizeof(*hf));
    if (hf)
        hf->dir = dir_of(path, is_dir);
    if (!hf || !hf->dir)
        rc = no_memory(path, fault);
    else if (is_dir)
        rc = open_folder(hf, fault);
    else if (ends_with(path, ".json"))
        rc = open_index(hf, path, fault);
    else
        rc = open_single(hf, path, fault);
    if (rc) {
        zt_hf_folder_close(hf);
        return rc;
    }
    qsort(hf->tensors, (size_t)hf->count, sizeof(*hf->tensors), by_name);
    *out = hf;
    return ZT_OK;
}

void zt_hf_folder_close(struct zt_hf_folder *hf)
{
    if (!hf)
        return;
    for (int i = 0; i < hf->num_files; i++)
        close_file(&hf->files[i]);
    free(hf->files);
    free(hf->tensors);
    free(hf->dir);
    free(hf);
}

void zt_hf_folder_forget(const struct zt_hf_folder *hf)
{
    for (int i = 0; i < hf->num_files; i++)
        if (hf->files[i].torch)
            zt_torch_file_forget(hf->files[i].torch);
        else
            zt_safetensors_forget(hf->files[i].safetensors);
}

int zt_hf_folder_count(const struct zt_hf_folder *hf)
{
    return hf->count;
}

const struct zt_safetensors_tensor *zt_hf_folder_at(const struct zt_hf_folder *hf, int i)
{
    return i >= 0 && i < hf->count ? hf->tensors[i] : NULL;
}

const struct zt_safetensors_tensor *zt_hf_folder_find(const struct zt_hf_folder *hf,
                                                      const char *name)
{
    return find_tensor(hf->tensors, hf->count, name);
}

/* With or without the leading word. */
static const struct zt_safetensors_tensor *find_word(const struct zt_hf_folder *hf,
                                                     const char *name)
{
    static const char *const words[] = {"transformer.", "model.", "bert.", "deberta."};
    const struct zt_safetensors_tensor *t = zt_hf_folder_find(hf, name);
    char full[512];

    for (size_t i = 0; !t && i < sizeof(words) / sizeof(words[0]); i++) {
        size_t n = strlen(words[i]);

        if (!strncmp(name, words[i], n)) {
            t = zt_hf_folder_find(hf, name + n);
        } else {
            snprintf(full, sizeof(full), "%s%s", words[i], name);
            t = zt_hf_folder_find(hf, full);
        }
    }
    return t;
}

bool zt_hf_is_of_head(const char *name)
{
    static const char *const heads[] = {"classifier.", "score.", "classification_head."};
    bool is = false;

    for (size_t i = 0; i < sizeof(heads) / sizeof(heads[0]); i++)
        is = is || strstr(name, heads[i]);
    return is;
}

/* A LayerNorm's weight and bias are gamma and beta in files that came from TensorFlow. */
const struct zt_safetensors_tensor *zt_hf_folder_find_alike(const struct zt_hf_folder *hf,
                                                            const char *name)
{
    static const char *const ends[][2] = {{"LayerNorm.weight", "LayerNorm.gamma"},
                                          {"LayerNorm.bias", "LayerNorm.beta"}};
    const struct zt_safetensors_tensor *t = find_word(hf, name);
    size_t n = strlen(name);
    char old[512];

    for (size_t i = 0; !t && i < sizeof(ends) / sizeof(ends[0]); i++) {
        size_t k = strlen(ends[i][0]);

        if (n < k || strcmp(name + n - k, ends[i][0]) != 0)
            continue;
        snprintf(old, sizeof(old), "%.*s%s", (int)(n - k), name, ends[i][1]);
        t = find_word(hf, old);
    }
    return t;
}

const char *zt_hf_folder_dir(const struct zt_hf_folder *hf)
{
    return hf->dir;
}
