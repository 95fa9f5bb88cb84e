/*
 * env.h -- what the environment and the terminal say: numbers, colour, a live line.
 *
 * Threads: reads the environment; not while another thread changes it.
 */
#ifndef COMMON_ENV_H
#define COMMON_ENV_H

#include "common/fault.h"

typedef enum zt_when { ZT_WHEN_AUTO, ZT_WHEN_ALWAYS, ZT_WHEN_NEVER } zt_when;

/*
 * A decimal integer in [min, max]. Not set or empty: *out stays, ZT_OK. Anything else
 * that is no such number: ZT_E_USAGE naming the variable, its text and the range.
 */
zt_err zt_env_int(const char *name, int64_t min, int64_t max, int64_t *out,
                  struct zt_fault *fault) ZT_MUST_CHECK;

/*
 * Colour on this descriptor? `when` beats all; then NO_COLOR (not empty) and CLICOLOR=0
 * say no, CLICOLOR_FORCE or FORCE_COLOR (not "0") say yes; else a terminal that is not
 * "dumb".
 */
bool zt_env_color(int fd, zt_when when);

/* A line that is redrawn in place? A terminal, not "dumb", and CI is not set. */
bool zt_env_live(int fd);

/* Columns of the terminal, or COLUMNS, or 80. */
int zt_env_columns(int fd);

#endif
