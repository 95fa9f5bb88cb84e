/*
 * launch_env.h -- rank, world size and the like of this process, from the environment
 * that its launcher sets.
 *
 *      started by             what is read
 *      zlaunch                RANK WORLD_SIZE ...; ZLAUNCH_SHM_FD: no rendezvous needed
 *      torchrun               the same; TORCHELASTIC_USE_AGENT_STORE=True
 *      scripts, Kubernetes    RANK WORLD_SIZE MASTER_ADDR MASTER_PORT
 *      srun                   SLURM_STEP_NUM_TASKS > 1, SLURM_PROCID ...; no WORLD_SIZE
 *      mpirun, mpiexec        OMPI_COMM_WORLD_*, PMI_*, MV2_*, PALS_*; no WORLD_SIZE
 *      nobody                 a world of one
 *
 * WORLD_SIZE wins over the others, so that a script under srun can give ranks of its own. A
 * world of one is refused where srun or mpirun has started several processes, for it is more
 * often left over than meant; zlaunch's ranks, which have ZLAUNCH_CONTROL_FD, are meant,
 * unless they are started by an mpirun below it.
 * Threads: reads the environment; not while another thread changes it.
 */
#ifndef STORE_LAUNCH_ENV_H
#define STORE_LAUNCH_ENV_H

#include "common/fault.h"

typedef enum zt_launch_kind {
    ZT_LAUNCH_ALONE,
    ZT_LAUNCH_ZLAUNCH,
    ZT_LAUNCH_TORCHRUN, /* torchrun's agent serves a TCPStore */
    ZT_LAUNCH_ENV,
    ZT_LAUNCH_SLURM,
    ZT_LAUNCH_MPI,
} zt_launch_kind;

struct zt_launch_env {
    zt_launch_kind kind;
    int rank, world;
    int local_rank, local_world; /* local_world 0: nobody said */
    uint64_t attempt;            /* restarts before this one */
    char job[128];               /* id; "none" where nobody gave one */
    char master_addr[256];       /* "": nobody said */
    int master_port;             /* 0: nobody said */
};

/* ZT_E_USAGE naming the variable that is missing or wrong, and who set the others;
 * ZT_E_UNSUPPORTED: a world of one, in a job of several. */
zt_err zt_launch_env_read(struct zt_launch_env *out,
                          struct zt_fault *fault) ZT_MUST_CHECK;

/* "torchrun", "srun", ...: for messages. */
const char *zt_launch_kind_name(zt_launch_kind kind);

/*
 * torchrun's error file (TORCHELASTIC_ERROR_FILE): its summary names the failure of the
 * rank that failed first. Best effort; nothing happens where there is no such variable.
 */
void zt_torchrun_report_error(const struct zt_fault *fault);

/*
 * torchrun that is killed leaves its workers behind: from here on this process ends when
 * its parent does. Only for ZT_LAUNCH_TORCHRUN, nothing else.
 */
void zt_torchrun_follow_agent(const struct zt_launch_env *env);

#endif
