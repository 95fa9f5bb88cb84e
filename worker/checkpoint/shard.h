/*
 * shard.h -- the writer of one shard of a checkpoint: a safetensors file and its index.
 *
 * Declare all parts, append their data in that order in pieces of any size, finish. The
 * space on the disk is reserved before the first byte. Nothing here decides when the
 * checkpoint counts: that is the folder's rename (folder.h).
 * Ownership: kinds, params and parts stay the caller's, until finish.
 * Threads:   one.
 */
#ifndef WORKER_CHECKPOINT_SHARD_H
#define WORKER_CHECKPOINT_SHARD_H

#include "worker/checkpoint/manifest.h"

struct zt_ckpt_shard_writer;

/* What parts refer to: the tables of the manifest. */
struct zt_ckpt_tables {
    const struct zt_ckpt_kind *kinds;
    int num_kinds;
    const struct zt_ckpt_param *params;
    int num_params;
};

/* What a finished shard is called in the manifest. */
struct zt_ckpt_shard_made {
    int64_t bytes;
    uint64_t index_hash;
};

/* Of a part kind, param, first and elems count. ZT_E_CANTCREATE: no room on the disk, or
 * no such folder. */
zt_err zt_ckpt_shard_open(const char *dir, int rank, const struct zt_ckpt_tables *tables,
                          const struct zt_ckpt_part *parts, int64_t num_parts,
                          struct zt_ckpt_shard_writer **out,
                          struct zt_fault *fault) ZT_MUST_CHECK;
zt_err zt_ckpt_shard_put(struct zt_ckpt_shard_writer *w, const void *data, size_t bytes,
                         struct zt_fault *fault) ZT_MUST_CHECK;
/* The same of bytes that stay as they are until finish or close (safetensors.h). */
zt_err zt_ckpt_shard_lend(struct zt_ckpt_shard_writer *w, const void *data, size_t bytes,
                          struct zt_fault *fault) ZT_MUST_CHECK;
/* Both files are on the disk, synced; the folder is not. */
zt_err zt_ckpt_shard_finish(struct zt_ckpt_shard_writer *w,
                            struct zt_ckpt_shard_made *made,
                            struct zt_fault *fault) ZT_MUST_CHECK;
void zt_ckpt_shard_close(struct zt_ckpt_shard_writer *w); /* NULL is fine */

/* The two names, "zero_rank_00003.safetensors" and ".json". */
#define ZT_CKPT_SHARD_NAME 40
void zt_ckpt_shard_names(int rank, char file[ZT_CKPT_SHARD_NAME],
                         char index[ZT_CKPT_SHARD_NAME]);

#endif
