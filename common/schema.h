/*
 * schema.h -- every key a DeepSpeed config can have, one row each, and what we do with
 * it.
 *
 * The table is in the order of the documentation; a section stands before its keys.
 * Paths use '.', "<name>" stands for a name the user chooses, "[]" for array elements.
 * Threads: const.
 */
#ifndef COMMON_SCHEMA_H
#define COMMON_SCHEMA_H

#include "include/zlaunch/types.h"

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

#define ZT_KEY_AUTO     1u /* "auto" has a meaning */
#define ZT_KEY_NULL     2u /* null is accepted and means: not set */
#define ZT_KEY_STRICT   4u /* a section in which "auto" means: drop this key */
#define ZT_KEY_PRESENCE 8u /* a section that is on when it is there and has content */
#define ZT_KEY_DETAIL                                                                    \
    16u /* LATER, NEVER: of no effect alone; its feature's switch is                     \
         * refused, so that this one is only checked and noted */

struct zt_key {
    const char *path;
    zt_key_type type;
    zt_key_status status;
    unsigned flags;
    const char *def;         /* JSON text; NULL: none */
    const char *choices;     /* "a|b|c", ENUM */
    const char *range;       /* "[0,1]", "(0,inf)", NULL: any */
    const char *types;       /* optimizer and scheduler types that take it, "A|B"; with
                              * "A=x" when the default differs from def; NULL: all */
    const char *alias;       /* second accepted last name */
    const char *replaced_by; /* deprecated */
    const char *neutral;     /* "a|b": the values that are accepted, besides def, when not
                              * all are: LATER, NEVER, and HONOURED rows that have it */
    const char *why;
};

/* The rows: one table, in three files for its length. Each ends with a NULL path. */
extern const struct zt_key zt_keys_training[];
extern const struct zt_key zt_keys_features[];
extern const struct zt_key zt_keys_model[];

/* for (k = zt_key_next(NULL); k; k = zt_key_next(k)): all rows. */
const struct zt_key *zt_key_next(const struct zt_key *k);
/* The row with exactly this path; NULL: none. */
const struct zt_key *zt_key_find(const char *path);

#define ZT_KEY_PATH 256

/* A section without documented keys: whatever stands in it is kept as it is. */
bool zt_key_is_free(const struct zt_key *k);
/* Is `text` one of "a|b|c"? */
bool zt_key_in_words(const char *words, const char *text, bool any_case);
/* "honoured", "always so", "no effect", "not yet", "never" */
const char *zt_key_status_name(zt_key_status status);
const char *zt_key_type_name(zt_key_type type);

#endif
