/*
 * private.h -- what the files of this folder share: the inside of a zt_args.
 */
#ifndef COMMON_OPTIONS_PRIVATE_H
#define COMMON_OPTIONS_PRIVATE_H

#include "common/options/foreign.h"
#include "common/options/options.h"

struct zt_args {
    const struct zt_option *table;
    struct zt_value *values; /* one a row of the table */
    struct zt_args_misuse *misuse;
    const struct zt_foreign_names *names;    /* NULL: none */
    struct zt_foreign_key *keys, **keys_end; /* in the order of the words */
    struct zt_text_arena arena;
};

/* '-' is '_'. */
char zt_fold_dash(char c);
/* Do they begin with the same n letters? */
bool zt_name_is_n(const char *name, const char *text, size_t n);
/* Is text[0..n) this name? */
bool zt_name_is(const char *name, const char *text, size_t n);
/* The row with this name or alias; -1: none. */
int zt_args_row(const zt_args *a, const char *text, size_t n);
/* "-" in front of a name of one letter, "--" in front of others. */
const char *zt_foreign_dashes(const struct zt_foreign *f);
/* Is the text a value of this option? */
bool zt_option_takes(const struct zt_option *o, const char *text);
/* Set a row from texts (one, or several for a list) if nothing stronger has set it;
 * false: it stays what it was. */
bool zt_args_set(zt_args *a, int row, const char *const *texts, int num_texts,
                 zt_from from, const char *where, struct zt_problems *report);

#endif
