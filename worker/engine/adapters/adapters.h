/*
 * adapters.h -- the low-rank adapters of a run (--lora_r, --adapter_name_or_path): beside
 * which weights they are, and their files, those of the Python package peft.
 *
 * The model itself is frozen then. Parameters that the plugin declares new (ZT_EXTRA:
 * heads) stay trainable and are stored with the adapters (peft's modules_to_save).
 *
 *      targets.c      names and patterns of modules
 *      peft_config.c  adapter_config.json
 *      adapters.c     which weights have one
 *      files.c        adapter_model.safetensors, and merging
 */
#ifndef WORKER_ENGINE_ADAPTERS_ADAPTERS_H
#define WORKER_ENGINE_ADAPTERS_ADAPTERS_H

#include "worker/engine/adapters/peft_config.h"

struct zt_engine;
struct zt_model;
struct zt_param;

struct zt_adapters {
    struct zt_peft_config cfg;
    struct zt_param **weights; /* that have one, (num), in the order of the model */
    int num;
    char **names; /* that stand for them and for no other linear op, (num_names) */
    int num_names;
    const char *task_type; /* NULL: none that peft knows */
};

/*
 * Once the model is built and its fields are known: adapters where options or a folder of
 * them ask for it; the model is laid out anew. ZT_E_CONFIG: no weight is meant, or one that
 * cannot have an adapter.
 */
zt_err zt_adapters_open(struct zt_engine *e, struct zt_fault *fault) ZT_MUST_CHECK;
void zt_adapters_close(struct zt_adapters *a); /* NULL is fine */

/* Collective. The values in --adapter_name_or_path; without one nothing is done. */
zt_err zt_adapters_load(struct zt_engine *e, struct zt_fault *fault) ZT_MUST_CHECK;

/* Collective. adapter_config.json and adapter_model.safetensors into the folder `dir`, by
 * rank 0; NULL: it only takes part. *failed: this rank could not write. */
zt_err zt_adapters_export(struct zt_engine *e, const char *dir, zt_err *failed,
                          struct zt_fault *fault) ZT_MUST_CHECK;

/* Bytes of a model's adapters as fp32, with what is trained beside them. */
int64_t zt_adapters_bytes(const struct zt_model *m);

/* Elements that a save holds at once: the largest pair. 0: the model has no adapters. */
int64_t zt_adapters_export_elems(const struct zt_model *m);

/* The pair of one weight in host memory, to add its product to values of the weight. */
struct zt_merge {
    const struct zt_param *w; /* NULL: it has no pair */
    float *a, *b, scale;
    int64_t rank;
};
/* Collective. *out is to be closed, also after a failure. */
zt_err zt_merge_open(struct zt_engine *e, const struct zt_param *w, struct zt_merge *out,
                     struct zt_fault *fault) ZT_MUST_CHECK;
void zt_merge_close(struct zt_merge *m);
/* Elements [at, at + n) of the weight += scale B A. */
void zt_merge_add(const struct zt_merge *m, int64_t at, int64_t n, float *values);

#endif
