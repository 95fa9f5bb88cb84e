/*
 * job_groups.h -- the control groups (version 2) of jobs: "zlaunch-PID", locked by their daemon.
 *
 * A daemon holds a lock on its group's folder for as long as it lives. One that was killed
 * together with its machine's zlaunch leaves a group without a lock, and perhaps processes in it.
 * Threads:   any.
 * Failure:   best effort; what stays is tried again by the next zlaunch or daemon.
 */
#ifndef COMMON_PROCESS_JOB_GROUPS_H
#define COMMON_PROCESS_JOB_GROUPS_H

#define ZT_JOB_GROUP_PREFIX "zlaunch-"

/* The folder, locked: whoever closes it gives it free. -1: it is gone, or its daemon lives. */
int zt_job_group_lock(const char *path);
/* SIGKILL to all processes of the group. */
void zt_job_group_kill(const char *path);
/* The kernel needs a moment to end processes; a group that still has one stays. */
void zt_job_group_remove(const char *path);

/* Those of dead daemons, in this process's group and in the groups beside it: they end. */
void zt_job_groups_remove_stale(void);

#endif
