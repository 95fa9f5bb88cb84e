/*
 * struct_member.h -- where a value goes: a member of a struct, told as data, so that a row of a
 * table says it and one loop stores all of them.
 *
 * The type follows from the member itself; a row cannot get it wrong.
 * Threads: const.
 */
#ifndef COMMON_OPTIONS_STRUCT_MEMBER_H
#define COMMON_OPTIONS_STRUCT_MEMBER_H

#include <stddef.h>

#include "common/options/options.h"

/* A word of a closed list and what it means. The last row has no word. */
struct zt_enum_word {
    const char *word;
    int value;
};

typedef enum zt_struct_member_type {
    ZT_MEMBER_NONE,
    ZT_MEMBER_BOOL,
    ZT_MEMBER_INT,
    ZT_MEMBER_INT64,
    ZT_MEMBER_DOUBLE,
    ZT_MEMBER_STRING, /* const char *, NULL: not set */
    ZT_MEMBER_LIST,   /* const char *const *, ends with NULL */
    ZT_MEMBER_ENUM,   /* an enum, by `words` */
} zt_struct_member_type;

/* All zero: nowhere. */
struct zt_struct_member {
    zt_struct_member_type type;
    size_t offset; /* of the member in its struct */
    const struct zt_enum_word *words;
};

#define ZT_MEMBER_TYPE(lvalue)                                                           \
    _Generic((lvalue), bool                                                              \
             : ZT_MEMBER_BOOL, int                                                        \
             : ZT_MEMBER_INT, int64_t                                                     \
             : ZT_MEMBER_INT64, double                                                    \
             : ZT_MEMBER_DOUBLE, const char *                                             \
             : ZT_MEMBER_STRING, const char *const *                                        \
             : ZT_MEMBER_LIST)

/* Initialisers: member `m` (which may be "a.b") of `type`; of an enum with its words. */
#define ZT_MEMBER_OF(type_, m)                                                           \
    {                                                                                    \
        .type = ZT_MEMBER_TYPE(((type_ *)0)->m), .offset = offsetof(type_, m)            \
    }
#define ZT_ENUM_MEMBER_OF(type_, m, words_)                                              \
    {                                                                                    \
        .type = ZT_MEMBER_ENUM, .offset = offsetof(type_, m), .words = words_            \
    }

/* The number of a word; false: it is none of them. */
bool zt_enum_word_find(const struct zt_enum_word *words, const char *text, int *out);

/* Store an option's value in the struct that `base` points at. A value that was not set
 * is stored as false, 0 or NULL. */
void zt_struct_member_set(const struct zt_struct_member *s, void *base,
                          const struct zt_value *v);

#endif
