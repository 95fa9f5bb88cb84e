/*
 * process.h -- what a rank takes beside the state and activations of its plan.
 *
 *      now      the program and its libraries, what was read of options and data
 *      later    code that oneDNN writes for shapes, packed operands of products, stacks, MPI
 *
 * `now` is measured. `later` was measured, in runs of 6 to 300 MiB in each dtype: it keeps
 * within some MiB of what /proc counts.
 * Threads:   any.
 */
#ifndef WORKER_ENGINE_PROCESS_MEMORY_H
#define WORKER_ENGINE_PROCESS_MEMORY_H

#include <stddef.h>

#include "worker/autograd/model.h"
#include "worker/config/run.h"

/*
 * Of this process, with its part of the file pages that the `sharers` ranks of this machine
 * have in common. 0: not known. To be called before anything is allocated that is planned.
 * `root`: where the file system of this machine begins: "", but for tests.
 */
size_t zt_process_memory_now(const char *root, int sharers);

/* Memory that the ranks of this machine can still share; *limit: of the control group that
 * sets it, 0: the machine does. */
size_t zt_memory_left(size_t *limit);

/* What a run adds whose passes need so many bytes of activations; 0 on a GPU, where the
 * backend has said it all. */
size_t zt_process_memory_later(const struct zt_run *run, const struct zt_model *model,
                               size_t activations);

/* Files that MPI makes in /dev/shm for the ranks of a machine, all of them together; 0: it
 * makes none, or is not what ranks exchange by. */
size_t zt_process_shm_bytes(const struct zt_run *run);

#endif
