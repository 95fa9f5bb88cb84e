/*
 * tree.h -- JSON as people write configs: a tree in which everything knows its line.
 *
 * Beyond strict JSON: // and # and block comments, trailing commas, NaN and Infinity. A
 * key that stands twice in an object is a problem that names both places. Numbers keep
 * their source text. Input is capped in size, depth and members.
 * Ownership: nodes and texts live in the zt_text_arena.
 * Threads:   one.
 * Failure:   problems go to the report with file:line:column, as ZT_E_CONFIG.
 */
#ifndef COMMON_JSON_TREE_H
#define COMMON_JSON_TREE_H

#include <stdio.h>

#include "common/problems.h"

#define ZT_JSON_MAX_BYTES   ((size_t)4 << 20)
#define ZT_JSON_MAX_DEPTH   64
#define ZT_JSON_MAX_MEMBERS 4096

typedef enum zt_json_type {
    ZT_JSON_NULL,
    ZT_JSON_BOOL,
    ZT_JSON_NUMBER,
    ZT_JSON_STRING,
    ZT_JSON_ARRAY,
    ZT_JSON_OBJECT,
} zt_json_type;

struct zt_jnode {
    zt_json_type type;
    bool boolean;     /* BOOL */
    const char *text; /* NUMBER: as written; STRING: decoded, without NUL */
    const char *key;  /* in an object */
    int key_line, key_col, line, col;     /* from 1; columns count bytes */
    struct zt_jnode *first, *last, *next; /* children and sibling */
    int num_children;
    const char *comment; /* printed behind the value; NULL: none */
};

/* NULL after a problem that leaves no tree; a duplicate key leaves one. `name` is what
 * messages call the file. Comments and trailing commas become one note each. */
struct zt_jnode *zt_jtree_parse(struct zt_text_arena *arena, const char *name,
                                const char *text, size_t n, struct zt_problems *report);

/* The child with this key, or NULL (also when the node is no object, or NULL). */
struct zt_jnode *zt_jnode_get(const struct zt_jnode *obj, const char *key);
/* "object", "number", ... with its article left out. */
const char *zt_jnode_type_name(const struct zt_jnode *n);
/* Same value: numbers by value, objects whatever the order of keys. */
bool zt_jnode_equal(const struct zt_jnode *a, const struct zt_jnode *b);

/* Making trees. NULL only when memory is out (remembered by the arena). */
struct zt_jnode *zt_jnode_new(struct zt_text_arena *arena, zt_json_type type,
                              const char *text);
struct zt_jnode *zt_jnode_copy(struct zt_text_arena *arena, const struct zt_jnode *from);
void zt_jnode_add(struct zt_jnode *parent, const char *key, struct zt_jnode *child);

/* With two blanks of indent per level and a newline at the end. Nodes with a comment get
 * it behind the value, as "// text". Empty arrays and objects stay on one line. */
void zt_jtree_print(FILE *out, const struct zt_jnode *root);
/* The value in one line, at most n bytes, cut with "..." */
void zt_jnode_brief(const struct zt_jnode *node, char *out, size_t n);

#endif
