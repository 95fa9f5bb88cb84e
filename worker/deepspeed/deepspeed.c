/* deepspeed.c -- finding a checkpoint of DeepSpeed, its tables, and reading ranges. */
#include "worker/deepspeed/deepspeed.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "worker/deepspeed/private.h"

/* ---- memory ---- */

zt_err zt_ds_no_memory(const struct zt_ds *ds, struct zt_fault *fault)
{
    return zt_fault_set(fault, ZT_E_NOMEM, "%s: no memory", ds->dir);
}

/* Room for one more of `num`: capacities are powers of two. */
static bool grow(void *list, int64_t num, size_t size)
{
    void *bigger;

    if (num & (num - 1) || (num > 0 && num < 16))
        return true;
    bigger = realloc(*(void **)list, (size_t)(num < 16 ? 16 : 2 * num) * size);
    if (bigger)
        *(void **)list = bigger;
    return bigger != NULL;
}

static const char *keep(struct zt_ds *ds, char *text)
{
    struct zt_ds_files *f = ds->files;

    if (!text || !grow(&f->names, (int64_t)f->num_names, sizeof(*f->names))) {
        free(text);
        return NULL;
    }
    return f->names[f->num_names++] = text;
}

const char *zt_ds_text(struct zt_ds *ds, const struct zt_pickled *v)
{
    if (!v || v->kind != ZT_PICKLED_TEXT || memchr(v->text, 0, v->text_bytes))
        return NULL;
    return keep(ds, strndup(v->text, v->text_bytes));
}

zt_err zt_ds_file(struct zt_ds *ds, const char *name, const struct zt_pickled **root,
                  struct zt_fault *fault)
{
    struct zt_ds_files *f = ds->files;
    char *path = NULL;
    zt_err rc;

    if (asprintf(&path, "%s/%s", ds->dir, name) < 0 ||
        !grow(&f->files, f->num_files, sizeof(struct zt_torch_file *))) {
        free(path);
        return zt_ds_no_memory(ds, fault);
    }
    rc = zt_torch_file_open(path, &f->files[f->num_files], fault);
    free(path);
    if (rc)
        return rc;
    *root = zt_torch_file_root(f->files[f->num_files++]);
    return ZT_OK;
}

struct zt_ds_param *zt_ds_add_param(struct zt_ds *ds, const struct zt_pickled *name)
{
    const char *text = zt_ds_text(ds, name);
    struct zt_ds_param *p;

    if (!text || !grow(&ds->params, ds->num_params, sizeof(*ds->params)))
        return NULL;
    p = &ds->params[ds->num_params++];
    *p = (struct zt_ds_param){.name = text, .first_piece = ds->files->num_pieces};
    return p;
}

bool zt_ds_add_piece(struct zt_ds *ds, struct zt_ds_param *p, int64_t flat, int64_t first,
                     int64_t elems)
{
    struct zt_ds_files *f = ds->files;

    if (!grow(&f->pieces, f->num_pieces, sizeof(*f->pieces)))
        return false;
    f->pieces[f->num_pieces++] = (struct zt_ds_piece){flat, first, elems};
    p->num_pieces++;
    return true;
}

int64_t zt_ds_add_flat(struct zt_ds *ds)
{
    struct zt_ds_files *f = ds->files;

    if (!grow(&f->flats, f->num_flats, sizeof(*f->flats)))
        return -1;
    f->flats[f->num_flats] = (struct zt_ds_flat){{NULL}};
    return f->num_flats++;
}

bool zt_ds_set_shape(struct zt_ds *ds, struct zt_ds_param *p,
                     const struct zt_pickled *shape)
{
    int64_t n = zt_pickled_count(shape), *axes;

    if (!shape || n > ZT_MAX_NDIM || shape->kind == ZT_PICKLED_DICT)
        return false;
    axes = calloc(ZT_MAX_NDIM, sizeof(*axes));
    if (!axes || !keep(ds, (char *)axes))
        return false;
    p->ndim = (int)n;
    p->shape = axes;
    p->numel = 1;
    for (int64_t i = 0; i < n; i++)
        if (!zt_pickled_int(zt_pickled_at(shape, i), &axes[i]) || axes[i] < 0 ||
            __builtin_mul_overflow(p->numel, axes[i], &p->numel))
            return false;
    return p->numel <= INT64_MAX / 16;
}

int zt_ds_kind(struct zt_ds *ds, const char *name)
{
    for (int i = 0; i < ds->num_kinds; i++)
        if (strcmp(ds->kinds[i], name) == 0)
            return i;
    if (ds->num_kinds == ZT_DS_MAX_KINDS)
        return -1;
    ds->kinds[ds->num_kinds] = keep(ds, strdup(name));
    return ds->kinds[ds->num_kinds] ? ds->num_kinds++ : -1;
}

/* ---- where it is ---- */

static bool ends_with(const char *s, const char *tail)
{
    size_t n = strlen(s), k = strlen(tail);

    return n >= k && strcmp(s + n - k, tail) == 0;
}

/* DIR/TAG: has files of DeepSpeed in it. */
static bool is_tag_dir(const char *dir)
{
    DIR *d = opendir(dir);
    bool found = false;

    for (struct dirent *e = d ? readdir(d) : NULL; e && !found; e = readdir(d))
        found = ends_with(e->d_name, "_model_states.pt");
    if (d)
        closedir(d);
    return found;
}

/* The first line of PATH/NAME; false: there is none. */
static bool read_tag(const char *path, const char *name, char tag[256])
{
    char *file = NULL;
    FILE *in = asprintf(&file, "%s/%s", path, name) < 0 ? NULL : fopen(file, "re");
    bool found = in && fgets(tag, 256, in);

    if (in)
        fclose(in);
    free(file);
    tag[found ? strcspn(tag, "\r\n") : 0] = 0;
    return *tag != 0;
}

/* The folder with the files; NULL: there is none. */
static char *find_dir(const char *path, const char *tag)
{
    char text[256] = "", *out = NULL;

    if (!tag && is_tag_dir(path))
        return strdup(path);
    if (!tag &&
        (read_tag(path, "latest", text) || read_tag(path, "latest_universal", text)))
        tag = text;
    if (!tag || asprintf(&out, "%s/%s", path, tag) < 0)
        return NULL;
    if (!is_tag_dir(out)) {
        free(out);
        out = NULL;
    }
    return out;
}

bool zt_ds_is_here(const char *path, const char *tag)
{
    char *dir = find_dir(path, tag);

    free(dir);
    return dir != NULL;
}

static bool has_universal(const struct zt_ds *ds)
{
    char *path = NULL;
    struct stat st;
    bool found = asprintf(&path, "%s/zero", ds->dir) >= 0 && stat(path, &st) == 0 &&
                 S_ISDIR(st.st_mode);

    free(path);
    return found;
}

static zt_err open_dir(struct zt_ds *ds, const char *path, const char *tag,
                       struct zt_fault *fault)
{
    const char *slash;

    ds->files = calloc(1, sizeof(*ds->files));
    ds->dir = find_dir(path, tag);
    if (!ds->files || !ds->dir)
        return zt_fault_set(fault, ds->files ? ZT_E_NOINPUT : ZT_E_NOMEM,
                            "%s: no checkpoint of DeepSpeed here%s%s: no folder with "
                            "*_model_states.pt",
                            path, tag ? " under the tag " : "", tag ? tag : "");
    while (strlen(ds->dir) > 1 && ends_with(ds->dir, "/"))
        ds->dir[strlen(ds->dir) - 1] = 0;
    slash = strrchr(ds->dir, '/');
    ds->tag = slash ? slash + 1 : ds->dir;
    ds->optimizer_step = -1;
    if (zt_ds_kind(ds, "master") != 0)
        return zt_ds_no_memory(ds, fault);
    ds->universal = has_universal(ds);
    return ds->universal ? zt_ds_read_universal(ds, fault) : zt_ds_read_zero(ds, fault);
}

zt_err zt_ds_open(const char *path, const char *tag, struct zt_ds **out,
                  struct zt_fault *fault)
{
    struct zt_ds *ds = calloc(1, sizeof(*ds));
    zt_err rc;

    if (!ds)
        return zt_fault_set(fault, ZT_E_NOMEM, "%s: no memory", path);
    rc = open_dir(ds, path, tag, fault);
    if (rc) {
        zt_ds_close(ds);
        return rc;
    }
    *out = ds;
    return ZT_OK;
}

void zt_ds_close(struct zt_ds *ds)
{
    struct zt_ds_files *f = ds ? ds->files : NULL;

    for (int i = 0; f && i < f->num_files; i++)
        zt_torch_file_close(f->files[i]);
    for (size_t i = 0; f && i < f->num_names; i++)
        free(f->names[i]);
    if (f) {
        free(f->files);
        free(f->names);
        free(f->flats);
        free(f->pieces);
    }
    free(f);
    if (ds) {
        free(ds->params);
        free(ds->aliases);
        free(ds->dir);
    }
    free(ds);
}

void zt_ds_forget(const struct zt_ds *ds)
{
    for (int i = 0; i < ds->files->num_files; i++)
        zt_torch_file_forget(ds->files->files[i]);
}

/* ---- reading ---- */

zt_err zt_ds_read(const struct zt_ds *ds, int kind, int param, int64_t first, int64_t n,
                  float *out, struct zt_fault *fault)
{
    const struct zt_ds_param *p = &ds->params[param];
    int64_t at = 0; /* of the piece, in the parameter */

    if (kind < 0 || kind >= ds->num_kinds || first < 0 || n < 0 || first > p->numel ||
        n > p->numel - first)
        return zt_fault_set(fault, ZT_E_ARG, "%s: %s: no such elements", ds->dir,
                            p->name);
    for (int64_t i = 0; n > 0 && i < p->num_pieces; i++) {
        const struct zt_ds_piece *piece = &ds->files->pieces[p->first_piece + i];
        int64_t from = first - at, left = piece->elems - from, k = n < left ? n : left;
        const struct zt_safetensors_tensor *t =
            ds->files->flats[piece->flat].of_kind[kind];
        zt_err rc = ZT_OK;

        at += piece->elems;
        if (left <= 0)
            continue;
        if (!t)
            return zt_fault_set(fault, ZT_E_ARG, "%s: %s has no %s", ds->dir, p->name,
                                ds->kinds[kind]);
        rc = zt_safetensors_read_f32(t, piece->first + from, k, out, fault);
        if (rc)
            return zt_fault_context(fault, rc, "%s of %s", ds->kinds[kind], p->name);
        out += k;
        first += k;
        n -= k;
    }
    return ZT_OK;
}
