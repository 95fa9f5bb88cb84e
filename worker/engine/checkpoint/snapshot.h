/*
 * snapshot.h -- how much of a rank's state a checkpoint has, for the memory plan.
 * Threads: one.
 */
#ifndef WORKER_ENGINE_CHECKPOINT_SNAPSHOT_H
#define WORKER_ENGINE_CHECKPOINT_SNAPSHOT_H

#include "worker/config/run.h"
#include "worker/zero/zero.h"

/*
 * Host memory in which a save of this rank waits to be written, by --save_memory: all of
 * it, what that says, or the least that a save, or reading one, needs. 0: the run does
 * neither, and nobody can ask it to save. `z` may be without values.
 */
size_t zt_ckpt_snapshot_bytes(const struct zt_run *run, const struct zt_model *model,
                              const struct zt_zero *z);
/* What this rank owns of the state that a checkpoint has, each part at a multiple of 8. */
size_t zt_ckpt_owned_bytes(const struct zt_run *run, const struct zt_model *model,
                           const struct zt_zero *z);
/* The least of a run that saves, or may be asked to, or resumes. */
size_t zt_ckpt_snapshot_least(const struct zt_run *run, const struct zt_model *model);
/* And what is taken beside it while a file of a save is written, or a checkpoint read. */
size_t zt_ckpt_file_buffer_bytes(const struct zt_run *run, const struct zt_model *model,
                                 const struct zt_zero *z);

#endif
