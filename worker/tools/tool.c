/* tool.c -- command lines of the small programs. */
#include "worker/tools/tool.h"

#include <string.h>

#include "common/process/streams.h"

static const struct zt_option help_rows[] = {
    {.name = "help", .kind = ZT_OPT_FLAG, .letter = 'h', .help = "print this"},
    {.name = NULL},
};

static void print_help(const struct zt_tool *tool)
{
    char text[1024];

    snprintf(text, sizeof(text), "usage: %s %s [options]\n\n%s.\n\n", tool->name,
             tool->words, tool->about);
    zt_help_print_text(stdout, text);
    zt_options_print_help(stdout, NULL, tool->options);
    zt_options_print_help(stdout, NULL, help_rows);
}

/* Words may stand before, between and behind options. Their number, also of those that are
 * more than any tool takes and not kept. */
static int read_line(zt_args *const sets[2], int argc, char **argv, const char **words,
                     struct zt_problems *report)
{
    int at = 1, num = 0, rest = 0;
    bool dashes = false;

    while (at < argc) {
        if (!dashes) {
            zt_args_read_words(sets, 2, argc - at, argv + at, &rest, report);
            at += rest;
        }
        if (at < argc && !dashes && strcmp(argv[at], "--") == 0) {
            dashes = true;
            at++;
        } else if (at < argc) {
            if (num < ZT_TOOL_MAX_WORDS)
                words[num] = argv[at];
            num++;
            at++;
        }
    }
    return num;
}

static zt_err run_tool(const struct zt_tool *tool, zt_args *const sets[2], int argc,
                       char **argv, struct zt_problems *report, struct zt_fault *fault)
{
    const char *words[ZT_TOOL_MAX_WORDS];
    int num = read_line(sets, argc, argv, words, report);

    if (!report->num_problems && zt_args_flag(sets[1], "help")) {
        print_help(tool);
        return ZT_OK;
    }
    if (!report->num_problems && num > ZT_TOOL_MAX_WORDS)
        zt_problems_add(report, ZT_E_USAGE, "%d names; at most %d are taken at once", num,
                        tool->max_words);
    else if (!report->num_problems && (num < tool->min_words || num > tool->max_words))
        zt_problems_add(report, ZT_E_USAGE, "usage: %s %s [options]; --help says more",
                        tool->name, tool->words);
    if (report->num_problems)
        return zt_problems_end(report, fault);
    return tool->run(sets[0], words, num, fault);
}

/* Parse and run one; argv[0] is the program, or the command. */
static int run_line(const struct zt_tool *tool, int argc, char **argv)
{
    zt_args *sets[2] = {NULL, NULL};
    struct zt_text_arena arena = {0};
    struct zt_problems report;
    struct zt_fault fault = {0};
    zt_err rc;

    zt_problems_init(&report, &arena);
    rc = zt_args_open(tool->options, &sets[0], &fault);
    if (!rc)
        rc = zt_args_open(help_rows, &sets[1], &fault);
    if (!rc)
        rc = run_tool(tool, sets, argc, argv, &report, &fault);
    if (rc && fault.text[0])
        fprintf(stderr, "%s: %s\n", tool->name, fault.text);
    zt_args_close(sets[0]);
    zt_args_close(sets[1]);
    zt_text_arena_release(&arena);
    return rc ? zt_err_exit_code(rc) : 0;
}

/* ---- what packages want ---- */

static void print_man(const char *program, const char *about, const struct zt_tool *tools,
                      int num)
{
    printf(".TH %s 1 \"\" \"zlaunch %s\" \"User Commands\"\n.SH NAME\n%s \\- %s\n",
           program, ZT_VERSION, program, about);
    printf(".SH SYNOPSIS\n");
    for (int i = 0; i < num; i++)
        printf(".B %s\n%s [options]\n.br\n", tools[i].name, tools[i].words);
    for (int i = 0; i < num; i++) {
        printf(".SH \"%s\"\n%s.\n", tools[i].name, tools[i].about);
        zt_options_print_man(stdout, tools[i].options);
    }
    printf(".SH \"SEE ALSO\"\n.BR zlaunch (1)\n");
}

/* Whether argv asks for one of these. */
static bool prints(const char *program, const char *about, const struct zt_tool *tools,
                   int num, int argc, char **argv)
{
    const char *first = argc > 1 ? argv[1] : "", *second = argc > 2 ? argv[2] : "";
    /* a program with several commands completes the options of them all */
    struct zt_option all[128] = {{.name = NULL}};
    struct zt_completion c = {.program = program, .table = all};
    int k = 0;

    for (int i = 0; i < num; i++)
        for (const struct zt_option *o = tools[i].options; o->name && k < 126; o++) {
            int same = 0;

            while (same < k && strcmp(all[same].name, o->name) != 0)
                same++;
            if (same == k)
                all[k++] = *o;
        }
    if (strcmp(first, "--version") == 0)
        printf("%s %s\n", program, ZT_VERSION);
    else if (strcmp(first, "--print_man") == 0)
        print_man(program, about, tools, num);
    else if (strcmp(first, "--print_completion") == 0 && strcmp(second, "bash") == 0)
        zt_options_print_bash(stdout, &c);
    else if (strcmp(first, "--print_completion") == 0 && strcmp(second, "zsh") == 0)
        zt_options_print_zsh(stdout, &c);
    else
        return false;
    return true;
}

/* ---- all of it ---- */

/* The command without its program: "diff" of "zckpt diff". */
static const char *command_of(const struct zt_tool *tool, const char *program)
{
    return tool->name + strlen(program) + 1;
}

static void print_commands(FILE *out, const char *program, const struct zt_tool *tools,
                           int num)
{
    fprintf(out, "usage: %s COMMAND ...\n\n", program);
    for (int i = 0; i < num; i++) {
        char text[1024];

        snprintf(text, sizeof(text), "  %s %s\n      %s.\n", tools[i].name,
                 tools[i].words, tools[i].about);
        zt_help_print_text(out, text);
    }
    fprintf(out, "\n%s COMMAND --help lists its options.\n", program);
}

static int run_command(const char *program, const struct zt_tool *tools, int num,
                       int argc, char **argv)
{
    const char *command = argc > 1 ? argv[1] : "";

    for (int i = 0; i < num; i++)
        if (strcmp(command_of(&tools[i], program), command) == 0)
            return run_line(&tools[i], argc - 1, argv + 1);
    if (strcmp(command, "--help") == 0 || strcmp(command, "-h") == 0) {
        print_commands(stdout, program, tools, num);
        return 0;
    }
    print_commands(stderr, program, tools, num);
    if (*command)
        fprintf(stderr, "\n%s: error: %s is none of these commands\n", program, command);
    return zt_err_exit_code(ZT_E_USAGE);
}

int zt_tool_main(const char *program, const char *about, const struct zt_tool *tools,
                 int num, int argc, char **argv)
{
    int code = 0;

    if (!zt_streams_open())
        return zt_err_exit_code(ZT_E_SYSTEM);
    if (!prints(program, about, tools, num, argc, argv))
        code = num > 1 ? run_command(program, tools, num, argc, argv)
                       : run_line(tools, argc, argv);
    return zt_streams_end(program, code);
}
