/*
 * cgroup.h -- a control group (version 2) for the ranks of a node, where one may be made.
 *
 * The kernel ends all processes of a group at once, also those that are just being forked
 * and those that left their session and process group. Where the daemon may not make a
 * group (no cgroup2 mounted, or a user without a delegated subtree) nothing is lost but
 * that: ranks still are in process groups of their own, and descendants of a subreaper.
 *
 * A group is a folder "zlaunch-PID" beside the daemon's own processes, locked by its daemon;
 * the next zlaunch or daemon there ends whatever a killed one left in its group
 * (common/process/job_groups.h).
 * Threads: the daemon's loop thread.
 */
#ifndef WORKER_DAEMON_CGROUP_H
#define WORKER_DAEMON_CGROUP_H

#include <stdbool.h>
#include <stddef.h>

struct zt_cgroup {
    char path[4096]; /* "": there is none */
    int dir_fd;      /* holds the lock */
    int procs_fd;    /* whoever writes "0" to it is in the group; -1: there is none */
};

/* Best effort: without a group procs_fd is -1. Clears away what dead daemons left. */
void zt_cgroup_open(struct zt_cgroup *g);
/* In the child, between fork and exec: async-signal-safe. */
void zt_cgroup_enter(int procs_fd);
/* SIGKILL to all processes of the group. */
void zt_cgroup_kill(const struct zt_cgroup *g);
/* Removes the group, which must be empty. */
void zt_cgroup_close(struct zt_cgroup *g);

#endif
