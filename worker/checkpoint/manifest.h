/*
 * manifest.h -- what a checkpoint says of itself: kinds of state, parameters, shards, and
 * where each part of a tensor is. docs/CHECKPOINTS.md is the format.
 *
 * Everything a manifest and its indexes say is checked when they are parsed: names, sizes
 * and places. Reading tensors is reader.h, writing them shard.h.
 * Ownership: strings belong to the manifest.
 * Threads:   a parsed manifest may be read by several.
 */
#ifndef WORKER_CHECKPOINT_MANIFEST_H
#define WORKER_CHECKPOINT_MANIFEST_H

#include <jansson.h>

#include "common/fault.h"

#define ZT_CKPT_FORMAT      "zlaunch checkpoint"
#define ZT_CKPT_SHARD       "zlaunch checkpoint shard"
#define ZT_CKPT_VERSION     1
#define ZT_CKPT_MAX_KINDS   30
#define ZT_CKPT_PIECE_BYTES (4 << 20)
#define ZT_CKPT_MAX_PIECE   (64 << 20)

struct zt_ckpt_kind {
    const char *name; /* "weights", "master", "exp_avg", ... */
    zt_dtype dtype;
};

struct zt_ckpt_param {
    const char *name;
    int ndim;
    int64_t shape[ZT_MAX_NDIM];
    int64_t numel;
    bool frozen;
    uint32_t kinds; /* bit k: it has state of kind k */
};

/* Another name of a parameter, as of tied weights in the files of other programs. */
struct zt_ckpt_alias {
    const char *name;
    int of; /* parameter */
};

/* Elements of one kind of one parameter in one shard. */
struct zt_ckpt_part {
    int kind, param;
    int64_t first, elems;
    int64_t at; /* bytes into the file */
    int shard;
    const char *hashes; /* one a piece, a blank between */
};

struct zt_ckpt_shard {
    const char *file, *index;
    int64_t bytes;
    uint64_t index_hash;
    /* of its index */
    int64_t header_bytes, piece_bytes;
    uint64_t header_hash;
    json_t *root; /* NULL: the index is not read */
};

struct zt_ckpt_manifest {
    json_t *root; /* for everything else */
    const char *tag;
    int num_kinds, num_params, num_aliases, num_shards;
    struct zt_ckpt_kind kinds[ZT_CKPT_MAX_KINDS];
    struct zt_ckpt_param *params;
    struct zt_ckpt_alias *aliases;
    struct zt_ckpt_shard *shards;
    struct zt_ckpt_part *parts; /* sorted by kind, param, first; see zt_ckpt_sort_parts */
    int64_t num_parts;
};

/* Takes `root`, also when it fails. ZT_E_FORMAT: names what is wrong. Shards are known,
 * parts are not. */
zt_err zt_ckpt_manifest_parse(const char *name, json_t *root,
                              struct zt_ckpt_manifest *out,
                              struct zt_fault *fault) ZT_MUST_CHECK;
/* The parts of one shard; takes `root`. */
zt_err zt_ckpt_index_parse(const char *name, struct zt_ckpt_manifest *m, int shard,
                           json_t *root, struct zt_fault *fault) ZT_MUST_CHECK;
/* After the last index: ZT_E_FORMAT when two parts overlap. */
zt_err zt_ckpt_sort_parts(const char *name, struct zt_ckpt_manifest *m,
                          struct zt_fault *fault) ZT_MUST_CHECK;
/* Parts cover every kind of every parameter: ZT_E_FORMAT names the first that is not. */
zt_err zt_ckpt_check_complete(const char *name, const struct zt_ckpt_manifest *m,
                              struct zt_fault *fault) ZT_MUST_CHECK;
void zt_ckpt_manifest_release(struct zt_ckpt_manifest *m); /* a zeroed one is fine */

/* By name; -1: there is none. */
int zt_ckpt_find_kind(const struct zt_ckpt_manifest *m, const char *name);
int zt_ckpt_find_param(const struct zt_ckpt_manifest *m, const char *name);
/* The member "aliases" of a manifest gets one more: `name` for the parameter `of`. */
void zt_ckpt_add_alias(json_t *root, const char *name, const char *of);
/* The part that holds this element; NULL: none does. */
const struct zt_ckpt_part *zt_ckpt_find_part(const struct zt_ckpt_manifest *m, int kind,
                                             int param, int64_t element);

/* A name of a file or tag that stays in its folder: no slash, no dot in front. */
bool zt_ckpt_is_plain_name(const char *name);

#endif
