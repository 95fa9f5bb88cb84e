/* report.h -- what this zworker has and can use here, for `zlaunch --report`. */
#ifndef WORKER_ENGINE_REPORT_H
#define WORKER_ENGINE_REPORT_H

#include <jansson.h>

/*
 * {version, plugin_abi, compiler, glibc, libraries: {name: version},
 *  backends: [{name, built, usable, text}], devices: [{kind, name, bytes}],
 *  notes: [{what, todo}]}
 * Loads the MPI and CUDA libraries that are there, and asks them; starts neither.
 * NULL: no memory.
 */
json_t *zt_worker_report(void);

#endif
