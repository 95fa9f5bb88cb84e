#include "worker/rank.h"

#include <jansson.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/process/backtrace.h"
#include "common/message/event.h"
#include "common/log.h"
#include "common/options/options.h"
#include "common/process/streams.h"
#include "common/proc.h"
#include "store/launch_env.h"
#include "worker/engine/engine.h"
#include "worker/engine/tasks/predict.h"
#include "worker/engine/tasks/results.h"
#include "worker/engine/tasks/task.h"
#include "worker/generate/dialogue.h"
#include "worker/generate/generate.h"
#include "worker/start_notice.h"

/* Our place among the ranks, as whoever started us says it; else alone. */
static zt_err read_place(struct zt_run_facts *f, struct zt_fault *fault)
{
    struct zt_launch_env p;
    zt_err rc = zt_launch_env_read(&p, fault);

    if (rc)
        return rc;
    f->rank = p.rank;
    f->world = p.world;
    f->local_rank = p.local_rank;
    f->local_world = p.local_world ? p.local_world : p.world;
    f->attempt = p.attempt;
    memcpy(f->job, p.job, sizeof(f->job));
    zt_torchrun_follow_agent(&p);
    return ZT_OK;
}

static bool wants_help(int argc, char **argv)
{
    for (int i = 0; i < argc; i++)
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h"))
            return true;
    return false;
}

static void print_help(const char *target, const struct zt_plugin *plugin)
{
    char text[4096], tasks[ZT_TASKS_TEXT];

    zt_plugin_list_tasks(plugin, tasks);
    snprintf(text, sizeof(text), "%s: %s\nIt can be trained for (--task): %s.\n\n",
             target, plugin->summary ? plugin->summary : plugin->name, tasks);
    zt_help_print_text(stdout, text);
    zt_run_print_help(stdout);
    if (plugin->options) {
        char title[128];

        snprintf(title, sizeof(title), "Options of %s", plugin->name);
        putchar('\n');
        zt_options_print_help(stdout, title, plugin->options);
    }
}

static zt_err run_engine(struct zt_engine *e, const struct zt_run *run,
                         struct zt_fault *fault)
{
    zt_err rc = ZT_OK;

    zt_engine_print_summary(e);
    e->rate_texts = zt_generate_scores;
    if (run->do_train)
        rc = zt_engine_train(e, fault);
    else if (run->do_eval)
        rc = zt_engine_evaluate(e, 0, fault);
    if (!rc && (run->do_train || run->merge_adapters) && run->output_dir && !e->stop_code)
        rc = zt_engine_save_at_end(e, fault);
    if (!rc && !e->stop_code)
        rc = zt_results_write(e, fault);
    if (!rc && !e->stop_code)
        rc = zt_results_check(e, fault);
    if (!rc && zt_engine_predicts(e) && !e->stop_code)
        rc = zt_engine_predict(e, fault);
    if (!rc && e->prompts.num && !e->stop_code)
        rc = run->interactive ? zt_converse(e, fault) : zt_generate(e, fault);
    if (!rc)
        rc = zt_engine_write_trace(e, fault);
    if (!rc) /* nobody leaves while a peer still reads its memory */
        rc = zt_barrier(e->comm, fault);
    if (!rc)
        zt_peers_leave(e->peers);
    return rc ? rc : zt_engine_check_saved(e, fault);
}

static void describe_as_json(const struct zt_engine *e, const struct zt_run *run,
                             const struct zt_memory_alternatives *others)
{
    json_t *plan = zt_memory_plan_json(&e->plan, run, e->model);

    if (run->do_train) {
        json_object_set_new(plan, "rates", zt_rates_json(&others->rates));
        json_object_set_new(plan, "alternatives", zt_memory_alternatives_json(others));
    }
    json_dumpf(plan, stdout, JSON_COMPACT);
    putchar('\n');
    json_decref(plan);
}

static void describe_as_text(const struct zt_engine *e, const struct zt_run *run,
                             const struct zt_memory_alternatives *others)
{
    char table[2048];

    zt_memory_plan_print(&e->plan, run, e->model, table, sizeof(table));
    printf("%s\n", table);
    if (run->do_train)
        zt_memory_alternatives_print(others, stdout);
    if (!run->do_train && !run->do_eval && !run->do_predict && !run->generate_tokens)
        puts("This counts the weights alone: with a --train_file it is the plan of a "
             "training.");
}

static bool prints_json(void)
{
    const char *format = getenv("ZLAUNCH_LOG_FORMAT");

    return format && strcmp(format, "json") == 0;
}

/* --check_config and --dry_run: say what would be done, to stdout, from rank 0. */
static zt_err describe(struct zt_engine *e, const struct zt_run *run,
                       struct zt_fault *fault)
{
    bool json = prints_json();
    struct zt_memory_alternatives others = {.num = 0};
    zt_err rc = ZT_OK;

    if (run->rank)
        return ZT_OK;
    zt_memory_plan_warn_of_files(run);
    zt_engine_tell_of_no_effect(run);
    if (run->check_config)
        rc = json ? zt_run_print_config_json(run, stdout, fault)
                  : zt_run_print_config(run, stdout, fault);
    if (rc || (run->check_config && !run->dry_run))
        return rc;
    if (run->do_train)
        rc = zt_engine_find_alternatives(e, &others, fault);
    if (rc)
        return rc;
    if (json)
        describe_as_json(e, run, &others);
    else
        describe_as_text(e, run, &others);
    rc = zt_engine_check_plan(e, fault);
    return rc ? rc : zt_engine_check_folders(e, fault);
}

/* What the config has that is odd or without effect; and all of it if it says so. */
static zt_err remark(const struct zt_run *run, struct zt_fault *fault)
{
    const char *note;

    if (run->rank)
        return ZT_OK;
    for (int i = 0; (note = zt_run_note(run, i)); i++)
        zt_log(run->check_config ? ZT_LOG_INFO : ZT_LOG_DEBUG, "config", "%s", note);
    if (!run->dump_state || run->check_config)
        return ZT_OK;
    return prints_json() ? zt_run_print_config_json(run, stdout, fault)
                         : zt_run_print_config(run, stdout, fault);
}

static void report(zt_err rc, struct zt_fault *fault)
{
    fault->code = rc;
    if (zt_err_is_about_peer(rc))
        usleep(ZT_PEER_FIRST_US);
    zt_event_fail(fault);
    zt_torchrun_report_error(fault);
}

/* Everything up to the first step; *printed: it was the help that was wanted. */
static zt_err start(int argc, char **argv, struct zt_run_facts *facts,
                    struct zt_run **run, struct zt_engine **e, bool *printed,
                    struct zt_fault *fault)
{
    const struct zt_plugin *plugin = NULL;
    zt_err rc;

    zt_event_phase("loading the plugin");
    rc = zt_plugin_load(argv[1], &plugin, fault);
    *printed = !rc && wants_help(argc - 2, argv + 2);
    if (*printed)
        print_help(argv[1], plugin);
    if (rc || *printed)
        return rc;
    zt_event_phase("reading options and config");
    facts->model_options = plugin->options;
    rc = zt_run_open(argc - 2, argv + 2, facts, run, fault);
    return rc ? rc : zt_engine_open(*run, plugin, e, fault);
}

/* Whether this rank says what a long start is at: rank 0, and with --no_ssh, where each node has
 * a zlaunch of its own and no secret of it, the first one of the node. */
static bool tells_of_start(const struct zt_run_facts *facts)
{
    return facts->rank == 0 || (facts->local_rank == 0 && getenv("ZLAUNCH_CONTROL_FD") &&
                                !getenv("ZLAUNCH_SECRET_FD"));
}

/* *stop_code: the exit code of a run that was stopped from outside and ended well. */
static zt_err run_rank(int argc, char **argv, struct zt_run_facts facts, int *stop_code,
                       struct zt_fault *fault)
{
    struct zt_engine *e = NULL;
    struct zt_run *run = NULL;
    bool printed = false;
    char name[32];
    zt_err rc;

    snprintf(name, sizeof(name), "rank %d", facts.rank);
    zt_backtrace_on_quit(name);
    zt_backtrace_on_crash();
    zt_event_open(facts.rank, facts.world);
    if (tells_of_start(&facts))
        zt_start_notice_begin();
    rc = start(argc, argv, &facts, &run, &e, &printed, fault);
    zt_start_notice_end();
    if (printed)
        return ZT_OK;
    if (!rc)
        rc = remark(run, fault);
    if (!rc && (run->check_config || run->dry_run))
        rc = describe(e, run, fault);
    else if (!rc)
        rc = run_engine(e, run, fault);
    if (!rc)
        *stop_code = e->stop_code;
    if (rc) /* first: peers that see this rank leave fail too, and launchers then kill */
        report(rc, fault);
    if (rc)
        zt_engine_abort(e, rc);
    zt_engine_close(e);
    zt_run_close(run);
    return rc;
}

static pid_t at_work; /* the process whose work is not done; 0: none */

/* Whoever calls exit() in the middle of a run must not make it look like a success, nor, by 75, like
 * one that has saved. */
static void on_exit_at_work(int status, void *unused)
{
    struct zt_fault fault = {0};

    (void)unused;
    if (at_work != getpid()) /* it is done, or this is a child of the plugin's */
        return;
    if (status &&
        status != ZT_EXIT_REQUEUE) /* MPI ends processes, too, by what has failed */
        return;
    at_work = 0;
    report(
        zt_fault_set(&fault, ZT_E_PLUGIN,
                     "exit(%d) was called before the work was done, by the plugin or by "
                     "a library that it uses; a plugin reports errors by what it returns",
                     status),
        &fault);
    zt_event_done();
    (void)zt_event_close();
    _exit(zt_err_exit_code(ZT_E_PLUGIN));
}

/* With `ulimit -v` all threads allocate in one arena: each of their own takes 64 MiB of addresses,
 * which the plan does not count, whenever threads happen to allocate at once. */
static void save_addresses(void)
{
    struct rlimit r;

    if (getrlimit(RLIMIT_AS, &r) == 0 && r.rlim_cur != RLIM_INFINITY)
        (void)mallopt(M_ARENA_MAX, 1);
}

int zt_rank_main(int argc, char **argv)
{
    struct zt_run_facts facts = {.program = NULL};
    struct zt_fault fault = {0};
    int stop_code = 0;
    zt_err rc;

    save_addresses();
    /* Both wait until training begins (worker/engine/checkpoint/signals.c): neither ends a
     * rank. zlaunch's daemon has blocked them before. */
    zt_signal_block_user();
    if (argc < 2) {
        fprintf(stderr, "zworker: no model plugin given: zworker train.so [options]\n");
        return zt_err_exit_code(ZT_E_USAGE);
    }
    /* deepspeed puts it before all that a user gives; it is in LOCAL_RANK as well */
    if (argc > 2 && strncmp(argv[1], "--local_rank=", strlen("--local_rank=")) == 0) {
        argv[1] = argv[0];
        argv++;
        argc--;
    }
    if (argv[1][0] == '-') {
        fprintf(stderr,
                "zworker: %s stands where the plugin belongs: zworker train.so [options] "
                "is one rank; options of zlaunch, as --num_gpus, are given to zlaunch\n",
                argv[1]);
        return zt_err_exit_code(ZT_E_USAGE);
    }
    facts.program = argv[1];
    at_work = on_exit(on_exit_at_work, NULL) == 0 ? getpid() : 0;
    rc = read_place(&facts, &fault);
    if (rc) {
        zt_event_open(0, 1); /* so that somebody hears of it */
        report(rc, &fault);
    } else {
        rc = run_rank(argc, argv, facts, &stop_code, &fault);
    }
    at_work = 0;
    zt_event_done();
    return zt_streams_lost("zworker", zt_event_close(),
                           rc ? zt_err_exit_code(rc) : stop_code);
}
