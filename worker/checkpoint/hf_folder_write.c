/*
 * hf_folder_write.c -- weights into a model folder, in one file or in shards.
 *
 * All files are reserved on the disk at open, so a disk that is too small is noticed
 * before the first byte. At commit every shard is on the disk before the first of them
 * is renamed; then comes the index, and last the files of an earlier save are removed.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/files/folders.h"
#include "worker/checkpoint/atomic_file.h"
#include "worker/checkpoint/hf_folder.h"

#define SINGLE "model.safetensors"
#define INDEX  "model.safetensors.index.json"

struct shard {
    struct zt_safetensors_writer *writer;
    int64_t bytes_left; /* data bytes still to come */
};

struct zt_hf_writer {
    char *dir;
    struct shard *shards;
    int num_shards, at; /* at: the shard that is being filled */
    json_t *index;      /* NULL: one file */
};

static zt_err no_memory(const char *path, struct zt_fault *fault)
{
    return zt_fault_set(fault, ZT_E_NOMEM, "%s: no memory", path);
}

static void shard_name(char *out, size_t n, int i, int num)
{
    if (num == 1)
        snprintf(out, n, SINGLE);
    else
        snprintf(out, n, "model-%05d-of-%05d.safetensors", i + 1, num);
}

/* ---- opening ---- */

/* Cut before each tensor that would pass the limit: first[i] is shard i's first tensor.
 */
static zt_err plan_shards(const struct zt_safetensors_decl *decls, int n, int64_t limit,
                          int *first, int64_t *sizes, int *num, struct zt_fault *fault)
{
    int64_t here = 0;
    int k = 0;

    first[0] = 0;
    for (int i = 0; i < n; i++) {
        int64_t bytes = 0;
        zt_err rc = zt_safetensors_decl_bytes(&decls[i], &bytes, fault);

        if (rc)
            return rc;
        if (here > 0 && bytes > limit - here) {
            sizes[k++] = here;
            first[k] = i;
            here = 0;
        }
        here += bytes; /* past the limit only for the first tensor of a shard */
    }
    sizes[k++] = here;
    first[k] = n;
    *num = k;
    return ZT_OK;
}

static zt_err open_shard(struct zt_hf_writer *w, int i,
                         const struct zt_safetensors_decl *decls, int n,
                         struct zt_fault *fault)
{
    char name[64], *path = NULL;
    zt_err rc;

    shard_name(name, sizeof(name), i, w->num_shards);
    if (asprintf(&path, "%s/%s", w->dir, name) < 0)
        return no_memory(w->dir, fault);
    rc = zt_safetensors_writer_open(path, decls, n, &w->shards[i].writer, fault);
    free(path);
    return rc;
}

static zt_err make_index(struct zt_hf_writer *w, const struct zt_safetensors_decl *decls,
                         const int *first, struct zt_fault *fault)
{
    json_t *map = json_object();
    int64_t total = 0;
    bool good = map != NULL;

    for (int i = 0; i < w->num_shards; i++) {
        char name[64];

        shard_name(name, sizeof(name), i, w->num_shards);
        total += w->shards[i].bytes_left;
        for (int k = first[i]; k < first[i + 1]; k++) {
            if (json_object_get(map, decls[k].name)) {
                json_decref(map);
                return zt_fault_set(fault, ZT_E_ARG, "tensor %s: declared twice",
                                    decls[k].name);
            }
            good = good && !json_object_set_new(map, decls[k].name, json_string(name));
        }
    }
    if (good)
        w->index = json_pack("{s:{s:I}, s:O}", "metadata", "total_size",
                             (json_int_t)total, "weight_map", map);
    json_decref(map);
    return w->index ? ZT_OK : no_memory(w->dir, fault);
}

static zt_err open_all(struct zt_hf_writer *w, const struct zt_safetensors_decl *decls,
                       int n, int64_t limit, struct zt_fault *fault)
{
    int *first = calloc((size_t)n + 2, sizeof(*first));
    int64_t *sizes = calloc((size_t)n + 1, sizeof(*sizes));
    zt_err rc = ZT_OK;

    if (!first || !sizes)
        rc = no_memory(w->dir, fault);
    if (!rc)
        rc = plan_shards(decls, n, limit, first, sizes, &w->num_shards, fault);
    if (!rc) {
        w->shards = calloc((size_t)w->num_shards, sizeof(*w->shards));
        if (!w->shards)
            rc = no_memory(w->dir, fault);
    }
    for (int i = 0; !rc && i < w->num_shards; i++)
        w->shards[i].bytes_left = sizes[i];
    if (!rc && w->num_shards > 1)
        rc = make_index(w, decls, first, fault);
    for (int i = 0; !rc && i < w->num_shards; i++)
        rc = open_shard(w, i, decls + first[i], first[i + 1] - first[i], fault);
    free(first);
    free(sizes);
    return rc;
}

zt_err zt_hf_writer_open(const char *dir, const struct zt_safetensors_decl *decls,
                         int num_decls, int64_t shard_bytes, struct zt_hf_writer **out,
                         struct zt_fault *fault)
{
    struct zt_hf_writer *w = calloc(1, sizeof(*w));
    zt_err rc = ZT_OK;

    if (w)
        w->dir = strdup(dir);
    if (!w || !w->dir)
        rc = no_memory(dir, fault);
    else if (shard_bytes < 1)
        rc = zt_fault_set(fault, ZT_E_ARG, "%s: a shard limit of %lld bytes", dir,
                          (long long)shard_bytes);
    else
        rc = zt_folders_make(NULL, dir, NULL, fault);
    if (!rc)
        rc = open_all(w, decls, num_decls, shard_bytes, fault);
    if (rc) {
        zt_hf_writer_close(w);
        return rc;
    }
    *out = w;
    return ZT_OK;
}

/* ---- data ---- */

zt_err zt_hf_writer_put(struct zt_hf_writer *w, const void *data, size_t bytes,
                        struct zt_fault *fault)
{
    const uint8_t *p = data;

    while (bytes > 0) {
        struct shard *s = &w->shards[w->at];
        bool last = w->at == w->num_shards - 1;
        size_t take = bytes;
        zt_err rc;

        if (s->bytes_left == 0 && !last) {
            rc = zt_safetensors_writer_sync(s->writer, fault);
            if (rc)
                return rc;
            w->at++;
            continue;
        }
        if (take > (uint64_t)s->bytes_left && !last)
            take = (size_t)s->bytes_left;
        rc = zt_safetensors_writer_put(s->writer, p, take,
                                       fault); /* too much is refused here */
        if (rc)
            return rc;
        s->bytes_left -= (int64_t)take;
        p += take;
        bytes -= take;
    }
    return ZT_OK;
}

/* ---- commit ---- */

zt_err zt_hf_write_text(const char *dir, const char *name, const char *text,
                        struct zt_fault *fault)
{
    struct zt_atomic_file f = {.fd = -1};
    char *path = NULL;
    zt_err rc;

    if (asprintf(&path, "%s/%s", dir, name) < 0)
        return no_memory(dir, fault);
    rc = zt_atomic_file_open(&f, path, 0, fault);
    if (!rc)
        rc = zt_atomic_file_write(&f, text, strlen(text), fault);
    if (!rc)
        rc = zt_atomic_file_publish(&f, fault);
    zt_atomic_file_release(&f);
    free(path);
    return rc;
}

static zt_err write_index(const struct zt_hf_writer *w, struct zt_fault *fault)
{
    char *text = json_dumps(w->index, JSON_INDENT(2));
    zt_err rc =
        text ? zt_hf_write_text(w->dir, INDEX, text, fault) : no_memory(w->dir, fault);

    free(text);
    return rc;
}

static bool is_ours(const void *arg, const char *name)
{
    const struct zt_hf_writer *w = arg;

    if (w->index && strcmp(name, INDEX) == 0)
        return true;
    for (int i = 0; i < w->num_shards; i++) {
        char mine[64];

        shard_name(mine, sizeof(mine), i, w->num_shards);
        if (strcmp(name, mine) == 0)
            return true;
    }
    return false;
}

zt_err zt_hf_writer_commit(struct zt_hf_writer *w, struct zt_fault *fault)
{
    zt_err rc = ZT_OK;

    for (int i = 0; !rc && i < w->num_shards; i++)
        rc = zt_safetensors_writer_sync(w->shards[i].writer, fault);
    for (int i = 0; !rc && i < w->num_shards; i++)
        rc = zt_safetensors_writer_commit(w->shards[i].writer, fault);
    if (!rc && w->index)
        rc = write_index(w, fault);
    return rc ? rc : zt_hf_remove_older(w->dir, is_ours, w, fault);
}

void zt_hf_writer_close(struct zt_hf_writer *w)
{
    if (!w)
        return;
    for (int i = 0; w->shards && i < w->num_shards; i++)
        zt_safetensors_writer_close(w->shards[i].writer);
    free(w->shards);
    json_decref(w->index);
    free(w->dir);
    free(w);
}
