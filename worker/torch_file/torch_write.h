/*
 * torch_write.h -- a file that torch.load opens, weights_only=True as well: the zip form.
 *
 * First the values are described, tensors by type and shape; then the data of the tensors
 * follow in that order, in pieces of any size:
 *
 *      struct zt_torch_values v;                     what the file will hold
 *      zt_torch_values_init(&v);
 *      zt_torch_put_mark(&v, ZT_TORCH_DICT);
 *      zt_torch_put_text(&v, "w");
 *      zt_torch_put_tensor(&v, &decl);
 *      zt_torch_put_end(&v, ZT_TORCH_DICT);
 *      zt_torch_writer_open(path, &v, &w, fault);    then put, commit, close
 *
 * The file appears under `path` at commit, as with safetensors; memory held does not
 * depend on the size of the data.
 * Threads: one.
 */
#ifndef WORKER_TORCH_FILE_TORCH_WRITE_H
#define WORKER_TORCH_FILE_TORCH_WRITE_H

#include "common/buf.h"
#include "worker/checkpoint/safetensors.h"

typedef enum zt_torch_container {
    ZT_TORCH_DICT, /* between mark and end: key, value, key, value ... */
    ZT_TORCH_LIST,
    ZT_TORCH_TUPLE,
} zt_torch_container;

struct zt_torch_values {
    struct zt_buf pickle;
    int64_t *bytes; /* of each tensor */
    size_t num, cap;
    zt_err error; /* the first; the calls that put values do not report */
};

void zt_torch_values_init(struct zt_torch_values *v);
void zt_torch_values_release(struct zt_torch_values *v);

void zt_torch_put_mark(struct zt_torch_values *v, zt_torch_container what);
void zt_torch_put_end(struct zt_torch_values *v, zt_torch_container what);
void zt_torch_put_text(struct zt_torch_values *v, const char *text);
void zt_torch_put_int(struct zt_torch_values *v, int64_t value);
void zt_torch_put_real(struct zt_torch_values *v, double value);
void zt_torch_put_bool(struct zt_torch_values *v, bool value);
void zt_torch_put_none(struct zt_torch_values *v);
/* Its name is not used. */
void zt_torch_put_tensor(struct zt_torch_values *v, const struct zt_safetensors_decl *d);
/* Tensor number `index` of those that were put, once more: tied weights. */
void zt_torch_put_tensor_again(struct zt_torch_values *v,
                               const struct zt_safetensors_decl *d, size_t index);
/* A whole state dictionary. */
void zt_torch_put_tensors(struct zt_torch_values *v, const struct zt_safetensors_decl *d,
                          int num);

struct zt_torch_writer;

/* Ends the description; `v` is good for release only. ZT_E_CANTCREATE, or what went wrong when
 * the values were put. */
zt_err zt_torch_writer_open(const char *path, struct zt_torch_values *v,
                            struct zt_torch_writer **out,
                            struct zt_fault *fault) ZT_MUST_CHECK;
zt_err zt_torch_writer_put(struct zt_torch_writer *w, const void *data, size_t bytes,
                           struct zt_fault *fault) ZT_MUST_CHECK;
zt_err zt_torch_writer_commit(struct zt_torch_writer *w,
                              struct zt_fault *fault) ZT_MUST_CHECK;
void zt_torch_writer_close(struct zt_torch_writer *w); /* NULL is fine */

#endif
