/*
 * hf_folder.h -- the weights of a Hugging Face model folder, in one file or in shards.
 *
 *      DIR/model.safetensors                    one file, or
 *      DIR/model.safetensors.index.json         which shard holds which tensor, and
 *      DIR/model-00001-of-00003.safetensors     the shards
 *      DIR/pytorch_model.bin                    the same by torch.save, where there are
 *      DIR/pytorch_model.bin.index.json         no safetensors
 *      DIR/config.json
 *
 * Ownership: tensors returned belong to the open folder.
 * Threads:   an open folder may be read by several; a writer belongs to one.
 */
#ifndef WORKER_CHECKPOINT_HF_FOLDER_H
#define WORKER_CHECKPOINT_HF_FOLDER_H

#include "worker/checkpoint/safetensors.h"

#define ZT_HF_SHARD_BYTES (INT64_C(5) * 1000 * 1000 * 1000) /* the usual limit */

struct zt_hf_folder;

/*
 * `path`: a folder, a .safetensors or .bin file or an index.json. Every tensor the index lists is
 * found in its shard here. ZT_E_NOINPUT: nothing to read, or a shard is missing;
 * ZT_E_FORMAT: a malformed file; ZT_E_UNSUPPORTED: a .bin file that torch.save has not
 * written.
 */
zt_err zt_hf_folder_open(const char *path, struct zt_hf_folder **out,
                         struct zt_fault *fault) ZT_MUST_CHECK;
void zt_hf_folder_close(struct zt_hf_folder *hf); /* NULL is fine */

/* Whether there is anything at `path`, in the words of zt_hf_folder_open(). ZT_E_NOINPUT. */
zt_err zt_hf_folder_check(const char *path, struct zt_fault *fault) ZT_MUST_CHECK;

/* `path`, given for a model, holds adapters alone: where they are to be given. ZT_E_NOINPUT. */
zt_err zt_hf_refuse_adapters(const char *path, struct zt_fault *fault) ZT_MUST_CHECK;

/* Let go of the memory that reading has taken (common/mapped_file.h). */
void zt_hf_folder_forget(const struct zt_hf_folder *hf);

/* Tensors of all shards; zt_hf_folder_find: NULL when there is none of that name. */
int zt_hf_folder_count(const struct zt_hf_folder *hf);
const struct zt_safetensors_tensor *zt_hf_folder_at(const struct zt_hf_folder *hf, int i);
const struct zt_safetensors_tensor *zt_hf_folder_find(const struct zt_hf_folder *hf,
                                                      const char *name);
/* The same, also by the names that classes of transformers, which have a leading word more or less
 * ("transformer.", "model."), and files from TensorFlow give it. */
const struct zt_safetensors_tensor *zt_hf_folder_find_alike(const struct zt_hf_folder *hf,
                                                            const char *name);

/* A tensor of a head that tells classes, by the names that transformers gives them. */
bool zt_hf_is_of_head(const char *name);

/* The folder, for its other files (config.json): never NULL, no slash at the end. */
const char *zt_hf_folder_dir(const struct zt_hf_folder *hf);

/*
 * Write weights into a folder, which is created with its parents when missing: one
 * model.safetensors, or shards of at most `shard_bytes` (a larger tensor has its own)
 * and their index. The order of calls: open, put all data in the order of the
 * declarations, commit, close. Weights of an earlier save in the folder, of either form,
 * are replaced at commit. Each file is replaced atomically; a kill between the
 * replacements of a sharded save can leave the folder mixed, so a caller that needs all or
 * nothing writes to a new folder and renames it. Errors as zt_safetensors_writer_open().
 */
struct zt_hf_writer;
zt_err zt_hf_writer_open(const char *dir, const struct zt_safetensors_decl *decls,
                         int num_decls, int64_t shard_bytes, struct zt_hf_writer **out,
                         struct zt_fault *fault) ZT_MUST_CHECK;
zt_err zt_hf_writer_put(struct zt_hf_writer *w, const void *data, size_t bytes,
                        struct zt_fault *fault) ZT_MUST_CHECK;
zt_err zt_hf_writer_commit(struct zt_hf_writer *w, struct zt_fault *fault) ZT_MUST_CHECK;
/* Without a successful commit nothing new is left in the folder. NULL is fine. */
void zt_hf_writer_close(struct zt_hf_writer *w);

/* A file of that name goes when weights come into its folder. */
bool zt_hf_is_replaced(const char *name);

/* Remove the weights that a folder has, safetensors and files of torch.save, one file or
 * shards and their index, and adapters, but those of which `stays` is true: the ones that were written
 * in their place, which are whole by now. ZT_E_CANTCREATE. */
zt_err zt_hf_remove_older(const char *dir,
                          bool (*stays)(const void *arg, const char *name),
                          const void *arg, struct zt_fault *fault) ZT_MUST_CHECK;

/* Replace dir/name by this text (config.json): in one instant, synced. ZT_E_CANTCREATE.
 */
zt_err zt_hf_write_text(const char *dir, const char *name, const char *text,
                        struct zt_fault *fault) ZT_MUST_CHECK;

#endif
