#include "launcher/manual.h"

#include "launcher/launch.h"
#include "launcher/start/start.h"

#include <string.h>

#if defined(__x86_64__)
#define ZT_ARCHITECTURE "x86-64"
#elif defined(__aarch64__)
#define ZT_ARCHITECTURE "aarch64"
#else
#define ZT_ARCHITECTURE "another architecture"
#endif

#define USAGE "zlaunch [options] TARGET.so [target options]"

static const char intro[] =
    "Train a model plugin, or start any program as ranks of a job, on this machine or on "
    "several. Ranks have no standard input: it is /dev/null.";

static const struct {
    const char *command, *what;
} examples[] = {
    {"zlaunch --num_gpus 2 gpt2.so --do_train --train_file a.txt",
     "train with two ranks"},
    {"zlaunch --check_config gpt2.so --deepspeed ds.json", "see what a config means"},
    {"zlaunch --num_gpus 4 -- python3 train.py", "start any program as four ranks"},
    {"zlaunch --hostfile hosts --max_restarts 3 gpt2.so ...",
     "train on the hosts of a file, by ssh; start again when something fails"},
};

static const struct {
    const char *code, *what;
} exit_codes[] = {
    {"0", "every rank succeeded"},
    {"1-125", "the code of the first rank that failed"},
    {"128+N",
     "signal N killed the first rank that failed, or stopped the job: 129 SIGHUP, 141 "
     "nobody reads the output, 143 SIGTERM without a checkpoint"},
    {"1", "training could not go on, or the job turned a request of --ctl down"},
    {"2", "bad usage"},
    {"65", "a config, hostfile, data, weights or the numbers of a model are wrong"},
    {"66", "a file is missing: plugin, program, hostfile, data"},
    {"69", "a host cannot be reached, or was lost; or a connection between ranks was"},
    {"70", "a plugin, or zlaunch itself, made a mistake"},
    {"71", "the operating system refused something"},
    {"73", "something cannot be written"},
    {"75", "stopped by SIGTERM, SIGUSR1 or --ctl, and saved: start it again"},
    {"78", "the plan is refused: it cannot fit, or needs what this version has not"},
    {"124", "--timeout or --hang_timeout is over"},
    {"130", "interrupted with Ctrl-C"},
};

#define COUNT(a) (sizeof(a) / sizeof(*(a)))

void zt_manual_help(FILE *out, bool all)
{
    fprintf(out, "usage: %s\n       zlaunch [options] -- PROGRAM [arguments]\n\n", USAGE);
    zt_help_print_text(out, intro);
    fputc('\n', out);
    zt_options_print_help(out, NULL, zt_launch_options);
    if (all)
        zt_foreign_print_help(out, zt_launch_foreign);
    zt_help_print_text(
        out, "\nEvery option but --help, --help_all and --version is also read from "
             "ZLAUNCH_<NAME> in the environment; '-' and '_' are the same in a name. "
             "Options of the target: zlaunch TARGET.so "
             "--help\n\nExamples:\n");
    for (size_t i = 0; i < COUNT(examples); i++) {
        char text[256];

        snprintf(text, sizeof(text), "  %s\n      %s\n", examples[i].command,
                 examples[i].what);
        zt_help_print_text(out, text);
    }
}

void zt_manual_version(FILE *out, bool verbose)
{
    const struct zt_starter *starter;

    fprintf(out, "zlaunch %s\n", ZT_VERSION);
    if (!verbose)
        return;
    fprintf(out, "built with compiler %s for %s\nnode starters:", __VERSION__,
            ZT_ARCHITECTURE);
    for (size_t i = 0; (starter = zt_starter_at(i)); i++)
        fprintf(out, " %s", starter->name);
    fputc('\n', out);
}

/* ------------------------------------------------------------------ man page */

/* Text for roff, where '-' alone is a hyphen. */
static void roff(FILE *out, const char *s)
{
    for (; *s; s++)
        fprintf(out, *s == '-' ? "\\-" : "%c", *s);
}

void zt_manual_man(FILE *out)
{
    fprintf(out, ".TH ZLAUNCH 1 \"\" \"zlaunch %s\" \"User Commands\"\n", ZT_VERSION);
    fprintf(out, ".SH NAME\nzlaunch \\- start and watch a distributed training job\n");
    fprintf(out, ".SH SYNOPSIS\n.B zlaunch\n[options] TARGET.so [target options]\n.br\n"
                 ".B zlaunch\n[options] \\-\\- PROGRAM [arguments]\n");
    fprintf(out, ".SH DESCRIPTION\n%s\n", intro);
    fprintf(
        out,
        "zlaunch starts one daemon on each node and through it one process a rank, "
        "shows their output tagged by rank, and ends them all when one fails. "
        "SIGUSR1 asks the ranks of a plugin for a checkpoint and the end (exit code 75 "
        "where the run saves, else nothing happens); to other programs SIGUSR1 and "
        "SIGUSR2 are passed on. SIGQUIT (Ctrl\\-\\e) shows what "
        "every rank is doing. "
        "An option can be spelled with \\- or _, given as \\-\\-name value or "
        "\\-\\-name=value, or set by ZLAUNCH_<NAME> in the environment; the command "
        "line wins.\n");
    fprintf(out, ".SH OPTIONS\n");
    zt_options_print_man(out, zt_launch_options);
    fprintf(out, ".SH \"EXIT STATUS\"\n");
    for (size_t i = 0; i < COUNT(exit_codes); i++) {
        fprintf(out, ".TP\n.B %s\n", exit_codes[i].code);
        roff(out, exit_codes[i].what);
        fputs(".\n", out);
    }
    fprintf(
        out,
        ".SH ENVIRONMENT\n.TP\n.B ZLAUNCH_PLUGIN_PATH\nfolders to look for a plugin in "
        "that is given by its name alone, with ':' between; after them come those of the "
        "plugins that ship.\n.TP\n.B ZLAUNCH_ZWORKER\nthe zworker to run, in place of "
        "the one beside zlaunch or in PATH; on other hosts as \\-\\-zworker.\n.TP\n.B "
        "NO_COLOR, CLICOLOR, "
        "CLICOLOR_FORCE, CI, TERM\ndecide about colour and the live progress line.\n");
    fprintf(out, ".SH EXAMPLES\n");
    for (size_t i = 0; i < COUNT(examples); i++) {
        fputs(".TP\n.B ", out);
        roff(out, examples[i].command);
        fputc('\n', out);
        roff(out, examples[i].what);
        fputs(".\n", out);
    }
    fprintf(out, ".SH \"SEE ALSO\"\n.BR zworker (1),\n.BR zlaunch\\-config (5)\n");
}
