/*
 * foreign.h -- names that the programs people come from have: what we do with each, as a
 * table, so that nobody is left with "unknown option".
 *
 * A row is about a name and some of its values. The rows of a name stand together, and
 * the first that fits the value decides:
 *
 *      ALREADY   it is so anyway: accepted, with a note
 *      OPTION    an option of ours says it: set, with the value as it is or .value
 *      KEY       a key of the config says it: handed to whoever reads the config
 *      REFUSED   an error: why, or what to write instead
 *
 * A name that is an option of ours, too, is a row for values that ours does not take.
 *
 * The rows themselves are foreign.def in launcher/ and in worker/config/, which says how
 * they are written.
 * Threads: const.
 */
#ifndef COMMON_OPTIONS_FOREIGN_H
#define COMMON_OPTIONS_FOREIGN_H

#include <stdio.h>

#include "include/zlaunch/option.h"

typedef enum zt_foreign_answer {
    ZT_FOREIGN_ALREADY,
    ZT_FOREIGN_OPTION,
    ZT_FOREIGN_KEY,
    ZT_FOREIGN_REFUSED,
} zt_foreign_answer;

struct zt_foreign {
    const char *name;    /* "rdzv_*": all that begin so; NULL ends the table */
    zt_option_kind kind; /* how many words belong to it: that of the name's first row */
    const char *program; /* whose name it is, where it is not that of the row before */
    const char *values;  /* "a|b", in any case; "(0,1)": numbers between them; NULL: all
                          * others. A flag's: true, false */
    zt_foreign_answer answer;
    const char *to;    /* OPTION: its name; KEY: its path */
    const char *value; /* what it is there; NULL: as it was written */
    double times;      /* the number that was written, times this; 0: as it is */
    char letter;       /* 'm': the name is -m as well */
    const char *why;   /* ALREADY, REFUSED: half a sentence */
};

/* What one side of the target knows of names that are not its options. */
struct zt_foreign_names {
    const struct zt_foreign *rows;  /* NULL: none */
    const struct zt_option *beyond; /* the options of the target's other side; or NULL */
    const char *place;              /* of those: "is an option of ...: write it ..." */
    const char *before, *behind; /* what to type: "zlaunch ", the option, " train.so" */
};

/* A value that belongs to a key of the config. */
struct zt_foreign_key {
    struct zt_foreign_key *next;
    const char *path, *text;
    const char *where; /* as messages call it: "--zero_stage" */
};

/* The first row of the name text[0..n), '-' or '_'; NULL: none. */
const struct zt_foreign *zt_foreign_find(const struct zt_foreign *rows, const char *text,
                                         size_t n);
/* Of a name's rows from its first one: the one for this value; NULL: none. */
const struct zt_foreign *zt_foreign_for(const struct zt_foreign *first,
                                        const char *value);

/* A row from its parts, for who includes a foreign.def; the last part may go on with
 * members. Each ends with a comma. */
#define ZT_FOREIGN_ROW(kind_, name_, values_, answer_)                                   \
    .name = name_, .kind = ZT_OPT_##kind_, .values = values_, .answer = answer_
#define ZT_FOREIGN_ALREADY_ROW(kind_, name_, values_, ...)                               \
    {ZT_FOREIGN_ROW(kind_, name_, values_, ZT_FOREIGN_ALREADY), .why = __VA_ARGS__},
#define ZT_FOREIGN_REFUSED_ROW(kind_, name_, values_, ...)                               \
    {ZT_FOREIGN_ROW(kind_, name_, values_, ZT_FOREIGN_REFUSED), .why = __VA_ARGS__},
#define ZT_FOREIGN_OPTION_ROW(kind_, name_, values_, to_, ...)                           \
    {ZT_FOREIGN_ROW(kind_, name_, values_, ZT_FOREIGN_OPTION), .to = to_,                \
     .value = __VA_ARGS__},
#define ZT_FOREIGN_KEY_ROW(kind_, name_, values_, to_, ...)                              \
    {ZT_FOREIGN_ROW(kind_, name_, values_, ZT_FOREIGN_KEY), .to = to_,                   \
     .value = __VA_ARGS__},
#define ZT_FOREIGN_LACKS_ROWS(name_, ...)                                                \
    ZT_FOREIGN_ALREADY_ROW(FLAG, name_, "false", __VA_ARGS__)                            \
    ZT_FOREIGN_REFUSED_ROW(FLAG, name_, NULL, __VA_ARGS__)

/* The rows for people: as text as wide as the terminal, and as a page of markdown. */
void zt_foreign_print_help(FILE *out, const struct zt_foreign *rows);
/* Of these the ones that set a key of the config, under a heading. */
void zt_foreign_print_keys(FILE *out, const struct zt_foreign *rows);
void zt_foreign_print_markdown(FILE *out, const struct zt_foreign *rows);

#endif
