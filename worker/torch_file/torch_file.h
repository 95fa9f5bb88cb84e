/*
 * torch_file.h -- a file that torch.save has written: its values, and the data of its
 * tensors where they lie in the mapped file.
 *
 * Both forms are read: the zip archive (since PyTorch 1.6), and the stream of pickles
 * before it. pickle.h says what is made of the values; nothing is executed.
 * Ownership: values and tensors belong to the open file.
 * Threads:   an open file may be read by several.
 */
#ifndef WORKER_TORCH_FILE_TORCH_FILE_H
#define WORKER_TORCH_FILE_TORCH_FILE_H

#include "worker/torch_file/pickle.h"

struct zt_torch_file;

/* ZT_E_NOINPUT: missing or unreadable; ZT_E_FORMAT: malformed or truncated;
 * ZT_E_UNSUPPORTED: not of torch.save, or in a form that is not read; ZT_E_LIMIT: its
 * pickle is too large. Every tensor in it is inside the file afterwards. */
zt_err zt_torch_file_open(const char *path, struct zt_torch_file **out,
                          struct zt_fault *fault) ZT_MUST_CHECK;
void zt_torch_file_close(struct zt_torch_file *f); /* NULL is fine */

/* Let go of the memory that reading has taken (common/mapped_file.h). */
void zt_torch_file_forget(const struct zt_torch_file *f);

const struct zt_pickled *zt_torch_file_root(const struct zt_torch_file *f);

/*
 * The tensors of a state dictionary: what the file holds, or what is under `key` there
 * (NULL: the whole). Names are those of the entries. ZT_E_FORMAT when that is no
 * dictionary, or an entry is no tensor. *out is malloc'ed, its tensors belong to the file.
 */
zt_err zt_torch_file_tensors(struct zt_torch_file *f, const char *key,
                             struct zt_safetensors_tensor **out, int *num,
                             struct zt_fault *fault) ZT_MUST_CHECK;

#endif
