#include "worker/daemon/cgroup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/log.h"
#include "common/process/cgroups.h"
#include "common/process/job_groups.h"

/* Without cgroup.kill (Linux before 5.14) a group would be of no use. */
static bool make(struct zt_cgroup *g, const char *parent)
{
    char file[4400];

    if (snprintf(g->path, sizeof(g->path), "%s/" ZT_JOB_GROUP_PREFIX "%d", parent,
                 (int)getpid()) >= (int)sizeof(g->path) ||
        mkdir(g->path, 0755) < 0)
        return false;
    g->dir_fd = zt_job_group_lock(g->path);
    snprintf(file, sizeof(file), "%s/cgroup.kill", g->path);
    if (g->dir_fd < 0 || access(file, W_OK) < 0)
        return false;
    snprintf(file, sizeof(file), "%s/cgroup.procs", g->path);
    g->procs_fd = open(file, O_WRONLY | O_CLOEXEC);
    return g->procs_fd >= 0;
}

void zt_cgroup_open(struct zt_cgroup *g)
{
    char parent[3072];

    *g = (struct zt_cgroup){.dir_fd = -1, .procs_fd = -1};
    zt_job_groups_remove_stale();
    if (!zt_cgroups_folder("", parent, sizeof(parent)))
        return;
    if (make(g, parent))
        return;
    zt_debug("daemon", "no control group below %s: %s", parent, strerror(errno));
    zt_cgroup_close(g);
}

void zt_cgroup_enter(int procs_fd)
{
    if (procs_fd >= 0)
        (void)!write(procs_fd, "0", 1);
}

void zt_cgroup_kill(const struct zt_cgroup *g)
{
    if (g->procs_fd >= 0)
        zt_job_group_kill(g->path);
}

void zt_cgroup_close(struct zt_cgroup *g)
{
    if (g->procs_fd >= 0)
        close(g->procs_fd);
    if (g->path[0])
        zt_job_group_remove(g->path);
    if (g->dir_fd >= 0)
        close(g->dir_fd);
    *g = (struct zt_cgroup){.dir_fd = -1, .procs_fd = -1};
}
