/*
 * launch.h -- zlaunch's own command line, parsed: one struct, const from then on.
 *
 * The one table of options makes the parser, --help, the man page and the completions;
 * another one has the names that other launchers have for them (foreign.def).
 * Ownership: zt_launch_open() allocates, zt_launch_close() frees; strings point into
 *            argv and the environment.
 */
#ifndef LAUNCHER_LAUNCH_H
#define LAUNCHER_LAUNCH_H

#include "common/env.h"
#include "common/fault.h"
#include "common/log.h"
#include "common/options/options.h"
#include "launcher/ctl/ctl.h"
#include "launcher/start/channel.h"

#include <stdio.h>

typedef enum zt_launch_action {
    ZT_LAUNCH_RUN,
    ZT_LAUNCH_DRY_RUN,
    ZT_LAUNCH_CHECK_CONFIG,
    ZT_LAUNCH_REPORT,      /* --report: of this host; there may be no target */
    ZT_LAUNCH_ESTIMATE,    /* --estimate: there may be no target */
    ZT_LAUNCH_TARGET_HELP, /* --help behind the target: the target answers */
    ZT_LAUNCH_CTL,         /* --ctl, --attach: a job that runs already */
    ZT_LAUNCH_PRINTED,     /* --help, --version and the like: printed, nothing to do */
} zt_launch_action;

/* The type of an option's member, by the KIND of its row. */
#define ZT_LAUNCH_FLAG(name)    bool name;
#define ZT_LAUNCH_INT(name)     int name;
#define ZT_LAUNCH_SECONDS(name) double name;
#define ZT_LAUNCH_STRING(name)  const char *name;
#define ZT_LAUNCH_CHOICE(name)  const char *name;

#define ZT_SSH_OPTIONS 8

struct zt_launch {
    zt_launch_action action;

/* An option is a member of the same name: options.def says what it means. Of those:
 * launcher is never pdsh, and node_rank is -1 without --no_ssh. */
#define OPTION(kind, name, ...) ZT_LAUNCH_##kind(name)
#define PLACED(kind, name, member, ...)
#include "launcher/options.def"

    bool device_given;
    /* how nodes are reached */
    bool preflight; /* test the links between the nodes first */
    struct zt_ssh_options ssh;
    const char
        *about_ssh[ZT_SSH_OPTIONS + 1]; /* names of what this command line says of it;
                                                * the last is NULL */
    double connect_timeout_s;           /* of each phase of reaching a node */
    const char *exports; /* NAME or NAME=VALUE, commas between; NULL: none */
    /* binding */
    bool bind;
    const char *core_list; /* NULL: all */
    /* words and output */
    bool json;
    zt_log_level level;
    const char *level_name; /* as the ranks' ZLAUNCH_LOG_LEVEL */
    zt_when color_when;
    const char *log_dir; /* --enable_each_rank_log */
    /* the end of the run */
    double grace_s, timeout_s;
    double hang_timeout_s; /* without a step; 0: never */
    bool elastic;
    int min_nodes, max_nodes; /* elastic bounds; 0 or less: not given */
    /* jobs that run already */
    const char *ctl_job;    /* --ctl, with target[0] as what to ask; NULL: none */
    const char *attach_job; /* --attach; NULL: none */
    /* what to run */
    char **target; /* (target_argc) inside argv; target[0] is the plugin or program */
    int target_argc;
    bool is_plugin;          /* a .so that zworker loads; false: any program */
    bool reads_lines;        /* a plugin is to, of what is typed (--interactive) */
    char run_id[ZT_CTL_RUN]; /* of a plugin's --run_name; empty: none */

    zt_args *args; /* the parsed words, and the memory of their texts */
    struct zt_text_arena arena;
};

/* ZT_E_USAGE with all problems, one a line; ZT_E_UNSUPPORTED naming what is not there
 * yet. */
zt_err zt_launch_open(int argc, char **argv, struct zt_launch **out,
                      struct zt_fault *fault) ZT_MUST_CHECK;
/* The tables, for the pages that are made from them: our options, names that others have
 * for them, and the options that every target has. */
extern const struct zt_option zt_launch_options[];
extern const struct zt_foreign zt_launch_foreign[];
extern const struct zt_option zt_target_options[];
extern const struct zt_foreign_names zt_launch_foreign_names;

void zt_launch_close(struct zt_launch *launch); /* NULL is fine */

#endif
