/*
 * gguf_names.h -- the kinds of models that GGUF files are written of, and what llama.cpp calls
 * their tensors.
 * Threads: const.
 */
#ifndef WORKER_TOOLS_GGUF_NAMES_H
#define WORKER_TOOLS_GGUF_NAMES_H

#include <stdbool.h>
#include <stdint.h>

/* How the rows of a matrix come to be. */
typedef enum zt_gguf_change {
    ZT_GGUF_AS_IS,
    ZT_GGUF_TRANSPOSED,
    ZT_GGUF_QUERY_ROWS,
    ZT_GGUF_KEY_ROWS
} zt_gguf_change;

struct zt_gguf_name {
    const char *ours, *theirs; /* %d: the layer */
    zt_gguf_change change;
};

struct zt_gguf_kind {
    const char *model_type, *arch;
    const struct zt_gguf_name *names;
    bool gpt2;  /* keys of config.json and layout are GPT-2's; else Llama's */
    bool pairs; /* rotates adjacent pairs */
};

/* By model_type of config.json; NULL: none. */
const struct zt_gguf_kind *zt_gguf_kind_find(const char *model_type);
/* The row for a name of a model with so many layers, and its layer; NULL: none. Names may
 * begin with the model's word. */
const struct zt_gguf_name *zt_gguf_name_find(const struct zt_gguf_kind *kind,
                                             const char *name, int64_t layers,
                                             int *layer);

#endif
