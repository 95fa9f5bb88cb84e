/*
 * plan.h -- what will run where: hosts, ranks, commands. Made from the options, printed
 * by
 * --dry_run, carried out by the supervisor.
 *
 * Ownership: zt_plan_open() allocates, zt_plan_close() frees. Threads: read-only, any.
 */
#ifndef LAUNCHER_PLAN_H
#define LAUNCHER_PLAN_H

#include "launcher/launch.h"

#include <jansson.h>

struct zt_plan {
    char job_id[40];
    char *zworker;
    char **argv;    /* (NULL-terminated) what each rank executes */
    bool is_plugin; /* argv is "zworker TARGET.so ..." */
    int num_nodes, world;
    int local_world;  /* ranks of the one node */
    const char *host; /* its name */
    const char *master_addr;
    int master_port;
    int grace_ms;
    double timeout_s; /* 0: none */
    bool bind;
    const char *core_list; /* NULL: the affinity mask */
    const char *log_dir;   /* NULL: to the screen */
    char log_stamp[16];    /* yyyymmddHHMMSS */
    char pid_file[64];     /* empty: none */
    const char *report;    /* NULL: none */
    json_t *env;           /* NAME -> value, on top of the environment */
};

/*
 * ZT_E_NOINPUT: no such target, program or hostfile; ZT_E_UNSUPPORTED: needs a host or a
 * device this version cannot use; ZT_E_USAGE: the options do not fit together.
 */
zt_err zt_plan_open(const struct zt_launch *launch, struct zt_plan **out,
                    struct zt_fault *fault) ZT_MUST_CHECK;
void zt_plan_close(struct zt_plan *plan); /* NULL is fine */

/* The JOB frame's body for the daemon of the node. NULL: no memory. */
json_t *zt_plan_job(const struct zt_plan *plan);

/* Nodes, ranks, cores and the command, for a person. ZT_E_USAGE: a bad core list. */
zt_err zt_plan_print(const struct zt_plan *plan, FILE *out,
                     struct zt_fault *fault) ZT_MUST_CHECK;

#endif
