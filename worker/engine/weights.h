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

/*
 * Make the output folder, with its parents, and see that it can be written: before
 * training rather than after. ZT_E_CANTCREATE.
 */
zt_err zt_weights_prepare(const char *dir, struct zt_fault *fault) ZT_MUST_CHECK;

/* See that the disk has room for what will be saved there, and hold it where the file
 * system can, until zt_engine_save() takes it. ZT_E_CANTCREATE. */
struct zt_engine;
zt_err zt_weights_reserve(struct zt_engine *e, struct zt_fault *fault) ZT_MUST_CHECK;

#endif
