/* source.c -- which form a path is of, and the tables of each. */
#include "worker/tools/source.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/files/folders.h"
#include "common/files/models.h"
#include "worker/checkpoint/folder.h"
#include "worker/checkpoint/hf_folder.h"

#define FORGET_EVERY (INT64_C(64) << 20)

static zt_err no_memory(const struct zt_checkpoint_source *s, struct zt_fault *fault)
{
    return zt_fault_set(fault, ZT_E_NOMEM, "%s: no memory", s->path);
}

static zt_err make_table(struct zt_checkpoint_source *s, int num, struct zt_fault *fault)
{
    s->tensors = calloc((size_t)num + 1, sizeof(*s->tensors));
    s->kinds[0] = "value";
    s->num_kinds = 1;
    return s->tensors ? ZT_OK : no_memory(s, fault);
}

/* ---- checkpoints of our own ---- */

/* The same tensor under another name. */
static void add_alias(struct zt_checkpoint_source *s, int of, const char *name)
{
    s->tensors[s->num] = s->tensors[of];
    s->tensors[s->num].t.name = name;
    s->tensors[s->num++].t.alias_of = s->tensors[of].t.name;
}

static zt_err open_ours(struct zt_checkpoint_source *s, const char *tag,
                        struct zt_fault *fault)
{
    const struct zt_ckpt_manifest *m;
    zt_err rc = zt_ckpt_open(s->path, tag, &s->ours, fault);

    s->form = "zlaunch checkpoint";
    if (rc)
        return rc;
    m = zt_ckpt_manifest(s->ours);
    rc = make_table(s, m->num_params + m->num_aliases, fault);
    if (rc)
        return rc;
    for (int k = 0; k < m->num_kinds; k++) /* number k + 1 here */
        s->kinds[s->num_kinds++] = m->kinds[k].name;
    for (int i = 0; i < m->num_params; i++) {
        const struct zt_ckpt_param *p = &m->params[i];
        int value = zt_ckpt_value_kind(s->ours, i);

        s->tensors[s->num++] = (struct zt_source_tensor){
            .t = {.name = p->name,
                  .ndim = p->ndim,
                  .shape = p->shape,
                  .numel = p->numel,
                  .trained = !p->frozen,
                  .readable = value >= 0},
            .dtype = value >= 0 ? m->kinds[value].dtype : ZT_F32,
            .kinds = p->kinds << 1 | 1,
            .number = i};
    }
    for (int i = 0; i < m->num_aliases; i++)
        add_alias(s, m->aliases[i].of, m->aliases[i].name);
    return ZT_OK;
}

/* ---- DeepSpeed ---- */

static bool is_float(zt_dtype dtype)
{
    return dtype == ZT_F32 || dtype == ZT_BF16 || dtype == ZT_F16;
}

static struct zt_source_tensor of_ds(const struct zt_ds *ds, int i)
{
    const struct zt_ds_param *p = &ds->params[i];
    const struct zt_safetensors_tensor *b = p->of_buffer;
    bool floats = !b || (b->loadable && is_float(b->dtype));

    return (struct zt_source_tensor){
        .t = {.name = p->name,
              .ndim = p->ndim,
              .shape = p->shape,
              .numel = p->numel,
              .trained = p->role == ZT_DS_TRAINED,
              .readable = floats},
        .dtype = b && b->loadable ? b->dtype : ZT_F32,
        .raw = b && b->loadable && !floats && !b->stride ? b->data : NULL,
        .stored = b,
        .buffer = p->role == ZT_DS_BUFFER,
        .kinds = p->role == ZT_DS_TRAINED ? (1u << ds->num_kinds) - 1 : 1,
        .group = p->group,
        .number = i};
}

static int find_of(const struct zt_checkpoint_source *s, int num, const char *name)
{
    for (int i = 0; i < num; i++)
        if (strcmp(s->tensors[i].t.name, name) == 0)
            return i;
    return -1;
}

static zt_err open_deepspeed(struct zt_checkpoint_source *s, const char *tag,
                             struct zt_fault *fault)
{
    struct zt_ds *ds;
    zt_err rc = zt_ds_open(s->path, tag, &s->deepspeed, fault);

    if (rc)
        return rc;
    ds = s->deepspeed;
    s->form = ds->universal    ? "DeepSpeed universal checkpoint"
              : ds->stage == 3 ? "DeepSpeed checkpoint, ZeRO stage 3"
              : ds->stage == 2 ? "DeepSpeed checkpoint, ZeRO stage 2"
                               : "DeepSpeed checkpoint, ZeRO stage 1";
    rc = make_table(s, ds->num_params + ds->num_aliases, fault);
    if (rc)
        return rc;
    for (int k = 1; k < ds->num_kinds; k++)
        s->kinds[s->num_kinds++] = ds->kinds[k];
    for (int i = 0; i < ds->num_params; i++)
        s->tensors[s->num++] = of_ds(ds, i);
    for (int i = 0; i < ds->num_aliases; i++) {
        int of = find_of(s, ds->num_params, ds->aliases[i].of);

        if (of < 0 || find_of(s, ds->num_params, ds->aliases[i].name) >= 0)
            continue;
        add_alias(s, of, ds->aliases[i].name);
    }
    return ZT_OK;
}

/* ---- folders and files of weights ---- */

/* The file of adapters in a folder that has no model. */
static bool find_adapters(const char *dir, char file[PATH_MAX])
{
    static const char *const names[] = {"adapter_model.safetensors", "adapter_model.bin"};

    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        snprintf(file, PATH_MAX, "%s/%s", dir, names[i]);
        if (access(file, F_OK) == 0)
            return true;
    }
    return false;
}

static bool has_adapter_config(const char *dir)
{
    char file[PATH_MAX];

    snprintf(file, sizeof(file), "%s/adapter_config.json", dir);
    return access(file, F_OK) == 0;
}

static zt_err open_weights(struct zt_checkpoint_source *s, struct zt_fault *fault)
{
    struct zt_fault why = {0};
    zt_err rc = zt_hf_folder_open(s->path, &s->folder, &why);
    char file[PATH_MAX];

    s->form = "weights";
    if (rc == ZT_E_NOINPUT && find_adapters(s->path, file)) {
        s->form = "adapters";
        s->adapters = true;
        return zt_hf_folder_open(file, &s->folder, fault);
    }
    if (rc == ZT_E_NOINPUT && has_adapter_config(s->path))
        return zt_fault_set(fault, rc,
                            "%s: has adapter_config.json, and no "
                            "adapter_model.safetensors with the adapters",
                            s->path);
    return rc ? zt_fault_set(fault, rc, "%s", why.text) : ZT_OK;
}

/* A file of adapters that is named itself: by its name, or by what is in it. */
static bool is_file_of_adapters(const struct zt_checkpoint_source *s)
{
    const char *slash = strrchr(s->path, '/'), *name = slash ? slash + 1 : s->path;
    int num = zt_hf_folder_count(s->folder), adapters = 0;

    for (int i = 0; i < num; i++)
        adapters += strstr(zt_hf_folder_at(s->folder, i)->name, ".lora_") != NULL;
    return strncmp(name, "adapter_model.", 14) == 0 || (num && adapters == num);
}

static zt_err open_folder(struct zt_checkpoint_source *s, struct zt_fault *fault)
{
    zt_err rc = open_weights(s, fault);

    if (!rc && !s->adapters && is_file_of_adapters(s)) {
        s->form = "adapters";
        s->adapters = true;
    }
    if (!rc)
        rc = make_table(s, zt_hf_folder_count(s->folder), fault);
    for (int i = 0; !rc && i < zt_hf_folder_count(s->folder); i++) {
        const struct zt_safetensors_tensor *t = zt_hf_folder_at(s->folder, i);
        bool floats = t->loadable && is_float(t->dtype);

        s->tensors[s->num++] = (struct zt_source_tensor){
            .t = {.name = t->name,
                  .ndim = t->ndim,
                  .shape = t->shape,
                  .numel = t->elems,
                  .trained = floats,
                  .readable = floats},
            .dtype = t->loadable ? t->dtype : ZT_F32,
            .raw = t->loadable && !floats && !t->stride ? t->data : NULL,
            .stored = t,
            .kinds = 1,
            .number = i};
    }
    return rc;
}

/* ---- any ---- */

static bool is_ours(const char *path, const char *tag)
{
    char *dir = NULL;
    bool ours =
        asprintf(&dir, "%s/%s", path, tag ? tag : "") >= 0 && zt_ckpt_is_here(dir);

    free(dir);
    return ours;
}

/* The newest checkpoint of an output folder of a run; 0: it has none. */
static int64_t newest_step(const char *path)
{
    int64_t *steps = NULL, newest = 0;
    int num = 0;

    if (zt_ckpt_list(path, &steps, &num, NULL) == ZT_OK && num > 0)
        newest = steps[0];
    free(steps);
    return newest;
}

/* A checkpoint of our own that has lost what names it is no folder of weights, and neither is
 * one of checkpoints alone. */
static zt_err check_name(const char *path, struct zt_fault *fault)
{
    char tag[ZT_CKPT_TAG], weights[PATH_MAX];
    int64_t newest = newest_step(path);

    if (newest && !zt_find_model(path, weights))
        return zt_fault_set(fault, ZT_E_NOINPUT,
                            "%s: has checkpoints, of which one is meant: name it, as "
                            "%s/checkpoint-%lld",
                            path, path, (long long)newest);
    if (zt_ckpt_find_tag(path, tag))
        return zt_fault_set(
            fault, ZT_E_NOINPUT,
            "%s: its file `latest` is missing, or names what is not there; %s "
            "is: name the folder %s/%s",
            path, tag, path, tag);
    if (zt_ckpt_latest(path, tag))
        return zt_fault_set(
            fault, ZT_E_FORMAT,
            "%s: `latest` names %s, and %s/%s/manifest.json is missing: that is "
            "no whole checkpoint",
            path, tag, path, tag);
    return ZT_OK;
}

/* A tag that a folder with checkpoints of our own does not have is no tag of DeepSpeed's. */
static zt_err check_tag(const char *path, const char *tag, struct zt_fault *fault)
{
    char known[ZT_CKPT_TAG];
    int64_t newest = newest_step(path);

    if (zt_ckpt_latest(path, known) ? is_ours(path, known)
                                    : zt_ckpt_find_tag(path, known))
        return zt_fault_set(fault, ZT_E_NOINPUT,
                            "%s: has a checkpoint of zlaunch with the tag %s, and none "
                            "with the tag %s",
                            path, known, tag);
    if (is_ours(path, NULL))
        return zt_fault_set(fault, ZT_E_NOINPUT,
                            "%s: is the folder of a tag itself: leave out --tag %s", path,
                            tag);
    if (newest)
        return zt_fault_set(fault, ZT_E_NOINPUT,
                            "%s: has checkpoints, of which one is meant: name it, as "
                            "%s/checkpoint-%lld, instead of the tag %s",
                            path, path, (long long)newest, tag);
    return zt_fault_set(fault, ZT_E_NOINPUT,
                        "%s: no checkpoint here under the tag %s: no folder %s/%s with "
                        "manifest.json, or *_model_states.pt of DeepSpeed",
                        path, tag, path, tag);
}

static zt_err open_any(const char *path, const char *tag,
                       struct zt_checkpoint_source **out, struct zt_fault *fault)
{
    struct zt_checkpoint_source *s = calloc(1, sizeof(*s));
    zt_err rc;

    if (s)
        s->path = strdup(path);
    if (!s || !s->path)
        rc = zt_fault_set(fault, ZT_E_NOMEM, "%s: no memory", path);
    else if (access(path, F_OK) < 0)
        rc = zt_fault_set(fault, ZT_E_NOINPUT, "%s: no such file or folder", path);
    else if (tag ? is_ours(path, tag) : zt_ckpt_gives_weights(path))
        rc = open_ours(s, tag, fault);
    else if (!tag && is_ours(path, NULL)) /* and has weights, which are meant */
        rc = ZT_OK;
    else if (zt_ds_is_here(path, tag))
        rc = open_deepspeed(s, tag, fault);
    else
        rc = tag ? check_tag(path, tag, fault) : check_name(path, fault);
    if (!rc && !s->ours && !s->deepspeed)
        rc = open_folder(s, fault);
    if (rc) {
        zt_source_close(s);
        return rc;
    }
    *out = s;
    return ZT_OK;
}

/* checkpoint-N of a run's output folder, by its name or by the tag in it. */
static bool is_step_of_run(const char *path, const char *tag, char dir[PATH_MAX])
{
    static const char step[] = "global_step";
    bool by_tag = strncmp(tag, step, sizeof(step) - 1) == 0;
    const char *name = by_tag ? tag + sizeof(step) - 1 : tag;
    char inner[ZT_CKPT_TAG];
    int n;

    if (!zt_ckpt_is_plain_name(tag))
        return false;
    n = snprintf(dir, PATH_MAX, "%s/%s%s", path, by_tag ? "checkpoint-" : "", name);
    return n < PATH_MAX && zt_ckpt_latest(dir, inner) && is_ours(dir, inner) &&
           (!by_tag || strcmp(inner, tag) == 0);
}

zt_err zt_source_open(const char *path, const char *tag,
                      struct zt_checkpoint_source **out, struct zt_fault *fault)
{
    char dir[PATH_MAX];

    if (tag && is_step_of_run(path, tag, dir))
        return open_any(dir, NULL, out, fault);
    return open_any(path, tag, out, fault);
}

void zt_source_close(struct zt_checkpoint_source *s)
{
    if (!s)
        return;
    zt_ckpt_close(s->ours);
    zt_ds_close(s->deepspeed);
    zt_hf_folder_close(s->folder);
    free(s->tensors);
    free(s->path);
    free(s);
}

int zt_source_find(const struct zt_checkpoint_source *s, const char *name)
{
    return find_of(s, s->num, name);
}

bool zt_source_is_elsewhere(const struct zt_checkpoint_source *s, int i)
{
    const struct zt_source_tensor *t = &s->tensors[i];

    return s->ours && !t->t.trained && !t->t.readable;
}

zt_err zt_source_check_kept(const struct zt_checkpoint_source *s, const char *to,
                            struct zt_fault *fault)
{
    const char *from = s->deepspeed ? s->deepspeed->dir
                       : s->ours    ? zt_ckpt_dir(s->ours)
                                    : s->path;

    return zt_is_within(from, to)
               ? zt_fault_set(fault, ZT_E_USAGE,
                              "%s would be replaced, and is what is read: name another "
                              "place",
                              to)
               : ZT_OK;
}

const char *zt_source_unread_type(const struct zt_checkpoint_source *s, int i)
{
    const struct zt_safetensors_tensor *t = s->tensors[i].stored;

    return t && !t->loadable && (t->type[0] == 'F' || t->type[0] == 'C') ? t->type : NULL;
}

bool zt_source_is_adapters(const struct zt_checkpoint_source *s)
{
    bool are = s->adapters;

    for (int i = 0; !are && i < s->num; i++)
        are = zt_source_is_elsewhere(s, i);
    return are;
}

/* The tensor of which this one is an alias, or it itself. */
static const char *owner(const struct zt_source_tensor *t)
{
    return t->t.alias_of ? t->t.alias_of : t->t.name;
}

bool zt_source_is_tied(const struct zt_checkpoint_source *s, int i, int k)
{
    const struct zt_source_tensor *a = &s->tensors[i], *b = &s->tensors[k];
    const struct zt_safetensors_tensor *x, *y;

    if (!s->folder)
        return strcmp(owner(a), owner(b)) == 0;
    x = zt_hf_folder_at(s->folder, a->number);
    y = zt_hf_folder_at(s->folder, b->number);
    return x->data == y->data && x->elems == y->elems && x->elems > 0 &&
           x->dtype == y->dtype && x->ndim == y->ndim &&
           memcmp(x->shape, y->shape, (size_t)x->ndim * sizeof(*x->shape)) == 0 &&
           !x->stride && !y->stride;
}

int zt_source_find_kind(const struct zt_checkpoint_source *s, const char *name)
{
    for (int k = 0; k < s->num_kinds; k++)
        if (strcmp(s->kinds[k], name) == 0)
            return k;
    return -1;
}

/* What is mapped counts as memory of this process once it was read; the kernel may take
 * it back, but need not before others starve. */
static void forget_now_and_then(struct zt_checkpoint_source *s, int64_t n)
{
    s->unforgotten += n * (int64_t)sizeof(float);
    if (s->unforgotten < FORGET_EVERY)
        return;
    s->unforgotten = 0;
    if (s->deepspeed)
        zt_ds_forget(s->deepspeed);
    if (s->folder)
        zt_hf_folder_forget(s->folder);
}

zt_err zt_source_read(struct zt_checkpoint_source *s, int kind, int i, int64_t first,
                      int64_t n, float *out, struct zt_fault *fault)
{
    const struct zt_source_tensor *t = &s->tensors[i];
    const char *unread = kind == 0 ? zt_source_unread_type(s, i) : NULL;

    if (unread)
        return zt_fault_set(fault, ZT_E_FORMAT,
                            "%s: %s is stored as %s, which is not read; save it as "
                            "float32",
                            s->path, t->t.name, unread);
    if (kind < 0 || kind >= s->num_kinds || !(t->kinds >> kind & 1) ||
        (kind == 0 && !t->t.readable))
        return zt_fault_set(fault, ZT_E_ARG, "%s: %s has no %s of floats", s->path,
                            t->t.name,
                            kind < 0 || kind >= s->num_kinds ? "state" : s->kinds[kind]);
    forget_now_and_then(s, n);
    if (s->ours)
        return zt_ckpt_read_f32(s->ours,
                                kind ? kind - 1 : zt_ckpt_value_kind(s->ours, t->number),
                                t->number, first, n, out, fault);
    if (s->deepspeed)
        return zt_ds_read(s->deepspeed, kind, t->number, first, n, out, fault);
    return zt_safetensors_read_f32(zt_hf_folder_at(s->folder, t->number), first, n, out,
                                   fault);
}

void zt_source_note_lost(struct zt_checkpoint_source *s, int i, const float *values,
                         int64_t n, float limit)
{
    for (int64_t k = 0; !s->lost && k < n; k++)
        if (isfinite(values[k]) && fabsf(values[k]) >= limit)
            s->lost = s->tensors[i].t.name;
}

void zt_source_tell_lost(const struct zt_checkpoint_source *s, const char *to,
                         const char *type)
{
    if (s->lost)
        fprintf(stderr,
                "%s: %s has numbers that are too large for %s: they are infinite there\n",
                to, s->lost, type);
}

void zt_source_tell_left_out(const struct zt_checkpoint_source *s, bool frozen,
                             const char *to)
{
    const char *first = NULL;
    int num = 0;

    for (int i = 0; i < s->num; i++) {
        const struct zt_source_tensor *t = &s->tensors[i];

        if (t->t.readable && !t->t.alias_of && !t->t.trained && (frozen || t->buffer) &&
            !num++)
            first = t->t.name;
    }
    if (num)
        fprintf(stderr,
                "%s: without %d tensor%s (%s%s): this form has no buffers%s; --to "
                "safetensors has them\n",
                to, num, num > 1 ? "s" : "", first, num > 1 ? ", ..." : "",
                frozen ? ", and trained parameters alone" : "");
}

zt_err zt_source_neighbour(const struct zt_checkpoint_source *s, const char *name,
                           char **out, struct zt_fault *fault)
{
    static const char *const up[] = {"", "/..", "/../.."};
    const char *dir = s->ours        ? zt_ckpt_dir(s->ours)
                      : s->deepspeed ? s->deepspeed->dir
                                     : zt_hf_folder_dir(s->folder);
    char *path = NULL;

    *out = NULL;
    /* the folder with `latest` may hold it, and the checkpoint-N around that */
    for (size_t i = 0; i < (s->folder ? 1 : sizeof(up) / sizeof(*up)); i++) {
        if (asprintf(&path, "%s%s/%s", dir, up[i], name) < 0)
            return zt_fault_set(fault, ZT_E_NOMEM, "%s: no memory", s->path);
        if (access(path, F_OK) == 0) { /* who may not read it is told so */
            *out = path;
            return ZT_OK;
        }
        free(path);
    }
    return ZT_OK;
}

static bool is_same_file(const char *a, const char *b)
{
    struct stat x, y;

    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev &&
           x.st_ino == y.st_ino;
}

/* A file of the checkpoint that is beside the folder of its tensors, as model.safetensors. */
static bool is_other_file(const struct zt_checkpoint_source *s, const char *path)
{
    const json_t *others = json_object_get(zt_ckpt_manifest(s->ours)->root, "others");
    char file[2 * PATH_MAX];
    const json_t *other;
    size_t i;

    json_array_foreach(others, i, other)
    {
        const char *name = json_string_value(json_object_get(other, "name"));

        snprintf(file, sizeof(file), "%s/%s", zt_ckpt_dir(s->ours), name ? name : "");
        if (name && is_same_file(file, path))
            return true;
    }
    return false;
}

static const char *name_of(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

/* A file that has the tensors of a checkpoint, ours or DeepSpeed's, by its name. */
static bool is_of_tensors(const char *name)
{
    size_t n = strlen(name);

    return strncmp(name, "zero_rank_", 10) == 0 ||
           strcmp(name, "client_state.safetensors") == 0 ||
           (n > 10 && strcmp(name + n - 10, "_states.pt") == 0);
}

/* "model-00001-of-00002.safetensors" of a folder whose model is model.safetensors.index.json. */
static bool is_shard_of(const char *path, const char *folder, const char *model)
{
    char own[PATH_MAX];
    const char *index = name_of(model), *name = name_of(path);
    size_t stem = strcspn(index, ".");

    return strstr(index, ".index.json") && zt_hf_is_replaced(name) &&
           strncmp(name, index, stem) == 0 && name[stem] == '-' &&
           snprintf(own, sizeof(own), "%s/%s", folder, name) < PATH_MAX &&
           is_same_file(own, path);
}

static bool has_file(const struct zt_checkpoint_source *s, const char *path)
{
    char model[PATH_MAX];

    if (s->ours && is_other_file(s, path))
        return true;
    if (s->ours || s->deepspeed)
        return is_of_tensors(name_of(path)) &&
               zt_is_within(path, s->ours ? zt_ckpt_dir(s->ours) : s->deepspeed->dir);
    return s->folder &&
           (is_same_file(s->path, path) ||
            (zt_find_model(s->path, model) &&
             (is_same_file(model, path) || is_shard_of(path, s->path, model))));
}

/* One file of a folder is read, and goes with the others when weights come into that. */
static bool is_file_of_folder(const struct zt_checkpoint_source *s, const char *to)
{
    char beside[PATH_MAX];
    const char *name = name_of(s->path);

    return s->folder && zt_hf_is_replaced(name) &&
           snprintf(beside, sizeof(beside), "%s/%s", to, name) < PATH_MAX &&
           is_same_file(beside, s->path);
}

zt_err zt_source_check_apart(const struct zt_checkpoint_source *s, const char *to,
                             struct zt_fault *fault)
{
    char model[PATH_MAX];
    const char *file = zt_find_model(to, model) ? model : to;
    struct stat st;

    if (is_file_of_folder(s, to))
        file = s->path;
    else if (stat(file, &st) || !S_ISREG(st.st_mode) || !has_file(s, file))
        return ZT_OK;
    return zt_fault_set(fault, ZT_E_USAGE,
                        "%s would be replaced, and belongs to what is read: name another "
                        "place",
                        file);
}
