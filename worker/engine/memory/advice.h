/* advice.h -- what would make a run fit, found by planning it. */
#ifndef WORKER_ENGINE_MEMORY_ADVICE_H
#define WORKER_ENGINE_MEMORY_ADVICE_H

#include "worker/engine/memory/plan.h"

/*
 * The least change of the run whose plan fits, as what is to be typed; where none does,
 * how much the smallest run needs. Ranks that share a machine are tried in smaller
 * numbers, too. The model is laid out again for each number and in the end as it was.
 */
void zt_memory_advice(const struct zt_memory_plan_inputs *in,
                      const struct zt_memory_plan *plan, char *out, size_t cap);

#endif
