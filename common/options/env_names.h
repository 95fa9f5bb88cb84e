/*
 * env_names.h -- the variables ZLAUNCH_... that something reads: those of options, and the
 * ones that env_names.c lists. Any other is a misspelt one.
 *
 * Threads: reads the environment; not while another thread changes it.
 */
#ifndef COMMON_OPTIONS_ENV_NAMES_H
#define COMMON_OPTIONS_ENV_NAMES_H

#include "common/options/foreign.h"

/* ZLAUNCH_<NAME> of an option. */
#define ZT_ENV_NAME_BYTES 128
void zt_env_name_of(const char *option, char out[ZT_ENV_NAME_BYTES]);

/* Whose names they are. */
struct zt_env_readers {
    const struct zt_option *const *tables; /* options: names and second names */
    int num_tables;
    const struct zt_foreign *const *foreign; /* known, but on command lines alone */
    int num_foreign;
};

/* A sentence for each variable of the environment that begins with ZLAUNCH_ and that nothing
 * reads. */
void zt_env_names_check(const struct zt_env_readers *readers,
                        void (*tell)(void *ctx, const char *text), void *ctx);

#endif
