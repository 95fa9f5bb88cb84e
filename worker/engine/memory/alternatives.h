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
#include "worker/engine/memory/rates.h"

#define ZT_MAX_ALTERNATIVES 60

struct zt_memory_alternative {
    int stage;
    zt_offload_device optimizer, weights; /* where state is kept; NONE: on the device */
    bool recompute, host_inputs;          /* of blocks; what it needs waits on the host */
    int64_t micro_batch, accumulation;
    size_t device, host, files; /* bytes of one rank */
    struct zt_step_work work;
    double seconds; /* of a step, estimated; NAN: not known */
    bool fits;
    bool given; /* the run as it is */
};

struct zt_memory_alternatives {
    struct zt_memory_alternative row[ZT_MAX_ALTERNATIVES];
    int num;
    const struct zt_run *run; /* as it was given; not owned */
    struct zt_rates rates;
    char missing[192]; /* rates without which a time is not known, in quotes; "": none */
};

/*
 * Those that fit first, the fastest of them first, by zt_memory_alternatives_time(). Where
 * that was not called, or a rate is not known: state in files behind state on the host behind state on
 * the device, then recomputation, small micro-batches and high stages. Files are tried where the
 * config names a folder, the host where its memory is another than the device's or
 * --device_memory counts it apart.
 */
void zt_memory_alternatives_find(const struct zt_memory_plan_inputs *in,
                                 const struct zt_memory_plan *plan,
                                 struct zt_memory_alternatives *out);

/* The times of all at these rates, and the order by them. */
void zt_memory_alternatives_time(struct zt_memory_alternatives *a,
                                 const struct zt_rates *rates);

/* As lines for people, with the config of the first that fits. */
void zt_memory_alternatives_print(const struct zt_memory_alternatives *a, FILE *out);

/* As an array of objects, in bytes. NULL: no memory. */
json_t *zt_memory_alternatives_json(const struct zt_memory_alternatives *a);

#endif
