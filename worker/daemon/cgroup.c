#include "worker/daemon/cgroup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/log.h"
#include "common/process/cgroups.h"

#define PREFIX "zlaunch-"

static void put(const char *folder, const char *name, const char *text)
{
    char path[4400];
    int fd;

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    if (write(fd, text, strlen(text)) < 0)
        zt_debug("daemon", "%s: %s", path, strerror(errno));
    close(fd);
}

/* The folder, locked; -1: it is gone, or its daemon lives. */
static int lock_folder(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) < 0) {
        close(fd);
        fd = -1;
    }
    return fd;
}

/* The kernel needs a moment to end processes; a group that still has one stays. */
static void remove_folder(const char *path)
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

        if (strncmp(e->d_name, PREFIX, strlen(PREFIX)) != 0)
            continue;
        snprintf(path, sizeof(path), "%s/%s", parent, e->d_name);
        fd = lock_folder(path);
        if (fd < 0)
            continue;
        put(path, "cgroup.kill", "1");
        remove_folder(path);
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

/* Without cgroup.kill (Linux before 5.14) a group would be of no use. */
static bool make(struct zt_cgroup *g, const char *parent)
{
    char file[4400];

    if (snprintf(g->path, sizeof(g->path), "%s/" PREFIX "%d", parent, (int)getpid()) >=
            (int)sizeof(g->path) ||
        mkdir(g->path, 0755) < 0)
        return false;
    g->dir_fd = lock_folder(g->path);
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
    if (!zt_cgroups_folder("", parent, sizeof(parent)))
        return;
    remove_stale_groups(parent);
    remove_stale_beside(parent);
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
        put(g->path, "cgroup.kill", "1");
}

void zt_cgroup_close(struct zt_cgroup *g)
{
    if (g->procs_fd >= 0)
        close(g->procs_fd);
    if (g->path[0])
        remove_folder(g->path);
    if (g->dir_fd >= 0)
        close(g->dir_fd);
    *g = (struct zt_cgroup){.dir_fd = -1, .procs_fd = -1};
}
