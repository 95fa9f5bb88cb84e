/*
 * hf_config.h -- values of a Hugging Face config.json.
 *
 * Keys may name nested members with dots ("rope_scaling.factor"). A key that is missing
 * or null gives the default; one of another type is an error that names file and key.
 * Ownership: strings belong to the open config.
 * Threads:   one.
 */
#ifndef WORKER_TOOLS_HF_CONFIG_H
#define WORKER_TOOLS_HF_CONFIG_H

#include "common/fault.h"

struct zt_hf_config;

/*
 * `path`: the file, or the folder that holds config.json. ZT_E_NOINPUT when there is
 * none, ZT_E_FORMAT when it is not a JSON object; the text says line and column.
 */
zt_err zt_hf_config_open(const char *path, struct zt_hf_config **out,
                         struct zt_fault *fault) ZT_MUST_CHECK;
void zt_hf_config_close(struct zt_hf_config *c); /* NULL is fine */

bool zt_hf_config_has(const struct zt_hf_config *c, const char *key);  /* null: no */
bool zt_hf_config_says(const struct zt_hf_config *c, const char *key); /* null: yes */

/* ZT_E_FORMAT for another type; *out is written only on success. */
zt_err zt_hf_config_int(const struct zt_hf_config *c, const char *key, int64_t def,
                        int64_t *out, struct zt_fault *fault) ZT_MUST_CHECK;
zt_err zt_hf_config_float(const struct zt_hf_config *c, const char *key, double def,
                          double *out, struct zt_fault *fault) ZT_MUST_CHECK;
zt_err zt_hf_config_bool(const struct zt_hf_config *c, const char *key, bool def,
                         bool *out, struct zt_fault *fault) ZT_MUST_CHECK;
zt_err zt_hf_config_string(const struct zt_hf_config *c, const char *key, const char *def,
                           const char **out, struct zt_fault *fault) ZT_MUST_CHECK;

#endif
