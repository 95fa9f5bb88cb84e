/*
 * run_text.h -- a run as text that is the same on every rank of a job.
 *
 * One line per value of the resolved config, "zero_optimization.stage: 2", in the order
 * of the alphabet: neither the order of a file nor where a value came from matters. Left
 * out is what may differ from node to node: --threads, and every key that names a place
 * in a file system (it ends in _path, _dir or _file, as output_dir and nvme_path do).
 * Threads: one.
 */
#ifndef COMMON_RUN_TEXT_H
#define COMMON_RUN_TEXT_H

#include "common/run.h"

/* After zt_run_resolve(). *out is allocated, the caller frees it. ZT_E_NOMEM. */
zt_err zt_run_config_text(const struct zt_run *run, char **out,
                          struct zt_fault *fault) ZT_MUST_CHECK;

#endif
