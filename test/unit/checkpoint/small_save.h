/*
 * small_save.h -- a save that is small enough to be ended at every moment of it, and what a
 * load finds after that. cmocka and files.h are included.
 */
#ifndef TEST_UNIT_CHECKPOINT_SMALL_SAVE_H
#define TEST_UNIT_CHECKPOINT_SMALL_SAVE_H

#include <jansson.h>
#include <limits.h>
#include <sys/stat.h>

#include "worker/checkpoint/folder.h"
#include "worker/checkpoint/hf_folder.h"
#include "worker/checkpoint/reader.h"
#include "worker/checkpoint/checksummed_json.h"
#include "worker/checkpoint/shard.h"

#define ELEMS 700

static const struct zt_ckpt_kind kinds[] = {{"weights", ZT_F32}};
static const struct zt_ckpt_param params[] = {
    {.name = "a", .ndim = 1, .shape = {ELEMS}, .numel = ELEMS, .kinds = 1}};
static const struct zt_ckpt_tables tables = {kinds, 1, params, 1};

/* ---- a small save: values are those of `version` ---- */

static inline zt_err write_manifest(const char *work, const char *file, const char *index,
                                    const struct zt_ckpt_shard_made *made)
{
    char hash[ZT_HASH_TEXT], *text = NULL;
    size_t bytes;
    uint64_t h;
    json_t *root;
    zt_err rc;

    zt_hash_print(made->index_hash, hash);
    root = json_pack("{s:s, s:i, s:s, s:[{s:s, s:s}], s:[{s:s, s:[i], s:[i]}],"
                     " s:[{s:s, s:I, s:s, s:s}]}",
                     "format", ZT_CKPT_FORMAT, "version", 1, "tag", "global_step4",
                     "kinds", "name", "weights", "dtype", "f32", "params", "name", "a",
                     "shape", ELEMS, "kinds", 0, "shards", "file", file, "bytes",
                     (json_int_t)made->bytes, "index", index, "index_xxh3", hash);
    rc = zt_sealed_json_print(root, &text, &bytes, &h, NULL);
    if (!rc)
        rc = zt_hf_write_text(work, "manifest.json", text, NULL);
    free(text);
    json_decref(root);
    return rc;
}

static inline zt_err save(const char *root, float version)
{
    static const struct zt_ckpt_part part = {0, 0, 0, ELEMS, 0, 0, NULL};
    char work[PATH_MAX], file[ZT_CKPT_SHARD_NAME], index[ZT_CKPT_SHARD_NAME];
    struct zt_ckpt_place p = {.root = ""};
    struct zt_ckpt_shard_made made = {0};
    struct zt_ckpt_shard_writer *w = NULL;
    zt_err rc;

    zt_ckpt_place_of_step(&p, root, 4);
    zt_ckpt_work_dir(&p, work);
    zt_ckpt_shard_names(0, file, index);
    rc = zt_ckpt_folder_begin(&p, NULL);
    if (!rc)
        rc = zt_ckpt_shard_open(work, 0, &tables, &part, 1, &w, NULL);
    for (int i = 0; !rc && i < ELEMS; i++)
        rc = zt_ckpt_shard_put(w, &version, sizeof(version), NULL);
    if (!rc)
        rc = zt_ckpt_shard_finish(w, &made, NULL);
    zt_ckpt_shard_close(w);
    if (!rc)
        rc = write_manifest(work, file, index, &made);
    if (!rc)
        rc = zt_ckpt_folder_publish(&p, NULL);
    if (rc)
        zt_ckpt_folder_abandon(&p);
    return rc;
}

/* The version that a load finds; 0: none. Anything else than a whole one is torn. */
static inline float load(const char *root)
{
    struct zt_fault fault = {0};
    struct zt_ckpt *c = NULL;
    float v[ELEMS];
    char path[PATH_MAX + 16];
    zt_err rc;

    snprintf(path, sizeof(path), "%s/checkpoint-4", root);
    if (access(path, F_OK))
        return 0;
    rc = zt_ckpt_open(path, NULL, &c, &fault);
    if (!rc)
        rc = zt_ckpt_read(c, 0, 0, 0, ELEMS, v, &fault);
    if (rc)
        fail_msg("torn: %s", fault.text);
    for (int i = 1; i < ELEMS; i++)
        assert_true(v[i] == v[0]);
    zt_ckpt_close(c);
    return v[0];
}

static inline const char *fresh_root(const char *name)
{
    static char root[PATH_MAX];

    snprintf(root, sizeof(root), "%s", in_scratch(name));
    mkdir(root, 0777);
    return root;
}

#endif
