/*
 * job.h -- what zlaunch asks a daemon to run on its node: the JOB frame as a struct.
 *
 * Ownership: zt_job_open() allocates, zt_job_close() frees; strings live as long.
 * Threads: one.
 */
#ifndef WORKER_DAEMON_JOB_H
#define WORKER_DAEMON_JOB_H

#include "common/fault.h"

#define ZT_MAX_LOCAL_RANKS 4096 /* of one node */

struct zt_job {
    const char *id;  /* unique; in ZLAUNCH_JOB_ID of every process of the job */
    char **argv;     /* (NULL-terminated) what each rank executes */
    char **own;      /* (NULL-terminated) words of argv that were made here */
    char **env;      /* (NULL-terminated) "K=V" on top of the daemon's environment */
    char **defaults; /* likewise, for what the environment does not have */
    const char *cwd; /* NULL: stay where the daemon is */
    int first_rank;  /* ranks of a node are consecutive */
    int local_world, world;
    int node_rank, num_nodes;
    int restart, max_restarts; /* this is start 1 + restart of the job */
    int silence_ms;            /* zlaunch is dead when it says nothing for so long; 0:
                                  the channel itself would tell */
    /* of the cores, this node's ranks take the shares from share_first of share_ranks:
     * other nodes of the job may be on this host too */
    int share_first, share_ranks;
    const char
        *secret; /* store/core/secret.h's text, for ZLAUNCH_SECRET_FD; NULL: none */
    const char *master_addr;
    int master_port;
    int grace_ms;            /* between SIGTERM and SIGKILL */
    bool hold_user_signals;  /* SIGUSR1 and SIGUSR2 wait until the rank takes them */
    bool bind;               /* each rank on its share of the cores */
    bool stay;               /* when it is over, wait for the next start of the job */
    const char *core_list;   /* NULL: all of the affinity mask */
    const char *pmi_mapping; /* PMI_process_mapping of MPI ranks; NULL: none */
    const char *log_dir;     /* NULL: output goes to zlaunch; else one file a rank */
    const char *log_stamp;   /* front of the file names */
    const char *pid_file;    /* NULL; removed by the daemon if zlaunch is killed */

    void *root; /* the parsed JSON that the strings point into */
};

/* ZT_E_FORMAT: no JSON object, or a field is missing, of the wrong type or out of range.
 */
zt_err zt_job_open(const void *json, size_t bytes, struct zt_job **out,
                   struct zt_fault *fault) ZT_MUST_CHECK;
void zt_job_close(struct zt_job *job); /* NULL is fine */

#endif
