#include "launcher/launch.h"

#include "launcher/manual.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define GROUP_RUN    "Where to run"
#define GROUP_BIND   "Processor cores"
#define GROUP_OUTPUT "Output"
#define GROUP_CHECK  "Looking before running"

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
        name, ZT_OPT_CHOICE, NULL, def, c, 0, 0, help                                    \
    }

#define NO_REMOTE  "remote hosts are not available in this version"
#define NO_ELASTIC "elastic training is not available in this version"

/* Kept in the order of --help; refused ones last. fill() reads them by name. */
const struct zt_launch_option zt_launch_options[] = {
    {INT("num_gpus", 1, 4096,
         "ranks on each node; on the CPU, ranks that share its cores"),
     "num_accelerators", NULL, GROUP_RUN},
    {INT("num_nodes", 1, 1 << 20, "use the first N hosts"), NULL, NULL, GROUP_RUN},
    {TEXT("hostfile", "FILE",
          "hosts, one 'NAME slots=N' a line (default: /job/hostfile if "
          "there is one, else this host)"),
     "H", NULL, GROUP_RUN},
    {TEXT("include", "SPEC", "only these hosts and slots, as in localhost:0,2"), "i",
     NULL, GROUP_RUN},
    {TEXT("exclude", "SPEC", "all but these hosts and slots"), "e", NULL, GROUP_RUN},
    {TEXT("master_addr", "ADDR", "MASTER_ADDR of the ranks (default: 127.0.0.1)"), NULL,
     NULL, GROUP_RUN},
    {INT("master_port", 0, 65535,
         "MASTER_PORT of the ranks (default, and 0: any free one)"),
     NULL, NULL, GROUP_RUN},
    {CHOICE("device", "auto", "auto|cpu|cuda", "what to compute on"), NULL, NULL,
     GROUP_RUN},
    {CHOICE("launcher", "local", "local|pdsh|openmpi|mpich|impi|slurm|mvapich",
            "how nodes are reached"),
     NULL, NULL, GROUP_RUN},
    {FLAG("no_python", "the target is a program to execute, as after '--'"), NULL, NULL,
     GROUP_RUN},
    {FLAG("no_local_rank", "add no --local_rank argument (zlaunch never does)"), NULL,
     NULL, GROUP_RUN},
    {SECONDS("grace", "1", "from SIGTERM to SIGKILL when the job is stopped"), NULL, NULL,
     GROUP_RUN},
    {SECONDS("timeout", "0", "stop the job after this time with exit code 124; 0: never"),
     NULL, NULL, GROUP_RUN},

    {FLAG("bind_cores_to_rank", "bind each rank to its share of the cores (the default)"),
     NULL, NULL, GROUP_BIND},
    {TEXT("bind_core_list", "LIST", "the cores to share, as in 1,3-5,7 (default: all)"),
     NULL, NULL, GROUP_BIND},
    {FLAG("no_bind", "bind no rank; only count threads"), NULL, NULL, GROUP_BIND},

    {FLAG("verbose", "say what is done; with --version: how it was built"), "v", NULL,
     GROUP_OUTPUT},
    {FLAG("quiet", "errors and results only; the same as --log_level error"), "q", NULL,
     GROUP_OUTPUT},
    {CHOICE("log_level", "info", "debug|info|warning|error|critical", "how much to say"),
     NULL, NULL, GROUP_OUTPUT},
    {CHOICE("log_format", "text", "text|json", "json: one object a line on stdout"), NULL,
     NULL, GROUP_OUTPUT},
    {CHOICE("color", "auto", "auto|always|never", "colour of messages"), NULL, NULL,
     GROUP_OUTPUT},
    {TEXT("enable_each_rank_log", "DIR",
          "output of each rank to DIR/<time>_rank<R>.log, nothing on the screen"),
     NULL, NULL, GROUP_OUTPUT},
    {TEXT("report", "FILE", "how the job ended, as one line of JSON"), NULL, NULL,
     GROUP_OUTPUT},
    {FLAG("save_pid", "keep zlaunch's pid in /tmp/<pid>.zlaunch while it runs"), NULL,
     NULL, GROUP_OUTPUT},

    {FLAG("check_config", "print the resolved config and where each value comes from"),
     NULL, NULL, GROUP_CHECK},
    {FLAG("dry_run", "print nodes, ranks, cores, commands and memory; run nothing"), NULL,
     NULL, GROUP_CHECK},
    {FLAG("version", "print the version"), NULL, NULL, GROUP_CHECK},
    {FLAG("help", "print this; behind the target, the target's own options"), "h", NULL,
     GROUP_CHECK},
    {FLAG("help_all", "print also the options this version knows but refuses"), NULL,
     NULL, GROUP_CHECK},
    {FLAG("print_man", "print the man page"), NULL, NULL, NULL},
    {CHOICE("print_completion", NULL, "bash|zsh", "print the shell's completion"), NULL,
     NULL, NULL},

    {FLAG("module", "run a Python module"), NULL,
     "zlaunch runs programs, not Python modules; write: zlaunch -- python3 -m NAME",
     NULL},
    {INT("node_rank", 0, 1 << 20, "index of this node"), NULL, NO_REMOTE, NULL},
    {FLAG("no_ssh", "one zlaunch by hand on each node"), NULL, NO_REMOTE, NULL},
    {FLAG("no_ssh_check", "skip the trial ssh"), NULL, NO_REMOTE, NULL},
    {FLAG("force_multi", "reach one host like many"), NULL, NO_REMOTE, NULL},
    {INT("ssh_port", 1, 65535, "port of ssh"), NULL, NO_REMOTE, NULL},
    {TEXT("launcher_args", "WORDS", "extra words for the launcher"), NULL, NO_REMOTE,
     NULL},
    {TEXT("venv_script", "FILE", "script to source on remote nodes"), NULL, NO_REMOTE,
     NULL},
    {FLAG("elastic_training", "restart with the nodes that are left"), NULL, NO_ELASTIC,
     NULL},
    {INT("min_elastic_nodes", -1, 1 << 20, "fewest nodes"), NULL, NO_ELASTIC, NULL},
    {INT("max_elastic_nodes", -1, 1 << 20, "most nodes"), NULL, NO_ELASTIC, NULL},
    {CHOICE("autotuning", NULL, "tune|run", "search the best config"), NULL,
     "the tuner is not available in this version", NULL},
    {FLAG(NULL, NULL), NULL, NULL, NULL},
};

#define NUM_OPTIONS (sizeof(zt_launch_options) / sizeof(*zt_launch_options) - 1)

/* What was given, before it means anything. */
struct parse {
    const char *value[NUM_OPTIONS]; /* NULL: not given */
    bool from_env[NUM_OPTIONS];
    struct zt_fault *fault;
    zt_err rc; /* the gravest so far: usage before unsupported */
};

/* One more line of complaint; parsing goes on, so that all problems are told at once. */
static void problem(struct parse *p, zt_err rc, const char *fmt, ...) ZT_PRINTF(3, 4);
static void problem(struct parse *p, zt_err rc, const char *fmt, ...)
{
    char was[ZT_FAULT_TEXT] = "", line[1024];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(line, sizeof(line), fmt, ap);
    va_end(ap);
    if (p->rc && p->fault)
        memcpy(was, p->fault->text, sizeof(was));
    if (p->rc != ZT_E_USAGE)
        p->rc = rc;
    zt_fault_set(p->fault, p->rc, "%s%s%s", was, *was ? "\n" : "", line);
}

/* ------------------------------------------------------------------ names */

/* "-" and "_" are the same in a name. */
static bool same_name(const char *a, const char *b, size_t b_bytes)
{
    for (size_t i = 0; i < b_bytes; i++)
        if (!a[i] || (a[i] == '-' ? '_' : a[i]) != (b[i] == '-' ? '_' : b[i]))
            return false;
    return !a[b_bytes];
}

static bool has_alias(const char *aliases, const char *name, size_t n)
{
    return aliases && same_name(aliases, name, n); /* no option has more than one */
}

static int find_option(const char *name, size_t n, bool letter)
{
    for (size_t i = 0; i < NUM_OPTIONS; i++)
        if ((!letter && same_name(zt_launch_options[i].option.name, name, n)) ||
            ((n == 1) == letter && has_alias(zt_launch_options[i].aliases, name, n)))
            return (int)i;
    return -1;
}

/* Edits (insert, delete, replace, swap neighbours) from a to b; names are short. */
static int distance(const char *a, size_t n, const char *b)
{
    enum { MAX = 40 };
    size_t m = strlen(b);
    int d[MAX + 1][MAX + 1];

    if (n > MAX || m > MAX)
        return MAX;
    for (size_t i = 0; i <= n; i++)
        for (size_t j = 0; j <= m; j++) {
            char ca = i && a[i - 1] == '-' ? '_' : i ? a[i - 1] : 0;
            int best;

            if (!i || !j) {
                d[i][j] = (int)(i + j);
                continue;
            }
            best = d[i - 1][j - 1] + (ca != b[j - 1]);
            best = d[i - 1][j] + 1 < best ? d[i - 1][j] + 1 : best;
            best = d[i][j - 1] + 1 < best ? d[i][j - 1] + 1 : best;
            if (i > 1 && j > 1 && ca == b[j - 2] && a[i - 2] == b[j - 1] &&
                d[i - 2][j - 2] + 1 < best)
                best = d[i - 2][j - 2] + 1;
            d[i][j] = best;
        }
    return d[n][m];
}

static void unknown(struct parse *p, const char *word, size_t n)
{
    const char *name = word + strspn(word, "-"), *best = NULL;
    int best_distance = 4;

    n -= (size_t)(name - word);
    for (size_t i = 0; n > 1 && i < NUM_OPTIONS; i++) {
        int d = distance(name, n, zt_launch_options[i].option.name);

        if (d < best_distance && d < (int)n) {
            best_distance = d;
            best = zt_launch_options[i].option.name;
        }
    }
    if (best)
        problem(p, ZT_E_USAGE, "unknown option '%.*s'; did you mean --%s?",
                (int)(n + (size_t)(name - word)), word, best);
    else
        problem(p, ZT_E_USAGE,
                "unknown option '%.*s'; options of the target come behind it",
                (int)(n + (size_t)(name - word)), word);
}

/* ------------------------------------------------------------------ words to values */

/* One option word at argv[i]; the index of the last word that belongs to it. */
static int take_option(struct parse *p, int argc, char **argv, int i)
{
    bool letter = argv[i][1] != '-', clear = false;
    const char *name = argv[i] + (letter ? 1 : 2);
    size_t n = strcspn(name, "=");
    const char *value = name[n] == '=' ? name + n + 1 : NULL;
    int k = find_option(name, n, letter);
    const struct zt_launch_option *o;

    if (k < 0 && !letter && n > 3 && same_name("no_", name, 3)) {
        k = find_option(name + 3, n - 3, false);
        clear = k >= 0 && zt_launch_options[k].option.kind == ZT_OPT_FLAG;
    }
    if (k < 0 || (name[0] && same_name("no_", name, 3) && !clear &&
                  !same_name(zt_launch_options[k].option.name, name, n))) {
        unknown(p, argv[i], n + (letter ? 1 : 2));
        return i;
    }
    o = &zt_launch_options[k];
    if (o->option.kind == ZT_OPT_FLAG) {
        if (clear && value)
            problem(p, ZT_E_USAGE, "--%.*s takes no value", (int)n, name);
        p->value[k] = clear ? "false" : value ? value : "true";
    } else if (value) {
        p->value[k] = value;
    } else if (i + 1 < argc && strcmp(argv[i + 1], "--") != 0) {
        p->value[k] = argv[++i];
    } else {
        problem(p, ZT_E_USAGE, "--%s needs a value", o->option.name);
    }
    if (o->refused)
        problem(p, ZT_E_UNSUPPORTED, "--%s: %s", o->option.name, o->refused);
    return i;
}

/* ZLAUNCH_<NAME> for what the command line does not say. */
static void take_environment(struct parse *p)
{
    for (size_t k = 0; k < NUM_OPTIONS; k++) {
        const struct zt_launch_option *o = &zt_launch_options[k];
        char name[80] = "ZLAUNCH_";
        const char *value;

        if (p->value[k] || !o->group)
            continue;
        for (size_t j = 0; o->option.name[j]; j++)
            name[8 + j] = (char)toupper((unsigned char)o->option.name[j]);
        value = getenv(name);
        if (value && *value) {
            p->value[k] = value;
            p->from_env[k] = true;
        }
    }
}

static bool is_choice(const char *choices, const char *value)
{
    size_t n = strlen(value);

    for (const char *c = choices; n && *c;
         c += c[strcspn(c, "|")] ? strcspn(c, "|") + 1 : strcspn(c, "|"))
        if (strcspn(c, "|") == n && memcmp(c, value, n) == 0)
            return true;
    return false;
}

/* Is the value of the right kind and in range? */
static void check_value(struct parse *p, size_t k)
{
    const struct zt_option *o = &zt_launch_options[k].option;
    const char *v = p->value[k], *from = p->from_env[k] ? " (from the environment)" : "";
    double number;
    char *end;

    if (!v)
        return;
    switch (o->kind) {
    case ZT_OPT_FLAG:
        if (!is_choice("true|false|1|0", v))
            problem(p, ZT_E_USAGE, "--%s is '%s'%s; a flag is true or false", o->name, v,
                    from);
        break;
    case ZT_OPT_INT:
    case ZT_OPT_FLOAT:
        errno = 0;
        number = strtod(v, &end);
        if (!*v || *end || errno || number != number ||
            (o->kind == ZT_OPT_INT && number != (double)(long long)number))
            problem(p, ZT_E_USAGE, "--%s is '%s'%s; a %s is expected", o->name, v, from,
                    o->kind == ZT_OPT_INT ? "whole number" : "number");
        else if (number < o->min || number > o->max)
            problem(p, ZT_E_USAGE, "--%s is %s%s; from %.0f to %.0f is possible", o->name,
                    v, from, o->min, o->max);
        break;
    case ZT_OPT_CHOICE:
        if (!is_choice(o->choices, v))
            problem(p, ZT_E_USAGE, "--%s is '%s'%s; one of %s is expected", o->name, v,
                    from, o->choices);
        break;
    default:
        if (!*v)
            problem(p, ZT_E_USAGE, "--%s is empty%s", o->name, from);
    }
}

/* ------------------------------------------------------------------ values to meaning */

static const char *text(const struct parse *p, const char *name)
{
    int k = find_option(name, strlen(name), false);

    return p->value[k] ? p->value[k] : zt_launch_options[k].option.def;
}

static bool flag(const struct parse *p, const char *name)
{
    const char *v = text(p, name);

    return v && (strcmp(v, "true") == 0 || strcmp(v, "1") == 0);
}

static int integer(const struct parse *p, const char *name, int otherwise)
{
    const char *v = text(p, name);

    return v ? (int)strtod(v, NULL) : otherwise;
}

static zt_log_level level_of(const char *name)
{
    return strcmp(name, "debug") == 0     ? ZT_LOG_DEBUG
           : strcmp(name, "info") == 0    ? ZT_LOG_INFO
           : strcmp(name, "warning") == 0 ? ZT_LOG_WARN
                                          : ZT_LOG_ERROR;
}

static void fill(struct zt_launch *l, struct parse *p)
{
    const char *color = text(p, "color"), *launcher = text(p, "launcher");

    l->hostfile = text(p, "hostfile");
    l->include = text(p, "include");
    l->exclude = text(p, "exclude");
    l->num_nodes = integer(p, "num_nodes", -1);
    l->num_gpus = integer(p, "num_gpus", -1);
    l->master_addr = text(p, "master_addr");
    l->master_port = integer(p, "master_port", 0);
    l->device = text(p, "device");
    l->device_given = p->value[find_option("device", 6, false)] != NULL;
    l->bind = !flag(p, "no_bind");
    l->core_list = text(p, "bind_core_list");
    l->json = strcmp(text(p, "log_format"), "json") == 0;
    l->verbose = flag(p, "verbose");
    l->level_name = flag(p, "quiet") ? "error" : text(p, "log_level");
    l->level = level_of(l->level_name);
    l->color = strcmp(color, "always") == 0  ? ZT_WHEN_ALWAYS
               : strcmp(color, "never") == 0 ? ZT_WHEN_NEVER
                                             : ZT_WHEN_AUTO;
    l->log_dir = text(p, "enable_each_rank_log");
    if (l->log_dir &&
        strcmp(l->log_dir, "None") == 0) /* as the default is spelled there */
        l->log_dir = NULL;
    l->report = text(p, "report");
    l->grace_s = strtod(text(p, "grace"), NULL);
    l->timeout_s = strtod(text(p, "timeout"), NULL);
    l->save_pid = flag(p, "save_pid");
    if (strcmp(launcher, "local") != 0)
        problem(p, ZT_E_UNSUPPORTED, "--launcher %s: %s", launcher, NO_REMOTE);
    if (strcmp(l->device, "cuda") == 0)
        problem(p, ZT_E_UNSUPPORTED,
                "--device cuda: this version has no CUDA backend; use --device cpu");
    if (flag(p, "no_bind") && (flag(p, "bind_cores_to_rank") || l->core_list))
        problem(p, ZT_E_USAGE, "--no_bind does not go together with --%s",
                l->core_list ? "bind_core_list" : "bind_cores_to_rank");
}

/* --help and its like: the first one given is answered. */
static bool tell(const struct parse *p)
{
    const char *shell = text(p, "print_completion");

    if (flag(p, "help") || flag(p, "help_all"))
        zt_manual_help(stdout, flag(p, "help_all"));
    else if (flag(p, "version"))
        zt_manual_version(stdout, flag(p, "verbose"));
    else if (flag(p, "print_man"))
        zt_manual_man(stdout);
    else if (shell && strcmp(shell, "bash") == 0)
        zt_manual_bash(stdout);
    else if (shell && strcmp(shell, "zsh") == 0)
        zt_manual_zsh(stdout);
    else
        return false;
    return true;
}

static bool ends_in_so(const char *name)
{
    size_t n = strlen(name);

    return n > 3 && strcmp(name + n - 3, ".so") == 0;
}

static bool behind_target(const struct zt_launch *l, const char *word)
{
    for (int i = 1; l->is_plugin && i < l->target_argc; i++)
        if (strcmp(l->target[i], word) == 0)
            return true;
    return false;
}

static zt_launch_action choose_action(const struct zt_launch *l, const struct parse *p)
{
    if (behind_target(l, "--help") || behind_target(l, "-h"))
        return ZT_LAUNCH_TARGET_HELP;
    if (flag(p, "check_config") || behind_target(l, "--check_config") ||
        behind_target(l, "--check-config"))
        return ZT_LAUNCH_CHECK_CONFIG;
    if (flag(p, "dry_run") || behind_target(l, "--dry_run") ||
        behind_target(l, "--dry-run"))
        return ZT_LAUNCH_DRY_RUN;
    return ZT_LAUNCH_RUN;
}

zt_err zt_launch_open(int argc, char **argv, struct zt_launch **out,
                      struct zt_fault *fault)
{
    struct zt_launch *l = calloc(1, sizeof(*l));
    struct parse p = {.fault = fault};
    bool dashes = false;
    int i = 1;

    if (!l)
        return zt_fault_set(fault, ZT_E_NOMEM, "no memory");
    for (; i < argc && argv[i][0] == '-' && argv[i][1]; i++) {
        if (strcmp(argv[i], "--") == 0) {
            dashes = true;
            i++;
            break;
        }
        i = take_option(&p, argc, argv, i);
    }
    if (!p.rc && tell(&p)) {
        l->action = ZT_LAUNCH_TOLD;
        *out = l;
        return ZT_OK;
    }
    take_environment(&p);
    for (size_t k = 0; k < NUM_OPTIONS; k++)
        check_value(&p, k);
    l->target = argv + i;
    l->target_argc = argc > i ? argc - i : 0;
    if (!l->target_argc && !p.rc)
        problem(&p, ZT_E_USAGE,
                "no target; what shall run? As in: zlaunch --num_gpus 2 "
                "train.so, or: zlaunch -- program");
    if (p.rc != ZT_E_USAGE)
        fill(l, &p);
    if (p.rc) {
        zt_launch_close(l);
        return p.rc;
    }
    l->is_plugin = !dashes && !flag(&p, "no_python") && ends_in_so(l->target[0]);
    l->action = choose_action(l, &p);
    *out = l;
    return ZT_OK;
}

void zt_launch_close(struct zt_launch *launch)
{
    free(launch);
}
