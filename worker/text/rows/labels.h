/*
 * labels.h -- the classes of rows and of words: a name each, numbered from 0.
 *
 * A label in data is text, a whole number, or true or false; a number's name is its digits. Names
 * of numbers alone are ordered as numbers, else as text, as run_glue of transformers has them.
 *
 * Ownership: the struct owns its names. Threads: reading is safe from several.
 */
#ifndef WORKER_TEXT_LABELS_H
#define WORKER_TEXT_LABELS_H

#include <stdbool.h>

#include <jansson.h>

#include "common/fault.h"

struct zt_labels {
    const char **names; /* (num) */
    int64_t num;
    json_t *ids;            /* of the names, which are its keys */
    bool numbers, booleans; /* of which kinds values of rows were */
};

/* A new name gets the next number. ZT_E_NOMEM. */
zt_err zt_labels_add(struct zt_labels *l, const char *name,
                     struct zt_fault *fault) ZT_MUST_CHECK;
/* Number them anew by their order. */
void zt_labels_sort(struct zt_labels *l);
/* Whether all are called LABEL_0, LABEL_1, ..., as transformers calls those without names. */
bool zt_labels_are_unnamed(const struct zt_labels *l);
/* -1: there is no such label. Where they are unnamed a number is one by itself. */
int64_t zt_labels_find(const struct zt_labels *l, const char *name);
/* The name that a value of a row has; room is for those of numbers. NULL: it is neither text
 * without a zero byte nor a whole number, nor true or false. */
#define ZT_LABEL_DIGITS 24
const char *zt_label_name(const json_t *value, char room[ZT_LABEL_DIGITS]);
void zt_labels_release(struct zt_labels *l); /* zeroed: fine */

#endif
