/*
 * export.h -- the values of a source, written for other programs: safetensors or the
 * pickled form, one file or shards with their index.
 *
 * Values go through a buffer of a few MiB, whatever their size.
 */
#ifndef WORKER_TOOLS_EXPORT_H
#define WORKER_TOOLS_EXPORT_H

#include "worker/tools/source.h"

#define ZT_EXPORT_PIECE (1 << 20) /* elements that go through the buffer at once */

struct zt_tensor_export {
    const char *to;      /* a file by its ending (output_name.h), else a folder */
    zt_dtype dtype;      /* of floats: ZT_F32, ZT_BF16 or ZT_F16 */
    int64_t shard_bytes; /* of files in a folder */
    bool safe;           /* a folder of safetensors, not of pickles */
    bool leave_frozen;   /* without frozen parameters */
    /* values that are made instead of read: of several sources, say; NULL: read */
    zt_err (*value)(void *arg, int i, int64_t first, int64_t n, float *out,
                    struct zt_fault *fault);
    void *arg;
};

/* What was written. */
struct zt_exported {
    int tensors, aliases;                 /* these are among those */
    const struct zt_source_tensor *alias; /* the first one, the source's; NULL: none */
};

/* A folder is made if it is not there; the config.json and the tokenizer of the source go
 * there, too. A failure leaves a folder that was empty, or was not there, as it was.
 * ZT_E_CANTCREATE. */
zt_err zt_export(struct zt_checkpoint_source *s, const struct zt_tensor_export *how,
                 struct zt_exported *made, struct zt_fault *fault) ZT_MUST_CHECK;
/* Adapters beside the config.json of their model look like that model, which other programs
 * would fill up with random numbers: ZT_E_USAGE, with where the adapters are. */
zt_err zt_export_check_is_model(const struct zt_checkpoint_source *s, const char *to,
                                struct zt_fault *fault) ZT_MUST_CHECK;
/* The line about it, to stdout. */
void zt_export_print(const struct zt_tensor_export *how, const struct zt_exported *made,
                     const char *dtype);

/* Elements of tensor i as `dtype`, in pieces, each handed to `put`. */
zt_err zt_export_stream(struct zt_checkpoint_source *s,
                        const struct zt_tensor_export *how, int i,
                        zt_err (*put)(void *to, const void *data, size_t bytes,
                                      struct zt_fault *fault),
                        void *to, struct zt_fault *fault) ZT_MUST_CHECK;

/* "5GB", "500MB", "2GiB", "1000": bytes. False: no such size. */
bool zt_parse_size(const char *text, int64_t *out);

#endif
