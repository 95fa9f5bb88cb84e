/*
 * canonical_text.h -- a run as text: equal runs give equal texts, so that ranks can
 * compare what they were given.
 *
 * One line per value of the resolved config, "zero_optimization.stage: 2", in the order
 * of the alphabet: neither the order of a file nor where a value came from matters. Left
 * out is what may differ from node to node: options and keys whose row has the flag
 * ZT_OPTION_PER_NODE or ZT_KEY_PER_NODE, which are --threads and places in a file system.
 * Threads: one.
 */
#ifndef WORKER_CONFIG_CANONICAL_TEXT_H
#define WORKER_CONFIG_CANONICAL_TEXT_H

#include "worker/config/run.h"

/* After zt_run_resolve(). *out is allocated, the caller frees it. ZT_E_NOMEM. */
zt_err zt_run_config_text(const struct zt_run *run, char **out,
                          struct zt_fault *fault) ZT_MUST_CHECK;

/*
 * Of each option whose path may differ from node to node, whether it was given, which may
 * not differ: what ranks do together follows from it. "--output_dir given". As above.
 */
zt_err zt_run_paths_text(const struct zt_run *run, char **out,
                         struct zt_fault *fault) ZT_MUST_CHECK;

/* Where the value of a line of the first text comes from when nobody has given it: "default",
 * "rule: as logging_steps". NULL: somebody has, or there is no such value. */
const char *zt_run_config_rule(const struct zt_run *run, const char *line);

/* Whether it is an option of the plugin that may be a fraction: "zlaunch.model.dropout: 0.1". */
bool zt_run_is_share(const struct zt_run *run, const char *line);

#endif
