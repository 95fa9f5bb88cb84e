/*
 * safetensors.h -- one .safetensors file: named tensors, read through a mapping or
 * written as a stream.
 *
 *      u64 N | N bytes of JSON | data of all tensors, back to back, to the end of file
 *
 * Reading believes nothing: every rule of the format is checked when a file is opened,
 * and each refusal names the file, the tensor and the rule.
 * Ownership: what zt_safetensors_at() and zt_safetensors_find() return belongs to the open file.
 * Threads:   an open file may be read by several; a writer belongs to one.
 */
#ifndef WORKER_CHECKPOINT_SAFETENSORS_H
#define WORKER_CHECKPOINT_SAFETENSORS_H

#include "common/fault.h"

/* ---- reading ---- */

struct zt_safetensors_tensor {
    const char *name;
    const char *type; /* as in the file: "F32", "BF16", "F8_E4M3" ... */
    bool loadable;    /* `dtype` stands for `type`; false: listed only */
    zt_dtype dtype;   /* meaningful when loadable */
    int ndim;         /* 0: a scalar */
    const int64_t *shape;
    const int64_t *stride; /* in elements; NULL: row-major without gaps, always so in
                            * safetensors */
    int64_t elems;
    size_t bytes;
    const uint8_t *data; /* in the mapping, may be unaligned: copy, do not cast */
    const char *path;    /* the file it is in */
};

struct zt_safetensors_file;

/* ZT_E_NOINPUT: missing or unreadable; ZT_E_FORMAT: breaks a rule of the format. */
zt_err zt_safetensors_open(const char *path, struct zt_safetensors_file **out,
                           struct zt_fault *fault) ZT_MUST_CHECK;
void zt_safetensors_close(struct zt_safetensors_file *f); /* NULL is fine */

/* Let go of the memory that reading has taken (common/mapped_file.h). */
void zt_safetensors_forget(const struct zt_safetensors_file *f);

/* Tensors in the order of their data. NULL when there is none of that name. */
int zt_safetensors_count(const struct zt_safetensors_file *f);
const struct zt_safetensors_tensor *zt_safetensors_at(const struct zt_safetensors_file *f,
                                                      int i);
const struct zt_safetensors_tensor *zt_safetensors_find(
    const struct zt_safetensors_file *f, const char *name);

/* A value of __metadata__; NULL when it is not there. */
const char *zt_safetensors_metadata(const struct zt_safetensors_file *f, const char *key);

/*
 * Elements [first, first + n), counted row-major, as floats; exact, for F32, BF16 and F16 tensors.
 * ZT_E_UNSUPPORTED for another type, ZT_E_ARG outside the tensor.
 */
zt_err zt_safetensors_read_f32(const struct zt_safetensors_tensor *t, int64_t first,
                               int64_t n, float *out,
                               struct zt_fault *fault) ZT_MUST_CHECK;

/* Fill type, loadable and dtype of a tensor; false: no such type. */
bool zt_safetensors_set_type(struct zt_safetensors_tensor *t, const char *type);

/* ---- writing ---- */

struct zt_safetensors_decl {
    const char *name;
    zt_dtype dtype;
    int ndim;
    const int64_t *shape;
};

/* Bytes of the tensor's data. ZT_E_ARG: a bad dtype, axis, or a size past int64. */
zt_err zt_safetensors_decl_bytes(const struct zt_safetensors_decl *d, int64_t *out,
                                 struct zt_fault *fault) ZT_MUST_CHECK;

struct zt_safetensors_writer;

/*
 * Declare all tensors, then append their data in that order, in pieces of any size. The
 * file appears under `path` only at commit, whole and synced: until then it is a hidden
 * neighbour, which close removes. Memory held does not depend on the size of the data.
 * ZT_E_CANTCREATE: the place cannot be written, or the disk is full (space for the whole
 * file is reserved at open where the file system can); ZT_E_ARG: a bad declaration, or
 * more or fewer bytes than declared.
 */
zt_err zt_safetensors_writer_open(const char *path,
                                  const struct zt_safetensors_decl *decls, int num_decls,
                                  struct zt_safetensors_writer **out,
                                  struct zt_fault *fault) ZT_MUST_CHECK;
zt_err zt_safetensors_writer_put(struct zt_safetensors_writer *w, const void *data,
                                 size_t bytes, struct zt_fault *fault) ZT_MUST_CHECK;
/* The same of bytes that stay as they are until sync, commit or close. In a large file the data of the first tensor
 * begin at a multiple of a page: what begins there in memory, too, and goes on without gaps, is written from where it is. */
zt_err zt_safetensors_writer_lend(struct zt_safetensors_writer *w, const void *data,
                                  size_t bytes, struct zt_fault *fault) ZT_MUST_CHECK;
/* What stands in front of the data of the first tensor; until close. */
const void *zt_safetensors_writer_header(const struct zt_safetensors_writer *w,
                                         size_t *bytes);
/* Optional, after all data: bring them to the disk, the slow half of a commit. */
zt_err zt_safetensors_writer_sync(struct zt_safetensors_writer *w,
                                  struct zt_fault *fault) ZT_MUST_CHECK;
zt_err zt_safetensors_writer_commit(struct zt_safetensors_writer *w,
                                    struct zt_fault *fault) ZT_MUST_CHECK;
/* Free the writer; without a successful commit nothing is left on disk. NULL is fine. */
void zt_safetensors_writer_close(struct zt_safetensors_writer *w);

#endif
