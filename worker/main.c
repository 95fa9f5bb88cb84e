/*
 * zworker: a rank of a job (`zworker TARGET.so ...`), or with --daemon the process that
 * starts and watches the ranks of one node for zlaunch.
 */
#include "worker/config/config.h"
#include "common/log.h"
#include "common/message/metrics.h"
#include "common/process/limits.h"
#include "common/process/streams.h"
#include "worker/config/options.h"
#include "worker/daemon/daemon.h"
#include "worker/engine/report.h"
#include "worker/rank.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "usage: zworker TARGET.so [options]\n"
    "\n"
    "One rank of a training job: loads the plugin and runs it. Its place comes from "
    "RANK, "
    "WORLD_SIZE, LOCAL_RANK and LOCAL_WORLD_SIZE, as zlaunch and other launchers set "
    "them; without them it is a job of one rank. Ranks that torchrun, srun or a script "
    "started meet at MASTER_ADDR, MASTER_PORT; ZLAUNCH_SECRET_FILE names a file (mode "
    "600, 64 hex digits) with the secret that keeps strangers out, "
    "ZLAUNCH_RENDEZVOUS_TIMEOUT the seconds to wait for ranks that have not come (that "
    "of --ddp_timeout).\n"
    "\n"
    "  zworker TARGET.so --help\n"
    "      every option of a run and of the plugin\n"
    "  zworker --version\n"
    "      the version\n"
    "  zworker --daemon\n"
    "      the node daemon; started by zlaunch\n";

/* ZLAUNCH_LOG_LEVEL and ZLAUNCH_LOG_FORMAT, as zlaunch hands its own options down. */
static void init_log(bool daemon)
{
    const char *level = getenv("ZLAUNCH_LOG_LEVEL"),
               *format = getenv("ZLAUNCH_LOG_FORMAT");
    zt_log_level l = ZT_LOG_INFO;

    if (level && strcmp(level, "debug") == 0)
        l = ZT_LOG_DEBUG;
    else if (level && strcmp(level, "warning") == 0)
        l = ZT_LOG_WARN;
    else if (level && (strcmp(level, "error") == 0 || strcmp(level, "critical") == 0))
        l = ZT_LOG_ERROR;
    zt_log_init(l, format && strcmp(format, "json") == 0, daemon ? "daemon" : "zworker");
}

static int print_man(void)
{
    printf(
        ".TH ZWORKER 1 \"\" \"zlaunch %s\" \"User Commands\"\n"
        ".SH NAME\nzworker \\- one rank of a zlaunch job\n"
        ".SH SYNOPSIS\n.B zworker\nTARGET.so [options]\n.SH DESCRIPTION\n"
        "Loads a model plugin and trains, evaluates or generates with it. zlaunch starts "
        "one for each rank; any launcher that sets RANK, WORLD_SIZE, LOCAL_RANK and "
        "LOCAL_WORLD_SIZE can do the same, and without them it is a job of one rank. "
        "Ranks "
        "that torchrun, srun or a script started meet at MASTER_ADDR, MASTER_PORT; "
        "ZLAUNCH_SECRET_FILE names a file (mode 600, 64 hex digits) with the secret that "
        "keeps strangers out, ZLAUNCH_RENDEZVOUS_TIMEOUT the seconds to wait for ranks "
        "that have not come (that of --ddp_timeout). The plugin's own options are shown "
        "by: zworker "
        "TARGET.so \\-\\-help\n"
        ".SH OPTIONS\n",
        ZT_VERSION);
    zt_options_print_man(stdout, zt_run_options());
    printf(".SH \"SEE ALSO\"\n.BR zlaunch (1),\n.BR zlaunch\\-config (5)\n");
    return 0;
}

static int print_report(void)
{
    json_t *o = zt_worker_report();
    bool ok = o && json_dumpf(o, stdout, JSON_COMPACT) == 0 && putchar('\n') != EOF;

    json_decref(o);
    return ok ? 0 : zt_err_exit_code(ZT_E_CANTCREATE);
}

static int run(int argc, char **argv)
{
    const char *first = argc > 1 ? argv[1] : "";

    init_log(strcmp(first, "--daemon") == 0);
    if (strcmp(first, "--daemon") == 0)
        return zt_daemon_main(argc - 1, argv + 1);
    if (strcmp(first, "--help") == 0 || strcmp(first, "-h") == 0) {
        zt_help_print_text(stdout, usage);
        return 0;
    }
    if (strcmp(first, "--version") == 0) {
        printf("zworker %s\n", ZT_VERSION);
        return 0;
    }
    if (strcmp(first, "--print_report") == 0) /* zlaunch --report asks */
        return print_report();
    if (strcmp(first, "--print_man") == 0 && argc == 2)
        return print_man();
    if (strcmp(first, "--print_man") == 0 && strcmp(argv[2], "config") == 0) {
        zt_config_print_man(stdout);
        return 0;
    }
    if (strcmp(first, "--print_man") == 0 && strcmp(argv[2], "markdown") == 0) {
        zt_config_print_markdown(stdout); /* docs/CONFIG.md */
        return 0;
    }
    if (strcmp(first, "--print_man") == 0 && strcmp(argv[2], "names") == 0) {
        zt_run_print_names(stdout); /* docs/NAMES.md */
        return ferror(stdout) ? 73 : 0;
    }
    if (strcmp(first, "--print_man") == 0 && strcmp(argv[2], "metrics") == 0) {
        zt_metrics_print_markdown(stdout); /* docs/METRICS.md */
        return 0;
    }
    return zt_rank_main(argc, argv);
}

int main(int argc, char **argv)
{
    struct zt_fault fault = {0};

    if (!zt_streams_open())
        return zt_err_exit_code(ZT_E_SYSTEM);
    if (zt_limits_open_files(ZT_LIMITS_FILES, "zworker needs", &fault)) {
        fprintf(stderr, "zworker: error: %s\n", fault.text);
        return zt_err_exit_code(fault.code);
    }
    /* a line leaves when it is complete, through a pipe too */
    setvbuf(stdout, NULL, _IOLBF, 0);
    return zt_streams_end("zworker", run(argc, argv));
}
