/*
 * model_private.h -- what model.c and model_config.c share: the part of a model that
 * nobody else sees.
 */
#ifndef WORKER_AUTOGRAD_MODEL_PRIVATE_H
#define WORKER_AUTOGRAD_MODEL_PRIVATE_H

#include <jansson.h>

#include "worker/autograd/model.h"

struct zt_export {
    char *key, *json; /* a value as text, kept as it was written */
};

struct zt_model_private {
    struct zt_model_config cfg;
    bool built;            /* plugin->build has been called: release must be too */
    struct zt_fault fault; /* the first failure of a declaration */
    json_t *imported;      /* config.json, or NULL */
    char *divisor_field;   /* that zt_model_set_loss_divisor() named, or NULL */
    struct zt_export *exports;
    int num_exports;
};

/* `path` NULL: there is none. ZT_E_NOINPUT, or ZT_E_FORMAT with file:line:column. */
zt_err zt_model_read_config(struct zt_model *m, const char *path,
                            struct zt_fault *fault) ZT_MUST_CHECK;
void zt_model_free_config(struct zt_model *m);

#endif
