/*
 * spawn.h -- start one rank: its process group, environment, cores and descriptors.
 *
 * The rank dies with the daemon (parent-death signal), reads nothing from stdin, and
 * inherits just these descriptors beyond 0, 1, 2: its control socket, the job's shared
 * memory, the phase page, and where there are such its PMI socket, the job's secret and the
 * memory that is kept for the next start of the rank.
 * Threads: the daemon's loop thread.
 */
#ifndef WORKER_DAEMON_SPAWN_H
#define WORKER_DAEMON_SPAWN_H

#include "common/cores/cores.h"
#include "worker/daemon/job.h"

#include <sys/types.h>

struct zt_spawn {
    const struct zt_job *job;
    int local_rank;
    const struct zt_core_share *share;
    int shm_fd, state_fd;              /* close-on-exec here, open in the rank */
    int pmi_fd, secret_fd, replica_fd; /* likewise; -1: none */
    int cgroup_fd;                     /* zt_cgroup_enter() */
};

/* What the daemon holds of a started rank: non-blocking, close-on-exec descriptors. */
struct zt_spawned {
    pid_t pid;
    int out_fd[2]; /* read ends of its stdout and stderr */
    int control_fd;
};

/*
 * Returns once the process exists; if its program cannot be executed it says so on its
 * stderr and exits with 127 (not found) or 126. ZT_E_SYSTEM: no descriptors or processes.
 */
zt_err zt_spawn_rank(const struct zt_spawn *s, struct zt_spawned *out,
                     struct zt_fault *fault) ZT_MUST_CHECK;

#endif
