/*
 * peft_config.h -- adapter_config.json, as the Python package peft writes and reads it.
 *
 * Reading takes LoRA and refuses by name what would make other numbers: DoRA, ranks by
 * pattern, trained biases and the like. What says how adapters began means nothing for
 * those that are there, and a key that is null, false or empty asks for nothing.
 */
#ifndef WORKER_ENGINE_ADAPTERS_PEFT_CONFIG_H
#define WORKER_ENGINE_ADAPTERS_PEFT_CONFIG_H

#include "worker/engine/adapters/targets.h"

struct zt_peft_config {
    int64_t rank;
    double alpha, dropout;
    bool rslora; /* scaled by alpha / sqrt(rank), not alpha / rank */
    struct zt_targets targets;
    char **saved; /* modules that are trained and stored whole, (num_saved) */
    int num_saved;
    char *base; /* base_model_name_or_path; NULL: it says none */
};

/* `path`: of an adapter_config.json. ZT_E_NOINPUT, ZT_E_FORMAT, ZT_E_CONFIG: what is not built. */
zt_err zt_peft_config_read(const char *path, struct zt_peft_config *out,
                           struct zt_fault *fault) ZT_MUST_CHECK;
void zt_peft_config_release(struct zt_peft_config *c); /* a zeroed one is fine */

/* What a config says beside the numbers. */
struct zt_peft_words {
    const char *base;      /* base_model_name_or_path; NULL: null */
    const char *task_type; /* "CAUSAL_LM"; NULL: null */
    bool fan_in_fan_out;   /* weights are (in, out) */
    /* names that stand for the targets where these are all-linear, (num) */
    char *const *names;
    int num_names;
};

/* As text that the caller frees; NULL: no memory. */
char *zt_peft_config_text(const struct zt_peft_config *c, const struct zt_peft_words *w);

#endif
