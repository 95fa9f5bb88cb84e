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

/* What of a folder the plugin has looked at, and what it says to leave aside. */
struct zt_import {
    char **keys; /* of config.json, nested ones with dots */
    int num_keys;
    char **ignored; /* patterns of tensors */
    int num_ignored;
    struct zt_twin *twins;
    int num_twins;
    bool always_tied; /* of tie_word_embeddings only true is built */
};

struct zt_model_private {
    struct zt_model_config cfg;
    bool built;            /* plugin->build has been called: release must be too */
    bool declared;         /* build has returned, and what is in the tables stays so */
    struct zt_fault fault; /* the first failure of a declaration */
    json_t *imported;      /* config.json, or NULL */
    char *divisor_field;   /* that zt_model_set_loss_divisor() named, or NULL */
    struct zt_export *exports;
    int num_exports;
    struct zt_import import;
};

/* `path` NULL: there is none. ZT_E_NOINPUT, or ZT_E_FORMAT with file:line:column. */
zt_err zt_model_read_config(struct zt_model *m, const char *path,
                            struct zt_fault *fault) ZT_MUST_CHECK;
void zt_model_free_config(struct zt_model *m);

/* The member "a.b.c" of config.json, noted as looked at; NULL: none, or null. */
const json_t *zt_model_config_find(const zt_model *m, const char *key);
/* Fail with ZT_E_PLUGIN: the plugin did what none may. zt_model_fail() is its own word
 * about what it was asked to build. */
zt_err zt_model_misuse(struct zt_model *m, const char *fmt, ...) ZT_PRINTF(2, 3);
/* May the plugin declare a `what` now? Only build() may: else the model has failed. */
bool zt_model_may_declare(struct zt_model *m, const char *what);
/* Fail with ZT_E_CONFIG, behind the path of config.json. */
void zt_model_refuse_config(struct zt_model *m, const char *fmt, ...) ZT_PRINTF(2, 3);
/* id2label and label2id, of a task with classes, or of one number. */
void zt_model_export_labels(struct zt_model *m);
/* The tokens that begin and end a text, of a model that writes them by a tokenizer that its plugin
 * does not know. */
void zt_model_export_ends(struct zt_model *m);
/* What stays with weights of the imported config.json (zt_model_carries). */
void zt_model_export_carried(struct zt_model *m);
void zt_model_note_key(struct zt_model *m, const char *key);
void zt_model_free_import(struct zt_model *m);

#endif
