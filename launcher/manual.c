#include "launcher/manual.h"

#include "common/manpage.h"
#include "launcher/launch.h"

#include <string.h>

#define USAGE "zlaunch [options] TARGET.so [target options]"

static const char intro[] =
    "Train a model plugin on this machine, or start any program as ranks of a job.";

static const struct {
    const char *command, *what;
} examples[] = {
    {"zlaunch --num_gpus 2 gpt2.so --deepspeed ds.json --train_file text.txt",
     "train with two ranks"},
    {"zlaunch --check_config gpt2.so --deepspeed ds.json", "see what a config means"},
    {"zlaunch --num_gpus 4 -- python3 train.py", "start any program as four ranks"},
};

static const struct {
    const char *code, *what;
} exit_codes[] = {
    {"0", "every rank succeeded"},
    {"1-125", "the code of the first rank that failed"},
    {"128+N", "the first rank that failed was killed by signal N"},
    {"2", "bad usage"},
    {"65", "bad config"},
    {"66", "a file is missing: plugin, program, hostfile, data"},
    {"71", "the operating system refused something"},
    {"73", "an output file cannot be made"},
    {"75", "stopped by SIGTERM and saved: start it again"},
    {"78", "the plan is refused: it cannot fit, or needs what this version has not"},
    {"124", "--timeout is over"},
    {"130", "interrupted with Ctrl-C"},
};

#define COUNT(a) (sizeof(a) / sizeof(*(a)))

/* "-q", "--num_accelerators" or nothing */
static void other_name(const struct zt_launch_option *o, char *out, size_t n)
{
    snprintf(out, n, "%s%s",
             !o->aliases     ? ""
             : o->aliases[1] ? "--"
                             : "-",
             o->aliases ? o->aliases : "");
}

static void help_line(FILE *out, const struct zt_launch_option *o)
{
    char sign[96], alias[40], head[160];

    zt_option_signature(&o->option, sign, sizeof(sign));
    other_name(o, alias, sizeof(alias));
    snprintf(head, sizeof(head), "%s%s%s", alias, *alias ? ", " : "", sign);
    fprintf(out, "  %-32s", head);
    if (strlen(head) > 31)
        fprintf(out, "\n  %-32s", "");
    fprintf(out, " %s", o->option.help);
    if (o->option.def && strcmp(o->option.def, "0") != 0)
        fprintf(out, " (default: %s)", o->option.def);
    fputc('\n', out);
}

void zt_manual_help(FILE *out, bool all)
{
    const char *group = NULL;

    fprintf(out, "usage: %s\n       zlaunch [options] -- PROGRAM [arguments]\n\n%s\n",
            USAGE, intro);
    for (const struct zt_launch_option *o = zt_launch_options; o->option.name; o++) {
        if (!o->group)
            continue;
        if (!group || strcmp(group, o->group) != 0)
            fprintf(out, "\n%s:\n", o->group);
        group = o->group;
        help_line(out, o);
    }
    if (all) {
        fprintf(out, "\nKnown, but refused by this version:\n");
        for (const struct zt_launch_option *o = zt_launch_options; o->option.name; o++)
            if (o->refused)
                help_line(out, o);
    }
    fprintf(out,
            "\nEvery option is also read from ZLAUNCH_<NAME> in the environment; '-' and "
            "'_'\nare the same in a name. Options of the target: zlaunch TARGET.so "
            "--help\n\nExamples:\n");
    for (size_t i = 0; i < COUNT(examples); i++)
        fprintf(out, "  %s\n      %s\n", examples[i].command, examples[i].what);
}

void zt_manual_version(FILE *out, bool verbose)
{
    fprintf(out, "zlaunch %s\n", ZT_VERSION);
    if (verbose)
        fprintf(out, "built with compiler %s for %s\nnode starters: local\n", __VERSION__,
#if defined(__x86_64__)
                "x86-64"
#elif defined(__aarch64__)
                "aarch64"
#else
                "another architecture"
#endif
        );
}

/* ------------------------------------------------------------------ man page */

static void man_option(FILE *out, const struct zt_launch_option *o)
{
    char alias[40], why[160];

    other_name(o, alias, sizeof(alias));
    snprintf(why, sizeof(why), "Refused: %s", o->refused ? o->refused : "");
    zt_man_option(out, &o->option, alias, o->refused ? why : NULL);
}

void zt_manual_man(FILE *out)
{
    const char *group = NULL;

    zt_man_title(out, "ZLAUNCH", 1, "User Commands");
    fprintf(out, ".SH NAME\nzlaunch \\- start and watch a distributed training job\n");
    fprintf(out, ".SH SYNOPSIS\n.B zlaunch\n[options] TARGET.so [target options]\n.br\n"
                 ".B zlaunch\n[options] \\-\\- PROGRAM [arguments]\n");
    fprintf(out, ".SH DESCRIPTION\n%s\n", intro);
    fprintf(out,
            "zlaunch starts one daemon on the node and through it one process a rank, "
            "shows their output tagged by rank, and ends them all when one fails. "
            "An option can be spelled with \\- or _, given as \\-\\-name value or "
            "\\-\\-name=value, or set by ZLAUNCH_<NAME> in the environment; the command "
            "line wins.\n");
    for (const struct zt_launch_option *o = zt_launch_options; o->option.name; o++) {
        if (!o->group)
            continue;
        if (!group || strcmp(group, o->group) != 0)
            fprintf(out, ".SH \"%s\"\n", o->group);
        group = o->group;
        man_option(out, o);
    }
    fprintf(out,
            ".SH \"Refused options\"\nKnown by name, not available in this version.\n");
    for (const struct zt_launch_option *o = zt_launch_options; o->option.name; o++)
        if (o->refused)
            man_option(out, o);
    fprintf(out, ".SH \"EXIT STATUS\"\n");
    for (size_t i = 0; i < COUNT(exit_codes); i++) {
        fprintf(out, ".TP\n.B %s\n", exit_codes[i].code);
        zt_man_text(out, exit_codes[i].what);
        fputs(".\n", out);
    }
    fprintf(
        out,
        ".SH ENVIRONMENT\n.TP\n.B ZLAUNCH_ZWORKER\nthe zworker to run, when it is "
        "neither beside zlaunch nor in PATH.\n.TP\n.B NO_COLOR, CLICOLOR, "
        "CLICOLOR_FORCE, CI, TERM\ndecide about colour and the live progress line.\n");
    fprintf(out, ".SH EXAMPLES\n");
    for (size_t i = 0; i < COUNT(examples); i++) {
        fputs(".TP\n.B ", out);
        zt_man_text(out, examples[i].command);
        fputc('\n', out);
        zt_man_text(out, examples[i].what);
        fputs(".\n", out);
    }
    fprintf(out, ".SH \"SEE ALSO\"\n.BR zworker (1),\n.BR zlaunch\\-config (5)\n");
}

/* ------------------------------------------------------------------ completions */

static bool is_file(const struct zt_option *o)
{
    return o->value && (strcmp(o->value, "FILE") == 0 || strcmp(o->value, "DIR") == 0);
}

void zt_manual_bash(FILE *out)
{
    fprintf(out,
            "# bash completion for zlaunch; made by: zlaunch --print_completion bash\n"
            "_zlaunch()\n{\n    local cur=${COMP_WORDS[COMP_CWORD]}\n"
            "    local prev=${COMP_WORDS[COMP_CWORD-1]}\n    case $prev in\n");
    for (const struct zt_launch_option *o = zt_launch_options; o->option.name; o++) {
        if (!o->group || o->option.kind == ZT_OPT_FLAG)
            continue;
        fprintf(out, "    --%s)", o->option.name);
        if (o->option.choices) {
            fputs(" COMPREPLY=($(compgen -W '", out);
            for (const char *c = o->option.choices; *c; c++)
                fputc(*c == '|' ? ' ' : *c, out);
            fputs("' -- \"$cur\")); return ;;\n", out);
        } else if (is_file(&o->option)) {
            fputs(" COMPREPLY=($(compgen -f -- \"$cur\")); return ;;\n", out);
        } else {
            fputs(" return ;;\n", out);
        }
    }
    fprintf(out, "    esac\n    case $cur in\n    -*) COMPREPLY=($(compgen -W '");
    for (const struct zt_launch_option *o = zt_launch_options; o->option.name; o++)
        if (o->group)
            fprintf(out, "--%s ", o->option.name);
    fprintf(out, "' -- \"$cur\")) ;;\n    *) COMPREPLY=($(compgen -f -- \"$cur\")) ;;\n"
                 "    esac\n}\ncomplete -o filenames -F _zlaunch zlaunch\n");
}

/* Text inside [...] of a zsh _arguments word in single quotes. */
static void zsh_text(FILE *out, const char *s)
{
    for (; *s; s++) {
        if (*s == '\'')
            fputs("'\\'", out);
        else if (strchr("[]:\\", *s))
            fputc('\\', out);
        fputc(*s, out);
    }
}

void zt_manual_zsh(FILE *out)
{
    fprintf(out, "#compdef zlaunch\n# made by: zlaunch --print_completion "
                 "zsh\n_arguments -S \\\n");
    for (const struct zt_launch_option *o = zt_launch_options; o->option.name; o++) {
        if (!o->group)
            continue;
        fprintf(out, "  '--%s%s[", o->option.name,
                o->option.kind == ZT_OPT_FLAG ? "" : "=");
        zsh_text(out, o->option.help);
        fputc(']', out);
        if (o->option.choices) {
            fprintf(out, ":%s:(", o->option.name);
            for (const char *c = o->option.choices; *c; c++)
                fputc(*c == '|' ? ' ' : *c, out);
            fputc(')', out);
        } else if (o->option.kind != ZT_OPT_FLAG) {
            fprintf(out, ":%s:%s", o->option.value, is_file(&o->option) ? "_files" : "");
        }
        fputs("' \\\n", out);
    }
    fprintf(out, "  '1:target:_files' '*::target options:_files'\n");
}
