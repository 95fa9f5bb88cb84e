#include "launcher/launch.h"

#include "launcher/manual.h"

#include <stdlib.h>
#include <string.h>

#define GROUP_RUN     "Where to run"
#define GROUP_REACH   "Reaching other hosts"
#define GROUP_BIND    "Processor cores"
#define GROUP_OUTPUT  "Output"
#define GROUP_END     "Failures and the end"
#define GROUP_ASK     "Background, and jobs that run already"
#define GROUP_CHECK   "Looking before running"
#define GROUP_REFUSED "Known, but refused by this version"

#define FLAG(name, help)                                                                 \
    {                                                                                    \
        name, ZT_OPT_FLAG, NULL, NULL, NULL, 0, 0, help                                  \
    }
#define TEXT(name, word, help)                                                           \
    {                                                                                    \
        name, ZT_OPT_STRING, word, NULL, NULL, 0, 0, help                                \
    }
#define INT(name, lo, hi, help)                                                          \
    {                                                                                    \
        name, ZT_OPT_INT, "N", NULL, NULL, lo, hi, help                                  \
    }
#define SECONDS(name, def, help)                                                         \
    {                                                                                    \
        name, ZT_OPT_FLOAT, "SECONDS", def, NULL, 0, 86400.0 * 365, help                 \
    }
#define CHOICE(name, def, c, help)                                                       \
    {                                                                                    \
        name, ZT_OPT_CHOICE, c, def, c, 0, 0, help                                       \
    }

#define ELASTIC_RESTARTS 100 /* as DeepSpeed's elastic agent */

/* In the order of --help; refused ones last. fill() reads them by name. */
const struct zt_option zt_launch_options[] = {
    INT("num_gpus", 1, 4096,
        "ranks on each node; on the CPU, ranks that share its cores"),
    INT("num_nodes", 1, 1 << 20, "use the first N hosts"),
    TEXT("hostfile", "FILE",
         "hosts, one 'NAME slots=N' a line (default: /job/hostfile if "
         "there is one, else this host)"),
    TEXT("include", "SPEC", "only these hosts and slots, as in localhost:0,2"),
    TEXT("exclude", "SPEC", "all but these hosts and slots"),
    TEXT("master_addr", "ADDR",
         "MASTER_ADDR of the ranks (default: the first host; 127.0.0.1 when there is no "
         "other)"),
    INT("master_port", 0, 65535,
        "MASTER_PORT of the ranks (default, and 0: any free one; with other hosts "
        "29500)"),
    CHOICE("device", "auto", "auto|cpu|cuda", "what to compute on"),
    FLAG("no_python", "the target is a program to execute, as after '--'"),
    FLAG("no_local_rank", "add no --local_rank argument (zlaunch never does)"),
    CHOICE(
        "launcher", "auto", "auto|local|ssh|slurm|pdsh|openmpi|mpich|impi|mvapich",
        "how nodes are reached; auto: this host directly, others by ssh; pdsh: the same "
        "as ssh; local: every line of the hostfile is a node on this host"),
    TEXT("launcher_args", "WORDS", "extra words for mpirun or srun"),
    FLAG("force_multi", "reach this host too as if it were another"),
    FLAG("no_ssh",
         "one zlaunch by hand on each node, with --node_rank and --master_addr"),
    INT("node_rank", 0, 1 << 20, "index of this node; with --no_ssh"),
    FLAG("no_ssh_check", "make no trial ssh (zlaunch never does)"),
    SECONDS("connect_timeout", "10", "for each phase of reaching a host"),
    TEXT("export", "NAME[=VALUE],...",
         "variables that ranks on other hosts get too, next to NCCL_*, UCX_*, OMP_*, "
         "PYTHON*, LD_LIBRARY_PATH and what .zlaunch_env and .deepspeed_env set"),
    FLAG("serve_store",
         "keep PyTorch's TCPStore at MASTER_PORT for the ranks, which then use env:// as "
         "under torchrun"),
    FLAG("no_preflight", "do not test the links between the nodes before ranks start"),
    INT("ssh_port", 1, 65535, "port of ssh"),
    TEXT("ssh_identity", "FILE", "key file (default: the agent, then the usual files)"),
    TEXT("ssh_known_hosts", "FILE", "known host keys (default: ~/.ssh/known_hosts)"),
    FLAG("ssh_accept_any_host", "do not check host keys"),
    TEXT("ssh_jump", "USER@HOST:PORT", "go through this host"),
    TEXT("ssh_program", "PROGRAM", "use this ssh program instead of the built-in client"),
    TEXT("zworker", "PATH",
         "zworker on other hosts (default: the path it has here, PATH, ~/.zlaunch/bin)"),
    FLAG("push", "copy zworker, the target and its config to the nodes first"),
    TEXT("push_dir", "DIR", "where --push copies to (default: a folder for the job)"),
    SECONDS("grace", "1", "from SIGTERM to SIGKILL when the job is stopped"),
    SECONDS("timeout", "0", "stop the job after this time with exit code 124; 0: never"),
    SECONDS("hang_timeout", "0",
            "when no rank makes progress for so long, say what each does, then stop or "
            "restart; 0: never"),
    INT("max_restarts", 0, 1 << 20,
        "start the whole job again so many times when it fails (default: 0; with "
        "--elastic_training 100)"),
    FLAG("elastic_training",
         "run with the nodes that can be started; others may join at a restart"),
    INT("min_elastic_nodes", -1, 1 << 20, "fewest nodes to run with (default: 1)"),
    INT("max_elastic_nodes", -1, 1 << 20, "most nodes to run with (default: all)"),
    FLAG("bind_cores_to_rank", "bind each rank to its share of the cores (the default)"),
    TEXT("bind_core_list", "LIST", "the cores to share, as in 1,3-5,7 (default: all)"),
    FLAG("no_bind", "bind no rank; only count threads"),
    FLAG("verbose", "say what is done; with --version: how it was built"),
    FLAG("quiet", "errors and results only; the same as --log_level error"),
    CHOICE("log_level", "info", "debug|info|warning|error|critical", "how much to say"),
    CHOICE("log_format", "text", "text|json", "json: one object a line on stdout"),
    CHOICE("color", "auto", "auto|always|never", "colour of messages"),
    TEXT("enable_each_rank_log", "DIR",
         "output of each rank to DIR/<time>_rank<R>.log, nothing on the screen"),
    TEXT("summary", "FILE", "how the job ended, as one line of JSON"),
    FLAG("save_pid", "keep zlaunch's pid in /tmp/<pid>.zlaunch while it runs"),
    FLAG("detach", "run in the background; returns when all ranks are started"),
    TEXT("log_file", "FILE", "where the output of --detach goes, behind what is there"),
    TEXT("attach", "JOB",
         "follow the output of a job until it ends, with its exit code; Ctrl-C only ends "
         "that; JOB: its id, the beginning of it, or 'last'"),
    TEXT("ctl", "JOB",
         "ask a job for one of: status stop save trace stacks; 'list': all your jobs "
         "here"),
    FLAG("check_config", "print the resolved config and where each value comes from"),
    FLAG("dry_run", "print nodes, ranks, cores, commands and memory; run nothing"),
    FLAG(
        "report",
        "print versions, backends, devices and limits of this host, and what to do about "
        "problems"),
    FLAG("version", "print the version"),
    FLAG("help", "print this; behind the target, the target's own options"),
    FLAG("help_all", "print also the options this version knows but refuses"),
    FLAG("module", "run a Python module"),
    TEXT("venv_script", "FILE", "script to source on remote nodes"),
    CHOICE("autotuning", NULL, "tune|run", "search the best config"),
    {.name = NULL},
};

const struct zt_option_extra zt_launch_extras[] = {
    {.name = "num_gpus", .group = GROUP_RUN, .alias = "num_accelerators"},
    {.name = "hostfile", .letter = 'H'},
    {.name = "include", .letter = 'i'},
    {.name = "exclude", .letter = 'e'},
    {.name = "launcher", .group = GROUP_REACH},
    {.name = "grace", .group = GROUP_END},
    {.name = "bind_cores_to_rank", .group = GROUP_BIND},
    {.name = "verbose", .group = GROUP_OUTPUT, .letter = 'v'},
    {.name = "quiet", .letter = 'q'},
    {.name = "detach", .group = GROUP_ASK},
    {.name = "check_config", .group = GROUP_CHECK},
    {.name = "help", .letter = 'h'},
    {.name = "module",
     .group = GROUP_REFUSED,
     .refused =
         "zlaunch runs programs, not Python modules; write: zlaunch -- python3 -m NAME"},
    {.name = "venv_script",
     .refused = "zlaunch sources no script; name what it sets with --export"},
    {.name = "autotuning", .refused = "it needs the tuner"},
    {.name = NULL},
};

/* ------------------------------------------------------------------ values to meaning */

static const struct zt_value *value(const struct zt_launch *l, const char *name)
{
    return zt_args_value(l->args, name);
}

static const char *text(const struct zt_launch *l, const char *name)
{
    return value(l, name)->text;
}

static bool flag(const struct zt_launch *l, const char *name)
{
    return value(l, name)->truth;
}

static int integer(const struct zt_launch *l, const char *name, int otherwise)
{
    const struct zt_value *v = value(l, name);

    return v->from == ZT_FROM_DEFAULT ? otherwise : (int)v->integer;
}

static zt_log_level level_of(const char *name)
{
    return strcmp(name, "debug") == 0     ? ZT_LOG_DEBUG
           : strcmp(name, "info") == 0    ? ZT_LOG_INFO
           : strcmp(name, "warning") == 0 ? ZT_LOG_WARN
                                          : ZT_LOG_ERROR;
}

static void fill_reach(struct zt_launch *l, struct zt_report *report)
{
    const char *launcher = text(l, "launcher");

    /* what pdsh does, parallel ssh, is what the ssh starter does by itself */
    l->launcher = strcmp(launcher, "pdsh") == 0 ? "ssh" : launcher;
    l->launcher_args = text(l, "launcher_args");
    l->force_multi = flag(l, "force_multi");
    l->preflight = !flag(l, "no_preflight");
    l->serve_store = flag(l, "serve_store");
    l->node_rank = flag(l, "no_ssh") ? integer(l, "node_rank", -1) : -1;
    l->connect_timeout_s = value(l, "connect_timeout")->real;
    l->exports = text(l, "export");
    l->zworker = text(l, "zworker");
    l->ssh = (struct zt_ssh_options){
        .port = integer(l, "ssh_port", 0),
        .identity = text(l, "ssh_identity"),
        .known_hosts = text(l, "ssh_known_hosts"),
        .check_host_key = !flag(l, "ssh_accept_any_host"),
        .jump = text(l, "ssh_jump"),
        .push = flag(l, "push"),
        .push_dir = text(l, "push_dir"),
        .program = text(l, "ssh_program"),
    };
    if (flag(l, "no_ssh") && l->node_rank < 0)
        zt_report_problem(report, ZT_E_USAGE,
                          "--no_ssh: say which node of the hostfile this is with "
                          "--node_rank");
    if (flag(l, "no_ssh") && !text(l, "master_addr"))
        zt_report_problem(report, ZT_E_USAGE,
                          "--no_ssh: say where rank 0 is with --master_addr");
    if (!flag(l, "no_ssh") && integer(l, "node_rank", -1) >= 0)
        zt_report_problem(report, ZT_E_USAGE, "--node_rank is for --no_ssh");
    if (l->ssh.push_dir && !l->ssh.push)
        zt_report_problem(report, ZT_E_USAGE, "--push_dir is for --push");
}

static void fill_end(struct zt_launch *l, struct zt_report *report)
{
    l->grace_s = value(l, "grace")->real;
    l->timeout_s = value(l, "timeout")->real;
    l->hang_timeout_s = value(l, "hang_timeout")->real;
    l->elastic = flag(l, "elastic_training");
    l->max_restarts = integer(l, "max_restarts", l->elastic ? ELASTIC_RESTARTS : 0);
    l->min_nodes = integer(l, "min_elastic_nodes", -1);
    l->max_nodes = integer(l, "max_elastic_nodes", -1);
    l->save_pid = flag(l, "save_pid");
    if ((l->min_nodes > 0 || l->max_nodes > 0) && !l->elastic)
        zt_report_problem(report, ZT_E_USAGE,
                          "--min_elastic_nodes and --max_elastic_nodes are for "
                          "--elastic_training");
    if (l->max_nodes > 0 && l->min_nodes > l->max_nodes)
        zt_report_problem(report, ZT_E_USAGE,
                          "--min_elastic_nodes %d is more than --max_elastic_nodes %d",
                          l->min_nodes, l->max_nodes);
}

static void fill(struct zt_launch *l, struct zt_report *report)
{
    const char *color = text(l, "color");

    l->hostfile = text(l, "hostfile");
    l->include = text(l, "include");
    l->exclude = text(l, "exclude");
    l->num_nodes = integer(l, "num_nodes", -1);
    l->num_gpus = integer(l, "num_gpus", -1);
    l->master_addr = text(l, "master_addr");
    l->master_port = integer(l, "master_port", 0);
    l->device = text(l, "device");
    l->device_given = value(l, "device")->from != ZT_FROM_DEFAULT;
    l->bind = !flag(l, "no_bind");
    l->core_list = text(l, "bind_core_list");
    l->json = strcmp(text(l, "log_format"), "json") == 0;
    l->verbose = flag(l, "verbose");
    l->level_name = flag(l, "quiet") ? "error" : text(l, "log_level");
    l->level = level_of(l->level_name);
    l->color = strcmp(color, "always") == 0  ? ZT_WHEN_ALWAYS
               : strcmp(color, "never") == 0 ? ZT_WHEN_NEVER
                                             : ZT_WHEN_AUTO;
    l->log_dir = text(l, "enable_each_rank_log");
    if (l->log_dir &&
        strcmp(l->log_dir, "None") == 0) /* as the default is spelled there */
        l->log_dir = NULL;
    l->summary = text(l, "summary");
    l->detach = flag(l, "detach");
    l->log_file = text(l, "log_file");
    l->ctl_job = text(l, "ctl");
    l->attach_job = text(l, "attach");
    if (l->log_file && !l->detach)
        zt_report_problem(report, ZT_E_USAGE, "--log_file is for --detach");
    if (l->ctl_job && l->attach_job)
        zt_report_problem(report, ZT_E_USAGE, "--ctl and --attach do not go together");
    fill_reach(l, report);
    fill_end(l, report);
    if (getenv("KMP_AFFINITY")) { /* that binds threads by itself, and wins */
        l->bind = false;
        if (flag(l, "bind_cores_to_rank") || l->core_list)
            zt_report_problem(report, ZT_E_USAGE,
                              "--%s does not go together with KMP_AFFINITY; unset it",
                              l->core_list ? "bind_core_list" : "bind_cores_to_rank");
    }
    if (flag(l, "no_bind") && (flag(l, "bind_cores_to_rank") || l->core_list))
        zt_report_problem(report, ZT_E_USAGE, "--no_bind does not go together with --%s",
                          l->core_list ? "bind_core_list" : "bind_cores_to_rank");
}

/* --help and its like. */
static bool tell(const struct zt_launch *l)
{
    if (flag(l, "help") || flag(l, "help_all"))
        zt_manual_help(stdout, flag(l, "help_all"));
    else if (flag(l, "version"))
        zt_manual_version(stdout, flag(l, "verbose"));
    else
        return false;
    return true;
}

/* What make install asks for; no option of a person. */
static bool tell_hidden(int argc, char **argv)
{
    bool completion = argc == 3 && strcmp(argv[1], "--print_completion") == 0;

    if (argc == 2 && strcmp(argv[1], "--print_man") == 0)
        zt_manual_man(stdout);
    else if (completion && strcmp(argv[2], "bash") == 0)
        zt_options_print_bash(stdout, "zlaunch", zt_launch_options, zt_launch_extras);
    else if (completion && strcmp(argv[2], "zsh") == 0)
        zt_options_print_zsh(stdout, "zlaunch", zt_launch_options, zt_launch_extras);
    else
        return false;
    return true;
}

static bool ends_in_so(const char *name)
{
    size_t n = strlen(name);

    return n > 3 && strcmp(name + n - 3, ".so") == 0;
}

/* Is "--name" (or its '-' spelling) among the plugin's words? */
static bool behind_target(const struct zt_launch *l, const char *under, const char *dash)
{
    for (int i = 1; l->is_plugin && i < l->target_argc; i++)
        if (strcmp(l->target[i], under) == 0 || strcmp(l->target[i], dash) == 0)
            return true;
    return false;
}

static zt_launch_action choose_action(const struct zt_launch *l)
{
    if (behind_target(l, "--help", "-h"))
        return ZT_LAUNCH_TARGET_HELP;
    if (flag(l, "check_config") || behind_target(l, "--check_config", "--check-config"))
        return ZT_LAUNCH_CHECK_CONFIG;
    if (flag(l, "dry_run") || behind_target(l, "--dry_run", "--dry-run"))
        return ZT_LAUNCH_DRY_RUN;
    return ZT_LAUNCH_RUN;
}

static void parse(struct zt_launch *l, int argc, char **argv, struct zt_report *report)
{
    bool dashes;
    int rest;

    zt_args_read_words(&l->args, 1, argc - 1, argv + 1, &rest, report);
    if (!report->num_problems && tell(l)) {
        l->action = ZT_LAUNCH_TOLD;
        return;
    }
    zt_args_read_env(l->args, report);
    if (report->code != ZT_E_USAGE)
        fill(l, report);
    dashes = argc > rest + 1 && strcmp(argv[rest + 1], "--") == 0;
    l->target = argv + 1 + rest + dashes;
    l->target_argc = argc - 1 - rest - dashes;
    if (report->num_problems)
        return;
    if (flag(l, "report")) {
        l->action = ZT_LAUNCH_REPORT;
        return;
    }
    if (l->ctl_job || l->attach_job) {
        l->action = ZT_LAUNCH_CTL;
        if (l->target_argc > (l->ctl_job ? 1 : 0))
            zt_report_problem(
                report, ZT_E_USAGE, "%s: '%s' is one word too many; options come first",
                l->ctl_job ? "--ctl" : "--attach", l->target[l->ctl_job ? 1 : 0]);
        return;
    }
    if (!l->target_argc) {
        zt_report_problem(
            report, ZT_E_USAGE,
            "no target; what shall run? As in: zlaunch --num_gpus 2 train.so, "
            "or: zlaunch -- program");
        return;
    }
    l->is_plugin = !dashes && !flag(l, "no_python") && ends_in_so(l->target[0]);
    if (l->is_plugin && l->serve_store)
        zt_report_problem(report, ZT_E_USAGE,
                          "--serve_store is for PyTorch programs; ranks of a plugin find "
                          "each other without it");
    l->action = choose_action(l);
}

zt_err zt_launch_open(int argc, char **argv, struct zt_launch **out,
                      struct zt_fault *fault)
{
    struct zt_launch *l = calloc(1, sizeof(*l));
    struct zt_report report;
    zt_err rc;

    if (!l)
        return zt_fault_set(fault, ZT_E_NOMEM, "no memory");
    if (tell_hidden(argc, argv)) {
        l->action = ZT_LAUNCH_TOLD;
        *out = l;
        return ZT_OK;
    }
    zt_report_init(&report, &l->keep);
    rc = zt_args_open(zt_launch_options, zt_launch_extras, &l->args, fault);
    if (!rc) {
        parse(l, argc, argv, &report);
        rc = zt_report_end(&report, fault);
    }
    if (rc) {
        zt_launch_close(l);
        return rc;
    }
    *out = l;
    return ZT_OK;
}

void zt_launch_close(struct zt_launch *launch)
{
    if (!launch)
        return;
    zt_args_close(launch->args);
    zt_keep_release(&launch->keep);
    free(launch);
}
