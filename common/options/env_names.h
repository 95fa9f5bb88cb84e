/*
 * env_names.h -- the variables ZLAUNCH_... that something reads: those of options, and the
 * ones that env_names.c lists. Any other is a misspelt one.
 *
 * Threads: reads the environment; not while another thread changes it.
 */
#ifndef COMMON_OPTIONS_ENV_NAMES_H
#define COMMON_OPTIONS_ENV_NAMES_H

#include "include/zlaunch/option.h"

/* ZLAUNCH_<NAME> of an option. */
#define ZT_ENV_NAME_BYTES 128
void zt_env_name_of(const char *option, char out[ZT_ENV_NAME_BYTES]);

/* A sentence for each variable of the environment that begins with ZLAUNCH_ and is neither
 * listed nor of an option of tables[0..num). */
void zt_env_names_check(const struct zt_option *const *tables, int num,
                        void (*tell)(void *ctx, const char *text), void *ctx);

#endif
