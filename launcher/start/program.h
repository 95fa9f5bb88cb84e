/*
 * program.h -- where programs are.
 */
#ifndef LAUNCHER_START_PROGRAM_H
#define LAUNCHER_START_PROGRAM_H

#include "common/fault.h"

/*
 * The zworker to run: ZLAUNCH_ZWORKER, or the one beside this binary, or the one in PATH.
 * Allocated. ZT_E_NOINPUT: there is none.
 */
zt_err zt_find_zworker(char **out, struct zt_fault *fault) ZT_MUST_CHECK;

/* Where `name` would be found when executed; allocated. ZT_E_NOINPUT: nowhere. */
zt_err zt_find_program(const char *name, char **out,
                       struct zt_fault *fault) ZT_MUST_CHECK;

/*
 * What argv[0], a path, writes to its standard output within `seconds`, at most 1 MiB; then
 * it is killed. Allocated, *n bytes and a 0. NULL: it cannot be run, or no memory.
 */
char *zt_program_output(char *const argv[], double seconds, size_t *n);

#endif
