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

/* The ranks of a job compare what they were given. This option may differ between them:
 * it names a place in a node's file system, or a resource of the node. */
#define ZT_OPTION_PER_NODE 1u
/* The value is the path of a file or folder: shells complete it as one, and ~/ in front of it is
 * the user's home folder. */
#define ZT_OPTION_PATH 2u

/* Everything but name and kind may be left out. A row's size is in the table's owner
 * (struct zt_plugin, option_bytes). */
struct zt_option {
    const char *name; /* without dashes, words joined by '_'; NULL ends the table */
    zt_option_kind kind;
    const char *value;   /* the word help shows for the value: "N"; NULL: the choices */
    const char *def;     /* default as the user would type it; NULL: none */
    const char *choices; /* CHOICE: "a|b|c" */
    double min, max;     /* INT, FLOAT: inclusive range; both 0: any */
    const char *help;    /* one sentence */
    const char *group;   /* heading in the help; stands at the first option of a group */
    const char *alias;   /* a second name */
    const char *refused; /* known by name, but an error: what to do instead */
    char letter;         /* 'v' for -v */
    unsigned flags;      /* ZT_OPTION_... */
};

/*
 * The plugin's options after parsing. A name that is not in the plugin's table, or one
 * that is of another kind there, ends the run: the call returns false, 0 or NULL, and
 * build() or forward() has failed with a sentence that names the option.
 */
ZT_API bool zt_args_flag(const zt_args *args, const char *name);
ZT_API int64_t zt_args_int(const zt_args *args, const char *name);
ZT_API double zt_args_float(const zt_args *args, const char *name);
/* STRING, CHOICE, and the first word of a LIST; NULL: not set. */
ZT_API const char *zt_args_string(const zt_args *args, const char *name);
/* True when the user gave the option (flag or environment), false when it is the default.
 */
ZT_API bool zt_args_given(const zt_args *args, const char *name);

#ifdef __cplusplus
}
#endif
#endif
