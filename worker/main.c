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
#include <strings.h>

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

/* What ZLAUNCH_LOG_LEVEL and ZLAUNCH_LOG_FORMAT may say, which zlaunch sets by its own options, and
 * a user where it has not started us. */
static const char *const levels[] = {"debug", "info",     "warning",
                                     "error", "critical", NULL};
static const char *const formats[] = {"text", "json", NULL};

/* Its index, and from now on it is spelled as that; -1: none of them. */
static int take_word(const char *variable, const char *const *choices, int unset)
{
    const char *text = getenv(variable);

    if (!text || !*text)
        return unset;
    for (int i = 0; choices[i]; i++)
        if (strcasecmp(text, choices[i]) == 0)
            return setenv(variable, choices[i], 1) ? -1 : i;
    return -1;
}

static void init_log(bool daemon)
{
    static const zt_log_level values[] = {ZT_LOG_DEBUG, ZT_LOG_INFO, ZT_LOG_WARN,
                                          ZT_LOG_ERROR, ZT_LOG_ERROR};
    int level = take_word("ZLAUNCH_LOG_LEVEL", levels, 1);

    zt_log_init(level < 0 ? ZT_LOG_INFO : values[level],
                take_word("ZLAUNCH_LOG_FORMAT", formats, 0) == 1,
                daemon ? "daemon" : "zworker");
}

static bool check_word(const char *variable, const char *const *choices)
{
    if (take_word(variable, choices, 0) >= 0)
        return true;
    fprintf(stderr, "zworker: error: %s: \"%s\" is none of", variable, getenv(variable));
    for (int i = 0; choices[i]; i++)
        fprintf(stderr, "%s%s", i ? "|" : " ", choices[i]);
    fputc('\n', stderr);
    return false;
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
    if (!check_word("ZLAUNCH_LOG_LEVEL", levels) ||
        !check_word("ZLAUNCH_LOG_FORMAT", formats))
        return zt_err_exit_code(ZT_E_USAGE);
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
