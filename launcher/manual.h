/*
 * manual.h -- what is written from the table of options: help, man page, completions.
 */
#ifndef LAUNCHER_MANUAL_H
#define LAUNCHER_MANUAL_H

#include <stdbool.h>
#include <stdio.h>

/* The pages; `all`: with the names of other launchers. */
void zt_manual_help(FILE *out, bool all);
void zt_manual_man(FILE *out);
void zt_manual_version(FILE *out, bool verbose);

#endif
