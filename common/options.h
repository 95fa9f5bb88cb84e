/*
 * options.h -- command lines from tables of struct zt_option, and the pages made of them.
 *
 * One table makes the parser, the help, the man page and the completion, so that they
 * cannot drift apart. Several tables may share a command line (run options and those of a
 * plugin). A value comes from the command line, else from ZLAUNCH_<NAME>, else from the
 * table. All problems of a line are reported together.
 * Ownership: zt_args are allocated here and freed by zt_args_close(); their strings point
 * into argv, the environment and the table, which must live as long.
 * Threads:   parsing reads the environment; parsed args are read-only.
 */
#ifndef COMMON_OPTIONS_H
#define COMMON_OPTIONS_H

#include <stdio.h>

#include "common/fault.h"
#include "include/zlaunch/option.h"

typedef enum zt_origin { ZT_FROM_DEFAULT, ZT_FROM_ENV, ZT_FROM_FLAG } zt_origin;

/* Another spelling of an option; rows end with a NULL name. */
struct zt_option_alias {
    const char *alias, *name;
};

/* An option that is known by name and refused; rows end with a NULL name. */
struct zt_option_refusal {
    const char *name, *why;
};

#define ZT_MAX_OPTION_TABLES 4

struct zt_option_set {
    const struct zt_option *tables[ZT_MAX_OPTION_TABLES]; /* NULL ends them early */
    const struct zt_option_alias *aliases;                /* NULL: none */
    const struct zt_option_refusal *refusals;             /* NULL: none */
};

/*
 * Parse argv[0..argc) (no program name). out[i] belongs to tables[i]. Words that are no
 * option are errors. ZT_E_USAGE with every problem on a line of its own; ZT_E_UNSUPPORTED
 * when the only problems are refusals.
 */
zt_err zt_options_parse(int argc, char **argv, const struct zt_option_set *set,
                        zt_args *out[ZT_MAX_OPTION_TABLES],
                        struct zt_fault *fault) ZT_MUST_CHECK;
void zt_args_close(zt_args *args); /* NULL is fine */

zt_origin zt_args_origin(const zt_args *args, const char *name);
/* A LIST's words, NULL-terminated; never NULL. */
const char *const *zt_args_list(const zt_args *args, const char *name);
/* How the value reads as text; NULL: not set. For printing where it came from. */
const char *zt_args_text(const zt_args *args, const char *name);

/* Add a line to a list of problems in `fault`; the code of the first stays. */
zt_err zt_fault_add(struct zt_fault *fault, zt_err code, const char *fmt, ...)
    ZT_PRINTF(3, 4);

/* A whole number, also "5e8"; a number. false: `text` is not exactly one. */
bool zt_parse_int(const char *text, int64_t *out);
bool zt_parse_float(const char *text, double *out);
bool zt_parse_bool(const char *text, bool *out); /* true, false, 1, 0, yes, no */

/* Pages. Help is wrapped at the terminal's width. */
void zt_options_print_help(FILE *out, const char *title, const struct zt_option *table);
void zt_options_print_man(FILE *out, const struct zt_option *table);

#endif
