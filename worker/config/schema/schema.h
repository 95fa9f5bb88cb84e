/*
 * schema.h -- every key a config can have, one row each: its name, type, range, default,
 * what we do with it, and where its value is stored.
 *
 * A row is all there is to write for a key (rows.h has the macros, training.c the most
 * examples):
 *
 *      K("fp16.hysteresis", INT, HONOURED, "2", .range = "[1,2147483647]",
 *        .store = IN_RUN(scaler.hysteresis)),
 *
 *      path, type, status, default as JSON text, then any members of struct zt_key.
 *
 * With .store the value goes to that member of struct zt_run, converted to its type, and
 * to the resolved config with its origin. Nothing else has to be written but the use.
 * What a value is, in this order:
 *   1. the file's, under this path or an older key that names this one in .replaced_by;
 *   2. the run option in .option, when somebody gave it; if the file says something else,
 *      that is reported as a contradiction;
 *   3. the default: .default_rule where it depends on other values, else the option's,
 *      else the row's.
 * "auto" (.flags has ZT_KEY_AUTO) means 2 and 3; .auto_rule names what it becomes instead
 * once the model is known. A value that needs more than that has no .store, and a
 * function of resolve.h's files computes it.
 *
 * Rows of options ("zlaunch.seed") are made from worker/config/options.def.
 * Tables are in the order of the documentation; a section stands before its keys, and a
 * default_rule may use what rows above it have stored. Paths use '.', "<name>" stands for
 * a name the user chooses, "[]" for array elements.
 * Threads: const.
 */
#ifndef WORKER_CONFIG_SCHEMA_SCHEMA_H
#define WORKER_CONFIG_SCHEMA_SCHEMA_H

#include "common/options/struct_member.h"

struct zt_run;

typedef enum zt_key_type {
    ZT_KEY_BOOL,
    ZT_KEY_INT,
    ZT_KEY_FLOAT,
    ZT_KEY_STRING,
    ZT_KEY_ENUM, /* one of `choices`: strings, or numbers where they look like numbers */
    ZT_KEY_ARRAY,
    ZT_KEY_OBJECT,
    ZT_KEY_ANY,
} zt_key_type;

typedef enum zt_key_status {
    ZT_HONOURED, /* does what it says */
    ZT_ALWAYS,   /* holds by design, whatever it says; `why` tells how */
    ZT_IDLE,     /* accepted, checked, and of no effect in this version; `why` */
    ZT_LATER,    /* refused unless default or neutral: not in this version */
    ZT_NEVER,    /* refused unless default or neutral; `why` */
} zt_key_status;

#define ZT_KEY_AUTO     0x01u /* "auto" has a meaning */
#define ZT_KEY_NULL     0x02u /* null is accepted and means: not set */
#define ZT_KEY_STRICT   0x04u /* a section in which "auto" means: drop this key */
#define ZT_KEY_PRESENCE 0x08u /* a section that is on when it is there */
/* LATER, NEVER: of no effect alone; its feature's switch is refused, so that this one is
 * only checked and noted. */
#define ZT_KEY_DETAIL   0x10u
#define ZT_KEY_PER_NODE 0x20u /* may differ between ranks: see ZT_OPTION_PER_NODE */
#define ZT_KEY_ANY_CASE 0x40u /* ENUM: spelled with capitals or without */
#define ZT_KEY_STRINGS  0x80u /* ARRAY: of strings alone */

/* What "auto" becomes once the model is known, and how a reader of the docs is told. */
struct zt_auto_rule {
    const char *text; /* "hidden size squared" */
    double (*value)(double hidden_size);
};

struct zt_key {
    const char *path;
    zt_key_type type;
    zt_key_status status;
    unsigned flags;
    const char *def;       /* JSON text; NULL: none */
    const char *choices;   /* "a|b|c", ENUM */
    const char *range;     /* "[0,1]", "(0,inf)", NULL: any; of an ARRAY's numbers */
    int length;            /* ARRAY with a range: how many numbers */
    const char *option;    /* the run option that says the same; NULL: none */
    const char *auto_text; /* what "auto" means, for the docs, where it is not `option` */
    const struct zt_auto_rule *auto_rule; /* NULL: none */
    /* The default as JSON text, when it depends on what is stored already; NULL: def */
    const char *(*default_rule)(const struct zt_run *run);
    struct zt_struct_member store; /* the member of struct zt_run for the value */
    const char *types;       /* optimizer and scheduler types that take it, "A|B"; with
                              * "A=x" when the default differs from def; NULL: all */
    const char *alias;       /* second accepted last name */
    const char *replaced_by; /* deprecated */
    const char *neutral;     /* "a|b": the values that are accepted, besides def, when not
                              * all are: LATER, NEVER, and HONOURED rows that have it */
    const char *why;
};

/* The rows: one table, in several files for its length. Each ends with a NULL path. */
extern const struct zt_key zt_keys_training[];
extern const struct zt_key zt_keys_zero[];
extern const struct zt_key zt_keys_options[];
extern const struct zt_key zt_keys_features[];
extern const struct zt_key zt_keys_model[];

/* Those of optimizers and schedules, made from the rows of worker/optim at the first call
 * and kept for the life of the process. Any thread. */
const struct zt_key *zt_keys_optim(void);
/* "adamw|adamw_torch": what --optim and --lr_scheduler_type can be, from the same rows. */
const char *zt_optim_names(void);
const char *zt_lr_scheduler_type_names(void);

/* for (k = zt_key_next(NULL); k; k = zt_key_next(k)): all rows. */
const struct zt_key *zt_key_next(const struct zt_key *k);
/* The row with exactly this path; NULL: none. */
const struct zt_key *zt_key_find(const char *path);

#define ZT_KEY_PATH 256

/* A section without documented keys: whatever stands in it is kept as it is. */
bool zt_key_is_free(const struct zt_key *k);
/* "honoured", "always so", "no effect", "not yet", "never" */
const char *zt_key_status_name(zt_key_status status);
const char *zt_key_type_name(zt_key_type type);

#endif
