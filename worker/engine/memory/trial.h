/*
 * trial.h -- a run planned with other settings than it was given.
 *
 *      struct zt_memory_trial t = {.given = in, .of = plan};
 *
 *      zt_memory_trial_begin(&t);      as it was given
 *      t.run.micro_batch_size = 1;     what is to be different
 *      zt_memory_trial_fits(&t);       t.plan is its plan
 *      ...                             any number of such trials
 *      zt_memory_trial_end(&t);
 */
#ifndef WORKER_ENGINE_MEMORY_TRIAL_H
#define WORKER_ENGINE_MEMORY_TRIAL_H

#include "worker/engine/memory/plan.h"

struct zt_memory_trial {
    const struct zt_memory_plan_inputs *given;
    const struct zt_memory_plan *of; /* the plan of `given`: what there is */
    struct zt_run run;
    struct zt_memory_plan_inputs in; /* of `run` */
    struct zt_memory_plan plan;
};

void zt_memory_trial_begin(struct zt_memory_trial *t);

/* Whether a run of this stage overlaps: as it was given, and where that is no stage 3 and nobody
 * has said so as stage 3 does by default. */
bool zt_memory_trial_overlaps(const struct zt_run *given, int stage);

/* A stage and what follows from it. */
void zt_memory_trial_set_stage(struct zt_memory_trial *t, int stage);

/* Make the plan; false also where it cannot be made. */
bool zt_memory_trial_fits(struct zt_memory_trial *t);

/* The model is laid out for the run as it was given. */
void zt_memory_trial_end(struct zt_memory_trial *t);

/* Values to try of one thing, 1 being as it is; at least one. */
struct zt_memory_ladder {
    int64_t rung[96];
    int num;
};

/* Divisors of n, the smallest first, without 1: rows of a micro-batch are divided by them. */
struct zt_memory_ladder zt_memory_divisors(int64_t n);

#endif
