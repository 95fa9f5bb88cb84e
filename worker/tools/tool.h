/*
 * tool.h -- what the small programs share: words and options of a command line, help,
 * manual page, completion.
 *
 * Ownership: words belong to argv.
 */
#ifndef WORKER_TOOLS_TOOL_H
#define WORKER_TOOLS_TOOL_H

#include "common/options/options.h"

#define ZT_TOOL_MAX_WORDS 256

/* One program, or one command of a program that has several. */
struct zt_tool {
    const char *name;  /* "zero_to_fp32", "zckpt diff" */
    const char *words; /* "CHECKPOINT_DIR OUTPUT" */
    const char *about; /* what it does, one sentence without a full stop */
    int min_words, max_words;
    const struct zt_option *options;
    zt_err (*run)(const zt_args *args, const char *const *words, int num_words,
                  struct zt_fault *fault);
};

/* Parse and run; the exit code. argv[0] is the program, or the command. */
int zt_tool_main(const struct zt_tool *tool, int argc, char **argv);

/* --print_man, --print_completion bash|zsh, --version, of a program: *exit_code is set and
 * true returned when argv asks for one. The manual lists `num` tools. */
bool zt_tool_prints(const char *program, const char *about, const struct zt_tool *tools,
                    int num, int argc, char **argv, int *exit_code);

#endif
