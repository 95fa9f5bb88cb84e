/*
 * look.h -- what is a rank doing, seen from outside: for a job that makes no progress.
 *
 * A rank that catches SIGQUIT, as zworker does, also prints its own stack on stderr.
 */
#ifndef WORKER_DAEMON_LOOK_H
#define WORKER_DAEMON_LOOK_H

#include "common/phase.h"

#include <jansson.h>
#include <sys/types.h>

/*
 * {rank, pid, state, phase, collective, collectives, inside, where, stack}: state in
 * words; the last collective by name, how many have begun, and whether it is in it still;
 * `where` the kernel function that it waits in, `stack` the top of the kernel's stack;
 * both empty where the system does not tell. Allocated; NULL: no memory.
 */
json_t *zt_look_at(int rank, pid_t pid, const struct zt_phase_slot *slot);

#endif
