/*
 * options.h -- command-line options from tables: the parser, the help, the man page and
 * the completion.
 *
 * A table is an array of struct zt_option (the public header), so that plugins write the
 * same rows.
 * A value comes from the first of: flag, environment (ZLAUNCH_<NAME>), file, default.
 * Ownership: a zt_args owns its values; tables and argv must outlive it.
 * Threads:   const after parsing, then any.
 */
#ifndef COMMON_OPTIONS_OPTIONS_H
#define COMMON_OPTIONS_OPTIONS_H

#include <stdio.h>

#include "common/options/foreign.h"
#include "common/problems.h"
#include "include/zlaunch/option.h"

/* STRING, of items with commas between: an option that is repeated adds to them. */
#define ZT_OPTION_ADDS 0x200u

typedef enum zt_from { ZT_FROM_DEFAULT, ZT_FROM_FILE, ZT_FROM_ENV, ZT_FROM_FLAG } zt_from;

/* One option's value. */
struct zt_value {
    zt_from from;
    const char *where;  /* as messages call it: "--lr", "ZLAUNCH_LR", "default",
                         * "ds.json:3:4: \"zlaunch.lr\"" */
    const char *origin; /* the same; of a file the place alone: "ds.json:3:4" */
    const char *text;   /* NULL: not set */
    bool boolean;
    int64_t integer;
    double real;
    const char *const *list; /* NULL-terminated; LIST only, never NULL there */
};

/* Names are compared with '-' equal to '_'. ZT_E_NOMEM, or ZT_E_ARG when a default of the
 * table breaks its own rules. */
zt_err zt_args_open(const struct zt_option *table, zt_args **out,
                    struct zt_fault *fault) ZT_MUST_CHECK;
void zt_args_close(zt_args *args); /* NULL is fine */

/* Names that are not in the table and known all the same; they must outlive it. */
void zt_args_know(zt_args *args, const struct zt_foreign_names *names);
/* What words have said about keys of the config, in their order. */
const struct zt_foreign_key *zt_args_keys(const zt_args *args);

/*
 * The words of a command line, each option looked for in sets[0], then sets[1], ...
 * Problems go to the report: unknown options (with a suggestion), bad values, refused
 * ones; and notes on foreign names that were taken. The last of repeated options wins; lists
 * and options of ZT_OPTION_ADDS grow. A word that is no option ends the reading when `rest` is not NULL (its index is written there), else it is a problem.
 */
void zt_args_read_words(zt_args *const *sets, int num_sets, int argc, char *const *argv,
                        int *rest, struct zt_problems *report);
/* ZLAUNCH_<NAME>, of a second name too: not for options that a flag has set. Lists are split at
 * ':'. */
void zt_args_read_env(zt_args *args, struct zt_problems *report);
/* A value of a config file: ignored when flag or environment have set the option. */
void zt_args_set_from_file(zt_args *args, const char *name, const char *const *texts,
                           int num_texts, const char *where, const char *origin,
                           struct zt_problems *report);
/* Another default, where a rule has one: ignored when anybody has set the option. */
void zt_args_set_default(zt_args *args, const char *name, const char *text,
                         const char *where, struct zt_problems *report);
/* The value of an option. Never NULL: see zt_args_misuse() for a name that is not in the
 * table. */
const struct zt_value *zt_args_value(const zt_args *args, const char *name);
/*
 * The first time that anybody asked for an option that the table does not have, or read
 * one as another kind than it is: one sentence that names it, and the options there are.
 * NULL: nobody did. Such a call gets an empty value, so whoever has called foreign code
 * looks here before using what came of it. Any thread.
 */
const char *zt_args_misuse(const zt_args *args);
/* The table's name for a name or alias, '-' or '_'; NULL: none. */
const char *zt_args_find(const zt_args *args, const char *name);
const struct zt_option *zt_args_table(const zt_args *args);

/* A whole text as a number: "12", "5e8" when integral; "1e-4". No blanks, no NaN. */
bool zt_parse_int64(const char *text, int64_t *out);
bool zt_parse_double(const char *text, double *out);
/* true, false, yes, no, on, off, 1, 0 in any case. */
bool zt_parse_bool(const char *text, bool *out);
/* The fewest digits that read back as the same double. */
#define ZT_DOUBLE_TEXT 32
void zt_format_double(double value, char out[ZT_DOUBLE_TEXT]);

/* The word that stands for the option's value: the row's, or its choices; NULL: none. */
const char *zt_option_value_word(const struct zt_option *o);
/* Text of a help: each line of it is wrapped at the width of the terminal (of 60 to 110
 * columns), with the indent that it has. */
void zt_help_print_text(FILE *out, const char *text);
/* `title` stands above the table unless it is NULL, then the headings of its groups. */
void zt_options_print_help(FILE *out, const char *title, const struct zt_option *table);
/* Rows of a man page's options section (roff), without its .SH. */
void zt_options_print_man(FILE *out, const struct zt_option *table);
/* What a completion script is made from. */
struct zt_completion {
    const char *program;
    const struct zt_option *table;  /* its options */
    const struct zt_option *behind; /* those behind a word that ends in .so; NULL: none */
    const char *job_words;          /* a command that prints what a value JOB can be */
};
void zt_options_print_bash(FILE *out, const struct zt_completion *c);
void zt_options_print_zsh(FILE *out, const struct zt_completion *c);

#endif
