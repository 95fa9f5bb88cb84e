/*
 * slurm.h -- what Slurm gave this job: its hosts, and how zlaunch runs inside.
 *
 * Threads: reads the environment; not while another thread changes it.
 */
#ifndef LAUNCHER_START_SLURM_H
#define LAUNCHER_START_SLURM_H

#include "launcher/start/channel.h"
#include "launcher/plan/hostfile.h"

/* srun reaches the nodes of the allocation; request.host is a node's name there. */
extern const struct zt_starter zt_starter_slurm;

/* In a batch script or a shell of salloc: a job, but no task of a step of several. */
bool zt_slurm_is_allocation(void);

/*
 * The allocation as hosts and slots: SLURM_JOB_NODELIST, and for each node its GPUs
 * (CUDA_VISIBLE_DEVICES or SLURM_GPUS_ON_NODE) where Slurm gave any, else its tasks
 * (SLURM_TASKS_PER_NODE). ZT_E_USAGE naming the variable that makes no sense.
 */
zt_err zt_slurm_hosts(struct zt_hosts *out, struct zt_fault *fault) ZT_MUST_CHECK;

#endif
