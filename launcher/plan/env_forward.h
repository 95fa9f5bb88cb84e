/*
 * env_forward.h -- which variables of this environment go along to other hosts.
 *
 * In rising order of precedence:
 *      variables that start with NCCL_ UCX OMP_ MLFLOW PYTHON MV2 ZLAUNCH_, and
 *      LD_LIBRARY_PATH; of ZLAUNCH_ not those about this process (descriptors, paths)
 *      and no secrets
 *      .deepspeed_env and .zlaunch_env of the home, then of the working directory:
 *      NAME=VALUE lines, split at the first '=', values as they stand; blank lines and
 *      lines starting with # are skipped. DS_ENV_FILE renames .deepspeed_env.
 *      --export NAME[=VALUE], in order
 *
 * Threads: reads the environment; not while another thread changes it.
 */
#ifndef LAUNCHER_PLAN_ENV_FORWARD_H
#define LAUNCHER_PLAN_ENV_FORWARD_H

#include "common/fault.h"

/*
 * env: NULL-terminated NAME=VALUE list, as environ; HOME and DS_ENV_FILE are taken from
 * it. exports: NULL-terminated, or NULL. *out: allocated, NULL-terminated, each name
 * once, sorted. ZT_E_USAGE names the file and line, or the option; ZT_E_NOINPUT a file
 * that is there and cannot be read; one of the home is left out, with a line in *left_out
 * (NULL before, and the caller's to free).
 */
zt_err zt_forward_env(char *const *env, char *const *exports, char ***out,
                      char **left_out, struct zt_fault *fault) ZT_MUST_CHECK;
/* The same of files and exports alone. A file that is left out is told by
 * zt_forward_env(), not by this one. */
zt_err zt_forward_named(char *const *env, char *const *exports, char ***out,
                        struct zt_fault *fault) ZT_MUST_CHECK;
void zt_forward_release(char **list); /* NULL is fine */

#endif
