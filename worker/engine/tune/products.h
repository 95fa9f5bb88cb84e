/*
 * products.h -- --product_tuning: rank 0 times on its device how the products of this run can be
 * computed, and all ranks compute them as it says.
 *
 * What was the fastest depends on the moment, and the bits of a run depend on it. So the
 * choices are kept in the file that the option names, from which a later start, or the
 * resume of a checkpoint, takes them again; only products that it lacks are timed.
 */
#ifndef WORKER_ENGINE_TUNE_PRODUCTS_H
#define WORKER_ENGINE_TUNE_PRODUCTS_H

#include "worker/engine/engine.h"
#include "worker/engine/memory/plan.h"

/*
 * Collective, before the device's memory is taken. Nothing without the option, or on a
 * device whose products have one way to be computed. A failure of rank 0 is one of all.
 */
zt_err zt_engine_tune_products(struct zt_engine *e,
                               const struct zt_memory_plan_inputs *in,
                               struct zt_fault *fault) ZT_MUST_CHECK;

#endif
