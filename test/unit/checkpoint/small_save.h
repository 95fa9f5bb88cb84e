/*
 * small_save.h -- a save that is small enough to be ended at every moment of it, or just
 * large enough that threads write it behind and read it ahead, past the page cache, and what
 * a load finds after that. cmocka and files.h are included.
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

#define NUM_PUTS 700
#define LARGE    ((33 << 20) / 4 + 1001) /* with a rest that is no whole page */

static int num_elems = NUM_PUTS;
static bool shared_reads; /* through the page cache: what was just written is there */

static inline bool is_large(void)
{
    return num_elems == LARGE;
}

/* Before a test; ZT_SIZE: "small" or "large", those alone. */
static inline int make_small(void **state)
{
    (void)state;
    num_elems = NUM_PUTS;
    return 0;
}

static inline int make_large(void **state)
{
    (void)state;
    num_elems = LARGE;
    return 0;
}

static inline void skip_unless_wanted(void)
{
    const char *size = getenv("ZT_SIZE");

    if (size && (strcmp(size, "large") == 0) != is_large())
        skip();
}

/* ---- a save: values are those of `version`; one half is lent, one put ---- */

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
                     "shape", num_elems, "kinds", 0, "shards", "file", file, "bytes",
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
    static const struct zt_ckpt_kind kinds[] = {{"weights", ZT_F32}};
    static float all[LARGE] __attribute__((aligned(4096)));
    const struct zt_ckpt_param param = {
        .name = "a", .ndim = 1, .shape = {num_elems}, .numel = num_elems, .kinds = 1};
    const struct zt_ckpt_tables tables = {kinds, 1, &param, 1};
    const struct zt_ckpt_part part = {0, 0, 0, num_elems, 0, 0, NULL};
    const int at_once = num_elems / NUM_PUTS;
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
    for (int i = 0; i < num_elems; i++)
        all[i] = version;
    for (int at = 0, n; !rc && at < num_elems; at += n) {
        n = num_elems - at < at_once ? num_elems - at : at_once;
        rc = at < num_elems / 2
                 ? zt_ckpt_shard_lend(w, all + at, (size_t)n * sizeof(*all), NULL)
                 : zt_ckpt_shard_put(w, all + at, (size_t)n * sizeof(*all), NULL);
    }
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

/* What training does: the reads are planned, then made. */
static inline zt_err read_all(struct zt_ckpt *c, float *v, struct zt_fault *fault)
{
    zt_err rc = zt_ckpt_plan_reads(c, shared_reads, fault);

    if (!rc)
        rc = zt_ckpt_read(c, 0, 0, 0, num_elems, v, fault);
    if (!rc)
        rc = zt_ckpt_begin_reads(c, fault);
    return rc ? rc : zt_ckpt_read(c, 0, 0, 0, num_elems, v, fault);
}

/* The version that a load finds; 0: none. */
static inline zt_err try_load(const char *root, float *version, struct zt_fault *fault)
{
    float *v = malloc((size_t)num_elems * sizeof(*v));
    struct zt_ckpt *c = NULL;
    char path[PATH_MAX + 16];
    zt_err rc = ZT_OK;

    *version = 0;
    assert_non_null(v);
    snprintf(path, sizeof(path), "%s/checkpoint-4", root);
    if (access(path, F_OK) == 0) {
        rc = zt_ckpt_open(path, NULL, &c, fault);
        if (!rc)
            rc = read_all(c, v, fault);
        if (!rc) /* each is the one behind it */
            assert_int_equal(memcmp(v, v + 1, (size_t)(num_elems - 1) * sizeof(*v)), 0);
        *version = rc ? 0 : v[0];
    }
    zt_ckpt_close(c);
    free(v);
    return rc;
}

/* Anything else than none or a whole one is torn. */
static inline float load(const char *root)
{
    struct zt_fault fault = {0};
    float version;

    if (try_load(root, &version, &fault))
        fail_msg("torn: %s", fault.text);
    return version;
}

static inline uint64_t number_of(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);

    return text ? strtoull(text, NULL, 10) : otherwise;
}

static inline const char *fresh_root(const char *name)
{
    static char root[PATH_MAX];

    snprintf(root, sizeof(root), "%s%s", in_scratch(name), is_large() ? "-large" : "");
    mkdir(root, 0777);
    return root;
}

#endif
