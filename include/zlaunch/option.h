/*
 * option.h -- one command-line option: a row of a table that makes the parser, the help,
 * the man page and the completion.
 *
 * "--name value" and "--name=value" both work, "-" and "_" are the same in a name, and a
 * flag is set by "--name", "--name=true|false" or cleared by "--no_name".
 */
#ifndef ZLAUNCH_OPTION_H
#define ZLAUNCH_OPTION_H

#include <zlaunch/types.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum zt_option_kind {
    ZT_OPT_FLAG,   /* true or false */
    ZT_OPT_INT,    /* int64; "5e8" is accepted when integral */
    ZT_OPT_FLOAT,  /* double */
    ZT_OPT_STRING, /* taken as it is */
    ZT_OPT_CHOICE, /* one of `choices` */
    ZT_OPT_LIST,   /* strings: several words up to the next option; repeatable */
} zt_option_kind;

struct zt_option {
    const char *name; /* without dashes, words joined by '_'; NULL ends the table */
    zt_option_kind kind;
    const char
        *value;      /* the word help shows for the value: "N", "FILE"; NULL for flags */
    const char *def; /* default as the user would type it; NULL: none */
    const char *choices; /* CHOICE: "a|b|c" */
    double min, max;     /* INT, FLOAT: inclusive range; both 0: any */
    const char *help;    /* one sentence */
};

/* The plugin's options after parsing. `name` must be in the plugin's table. */
ZT_API bool zt_args_flag(const zt_args *args, const char *name);
ZT_API int64_t zt_args_int(const zt_args *args, const char *name);
ZT_API double zt_args_float(const zt_args *args, const char *name);
ZT_API const char *zt_args_string(const zt_args *args,
                                  const char *name); /* NULL: not set */
/* True when the user gave the option (flag or environment), false when it is the default.
 */
ZT_API bool zt_args_given(const zt_args *args, const char *name);

#ifdef __cplusplus
}
#endif
#endif
