/* weights.h -- the folders that weights come from and go to. */
#ifndef WORKER_ENGINE_WEIGHTS_H
#define WORKER_ENGINE_WEIGHTS_H

#include "common/fault.h"

/*
 * `from` is a folder or a .safetensors file; out: the config.json beside the weights, ""
 * when there is none. ZT_E_NOINPUT, ZT_E_FORMAT: there are no weights to read.
 */
zt_err zt_weights_config_path(const char *from, char *out, size_t cap,
                              struct zt_fault *fault) ZT_MUST_CHECK;

/* Does the folder `hf` have the tensor of a parameter, by whichever of its names? */
struct zt_hf_folder;
struct zt_model;
struct zt_param;
bool zt_weights_has(const struct zt_model *m, const struct zt_hf_folder *hf,
                    const struct zt_param *p);

/* What weights are saved as. */
struct zt_run;
zt_dtype zt_weights_dtype(const struct zt_run *run);

/* Host memory that each rank takes while the weights of a run are saved at its end: a piece of a
 * parameter as fp32, and in the type it is saved as. */
size_t zt_weights_export_bytes(const struct zt_run *run, const struct zt_model *model);

/* The tokenizer that a run trains with, or that of the model that it began with, into `dir`;
 * `end`: zt_engine_learnt_end(). Any thread. ZT_E_CANTCREATE. */
zt_err zt_weights_copy_tokenizer(const struct zt_run *run, int64_t end, const char *dir,
                                 struct zt_fault *fault) ZT_MUST_CHECK;

struct zt_engine;
/* `dir` is no checkpoint that would lose its config.json to weights of this model, or keep them from
 * being read (worker/checkpoint/folder.h). ZT_E_CANTCREATE. */
zt_err zt_weights_check_checkpoint(const struct zt_engine *e, const char *dir,
                                   struct zt_fault *fault) ZT_MUST_CHECK;

/* Collective. Weights, config.json and the tokenizer into `dir`, by rank 0; all ranks send
 * what they hold. *failed: this rank could not write. */
zt_err zt_weights_export(struct zt_engine *e, const char *dir, zt_err *failed,
                         struct zt_fault *fault) ZT_MUST_CHECK;

#endif
