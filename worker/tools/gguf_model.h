/*
 * gguf_model.h -- whether what config.json says of a model can be said in a GGUF file, of which
 * llama.cpp takes the rest for granted.
 */
#ifndef WORKER_TOOLS_GGUF_MODEL_H
#define WORKER_TOOLS_GGUF_MODEL_H

#include "worker/tools/gguf_names.h"
#include "worker/tools/hf_config.h"

struct zt_gguf_model {
    const char *path; /* of the weights, for messages */
    const struct zt_gguf_kind *kind;
    const struct zt_hf_config *config;
    int64_t layers, context;
};

/* ZT_E_UNSUPPORTED: it computes something else than llama.cpp would, with the key. A window that the
 * file cannot have is told on stderr: up to its length nothing is other. */
zt_err zt_gguf_check_model(const struct zt_gguf_model *m,
                           struct zt_fault *fault) ZT_MUST_CHECK;

#endif
