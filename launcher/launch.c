#include "launcher/launch.h"

#include "common/options/struct_member.h"
#include "launcher/manual.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define ELASTIC_RESTARTS 100 /* as DeepSpeed's elastic agent */

/* ------------------------------------------------------------------ the options */

#define OPTION_FLAG    .kind = ZT_OPT_FLAG
#define OPTION_INT     .kind = ZT_OPT_INT, .value = "N"
#define OPTION_SECONDS .kind = ZT_OPT_FLOAT, .value = "SECONDS"
#define OPTION_STRING  .kind = ZT_OPT_STRING
#define OPTION_CHOICE  .kind = ZT_OPT_CHOICE

const struct zt_option zt_launch_options[] = {
#define OPTION(kind_, name_, ...) {.name = #name_, OPTION_##kind_, __VA_ARGS__},
#include "launcher/options.def"
    {.name = NULL},
};

/* Where they are stored, row by row beside the options. */
static const struct zt_struct_member members[] = {
#define OPTION(kind, name, ...)         ZT_MEMBER_OF(struct zt_launch, name),
#define PLACED(kind, name, member, ...) ZT_MEMBER_OF(struct zt_launch, member),
#include "launcher/options.def"
};

static void store_options(struct zt_launch *l)
{
    for (size_t i = 0; i < sizeof(members) / sizeof(*members); i++)
        zt_struct_member_set(&members[i], l,
                             zt_args_value(l->args, zt_launch_options[i].name));
}

/* ------------------------------------------------------------------ values to meaning */

static const struct zt_enum_word log_levels[] = {
    {"debug", ZT_LOG_DEBUG}, {"info", ZT_LOG_INFO},      {"warning", ZT_LOG_WARN},
    {"error", ZT_LOG_ERROR}, {"critical", ZT_LOG_ERROR}, {.word = NULL},
};

static const struct zt_enum_word colors[] = {
    {"auto", ZT_WHEN_AUTO},
    {"always", ZT_WHEN_ALWAYS},
    {"never", ZT_WHEN_NEVER},
    {.word = NULL},
};

/* The number of a word that the parser has taken: it is one of them. */
static int word_value(const struct zt_enum_word *words, const char *text)
{
    int value = 0;
    bool found = zt_enum_word_find(words, text, &value);

    assert(found);
    (void)found;
    return value;
}

static bool given(const struct zt_launch *l, const char *name)
{
    return zt_args_value(l->args, name)->from != ZT_FROM_DEFAULT;
}

/* What this command line says about ssh; the environment may be that of all jobs. */
static void note_ssh(struct zt_launch *l)
{
    const struct {
        bool asked;
        const char *option;
    } rows[ZT_SSH_OPTIONS] = {
        {l->force_multi, "force_multi"},
        {l->ssh.push, "push"},
        {l->ssh.port > 0, "ssh_port"},
        {l->ssh.identity, "ssh_identity"},
        {l->ssh.known_hosts, "ssh_known_hosts"},
        {l->ssh.jump, "ssh_jump"},
        {l->ssh_accept_any_host, "ssh_accept_any_host"},
        {l->ssh.program, "ssh_program"},
    };
    int n = 0;

    for (int i = 0; i < ZT_SSH_OPTIONS; i++)
        if (rows[i].asked && zt_args_value(l->args, rows[i].option)->from == ZT_FROM_FLAG)
            l->about_ssh[n++] = rows[i].option;
}

static void derive_reach(struct zt_launch *l, struct zt_problems *report)
{
    bool ranked = given(l, "node_rank");

    /* what pdsh does, parallel ssh, is what the ssh starter does by itself */
    if (strcmp(l->launcher, "pdsh") == 0)
        l->launcher = "ssh";
    l->preflight = !l->no_preflight;
    l->ssh.check_host_key = !l->ssh_accept_any_host;
    note_ssh(l);
    if (!l->no_ssh || !ranked)
        l->node_rank = -1;
    if (l->no_ssh && !ranked)
        zt_problems_add(report, ZT_E_USAGE,
                        "--no_ssh: say which node of the hostfile this is with "
                        "--node_rank");
    if (l->no_ssh && !l->master_addr)
        zt_problems_add(report, ZT_E_USAGE,
                        "--no_ssh: say where rank 0 is with --master_addr");
    if (!l->no_ssh && ranked)
        zt_problems_add(report, ZT_E_USAGE, "--node_rank is for --no_ssh");
    if (l->ssh.push_dir && !l->ssh.push)
        zt_problems_add(report, ZT_E_USAGE, "--push_dir is for --push");
}

static void derive_end(struct zt_launch *l, struct zt_problems *report)
{
    if (l->elastic && !given(l, "max_restarts"))
        l->max_restarts = ELASTIC_RESTARTS;
    if ((l->min_nodes > 0 || l->max_nodes > 0) && !l->elastic)
        zt_problems_add(report, ZT_E_USAGE,
                        "--min_elastic_nodes and --max_elastic_nodes are for "
                        "--elastic_training");
    if (l->elastic && l->no_ssh)
        zt_problems_add(report, ZT_E_USAGE,
                        "--elastic_training does not go together with --no_ssh, where "
                        "each zlaunch starts its own node and knows of no other");
    if (l->max_nodes > 0 && l->min_nodes > l->max_nodes)
        zt_problems_add(report, ZT_E_USAGE,
                        "--min_elastic_nodes %d is more than --max_elastic_nodes %d",
                        l->min_nodes, l->max_nodes);
}

static void derive_binding(struct zt_launch *l, struct zt_problems *report)
{
    const char *wish = l->core_list            ? "bind_core_list"
                       : l->bind_cores_to_rank ? "bind_cores_to_rank"
                                               : NULL;
    bool by_openmp = getenv("KMP_AFFINITY"); /* that binds threads by itself, and wins */
    bool unwanted = given(l, "bind_cores_to_rank") && !l->bind_cores_to_rank;

    l->bind = !l->no_bind && !by_openmp && !unwanted;
    if (by_openmp && wish)
        zt_problems_add(report, ZT_E_USAGE,
                        "--%s does not go together with KMP_AFFINITY; unset it", wish);
    if (l->no_bind && wish)
        zt_problems_add(report, ZT_E_USAGE, "--no_bind does not go together with --%s",
                        wish);
}

/* As scripts write them whose variables are empty. */
static void drop_empty(const char **text)
{
    if (*text && !**text)
        *text = NULL;
}

static void check_file_name(const char *path, const char *option,
                            struct zt_problems *report)
{
    if (path && !*path)
        zt_problems_add(report, ZT_E_USAGE,
                        "--%s: it is empty, as a variable that is not set is; name a "
                        "file, or leave it out",
                        option);
}

static void derive(struct zt_launch *l, struct zt_problems *report)
{
    drop_empty(&l->include);
    drop_empty(&l->exclude);
    drop_empty(&l->master_addr);
    l->device_given = given(l, "device");
    l->json = strcmp(l->log_format, "json") == 0;
    l->level_name = l->quiet ? "error" : l->log_level;
    l->level = (zt_log_level)word_value(log_levels, l->level_name);
    l->color_when = (zt_when)word_value(colors, l->color);
    if (l->log_dir &&
        strcmp(l->log_dir, "None") == 0) /* as the default is spelled there */
        l->log_dir = NULL;
    if (l->log_dir && !*l->log_dir)
        zt_problems_add(report, ZT_E_USAGE,
                        "--enable_each_rank_log: the name of the folder is empty, as a "
                        "variable that is not set is");
    check_file_name(l->hostfile, "hostfile", report);
    check_file_name(l->summary, "summary", report);
    check_file_name(l->log_file, "log_file", report);
    if (l->log_file && !l->detach)
        zt_problems_add(report, ZT_E_USAGE, "--log_file is for --detach");
    if (l->ctl_job && l->attach_job)
        zt_problems_add(report, ZT_E_USAGE, "--ctl and --attach do not go together");
    derive_reach(l, report);
    derive_end(l, report);
    derive_binding(l, report);
}

/* --help and its like. */
static bool tell(const struct zt_launch *l)
{
    if (l->help || l->help_all)
        zt_manual_help(stdout, l->help_all);
    else if (l->version)
        zt_manual_version(stdout, l->verbose);
    else
        return false;
    return true;
}

/* What make install asks for; no option of a person. */
static bool tell_hidden(int argc, char **argv)
{
    static const struct zt_completion words = {
        .program = "zlaunch",
        .table = zt_launch_options,
        .behind = zt_target_options,
        .job_words = "zlaunch --ctl list 2>/dev/null | cut -d \" \" -f 1 | tail -n +2",
    };
    bool completion = argc == 3 && strcmp(argv[1], "--print_completion") == 0;

    if (argc == 2 && strcmp(argv[1], "--print_man") == 0)
        zt_manual_man(stdout);
    else if (completion && strcmp(argv[2], "bash") == 0)
        zt_options_print_bash(stdout, &words);
    else if (completion && strcmp(argv[2], "zsh") == 0)
        zt_options_print_zsh(stdout, &words);
    else
        return false;
    return true;
}

static bool ends_in_so(const char *name)
{
    size_t n = strlen(name);

    return n > 3 && strcmp(name + n - 3, ".so") == 0;
}

/* Is the flag "--name" (or its '-' spelling) set among the plugin's words, as it reads them? */
static bool behind_target(const struct zt_launch *l, const char *under, const char *dash)
{
    bool on = false;

    for (int i = 1; l->is_plugin && i < l->target_argc; i++) {
        const char *word = l->target[i], *value;
        size_t n = strcspn(word, "=");

        if (n != strlen(under) ||
            (strncmp(word, under, n) != 0 && strncmp(word, dash, n) != 0))
            continue;
        value = word[n] ? word + n + 1 : i + 1 < l->target_argc ? l->target[i + 1] : "";
        if (!zt_parse_bool(value, &on))
            on = true;
    }
    return on;
}

static bool asks_for_help(const struct zt_launch *l)
{
    for (int i = 1; l->is_plugin && i < l->target_argc; i++)
        if (strcmp(l->target[i], "--help") == 0 || strcmp(l->target[i], "-h") == 0)
            return true;
    return false;
}

/* The value of an option among the plugin's words, the last where it is repeated; NULL: it is not
 * there. */
static const char *value_behind(const struct zt_launch *l, const char *under,
                                const char *dash)
{
    const char *value = NULL;

    for (int i = 1; l->is_plugin && i < l->target_argc; i++) {
        const char *word = l->target[i];
        size_t n = strcspn(word, "=");

        if (n != strlen(under) ||
            (strncmp(word, under, n) != 0 && strncmp(word, dash, n) != 0))
            continue;
        if (word[n])
            value = word + n + 1;
        else if (i + 1 < l->target_argc)
            value = l->target[i + 1];
    }
    return value;
}

static const char *find_run_name(const struct zt_launch *l)
{
    const char *name = value_behind(l, "--run_name", "--run-name");

    return name ? name : getenv("ZLAUNCH_RUN_NAME");
}

/* Ranks that are to run on processors are not counted by GPUs; Trainer's names are among them. */
static void take_device_behind(struct zt_launch *l)
{
    const char *device = value_behind(l, "--device", "--device");

    if (l->device_given) /* the ranks are told, and refuse another */
        return;
    if ((device && strcmp(device, "cpu") == 0) ||
        behind_target(l, "--use_cpu", "--use-cpu") ||
        behind_target(l, "--no_cuda", "--no-cuda"))
        l->device = "cpu";
}

static zt_launch_action choose_action(const struct zt_launch *l)
{
    if (asks_for_help(l))
        return ZT_LAUNCH_TARGET_HELP;
    if (l->check_config || behind_target(l, "--check_config", "--check-config"))
        return ZT_LAUNCH_CHECK_CONFIG;
    if (l->dry_run || behind_target(l, "--dry_run", "--dry-run"))
        return ZT_LAUNCH_DRY_RUN;
    return ZT_LAUNCH_RUN;
}

/* --ctl JOB save weights [DIR] */
static bool saves_weights(const struct zt_launch *l)
{
    return l->ctl_job && l->target_argc >= 2 && strcmp(l->target[0], "save") == 0 &&
           strcmp(l->target[1], "weights") == 0;
}

/* How many words may stand behind the options of --ctl and --attach. */
static int words_taken(const struct zt_launch *l)
{
    return !l->ctl_job ? 0 : saves_weights(l) ? 3 : 1;
}

/* Behind the target it is the ranks that refuse an option of ours: where they run is decided
 * before, and what says that must not be missed. */
static void check_behind(const struct zt_launch *l, struct zt_problems *report)
{
    static const char *const places[] = {"--launcher", "--hostfile", "--num_nodes",
                                         "--num_gpus", "--include",  "--exclude",
                                         "--no_ssh"};

    for (int i = 1; l->hostfile && i < l->target_argc; i++) {
        size_t n = strcspn(l->target[i], "=");
        const char *value =
            l->target[i][n] || i + 1 == l->target_argc || l->target[i + 1][0] == '-'
                ? NULL
                : l->target[i + 1];

        for (size_t k = 0; k < sizeof(places) / sizeof(*places); k++)
            if (n == strlen(places[k]) && strncmp(l->target[i], places[k], n) == 0)
                zt_problems_add(report, ZT_E_USAGE,
                                "%s is an option of zlaunch: write it before the "
                                "target, as in: zlaunch %s%s%s %s",
                                places[k], l->target[i], value ? " " : "",
                                value ? value : "", l->target[0]);
    }
}

/* Beside --ctl, --attach and --estimate, which start no job, nobody shall wait for what these do. */
static void check_beside(const struct zt_launch *l, const char *with,
                         struct zt_problems *report)
{
    static const char *const names[] = {"timeout", "summary", "detach", "dry_run",
                                        "check_config"};

    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        if (zt_args_value(l->args, names[i])->from == ZT_FROM_FLAG)
            zt_problems_add(report, ZT_E_USAGE,
                            "--%s has no effect with --%s, which starts no job: leave it "
                            "out",
                            names[i], with);
}

static void parse(struct zt_launch *l, int argc, char **argv, struct zt_problems *report)
{
    bool dashes;
    int rest;

    zt_args_read_words(&l->args, 1, argc - 1, argv + 1, &rest, report);
    store_options(l);
    if (!report->num_problems && tell(l)) {
        l->action = ZT_LAUNCH_PRINTED;
        return;
    }
    zt_args_read_env(l->args, report);
    store_options(l);
    if (report->code != ZT_E_USAGE)
        derive(l, report);
    dashes = argc > rest + 1 && strcmp(argv[rest + 1], "--") == 0;
    l->target = argv + 1 + rest + dashes;
    l->target_argc = argc - 1 - rest - dashes;
    if (report->num_problems)
        return;
    if (l->target_argc && (l->report || l->estimate))
        zt_problems_add(report, ZT_E_USAGE,
                        "%s runs nothing: leave out '%s' and what is behind it",
                        l->report ? "--report" : "--estimate", l->target[0]);
    if (l->report) {
        l->action = ZT_LAUNCH_REPORT;
        return;
    }
    if (l->estimate) {
        l->action = ZT_LAUNCH_ESTIMATE;
        if (l->hostfile || l->include || l->exclude)
            zt_problems_add(report, ZT_E_USAGE,
                            "%s says which nodes and slots, and --estimate wants numbers "
                            "of them: --num_gpus (of each node) and --num_nodes",
                            l->hostfile  ? "--hostfile"
                            : l->include ? "--include"
                                         : "--exclude");
        else
            check_beside(l, "estimate", report);
        return;
    }
    if (l->ctl_job || l->attach_job) {
        l->action = ZT_LAUNCH_CTL;
        check_beside(l, l->ctl_job ? "ctl" : "attach", report);
        if (l->target_argc > words_taken(l))
            zt_problems_add(report, ZT_E_USAGE,
                            "%s: '%s' is one word too many; options come first",
                            l->ctl_job ? "--ctl" : "--attach", l->target[words_taken(l)]);
        if (saves_weights(l) && l->target_argc == 3 && !*l->target[2])
            zt_problems_add(report, ZT_E_USAGE,
                            "--ctl: 'save weights' into a folder without a name; leave "
                            "it out for the one of --output_dir");
        return;
    }
    if (!l->target_argc) {
        zt_problems_add(
            report, ZT_E_USAGE,
            "no target; what shall run? As in: zlaunch --num_gpus 2 train.so, "
            "or: zlaunch -- program");
        return;
    }
    l->is_plugin = !dashes && !l->no_python && ends_in_so(l->target[0]);
    take_device_behind(l);
    l->reads_lines = behind_target(l, "--interactive", "--interactive");
    if (l->is_plugin && find_run_name(l))
        zt_ctl_run_id(find_run_name(l), l->run_id);
    if (!l->is_plugin && ends_in_so(l->target[0]))
        zt_problems_add(report, ZT_E_USAGE,
                        "%s: a plugin is no program: leave out %s, and zworker loads it",
                        l->target[0], l->no_python ? "--no_python" : "--");
    if (!l->is_plugin && strcmp(l->device, "auto") != 0 &&
        zt_args_value(l->args, "device")->from == ZT_FROM_FLAG)
        zt_problems_add(report, ZT_E_USAGE,
                        "--device %s is for plugins: what %s computes on is its own "
                        "matter; leave it out (with CUDA_VISIBLE_DEVICES= in the "
                        "environment it sees no GPU)",
                        l->device, l->target[0]);
    if (l->is_plugin)
        check_behind(l, report);
    if (l->is_plugin && l->serve_store)
        zt_problems_add(report, ZT_E_USAGE,
                        "--serve_store is for PyTorch programs; ranks of a plugin find "
                        "each other without it");
    l->action = choose_action(l);
}

zt_err zt_launch_open(int argc, char **argv, struct zt_launch **out,
                      struct zt_fault *fault)
{
    struct zt_launch *l = calloc(1, sizeof(*l));
    struct zt_problems report;
    zt_err rc;

    if (!l)
        return zt_fault_set(fault, ZT_E_NOMEM, "no memory");
    if (tell_hidden(argc, argv)) {
        l->action = ZT_LAUNCH_PRINTED;
        *out = l;
        return ZT_OK;
    }
    zt_problems_init(&report, &l->arena);
    rc = zt_args_open(zt_launch_options, &l->args, fault);
    if (!rc) {
        zt_args_know(l->args, &zt_launch_foreign_names);
        parse(l, argc, argv, &report);
        if (zt_args_misuse(l->args))
            zt_problems_add(&report, ZT_E_ARG, "internal error in the options: %s",
                            zt_args_misuse(l->args));
        rc = zt_problems_end(&report, fault);
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
    zt_text_arena_release(&launch->arena);
    free(launch);
}
