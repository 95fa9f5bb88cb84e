/*
 * task.h -- what the run trains for: --task, as far as the plugin can do it.
 */
#ifndef WORKER_ENGINE_TASKS_TASK_H
#define WORKER_ENGINE_TASKS_TASK_H

#include "worker/engine/engine.h"

/* e->task, before data and model are opened. ZT_E_USAGE: the plugin has no such task, with
 * those that it has. */
zt_err zt_engine_pick_task(struct zt_engine *e, struct zt_fault *fault) ZT_MUST_CHECK;

const char *zt_task_name(zt_task task); /* as --task spells it */

#endif
