/*
 * manpage.h -- pieces of a man page (roff), made from tables of options.
 *
 * Threads: any. Failure: as the stream's; ask ferror() at the end.
 */
#ifndef COMMON_MANPAGE_H
#define COMMON_MANPAGE_H

#include "include/zlaunch/option.h"

#include <stdio.h>

/* .TH with name, section and version. */
void zt_man_title(FILE *out, const char *name, int section, const char *manual);

/* Text as it is: '-' and '\' are protected, and so is a line that starts with '.' or '.
 */
void zt_man_text(FILE *out, const char *text);

/* "--num_gpus N", its sentence and its default; `alias` ("-q", "--other") and `more` (one
 * more sentence) may be NULL. */
void zt_man_option(FILE *out, const struct zt_option *o, const char *alias,
                   const char *more);
/* A whole table, up to the row without a name. */
void zt_man_options(FILE *out, const struct zt_option *table);

/* "--name VALUE" as help and man page show it. */
void zt_option_signature(const struct zt_option *o, char *out, size_t out_bytes);

#endif
