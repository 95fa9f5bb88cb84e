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

/* All of main() for a program of one command, or of several that argv[1] names: its exit
 * code. It also prints the help, the manual page and the completions. */
int zt_tool_main(const char *program, const char *about, const struct zt_tool *tools,
                 int num, int argc, char **argv);

#endif
