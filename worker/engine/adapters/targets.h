/*
 * targets.h -- which modules of a model get adapters, said as PEFT's target_modules is.
 *
 *      q_proj v_proj             modules of that name: their path is it, or ends in .NAME
 *      all-linear                the weight of every linear op but the output head
 *      .*\.layers\.[0-3]\..*     a regular expression that is all of a path
 *
 * Ownership: the struct owns its strings.
 * Threads:   one.
 */
#ifndef WORKER_ENGINE_ADAPTERS_TARGETS_H
#define WORKER_ENGINE_ADAPTERS_TARGETS_H

#include "common/fault.h"

#define ZT_ALL_LINEAR "all-linear"

struct zt_regex;

struct zt_targets {
    char **names; /* (num) */
    int num;
    char *pattern; /* of one word that is no name; NULL: names */
    bool all_linear;
    struct zt_regex *regex;
};

/*
 * `words` (num), from `where`: an option, or a file and key. One word alone is a regular
 * expression when it holds one of *+?()[]{}|^$ or a backslash, or always, with `is_regex`.
 * ZT_E_CONFIG: words that are neither. ZT_E_NOMEM.
 */
zt_err zt_targets_open(const char *where, const char *const *words, int num,
                       bool is_regex, struct zt_targets *out,
                       struct zt_fault *fault) ZT_MUST_CHECK;
void zt_targets_close(struct zt_targets *t); /* a zeroed struct is fine */

/* Is the module of this path ("model.layers.0.mlp.up_proj") one of them? all_linear is
 * for the caller to know. */
zt_err zt_targets_match(const struct zt_targets *t, const char *path, bool *is,
                        struct zt_fault *fault) ZT_MUST_CHECK;

/* Is `name` the path, or its last words? */
bool zt_targets_name_ends(const char *path, const char *name);

#endif
