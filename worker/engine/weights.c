/*
 * weights.c -- model weights in and out of Hugging Face folders, one piece at a time.
 *
 * Names in files and in the model may differ by one leading word ("transformer.",
 * "model.") depending on the class that saved them: both are understood when reading.
 */
#include "worker/engine/weights.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/files/folders.h"
#include "common/files/models.h"
#include "common/message/event.h"
#include "common/log.h"
#include "kernels/convert.h"
#include "worker/checkpoint/disk_space.h"
#include "worker/checkpoint/folder.h"
#include "worker/checkpoint/hf_folder.h"
#include "worker/checkpoint/reader.h"
#include "worker/checkpoint/tokenizer_files.h"
#include "worker/engine/engine.h"
#include "worker/engine/output_dir.h"

#define PIECE_ELEMS (1 << 20) /* 4 MiB of fp32: what import and export hold at once */
#define MOST_NAMED  8         /* tensors in one sentence */

/* A checkpoint has it in its folder, beside the one with the tensors; that of a plugin's own
 * tag has both in one. */
static void checkpoint_config(const char *from, char *out, size_t cap)
{
    static const char *const places[] = {"%s/config.json", "%s/../config.json",
                                         "%s/%s/config.json"};
    char tag[ZT_CKPT_TAG] = "";

    (void)!zt_ckpt_latest(from, tag);
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        snprintf(out, cap, places[i], from, tag);
        if (access(out, F_OK) == 0)
            return;
    }
    out[0] = 0;
}

zt_err zt_weights_config_path(const char *from, char *out, size_t cap,
                              struct zt_fault *fault)
{
    struct zt_hf_folder *hf = NULL;
    zt_err rc;

    if (zt_ckpt_gives_weights(from)) {
        checkpoint_config(from, out, cap);
        return ZT_OK;
    }
    rc = zt_hf_folder_open(from, &hf, fault);
    if (rc)
        return zt_fault_context(fault, rc, "--model_name_or_path");
    snprintf(out, cap, "%s/config.json", zt_hf_folder_dir(hf));
    if (access(out, F_OK))
        out[0] = 0;
    zt_hf_folder_close(hf);
    return ZT_OK;
}

/* The tensor of a parameter, by its name or, of weights that are tied, by another of them. */
static const struct zt_safetensors_tensor *find_of(const struct zt_model *m,
                                                   const struct zt_hf_folder *hf,
                                                   const struct zt_param *p)
{
    const struct zt_safetensors_tensor *t = zt_hf_folder_find_alike(hf, p->name);
    int num;
    const struct zt_twin *twins = zt_model_twins(m, &num);

    for (int i = 0; !t && i < num; i++)
        if (twins[i].param == p)
            t = zt_hf_folder_find_alike(hf, twins[i].name);
    return t;
}

bool zt_weights_has(const struct zt_model *m, const struct zt_hf_folder *hf,
                    const struct zt_param *p)
{
    return find_of(m, hf, p) != NULL;
}

static bool has_shape(const struct zt_safetensors_tensor *t, const struct zt_param *p)
{
    if (t->ndim != p->ndim)
        return false;
    for (int i = 0; i < t->ndim; i++)
        if (t->shape[i] != p->shape[i])
            return false;
    return true;
}

static zt_err check_tensor(const struct zt_safetensors_tensor *t,
                           const struct zt_param *p, const char *from,
                           struct zt_fault *fault)
{
    char have[96], want[96];

    zt_sizes_text(p->ndim, p->shape, want);
    if (!t)
        return zt_fault_set(fault, ZT_E_FORMAT, "%s: there is no tensor %s %s", from,
                            p->name, want);
    if (!t->loadable)
        return zt_fault_set(fault, ZT_E_FORMAT,
                            "%s: %s is stored as %s, which is not read; save it as "
                            "float32",
                            t->path, t->name, t->type);
    if (has_shape(t, p))
        return ZT_OK;
    zt_sizes_text(t->ndim, t->shape, have);
    return zt_fault_set(
        fault, ZT_E_FORMAT, "%s: %s is %s, the model wants %s%s", t->path, t->name, have,
        want,
        p->flags & ZT_EXTRA ? "; with --ignore_mismatched_sizes it begins as new" : "");
}

/* A parameter that the files need not have, and do not, or not in its shape where that is
 * meant to begin as new: its initial values stay. */
static bool is_kept(const struct zt_engine *e, const struct zt_hf_folder *hf,
                    const struct zt_param *p)
{
    const struct zt_safetensors_tensor *t = find_of(e->model, hf, p);

    return (p->flags & ZT_EXTRA) &&
           (!t || (e->head_is_other && zt_hf_is_of_head(p->name)) ||
            (e->run->ignore_mismatched_sizes && !has_shape(t, p)));
}

/* Everything is checked before the first weight changes; all problems are listed. */
static zt_err check_all(const struct zt_engine *e, const struct zt_hf_folder *hf,
                        struct zt_fault *fault)
{
    const struct zt_model *m = e->model;
    const char *from = e->run->model_name_or_path;
    struct zt_fault one = {0}, all = {0};
    char path[PATH_MAX];
    int bad = 0;
    zt_err rc = ZT_OK;

    for (int i = 0; i < m->num_params; i++) {
        const struct zt_param *p = m->params[i];

        if (is_kept(e, hf, p) || !check_tensor(find_of(m, hf, p), p, from, &one))
            continue;
        rc = one.code;
        if (bad++ < MOST_NAMED)
            snprintf(all.text + strlen(all.text), sizeof(all.text) - strlen(all.text),
                     "%s%s", bad > 1 ? "\n" : "", one.text);
    }
    if (!bad)
        return ZT_OK;
    if (bad > MOST_NAMED)
        snprintf(all.text + strlen(all.text), sizeof(all.text) - strlen(all.text),
                 "\n... and %d more", bad - MOST_NAMED);
    snprintf(path, sizeof(path), "%s/config.json", zt_hf_folder_dir(hf));
    if (access(path, F_OK))
        snprintf(
            all.text + strlen(all.text), sizeof(all.text) - strlen(all.text),
            "\nthere is no config.json beside the weights, so that sizes are those of "
            "the options");
    return zt_fault_set(fault, rc, "%s", all.text);
}

/* How many parameters keep their initial values; *first: one of them. What is beside frozen
 * weights has the values of --adapter_name_or_path, which are read next. */
static int count_kept(const struct zt_engine *e, const struct zt_hf_folder *hf,
                      const struct zt_param **first)
{
    const struct zt_model *m = e->model;
    int kept = 0;

    for (int i = m->num_params - 1; i >= 0; i--) {
        if (!is_kept(e, hf, m->params[i]) ||
            (e->run->adapter_name_or_path && !m->params[i]->is_base))
            continue;
        *first = m->params[i];
        kept++;
    }
    return kept;
}

static int by_address(const void *a, const void *b)
{
    const char *const *x = a, *const *y = b;

    return (*x > *y) - (*x < *y);
}

/* Tensors of the files that are parameters, their twins, or ignored: (*num), sorted. */
static const void **list_used(const struct zt_model *m, const struct zt_hf_folder *hf,
                              int *num)
{
    int num_twins;
    const struct zt_twin *twins = zt_model_twins(m, &num_twins);
    const void **used = calloc((size_t)(m->num_params + num_twins) + 1, sizeof(*used));

    *num = 0;
    for (int i = 0; used && i < m->num_params; i++)
        used[(*num)++] = find_of(m, hf, m->params[i]);
    for (int i = 0; used && i < num_twins; i++)
        used[(*num)++] = zt_hf_folder_find_alike(hf, twins[i].name);
    if (used)
        qsort(used, (size_t)*num, sizeof(*used), by_address);
    return used;
}

/* Tensors that nobody takes are of another model than the one that was built. */
static zt_err check_unused(const struct zt_engine *e, const struct zt_hf_folder *hf,
                           struct zt_fault *fault)
{
    const struct zt_model *m = e->model;
    char names[1024] = "";
    int num, unused = 0;
    const void **used = list_used(m, hf, &num);

    if (!used)
        return zt_fault_set(fault, ZT_E_NOMEM, "weights: no host memory");
    for (int i = 0; i < zt_hf_folder_count(hf); i++) {
        const struct zt_safetensors_tensor *t = zt_hf_folder_at(hf, i);
        size_t at = strlen(names);

        if (bsearch(&t, used, (size_t)num, sizeof(*used), by_address) ||
            zt_model_ignores_weight(m, t->name))
            continue;
        if (unused++ < MOST_NAMED)
            snprintf(names + at, sizeof(names) - at, "%s%.100s", at ? ", " : "", t->name);
    }
    free(used);
    if (unused > MOST_NAMED)
        snprintf(names + strlen(names), sizeof(names) - strlen(names), ", ...");
    if (unused && !e->run->allow_partial_import)
        return zt_fault_set(fault, ZT_E_FORMAT,
                            "%s: %d tensors are not parameters of this model: %s; is its "
                            "config.json of another model? --allow_partial_import goes "
                            "on without them",
                            zt_hf_folder_dir(hf), unused, names);
    if (unused && zt_comm_rank(e->comm) == 0)
        zt_warn("weights", "%d tensors of %s are not parameters of this model: %s",
                unused, zt_hf_folder_dir(hf), names);
    return ZT_OK;
}

/* Whether another config.json makes a parameter of the twin. A head may have its own weight; the
 * embeddings of encoder and decoder are one in every model. */
static bool may_be_two(const struct zt_model *m, const struct zt_twin *twin)
{
    return !zt_model_is_always_tied(m) && !strstr(twin->name, "embed_tokens");
}

/* This rank's share of what a tensor and its twin must have in common. */
static zt_err compare_twin(const struct zt_engine *e, const struct zt_twin *twin,
                           const struct zt_safetensors_tensor *t,
                           const struct zt_safetensors_tensor *other, float *piece,
                           struct zt_fault *fault)
{
    int64_t rank = zt_comm_rank(e->comm), world = e->run->world,
            numel = twin->param->numel;
    int64_t at = numel / world * rank, n = PIECE_ELEMS / 2;
    int64_t end = rank + 1 == world ? numel : at + numel / world;
    zt_err rc = has_shape(other, twin->param) && other->loadable ? ZT_OK : ZT_E_FORMAT;
    bool same = !rc;

    for (; !rc && same && at < end; at += n) {
        n = end - at < n ? end - at : n;
        rc = zt_safetensors_read_f32(t, at, n, piece, fault);
        if (!rc)
            rc = zt_safetensors_read_f32(other, at, n, piece + PIECE_ELEMS / 2, fault);
        same = !rc &&
               memcmp(piece, piece + PIECE_ELEMS / 2, (size_t)n * sizeof(*piece)) == 0;
    }
    if (same || (rc && has_shape(other, twin->param) && other->loadable))
        return rc;
    return zt_fault_set(fault, ZT_E_FORMAT,
                        "%s: %s is not the same as %s, as it is in this model; %s",
                        other->path, other->name, t->name,
                        may_be_two(e->model, twin)
                            ? "if they are two, config.json must say "
                              "\"tie_word_embeddings\": false"
                            : "its plugin has one weight for both and builds no other "
                              "model: a file with one of them alone is taken for both");
}

static zt_err check_twins(const struct zt_engine *e, const struct zt_hf_folder *hf,
                          float *piece, struct zt_fault *fault)
{
    int num;
    const struct zt_twin *twins = zt_model_twins(e->model, &num);
    zt_err rc = ZT_OK;

    for (int i = 0; !rc && i < num; i++) {
        const struct zt_safetensors_tensor *t = find_of(e->model, hf, twins[i].param);
        const struct zt_safetensors_tensor *other =
            zt_hf_folder_find_alike(hf, twins[i].name);

        if (t && other && t != other)
            rc = compare_twin(e, &twins[i], t, other, piece, fault);
    }
    return rc;
}

/* This rank's part of a parameter, piece by piece; pages of files that were read are not kept
 * beside it. */
static zt_err load_param(struct zt_engine *e, const struct zt_param *p,
                         const struct zt_hf_folder *hf, float *piece,
                         struct zt_fault *fault)
{
    const struct zt_safetensors_tensor *t = find_of(e->model, hf, p);
    int64_t at, left;
    zt_err rc = ZT_OK;

    zt_zero_part(e->zero, p, &at, &left);
    while (!rc && left > 0) {
        int64_t n = left < PIECE_ELEMS ? left : PIECE_ELEMS;

        rc = zt_safetensors_read_f32(t, at, n, piece, fault);
        if (!rc)
            rc = zt_zero_set(e->zero, ZT_STATE_VALUE, p, at, n, piece, fault);
        zt_hf_folder_forget(hf);
        at += n;
        left -= n;
    }
    return rc;
}

zt_err zt_engine_check_weights(const struct zt_engine *e, struct zt_fault *fault)
{
    const char *from = e->run->model_name_or_path;
    struct zt_hf_folder *hf = NULL;
    zt_err rc;

    if (!from || zt_ckpt_gives_weights(from))
        return ZT_OK;
    rc = zt_hf_folder_open(from, &hf, fault);
    if (!rc)
        rc = check_all(e, hf, fault);
    zt_hf_folder_close(hf);
    return rc;
}

zt_err zt_engine_load(struct zt_engine *e, struct zt_fault *fault)
{
    const struct zt_model *m = e->model;
    const struct zt_param *first = NULL;
    struct zt_hf_folder *hf = NULL;
    float *piece = NULL;
    int kept = 0;
    zt_err rc = zt_hf_folder_open(e->run->model_name_or_path, &hf, fault);

    if (rc)
        return rc;
    rc = check_all(e, hf, fault);
    if (!rc && !(piece = malloc(PIECE_ELEMS * sizeof(*piece))))
        rc = zt_fault_set(fault, ZT_E_NOMEM, "weights: no host memory");
    if (!rc)
        rc = check_unused(e, hf, fault);
    if (!rc)
        rc = check_twins(e, hf, piece, fault);
    if (!rc)
        kept = count_kept(e, hf, &first);
    if (kept || e->adapters) /* of all: what the files have is written over it */
        rc = zt_zero_init(e->zero, (uint64_t)e->run->seed, fault);
    for (int i = 0; !rc && i < m->num_params; i++)
        if (!is_kept(e, hf, m->params[i]))
            rc = load_param(e, m->params[i], hf, piece, fault);
    if (!rc && kept)
        snprintf(e->new_params, sizeof(e->new_params),
                 "%d parameters are not in %s%s: they begin as new (%s%s)%s", kept,
                 zt_hf_folder_dir(hf),
                 e->head_is_other                  ? ", or of another task there"
                 : e->run->ignore_mismatched_sizes ? ", or of another size there"
                                                   : "",
                 first->name, kept > 1 ? ", ..." : "",
                 e->run->do_train ? "" : ", and nothing trains them here");
    free(piece);
    zt_hf_folder_close(hf);
    return rc ? rc : zt_zero_publish(e->zero, fault);
}

/* ---- out ---- */

zt_dtype zt_weights_dtype(const struct zt_run *run)
{
    return run->zero.gather_16bit_on_save ? run->compute_dtype : ZT_F32;
}

static bool is_rounded(const struct zt_run *run)
{
    return zt_weights_dtype(run) != ZT_F32;
}

size_t zt_weights_export_bytes(const struct zt_run *run, const struct zt_model *model)
{
    size_t each = sizeof(float) + (is_rounded(run) ? sizeof(uint16_t) : 0);
    int64_t most = 0, pair = zt_adapters_export_elems(model);

    if (!run->output_dir || (!run->do_train && !run->merge_adapters))
        return 0;
    if (pair && !run->merge_adapters)
        return (size_t)pair * sizeof(float);
    for (int i = 0; i < model->num_params; i++)
        most = model->params[i]->numel > most ? model->params[i]->numel : most;
    most = most < PIECE_ELEMS ? most : PIECE_ELEMS;
    return (size_t)most * each + (size_t)pair * sizeof(float);
}

/* An export: rank 0 has a writer, the others only send what they hold. */
struct weights_export {
    struct zt_hf_writer *writer;
    zt_dtype dtype;
    float *piece;
    uint16_t *rounded; /* the piece in `dtype` */
    const char *lost; /* the first parameter that is not finite in the file; NULL: none */
    zt_err rc;        /* of writing; the exchange goes on all the same */
};

static bool all_finite(const struct weights_export *to, int64_t n)
{
    bool finite = true;

    if (to->dtype == ZT_F16)
        for (int64_t i = 0; i < n; i++)
            finite &= (to->rounded[i] & 0x7c00) != 0x7c00;
    else if (to->dtype == ZT_BF16)
        for (int64_t i = 0; i < n; i++)
            finite &= (to->rounded[i] & 0x7f80) != 0x7f80;
    else
        for (int64_t i = 0; i < n; i++)
            finite &= to->piece[i] - to->piece[i] == 0;
    return finite;
}

/* Loss and gradients need not have met them: they are of rows that no token is of. */
static void tell_of_lost(struct zt_engine *e, const struct weights_export *to)
{
    e->saved_lost = to->lost && !to->rc;
    if (e->saved_lost)
        zt_warn("weights",
                "%s has numbers that are not finite in %s, as it is saved (zckpt verify)",
                to->lost, zt_dtype_name(to->dtype));
}

static void write_piece(struct weights_export *to, const char *name, int64_t n,
                        struct zt_fault *fault)
{
    const void *bytes = to->dtype == ZT_F32 ? (void *)to->piece : to->rounded;

    if (!to->writer || to->rc)
        return;
    if (to->dtype == ZT_BF16)
        zt_bf16_of_floats(to->rounded, to->piece, n);
    else if (to->dtype == ZT_F16)
        zt_f16_of_floats(to->rounded, to->piece, n);
    if (!to->lost && !all_finite(to, n))
        to->lost = name;
    to->rc =
        zt_hf_writer_put(to->writer, bytes, (size_t)n * zt_dtype_bytes(to->dtype), fault);
}

static zt_err write_param(struct zt_engine *e, const struct zt_param *p,
                          struct weights_export *to, struct zt_fault *fault)
{
    struct zt_merge merge;
    zt_err rc = zt_merge_open(e, p, &merge, to->rc ? NULL : fault);

    for (int64_t at = 0; !rc && at < p->numel; at += PIECE_ELEMS) {
        int64_t n = p->numel - at < PIECE_ELEMS ? p->numel - at : PIECE_ELEMS;

        rc = zt_zero_get(e->zero, ZT_STATE_VALUE, p, at, n, to->piece,
                         to->rc ? NULL : fault);
        if (!rc && to->writer)
            zt_merge_add(&merge, at, n, to->piece);
        if (!rc)
            write_piece(to, p->name, n, fault);
    }
    zt_merge_close(&merge);
    return rc;
}

/* `dir` is the run's own folder, or one that a request names. */
static zt_err make_folder(struct zt_engine *e, const char *dir, struct zt_fault *fault)
{
    bool own = e->run->output_dir && strcmp(dir, e->run->output_dir) == 0;

    return own ? zt_output_dir_hold(e, fault) : zt_output_dir_make(NULL, dir, fault);
}

static zt_err open_writer(struct zt_engine *e, const char *dir, struct weights_export *to,
                          struct zt_fault *fault)
{
    const struct zt_model *m = e->model;
    struct zt_safetensors_decl *decls = calloc((size_t)m->num_params, sizeof(*decls));
    int num = 0;
    zt_err rc;

    if (!decls)
        return zt_fault_set(fault, ZT_E_NOMEM, "weights: no host memory");
    for (int i = 0; i < m->num_params; i++) {
        const struct zt_param *p = m->params[i];

        if (!p->adapts) /* merged into the weight that they are beside */
            decls[num++] =
                (struct zt_safetensors_decl){p->name, to->dtype, p->ndim, p->shape};
    }
    rc = make_folder(e, dir, fault);
    if (!rc)
        rc = zt_hf_writer_open(dir, decls, num, ZT_HF_SHARD_BYTES, &to->writer, fault);
    free(decls);
    return rc;
}

static zt_err write_config(struct zt_engine *e, const char *dir, struct zt_fault *fault)
{
    char *config = zt_model_config_text(e->model);
    zt_err rc;

    if (!config)
        return zt_fault_set(fault, ZT_E_NOMEM, "config.json: no host memory");
    rc = zt_hf_write_text(dir, "config.json", config, fault);
    free(config);
    return rc;
}

zt_err zt_weights_check_checkpoint(const struct zt_engine *e, const char *dir,
                                   struct zt_fault *fault)
{
    char *config = zt_model_config_text(e->model);
    zt_err rc = config ? zt_ckpt_check_config(dir, config, false, fault)
                       : zt_fault_set(fault, ZT_E_NOMEM, "config.json: no host memory");

    free(config);
    return rc;
}

/* The folder of a model, of its config.json or of its weights. "": it has gone since the start. */
static void find_model_folder(const char *from, char out[PATH_MAX])
{
    struct stat st;

    out[0] = 0;
    if (!from || stat(from, &st))
        return;
    if (zt_weights_config_path(from, out, PATH_MAX, NULL) || !out[0])
        snprintf(out, PATH_MAX, S_ISDIR(st.st_mode) ? "%s/" : "%s", from);
    if (strrchr(out, '/'))
        *strrchr(out, '/') = 0;
    else
        snprintf(out, PATH_MAX, ".");
}

zt_err zt_weights_copy_tokenizer(const struct zt_run *run, int64_t end, const char *dir,
                                 struct zt_fault *fault)
{
    const char *given = run->tokenizer_name;
    const char *from = given ? given : run->model_name_or_path;
    char model[PATH_MAX];

    if (given && strcmp(given, "bytes") == 0)
        given = ""; /* that of the model knows other ids */
    else if (from && access(from, F_OK))
        zt_warn("weights",
                "%s: without the tokenizer, as %s is there no more: copy it there later",
                dir, from);
    find_model_folder(run->model_name_or_path, model);
    return zt_copy_tokenizer(given, model[0] ? model : NULL, dir,
                             run->overwrite_output_dir, end, fault);
}

/* The adapters alone, the tokenizer that they were trained with, and what the model is together
 * with them: the names of its classes are nowhere else. */
static zt_err export_adapters(struct zt_engine *e, const char *dir, zt_err *failed,
                              struct zt_fault *fault)
{
    bool writes = zt_comm_rank(e->comm) == 0;
    zt_err made = writes ? make_folder(e, dir, fault) : ZT_OK, rc;

    rc = zt_adapters_export(e, made ? NULL : dir, failed, made ? NULL : fault);
    if (!*failed)
        *failed = made;
    if (!rc && writes && !*failed)
        *failed = write_config(e, dir, fault);
    if (!rc && writes && !*failed)
        *failed = zt_weights_copy_tokenizer(e->run, zt_engine_learnt_end(e), dir, fault);
    return rc;
}

zt_err zt_weights_export(struct zt_engine *e, const char *dir, zt_err *failed,
                         struct zt_fault *fault)
{
    bool writes = zt_comm_rank(e->comm) == 0;
    struct weights_export to = {.dtype = zt_weights_dtype(e->run)};
    zt_err rc = ZT_OK;

    if (e->adapters && !e->run->merge_adapters)
        return export_adapters(e, dir, failed, fault);
    to.piece = malloc(PIECE_ELEMS * sizeof(float));
    if (is_rounded(e->run))
        to.rounded = malloc(PIECE_ELEMS * sizeof(*to.rounded));
    if (!to.piece || (is_rounded(e->run) && !to.rounded))
        rc = zt_fault_set(fault, ZT_E_NOMEM, "weights: no host memory");
    if (!rc && writes)
        to.rc = open_writer(e, dir, &to, fault);
    for (int i = 0; !rc && i < e->model->num_params; i++)
        if (!e->model->params[i]->adapts)
            rc = write_param(e, e->model->params[i], &to, fault);
    if (!rc && writes && !to.rc)
        to.rc = zt_hf_writer_commit(to.writer, fault);
    if (!rc && writes && !to.rc)
        to.rc = write_config(e, dir, fault);
    if (!rc && writes && !to.rc)
        to.rc = zt_weights_copy_tokenizer(e->run, zt_engine_learnt_end(e), dir, fault);
    tell_of_lost(e, &to);
    zt_hf_writer_close(to.writer);
    free(to.piece);
    free(to.rounded);
    *failed = to.rc;
    return rc;
}

/* On rank 0. */
static bool may_replace(const struct zt_engine *e, const char *dir)
{
    if (e->run->output_dir && zt_is_one_file(dir, e->run->output_dir))
        return e->run->overwrite_output_dir || !zt_output_dir_has_other_model(&e->output);
    return e->weights_dir[0] && zt_is_one_file(dir, e->weights_dir);
}

zt_err zt_engine_check_weights_dir(struct zt_engine *e, const char *dir,
                                   struct zt_fault *fault)
{
    bool writes = zt_comm_rank(e->comm) == 0;
    zt_err refused = writes ? zt_weights_check_checkpoint(e, dir, fault) : ZT_OK, rc;
    char found[PATH_MAX];
    double taken[2] = {writes && zt_find_model(dir, found) && !may_replace(e, dir),
                       refused != ZT_OK};

    rc = zt_sum_f64(e->comm, taken, 2, refused ? NULL : fault);
    if (refused)
        return refused;
    if (!rc && taken[1] > 0)
        return zt_fault_set(fault, ZT_E_CANTCREATE,
                            "%s: rank 0 cannot save the weights there", dir);
    if (!rc && taken[0] > 0)
        return zt_fault_set(
            fault, ZT_E_CANTCREATE,
            "%s has a model already, and this run replaces only the one that it has "
            "saved last: name another folder",
            dir);
    if (!rc)
        snprintf(e->weights_dir, sizeof(e->weights_dir), "%s", dir);
    return rc;
}

zt_err zt_engine_save(struct zt_engine *e, const char *dir, struct zt_fault *fault)
{
    zt_err failed = ZT_OK, rc;
    double any[2]; /* ranks that failed, and whose weights are not finite */

    zt_event_phase("saving weights");
    if (e->run->output_dir && strcmp(dir, e->run->output_dir) == 0)
        zt_disk_release(&e->disk_reserved);
    rc = zt_weights_export(e, dir, &failed, fault);
    if (rc)
        return failed ? failed : rc;
    /* the others must not go on as if all were well, and must not blame each other */
    any[0] = failed ? 1 : 0;
    any[1] = e->saved_lost ? 1 : 0;
    rc = zt_sum_f64(e->comm, any, 2, failed ? NULL : fault);
    e->save_refused = !rc && any[0] > 0;
    e->saved_lost = !rc && any[1] > 0;
    if (failed)
        return failed;
    if (!rc && any[0] > 0)
        return zt_fault_set(fault, ZT_E_PEER, "rank 0 could not save the weights");
    if (!rc && zt_comm_rank(e->comm) == 0) {
        if (e->run->output_dir && zt_is_one_file(dir, e->run->output_dir)) {
            bool same = e->run->do_train && e->total_steps <= e->first_step;

            if (!same)
                zt_output_dir_remove_results(&e->output, e->run);
            zt_output_dir_own_model(&e->output);
        }
        zt_event_weights(dir);
    }
    return rc;
}
