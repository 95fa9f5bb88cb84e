/*
 * guard.h -- a process above the daemon that has nothing to do but to outlive it.
 *
 * On a host where nobody of zlaunch's is above the daemon, what ranks started would be
 * left to init when the daemon is killed. The guard is a subreaper: it adopts them, kills
 * them, and ends as the daemon did. When the guard itself is killed the daemon gets
 * SIGTERM, and stops the job in order. Both at once is what it takes to leave something;
 * a control group (cgroup.h) finds that, too.
 */
#ifndef WORKER_DAEMON_GUARD_H
#define WORKER_DAEMON_GUARD_H

#include <stdbool.h>

/*
 * Forks. True in the child, which is to be the daemon (and without a fork if there can be
 * none). False in the guard once all is over: leave with *exit_code. Where the daemon was
 * ended by a signal the guard ends by it too, and does not return.
 */
bool zt_guard_fork(int *exit_code);

#endif
