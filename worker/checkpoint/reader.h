/*
 * reader.h -- a checkpoint that is on disk: what it holds, and any range of any tensor,
 * verified.
 *
 * Knows files only, no ranks and no engine: tools use it as well as training.
 * Ownership: what it returns belongs to the open checkpoint.
 * Threads:   one.
 * Failure:   ZT_E_NOINPUT: there is none; ZT_E_FORMAT: it is damaged or incomplete, by the
 *            name of file and tensor; ZT_E_UNSUPPORTED: of a newer version.
 */
#ifndef WORKER_CHECKPOINT_READER_H
#define WORKER_CHECKPOINT_READER_H

#include "worker/checkpoint/manifest.h"

struct zt_ckpt;

/*
 * `path`: the folder with `latest`, or the one with manifest.json. `tag`: a folder in it,
 * NULL: the one that `latest` names. Every shard has its full length and every tensor all
 * of its parts; the data are not read yet.
 */
zt_err zt_ckpt_open(const char *path, const char *tag, struct zt_ckpt **out,
                    struct zt_fault *fault) ZT_MUST_CHECK;
/* The same when shards may be missing, as those of other nodes in a node's own folder:
 * only reading from a missing one is an error. */
zt_err zt_ckpt_open_partial(const char *path, const char *tag, struct zt_ckpt **out,
                            struct zt_fault *fault) ZT_MUST_CHECK;
void zt_ckpt_close(struct zt_ckpt *c); /* NULL is fine */

const struct zt_ckpt_manifest *zt_ckpt_manifest(const struct zt_ckpt *c);
/* The folder that has manifest.json. */
const char *zt_ckpt_dir(const struct zt_ckpt *c);

/* Whether `path` looks like a checkpoint: has manifest.json, or `latest` that names a
 * folder with one. Nothing is verified. */
bool zt_ckpt_is_here(const char *path);
/* Whether weights that lie in `path`, which is a checkpoint, count for less than its own: they do in
 * checkpoint-STEP, where they are of the same step, rounded, and in the folder of a tag. In any other
 * a run has left them that has ended after its plugin saved there. */
bool zt_ckpt_outranks_weights(const char *path);
/* Whether the weights of `path` are those of its checkpoint. */
bool zt_ckpt_gives_weights(const char *path);
/* What the file `latest` of a folder names; false: there is no such file, or nonsense. */
#define ZT_CKPT_TAG 256
bool zt_ckpt_latest(const char *path, char tag[ZT_CKPT_TAG]) ZT_MUST_CHECK;
/* A folder in it that has a checkpoint, whatever `latest` says. */
bool zt_ckpt_find_tag(const char *path, char tag[ZT_CKPT_TAG]) ZT_MUST_CHECK;

/*
 * Elements [first, first + n) of a kind of state of a parameter, as they are stored; they
 * are verified. ZT_E_ARG when there is no such state, or no such range.
 */
zt_err zt_ckpt_read(struct zt_ckpt *c, int kind, int param, int64_t first, int64_t n,
                    void *out, struct zt_fault *fault) ZT_MUST_CHECK;
/* The same without a copy: the first *elems (> 0 unless n is 0) of them are at *data until
 * the next call. */
zt_err zt_ckpt_view(struct zt_ckpt *c, int kind, int param, int64_t first, int64_t n,
                    const void **data, int64_t *elems,
                    struct zt_fault *fault) ZT_MUST_CHECK;
/* The same as fp32; exact. ZT_E_UNSUPPORTED for integers. */
zt_err zt_ckpt_read_f32(struct zt_ckpt *c, int kind, int param, int64_t first, int64_t n,
                        float *out, struct zt_fault *fault) ZT_MUST_CHECK;
/*
 * Reads that are known beforehand are made ahead, in the background: after plan_reads the
 * calls above only note what they would read, and write nothing; after begin_reads the same
 * calls in the same order read it. Others are made as ever. `shared`: other processes of
 * this machine read the same, so what is read stays in the page cache. Once. ZT_E_NOMEM.
 */
zt_err zt_ckpt_plan_reads(struct zt_ckpt *c, bool shared,
                          struct zt_fault *fault) ZT_MUST_CHECK;
zt_err zt_ckpt_begin_reads(struct zt_ckpt *c, struct zt_fault *fault) ZT_MUST_CHECK;
/* Memory that reads of so many bytes ahead take at most, of a checkpoint that zlaunch has
 * saved. */
size_t zt_ckpt_read_ahead_bytes(size_t bytes);

/* The kind that has a parameter's value: its master, else its weights. -1: neither. */
int zt_ckpt_value_kind(const struct zt_ckpt *c, int param);

/* Read and verify every byte of it. */
zt_err zt_ckpt_verify(struct zt_ckpt *c, struct zt_fault *fault) ZT_MUST_CHECK;

#endif
