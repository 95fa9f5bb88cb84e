/*
 * plan.h -- the plan of a job: nodes, ranks, commands. Made from the options, printed by
 * --dry_run, executed by the supervisor.
 *
 * Ranks are numbered in order of hosts and of slots. Which nodes take part can differ
 * from one start of the job to the next (--elastic_training); struct zt_group has the
 * nodes of one start, and with them every rank's place.
 * Ownership: zt_job_plan_open() allocates, zt_job_plan_close() frees.
 * Threads:   read-only, any.
 */
#ifndef LAUNCHER_PLAN_PLAN_H
#define LAUNCHER_PLAN_PLAN_H

#include "launcher/launch.h"
#include "store/core/secret.h"

#include <jansson.h>

struct zt_job_plan_node {
    char *host, *user; /* user NULL: the caller's */
    int port;          /* 0: none given */
    int num_slots;
    int *slots;    /* (num_slots) ascending */
    char *devices; /* CUDA_VISIBLE_DEVICES of its ranks; NULL: left alone */
    const struct zt_starter *starter;
};

struct zt_job_plan {
    char job_id[40];
    char *zworker;
    char *cwd;
    char **argv;                    /* (NULL-terminated) what each rank executes */
    bool is_plugin;                 /* argv is "zworker TARGET.so ..." */
    struct zt_job_plan_node *nodes; /* (num_nodes) */
    int num_nodes, world;           /* of all nodes */
    int only_node;                  /* --no_ssh: start just this one; -1: all */
    bool same_host;                 /* all nodes are on this host */
    bool are_assumed;               /* a dry run of nodes that nobody has named */
    const char *mpirun; /* hand the job over to this MPI launcher; NULL: daemons */
    bool serve_store;   /* a TCPStore at the master's port */
    char master_addr[256];
    int master_port; /* 0: a free one, found for each start of the job */
    int grace_ms;
    double timeout_s, hang_timeout_s; /* 0: none */
    int max_restarts;
    bool elastic;
    int min_nodes, max_nodes;
    bool bind;
    const char *core_list; /* NULL: the affinity mask */
    const char *log_dir;   /* NULL: to the screen */
    char log_stamp[16];    /* yyyymmddHHMMSS */
    char pid_file[128];    /* of this process; empty: none (yet) */
    const char *summary;   /* NULL: none */
    json_t *env;           /* NAME -> value, on top of the environment */
    /* NULL-terminated NAME=VALUE: what daemons on other hosts get on top of their
     * environment, and the part of it that was asked for, which those here get too */
    char **forward, **named;
    char
        *left_out; /* lines about files of variables that could not be read; NULL: none */
    struct zt_ssh_options ssh;
    /* how ranks prove to each other that they are of this job. Not with --no_ssh: there
     * every node has a zlaunch of its own, and none could tell the others */
    struct zt_secret secret;
    bool has_secret;
    char **push;    /* NULL-terminated: what --push copies; ssh.push_files */
    json_t *pushed; /* indices in argv of the words that are such files */
    const struct zt_launch *launch; /* what it was made from; outlives it */
};

/*
 * ZT_E_NOINPUT: no such target, program or hostfile; ZT_E_UNSUPPORTED: needs a way to
 * reach hosts, or a device, that this version has not; ZT_E_USAGE: the options do not fit
 * together.
 */
zt_err zt_job_plan_open(const struct zt_launch *launch, struct zt_job_plan **out,
                        struct zt_fault *fault) ZT_MUST_CHECK;
void zt_job_plan_close(struct zt_job_plan *plan); /* NULL is fine */
/* nodes.c: hosts and slots into nodes. */
zt_err zt_job_plan_choose_nodes(struct zt_job_plan *p, const struct zt_launch *l,
                                struct zt_fault *fault) ZT_MUST_CHECK;
void zt_job_plan_nodes_release(struct zt_job_plan *p);
/* GPUs of this host, where a rank can use them; 0: none, or not wanted. */
int zt_job_plan_own_gpus(const struct zt_launch *l);
/* push.c: what --push copies to the nodes. */
zt_err zt_job_plan_choose_push(struct zt_job_plan *p,
                               struct zt_fault *fault) ZT_MUST_CHECK;

/* The nodes and ranks of one start of the job. */
struct zt_group {
    int restart; /* 0: the first start */
    int num_nodes, world;
    int master_port;
    int *node_rank, *first_rank; /* (plan's num_nodes); node_rank -1: left out */
    int *
        at; /* (plan's num_nodes) the node in the plan that has node rank i; to num_nodes */
    char *pmi_mapping; /* which ranks share a node, in PMI's words; NULL: one node */
};

zt_err zt_group_init(struct zt_group *g, const struct zt_job_plan *plan,
                     struct zt_fault *fault) ZT_MUST_CHECK;
void zt_group_release(struct zt_group *g);
/*
 * Number the ranks of the nodes that are `present` (num_nodes; NULL: all of them), at most
 * max_nodes of them. Where as many take part as in the start before, each of those that
 * were in it keeps its ranks, of which its daemon may hold copies in memory, and spare
 * nodes with as many slots take the places of those that are gone. Else the first nodes
 * take part, in the order of the plan.
 */
void zt_group_arrange(struct zt_group *g, const struct zt_job_plan *plan,
                      const bool *present);
/* The index in the plan of the node that has this rank; -1: none. */
int zt_group_node_of(const struct zt_group *g, const struct zt_job_plan *plan, int rank);

/* The JOB frame's body for the daemon of a node that takes part. NULL: no memory. */
json_t *zt_job_plan_frame(const struct zt_job_plan *plan, const struct zt_group *g,
                          int node);

/* "worker-1", "user@worker-1:22", "[fe80::1]:22": as a hostfile has it. */
#define ZT_NODE_NAME 320
const char *zt_job_plan_node_name(const struct zt_job_plan_node *n,
                                  char out[ZT_NODE_NAME]);

/* What will make the job slow and can be known now: a line each. */
void zt_job_plan_warn(const struct zt_job_plan *plan, FILE *out);

/* Nodes, ranks, cores and commands, for a person. ZT_E_USAGE: a bad core list. */
zt_err zt_job_plan_print(const struct zt_job_plan *plan, bool json, FILE *out,
                         struct zt_fault *fault) ZT_MUST_CHECK;

#endif
