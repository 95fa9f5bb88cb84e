/*
 * inspect.h -- what a rank is doing, as the kernel sees it: for a job that makes no
 * progress.
 *
 * A rank that catches SIGQUIT, as zworker does, also prints its own stack on stderr.
 */
#ifndef WORKER_DAEMON_INSPECT_H
#define WORKER_DAEMON_INSPECT_H

#include "common/message/phase.h"

#include <jansson.h>
#include <sys/types.h>

/*
 * {rank, pid, state, stopped, phase, collective, collectives, inside, where, stack}.
 * state: in words; stopped: by a signal or a debugger. collective: the last one, by name;
 * collectives: how many have begun; inside: it has not returned from the last one. where:
 * the kernel function that it waits in; stack: the top of the kernel's stack; both are
 * empty if the system does not tell. Allocated; NULL: no memory.
 */
json_t *zt_inspect_rank(int rank, pid_t pid, const struct zt_phase_slot *slot);

#endif
