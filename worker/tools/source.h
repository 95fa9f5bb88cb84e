/*
 * source.h -- a checkpoint of any form that is known, as tensors and kinds of their state.
 *
 * One file for each form fills the tables and a read function; what is done with tensors
 * (tools, the public header) sees this only. Memory held does not depend on the size of
 * the data.
 * Ownership: tables belong to the source. Threads: one.
 */
#ifndef WORKER_TOOLS_SOURCE_H
#define WORKER_TOOLS_SOURCE_H

#include <zlaunch/checkpoint.h>

#include "worker/checkpoint/reader.h"
#include "worker/checkpoint/safetensors.h"
#include "worker/deepspeed/deepspeed.h"

#define ZT_SOURCE_MAX_KINDS 32

struct zt_source_tensor {
    struct zt_checkpoint_tensor t;
    zt_dtype dtype;     /* of its value as stored */
    const uint8_t *raw; /* integers: their bytes; NULL: read it as floats */
    const struct zt_safetensors_tensor
        *stored; /* of a file of weights, or a buffer; else NULL */
    bool buffer;
    uint32_t kinds; /* bit k: it has kind k */
    int group;      /* parameter group, where that is known */
    int number;     /* in the form's own table */
};

struct zt_checkpoint_source {
    const char *form; /* "zlaunch checkpoint" */
    char *path;       /* as it was asked for */
    struct zt_source_tensor *tensors;
    int num;
    const char *kinds[ZT_SOURCE_MAX_KINDS]; /* 0 is "value" */
    int num_kinds;
    int64_t unforgotten; /* bytes read since mappings were last let go */
    /* one of these is not NULL */
    struct zt_ckpt *ours;
    struct zt_ds *deepspeed;
    struct zt_hf_folder *folder;
    bool adapters;    /* the folder has adapters and no model */
    const char *lost; /* a tensor of which numbers became infinite in what is written */
};

/* ZT_E_NOINPUT: nothing that is known is there. */
zt_err zt_source_open(const char *path, const char *tag,
                      struct zt_checkpoint_source **out,
                      struct zt_fault *fault) ZT_MUST_CHECK;
void zt_source_close(struct zt_checkpoint_source *s); /* NULL is fine */

/* Frozen, and in the model that the training began from: in a checkpoint of adapters. */
bool zt_source_is_elsewhere(const struct zt_checkpoint_source *s, int i);
/* ZT_E_USAGE: the folder `to` is, or holds, what is read, and would be replaced. */
zt_err zt_source_check_kept(const struct zt_checkpoint_source *s, const char *to,
                            struct zt_fault *fault) ZT_MUST_CHECK;
/* Of fractions in a type that is not read: "F64", "F8_E4M3"; NULL: it is none. */
const char *zt_source_unread_type(const struct zt_checkpoint_source *s, int i);
/* A folder or a checkpoint that has adapters and not the model that they are for. */
bool zt_source_is_adapters(const struct zt_checkpoint_source *s);
int zt_source_find(const struct zt_checkpoint_source *s, const char *name); /* -1: none */
/* Whether two are one tensor by two names. Files of torch.save keep no names of aliases, but
 * the same data behind both. */
bool zt_source_is_tied(const struct zt_checkpoint_source *s, int i, int k);
int zt_source_find_kind(const struct zt_checkpoint_source *s, const char *name);

/* Elements [first, first + n) of kind `kind` of tensor i. An alias reads its original. */
zt_err zt_source_read(struct zt_checkpoint_source *s, int kind, int i, int64_t first,
                      int64_t n, float *out, struct zt_fault *fault) ZT_MUST_CHECK;

/* Elements of tensor i are to be written in a type in which those from `limit` on are infinite. */
#define ZT_F16_LIMIT  65520.0f
#define ZT_BF16_LIMIT 3.39617752923046e38f
void zt_source_note_lost(struct zt_checkpoint_source *s, int i, const float *values,
                         int64_t n, float limit);
/* On stderr, if there are some; `type`: "f16". */
void zt_source_tell_lost(const struct zt_checkpoint_source *s, const char *to,
                         const char *type);

/* Buffers of floats, and with `frozen` parameters that were not trained, which a checkpoint to
 * resume from has none of: they are left out, which is told. */
void zt_source_tell_left_out(const struct zt_checkpoint_source *s, bool frozen,
                             const char *to);

/* A file that stands beside the weights, or one folder above: "config.json". *out: NULL
 * where there is none, else malloc'ed. ZT_E_NOMEM. */
zt_err zt_source_neighbour(const struct zt_checkpoint_source *s, const char *name,
                           char **out, struct zt_fault *fault) ZT_MUST_CHECK;

/* What is to be written, a file or the model of a folder, replaces nothing that belongs to
 * the source: what is read, or what a checkpoint of ours counts among its files.
 * ZT_E_USAGE. */
zt_err zt_source_check_apart(const struct zt_checkpoint_source *s, const char *to,
                             struct zt_fault *fault) ZT_MUST_CHECK;

#endif
