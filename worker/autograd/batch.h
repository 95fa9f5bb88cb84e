/*
 * batch.h (worker) -- the layout of a model's batches, behind <zlaunch/batch.h>.
 *
 * One list of fields says all there is to know about a batch: the sampler fills host
 * memory by it, a step uploads by it, the plan counts bytes by it.
 * Ownership: the model owns the layout and the names in it.
 * Threads:   unlocked; built by one thread, read-only afterwards.
 */
#ifndef WORKER_AUTOGRAD_BATCH_H
#define WORKER_AUTOGRAD_BATCH_H

#include <zlaunch/batch.h>

#include "common/fault.h"

struct zt_batch_layout {
    struct zt_field fields[ZT_MAX_FIELDS];
    int num;
    zt_divisor divisor;
    int divisor_field; /* index in fields; -1: rows */
};

/* The index of a field, or -1. */
int zt_batch_find(const struct zt_batch_layout *l, const char *name);

/* The axes of a field in a batch of B rows of T tokens; returns their number. */
int zt_field_shape(const struct zt_field *f, int64_t B, int64_t T,
                   int64_t shape[ZT_MAX_NDIM]);
int64_t zt_field_numel(const struct zt_field *f, int64_t B, int64_t T);
size_t zt_field_bytes(const struct zt_field *f, int64_t B, int64_t T);

/* "i32 (B, T)"; for messages. */
const char *zt_field_text(const struct zt_field *f, char out[96]);

/* After `build`: the fields of a model that declared none, and the divisor. Failures are
 * the model's (zt_model_status). */
void zt_batch_finish(struct zt_model *m);
void zt_batch_release(struct zt_batch_layout *l);

#endif
