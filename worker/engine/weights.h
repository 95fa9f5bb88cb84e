/* weights.h -- where pretrained weights keep their config.json. */
#ifndef WORKER_ENGINE_WEIGHTS_H
#define WORKER_ENGINE_WEIGHTS_H

#include "common/fault.h"

/*
 * `from` is a folder or a .safetensors file; out: the config.json beside the weights, ""
 * when there is none. ZT_E_NOINPUT, ZT_E_FORMAT: there are no weights to read.
 */
zt_err zt_weights_config_path(const char *from, char *out, size_t cap,
                              struct zt_fault *fault) ZT_MUST_CHECK;

#endif
