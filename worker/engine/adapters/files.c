/* files.c -- adapter_model.safetensors in and out, and pairs merged into weights. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "worker/autograd/adapter.h"
#include "worker/checkpoint/hf_folder.h"
#include "worker/checkpoint/reader.h"
#include "worker/checkpoint/safetensors.h"
#include "worker/engine/adapters/adapters.h"
#include "worker/engine/engine.h"

#define FILE_NAME  "adapter_model.safetensors"
#define NAME_BYTES 600
#define PREFIX     "base_model.model." /* the class around the model, in peft's files */
#define COPY       ".base_layer.weight"
#define COMPARED   65536 /* elements at a time */

static zt_err no_memory(struct zt_fault *fault)
{
    return zt_fault_set(fault, ZT_E_NOMEM, "adapters: no host memory");
}

int64_t zt_adapters_bytes(const struct zt_model *m)
{
    int64_t bytes = 0;

    for (int i = 0; i < m->num_params; i++)
        bytes += m->params[i]->is_base ? 0 : m->params[i]->numel * (int64_t)sizeof(float);
    return bytes;
}

int64_t zt_adapters_export_elems(const struct zt_model *m)
{
    int64_t most = 0;

    for (int i = 0; i < m->num_params; i++) {
        const struct zt_adapter *ad = m->params[i]->adapter;
        int64_t n = ad ? ad->a->numel + ad->b->numel : 0;

        most = n > most ? n : most;
    }
    return most;
}

/* All of a parameter in host memory, on every rank; the caller frees. */
static zt_err collect(struct zt_engine *e, const struct zt_param *p, float **out,
                      struct zt_fault *fault)
{
    *out = malloc((size_t)p->numel * sizeof(**out));
    return *out ? zt_zero_get(e->zero, ZT_STATE_VALUE, p, 0, p->numel, *out, fault)
                : no_memory(fault);
}

/* A parameter in peft's files. */
static void tensor_name(const struct zt_param *p, char name[NAME_BYTES])
{
    snprintf(name, NAME_BYTES, PREFIX "%s", p->name);
}

/* ---- in ---- */

/* The tensor of a parameter in the file. */
static zt_err find(const struct zt_safetensors_file *f, const char *path,
                   const struct zt_param *p, const struct zt_safetensors_tensor **out,
                   struct zt_fault *fault)
{
    const struct zt_safetensors_tensor *t;
    char name[NAME_BYTES];
    bool same;

    tensor_name(p, name);
    *out = t = zt_safetensors_find(f, name);
    if (!t)
        return zt_fault_set(fault, ZT_E_FORMAT, "%s: there is no tensor %s", path, name);
    same = t->ndim == p->ndim && t->loadable;
    for (int i = 0; same && i < p->ndim; i++)
        same = t->shape[i] == p->shape[i];
    return same ? ZT_OK
                : zt_fault_set(fault, ZT_E_FORMAT,
                               "%s: %s has another shape or type than this model's", path,
                               name);
}

/* This rank's part of it. */
static zt_err load_one(struct zt_engine *e, const struct zt_safetensors_file *f,
                       const char *path, const struct zt_param *p, struct zt_fault *fault)
{
    const struct zt_safetensors_tensor *t;
    float *values = NULL;
    int64_t at, n;
    zt_err rc = find(f, path, p, &t, fault);

    if (rc)
        return rc;
    zt_zero_part(e->zero, p, &at, &n);
    if (!n)
        return ZT_OK;
    values = malloc((size_t)n * sizeof(*values));
    rc = values ? zt_safetensors_read_f32(t, at, n, values, fault) : no_memory(fault);
    if (!rc)
        rc = zt_zero_set(e->zero, ZT_STATE_VALUE, p, at, n, values, fault);
    free(values);
    return rc;
}

static bool is_trained(const struct zt_model *m, const char *tensor)
{
    char name[NAME_BYTES];

    for (int i = 0; i < m->num_params; i++) {
        tensor_name(m->params[i], name);
        if (!m->params[i]->is_base && strcmp(name, tensor) == 0)
            return true;
    }
    return false;
}

/* ---- weights of the model beneath, which peft saves beside adapters of heads ---- */

static bool is_copy(const char *tensor)
{
    size_t n = strlen(tensor), end = strlen(COPY);

    return n > end && strcmp(tensor + n - end, COPY) == 0;
}

/* The one that the copy is of, in the model's folder; NULL: it has none. */
static const struct zt_safetensors_tensor *find_copied(const struct zt_hf_folder *hf,
                                                       const char *tensor)
{
    size_t n = strlen(tensor) - strlen(COPY), skip = strlen(PREFIX);
    char name[NAME_BYTES];

    if (strncmp(tensor, PREFIX, skip) != 0 || n >= sizeof(name))
        return NULL;
    snprintf(name, sizeof(name), "%.*s.weight", (int)(n - skip), tensor + skip);
    return zt_hf_folder_find_alike(hf, name);
}

static bool have_one_shape(const struct zt_safetensors_tensor *a,
                           const struct zt_safetensors_tensor *b)
{
    bool same = a->ndim == b->ndim && a->loadable && b->loadable;

    for (int i = 0; same && i < a->ndim; i++)
        same = a->shape[i] == b->shape[i];
    return same;
}

/* Number by number, whatever types they are stored in. */
static zt_err compare(const struct zt_safetensors_tensor *a,
                      const struct zt_safetensors_tensor *b, bool *same,
                      struct zt_fault *fault)
{
    float(*values)[COMPARED] = malloc(2 * sizeof(*values));
    zt_err rc = values ? ZT_OK : no_memory(fault);

    *same = have_one_shape(a, b);
    for (int64_t at = 0; !rc && *same && at < a->elems; at += COMPARED) {
        int64_t n = a->elems - at < COMPARED ? a->elems - at : COMPARED;

        rc = zt_safetensors_read_f32(a, at, n, values[0], fault);
        if (!rc)
            rc = zt_safetensors_read_f32(b, at, n, values[1], fault);
        *same = !rc && memcmp(values[0], values[1], (size_t)n * sizeof(float)) == 0;
    }
    free(values);
    return rc;
}

/* A copy of what the model has is passed over: its adapter is beside it, and it says nothing new. */
static zt_err check_copy(const struct zt_engine *e, const struct zt_safetensors_tensor *t,
                         const char *path, struct zt_fault *fault)
{
    const char *from = e->run->model_name_or_path;
    const struct zt_safetensors_tensor *base;
    struct zt_hf_folder *hf = NULL;
    bool same = false;
    zt_err rc = ZT_OK;

    if (from && !zt_ckpt_gives_weights(from)) {
        rc = zt_hf_folder_open(from, &hf, fault);
        base = rc ? NULL : find_copied(hf, t->name);
        if (base)
            rc = compare(t, base, &same, fault);
        zt_hf_folder_close(hf);
    }
    if (rc || same)
        return rc;
    return zt_fault_set(
        fault, ZT_E_CONFIG,
        "%s: %s is a copy of a weight of the model that the adapters were trained on, "
        "and "
        "is not that of --model_name_or_path %s: give that model, or save the adapters "
        "without it, by save_pretrained(..., save_embedding_layers=False) of peft",
        path, t->name, from ? from : "(none)");
}

/* Another whole tensor is of peft's modules_to_save; a tied output head is no parameter here. */
static zt_err check_unknown(const struct zt_engine *e,
                            const struct zt_safetensors_tensor *t, const char *path,
                            struct zt_fault *fault)
{
    bool whole = !strstr(t->name, ".lora_");

    if (is_copy(t->name))
        return check_copy(e, t, path, fault);
    return zt_fault_set(fault, whole ? ZT_E_CONFIG : ZT_E_FORMAT,
                        whole ? "%s: %s was trained whole (modules_to_save), and is no "
                                "head of this model: it cannot be used here"
                              : "%s: %s is no adapter of this model by "
                                "adapter_config.json",
                        path, t->name);
}

static zt_err load_all(struct zt_engine *e, const struct zt_safetensors_file *f,
                       const char *path, struct zt_fault *fault)
{
    const struct zt_model *m = e->model;
    zt_err rc = ZT_OK;

    for (int i = 0; !rc && i < zt_safetensors_count(f); i++)
        if (!is_trained(m, zt_safetensors_at(f, i)->name))
            rc = check_unknown(e, zt_safetensors_at(f, i), path, fault);
    for (int i = 0; !rc && i < m->num_params; i++)
        if (!m->params[i]->is_base)
            rc = load_one(e, f, path, m->params[i], fault);
    return rc;
}

zt_err zt_adapters_load(struct zt_engine *e, struct zt_fault *fault)
{
    struct zt_safetensors_file *f = NULL;
    char path[PATH_MAX];
    zt_err rc;

    if (!e->adapters || !e->run->adapter_name_or_path)
        return ZT_OK;
    snprintf(path, sizeof(path), "%s/%s", e->run->adapter_name_or_path, FILE_NAME);
    rc = zt_safetensors_open(path, &f, fault);
    if (!rc)
        rc = load_all(e, f, path, fault);
    zt_safetensors_close(f);
    return rc ? zt_fault_context(fault, rc, "--adapter_name_or_path")
              : zt_zero_publish(e->zero, fault);
}

/* ---- out ---- */

/* All are declared before the first is written: (num) of what is trained. */
static zt_err open_writer(struct zt_engine *e, const char *dir,
                          struct zt_safetensors_writer **out, struct zt_fault *fault)
{
    const struct zt_model *m = e->model;
    size_t most = (size_t)m->num_params + 1;
    struct zt_safetensors_decl *decls = calloc(most, sizeof(*decls));
    char(*names)[NAME_BYTES] = calloc(most, sizeof(*names));
    char path[PATH_MAX];
    int num = 0;
    zt_err rc = decls && names ? ZT_OK : no_memory(fault);

    for (int i = 0; !rc && i < m->num_params; i++) {
        const struct zt_param *p = m->params[i];

        if (p->is_base)
            continue;
        tensor_name(p, names[num]);
        decls[num] = (struct zt_safetensors_decl){names[num], ZT_F32, p->ndim, p->shape};
        num++;
    }
    snprintf(path, sizeof(path), "%s/%s", dir, FILE_NAME);
    if (!rc)
        rc = zt_safetensors_writer_open(path, decls, num, out, fault);
    free(decls);
    free(names);
    return rc;
}

#define CONFIG_NAME "adapter_config.json"

static bool is_ours(const void *unused, const char *name)
{
    (void)unused;
    return strcmp(name, FILE_NAME) == 0 || strcmp(name, CONFIG_NAME) == 0;
}

static zt_err write_config(const struct zt_engine *e, const char *dir,
                           struct zt_fault *fault)
{
    const struct zt_adapters *a = e->adapters;
    struct zt_peft_words words = {.base = e->run->model_name_or_path,
                                  .task_type = a->task_type,
                                  .names = a->names,
                                  .num_names = a->num_names};
    char *text;
    zt_err rc;

    for (int i = 0; i < a->num; i++)
        words.fan_in_fan_out |= (a->weights[i]->uses & ZT_USED_IN_OUT) != 0;
    text = zt_peft_config_text(&a->cfg, &words);
    rc = text ? zt_hf_write_text(dir, CONFIG_NAME, text, fault) : no_memory(fault);
    free(text);
    return rc;
}

zt_err zt_adapters_export(struct zt_engine *e, const char *dir, zt_err *failed,
                          struct zt_fault *fault)
{
    bool writes = zt_comm_rank(e->comm) == 0 && dir;
    struct zt_safetensors_writer *w = NULL;
    zt_err rc = ZT_OK, wrote = writes ? open_writer(e, dir, &w, fault) : ZT_OK;

    /* what one rank cannot write the others send all the same */
    for (int i = 0; !rc && i < e->model->num_params; i++) {
        const struct zt_param *p = e->model->params[i];
        float *values = NULL;

        if (p->is_base)
            continue;
        rc = collect(e, p, &values, wrote ? NULL : fault);
        if (!rc && writes && !wrote)
            wrote = zt_safetensors_writer_put(w, values,
                                              (size_t)p->numel * sizeof(*values), fault);
        free(values);
    }
    if (!rc && writes && !wrote)
        wrote = zt_safetensors_writer_commit(w, fault);
    if (!rc && writes && !wrote)
        wrote = write_config(e, dir, fault);
    if (!rc && writes && !wrote) /* a model that they replace */
        wrote = zt_hf_remove_older(dir, is_ours, NULL, fault);
    zt_safetensors_writer_close(w);
    *failed = wrote;
    return rc;
}

/* ---- merging ---- */

zt_err zt_merge_open(struct zt_engine *e, const struct zt_param *w, struct zt_merge *out,
                     struct zt_fault *fault)
{
    zt_err rc;

    *out = (struct zt_merge){.w = NULL};
    if (!w->adapter)
        return ZT_OK;
    *out = (struct zt_merge){
        .w = w, .scale = w->adapter->scale, .rank = w->adapter->a->shape[0]};
    rc = collect(e, w->adapter->a, &out->a, fault);
    return rc ? rc : collect(e, w->adapter->b, &out->b, fault);
}

void zt_merge_close(struct zt_merge *m)
{
    free(m->a);
    free(m->b);
    *m = (struct zt_merge){.w = NULL};
}

/* values (n) += the sum over k of x[k] y[k * stride .. + n), k ascending, times scale */
static void add_row(const struct zt_merge *m, const float *x, int64_t x_stride,
                    const float *y, int64_t y_stride, int64_t y_step, int64_t n,
                    float *values)
{
    for (int64_t i = 0; i < n; i++) {
        float sum = 0;

        for (int64_t k = 0; k < m->rank; k++)
            sum += x[k * x_stride] * y[k * y_stride + i * y_step];
        values[i] += m->scale * sum;
    }
}

void zt_merge_add(const struct zt_merge *m, int64_t at, int64_t n, float *values)
{
    bool in_out = m->w && m->w->uses & ZT_USED_IN_OUT;
    int64_t width = m->w ? m->w->shape[1] : 1, r = m->rank;

    /* row by row of the weight, as far as this piece has it */
    for (int64_t done = 0; m->w && done < n;) {
        int64_t row = (at + done) / width, column = (at + done) % width;
        int64_t count = width - column < n - done ? width - column : n - done;

        if (in_out) /* W[i][o] += A[.][i] B[o][.] */
            add_row(m, m->a + row, m->w->shape[0], m->b + column * r, 1, r, count,
                    values + done);
        else /* W[o][i] += B[o][.] A[.][i] */
            add_row(m, m->b + row * r, 1, m->a + column, width, 1, count, values + done);
        done += count;
    }
}
