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
    int32_t start;     /* the token that targets shifted right begin with; -1: none do */
};

/* The index of a field, or -1. */
int zt_batch_find(const struct zt_batch_layout *l, const char *name);

/* The sizes of a batch that a run decides: rows, tokens of a row, tokens of its source. */
struct zt_extent {
    int64_t B, T, S;
};

/* The axes of a field in such a batch; returns their number. */
int zt_field_shape(const struct zt_field *f, struct zt_extent e,
                   int64_t shape[ZT_MAX_NDIM]);
int64_t zt_field_numel(const struct zt_field *f, struct zt_extent e);
size_t zt_field_bytes(const struct zt_field *f, struct zt_extent e);
/* Whether a field has tokens of a source, or says how many there are. */
bool zt_field_is_of_source(const struct zt_field *f);

/* "i32 (B, T)"; for messages. */
const char *zt_field_text(const struct zt_field *f, char out[96]);

/* After `build`: the fields of a model that declared none, and the divisor. Failures are
 * the model's (zt_model_status). */
void zt_batch_finish(struct zt_model *m);
void zt_batch_release(struct zt_batch_layout *l);

#endif
