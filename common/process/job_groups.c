#include "common/process/job_groups.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "common/log.h"
#include "common/process/cgroups.h"

void zt_job_group_kill(const char *folder)
{
    char path[4400];
    int fd;

    snprintf(path, sizeof(path), "%s/cgroup.kill", folder);
    fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    if (write(fd, "1", 1) < 0)
        zt_debug("process", "%s: %s", path, strerror(errno));
    close(fd);
}

int zt_job_group_lock(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) < 0) {
        close(fd);
        fd = -1;
    }
    return fd;
}

/* The kernel needs a moment to end processes; a group that still has one stays. */
void zt_job_group_remove(const char *path)
{
    for (int tries = 0; rmdir(path) < 0 && errno == EBUSY && tries < 100; tries++)
        usleep(1000);
}

static void remove_stale_groups(const char *parent)
{
    DIR *d = opendir(parent);
    struct dirent *e;

    while (d && (e = readdir(d))) {
        char path[4400];
        int fd;

        if (strncmp(e->d_name, ZT_JOB_GROUP_PREFIX, strlen(ZT_JOB_GROUP_PREFIX)) != 0)
            continue;
        snprintf(path, sizeof(path), "%s/%s", parent, e->d_name);
        fd = zt_job_group_lock(path);
        if (fd < 0)
            continue;
        zt_job_group_kill(path);
        zt_job_group_remove(path);
        close(fd);
    }
    if (d)
        closedir(d);
}

/* The same in the groups beside `parent`: jobs of a user are in scopes of their own, and
 * one that was killed with its daemon is not where the next begins. */
static void remove_stale_beside(const char *parent)
{
    char above[4096], path[4400];
    const struct dirent *e;
    char *slash;
    DIR *d;

    snprintf(above, sizeof(above), "%s", parent);
    slash = strrchr(above, '/');
    if (!slash || slash == above)
        return;
    *slash = '\0';
    snprintf(path, sizeof(path), "%s/cgroup.procs", above);
    d = access(path, F_OK) == 0 ? opendir(above) : NULL; /* else `parent` is the mount */
    while (d && (e = readdir(d))) {
        if (e->d_type != DT_DIR || e->d_name[0] == '.')
            continue;
        snprintf(path, sizeof(path), "%s/%s", above, e->d_name);
        remove_stale_groups(path);
    }
    if (d)
        closedir(d);
}

void zt_job_groups_remove_stale(void)
{
    char own[3072];

    if (!zt_cgroups_folder("", own, sizeof(own)))
        return;
    remove_stale_groups(own);
    remove_stale_beside(own);
}
