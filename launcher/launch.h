/*
 * launch.h -- zlaunch's own command line, parsed: one struct, const from then on.
 *
 * The one table of options makes the parser, --help, the man page and the completions.
 * An option whose feature does not exist yet is in the table too, marked as refused: it
 * is an error that names it, never silence. Ownership: zt_launch_open() allocates,
 * zt_launch_close() frees; strings point into argv and the environment.
 */
#ifndef LAUNCHER_LAUNCH_H
#define LAUNCHER_LAUNCH_H

#include "common/env.h"
#include "common/fault.h"
#include "common/log.h"
#include "common/options.h"
#include "launcher/channel.h"

#include <stdio.h>

typedef enum zt_launch_action {
    ZT_LAUNCH_RUN,
    ZT_LAUNCH_DRY_RUN,
    ZT_LAUNCH_CHECK_CONFIG,
    ZT_LAUNCH_REPORT,      /* --report: of this host; there may be no target */
    ZT_LAUNCH_TARGET_HELP, /* --help behind the target: the target answers */
    ZT_LAUNCH_CTL,         /* --ctl, --attach: a job that runs already */
    ZT_LAUNCH_TOLD,        /* --help, --version and the like: printed, nothing to do */
} zt_launch_action;

struct zt_launch {
    zt_launch_action action;
    /* hosts and slots */
    const char *hostfile; /* NULL: none given */
    const char *include, *exclude;
    int num_nodes, num_gpus; /* -1: not given */
    const char *master_addr; /* NULL: this host */
    int master_port;         /* 0: any free one */
    const char *device;      /* auto|cpu */
    bool device_given;
    /* how nodes are reached */
    const char *launcher;      /* auto|local|ssh|slurm|openmpi|mpich|impi|mvapich */
    const char *launcher_args; /* extra words for it; NULL: none */
    int node_rank;             /* --no_ssh: the one node to run; -1: all */
    bool force_multi;
    bool serve_store; /* a TCPStore for PyTorch programs */
    bool preflight;   /* test the links between the nodes first */
    struct zt_ssh_options ssh;
    double connect_timeout_s; /* of each phase of reaching a node */
    const char *zworker;      /* on other hosts; NULL: looked for there */
    const char *exports;      /* NAME or NAME=VALUE, commas between; NULL: none */
    /* binding */
    bool bind;
    const char *core_list; /* NULL: all */
    /* words and output */
    bool json, verbose;
    zt_log_level level;
    const char *level_name; /* as the ranks' ZLAUNCH_LOG_LEVEL */
    zt_when color;
    const char *log_dir; /* --enable_each_rank_log */
    const char *summary; /* NULL: none */
    /* the end of the run */
    double grace_s, timeout_s;
    double hang_timeout_s; /* without a step; 0: never */
    int max_restarts;
    bool elastic;
    int min_nodes, max_nodes; /* elastic bounds; -1: not given */
    bool save_pid;
    /* in the background, and jobs that run already */
    bool detach;
    const char *log_file;   /* of --detach; NULL: beside the job's socket */
    const char *ctl_job;    /* --ctl, with target[0] as what to ask; NULL: none */
    const char *attach_job; /* --attach; NULL: none */
    /* what to run */
    char **target; /* (target_argc) inside argv; target[0] is the plugin or program */
    int target_argc;
    bool is_plugin; /* a .so that zworker loads; false: any program */

    zt_args *args; /* the parsed words, and the memory of their texts */
    struct zt_keep keep;
};

/* ZT_E_USAGE with all problems, one a line; ZT_E_UNSUPPORTED naming what is not there
 * yet. */
zt_err zt_launch_open(int argc, char **argv, struct zt_launch **out,
                      struct zt_fault *fault) ZT_MUST_CHECK;
/* The table, for the pages that are made from it. */
extern const struct zt_option zt_launch_options[];
extern const struct zt_option_extra zt_launch_extras[];

void zt_launch_close(struct zt_launch *launch); /* NULL is fine */

#endif
