/*
 * step_time.h -- how long a step takes: the work that a plan has counted, at given rates.
 *
 *      micro-batches   device work, collectives, files; beside one another where the
 *                      engine runs them so
 *      norm            device work, files beside it with pipeline_read
 *      update          device work, files beside it as the pipelines say; where it goes
 *                      on in the next forward, they move beside all of that pass
 *
 * Latencies, the reading of data and the wait for slower ranks are not in it.
 */
#ifndef WORKER_ENGINE_MEMORY_STEP_TIME_H
#define WORKER_ENGINE_MEMORY_STEP_TIME_H

#include "worker/engine/memory/plan.h"
#include "worker/engine/memory/rates.h"

/* Seconds of an optimizer step of a run; NAN where a rate is needed that is not known:
 * *missing is then its name in --rates. Pure. */
double zt_step_seconds(const struct zt_step_work *work, const struct zt_run *run,
                       const struct zt_rates *rates, const char **missing);

#endif
