/*
 * zlaunch: start a training job, watch it, and say how it ended.
 *
 * Reads the command line, makes the plan, and either shows it, hands over to a single
 * zworker (--check_config, --dry_run, a target's own --help), or supervises the job.
 */
#include "common/json/line.h"
#include "common/message/render.h"
#include "common/options/env_names.h"
#include "common/process/job_groups.h"
#include "common/process/shm_files.h"
#include "common/process/limits.h"
#include "common/process/streams.h"
#include "common/proc.h"
#include "launcher/ctl/ctl.h"
#include "launcher/ctl/detach.h"
#include "launcher/launch.h"
#include "launcher/mpirun/mpirun.h"
#include "launcher/plan/estimate.h"
#include "launcher/plan/plan.h"
#include "launcher/report/report.h"
#include "launcher/supervise/supervise.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Each line of `text` as a message, as those of a job are. */
static void say(const struct zt_render_config *how, zt_log_level level, const char *text)
{
    struct zt_render *r;

    if (zt_render_open(how, &r, NULL))
        return;
    for (const char *p = text; *p;) {
        int n = (int)strcspn(p, "\n");

        zt_render_message(r, level, "%.*s", n, p);
        p += n;
        p += *p == '\n';
    }
    zt_render_close(r);
}

static struct zt_render_config screen_of(const struct zt_launch *l, bool json)
{
    return (struct zt_render_config){
        .out_fd = STDOUT_FILENO,
        .err_fd = STDERR_FILENO,
        .json = json,
        .color = zt_env_color(STDERR_FILENO, l ? l->color_when : ZT_WHEN_AUTO),
        .level = ZT_LOG_ERROR,
        .who = "zlaunch",
    };
}

/* The last event of a job that did not begin, or of a question about another one, which has
 * no ranks (-1). */
static json_t *end_event(int exit_code, int ranks, const struct zt_fault *fault)
{
    json_t *end = json_object();

    json_object_set_new(end, "event", json_string("end"));
    json_object_set_new(end, "exit_code", json_integer(exit_code));
    if (ranks >= 0)
        json_object_set_new(end, "ranks", json_integer(ranks));
    if (fault->code)
        json_object_set_new(end, "cause", zt_json_text(fault->text, strlen(fault->text)));
    return end;
}

static void print_end(const struct zt_render_config *how, int exit_code, int ranks,
                      const struct zt_fault *fault)
{
    json_t *end = end_event(exit_code, ranks, fault);
    struct zt_render *r;

    if (zt_render_open(how, &r, NULL) == ZT_OK) {
        zt_render_record(r, end);
        zt_render_close(r);
    }
    json_decref(end);
}

/* Each line of a fault is a separate problem. */
static void say_fault(const struct zt_render_config *how, const struct zt_fault *fault)
{
    say(how, ZT_LOG_ERROR, fault->text);
    if (!how->json && fault->code == ZT_E_USAGE)
        fputs("Try 'zlaunch --help'.\n", stderr);
}

static void write_summary(const char *path, int code, const struct zt_fault *fault)
{
    json_t *end = end_event(code, 0, fault);

    (void)zt_summary_write(path, end, NULL); /* it may be the fault */
    json_decref(end);
}

/* A fault before anything runs. */
static int complain(const struct zt_launch *l, bool json, const struct zt_fault *fault)
{
    struct zt_render_config how = screen_of(l, json);
    int code = zt_err_exit_code(fault->code);

    say_fault(&how, fault);
    if (json)
        print_end(&how, code, 0, fault);
    if (l && l->summary && l->action == ZT_LAUNCH_RUN)
        write_summary(l->summary, code, fault);
    return code;
}

/* What a command line that cannot be read says of an option, as far as it can; NULL: nothing. */
static const char *said_of(int argc, char **argv, const char *name, const char *variable)
{
    const char *value = getenv(variable);
    size_t len = strlen(name);

    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        size_t n = strlen(argv[i]), k = 0;

        if (n > 3 && strcmp(argv[i] + n - 3, ".so") == 0)
            break;
        if (n < len + 2 || strncmp(argv[i], "--", 2) != 0)
            continue;
        while (k < len &&
               (argv[i][2 + k] == name[k] || (argv[i][2 + k] == '-' && name[k] == '_')))
            k++;
        if (k == len && argv[i][2 + k] == '=')
            value = argv[i] + len + 3;
        else if (k == len && !argv[i][2 + k])
            value = i + 1 < argc ? argv[i + 1] : NULL;
    }
    return value;
}

/* Options that are wrong: nothing is known for sure but that. */
static int complain_of_options(int argc, char **argv, const struct zt_fault *fault)
{
    const char *format = said_of(argc, argv, "log_format", "ZLAUNCH_LOG_FORMAT");
    const char *summary = said_of(argc, argv, "summary", "ZLAUNCH_SUMMARY");
    int code = complain(NULL, format && strcmp(format, "json") == 0, fault);
    size_t n = summary ? strlen(summary) : 0;

    /* a value that is missing may have made a plugin of it */
    if (n && *summary != '-' && (n < 3 || strcmp(summary + n - 3, ".so") != 0))
        write_summary(summary, code, fault);
    return code;
}

static void warn(void *ctx, const char *text)
{
    say(ctx, ZT_LOG_WARN, text);
}

/* Rank 0 of a plugin knows the plugin's options as well, and says it itself. */
static void warn_of_environment(const struct zt_launch *l, const struct zt_job_plan *p)
{
    static const struct zt_option *const tables[] = {zt_launch_options,
                                                     zt_target_options};
    static const struct zt_foreign *const foreign[] = {zt_launch_foreign};
    struct zt_render_config how = screen_of(l, l->json);

    how.level = l->level;
    if (p->left_out)
        say(&how, ZT_LOG_WARN, p->left_out);
    if (!p->is_plugin)
        zt_env_names_check(
            &(struct zt_env_readers){
                .tables = tables, .num_tables = 2, .foreign = foreign, .num_foreign = 1},
            warn, &how);
}

static bool is_variable_of(const char *variable, const char *option)
{
    char name[ZT_ENV_NAME_BYTES];

    zt_env_name_of(option ? option : "", name);
    return strcmp(variable, name) == 0;
}

static bool has_option(const struct zt_option *table, const char *variable)
{
    for (; table->name; table++)
        if (is_variable_of(variable, table->name) ||
            is_variable_of(variable, table->alias))
            return true;
    return false;
}

/* ZLAUNCH_NUM_GPUS=2 and its like, of --export and env files: options that are read before. Ranks
 * read theirs, and --device. */
static void warn_of_late_option(const char *item, FILE *out)
{
    char name[ZT_ENV_NAME_BYTES];
    size_t n = strcspn(item, "=");
    const char *own;

    if (n >= sizeof(name))
        return;
    memcpy(name, item, n);
    name[n] = 0;
    own = getenv(name);
    if ((own && strcmp(own, item + n + 1) == 0) || strcmp(name, "ZLAUNCH_DEVICE") == 0 ||
        !has_option(zt_launch_options, name) || has_option(zt_target_options, name))
        return;
    fprintf(out,
            "%s, which --export or an env file sets, has no effect: it is an option of "
            "zlaunch, which reads its own environment and command line\n",
            item);
}

static void warn_of_plan(const struct zt_launch *l, const struct zt_job_plan *p)
{
    struct zt_render_config how = screen_of(l, l->json);
    char *text = NULL;
    size_t bytes;
    FILE *f = open_memstream(&text, &bytes);

    if (!f)
        return;
    how.level = l->level;
    zt_job_plan_warn(p, f);
    for (char **e = p->named; *e; e++)
        warn_of_late_option(*e, f);
    fclose(f);
    say(&how, ZT_LOG_WARN, text ? text : "");
    free(text);
}

/* --save_pid: a file in the user's own folder, there as long as this process is. */
static zt_err make_pid_file(const struct zt_launch *l, struct zt_job_plan *p,
                            struct zt_fault *fault)
{
    char dir[ZT_CTL_PATH];
    int fd;
    zt_err rc;

    if (!l->save_pid)
        return ZT_OK;
    rc = zt_ctl_dir(dir, fault);
    if (rc)
        return zt_fault_context(fault, rc, "--save_pid");
    snprintf(p->pid_file, sizeof(p->pid_file), "%s/%d.pid", dir, (int)getpid());
    unlink(p->pid_file); /* of a process that had this pid before */
    fd = open(p->pid_file, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd >= 0 && dprintf(fd, "%d\n", (int)getpid()) > 0 && close(fd) == 0)
        return ZT_OK;
    return zt_fault_set(fault, ZT_E_CANTCREATE, "--save_pid: %s: %s", p->pid_file,
                        strerror(errno));
}

/* --enable_each_rank_log: no other job that began in this second writes into the same files.
 * Those of other hosts are theirs to make. */
static void choose_log_stamp(struct zt_job_plan *p)
{
    char path[PATH_MAX];
    struct tm tm = {0};
    time_t at;
    int fd;

    if (!p->log_dir || p->only_node > 0 || p->nodes[0].starter != &zt_starter_local ||
        !strptime(p->log_stamp, "%Y%m%d%H%M%S", &tm))
        return;
    tm.tm_isdst = -1;
    at = mktime(&tm);
    (void)mkdir(p->log_dir,
                0777); /* else the daemon makes it, which says what is wrong */
    for (;; at++) {
        localtime_r(&at, &tm);
        strftime(p->log_stamp, sizeof(p->log_stamp), "%Y%m%d%H%M%S", &tm);
        snprintf(path, sizeof(path), "%s/%s_rank0.log", p->log_dir, p->log_stamp);
        fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd >= 0 || errno != EEXIST)
            break;
    }
    if (fd >= 0)
        close(fd);
}

static int run(const struct zt_launch *l, struct zt_job_plan *p, struct zt_fault *fault)
{
    struct zt_render_config screen = screen_of(l, l->json);
    bool is_job = true;
    int code = 0;

    screen.live = !l->json && zt_env_live(STDERR_FILENO);
    screen.tag = p->world > 1;
    screen.level = l->level;

    if (l->detach && p->mpirun)
        return zt_err_exit_code(zt_fault_set(
            fault, ZT_E_USAGE, "--detach: not with --launcher %s", l->launcher));
    if (l->detach && l->reads_lines)
        return zt_err_exit_code(zt_fault_set(
            fault, ZT_E_USAGE,
            "--detach: --interactive reads lines, and nobody types any to such a job"));
    if (l->detach && zt_detach(p->job_id, l->log_file, &screen, &is_job, &code, fault))
        return zt_err_exit_code(fault->code);
    if (!is_job)
        return code;
    if (l->detach) {
        screen.live = screen.color = false;
        screen.one_file = true;
    }
    if (make_pid_file(l, p, fault))
        return zt_err_exit_code(fault->code);
    choose_log_stamp(p);
    warn_of_plan(l, p);
    if (p->mpirun ? zt_mpirun_run(p, &screen, &code, fault)
                  : zt_supervise(p, &screen, l->verbose, &code, fault))
        code = zt_err_exit_code(fault->code);
    if (p->pid_file[0])
        unlink(p->pid_file);
    return code;
}

/* Where srun or mpirun has started several zlaunch, a zworker in the place of one of them is
 * no rank of theirs. */
static void leave_outer_job(void)
{
    static const char *const sizes[] = {"SLURM_STEP_NUM_TASKS", "PMI_SIZE",
                                        "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE",
                                        "PALS_SIZE"};

    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
        unsetenv(sizes[i]);
}

/* The variables that rank 0 would find, of files and --export too: they may be options. */
static bool set_rank_env(const struct zt_job_plan *p)
{
    const struct zt_job_plan_node *n = &p->nodes[0];
    char world[16], local_world[16];
    bool bad = false;
    int num = 0; /* ranks of the nodes that take part */

    for (char **e = p->named; *e; e++)
        bad = putenv(*e) || bad; /* of the plan, which is there until execv() */
    for (int i = 0; i < p->num_nodes && i < p->max_nodes; i++)
        num += p->nodes[i].num_slots;
    snprintf(world, sizeof(world), "%d", num);
    snprintf(local_world, sizeof(local_world), "%d", n->num_slots);
    bad = bad || setenv("RANK", "0", 1) || setenv("LOCAL_RANK", "0", 1) ||
          setenv("WORLD_SIZE", world, 1) || setenv("LOCAL_WORLD_SIZE", local_world, 1);
    if (n->devices && n->starter == &zt_starter_local)
        bad = setenv("CUDA_VISIBLE_DEVICES", n->devices, 1) || bad;
    leave_outer_job();
    for (void *it = json_object_iter(p->env); it;
         it = json_object_iter_next(p->env, it)) {
        const char *value = json_string_value(json_object_iter_value(it));

        bad = bad || (value && setenv(json_object_iter_key(it), value, 1));
    }
    return !bad;
}

/* Replace this process by a zworker that answers as rank 0 and starts nothing; `plans`: with
 * the plan of its memory. */
static int hand_over(const struct zt_job_plan *p, const char *flag, bool plans,
                     struct zt_fault *fault)
{
    int code = zt_streams_end("zlaunch", 0); /* what was printed so far */
    size_t n = 0;
    char **argv;

    if (code)
        return code;
    while (p->argv[n])
        n++;
    argv = calloc(n + 3, sizeof(*argv));
    if (!argv)
        return zt_err_exit_code(zt_fault_set(fault, ZT_E_NOMEM, "no memory"));
    memcpy(argv, p->argv, n * sizeof(*argv));
    if (flag)
        argv[n++] = (char *)flag;
    if (plans)
        argv[n] = (char *)"--dry_run";
    if (!set_rank_env(p)) {
        free(argv);
        return zt_err_exit_code(zt_fault_set(fault, ZT_E_NOMEM, "no memory"));
    }
    /* NOLINTNEXTLINE(clang-analyzer-core.NonNullParamChecker): a plan's argv has words */
    execv(argv[0], argv);
    zt_fault_set(fault, ZT_E_SYSTEM, "cannot run %s: %s", argv[0], strerror(errno));
    free(argv);
    return zt_err_exit_code(fault->code);
}

/* The caller prints the fault. */
static int act(const struct zt_launch *l, struct zt_job_plan *p, struct zt_fault *fault)
{
    switch (l->action) {
    case ZT_LAUNCH_CHECK_CONFIG:
        if (!p->is_plugin) {
            zt_fault_set(
                fault, ZT_E_USAGE,
                "--check_config needs a plugin (TARGET.so); %s is another program",
                l->target[0]);
            return 2;
        }
        return hand_over(p, "--check_config", l->dry_run, fault);
    case ZT_LAUNCH_TARGET_HELP:
        return hand_over(p, NULL, false, fault);
    case ZT_LAUNCH_DRY_RUN:
        if (zt_job_plan_print(p, l->json, stdout, fault))
            return zt_err_exit_code(fault->code);
        if (!p->is_plugin)
            return 0;
        if (!l->json)
            putchar('\n');
        return hand_over(p, NULL, true, fault);
    default:
        return run(l, p, fault);
    }
}

/* What jobs of this user have left here that were killed with all that would clear up. */
static void clear_up(void)
{
    zt_ctl_remove_dead();
    zt_job_groups_remove_stale();
    zt_shm_files_remove_unused();
}

/* --ctl and --attach; their exit codes are not those of the faults they tell. */
static int control_job(const struct zt_launch *l)
{
    struct zt_render_config how = screen_of(l, l->json);
    struct zt_fault fault = {0};
    struct zt_render *r;
    bool ended = false; /* the job's last event is the last one here, too */
    int code;

    how.level = l->level;
    if (zt_render_open(&how, &r, &fault))
        return complain(l, l->json, &fault);
    if (l->attach_job)
        code = zt_ctl_attach(l->attach_job, r, &ended, &fault);
    else
        code = zt_ctl_main(l->ctl_job, l->target_argc, l->target, r, &fault);
    zt_render_drain(r);
    code = zt_streams_lost("zlaunch", zt_render_lost(r), code);
    zt_render_close(r);
    if (fault.code)
        say_fault(&how, &fault);
    if (l->json && !ended)
        print_end(&how, code, -1, &fault);
    clear_up(); /* only now: that the job was killed was the answer */
    return code;
}

static zt_err print_estimate(const struct zt_launch *l, struct zt_fault *fault)
{
    struct zt_estimate e = {.gpus = l->num_gpus ? l->num_gpus : 1,
                            .nodes = l->num_nodes ? l->num_nodes : 1};
    zt_err rc = zt_estimate_parse(l->estimate, &e, fault);

    if (!rc)
        zt_estimate_print(&e, l->json, stdout);
    return rc;
}

int main(int argc, char **argv)
{
    struct zt_launch *launch = NULL;
    struct zt_job_plan *plan = NULL;
    struct zt_fault fault = {0};
    int code = 0;

    /* until the loop of a job handles them (launcher/supervise/stop.c): a batch system may
     * send them at any time, and they must not end what is about to start */
    zt_signal_block_user();
    if (!zt_streams_open())
        return zt_err_exit_code(ZT_E_SYSTEM);
    zt_json_watch_memory();
    if (zt_limits_open_files(ZT_LIMITS_FILES, "zlaunch needs", &fault))
        return complain_of_options(argc, argv, &fault);
    if (zt_launch_open(argc, argv, &launch, &fault))
        return complain_of_options(argc, argv, &fault);
    if (launch->action != ZT_LAUNCH_PRINTED && launch->action != ZT_LAUNCH_CTL)
        clear_up();
    if (launch->action == ZT_LAUNCH_CTL) {
        code = control_job(launch);
    } else if (launch->action == ZT_LAUNCH_REPORT) {
        code = zt_host_report(launch, stdout);
    } else if (launch->action == ZT_LAUNCH_ESTIMATE) {
        if (print_estimate(launch, &fault))
            code = complain(launch, launch->json, &fault);
    } else if (launch->action != ZT_LAUNCH_PRINTED) {
        if (zt_job_plan_open(launch, &plan, &fault) == ZT_OK) {
            warn_of_environment(launch, plan);
            code = act(launch, plan, &fault);
        }
        if (fault.code)
            code = complain(launch, launch->json, &fault);
    }
    zt_job_plan_close(plan);
    zt_launch_close(launch);
    return zt_streams_end("zlaunch", code);
}
