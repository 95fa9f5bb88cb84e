/*
 * place.h -- a process's place among the ranks of a job, from whoever started it.
 *
 *      started by             what is read
 *      zlaunch                RANK WORLD_SIZE ...; ZLAUNCH_SHM_FD: no rendezvous needed
 *      torchrun               the same; TORCHELASTIC_USE_AGENT_STORE=True
 *      scripts, Kubernetes    RANK WORLD_SIZE MASTER_ADDR MASTER_PORT
 *      srun                   SLURM_STEP_NUM_TASKS > 1, SLURM_PROCID ... and no
 * WORLD_SIZE mpirun, mpiexec        OMPI_COMM_WORLD_*, PMI_*, MV2_*, PALS_* and no
 * WORLD_SIZE nobody                 a world of one
 *
 * WORLD_SIZE wins over the others, so that a script under srun can give ranks of its own.
 * Threads: reads the environment; not while another thread changes it.
 */
#ifndef STORE_PLACE_H
#define STORE_PLACE_H

#include "common/fault.h"

typedef enum zt_place_kind {
    ZT_PLACE_ALONE,
    ZT_PLACE_ZLAUNCH,
    ZT_PLACE_AGENT, /* torchrun's agent serves a TCPStore */
    ZT_PLACE_ENV,
    ZT_PLACE_SLURM,
    ZT_PLACE_MPI,
} zt_place_kind;

struct zt_place {
    zt_place_kind kind;
    int rank, world;
    int local_rank, local_world; /* local_world 0: nobody said */
    uint64_t attempt;            /* restarts before this one */
    char job[128];               /* id; "none" where nobody gave one */
    char master_addr[256];       /* "": nobody said */
    int master_port;             /* 0: nobody said */
};

/* ZT_E_USAGE naming the variable that is missing or wrong, and who set the others. */
zt_err zt_place_read(struct zt_place *out, struct zt_fault *fault) ZT_MUST_CHECK;

/* "torchrun", "srun", ...: for messages. */
const char *zt_place_kind_name(zt_place_kind kind);

/*
 * torchrun's error file (TORCHELASTIC_ERROR_FILE): its summary names the failure of the
 * rank that failed first. Best effort; nothing happens where there is no such variable.
 */
void zt_place_report_error(const struct zt_fault *fault);

/*
 * torchrun that is killed leaves its workers behind: from here on this process ends when
 * its parent does. Only for ZT_PLACE_AGENT, nothing else.
 */
void zt_place_follow_agent(const struct zt_place *place);

#endif
