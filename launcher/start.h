/*
 * start.h -- the ways to reach a node, and where programs are.
 */
#ifndef LAUNCHER_START_H
#define LAUNCHER_START_H

#include "launcher/channel.h"

/* The starter of this name; NULL: not in this version. */
const struct zt_starter *zt_starter_find(const char *name);
/* All of them, from 0; NULL: there are no more. */
const struct zt_starter *zt_starter_at(size_t i);

/*
 * The zworker to run: ZLAUNCH_ZWORKER, or the one beside this binary, or the one in PATH.
 * Allocated. ZT_E_NOINPUT: there is none.
 */
zt_err zt_find_zworker(char **out, struct zt_fault *fault) ZT_MUST_CHECK;

/* Where `name` would be found when executed; allocated. ZT_E_NOINPUT: nowhere. */
zt_err zt_find_program(const char *name, char **out,
                       struct zt_fault *fault) ZT_MUST_CHECK;

#endif
