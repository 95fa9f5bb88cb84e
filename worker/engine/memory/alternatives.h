/*
 * alternatives.h -- the same training with other settings: for each stage, place of state
 * and recomputation the largest micro-batch that fits, planned exactly.
 *
 * A micro-batch comes with so many accumulation steps that a step has the same rows. What
 * is in the table of DeepSpeed's memory estimators, with activations and buffers.
 */
#ifndef WORKER_ENGINE_MEMORY_ALTERNATIVES_H
#define WORKER_ENGINE_MEMORY_ALTERNATIVES_H

#include <stdio.h>

#include "worker/engine/memory/plan.h"

#define ZT_MAX_ALTERNATIVES 60

struct zt_memory_alternative {
    int stage;
    zt_offload_device optimizer, weights; /* where state is kept; NONE: on the device */
    bool recompute, host_inputs;          /* of blocks; what it needs waits on the host */
    int64_t micro_batch, accumulation;
    size_t device, host, files; /* bytes of one rank */
    bool fits;
    bool given; /* the run as it is */
};

struct zt_memory_alternatives {
    struct zt_memory_alternative row[ZT_MAX_ALTERNATIVES];
    int num;
    const struct zt_run *run; /* as it was given; not owned */
};

/*
 * Those that fit first; among them state in files behind state on the host behind state on
 * the device, then recomputation, small micro-batches and high stages. Files are tried where the
 * config names a folder, the host where its memory is another than the device's or
 * --device_memory counts it apart.
 */
void zt_memory_alternatives_find(const struct zt_memory_plan_inputs *in,
                                 const struct zt_memory_plan *plan,
                                 struct zt_memory_alternatives *out);

/* As lines for people, with the config of the first that fits. */
void zt_memory_alternatives_print(const struct zt_memory_alternatives *a, FILE *out);

/* As an array of objects, in bytes. NULL: no memory. */
json_t *zt_memory_alternatives_json(const struct zt_memory_alternatives *a);

#endif
