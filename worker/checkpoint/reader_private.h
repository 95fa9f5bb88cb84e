/* reader_private.h -- an open checkpoint, for the files of the reader. */
#ifndef WORKER_CHECKPOINT_READER_PRIVATE_H
#define WORKER_CHECKPOINT_READER_PRIVATE_H

#include <stdbool.h>

#include "worker/checkpoint/reader.h"

/* The shards that are open, and the last piece that was verified. */
struct zt_ckpt {
    char *dir;
    struct zt_ckpt_manifest manifest;
    int *fds; /* per shard; -1: not open yet */
    const struct zt_ckpt_part *part;
    int64_t piece;       /* of `part` */
    const uint8_t *data; /* its bytes: in `buf`, or where they were read ahead */
    uint8_t *buf;
    size_t buf_bytes;
    struct zt_read_ahead *ahead; /* NULL: pieces are read when they are needed */
    bool is_planning;            /* reads are noted, not made */
};

/* The first tensor that a shard holds, for messages. */
const char *zt_ckpt_first_tensor(const struct zt_ckpt *c, int shard, char *out,
                                 size_t cap);
/* The files of the list `which` of the manifest ("files", "others"), by their hashes.
 * ZT_E_FORMAT. */
zt_err zt_ckpt_check_files(const struct zt_ckpt *c, const char *which,
                           struct zt_fault *fault) ZT_MUST_CHECK;

#endif
