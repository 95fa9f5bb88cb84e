/* private.h -- cores.c and what hwloc tells it. Nobody else includes it. */
#ifndef COMMON_CORES_PRIVATE_H
#define COMMON_CORES_PRIVATE_H

#include "common/cores/cores.h"

/*
 * The cores of `mask`, NUMA node by NUMA node; of this machine, or of one that is made
 * up. False, with *c as it was: there is no such machine, or (of this one) hwloc does not
 * know all of the mask.
 */
bool zt_cores_topology(struct zt_cores *c, const char *synthetic, const cpu_set_t *mask);

#endif
